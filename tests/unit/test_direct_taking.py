"""Promises among nodes: given by load, kept for a while, bounded for each who asks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.group_stage import group_stage, hurry
from support.waiting import eventually

from troth.node.direct import taking as module
from troth.node.direct.taking import MOST_EXPECTED_PER_ENTRY, Taking, request_name
from troth.overlay.forwarding.passage import MEMORY, MOST_PRESSURE, Passage
from troth.overlay.hash_radix.groups import LARGEST_GROUP
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


def test_a_promise_that_was_kept_needs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EXPECTED_PER_ENTRY", 1)
    here = Here()
    assert here.take(1) == "serve"
    assert here.take(2) == "overloaded"
    here.taking.kept(task(1))
    assert here.take(2) == "serve"
    assert not here.taking.expects(task(1), SALT)


def test_a_whole_group_that_asks_for_nothing_leaves_a_place_to_one_more() -> None:
    here = Here()
    for member in range(LARGEST_GROUP - 2):
        sender = Address("0x" + f"{member + 100:040x}")
        numbers = range(member * 1000, member * 1000 + MOST_EXPECTED_PER_ENTRY + 1)
        assert [here.take(number, sender) for number in numbers][-2:] == ["serve", "overloaded"]
    assert here.take(10**6, OTHER) == "serve"


async def test_promises_that_no_task_follows_are_not_told_as_requests_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who seems to have had its share is passed over: a rival's free questions would keep all work from a node."""
    hurry(monkeypatch)
    async with group_stage(tmp_path) as stage:
        victim, rival, entry = await stage.started(3)
        taking = Taking(victim.group, lambda: False)
        rows = entry.group._sharing.view.members
        await eventually(lambda: victim.address in rows and rows[victim.address].alive)
        for number in range(60):
            assert taking.take(rival.address, Take(task(number), keccak256(SALT))).way == "serve"
        victim.engine.waiting = 3
        await eventually(lambda: rows[victim.address].load.queued == 3)
        assert rows[victim.address].load.taken == 0
        victim.group.took()
        await eventually(lambda: rows[victim.address].load.taken == 1)
