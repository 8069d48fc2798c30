"""Only proxies that are named are believed: about addresses, about TLS, and about who sends a request."""

from __future__ import annotations

import pytest

from aioelasticjob.console import ConsoleSettings
from aioelasticjob.console.connections.proxies import TrustedProxies
from aioelasticjob.errors import InvalidSetting
from tests.console.client import PASSWORD, Browser
from tests.console.conftest import Play, Scene

PROXY = "10.1.0.1"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", "1.2.3.4", "127.0.0.1"),
        (PROXY, "1.2.3.4", "1.2.3.4"),
        (PROXY, "", PROXY),
        (PROXY, "6.6.6.6, 1.2.3.4, 10.1.0.2", "1.2.3.4"),
        (PROXY, "6.6.6.6, nonsense", PROXY),
        (PROXY, "1.2.3.4:5678", "1.2.3.4"),
        (PROXY, "[2001:db8::1]:443", "2001:db8::1"),
        (f"::ffff:{PROXY}", "::ffff:1.2.3.4", "1.2.3.4"),
        (PROXY, "10.1.0.2, 10.1.0.3", "10.1.0.2"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxys(peer: str, forwarded: str, client: str) -> None:
    assert TrustedProxies.parse(["10.1.0.0/16"]).client_of(peer, forwarded) == client


@pytest.mark.parametrize("wrong", ["nonsense", "10.0.0.0/40", "0.0.0.0/0", "::/0", ""])
def test_what_is_no_proxy_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        ConsoleSettings(trusted_proxies=(wrong,))
    assert caught.value.setting == "trusted_proxy"
    with pytest.raises(InvalidSetting, match="--trusted-proxy"):
        ConsoleSettings(user_header="X-User")


def test_nobody_passes_the_throttle_or_the_audit_log_with_an_invented_address(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        guesser, statuses = Browser(scene.console), []
        for number in range(6):
            token = (await guesser.get("/login")).token
            form = {"csrf": token, "name": "ada", "password": "wrong password"}
            invented = ("x-forwarded-for", f"6.6.6.{number}")
            statuses.append((await guesser.post("/login", form, invented)).status)
        assert statuses == [401] * 5 + [429]
        entries = await scene.console.state.storage.audit.entries()
        assert {one.entry.address for one in entries} == {"127.0.0.1"}

    play(act)


def test_a_trusted_proxy_says_where_a_request_comes_from_and_that_it_came_by_tls(play: Play) -> None:
    async def act(scene: Scene) -> None:
        await scene.operator()
        browser = Browser(scene.console, address=PROXY)
        headers = (("x-forwarded-for", "6.6.6.6, 1.2.3.4"), ("x-forwarded-proto", "https"))
        token = (await browser.get("/login")).token
        signed_in = await browser.post("/login", {"csrf": token, "name": "ada", "password": PASSWORD}, *headers)
        assert "secure" in signed_in.cookies["aioej_session"].lower()
        assert (await scene.console.state.storage.audit.entries())[0].entry.address == "1.2.3.4"

    play(act, trusted_proxies=(PROXY,))


def test_a_trusted_proxy_signs_users_in_and_nobody_else_does(play: Play) -> None:
    async def act(scene: Scene) -> None:
        admin, header = await scene.operator(), ("x-user", "grace")
        assert (await Browser(scene.console).get("/account", header)).status == 303
        proxy = Browser(scene.console, address=PROXY)
        assert (await proxy.get("/account")).status == 303
        assert (await proxy.get("/account", ("x-user", "no name"))).status == 303
        page = await proxy.get("/account", header)
        assert page.status == 200
        assert "grace" in page.text
        assert "/logout" not in page.text.split("</header>")[0]
        assert (await proxy.get("/users", header)).status == 403  # somebody new is a viewer
        forged = await proxy.post("/preferences", {"csrf": "0" * 64, "theme": "dark"}, header)
        assert forged.status == 403
        assert (await proxy.post("/preferences", {"csrf": page.token, "theme": "dark"}, header)).status == 303
        refused, first = await scene.console.state.storage.audit.entries(most=2)
        assert (refused.entry.who, refused.entry.target) == ("grace", "GET /users")
        assert (first.entry.who, first.entry.action) == ("grace", "sign in")
        await admin.submit("/users", {"disabled": "1"}, to="/users/grace")
        assert (await proxy.get("/account", header)).status == 303
        assert (await Browser(scene.console).sign_in("grace", "")).status == 401

    play(act, trusted_proxies=(PROXY,), user_header="X-User")


def test_the_first_password_makes_an_administrator_also_of_somebody_whom_a_proxy_has_named_before(play: Play) -> None:
    async def act(scene: Scene) -> None:
        proxy = Browser(scene.console, address=PROXY)
        assert (await proxy.get("/account", ("x-user", "ada"))).status == 200
        assert scene.console.state.invitation is not None
        browser = Browser(scene.console)
        assert (await browser.accept(scene.console.state.invitation)).status == 303
        assert (await browser.get("/users")).status == 200

    play(act, trusted_proxies=(PROXY,), user_header="X-User")
