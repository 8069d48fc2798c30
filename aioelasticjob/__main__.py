"""`python -m aioelasticjob`: the command line."""

from aioelasticjob.cli import main

if __name__ == "__main__":
    main()
