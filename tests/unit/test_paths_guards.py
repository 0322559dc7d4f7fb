"""Guards over restarts, and against who would make a client choose others."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.listings import DAY, NOW, listed, listing, shares_nothing

from troth.overlay.circuits.descriptors import PinnedAddress
from troth.overlay.paths.choice import Crowd
from troth.overlay.paths.errors import GuardsUnusable
from troth.overlay.paths.guards import LONGEST, SHORTEST, Guards

RELAYS = [listed(number) for number in range(40)]
WANTED = 4


class Machine:
    """A client's machine: its clock, its disk, and the list that it sees."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "client" / "guards.json"
        self.time = float(NOW)
        self.relays = list(RELAYS)
        self.seed = 1
        self.guards = self.restart()

    def restart(self) -> Guards:
        self.seed += 1
        self.guards = Guards(self.file, clock=lambda: self.time, random=Random(self.seed))
        return self.guards

    def see(self, *, at: float | None = None) -> list[str]:
        """A list of that time comes (by default of the clock's); who may be tried then."""
        seen = listing(self.relays, at=int(self.time if at is None else at))
        self.guards.update(seen, Crowd(seen.relays, seen.valid_after), WANTED)
        return self.usable()

    def usable(self) -> list[str]:
        return [relay.name.hex() for relay in self.guards.usable(WANTED)]

    def try_all(self) -> list[str]:
        """Connect to everybody that the rule allows, again and again, and never get through."""
        for _ in range(3):
            for name in self.usable():
                self.guards.trying(bytes.fromhex(name))
        return self.tried()

    def tried(self) -> list[str]:
        return [guard.name for guard in self.guards.kept if guard.tried is not None]

    def names(self) -> list[str]:
        return [guard.name for guard in self.guards.kept]

    def drop(self, *names: str) -> None:
        self.relays = [one for one in self.relays if one.relay.name.hex() not in names]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.see()
    return machine


def test_eight_are_kept_that_share_nothing_and_four_are_used(machine: Machine) -> None:
    kept = machine.names()
    assert len(kept) == 8
    assert machine.usable() == kept[:4]
    assert shares_nothing([[machine.guards._listed[name]] for name in kept])
    assert all(SHORTEST <= guard.until - guard.chosen <= LONGEST for guard in machine.guards.kept)
    assert len({guard.until for guard in machine.guards.kept}) > 4


def test_they_outlive_restarts_in_a_file_for_the_owner_alone(machine: Machine) -> None:
    before = machine.names()
    machine.try_all()
    machine.restart()
    assert machine.see()[:4] == before[:4]
    assert machine.names() == before
    assert stat.S_IMODE(machine.file.stat().st_mode) == 0o600
    assert {path.name for path in machine.file.parent.iterdir()} == {"guards.json", ".guards.json.lock"}


def test_cutting_every_connection_walks_nobody_through_guards(machine: Machine) -> None:
    first = machine.names()
    assert machine.try_all() == first[:4]
    for day in range(1, 50):
        machine.time = NOW + day * DAY
        machine.restart()
        machine.see()
        machine.try_all()
        assert len(machine.tried()) <= 4 + 2 * day
    assert machine.names() == first


def test_a_restart_in_between_allows_no_more_tries(machine: Machine) -> None:
    machine.try_all()
    for _ in range(5):
        machine.restart()
        machine.see()
        assert len(machine.try_all()) == 4


def test_two_clients_of_one_user_share_guards_and_tries(tmp_path: Path) -> None:
    one, other = Machine(tmp_path), Machine(tmp_path)
    other.seed = 77
    other.restart()
    assert one.see() == other.see()
    half = [bytes.fromhex(name) for name in one.usable()[:2]]
    for name in half:
        one.guards.trying(name)
    one.time = other.time = NOW + DAY + 1
    other.see()
    one.see()
    assert other.tried() == one.tried() == [name.hex() for name in half]
    other.try_all()
    one.see()
    assert one.try_all() == other.tried()
    assert len(one.tried()) == 4


def test_a_clock_set_forward_ends_no_guard_without_a_list_that_says_so(machine: Machine) -> None:
    before = machine.names()
    machine.try_all()
    machine.time = NOW + 1_000 * DAY
    machine.see(at=NOW)
    assert machine.names() == before
    assert len(machine.try_all()) == 4


def test_a_clock_set_back_neither_prolongs_nor_allows_anything(machine: Machine) -> None:
    machine.try_all()
    machine.time = NOW + DAY + 60
    machine.see()
    assert len(machine.try_all()) == 6
    machine.time = NOW - 5_000 * DAY
    machine.restart()
    machine.see(at=NOW)
    assert machine.guards.now() == NOW + DAY + 60
    assert len(machine.try_all()) == 6


def test_a_guard_whose_time_is_over_gives_way(machine: Machine) -> None:
    ends = {guard.name: guard.until for guard in machine.guards.kept}
    early = min(ends, key=lambda name: ends[name])
    machine.time = ends[early] - 1
    machine.see()
    assert early in machine.names()
    machine.time = ends[early]
    machine.see()
    assert early not in machine.names()
    assert len(machine.names()) == 8
    machine.time = NOW + LONGEST + 1
    machine.see()
    assert not set(ends) & set(machine.names())


def test_a_guard_gone_from_the_list_is_kept_for_a_week_and_comes_back_first(machine: Machine) -> None:
    before = machine.names()
    machine.drop(before[0])
    assert before[0] not in machine.see()
    machine.time += 6 * DAY
    machine.see()
    assert machine.names() == before
    machine.relays = list(RELAYS)
    assert machine.see()[0] == before[0]
    machine.drop(before[0])
    machine.see()
    machine.time += 7 * DAY
    machine.see()
    assert before[0] not in machine.names()
    assert machine.names()[:7] == before[1:]


def test_when_most_are_gone_others_are_added_beside_them_not_instead(machine: Machine) -> None:
    before = machine.names()
    machine.drop(*before[:6])
    assert len(machine.see()) == WANTED
    assert machine.names()[:8] == before
    assert len(machine.names()) == 10
    machine.relays = list(RELAYS)
    assert machine.see() == before[:4]


def test_a_guard_that_moves_onto_another_one_loses_not_the_other(machine: Machine) -> None:
    honest, mover = machine.names()[1], machine.names()[0]
    there = next(one for one in RELAYS if one.relay.name.hex() == honest).relay.place
    for index, one in enumerate(machine.relays):
        if one.relay.name.hex() == mover:
            place = PinnedAddress(there.host, 9_001, one.relay.name)
            machine.relays[index] = replace(one, relay=replace(one.relay, place=place))
    usable = machine.see()
    assert honest in usable
    assert mover not in usable


def test_reached_is_written_to_the_hour(machine: Machine) -> None:
    name = bytes.fromhex(machine.names()[0])
    machine.time += 1_801
    machine.guards.reached(name)
    assert machine.guards.kept[0].reached is not None
    assert machine.guards.kept[0].reached % 3_600 == 0
    machine.restart()


DAMAGE = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "other json": lambda _: "[]",
    "unknown field": lambda text: text.replace('"version"', '"versions"'),
    "another version": lambda text: text.replace('"version": 1', '"version": 2'),
    "a name that is none": lambda text: text.replace('"name": "0', '"name": "x', 1),
    "kept for ever": lambda text: text.replace('"until": 1', '"until": 9', 1),
    "chosen in the future": lambda text: text.replace(f'"latest": {NOW}', f'"latest": {NOW - 1}'),
    "too large": lambda text: text + " " * 2**20,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_an_error_and_never_a_fresh_set(machine: Machine, damage: str) -> None:
    text = machine.file.read_text()
    damaged = DAMAGE[damage](text)
    assert damaged != text
    machine.file.write_text(damaged)
    with pytest.raises(GuardsUnusable, match="Restore it"):
        machine.restart()
    assert machine.file.read_text() == damaged


def test_a_guard_written_twice_is_damage(machine: Machine) -> None:
    state = json.loads(machine.file.read_text())
    state["guards"].append(state["guards"][0])
    machine.file.write_text(json.dumps(state))
    with pytest.raises(GuardsUnusable, match="twice"):
        machine.restart()


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_a_file_that_others_can_use_is_refused(machine: Machine, mode: int) -> None:
    machine.file.chmod(mode)
    with pytest.raises(GuardsUnusable, match="chmod 600"):
        machine.restart()


def test_a_try_that_cannot_be_written_down_is_not_made(machine: Machine) -> None:
    name = bytes.fromhex(machine.usable()[0])
    text = machine.file.read_text()
    machine.file.unlink()
    machine.file.mkdir()
    for _ in range(2):
        with pytest.raises(GuardsUnusable, match="cannot be"):
            machine.guards.trying(name)
    machine.file.rmdir()
    machine.file.write_text(text)
    machine.file.chmod(0o600)
    assert machine.restart().kept[0].tried is None
