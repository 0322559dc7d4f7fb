"""Reading the small files of a model, a stranger's: bounded, UTF-8, and JSON that every reader takes alike."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from troth.node.errors import ModelError
from troth.protocol.architecture import canonical_json

LARGEST = 64 << 20
"""Bytes of a tokenizer or an index; what a client takes of all texts together."""
LARGEST_CONFIG = 4 << 20
LARGEST_TEMPLATE = 1 << 20
REMEDY = "Fetch the model again from its source."


def read_bytes(path: Path, limit: int = LARGEST) -> bytes:
    """A whole file; ModelError where it is none, or larger than `limit` bytes."""
    try:
        # Whoever opens a pipe waits for its writer, unless it is told not to.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - of a descriptor
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ModelError("this is no file, as a model's are", str(path), REMEDY)
            data = file.read(limit + 1)
    except IsADirectoryError as error:
        raise ModelError("this is no file, as a model's are", str(path), REMEDY) from error
    except OSError as error:
        raise ModelError("a file of the model cannot be read", str(error), REMEDY) from error
    if len(data) > limit:
        raise ModelError(f"a file of the model is larger than {limit} bytes", str(path), REMEDY)
    return data


def read_text(path: Path, limit: int = LARGEST) -> str:
    """A whole file as text; ModelError where it is none."""
    try:
        return read_bytes(path, limit).decode()
    except UnicodeDecodeError as error:
        raise ModelError("a file of the model is not UTF-8", f"{path}, byte {error.start}", REMEDY) from error


def read_object(path: Path, limit: int = LARGEST) -> dict[str, Any]:
    """A JSON object. No name is there twice, which readers take in different ways, and no number is NaN or infinite.

    Raises:
        ModelError: the file is anything else.
    """
    try:
        found = json.loads(read_text(path, limit), object_pairs_hook=without_doubles)
        canonical_json(found)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path.name} cannot be read", f"{path.parent}: {str(error)[:200]}", REMEDY) from error
    if not isinstance(found, dict):
        raise ModelError(f"{path.name} is not an object", str(path.parent), REMEDY)
    return found


def without_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ValueError where a name is there twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is there twice")
    return made
