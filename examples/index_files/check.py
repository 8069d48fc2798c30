"""Compares the database with the directory: every file once, every hash right.  Exit code 1 if not."""

import sys

from aioelasticjob.demo.check import check
from aioelasticjob.demo.index_files import DATABASE, DIRECTORY, EXCLUDED

verdict = check(DIRECTORY, DATABASE, EXCLUDED)
print(*verdict.lines(), sep="\n")
sys.exit(0 if verdict.right else 1)
