"""What the library says in English is Chinese on Chinese pages: errors, results of actions, sentences of schedules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aioelasticjob
from aioelasticjob.console.language.i18n import language
from aioelasticjob.console.language.messages import BLANK, messages
from aioelasticjob.console.language.schedule_sentences import schedule_sentence
from aioelasticjob.errors import InvalidSetting
from aioelasticjob.model import CUT_OFF, GIVEN_UP, Outcome
from tests.console.conftest import Play, Scene
from tests.schedules.made import schedule

PACKAGE = Path(aioelasticjob.__file__).parent
MODULES = (
    *(
        "core/foreign.py",
        "operations/*.py",
        "console/**/*.py",
        "cron/*.py",
        "schedules/*.py",
        "jobs/http.py",
        "jobs/script.py",
        "jobs/shell_signs.py",
    ),
    *("registry/access.py", "registry/certificates.py", "registry/client.py", "registry/codec.py"),
    *(
        "registry/session.py",
        "registry/session_keeper.py",
        "registry/settings.py",
        "registry/tls.py",
        "observers/sql/store.py",
    ),
    *("registry/addresses.py", "config/*.py"),
)
"""The modules whose sentences may come to a page."""
SAYING = re.compile(
    r"InvalidSetting|wrong_address|no_host|NotPossible|FieldError|Meanwhile|Conflict|ForeignData|commit|HTTPException|ValueError"
    r"|AuthenticationFailed|TlsFailed|Certificate|SessionEnded|Suspended|Overloaded|Unreachable|LastAdmin"
)
"""The names of what makes such sentences."""
NOT_SHOWN = {
    # said at the start of the console, or by its package, before there is a page
    "is not installed: pip install 'aioelasticjob[console]'",
    "from 0 to {}",
    "a number above 0",
    "not everybody is a proxy: name its address or network",
    "name the proxies that may send it with --trusted-proxy",
    "an address or a network such as 10.0.0.0/24",
    "an address such as https://jobs.example.org",
    "an address such as https://jobs.example.org/r/billing",
    # said to code that calls the library
    "expected an aware datetime, such as datetime(2026, 3, 8, tzinfo=UTC)",
    "expected 'cron' or 'quartz'",
    # said where the job runs
    "needs: pip install 'aioelasticjob[http]'",
    "this environment variable is not set on this host",
    "this environment variable is not one line",
    "needs a system with process groups, such as Linux or macOS",
    "is no directory on this host",
    "there is no program {}{}",
    "{} cannot be executed: chmod +x it",
    "there is no file {} for {} to run",
    # its caller says it in other words
    "no certificate",
    "{} is no rule for daylight saving",
    "{} says nothing of moments on closed days",
    "each calendar has contents",
    # the catalogue has the whole sentences, which the code puts together of these
    "the certificate of {} {}",
    "tls.key: the key in {} {}",
    "{}: the certificate in {} {}",
    "{}, or a timedelta",
    # for developers
    "{}.{}: write below it, as text, what it means",
    # names and values only
    "{}: {}",
}


def _sentences() -> Iterator[str]:
    """Yield the sentences that are spelled out in errors and results, their blanks without names."""
    for path in sorted({path for pattern in MODULES for path in PACKAGE.glob(pattern)}):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and SAYING.search(ast.unparse(node.func)):
                for given in (*node.args, *(one.value for one in node.keywords)):
                    spelled = _assigned(given.id, tree) if isinstance(given, ast.Name) else [given]
                    yield from (text for one in spelled if (text := _text(one)) is not None and " " in text)


def _assigned(name: str, tree: ast.Module) -> list[ast.expr]:
    """Return what a module assigns to a name."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign))
    targets = ((node, node.targets[0] if isinstance(node, ast.Assign) else node.target) for node in found)
    return [node.value for node, target in targets if node.value is not None and ast.unparse(target) == name]


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    return None


def test_every_error_and_result_of_an_action_is_in_the_catalogue() -> None:
    known = messages("zh")
    sample = set(_sentences())
    assert len(sample) > 150

    def unknown(text: str) -> bool:
        words = ("17", "1 node", "paused", "resumed")  # some blanks hold such a word
        filled = [text.replace("{}", value) for value in words]
        return all(known(one) == one for one in filled)

    missing = sorted(filter(unknown, sample - NOT_SHOWN))
    assert not missing, "\n".join(missing)
    assert sorted(NOT_SHOWN - sample) == []  # what is said no more is not excused any more


def _reasons_of_misfires() -> Iterator[str]:
    """Yield why moments are missed, as workers write it into the event store."""
    for name in ("core/reasons", "engine/missed_reports"):
        for node in ast.parse((PACKAGE / f"{name}.py").read_text()).body:
            if isinstance(node, ast.Assign):
                text = _text(node.value)
                if text is not None and " " in text:
                    yield text


def test_every_reason_of_a_misfire_is_in_the_catalogue_also_for_many_moments() -> None:
    known, sample = messages("zh"), set(_reasons_of_misfires())
    assert len(sample) > 15
    for text in sample:
        for said in (text, f"3 × {text}", f"at least 16 × {text}"):
            assert known(said) != said, said
    assert known("3 × the last run was still going on") == "3 × 上一次运行尚未结束"
    assert known("at least 16 × the last run was still going on") == "至少 16 × 上一次运行尚未结束"


def test_a_translation_has_the_same_blanks_and_is_chinese() -> None:
    phrases = messages("zh").phrases
    assert all(set(BLANK.findall(english)) == set(BLANK.findall(said)) for english, said in phrases.items())
    bare = {english for english in phrases if not re.search("[a-z]", BLANK.sub("", english))}
    assert [one for one in phrases if one not in bare and not re.search("[一-鿿]", phrases[one])] == []


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("report: paused", "report：已暂停"),
        (
            "report: paused (for a whole job disabling is the same as pausing); the whole job is paused",
            "report：已暂停（对整个作业而言，禁用等同于暂停）；整个作业已暂停",
        ),
        (
            "a job's sleep: asked to run items 1 and 2 at 2026-11-23T02:00:00, as the request r-1",
            "a job's sleep：已请求运行分片 1 and 2，时间 2026-11-23T02:00:00，请求编号 r-1",
        ),
        (
            "report: asked to run the moment A of 2 items again, as the request r; "
            "the items that are disabled wait until they are enabled: 0, 1",
            "report：已请求重新运行2 个分片在 A 的时刻，请求编号 r；已禁用的分片将等到启用后运行：0, 1",
        ),
        (
            "parameter = 'x: y…': must be at most 65536 bytes, is 70000",
            "parameter = 'x: y…'：最多 65536 字节，实际为 70000 字节",
        ),
        (
            "does not exist in Europe/Berlin: the clock is put forward from 2026-03-29T02:00:00 to 2026-03-29T03:00:00",
            "在 Europe/Berlin 中不存在：时钟从 2026-03-29T02:00:00 拨快到 2026-03-29T03:00:00",
        ),
        ("/x/config is missing", "缺少 /x/config"),
        (
            "/x/config = b'[1,2]': no job configuration: list in place of an object",
            "/x/config = b'[1,2]'：不是作业配置：应为对象，却是 list",
        ),
        (
            "/x/config = b'[1,2]': no job configuration: list in place of an object: "
            "import a whole configuration in its place first",
            "/x/config = b'[1,2]'：不是作业配置：应为对象，却是 list：请先导入完整配置取代它",
        ),
        (
            "/x/config: cron = '0 0 25 * * ?': no job configuration: hour '25': 25 is out of range, 0 to 23: "
            "import a whole configuration in its place first",
            "/x/config: cron = '0 0 25 * * ?'：不是作业配置：hour '25': 25 超出范围 0 到 23：请先导入完整配置取代它",
        ),
        (
            "/x/config: jobName = {'cron': 'x'}: no job configuration: field required",
            "/x/config: jobName = {'cron': 'x'}：不是作业配置：缺少该字段",
        ),
        (
            "report: asked to run at least 10,000 moments (A to B) of 2 items again, as the request r",
            "report：已请求重新运行2 个分片的至少 10,000 个时刻（A 至 B），请求编号 r",
        ),
        ("6 moments (A to B) of 1 item", "1 个分片的 6 个时刻（A 至 B）"),
        (
            "report: asked to run items 0, 2, without those that are disabled (1), as the request r",
            "report：已请求运行分片 0, 2，不含已禁用的分片（1），请求编号 r",
        ),
        (
            "report: asked already: items 0, 2, as the request one (done: 1,234 completed; 1 failed; 2 timed out)",
            "report：此前已请求：分片 0, 2，请求编号 one（完成：1,234 次成功；1 次失败；2 次超时）",
        ),
        (
            "report: asked already: item 2 at A, as the request night (planned: nothing yet)",
            "report：此前已请求：分片 2，时间 A，请求编号 night（已安排：尚无）",
        ),
        ("the server failed", "the server failed"),  # what is counted is a number
        ("items = 0, 99: report has the items 0 to 2, not 99", "items = 0, 99：report 的分片为 0 到 2，没有 99"),
        ("'3' is given twice", "'3' 重复给出"),
        ("report: cron: 0 → 1", "report: cron: 0 → 1"),  # names and values only
        ("nobody has ever said: this", "nobody has ever said: this"),
        (
            "event store sqlite:///events.db: DatabaseError: file is not a database: "
            "put a copy of the file back, or move it away, and an empty one is made",
            "事件存储 sqlite:///events.db：DatabaseError：该文件不是数据库：请恢复该文件的副本，或将其移走，之后会创建一个空文件",
        ),
        ("event store sqlite:///e.db: no answer within 5 s", "事件存储 sqlite:///e.db：5 秒内没有响应"),
        (
            "no connection to the registry ([Errno 111] Connection refused), after 3 retries",
            "与注册中心没有连接（[Errno 111] 连接被拒绝）（已重试 3 次）",
        ),
        (
            "no registry at zk1:2181 within 10 s (no answer within 2.5 s): check the address, or start one",
            "10 秒内未能连接 zk1:2181 的注册中心（2.5 秒内没有响应）：请检查地址或启动注册中心",
        ),
        (
            "the certificate of zk1:2281 has another name (IP address mismatch): "
            "set tls.server_name, or correct the address",
            "zk1:2281 的证书使用其他名称（IP address mismatch）：请设置 tls.server_name，或更正地址",
        ),
        (
            "tls.key: the key in a.pem is no private key in PEM form",
            "tls.key：a.pem 中没有 PEM 格式的私钥",
        ),
        (
            "tls.certificate: the certificate in a.pem is not valid before 2026-12-01T00:00:00+00:00: "
            "check this host's clock",
            "tls.certificate：a.pem 中的证书在 2026-12-01T00:00:00+00:00 之前无效：请检查本机时钟",
        ),
        ("", ""),
    ],
)
def test_what_stands_in_a_sentence_is_taken_over(english: str, chinese: str) -> None:
    assert language("zh").message(english) == chinese
    assert language("en").message(english) == english


def test_how_the_runs_of_a_request_have_ended_is_chinese_whatever_the_outcome() -> None:
    for state in ("planned", "waiting", "running", "paused", "cancelled", "expired", "done"):
        for outcome in (*Outcome, CUT_OFF, GIVEN_UP):
            text = f"report: asked already: all its items, as the request one ({state}: 2 {outcome}; 1 failed)"
            assert not re.search("[a-z]", language("zh").message(text).removeprefix("report").replace("one", ""))


def test_what_another_request_of_the_same_id_differs_in_is_chinese() -> None:
    asking = ast.parse((PACKAGE / "operations" / "asking.py").read_text("utf-8"))
    (found,) = (one for one in ast.walk(asking) if isinstance(one, ast.FunctionDef) and one.name == "_differing")
    ends = ast.walk(ast.Module(found.body[1:], []))  # without the docstring
    differences = [one.value for one in ends if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    assert len(differences) == 6
    text = f"report: asked already: item 2 at 2090-11-20T02:00:00+08:00, as the request 1; {'; '.join(differences)}; "
    text += "choose another id, or wait until that id is forgotten, 7 days after the end of its request"
    assert not re.search("[a-z]", language("zh").message(text).removeprefix("report"))


def test_the_value_of_a_wrong_setting_is_not_taken_for_a_sentence() -> None:
    error = InvalidSetting("cron", "is given twice: must be text", "must be text")
    assert language("zh").error(error) == "cron = 'is given twice: must be text'：必须是文本"
    assert language("en").error(error) == str(error)


@pytest.mark.parametrize(
    ("cron", "chinese"),
    [
        ("0 0 2 * * ?", "每天 02:00:00（UTC）"),
        ("0/10 * * * * ?", "每 10 秒（UTC）"),
        ("* * * * * ?", "每秒（UTC）"),
        ("0 */5 8-17 ? * MON-FRI", "每周一至周五，08:00 至 17:59，每 5 分钟（UTC）"),
        ("30 15 0/2 * * ?", "每 2 小时的第 15 分第 30 秒（UTC）"),
        ("0 30 7 1,15 3-5 ? 2027", "2027 年，3 至 5 月，每月 1、15 日，07:30:00（UTC）"),
        ("0 0 9 L-3 * ?", "每月最后一天之前 3 天，09:00:00（UTC）"),
        ("0 0 9 LW * ?", "每月最后一个工作日，09:00:00（UTC）"),
        ("0 0 9 15W * ?", "最接近每月 15 日的工作日，09:00:00（UTC）"),
        ("0 0 9 ? * 6L", "每月最后一个周五，09:00:00（UTC）"),
        ("0 0 9 ? * 6#3", "每月第三个周五，09:00:00（UTC）"),
        ("0 9 1 * 1", "每月 1 日或每周一，09:00:00（UTC）"),
        ("5,7 * 1,2,8 * * ?", "每天 1、2、8 时，每分钟的第 5、7 秒（UTC）"),
        ("0 7,8,11 * * * ?", "每小时的第 7、8、11 分（UTC）"),
        ("* 7 * * * ?", "每小时的第 7 分的每一秒（UTC）"),
    ],
)
def test_a_schedule_is_a_chinese_sentence(cron: str, chinese: str) -> None:
    found = schedule(cron)
    assert schedule_sentence(found, language("zh")) == chinese
    assert schedule_sentence(found, language("en")) == found.describe()


@pytest.mark.parametrize(
    ("settings", "chinese"),
    [
        ({"cron": ["0 0 2 * * ?", "0/10 * * * * ?"]}, "每天 02:00:00；每 10 秒（UTC）"),
        ({"every": "1h 30m", "start_at": "2027-01-01"}, "每隔 1h 30m，从 2027-01-01 起"),
        ({"every": 600, "jitter": 90}, "每隔 10m，各自推迟不超过 1m 30s"),
        ({"at": "2027-01-01", "end_at": "2027-02-01"}, "2027-01-01T00:00:00+00:00，到 2027-02-01 为止"),
        (
            {"at": ["2027-01-01", "2027-01-02", "2027-01-03", "2027-01-04"]},
            "2027-01-01T00:00:00+00:00、2027-01-02T00:00:00+00:00、2027-01-03T00:00:00+00:00 等 4 个时刻",
        ),
    ],
)
def test_an_interval_and_single_moments_are_a_chinese_sentence(settings: dict[str, Any], chinese: str) -> None:
    assert schedule_sentence(schedule(**settings), language("zh")) == chinese


def test_notices_errors_validation_and_sentences_of_schedules_are_chinese_on_chinese_pages(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.run_job(cron="0 0 2 * * ?")
        ada = await scene.operator(language="zh")
        page = await ada.get("/r/billing/job/report")
        assert "每天 02:00:00（UTC）" in page.text
        fragment = ("hx-request", "true")
        paused = await ada.post("/r/billing/job/report/do/pause", {"csrf": page.token}, fragment)
        assert "report：已暂停" in paused.text
        stopped = await ada.post("/r/billing/job/report/do/trigger", {"csrf": page.token}, fragment)
        assert (stopped.status, "report：已暂停：请先恢复" in stopped.text) == (409, True)
        assert "report：已暂停" in (await ada.get("/audit")).text
        wrong = await ada.post("/r/billing/job/report/preview", {"csrf": page.token, "cron": "0 0 2 * *?"})
        assert "5 个字段是 crontab 格式" in wrong.text
        assert "没有该页面" in (await ada.get("/no/such/page")).text

    play(act)
