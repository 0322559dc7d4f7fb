"""The control client with which the benchmark builds Tor's circuits: replies are cut right, refusals told."""

from __future__ import annotations

import itertools
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from research.tor.control import Controller, Reply, ReplyReader, TorRefused

SAID = (
    b"250 OK\r\n"
    b"250+ns/all=\r\nr relay0 AAAA\r\n..dotted\r\n250 no reply\r\n.\r\n250-version=0.4\r\n250 OK\r\n"
    b"650 CIRC 7 BUILT $AB~relay0 PURPOSE=GENERAL\r\n"
    b'552 No such router "AB"\r\n'
)
REPLIES = [
    Reply(250, ("OK",)),
    Reply(250, ("ns/all=", "r relay0 AAAA", ".dotted", "250 no reply", "version=0.4", "OK")),
    Reply(650, ("CIRC 7 BUILT $AB~relay0 PURPOSE=GENERAL",)),
    Reply(552, ('No such router "AB"',)),
]
SCRIPT = {
    "AUTHENTICATE 636f6f6b6965": b"250 OK\r\n",
    "SETEVENTS CIRC STREAM": b"250 OK\r\n650 STREAM 3 NEW 0 127.0.0.1:80\r\n",
    "EXTENDCIRCUIT 0 AA,BB": b"650 CIRC 7 EXTENDED $AA\r\n250 EXTENDED 7\r\n650 CIRC 6 FAILED\r\n650 CIRC 7 BUILT\r\n",
    "EXTENDCIRCUIT 0 CC": b"250 EXTENDED 8\r\n650 CIRC 8 FAILED REASON=TIMEOUT\r\n",
    "CLOSECIRCUIT 9": b'552 Unknown circuit "9"\r\n',
}


@given(st.lists(st.integers(0, len(SAID)), max_size=8).map(sorted))
def test_replies_are_cut_wherever_the_bytes_were(places: list[int]) -> None:
    reader = ReplyReader()
    bounds = [0, *places, len(SAID)]
    pieces = [SAID[start:end] for start, end in itertools.pairwise(bounds)]
    assert [reply for piece in pieces for reply in reader.feed(piece)] == REPLIES


@pytest.mark.parametrize("line", [b"hello\r\n", b"25 OK\r\n", b"250*OK\r\n", b"\r\n"])
def test_what_is_no_reply_is_refused(line: bytes) -> None:
    with pytest.raises(TorRefused):
        list(ReplyReader().feed(line))


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(TorRefused):
        list(ReplyReader().feed(b"2" * (1 << 21)))


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    """Connected to a thread that answers as SCRIPT says."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection, connection.makefile("r", newline="\r\n") as commands:
            for command in commands:
                connection.sendall(SCRIPT[command.strip()])

    threading.Thread(target=serve, daemon=True).start()
    cookie = tmp_path / "cookie"
    cookie.write_bytes(b"cookie")
    return Controller(listener.getsockname()[1], cookie, seconds=60)


def test_a_circuit_is_built_when_its_own_event_says_so(controller: Controller) -> None:
    assert controller.build(["AA", "BB"]) == "7"
    with pytest.raises(TorRefused, match="CIRC 8 FAILED REASON=TIMEOUT"):
        controller.build(["CC"])
    with pytest.raises(TorRefused, match="552 Unknown circuit"):
        controller.close_circuit("9")
    controller.close()
