"""As much of Tor's control protocol as building circuits by hand needs (control-spec, sections 2 and 3)."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 1 << 20
_ASYNCHRONOUS = 650


class TorRefused(Exception):
    """Tor said no, or something that is no reply; the reply's text is the message."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply or event: its code, and the text of each line with data blocks as lines of their own."""

    code: int
    lines: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The words of the first line."""
        return self.lines[0].split()


class ReplyReader:
    """Cuts what the control port says into replies: `250-` goes on, `250+` opens a data block, `250 ` ends."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[str] = []
        self._in_data = False

    def feed(self, data: bytes) -> Iterator[Reply]:
        """The replies completed by `data`; raises TorRefused for what is none."""
        *lines, self._rest = (self._rest + data).split(b"\r\n")
        if len(self._rest) > _MOST_BYTES:
            raise TorRefused("A line of the control port has no end")
        for line in lines:
            reply = self._line(line.decode("utf-8", "replace"))
            if reply is not None:
                yield reply

    def _line(self, line: str) -> Reply | None:
        if self._in_data:
            if line == ".":
                self._in_data = False
            else:
                self._lines.append(line.removeprefix("."))
            return None
        code, mark, text = line[:3], line[3:4], line[4:]
        if not code.isdecimal() or mark not in {"-", "+", " "}:
            raise TorRefused(f"This is no reply of a control port: {line[:80]!r}")
        self._lines.append(text)
        self._in_data = mark == "+"
        if mark != " ":
            return None
        lines, self._lines = tuple(self._lines), []
        return Reply(int(code), lines)


class Controller:
    """A connection to one tor process; events are kept until somebody asks for them."""

    def __init__(self, port: int, cookie: Path, seconds: float = 20.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = ReplyReader()
        self._replies: deque[Reply] = deque()
        self._events: deque[Reply] = deque(maxlen=4096)
        self.ask(f"AUTHENTICATE {cookie.read_bytes().hex()}")
        self.ask("SETEVENTS CIRC STREAM")

    def ask(self, command: str) -> Reply:
        """Tor's reply to one command; raises TorRefused."""
        self._socket.sendall(command.encode() + b"\r\n")
        while not self._replies:
            self._read()
        reply = self._replies.popleft()
        if reply.code != 250:
            raise TorRefused(f"{command.split(maxsplit=1)[0]}: {reply.code} {reply.lines[0]}")
        return reply

    def build(self, path: list[str]) -> str:
        """The id of a new circuit over the relays of these fingerprints, once it is built; raises TorRefused."""
        circuit = self.ask(f"EXTENDCIRCUIT 0 {','.join(path)}").words[1]
        self.event(lambda words: words[:3] == ["CIRC", circuit, "BUILT"], failed=("CIRC", circuit))
        return circuit

    def attach(self, port: int, circuit: str) -> None:
        """Put the waiting stream to this port of 127.0.0.1 on a circuit."""
        words = self.event(lambda words: words[0] == "STREAM" and words[2:5:2] == ["NEW", f"127.0.0.1:{port}"])
        self.ask(f"ATTACHSTREAM {words[1]} {circuit}")

    def close_circuit(self, circuit: str) -> None:
        """Tear a circuit down."""
        self.ask(f"CLOSECIRCUIT {circuit}")

    def event(self, wanted: Callable[[list[str]], bool], failed: tuple[str, str] = ("", "")) -> list[str]:
        """The words of the next event that is wanted; raises TorRefused if what is `failed` ends instead."""
        while True:
            while not self._events:
                self._read()
            words = self._events.popleft().words
            if wanted(words):
                return words
            if tuple(words[:2]) == failed and words[2] in {"FAILED", "CLOSED"}:
                raise TorRefused(" ".join(words))

    def _read(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise TorRefused("The control port was closed")
        for reply in self._reader.feed(data):
            (self._events if reply.code == _ASYNCHRONOUS else self._replies).append(reply)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
