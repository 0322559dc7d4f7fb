"""eth_keyfile, imported without the pairing curves of py_ecc.

They cost 0.8 s of processor time at each start of each `troth` command and process, and serve keyfiles of version 4
(EIP-2335, for validators), which nobody here reads. So while eth_keyfile is imported, two names stand in for them: the
one number that it wants at once, and an object that imports the real thing if it is ever used. web3 and eth_account
import eth_keyfile too: whoever imports them imports this module first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_CURVE_ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Of BLS12-381."""


class _Pairings:
    """What py_ecc calls G2ProofOfPossession, loaded on first use."""

    def __getattr__(self, name: str) -> Any:
        from py_ecc.bls import G2ProofOfPossession  # type: ignore[attr-defined]

        return getattr(G2ProofOfPossession, name)


@contextmanager
def _without_pairings() -> Iterator[None]:
    stand_ins: dict[str, dict[str, Any]] = {
        "py_ecc.bls": {"G2ProofOfPossession": _Pairings()},
        "py_ecc.bls12_381": {"curve_order": _CURVE_ORDER},
    }
    missing = {name: content for name, content in stand_ins.items() if name not in sys.modules}
    for name, content in missing.items():
        module = ModuleType(name)
        vars(module).update(content)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


with _without_pairings():
    from eth_keyfile import create_keyfile_json, decode_keyfile_json

__all__ = ["create_keyfile_json", "decode_keyfile_json"]
