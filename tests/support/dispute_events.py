"""Disputes as a contract's events tell them, turn by turn: for whoever reads events and needs no chain for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.explorer_stage import CASES, lines
from support.market_logs import META, address
from support.market_scene import hash_of

from troth.protocol.arithmetic.operations import Operation
from troth.protocol.disputes.calls import (
    Defended,
    DisputeEvent,
    DisputeMoot,
    DisputeOpened,
    DisputeWon,
    NodeChosen,
    NodesShown,
    SumAsked,
    SumGiven,
    TensorChosen,
)
from troth.protocol.disputes.game import Matter
from troth.protocol.disputes.layout import LAST, OPERATIONS
from troth.protocol.disputes.tree import WordTree
from troth.protocol.types import Hash32

WINDOW = 50
LAYERS = 2
TENSOR = OPERATIONS + Operation.DOWN
"""Of the second layer."""
ACCUSER = address(61)
BOND = 10**15


def matter() -> Matter:
    """Of a row of the first task in the explorer's stage."""
    order = Hash32(bytes.fromhex(lines()[0].order.removeprefix("0x")))
    return Matter(
        order=order, input_head=hash_of("in"), output_head=hash_of("out"), weights_root=hash_of("weights"),
        shape=hash_of("shape"), layers=LAYERS, hidden=32, segment=0, first=0, end=LAYERS, rows=5, position=2,
    )  # fmt: skip


def dispute_events(name: str, ending: type, *, start: int = 2_032, nudge: int = 0) -> list[tuple[DisputeEvent, str]]:
    """One dispute with the functions that its transactions called.

    ``ending``: DisputeWon by one part of a long sum, DisputeLost where the accuser is silent after the first levels,
    DisputeMoot before anybody did anything.
    """
    words = WordTree(b"".join(hash_of(f"{name} word {at}") for at in range(32)), 5)
    roots = [hash_of(f"{name} tensor {at}") for at in range(OPERATIONS * LAYERS + LAST)]
    roots[TENSOR] = words.root
    depth = 7 + bool(nudge)
    top = WordTree(b"".join(roots), depth)
    identity, meta = hash_of(name), META
    opened = DisputeOpened(
        identity, CASES.node, ACCUSER, matter(), b"shape", hash_of(f"{name} result"), 1_000, BOND, 7, meta
    )
    played: list[tuple[Any, str]] = [(opened, "open")]
    if ending is not DisputeMoot:
        if nudge:
            played.append((Defended(identity, nudge, 3, meta), "defend"))
        played.append((NodesShown(identity, top.nodes(depth - 4, 0, 16), meta), "defend" if nudge else "show"))
    if ending is DisputeWon:
        chosen, left = TENSOR >> depth - 4, depth - 4
        shown = top.nodes(0, chosen << left, 1 << left)
        played += [
            (NodeChosen(identity, chosen, meta), "choose"),
            (NodesShown(identity, shown, meta), "show"),
            (TensorChosen(identity, TENSOR - (chosen << left), 5, meta), "chooseTensor"),
            (NodesShown(identity, words.nodes(0, 0, 32), meta), "show"),
            (SumAsked(identity, 9, 3, meta), "askSum"),
            (SumGiven(identity, bytes(12 * 96), meta), "giveSum"),
        ]
    ended = "wrongPart" if ending is DisputeWon else "close"
    played.append((ending(identity, CASES.node, ACCUSER, 3 * BOND if ending is DisputeWon else BOND, meta), ended))
    return _mined(name, played, start)


def _mined(name: str, played: list[tuple[Any, str]], start: int) -> list[tuple[DisputeEvent, str]]:
    """In blocks one after the other; what a nudge shows is in the transaction that names it."""
    found, block = list[tuple[DisputeEvent, str]](), start
    for index, (event, call) in enumerate(played):
        joined = index and isinstance(played[index - 1][0], Defended)
        block += 0 if joined else 3
        place = replace(META, block=block, log_index=index, transaction=hash_of(f"{name} {block}"))
        found.append((replace(event, meta=place), call))
    return found
