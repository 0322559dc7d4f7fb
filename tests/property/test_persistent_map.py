from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from troth.protocol.market.state import PersistentMap

changes = st.lists(st.tuples(st.integers(0, 600), st.none() | st.integers()), max_size=60)


@given(changes)
def test_it_is_a_dictionary_that_keeps_its_versions(steps: list[tuple[int, int | None]]) -> None:
    plain: dict[int, int] = {}
    persistent: PersistentMap[int, int] = PersistentMap()
    versions = [(dict(plain), persistent)]
    for key, value in steps:
        if value is None:
            plain.pop(key, None)
            persistent = persistent.without(key)
        else:
            plain[key] = value
            persistent = persistent.with_item(key, value)
        versions.append((dict(plain), persistent))
    for expected, version in versions:
        assert dict(version) == expected
        assert version == expected
        assert len(version) == len(expected)
        assert all(version.get(key) == expected.get(key) for key in range(0, 601, 7))
