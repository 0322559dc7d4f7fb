"""Verifiers' notes put together: no gap, no forgery, no framing by one of them, and slow cheats found sooner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.market_record import record
from support.market_scene import DOMAIN, KEYS, TAB, Scene, hash_of, key_of

from troth.audit.errors import BundleRefused
from troth.audit.notes import audit_notes, read_notes
from troth.audit.report import ExitCode, FindingKind
from troth.node.earning.database import NodeDatabase
from troth.node.orders.notes import Notes
from troth.protocol import typed_data
from troth.protocol.errors import ProtocolError
from troth.protocol.findings import HONEST_LOST, HONEST_RATIO, Kind, TaskFinding
from troth.protocol.market import canonical
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.lottery import Secrets
from troth.protocol.market.messages import sign
from troth.protocol.market.notes import (
    FindingNote,
    NotedTask,
    TaskOfMany,
    coded,
    honest_mean,
    joint_evidence,
    require_record,
    together,
    value_of,
)
from troth.protocol.market.papers import CheckPapers
from troth.protocol.sequential import ERROR, NOTHING, largest_wealth
from troth.protocol.tensors import Dtype
from troth.protocol.types import ZERO_HASH, Address, Hash32, address_from_bytes

NODES = 8
A, B, C = (address_from_bytes(bytes([number]) * 20) for number in (1, 2, 3))
LOST = TaskFinding(Kind.TOKENS, 1.0, HONEST_LOST)
FOUND = TaskFinding(Kind.TOKENS, 0.0, HONEST_LOST)


def papers_of(scene: Scene) -> CheckPapers:
    journey = scene.served()
    assert journey.results
    assert journey.draw
    return CheckPapers(
        order=journey.order, tab=TAB, admission=journey.admission, nodes=journey.nodes,
        infer_proof=journey.infer_proof, results=journey.results, draw=journey.draw, draw_proof=journey.draw_proof,
        secret=scene.secrets.draw, pay=None, head_salt=hash_of("salt"), salt=hash_of("salt of the request"),
    )  # fmt: skip


@cache
def scenes(count: int = 40) -> list[tuple[Scene, CheckPapers, tuple[Address, ...]]]:
    """Orders on one tab, with who was drawn to check them."""
    found = []
    for number in range(count):
        scene = Scene(nodes=NODES, secrets=Secrets(hash_of(f"first {number}"), hash_of("second")))
        (seats,) = scene.verifiers(scene.served())
        found.append((scene, papers_of(scene), tuple(seats.seats)))
    return found


def signed_by(verifier: Address, note: FindingNote) -> bytes:
    return typed_data.sign(note, DOMAIN, KEYS[verifier])


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> dict[Address, list[NotedTask]]:
    """What every verifier noted: the node of the first order lost a token in every task, the others in none."""
    cheat = scenes()[0][1].nodes[0]
    found = {}
    for verifier in {one for _, _, drawn in scenes() for one in drawn}:
        folder = tmp_path_factory.mktemp("verifier")
        database = NodeDatabase(folder / "market.sqlite")
        notes = Notes(database)
        for scene, papers, drawn in scenes():
            if verifier in drawn:
                said = coded([LOST if papers.nodes[0] == cheat else FOUND])
                for _ in range(2):  # a verdict that is asked for again is noted once
                    notes.add(papers, 0, said, scene.order_id, partial(signed_by, verifier))
        assert sum(one.notes for one in notes.records()) == sum(verifier in drawn for _, _, drawn in scenes())
        found[verifier] = list(notes.of())
        database.close()
    return found


def write(path: Path, tasks: Sequence[NotedTask]) -> Path:
    path.write_bytes(b"".join(canonical.encode(one) + b"\n" for one in tasks))
    return path


def about(tasks: Sequence[NotedTask], node: Address) -> list[NotedTask]:
    return [one for one in tasks if one.note.message.node == node]


@pytest.mark.slow
def test_records_of_all_verifiers_find_the_node_out_and_no_other(
    noted: dict[Address, list[NotedTask]], tmp_path: Path
) -> None:
    cheat = scenes()[0][1].nodes[0]
    files = [write(tmp_path / f"{verifier}.jsonl", tasks) for verifier, tasks in noted.items()]
    report, known = audit_notes(read_notes(files), record(nodes=NODES))
    suspected = {one.party for one in report.findings if one.kind is FindingKind.INCONCLUSIVE}
    assert suspected == {cheat}
    assert report.exit_code is ExitCode.INCONCLUSIVE
    others = {one.party for one in report.findings if one.kind is FindingKind.OBSERVED}
    assert others == {papers.nodes[0] for _, papers, _ in scenes()} - {cheat}
    (suspect,) = known.suspects
    assert (suspect.node, suspect.execution_class) == (cheat, scenes()[0][1].order.message.execution_class)
    assert suspect.strength >= 1 / ERROR


@pytest.mark.slow
def test_a_file_of_notes_shows_no_salt(noted: dict[Address, list[NotedTask]]) -> None:
    for tasks in noted.values():
        for one in tasks:
            assert (one.papers.head_salt, one.papers.salt, one.papers.pay) == (ZERO_HASH, None, None)


@pytest.mark.slow
def test_a_record_with_a_gap_or_another_signer_does_not_hold(noted: dict[Address, list[NotedTask]]) -> None:
    cheat = scenes()[0][1].nodes[0]
    verifier, tasks = max(noted.items(), key=lambda one: len(about(one[1], cheat)))
    whole = [one.note for one in about(tasks, cheat)]
    assert len(whole) >= 2
    assert require_record(whole, DOMAIN) == verifier
    assert require_record(whole[:-1], DOMAIN) == verifier  # it may end early: evidence may be looked at at any time
    changed = replace(whole[0].message, tokens=0)
    other = sign(changed, DOMAIN, key_of(next(one for one in KEYS if one != verifier)))
    jumped = sign(replace(whole[1].message, number=3), DOMAIN, key_of(verifier))
    for broken in ([], whole[1:], [whole[0], jumped], [whole[0], *whole[2:], whole[1]], [other, *whole[1:]],
                   [sign(changed, DOMAIN, key_of(verifier)), *whole[1:]]):  # fmt: skip
        with pytest.raises(ProtocolError):
            require_record(broken, DOMAIN)


@pytest.mark.slow
def test_what_does_not_hold_is_left_out_and_its_signer_named(
    noted: dict[Address, list[NotedTask]],
) -> None:
    subject, cheat = record(nodes=NODES), scenes()[0][1].nodes[0]
    verifier, tasks = max(noted.items(), key=lambda one: len(about(one[1], cheat)))
    mine = about(tasks, cheat)
    stranger = next(one for one in KEYS if one not in scenes()[0][2])

    def findings(shown: list[NotedTask]) -> list[tuple[FindingKind, Any]]:
        return [(one.kind, one.party) for one in audit_notes(shown, subject)[0].findings]

    assert findings(mine[1:]) == [(FindingKind.INCONCLUSIVE, verifier)]
    twice = replace(mine[0], note=sign(replace(mine[0].note.message, tokens=1), DOMAIN, key_of(verifier)))
    assert findings([*mine, twice]) == [(FindingKind.CHEATED, verifier)]
    first = scenes()[0][1]
    forged = sign(replace(mine[0].note.message, number=1, before=ZERO_HASH), DOMAIN, key_of(stranger))
    assert findings([NotedTask(forged, first)]) == [(FindingKind.INCONCLUSIVE, stranger)]
    for papers in (
        replace(mine[0].papers, secret=hash_of("another")),
        replace(mine[0].papers, infer_proof=mine[0].papers.infer_proof[::-1]),
        replace(mine[0].papers, order=replace(mine[0].papers.order, signature=bytes(65))),
        next(one.papers for one in tasks if one.papers.order != mine[0].papers.order),
    ):
        assert findings([replace(mine[0], papers=papers)]) == [(FindingKind.INCONCLUSIVE, verifier)]
    wild = sign(replace(mine[0].note.message, tokens=2**32 - 1), DOMAIN, key_of(verifier))
    with pytest.raises(InvalidCheck):
        value_of(wild.message, Kind.TOKENS)


@pytest.mark.slow
def test_a_file_that_holds_no_notes_is_refused(tmp_path: Path, noted: dict[Address, list[NotedTask]]) -> None:
    good = canonical.encode(next(iter(noted.values()))[0])
    for content in (b"{}\n", b"\xff\n", good + b"\n" + good[:-9] + b"\n", b"9" * 400_000):
        path = tmp_path / "notes"
        path.write_bytes(content)
        with pytest.raises(BundleRefused, match="Line"):
            read_notes([path])


# ------------------------------------------------------------------------------------------------------- together


def test_one_verifier_frames_nobody_and_excuses_little() -> None:
    assert together({A: 1.0, B: 0.0, C: 0.0}) == 0.0
    assert together({A: 0.0, B: 1.0, C: 1.0}) == 0.5
    assert together({A: 1.0, B: 1.0, C: 1.0}) == 1.0
    assert together({A: 1.0}) == 0.0
    drawn = np.random.default_rng(5).random((500, 3))
    assert all(together(dict(zip((A, B, C), row, strict=True))) <= row.mean() for row in drawn)


def tasks_of(values: np.ndarray, owners: dict[Address, Address] | None = None) -> list[TaskOfMany]:
    """Tasks of one node with findings (tasks x verifiers A, B, C); NaN where a verifier shows no record."""
    found = []
    for number, row in enumerate(values):
        order = Hash32(number.to_bytes(32, "big"))
        notes = {
            verifier: FindingNote(
                A, ZERO_HASH, 0, number + 1, ZERO_HASH, order, 0, ZERO_HASH, 1 + round(value * 1_000_000), 0
            )
            for verifier, value in zip((A, B, C), row, strict=True)
            if not np.isnan(value)
        }
        found.append(TaskOfMany(number, order, 0, owners or {one: one for one in (A, B, C)}, notes))
    return found


def wealth(values: np.ndarray, shown: int = 3, **named: Any) -> Any:
    return joint_evidence(tasks_of(values, **named), Kind.STATES, honest=HONEST_RATIO, shown=shown, verifiers=3)


def test_a_slow_cheat_is_found_together_in_fewer_of_its_tasks_than_each_verifier_needs() -> None:
    """It is beyond the mean in half of its tasks, and each of 24 verifiers sees an eighth of them."""
    draw = np.random.default_rng(6)
    seen = np.repeat((draw.random((240, 1)) < 0.5).astype(float), 3, axis=1)
    assert not wealth(seen).accepted
    alone = NOTHING
    for row in seen[::8]:
        alone = alone.after(float(row[0]), HONEST_RATIO)
    assert alone.accepted


@pytest.mark.slow
def test_honest_nodes_are_not_found_out_whoever_lies_alone_and_whoever_is_chosen() -> None:
    draw = np.random.default_rng(7)
    for _ in range(40):
        values = np.repeat((draw.random((150, 1)) < HONEST_RATIO).astype(float), 3, axis=1)
        values[:, 0] = 1.0  # A says the worst each time
        assert wealth(values).accepted
        missing = values.copy()
        missing[:, 2] = np.nan
        assert wealth(missing, shown=2).wealth <= wealth(values).wealth
    two = np.column_stack([np.ones((150, 2)), np.zeros((150, 1))])
    assert wealth(two, owners={A: A, B: A, C: C}).accepted  # one owner's two verifiers are one


def test_the_bar_is_higher_where_records_may_have_been_chosen() -> None:
    values = np.ones((3, 3))
    few = joint_evidence(tasks_of(values), Kind.STATES, honest=HONEST_RATIO, shown=6, verifiers=12)
    assert few.bar == pytest.approx(924 / ERROR)
    assert wealth(values).bar == pytest.approx(1 / ERROR)
    assert largest_wealth([1.0] * 400, HONEST_LOST) > 1e12  # beyond the cap of one verifier's evidence
    assert largest_wealth([], HONEST_LOST) == 1.0
    found = NOTHING
    for finding in (1.0, 0.0, 0.3):
        found = found.after(finding, HONEST_RATIO)
    assert largest_wealth([1.0, 0.0, 0.3], HONEST_RATIO) >= found.wealth


def test_an_honest_mean_is_that_of_the_findings() -> None:
    assert honest_mean(Kind.TOKENS, Dtype.FLOAT32, exact=False) == HONEST_LOST
    assert honest_mean(Kind.TOKENS, Dtype.BFLOAT16, exact=True) == HONEST_LOST
    assert honest_mean(Kind.TOKENS, Dtype.BFLOAT16, exact=False) == 0.55
    assert coded([LOST]) == {"states": 0, "tokens": 1_000_001}
