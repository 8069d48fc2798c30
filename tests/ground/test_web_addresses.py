"""What counts as an address of the web."""

from __future__ import annotations

import pytest

from aioelasticjob.ground.web_addresses import is_web_address


@pytest.mark.parametrize("text", ["https://example.org", "http://10.0.0.1:8080/a?b=c", "https://[::1]/"])
def test_an_address_of_http_or_https_with_a_host_is_accepted(text: str) -> None:
    assert is_web_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.org",
        "ftp://example.org",
        "https://",
        "https://a:99999/",
        "https://a:0/",
        "https://[::1/",
        "https://a b/",
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    assert not is_web_address(text)
