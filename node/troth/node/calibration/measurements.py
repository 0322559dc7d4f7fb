"""Measurements on disk: a file for each condition and bucket, written whole or not at all, so that a run resumes.

The hash over all of them is what a class refers to on chain: whoever doubts a threshold can ask for these files.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from troth.chain.new_files import replacing
from troth.node.calibration.verifying import Measured
from troth.node.errors import NodeStorageError
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32


class MeasurementFiles:
    """The files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, condition: str, bucket: int, array: str = "") -> bool:
        """Whether this part was measured before, with an array of that name if one is given."""
        path = self._path(condition, bucket)
        if not path.exists():
            return False
        return not array or array in _arrays(path)

    def claim(self, model: bytes) -> None:
        """Begin these measurements for a model, or go on with them: what another one did says nothing of this one.

        A folder that an earlier version filled names no model, and is taken for this one's.

        Raises:
            NodeStorageError: they are of another model.
        """
        path, mine = self.folder / "model", "0x" + model.hex()
        if not path.exists():
            _replace(path, mine.encode())
        owner = path.read_text(encoding="utf-8", errors="replace").strip()
        if owner != mine:
            remedy = f"Give --out another folder, or remove {self.folder}; this model is {mine}."
            raise NodeStorageError("the measurements in this folder are of another model", owner, remedy)

    def write(self, condition: str, bucket: int, measured: Measured) -> None:
        """Keep a part."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **measured)  # type: ignore[arg-type]
        _replace(self._path(condition, bucket), buffer.getvalue())

    def read(self, condition: str) -> list[Measured]:
        """All buckets of a condition, in order.

        Raises:
            NodeStorageError: a file is damaged.
        """
        return [_arrays(path) for path in sorted(self.folder.glob(f"{_slug(condition)}.*.npz"))]

    @property
    def machines(self) -> list[str]:
        """Conditions of machines that were measured into this folder, in the order of their names."""
        path = self.folder / "machines.json"
        return sorted(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []

    def note_machines(self, conditions: Sequence[str]) -> None:
        """Remember conditions that only some machines have."""
        _replace(self.folder / "machines.json", json.dumps(sorted({*self.machines, *conditions})).encode())

    def digest(self) -> Hash32:
        """keccak256 over the names and contents of all arrays, in order of condition, bucket and name.

        Over contents rather than files: a compressor of another version writes other bytes.
        """
        parts = []
        for path in sorted(self.folder.glob("*.npz")):
            with np.load(path, allow_pickle=False) as file:
                for name in sorted(file.files):
                    values = np.ascontiguousarray(file[name])
                    label = f"{path.stem}/{name}/{values.dtype.str}/{values.shape}"
                    parts.append(keccak256(label.encode()) + keccak256(values.tobytes()))
        return Hash32(keccak256(b"".join(parts)))

    def _path(self, condition: str, bucket: int) -> Path:
        return self.folder / f"{_slug(condition)}.{bucket:02d}.npz"


def _replace(path: Path, data: bytes) -> None:
    """Whole or not at all, for anybody to read: classes are made from what several machines measured."""
    with replacing(path, mode=0o666) as file:
        file.write(data)


def _arrays(path: Path) -> Measured:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise NodeStorageError("a measurement cannot be read", str(path), "Delete it and run again.") from error


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
