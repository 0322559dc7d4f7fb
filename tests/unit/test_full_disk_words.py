"""What is read of a full disk: from the gateway that the fault is its own, from the doctor that its node runs."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from troth.client.errors import ReceiptsUnreadable
from troth.client.gateway.errors import NotReady
from troth.client.gateway.failures import refusal_of
from troth.node.inspection import machine_checks
from troth.node.inspection.process import NO_PROCESS


def test_a_gateway_that_cannot_write_names_itself_and_not_the_scheduler() -> None:
    told = refusal_of(ReceiptsUnreadable("The record cannot be written: disk is full", "gateway.sqlite3", "Make room."))
    assert isinstance(told, NotReady)
    assert (told.status, told.troth["hop"], told.troth["charged"]) == (503, "gateway", False)


@pytest.mark.parametrize(
    ("reason", "ok", "said"),
    [
        ("the chain was last followed 32 s ago: database or disk is full", True, "this node answers on"),
        (f"{NO_PROCESS} on port 1: ReadTimeout", False, "is in use"),
    ],
)
def test_a_node_that_answers_and_is_not_ready_does_not_hold_its_own_port(
    reason: str, ok: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "process_state", lambda _: {"ready": False, "reasons": [reason]})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place: Any = SimpleNamespace(host="127.0.0.1", port=taken.getsockname()[1])
        found = machine_checks._port(place)
    assert found.ok == ok
    assert said in found.seen
