"""The example as its README tells: ordinary processes against any ZooKeeper, one of them killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import ROOT, Workers

FILES = 80


@pytest.mark.process
def test_the_example_indexes_a_directory_though_a_worker_is_killed(
    registry_address: str, worker_processes: Workers, tmp_path: Path
) -> None:
    directory, database = tmp_path / "files", tmp_path / "index.db"
    directory.mkdir()
    for n in range(FILES):
        (directory / f"f{n}.py").write_text(f"def f{n}(): pass\n")
    environment = {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "examples" / "index_files"), str(ROOT))),
        "AIOELASTICJOB_REGISTRY": registry_address,
        "INDEX_DIRECTORY": str(directory),
        "INDEX_DATABASE": str(database),
        "INDEX_FILES_PER_RUN": "5",
    }
    workers = [
        worker_processes.start("-m", "aioelasticjob", "run", "jobs:app", environment=environment) for _ in range(2)
    ]
    for worker in workers:
        worker.wait_for_output("files=5")
    workers[0].kill()
    deadline, checked = time.monotonic() + 120, [sys.executable, str(ROOT / "examples" / "index_files" / "check.py")]
    while subprocess.run(checked, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, check=False).returncode:
        assert time.monotonic() < deadline, workers[1].output
        time.sleep(0.5)
    assert workers[1].terminate() == 0
    assert "Traceback" not in workers[1].output
