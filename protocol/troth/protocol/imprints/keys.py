"""Keys of imprints as a ceremony leaves them (docs/explanation/ceremony.md): a folder for each width of rows.

It holds ``proving.zkey``, the circuit's program ``beaten.wasm``, and ``key.json``, which names both by their hashes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from troth.protocol.errors import InvalidKey
from troth.protocol.imprints.calls import ImprintKey

TEST_CHAINS = frozenset({1337, 31337})
"""Where keys of a test set-up are taken: anybody can forge under them."""
REMEDY = "Fetch the key that the deployment's ceremony published, and check its hashes."


@dataclass(frozen=True, slots=True)
class ProvingKey:
    """A key for rows of one width, and where it lies."""

    folder: Path
    checking: ImprintKey
    levels: int


def read_key(folder: Path, chain_id: int) -> ProvingKey:
    """The key in a folder; raises InvalidKey where it is missing, broken, or of a test set-up on another chain."""
    try:
        told = json.loads((folder / "key.json").read_text("utf-8"))
        for name, digest in (("proving.zkey", told["proving"]), ("beaten.wasm", told["program"])):
            if sha256((folder / name).read_bytes()).hexdigest() != digest:
                raise InvalidKey(f"{name} is not the file that key.json names", folder, REMEDY)
        columns, levels, words = int(told["columns"]), int(told["levels"]), _words(told["verification"])
    except InvalidKey:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidKey(f"there is no proving key: {error}", folder, REMEDY) from error
    if told.get("test", True) and chain_id not in TEST_CHAINS:
        what = f"this key is of a test set-up, under which anybody forges, and chain {chain_id} is none for tests"
        raise InvalidKey(what, folder, REMEDY)
    return ProvingKey(folder, ImprintKey(columns, words), levels)


def _words(verification: Mapping[str, Any]) -> tuple[int, ...]:
    """The words of ImprintKey from snarkjs' verification key."""
    words = [int(one) for one in verification["vk_alpha_1"][:2]]
    for name in ("vk_beta_2", "vk_gamma_2", "vk_delta_2"):
        words += second_group(verification[name])
    return (*words, *(int(one) for point in verification["IC"] for one in point[:2]))


def second_group(point: Sequence[Sequence[str]]) -> list[int]:
    """A point of the second group, as snarkjs writes it, in the words of EIP-197: imaginary parts first."""
    return [int(point[axis][part]) for axis in (0, 1) for part in (1, 0)]
