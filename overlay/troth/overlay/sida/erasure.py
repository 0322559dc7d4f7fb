"""The (n, k) erasure code of a ciphertext: Cauchy Reed-Solomon, the bytes of ISA-L, with and without its library.

Fragments 0 … k−1 are the data, cut in k; fragment i ≥ k is the sum of the data fragments j, each over i ⊕ j. Every k of
them give the data (every square part of a Cauchy matrix has an inverse). Two implementations give the same bytes:
ISA-L through pyeclib, and tables wherever pyeclib has no wheel. zfec is none of them: its Vandermonde matrix gives
other bytes, so a message would have to say which code it is in, and its licence is the GPL.

liberasurecode puts 80 bytes before each fragment and reads them back when it decodes. They are never sent and never
taken from the network: it parses only headers that it wrote itself, those of zeros of the same length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Protocol

from troth.overlay.sida.shamir import INVERSE, Matrix, combination, inverse_of

Buffer = bytes | memoryview


class ErasureCode(Protocol):
    """A code for one n and one k."""

    def encode(self, data: bytes) -> Sequence[Buffer]:
        """n fragments of ⌈len(data) / k⌉ bytes; the data, not empty, is filled up with zeros."""
        ...

    def decode(self, fragments: Mapping[int, bytes]) -> bytes:
        """The data and its zeros, from k fragments or more by index, all of one length."""
        ...


class IsalCode:
    """See ErasureCode; n > k, since ISA-L wants at least one fragment of parity.

    Raises ImportError where pyeclib is missing, or was built without ISA-L.
    """

    def __init__(self, n: int, k: int) -> None:
        # Only here, so that the tables serve on a machine without pyeclib.
        from pyeclib.ec_iface import ECDriver, ECDriverError

        self._k = k
        try:
            self._driver = ECDriver(k=k, m=n - k, ec_type="isa_l_rs_cauchy")
        except ECDriverError as error:
            raise ImportError("This pyeclib was built without ISA-L") from error
        self._headers = lru_cache(maxsize=256)(self._headers_of)

    def encode(self, data: bytes) -> Sequence[memoryview]:
        """See ErasureCode."""
        size = -(-len(data) // self._k)
        return [memoryview(fragment)[-size:] for fragment in self._driver.encode(data)]

    def decode(self, fragments: Mapping[int, bytes]) -> bytes:
        """See ErasureCode."""
        if len(fragments) < self._k:
            raise ValueError(f"{self._k} fragments are needed, {len(fragments)} were given")
        indices = sorted(fragments)[: self._k]
        if indices[-1] < self._k:
            return b"".join([fragments[index] for index in indices])
        headers = self._headers(len(fragments[indices[0]]))
        data: bytes = self._driver.decode([headers[index] + fragments[index] for index in indices])
        return data

    def _headers_of(self, size: int) -> list[bytes]:
        return [fragment[:-size] for fragment in self._driver.encode(bytes(self._k * size))]


class TableCode:
    """The code on tables of GF(256): ten times slower than ISA-L, and at home everywhere."""

    def __init__(self, n: int, k: int) -> None:
        self._k = k
        self._rows = cauchy_matrix(n, k)

    def encode(self, data: bytes) -> Sequence[Buffer]:
        """See ErasureCode."""
        pieces = cut(data, self._k)
        return pieces + [combination(row, pieces) for row in self._rows[self._k :]]

    def decode(self, fragments: Mapping[int, bytes]) -> bytes:
        """See ErasureCode."""
        if len(fragments) < self._k:
            raise ValueError(f"{self._k} fragments are needed, {len(fragments)} were given")
        indices = tuple(sorted(fragments)[: self._k])
        strings = [fragments[index] for index in indices]
        inverse = self._inverse(indices)
        return b"".join(fragments.get(piece) or combination(inverse[piece], strings) for piece in range(self._k))

    def _inverse(self, indices: tuple[int, ...]) -> Matrix:
        if indices == tuple(range(self._k)):
            return ()
        return _inverse_rows(tuple(self._rows[index] for index in indices))


@lru_cache(maxsize=1024)
def _inverse_rows(rows: Matrix) -> Matrix:
    return inverse_of(rows)


def cauchy_matrix(n: int, k: int) -> Matrix:
    """n rows of k weights: the identity, then 1 / (i ⊕ j)."""
    identity = tuple(tuple(int(i == j) for j in range(k)) for i in range(k))
    return identity + tuple(tuple(INVERSE[i ^ j] for j in range(k)) for i in range(k, n))


def cut(data: bytes, k: int) -> list[bytes]:
    """The data in k pieces of equal length, the last ones filled up with zeros."""
    size = -(-len(data) // k)
    data = data.ljust(k * size, b"\0")
    return [data[at : at + size] for at in range(0, k * size, size)]


@cache  # at most 528 pairs
def code_for(n: int, k: int) -> ErasureCode:
    """The fastest code of this machine for 1 ≤ k ≤ n ≤ 32."""
    if n > k:
        # Where pyeclib has no wheel, or no ISA-L, the tables do it: the same bytes, slower.
        with suppress(ImportError):
            return IsalCode(n, k)
    return TableCode(n, k)
