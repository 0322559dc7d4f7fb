"""What a draw costs in groups of ten, of ten thousand, and after these have left again.

Ten members register. The others are written into the Registry's storage as registering would have written them, and
so is their leaving: ten thousand calls each way take minutes. What the Registry then says of the group is compared.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.market.orders import hash_of
from benchmarks.market.stage import WHOLE, Stage, account, pot
from troth.chain import decoding
from troth.protocol.hashing import keccak256
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Ask, DrawRequest, ExecutionClass, GroupEntry
from troth.protocol.types import Address, Hash32

FEW, MANY = 10, 10_000
SAMPLES = 16
"""Draws of which the mean is taken: how many different members one hits is chance."""
TOGETHER = 500
"""Words in one request to the chain."""
PARTIES, SIZES, ENTRIES = 4, 9, 10
"""Slots of the Registry's mappings."""
EXCLUDED = 7
"""Owners that a draw of reviewers excludes: of the node, three verifiers, scheduler, client and opener."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Mean gas of a draw as a transaction of its own, in a group of few, of many, and after many have left."""

    few: int
    many: int
    after: int


def measure(stage: Stage, rules: ExecutionClass) -> dict[int, Draws]:
    """By the number of seats: k and m'."""
    group: Hash32 = stage.read(Part.REGISTRY, "groupId", state_hash(rules), WHOLE.first, WHOLE.end, returns=Hash32)
    for number in range(FEW):
        stage.register_node(f"{rules.name} member {number}", rules)
    stage.mine(30)
    counts = (rules.verifiers, rules.reviewers)
    few = {count: _draw(stage, rules, count) for count in counts}
    _join(stage, group)
    many = {count: _draw(stage, rules, count) for count in counts}
    _leave(stage, group)
    return {count: Draws(few[count], many[count], _draw(stage, rules, count)) for count in counts}


def _draw(stage: Stage, rules: ExecutionClass, count: int) -> int:
    stage.mine(2)
    block, sender, gas = stage.block - 1, account("who draws"), []
    stage.fund(sender)
    for number in range(SAMPLES):
        request = DrawRequest(
            execution_class=state_hash(rules),
            first=WHOLE.first,
            end=WHOLE.end,
            block_number=block,
            seed=hash_of(f"draw {number}"),
            count=count,
            seasoned=True,
            distinct=False,
            excluded=tuple(account(f"excluded {place}") for place in range(EXCLUDED)),
            bound=Ask(),
        )
        gas.append(stage.send(Part.REGISTRY, "draw", request, sender=sender).gas)
    return round(statistics.mean(gas))


def _join(stage: Stage, group: Hash32) -> None:
    """Entries and parties like those of the last who registered, and the size."""
    last = FEW - 1
    entry: GroupEntry = stage.read(Part.REGISTRY, "entryAt", group, last, stage.block, returns=GroupEntry)
    slot = _entry_slot(group, last)
    like, party = _word(stage, slot), _word(stage, _slot(pot(entry.operator), PARTIES))
    bare = like ^ int(entry.operator, 16) << _shift(like, entry.operator)
    words = []
    for place in range(FEW, MANY):
        operator = _operator(place)
        words.append((_entry_slot(group, place), bare | int(operator, 16) << _shift(like, entry.operator)))
        words.append((_slot(pot(operator), PARTIES), party))
    words.append((_slot(group, SIZES), MANY << 32 | entry.from_block))
    _write(stage, words)
    found: GroupEntry = stage.read(Part.REGISTRY, "entryAt", group, MANY - 1, stage.block, returns=GroupEntry)
    assert found.operator == _operator(MANY - 1), "The Registry keeps its words in other slots"
    assert _size(stage, group) == MANY


def _leave(stage: Stage, group: Hash32) -> None:
    """The size of before, from this block on; the last ones' entries stay behind the end, for the blocks before."""
    slot, block = _slot(group, SIZES), stage.block
    earlier = keccak256(block.to_bytes(32) + (int.from_bytes(slot) + 1).to_bytes(32))
    _write(stage, [(earlier, _word(stage, slot)), (slot, FEW << 32 | block)])
    assert _size(stage, group) == FEW


def _size(stage: Stage, group: Hash32) -> int:
    size: int = stage.read(Part.REGISTRY, "sizeAt", group, stage.block, returns=int)
    return size


def _operator(place: int) -> Address:
    return account(f"member {place}")


def _shift(word: int, operator: Address) -> int:
    """Where in a word the operator stands."""
    return next(shift for shift in range(97) if word >> shift & (1 << 160) - 1 == int(operator, 16))


def _entry_slot(group: Hash32, place: int) -> bytes:
    return keccak256(place.to_bytes(32) + _slot(group, ENTRIES))


def _slot(identifier: Hash32, mapping: int) -> bytes:
    return keccak256(identifier + mapping.to_bytes(32))


def _word(stage: Stage, slot: bytes) -> int:
    registry = stage.place.contracts.registry
    return int(stage.node.rpc("eth_getStorageAt", registry, decoding.hexadecimal(slot), "latest"), 16)


def _write(stage: Stage, words: list[tuple[bytes, int]]) -> None:
    registry = stage.place.contracts.registry
    calls = [
        ("anvil_setStorageAt", (registry, decoding.hexadecimal(slot), decoding.hexadecimal(word.to_bytes(32))))
        for slot, word in words
    ]
    for start in range(0, len(calls), TOGETHER):
        stage.node.many(calls[start : start + TOGETHER])
    stage.mine(1)
