"""An immutable mapping that is cheap to change: a copy shares all but one of 256 buckets with its original.

The folded state keeps a version per recent block; with plain dictionaries each event would copy every entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

_BUCKETS = 256


class PersistentMap(Mapping[Key, Value]):
    """Read it as any mapping; ``with_item`` and ``without`` return changed copies. Iteration has no set order."""

    __slots__ = ("_buckets", "_size")

    def __init__(self, buckets: tuple[Mapping[Key, Value], ...] = ({},) * _BUCKETS, size: int = 0) -> None:
        self._buckets = buckets
        self._size = size

    def with_item(self, key: Key, value: Value) -> PersistentMap[Key, Value]:
        """A copy in which ``key`` has ``value``."""
        index = hash(key) % _BUCKETS
        bucket = self._buckets[index]
        changed = {**bucket, key: value}
        return self._replaced(index, changed, self._size + len(changed) - len(bucket))

    def without(self, key: Key) -> PersistentMap[Key, Value]:
        """A copy that lacks ``key``."""
        index = hash(key) % _BUCKETS
        bucket = self._buckets[index]
        changed = {other: value for other, value in bucket.items() if other != key}
        return self._replaced(index, changed, self._size + len(changed) - len(bucket))

    def _replaced(self, index: int, bucket: Mapping[Key, Value], size: int) -> PersistentMap[Key, Value]:
        return PersistentMap((*self._buckets[:index], bucket, *self._buckets[index + 1 :]), size)

    def __getitem__(self, key: Key) -> Value:
        return self._buckets[hash(key) % _BUCKETS][key]

    def __iter__(self) -> Iterator[Key]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"
