"""Ports that programs are told before they bind them."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from troth.testnet import ports

ASK = """from troth.testnet import ports
ports.FIRST, ports.LAST = {}, {}
print(*(ports.free_port() for _ in range(8)), flush=True)
input()
"""


def test_no_port_is_given_out_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[socket.socket] = []
    monkeypatch.setattr(ports, "_reserved", reserved)
    given = [ports.free_port() for _ in range(200)]
    assert len(set(given)) == len(given) == len(reserved)
    for one in reserved:
        one.close()


def test_processes_that_ask_at_the_same_time_get_different_ports() -> None:
    # So few that two who do not know of each other would meet.
    start = ports.free_port()
    code = ASK.format(start, start + 60)
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        given = [port for one in started for port in one.stdout.readline().split()]  # type: ignore[union-attr]
    finally:
        for one in started:
            one.kill()
            one.communicate()
    assert len(given) == 32
    assert len(set(given)) == 32


@pytest.mark.slow
def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST", taken)
        monkeypatch.setattr(ports, "LAST", taken)
        with pytest.raises(OSError, match="in use"):
            ports.free_port()


def test_a_port_can_be_bound_by_the_program_that_it_is_for() -> None:
    port = ports.free_port()
    for host in ("127.0.0.1", ""):
        with socket.socket() as listener:
            listener.bind((host, port))
            listener.listen()
