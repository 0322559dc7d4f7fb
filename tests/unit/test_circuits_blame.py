"""What a client concludes from what it saw, and when a circuit has served long enough."""

from __future__ import annotations

import pytest

from troth.overlay.cells.format import EndReason
from troth.overlay.circuits import blame
from troth.overlay.circuits.rotation import Rotation


@pytest.mark.parametrize(
    ("position", "length", "expected"),
    [(1, 3, "guard"), (2, 3, "middle"), (3, 3, "proxy"), (1, 1, "proxy"), (0, 3, "path"), (4, 3, "path")],
)
def test_each_position_has_a_class(position: int, length: int, expected: str) -> None:
    assert blame.hop_class(position, length) == expected


@pytest.mark.parametrize(
    ("by", "reason", "failed"),
    [
        (1, EndReason.UNREACHABLE, ("middle", 2)),
        (2, EndReason.DESTROYED, ("proxy", 3)),
        (3, EndReason.DESTROYED, ("proxy", 3)),
        (3, EndReason.TAMPERED, ("middle", 2)),
        (1, EndReason.TAMPERED, ("guard", 1)),
        (2, EndReason.BUSY, ("middle", 2)),
        (3, EndReason.EVICTED, ("proxy", 3)),
    ],
)
def test_a_claim_names_a_hop_beside_the_claimant(by: int, reason: EndReason, failed: tuple[str, int]) -> None:
    failure = blame.claimed(by, reason, 3)
    assert (failure.hop, failure.position) == failed
    assert f"hop {by} says" in failure.reason


def test_every_reason_has_words() -> None:
    assert all(blame.claimed(1, reason, 3).reason for reason in EndReason)


def test_silence_after_every_hop_answered_is_the_destinations() -> None:
    assert (blame.silent(1, 5, 3).hop, blame.silent(1, 5, 3).position) == ("middle", 2)
    assert (blame.silent(3, 5, 3).hop, blame.silent(3, 5, 3).position) == ("destination", 0)


def test_a_circuit_is_due_by_age_and_by_bytes_and_not_all_at_once() -> None:
    rotation = Rotation(100, 1000)
    assert not rotation.due(99, 999)
    assert rotation.due(100, 0)
    assert rotation.due(0, 1000)
    drawn = [rotation.drawn() for _ in range(50)]
    assert all(75 <= one.seconds <= 125 and 750 <= one.bytes <= 1250 for one in drawn)
    assert len({one.seconds for one in drawn}) > 10
