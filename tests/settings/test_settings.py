"""Settings files: what they say, and all that can be wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob import ElasticJob, InvalidSetting, ItemContext
from aioelasticjob.jobs import kinds
from aioelasticjob.registry.settings import ConnectionOptions, ConnectionSettings
from aioelasticjob.registry.tls import TlsSettings
from aioelasticjob.settings import WrongSettings, examine, load
from aioelasticjob.settings.checking import Application
from aioelasticjob.settings.placeholders import Unresolved, resolve

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a settings file into the current directory, which is a fresh one; no variable is ours."""
    monkeypatch.chdir(tmp_path)
    for variable in ("REGISTRY", "DIGEST"):
        monkeypatch.delenv(f"AIOELASTICJOB_{variable}", raising=False)

    def write(text: str, name: str = "jobs.yaml") -> Path:
        Path(name).write_text(dedent(text))
        return Path(name)

    return write


def mistakes_in(file: Path | str | None, **options: bool) -> list[str]:
    return [str(mistake) for mistake in examine(file, **options)[1]]


YAML = """
    registry: zk://${ZK_HOST:127.0.0.1}:2181/billing
    session_timeout: 20
    max_retries: ${RETRIES:7}
    defaults:
      time_zone: Europe/Berlin
      failover: true
    jobs:
      backup:
        kind: script
        command: [echo, --full, "$${HOME}"]
        environment: {PORT: 8080}
        cron: 0 0 2 * * ?
        shardingTotalCount: 2
        sharding_item_parameters: {0: Beijing, 1: Shanghai}
      ping:
        kind: http
        url: https://example.com/ping
        expected_status: [200, "3xx"]
        failover: false
      report:
        cron: "*/5 * * * *"
"""
TOML = """
    registry = "zk://${ZK_HOST:127.0.0.1}:2181/billing"
    session_timeout = 20
    max_retries = "${RETRIES:7}"
    defaults = { time_zone = "Europe/Berlin", failover = true }
    [jobs.backup]
    kind = "script"
    command = ["echo", "--full", "$${HOME}"]
    cron = "0 0 2 * * ?"
    shardingTotalCount = 2
    environment.PORT = 8080
    [jobs.backup.sharding_item_parameters]
    0 = "Beijing"
    1 = "Shanghai"
    [jobs.ping]
    kind = "http"
    url = "https://example.com/ping"
    expected_status = [200, "3xx"]
    failover = false
    [jobs.report]
    cron = "*/5 * * * *"
"""


def test_the_size_of_requests_can_be_given_in_a_file_and_in_the_environment(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("registry: zk://127.0.0.1/billing\nmax_request: 4000000")
    assert ElasticJob.from_settings(file).settings.max_request == 4_000_000
    monkeypatch.setenv("AIOELASTICJOB_MAX_REQUEST", "5000000")
    assert ElasticJob.from_settings(file).settings.max_request == 5_000_000


@pytest.mark.parametrize("file", [5, "a\0.yaml", ""])
def test_what_is_no_path_is_no_settings_file(file: Any) -> None:
    with pytest.raises(WrongSettings, match="must be the path of a file"):
        ElasticJob.from_settings(file)


@pytest.mark.parametrize(("text", "name"), [(YAML, "jobs.yaml"), (TOML, "jobs.toml")])
def test_both_formats_say_the_same(text: str, name: str, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZK_HOST", "zk1")
    app = ElasticJob.from_settings(write(text, name))

    @app.job(cron="0 0 3 * * ?", time_zone="UTC", sharding_total_count=4)
    async def report(context: object) -> None: ...

    assert app.address == "zk://zk1:2181/billing"
    assert (app.settings.session_timeout, app.settings.max_retries, app.settings.connection_timeout) == (20, 7, 15)
    backup, ping, code = app.jobs
    assert backup.options == {"command": ["echo", "--full", "${HOME}"], "environment": {"PORT": "8080"}}
    assert (backup.job_type, backup.cron, backup.time_zone, backup.failover) == (
        "SCRIPT",
        "0 0 2 * * ?",
        "Europe/Berlin",
        True,
    )
    assert (backup.sharding_total_count, backup.sharding_item_parameters) == (2, {0: "Beijing", 1: "Shanghai"})
    assert (ping.job_type, ping.options["expectedStatus"], ping.failover) == ("HTTP", ["200", "3xx"], False)
    assert (code.cron, code.sharding_total_count) == ("*/5 * * * *", 4), "the file goes before the code"
    assert (code.time_zone, code.failover) == ("UTC", True), "its defaults do not, where the code says something"


def test_the_environment_goes_before_the_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "REGISTRY": "embedded:///other",
        "session_timeout": "25",
        "JOBS__BACKUP__CRON": "0 0 4 * * ?",
        "JOBS__BACKUP__COMMAND": '["echo", "1"]',
        "JOBS__NIGHTLY_REPORT__JOB_PARAMETER": "5",
        "JOBS__NEW__KIND": "script",
        "JOBS__NEW__COMMAND": "echo '{a}'",
        "MAX_RETRIES": "",
    }.items():
        monkeypatch.setenv(f"AIOELASTICJOB_{name}", value)
    app = ElasticJob("zk://here")
    app.add(lambda context: None, name="Nightly-Report")
    app.configure(write(YAML.replace("report:", "Nightly-Report:")))
    jobs = {job.job_name: job for job in app.jobs}
    assert (app.address, app.settings.session_timeout, app.settings.max_retries) == ("embedded:///other", 25, 7)
    assert (jobs["backup"].cron, jobs["backup"].options["command"]) == ("0 0 4 * * ?", ["echo", "1"])
    assert (jobs["Nightly-Report"].job_parameter, jobs["Nightly-Report"].cron) == ("5", "*/5 * * * *")
    assert jobs["new"].options == {"command": "echo '{a}'"}


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("MAX_RETRYS", "MAX_RETRIES"),
        ("REGISTERY", "REGISTRY"),
        ("JOB__BACKUP__CRON", "JOBS__JOB__SETTING"),
        ("JOBS_BACKUP_CRON", "JOBS__JOB__SETTING"),
        ("JOBS_BACKUP__CRON", "JOBS__JOB__SETTING"),
        ("JOBS", "JOBS__JOB__SETTING"),
        ("DEFAULTS__CRON", "JOBS__JOB__SETTING"),
    ],
)
def test_a_mistyped_variable_is_a_mistake(variable: str, near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIOELASTICJOB_{variable}", "5")
    _, found = examine()
    said = f"AIOELASTICJOB_{variable}: sets nothing; did you mean AIOELASTICJOB_{near}?"
    assert [str(one) for one in found] == [said]


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        (
            "BACKUP__RETRY__ATTEMPTS",
            ': sets nothing: write AIOELASTICJOB_JOBS__BACKUP__RETRY, with all parts of retry as JSON: {"attempts": …}',
        ),
        (
            "PING__HEADERS__AUTHORIZATION",
            ": sets nothing: write AIOELASTICJOB_JOBS__PING__HEADERS, with all parts of headers as JSON: "
            '{"authorization": …}',
        ),
        (
            "BACKUP__ATTEMPTS",
            ": jobs.backup.attempts = '{attempts: 5}': there is no such setting; write retry=Retry(attempts=3), "
            'and outside of code retry={"attempts": 3}',
        ),
        (
            "BACKUP__RETRY",
            ": jobs.backup.retry = '{attempts: 5}': must be a Retry, or a mapping with any of attempts, backoff, on, "
            'longest, such as {"attempts": 5, "backoff": "2s"}',
        ),
    ],
)
def test_a_variable_for_a_part_of_a_setting_is_refused_with_what_to_write(
    variable: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"AIOELASTICJOB_JOBS__{variable}", "{attempts: 5}")
    assert [str(one) for one in examine()[1]] == [f"AIOELASTICJOB_JOBS__{variable}{says}"]


def test_a_job_may_be_called_like_a_part_of_a_setting(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOELASTICJOB_JOBS__BACKUP__RETRY__CRON", "@daily")
    monkeypatch.setenv("AIOELASTICJOB_JOBS__CLEAN__LABELS__CRN", "@daily")
    settings, found = examine(write("jobs: {clean__labels: {}}"))
    assert set(settings.jobs) == {"clean__labels", "backup__retry"}
    assert [one.setting for one in found] == ["jobs.clean__labels.crn"]


@pytest.mark.parametrize("variable", ["CONTEXT", "ITEM", "PROFILE", "PROFILES", "HOME_OF_OURS"])
def test_a_variable_that_others_read_is_no_mistake(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"AIOELASTICJOB_{variable}", "5")
    assert examine()[1] == ()


def test_a_jobs_settings_may_come_from_the_environment_alone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOELASTICJOB_REGISTRY", "embedded://")
    monkeypatch.setenv("AIOELASTICJOB_JOBS__NIGHTLY_REPORT__SHARDING_TOTAL_COUNT", "3")
    app = ElasticJob.from_settings(threads=3)
    app.add(lambda context: None, name="nightly.report")
    assert (app.address, app.jobs[0].sharding_total_count) == ("embedded://", 3)
    with pytest.raises(WrongSettings, match=r"item 9 is out of range: sharding_total_count = 3"):
        app.add(lambda context: None, name="nightly_report", sharding_item_parameters={9: "x"}, sharding_total_count=10)


def test_what_is_given_in_code_to_from_settings_goes_before_all(write: Write) -> None:
    app = ElasticJob.from_settings(write("registry: zk://here"), registry="zk://there", max_retries=1)
    assert (app.address, app.settings.max_retries) == ("zk://there", 1)
    with pytest.raises(InvalidSetting, match="write registry: zk://"):
        ElasticJob.from_settings(write("max_retries: 3"))


def test_a_code_declared_script_is_changed_by_its_own_settings(write: Write) -> None:
    app = ElasticJob("zk://here")
    app.script("backup", command="echo code", grace=3)
    app.configure(write("jobs: {backup: {command: echo file, cron: '@daily'}}"))
    assert (app.jobs[0].options, app.jobs[0].cron) == ({"command": "echo file", "grace": 3}, "@daily")
    with pytest.raises(WrongSettings, match=r"^jobs.yaml:4: jobs.backup.kind = 'http': the code declares backup as SC"):
        app.configure(write("\njobs:\n  backup:\n    kind: http\n    url: http://x\n"))
    with pytest.raises(WrongSettings, match=r"^jobs.yaml:3: jobs.backup.url = 'http://x': .*no such setting"):
        app.configure(write("jobs:\n  backup:\n    url: http://x\n"))


WRONG = """\
registy: zk://a
session_timeout: -5
base_sleep_time: 9
defaults:
  time_zone: Europe/Berln
jobs:
  backup:
    kind: script
    comand: ls
    cron: "0 0 25 * * ?"
    time_zone: Mars/Crater
    shardingTotalCount: many
    sharding_total_count: 3
  ping:
    kind: http
    url: ftp://x
    method: G T
    expected_status: 99
    timeout: 0
    failover: true
    monitor_execution: false
    sharding_strategy: fair
    error_handler: webhok
    job_parameter: true
    job_type: HTTP
    headers: {"a b": c}
  other:
    kind: htp
  report:
    crn: "* * * * * ?"
    cron: ${NOPE}
    sharding_item_parameters: {5: x}
    per: ${1X}
    kind:
  bad/name:
    kind: script
    command: no-such-program
  list: [1]
  ping2: {kind: http, url: "http://x", error_handler: webhook, sharding_item_parameters: {1: x}}
"""


def test_an_empty_variable_sets_nothing_and_is_not_blamed_for_the_value_of_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOELASTICJOB_MAX_RETRIES", "")
    assert ElasticJob.from_settings(write("registry: embedded://\nmax_retries: 3")).settings.max_retries == 3
    (mistake,) = mistakes_in(write("registry: embedded://\nmax_retries: many"))
    assert mistake.startswith("jobs.yaml:2: max_retries = 'many': ")


def test_every_mistake_is_reported_with_its_line(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOELASTICJOB_MAX_RETRIES", "many")
    monkeypatch.setenv("AIOELASTICJOB_JOBS__REPORT__MISFIRE", "perhaps")
    monkeypatch.setenv("AIOELASTICJOB_JOBS__X", "1")
    places = [line.split(" = ")[0].split(": ")[:2] for line in mistakes_in(write(WRONG))]
    assert [f"{place.removeprefix('jobs.yaml:')} {setting}" for place, setting in places] == [
        "1 registy",
        "2 session_timeout",
        "3 base_sleep_time",
        "5 defaults.time_zone",
        "7 jobs.backup.command",
        "9 jobs.backup.comand",
        "10 jobs.backup.cron",
        "11 jobs.backup.time_zone",
        "12 jobs.backup.shardingTotalCount",
        "13 jobs.backup.sharding_total_count",
        "16 jobs.ping.url",
        "17 jobs.ping.method",
        "18 jobs.ping.expected_status",
        "19 jobs.ping.timeout",
        "20 jobs.ping.failover",
        "22 jobs.ping.sharding_strategy",
        "23 jobs.ping.error_handler",
        "24 jobs.ping.job_parameter",
        "25 jobs.ping.job_type",
        "26 jobs.ping.headers",
        "28 jobs.other.kind",
        "30 jobs.report.crn",
        "31 jobs.report.cron",
        "33 jobs.report.per",
        "35 jobs.bad/name",
        "37 jobs.bad/name.command",
        "38 jobs.list",
        "39 jobs.ping2.error_handler_options.url",
        "39 jobs.ping2.sharding_item_parameters",
        "AIOELASTICJOB_JOBS__REPORT__MISFIRE jobs.report.misfire",
        "AIOELASTICJOB_JOBS__X write AIOELASTICJOB_JOBS__JOB__SETTING",
        "AIOELASTICJOB_MAX_RETRIES max_retries",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("registy: zk://a", "jobs.yaml:1: registy = 'zk://a': there is no such setting; did you mean registry?"),
        ("registry: http://a", "jobs.yaml:1: registry = 'http://a': write zk://host:port,host:port/namespace"),
        (
            "jobs:\n  a: {cron: ${X}}",
            "but got '{'; a value like ${NAME} or 0 0 3 * * ? needs quotes between braces or brackets",
        ),
        ("jobs:\n  a:\n    cron: */5 * * * *", "a value like */5 * * * * or @daily needs quotes"),
        ("jobs:\n  a:\n    cron: @daily", "jobs.yaml:3: is no YAML: found character '@' that cannot start any token;"),
        ("jobs: {a: {cron: '@dayly'}}", "jobs.yaml:1: jobs.a.cron = '@dayly'"),
        ("jobs:\n  a: {}\n  a: {}", "jobs.yaml:3: jobs.a: is given twice, first in line 2"),
        ("- a", "jobs.yaml:1: must be a mapping, such as registry"),
        ("jobs: [a]", "jobs.yaml:1: jobs = ['a']: must be a mapping"),
        ("jobs: &x {a: *x}", "jobs.yaml: is nested more than 100 levels deep, or refers to itself"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        (
            "jobs: {a: {job_parameter: false}}",
            "jobs.a.job_parameter = False: input should be a valid string: put it in",
        ),
        ("jobs: {a: {job_name: b}}", "jobs.a.job_name = 'b': is the key that this stands below"),
        ("jobs: {a: {options: {}}}", "write each of them beside the other settings"),
        ("jobs: {a: {kind: 5}}", "jobs.a.kind = 5: must be one of http, script"),
        ("jobs: {a: {kind: script, command: [sh, nosuch.sh]}}", "there is no file 'nosuch.sh' for sh to run"),
        ("defaults: {command: ls}", "jobs.yaml:1: defaults.command = 'ls': there is no such setting"),
        ("defaults: {kind: ''}", "jobs.yaml:1: defaults.kind = '': write it below each job"),
        ("defaults: {kind: script}", "jobs.yaml:1: defaults.kind = 'script': write it below each job"),
        ("metrics: nowhere", "jobs.yaml:1: metrics = 'nowhere': write a port, or HOST:PORT with a port up to 65535"),
        (
            "console_url: jobs.example.org",
            "jobs.yaml:1: console_url = 'jobs.example.org': an address such as https://jobs.example.org/r/billing",
        ),
        ("event_store: runs.db", "jobs.yaml:1: event_store = 'runs.db': write sqlite:///events.db,"),
        ("a: \0", "jobs.yaml: is no YAML: unacceptable character"),
    ],
)
def test_a_mistake_says_what_would_be_right(text: str, says: str, write: Write) -> None:
    (first, *_) = mistakes_in(write(text))
    assert says in first
    with pytest.raises(WrongSettings) as caught:
        load("jobs.yaml")
    assert str(caught.value).startswith(first)


@pytest.mark.parametrize(
    "job", ['{cron: "0 0 3 * * ?"}', "[1, 2]", '{kind: script, command: echo, cron: "0 0 3 * * ?"}']
)
def test_somebodys_broken_kind_is_no_mistake_of_other_jobs(
    job: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> object:
        raise ModuleNotFoundError("No module named 'theirs'")

    monkeypatch.setattr(kinds, "entry_points", lambda group: [SimpleNamespace(name="theirs", load=load)])
    mistakes = mistakes_in(write(f"registry: embedded://\njobs:\n  report: {job}\n  other: {{kind: theirs}}\n"))
    assert [one for one in mistakes if "jobs.report" in one and "must be a mapping" not in one] == []
    assert mistakes[-1] == (
        "jobs.yaml:4: jobs.other.kind = 'theirs': cannot be loaded: ModuleNotFoundError: No module named 'theirs'"
    )


def test_a_wrong_name_hides_no_other_mistake(write: Write) -> None:
    jobs = 'jobs:\n  "a b": {kind: script, command: echo, time_zone: Europe/Berln, cron: "0 0 3 * * ?"}\n'
    name, zone = mistakes_in(write(f"registry: embedded://\n{jobs}"))
    assert "jobs.a b = 'a b': must be 1 to 200 letters" in name
    assert "jobs.a b.time_zone = 'Europe/Berln': there is no such time zone: did you mean 'Europe/Berlin'?" in zone


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 1\na = 2", "jobs.toml:2: is no TOML: Cannot overwrite a value"),
        ("[jobs.a]\ncrn = 1", "jobs.toml:2: jobs.a.crn = 1: there is no such setting; did you mean cron?"),
        ("[jobs]\na.cron = '@dayly'", "jobs.toml:2: jobs.a.cron = '@dayly'"),
        ('[jobs."a.b"]\ndescription = """\ncron = 1\n"""\ncron = "x"', "jobs.toml:5: jobs.a.b.cron = 'x'"),
        ("[jobs]\n\na = {cron = 'x'}", "jobs.toml:3: jobs.a.cron = 'x'"),
        ("\n[jobs.a]\nkind = 'http'", "jobs.toml:2: jobs.a.url: is missing"),
    ],
)
def test_toml_has_lines_too(text: str, says: str, write: Write) -> None:
    (first,) = mistakes_in(write(text, "jobs.toml"))
    assert first.startswith(says)


def test_a_file_that_is_none_says_so(write: Write) -> None:
    Path("latin.yaml").write_bytes("a: ä".encode("latin-1"))
    Path("place.yaml").mkdir()
    assert mistakes_in("jobs.ini") == ["jobs.ini: must end in .yaml, .yml, .json, .toml"]
    assert mistakes_in("gone.yaml") == ["gone.yaml: cannot be read: No such file or directory"]
    assert mistakes_in("place.yaml") == ["place.yaml: cannot be read: Is a directory"]
    assert mistakes_in("latin.yaml") == ["latin.yaml: is no UTF-8: byte 3"]
    assert mistakes_in(write("")) == []
    assert mistakes_in(write("jobs:\n  a:\n")) == []
    assert mistakes_in(write('{"jobs": {"a": {"cron": "@daily"}}}', "jobs.json")) == []


def test_scripts_of_other_hosts_are_not_looked_for_if_asked(write: Write) -> None:
    file = write("jobs: {a: {kind: script, command: no-such-program, cron: x}}")
    assert len(mistakes_in(file)) == 2
    assert len(mistakes_in(file, elsewhere=True)) == 1


def test_the_event_store_of_other_hosts_is_not_looked_for_if_asked(write: Write) -> None:
    file = write("event_store: sqlite:////no-such-directory/runs.db")
    assert len(mistakes_in(file)) == 1
    assert mistakes_in(file, elsewhere=True) == []


def test_merged_mappings_keep_what_goes_before(write: Write) -> None:
    text = "jobs:\n  a: &a {cron: '@daily', per: instance}\n  b:\n    <<: *a\n    cron: '@hourly'\n"
    app = ElasticJob("zk://here")
    for name in "ab":
        app.add(lambda context: None, name=name)
    app.configure(write(text))
    assert [(job.cron, job.per) for job in app.jobs] == [("@daily", "instance"), ("@hourly", "instance")]


def test_a_name_without_a_job_is_reported_before_anything_runs(write: Write) -> None:
    import anyio

    app = ElasticJob("embedded://")
    app.add(lambda context: None, name="report")
    app.configure(write("jobs:\n  reprot:\n    cron: '@daily'\n  else: {}\n"))

    async def main() -> None:
        async with app.running():
            raise AssertionError("it runs")

    with pytest.raises(WrongSettings, match=r"jobs.yaml:3: jobs.reprot.cron: .*did you mean report\? \(and 1 more"):
        anyio.run(main)


def test_the_top_of_a_file_knows_what_an_application_is_made_with() -> None:
    parameters = set(inspect.signature(ElasticJob).parameters) - {"address", "clock", "connection"}
    assert set(Application.model_fields) - {"registry"} == parameters | ConnectionOptions.__optional_keys__
    assert set(Application.model_fields) >= set(ConnectionSettings.__slots__) - {"hosts", "namespace", "private"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "a"),
        ("x${A}${B:b}y", "xaby"),
        ("${B:}", ""),
        ("${B:http://h:1/}", "http://h:1/"),
        ("${B:${A}}", "a"),
        ("${B:${C:c}}", "c"),
        ('${B:{"a": 1}}', '{"a": 1}'),
        ("$${A} $A ${A}", "${A} $A a"),
        ("$$", "$$"),
    ],
)
def test_placeholders_are_taken_from_the_environment(text: str, result: str) -> None:
    assert resolve(text, {"A": "a"}) == result


@pytest.mark.parametrize("text", ["${B}", "${", "${}", "${1}", "${A", "${a b}", "${B:${C}}"])
def test_a_placeholder_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(Unresolved, match=r"\$\{"):
        resolve(text, {"A": "a"})


@given(st.text(alphabet="${}:Aa\\ "))
def test_any_text_can_be_written_so_that_it_stays(text: str) -> None:
    assert resolve(text.replace("${", "$${"), {}) == text


# How to reach the registry

ACCESS = """
    registry: zks://zk1/billing
    sasl_file: /run/secrets/zookeeper
    digest: bob:${PASSWORD:8765}
    ip: 10.0.0.7
    tls:
      ca: ca.pem
      minimum_version: 1.3
"""


def test_access_is_a_matter_of_file_environment_and_code(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOELASTICJOB_TLS__CA", "other.pem")
    monkeypatch.setenv("AIOELASTICJOB_TLS__KEY_PASSWORD", "123")
    app = ElasticJob.from_settings(write(ACCESS))
    expected = TlsSettings(ca="other.pem", key_password="123", minimum_version="1.3")
    assert (app.settings.tls, app.settings.sasl_file, app.settings.ip) == (
        expected,
        "/run/secrets/zookeeper",
        "10.0.0.7",
    )
    assert app.settings.digest == "bob:8765"
    code = ElasticJob("zks://h", tls={"ca": Path("ca.pem")}, sasl="bob:8765", ip="::1")
    assert (code.settings.tls, code.settings.sasl) == (TlsSettings(ca="ca.pem"), "bob:8765")
    assert "8765" not in repr(load(write(ACCESS)).application) + repr(code.settings) + repr(code._registry)


@pytest.mark.parametrize(
    ("text", "variables", "mistake"),
    [
        (
            "registry: zks://h\ntls: {certfile: x}",
            {},
            "jobs.yaml:2: tls.certfile = '…': there is no such setting; did you mean",
        ),
        ("registry: zks://h\ntls: ca.pem", {}, "jobs.yaml:2: tls = 'ca.pem': a mapping of ca, certificate"),
        ("registry: zk://h\ntls: {ca: x}", {}, "zks://…, or leave tls out"),
        (
            "registry: zks://h",
            {"TLS__CAFILE": "x"},
            "AIOELASTICJOB_TLS__CAFILE: tls.cafile = '…': there is no such setting",
        ),
        ("registry: zks://h", {"TLS__MINIMUM_VERSION": "2"}, "TLS__MINIMUM_VERSION: tls.minimum_version = '2': one of"),
        ("digest: 8765", {}, "digest = '…': write user:password"),
        ("digest: true", {}, "digest = '…': input should be a valid string"),
        ("digest: x8765", {}, "digest = '…': write user:password"),
        ("digets: x:8765", {}, "digets = '…': there is no such setting; did you mean digest?"),
        ("password: x8765", {}, "password = '…': there is no such setting"),
        ("sasl: a:${8765", {}, "sasl = '…': a placeholder is"),
        ("sasl: a:b\nsasl_file: /x", {}, "sasl_file = '/x': leave it out, or sasl"),
        ("tls: {key_password: [8765]}", {}, "tls.key_password = '…': a text"),
        ("event_store: postgresql://u:8765@h", {}, "event_store = 'postgresql://u:…@h': names no database"),
        ("ip: host", {}, "ip = 'host': an address of this host"),
    ],
)
def test_a_mistake_in_access_is_shown_without_the_secret(
    text: str, variables: dict[str, str], mistake: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"AIOELASTICJOB_{name}", value)
    found = mistakes_in(write(text))
    assert any(mistake in one for one in found), found
    assert "8765" not in "".join(found)


async def waits(context: ItemContext) -> None: ...


def computes(context: ItemContext) -> None: ...


def test_processes_for_all_jobs_are_for_plain_functions(write: Write) -> None:
    write(
        """
        registry: embedded://
        defaults: {executor: process}
        jobs:
          ping: {kind: http, url: "http://127.0.0.1:1/"}
        """
    )
    early, app = ElasticJob("embedded://"), ElasticJob.from_settings("jobs.yaml")
    for one in (early, app):
        one.add(waits)
        one.add(computes)
    early.configure("jobs.yaml")
    for one in (early, app):
        assert {job.job_name: job.executor for job in one.jobs} == {
            "ping": "thread",
            "waits": "thread",
            "computes": "process",
        }
    with pytest.raises(
        WrongSettings, match=r"jobs.yaml:3: defaults.executor = 'process': .*<lambda> cannot be pickled"
    ):
        app.add(lambda context: None, name="nameless")


@pytest.mark.parametrize("early", [True, False])
def test_a_process_for_one_job_that_is_async_is_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    def declared() -> None:
        if early:
            app = ElasticJob("embedded://")
            app.add(waits)
            app.configure("jobs.yaml")
        else:
            ElasticJob.from_settings("jobs.yaml").add(waits)

    text = "jobs.waits.executor = 'process': waits is async: only plain functions run in processes"
    write("registry: embedded://\njobs:\n  waits: {executor: process}\n")
    with pytest.raises(WrongSettings, match=f"^jobs.yaml:3: {text}"):
        declared()
    write("registry: embedded://\n")
    monkeypatch.setenv("AIOELASTICJOB_JOBS__WAITS__EXECUTOR", "process")
    with pytest.raises(WrongSettings, match=f"^AIOELASTICJOB_JOBS__WAITS__EXECUTOR: {text}"):
        declared()
