"""The jobs of the YAML file do what its page says."""

import re
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port

from aioelasticjob.settings import examine
from tests.docs.pages import ROOT
from tests.support.processes import Workers

EXAMPLE = ROOT / "examples" / "script_and_http"


def test_the_file_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    settings, mistakes = examine("jobs.yaml")
    assert mistakes == ()
    assert settings.jobs == {"count-files": "script", "call-service": "http"}


@pytest.mark.process
def test_the_script_counts_for_each_item_and_the_service_is_asked(tmp_path: Path, worker_processes: Workers) -> None:
    port = unused_port()
    service = worker_processes.start(str(EXAMPLE / "service.py"), str(port))
    service.wait_for_output(f"serving on http://127.0.0.1:{port}")
    environment = {
        "PYTHONPATH": str(ROOT),
        "DIRECTORY": str(EXAMPLE),
        "REPORTS": str(tmp_path),
        "SERVICE": f"http://127.0.0.1:{port}",
        "AIOELASTICJOB_JOBS__CALL_SERVICE__CRON": "* * * * * ?",
    }
    worker = worker_processes.start(
        "-m", "aioelasticjob", "run", "--config", str(EXAMPLE / "jobs.yaml"), environment=environment
    )
    asked = service.wait_for_output("asked by")
    assert re.match(r"asked by call-service, item 0, for \d{4}-\d\d-\d\dT", asked)
    worker.wait_for_output(f"POST http://127.0.0.1:{port}/hourly answered 204")
    for directory in ("/etc", "/usr/bin", "/usr/sbin"):
        worker.wait_for_output(f"{directory} has ")
    assert worker.terminate() == 0
    reports = sorted(path.read_text().split() for path in tmp_path.glob("count-*.txt"))
    assert [directory for directory, _ in reports] == ["/etc", "/usr/bin", "/usr/sbin"]
    assert all(int(count) == files_below(Path(directory)) for directory, count in reports[:1])


def files_below(directory: Path) -> int:
    return sum(path.is_file() and not path.is_symlink() for path in directory.rglob("*"))
