"""Containers of this machine: the error names the flag, and the flag lets them in and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from troth.client.errors import ConfigurationError
from troth.client.gateway.guard import CONTAINER_HOSTS, Access, AccessGuard, loopback_hosts
from troth.client.gateway.serving import GatewaySettings

KEY = {"authorization": "Bearer sk-troth-key"}


def asked(host: str, *names: str, **headers: str) -> Any:
    async def paid(_request: object) -> PlainTextResponse:
        return PlainTextResponse("paid")

    app = AccessGuard(Starlette(routes=[Route("/", paid)]), Access(loopback_hosts(11711, names), "sk-troth-key"))
    return TestClient(app).get("/", headers={"host": host, **KEY, **headers})


@pytest.mark.parametrize("name", CONTAINER_HOSTS)
def test_a_container_is_told_the_flag_and_let_in_by_it(name: str) -> None:
    refused = asked(f"{name}:11711")
    assert refused.status_code == 403
    assert f"--allow-host {name}" in refused.text
    assert asked(f"{name}:11711", name).text == "paid"
    assert asked(f"{name.upper()}:11711", name).text == "paid"


def test_nobody_else_is_let_in_by_it() -> None:
    name = CONTAINER_HOSTS[0]
    for host in (f"evil.{name}:11711", f"{name}.evil.example:11711", f"{name}:1", name, "evil.example:11711"):
        refused = asked(host, name)
        assert refused.status_code == 403, host
    assert "--allow-host" not in asked("evil.example:11711").text, "a stranger's name gets no advice"
    assert asked(f"{name}:11711", name, origin="https://evil.example").status_code == 403
    assert asked(f"{name}:11711", name, authorization="Bearer guess").status_code == 401


def test_names_need_the_key_and_are_names() -> None:
    assert GatewaySettings(names=("host.docker.internal",)).checked()
    with pytest.raises(ConfigurationError, match="Without a key"):
        GatewaySettings(names=("host.docker.internal",), with_key=False).checked()
    for wrong in ("", "*", "a b", "a/b", "x" * 300, "a:1"):
        with pytest.raises(ConfigurationError, match="no host name"):
            GatewaySettings(names=(wrong,)).checked()


@pytest.mark.parametrize("path", ["livez", "readyz", "metrics"])
def test_a_host_that_holds_a_path_needs_no_less_of_a_key(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of Starlette that `pyproject.toml` allows write Host into the address of a request as it came, and read
    its path from that. Where any machine may ask, any Host is taken."""

    def address(request: Request) -> URL:
        return URL(f"http://{request.headers['host']}{request.scope['path']}")

    monkeypatch.setattr(Request, "url", property(address))
    app = AccessGuard(Starlette(routes=[Route("/v1/paid", lambda _: PlainTextResponse("paid"))]), Access(None, "sk-a"))
    asked = TestClient(app).get("/v1/paid", headers={"host": f"a/{path}?"})
    assert (asked.status_code, "paid" in asked.text) == (401, False)
