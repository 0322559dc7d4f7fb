"""Proofs of the draw: only the scheduler's own key over this very task and group convinces the client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.client_stage import (
    CLASS,
    DOMAIN,
    ENDS,
    OFFER,
    assigned_line,
    base_state,
    drawn,
    member,
    signed_order,
)

from troth.client.checking import check_assignment
from troth.client.errors import ProofError, StreamError
from troth.protocol import vrf
from troth.protocol.identifiers import group_id
from troth.protocol.state import Group, Occupancy, State
from troth.protocol.types import segments_from_ends

SIGNED = signed_order()
LINE = assigned_line(SIGNED)
STATE = base_state()


def check(line: dict[str, Any], state: State = STATE, offer: Any = OFFER) -> Any:
    return check_assignment(line, SIGNED, offer, DOMAIN, state)


def test_the_draw_that_the_proofs_support_passes() -> None:
    assignment = check(LINE)
    assert [list(parties) for parties in assignment.parties] == drawn(SIGNED)[1]
    assert assignment.task_id == SIGNED.task_id


def forged() -> dict[str, Any]:
    proof = bytearray(bytes.fromhex(LINE["proofs"][1][2:]))
    proof[-1] ^= 1
    return {"proofs": [LINE["proofs"][0], "0x" + proof.hex()]}


def swapped() -> dict[str, Any]:
    first, *rest = LINE["parties"]
    return {"parties": [[first[1], first[0], *first[2:]], *rest]}


PROVEN_WRONG: dict[str, dict[str, Any]] = {
    "a changed proof": forged(),
    "the proofs of another task": {"proofs": assigned_line(signed_order())["proofs"]},
    "one segment's proof for both": {"proofs": [LINE["proofs"][0]] * 2},
    "too few proofs": {"proofs": LINE["proofs"][:1]},
    "no proof": {"proofs": []},
    "zeros": {"proofs": ["0x" + "00" * 81] * 2},
    "other parties": {"parties": [[member(9)] * 5] * 2},
    "the candidates in another order": swapped(),
    "too few parties": {"parties": LINE["parties"][:1]},
}
MALFORMED: dict[str, dict[str, Any]] = {
    "proofs that are text": {"proofs": "0x" + "00" * 81},
    "a short proof": {"proofs": ["0x00", "0x00"]},
    "no hex": {"proofs": ["0x" + "zz" * 81] * 2},
    "spaces for hex": {"proofs": ["0x" + "  " * 81] * 2},
    "thousands of proofs": {"proofs": LINE["proofs"] * 1000},
    "parties that are numbers": {"parties": [1, 2]},
    "a party that is a number": {"parties": [[1], [2]]},
    "no parties": {"parties": None},
}


@pytest.mark.parametrize("change", PROVEN_WRONG.values(), ids=PROVEN_WRONG)
def test_a_draw_that_is_not_proven_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProofError):
        check(LINE | change)


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_line_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StreamError):
        check(LINE | change)


def test_another_schedulers_key_does_not_convince() -> None:
    other = replace(OFFER, scheduler=replace(OFFER.scheduler, vrf_key=vrf.public_key(b"\x0a" * 32)))
    with pytest.raises(ProofError):
        check(LINE, offer=other)


def test_the_groups_are_the_chains_at_the_reference_block() -> None:
    with pytest.raises(ProofError):
        check(LINE, state=State())
    segment = segments_from_ends(ENDS, 2)[0]
    identifier = group_id(CLASS, segment)
    slots = STATE.groups[identifier].slots
    later = Group(CLASS, segment, (*slots, (Occupancy(member(99), 78),)))
    check(LINE, state=replace(STATE, groups=STATE.groups.with_item(identifier, later)))
    before = Group(CLASS, segment, (*slots, (Occupancy(member(99), 77),)))
    with pytest.raises(ProofError):
        check(LINE, state=replace(STATE, groups=STATE.groups.with_item(identifier, before)))
