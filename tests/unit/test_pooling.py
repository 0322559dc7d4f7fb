"""Margins pooled over tasks: what counts, how far back, and that a restart forgets nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from troth.node.errors import NodeStorageError
from troth.node.judging.margin_pool import LINES, MarginPool
from troth.protocol.findings import Kind, TaskFinding
from troth.protocol.pooling import FLOOR, LEAST_TOKENS, RATIO_CUT, MarginSums, newest
from troth.protocol.sequential import NOTHING
from troth.protocol.types import Address, Hash32

NODE, OTHER = Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"), Address("0x" + "11" * 20)
CLASS = Hash32(b"c" * 32)
pools = some.builds(MarginSums, some.integers(1, 4000), some.floats(0, 1e3), some.floats(0, 1e3))


def task(number: int) -> Hash32:
    return Hash32(number.to_bytes(32, "big"))


def test_few_tokens_decide_nothing_and_many_do() -> None:
    assert MarginSums(LEAST_TOKENS - 1, 1e6, 0.0).accepted
    assert not MarginSums(LEAST_TOKENS, 1e6, 0.0).accepted
    assert MarginSums().ratio == MarginSums(100).ratio == 1


@given(pools)
def test_noise_that_both_share_frames_nobody(pool: MarginSums) -> None:
    """Prompts may be made to lose much; as long as the verifier's own choices lose as much, nothing follows."""
    assert MarginSums(pool.tokens, pool.own, pool.own).accepted
    heavy = MarginSums(LEAST_TOKENS, RATIO_CUT * pool.own + FLOOR * LEAST_TOKENS * RATIO_CUT, pool.own)
    assert not heavy.accepted or heavy.ratio == pytest.approx(RATIO_CUT)


@given(some.lists(pools, max_size=8))
def test_only_the_newest_texts_count(found: list[MarginSums]) -> None:
    total = newest(found, most=5000)
    assert total.tokens <= 5000
    counted = [sum(pool.tokens for pool in found[:end]) for end in range(len(found) + 1)]
    assert total.tokens == max(tokens for tokens in counted if tokens <= 5000)


def test_a_pool_outlives_its_process_and_counts_a_task_once(tmp_path: Path) -> None:
    kept = MarginPool(tmp_path / "margins.sqlite")
    kept.add(NODE, CLASS, task(1), MarginSums(10, 1.0, 0.5))
    kept.add(NODE, CLASS, task(1), MarginSums(10, 9.0, 0.5))
    kept.close()
    again = MarginPool(tmp_path / "margins.sqlite")
    assert again.add(NODE, CLASS, task(2), MarginSums(5, 0.5, 0.25)) == MarginSums(15, 1.5, 0.75)
    assert again.of(OTHER, CLASS) == again.of(NODE, Hash32(b"d" * 32)) == MarginSums()


def test_evidence_outlives_its_process_and_counts_a_task_once(tmp_path: Path) -> None:
    kept = MarginPool(tmp_path / "margins.sqlite")
    lost, worse = TaskFinding(Kind.TOKENS, 1.0, 0.001), TaskFinding(Kind.STATES, 1.0, 0.02)
    states, tokens = kept.gather(NODE, CLASS, task(1), (worse, lost))
    assert (states, tokens) == (NOTHING.after(1.0, 0.02), NOTHING.after(1.0, 0.001))
    assert kept.gather(NODE, CLASS, task(1), (worse, lost)) == (states, tokens)
    kept.close()
    again = MarginPool(tmp_path / "margins.sqlite")
    assert again.gather(NODE, CLASS, task(2), (lost,)) == (states, tokens.after(1.0, 0.001))
    assert again.evidence(OTHER, CLASS, Kind.TOKENS) == again.evidence(NODE, Hash32(b"d" * 32), Kind.STATES) == NOTHING
    gathered = [again.gather(NODE, CLASS, task(number), (lost,)) for number in range(3, 6)]
    assert [all(one.accepted for one in tests) for tests in gathered] == [False] * 3, "four such tasks are enough"


def test_a_pool_is_bounded(tmp_path: Path) -> None:
    kept = MarginPool(tmp_path / "margins.sqlite")
    for number in range(LINES + 3):
        kept._insert(NODE, CLASS, task(number), MarginSums(1, 0.0, 0.0))
    assert kept._database.execute("SELECT COUNT(*), MIN(number) FROM margins").fetchone() == (LINES, 4)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "margins.sqlite"
    path.write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(NodeStorageError, match="pool of margins"):
        MarginPool(path)
