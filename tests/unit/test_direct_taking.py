"""Promises among nodes: given by load, kept for a while, bounded for each who asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from troth.node.direct import taking as module
from troth.node.direct.taking import Taking, request_name
from troth.overlay.forwarding.passage import MEMORY, MOST_PRESSURE, Passage
from troth.overlay.hash_radix.load import Load
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_group import LoadPart, Take

ME, ENTRY, OTHER = (Address("0x" + digit * 40) for digit in "123")
SALT = Hash32(b"s" * 32)


class Here:
    """A group of which only this node's load matters, and a clock."""

    def __init__(self) -> None:
        self.now, self.running, self.leaving = 1000.0, 0, False
        group = SimpleNamespace(
            own=ME,
            passage=Passage(ME, cast(Any, None)),
            load=lambda: Load(latency=2.0, running=self.running, queued=self.running),
            load_part=lambda: LoadPart(0, self.running, self.running, 1, 0, 0),
        )
        self.taking = Taking(cast(Any, group), lambda: self.leaving, lambda: self.now)

    def take(self, number: int = 1, sender: Address = ENTRY, salt: bytes = SALT) -> str:
        return self.taking.take(sender, Take(task(number), keccak256(salt))).way


def task(number: int) -> Hash32:
    return Hash32(number.to_bytes(32, "big"))


def test_what_was_promised_can_be_waited_for_by_who_has_the_salt() -> None:
    here = Here()
    assert not here.taking.expects(task(1), SALT)
    assert here.take() == "serve"
    assert here.taking.expects(task(1), SALT)
    assert not here.taking.expects(task(1), b"t" * 32)
    assert not here.taking.expects(task(2), SALT)


def test_twice_is_a_circle_and_another_salt_is_another_request() -> None:
    here = Here()
    assert here.take(salt=b"x" * 32) == "serve"
    # Who guessed the task's id first does not keep its client out.
    assert here.take() == "serve"
    assert here.taking.expects(task(1), SALT)
    assert here.take() == "circle"
    assert request_name(task(1), SALT) != request_name(task(1), b"x" * 32)


def test_a_full_node_says_when_to_come_back() -> None:
    here = Here()
    here.running = int(MOST_PRESSURE)
    answer = here.taking.take(ENTRY, Take(task(1), keccak256(SALT)))
    assert (answer.way, answer.retry_after) == ("overloaded", 16)
    assert answer.load.running == here.running
    assert not here.taking.expects(task(1), SALT)
    here.running = 0
    assert here.take() == "serve"


def test_a_node_that_is_being_stopped_takes_nothing() -> None:
    here = Here()
    here.leaving = True
    assert here.take() == "overloaded"


def test_promises_expire() -> None:
    here = Here()
    here.take()
    here.now += MEMORY + 1
    assert not here.taking.expects(task(1), SALT)
    assert here.take() == "serve"


def test_its_own_requests_are_expected_too() -> None:
    here = Here()
    here.taking.expect(task(3), keccak256(SALT))
    assert here.taking.expects(task(3), SALT)


def test_one_entry_cannot_use_up_what_all_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EXPECTED_PER_ENTRY", 3)
    monkeypatch.setattr(module, "MOST_EXPECTED", 5)
    here = Here()
    assert [here.take(number) for number in range(1, 6)] == ["serve"] * 3 + ["overloaded"] * 2
    assert [here.take(number, OTHER) for number in range(6, 10)] == ["serve"] * 2 + ["overloaded"] * 2
    assert here.taking.expects(task(1), SALT)
    here.now += MEMORY + 1
    assert here.take(20) == "serve"
