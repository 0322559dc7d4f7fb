"""Keccak-256, the hash of everything that a contract must be able to repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sha3


def keccak256(data: bytes) -> bytes:
    """The 32-byte Keccak-256 digest (the original padding, as in the EVM, not SHA3-256)."""
    digest: bytes = sha3.keccak_256(data).digest()
    return digest


def abi_keccak(types: Sequence[str], values: Sequence[Any]) -> bytes:
    """keccak256(abi.encode(values)) with the given Solidity types, 32 bytes."""
    # It takes a third of a second to load, more than a program that hashes weights needs to start.
    from eth_abi.abi import encode

    return keccak256(encode(types, values))
