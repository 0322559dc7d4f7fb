"""What others have handed to a reviewer, on disk, each sender's apart: nobody spoils what somebody else delivered."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from troth.cases.errors import EvidenceRefused
from troth.cases.evidence import SIZE_LIMIT
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_cases import PIECE_LIMIT, Material

SENDERS = 8
"""Senders of one case whose deliveries are kept, beside those that the case names."""
CASES = 256
"""Cases of which deliveries are kept at once."""


class CaseInbox:
    """A folder: case / sender / material. ``own`` keeps it; ``most_rows`` bounds one delivery's rows, in bytes."""

    def __init__(self, folder: Path, own: Address, most_rows: int) -> None:
        self._folder = folder
        self._own = own.lower()
        self._most_rows = most_rows
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(  # noqa: PLR0917 - the fields of Furnish
        self,
        case: Hash32,
        sender: Address,
        material: Material,
        segment: int,
        start: int,
        size: int,
        data: bytes,
        *,
        named: bool = False,
    ) -> int:
        """Keep a piece; how many bytes of the whole are here. EvidenceRefused where it is larger than anything due.

        ``named``: the sender is a party of the case, which finds room beside any crowd.
        """
        if size > self._limit(material) or start + len(data) > size or len(data) > max(PIECE_LIMIT, SIZE_LIMIT):
            raise EvidenceRefused("Nothing of this size is due", size, "Send what the case is about.")
        path = self._path(case, sender, material, segment)
        if not path.parent.exists():
            self._require_room(case, named=named)
            path.parent.mkdir(mode=0o700, parents=True)
        held = path.stat().st_size if path.exists() else 0
        if start == 0 and held < size:
            held = 0
        if start != held or not data:
            return held
        with path.open("wb" if start == 0 else "ab") as file:
            file.write(data)
        return held + len(data)

    def _limit(self, material: Material) -> int:
        limits: dict[str, int] = {"evidence": SIZE_LIMIT, "rows": self._most_rows, "opening": 64}
        return limits[material]

    def _require_room(self, case: Hash32, *, named: bool) -> None:
        folder = self._folder / case.hex()
        senders = len(list(folder.iterdir())) if folder.exists() else 0
        if (senders >= SENDERS and not named) or (not folder.exists() and len(list(self._folder.iterdir())) >= CASES):
            raise EvidenceRefused("Others have delivered already", senders, "Nothing more is needed.")

    def every(self, case: Hash32, material: Material, segment: int) -> Iterator[bytes]:
        """What each sender delivered of a material; what was checked and kept comes first."""
        folder = self._folder / case.hex()
        senders = sorted(folder.iterdir(), key=lambda one: (one.name != self._own, one.name)) if folder.exists() else ()
        for sender in senders:
            path = sender / _name(material, segment)
            if path.is_file():
                yield path.read_bytes()

    def keep(self, case: Hash32, material: Material, segment: int, data: bytes) -> None:
        """Keep what was checked, so that other reviewers have it from here."""
        path = self._path(case, self._own, material, segment)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)

    def forget(self, case: Hash32) -> None:
        """Drop everything of a case that is over: prompts are held no longer than they are needed."""
        shutil.rmtree(self._folder / case.hex(), ignore_errors=True)

    def cases(self) -> tuple[Hash32, ...]:
        """Cases of which something is here."""
        return tuple(Hash32(bytes.fromhex(one.name)) for one in self._folder.iterdir())

    def _path(self, case: Hash32, sender: str, material: Material, segment: int) -> Path:
        return self._folder / case.hex() / sender.lower() / _name(material, segment)


def _name(material: Material, segment: int) -> str:
    return f"{material}-{segment}"
