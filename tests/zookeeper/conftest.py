"""Certificates that tests of the embedded server share."""

from __future__ import annotations

import pytest

from tests.support.certificates import Authority, Certificate, authority


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ours"), "our CA")


@pytest.fixture(scope="module")
def of_server(ours: Authority) -> Certificate:
    return ours.issue("server")
