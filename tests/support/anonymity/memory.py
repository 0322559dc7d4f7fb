"""What a process knows: its writable memory, searched from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

_PIECE = 16 * 2**20


def found_in(process: int, wanted: Mapping[str, bytes]) -> set[str]:
    """The names of those byte strings that lie in the private writable memory of a process."""
    overlap = max(map(len, wanted.values())) - 1
    found: set[str] = set()
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        for start, end in _writable(process):
            for offset in range(start, end, _PIECE):
                piece = _read(memory, offset, min(offset + _PIECE + overlap, end))
                found |= {name for name, content in wanted.items() if name not in found and content in piece}
    return found


def _writable(process: int) -> Iterable[tuple[int, int]]:
    for line in Path(f"/proc/{process}/maps").read_text(encoding="utf-8").splitlines():
        span, rights, *_ = line.split()
        if rights == "rw-p":
            start, _, end = span.partition("-")
            yield int(start, 16), int(end, 16)


def _read(memory: object, start: int, end: int) -> bytes:
    try:
        memory.seek(start)
        return memory.read(end - start) or b""
    except OSError:
        # Given back to the system since the map was read.
        return b""
