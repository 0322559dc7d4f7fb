"""The erasure code by Intel's ISA-L, through pyeclib; ImportError where one of them is not installed.

liberasurecode puts 80 bytes before each fragment and reads them back when it decodes. They are never sent and never
taken from the network: it parses only headers that it wrote itself, those of zeros of the same length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from pyeclib.ec_iface import ECDriver, ECDriverError


class IsalCode:
    """See ErasureCode; n > k, since ISA-L wants at least one fragment of parity."""

    def __init__(self, n: int, k: int) -> None:
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
