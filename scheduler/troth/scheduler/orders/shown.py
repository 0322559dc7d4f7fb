"""An order's steps as a client sees them: the lines of its stream, and all of them in one object."""

from __future__ import annotations

from typing import Any

from troth.protocol.logprobs import Logprobs
from troth.protocol.market.canonical import to_json
from troth.scheduler.errors import TooLate
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.steps import FailedStep
from troth.scheduler.orders.stream import Lines

Fields = dict[str, Any]


def shown_admitted(history: OrderHistory) -> Fields:
    """Who serves, and the scheduler's word for it."""
    admitted = history.admitted
    return {
        "admission": to_json(admitted.admission),
        "nodes": list(admitted.nodes),
        "infer_proof": to_json(admitted.infer_proof),
    }


def shown_results(history: OrderHistory) -> Fields:
    """What the nodes signed, and why the text ended."""
    assert history.answered is not None
    return {"reason": history.answered.reason, "results": to_json(history.answered.results)}


def shown_draw(history: OrderHistory) -> Fields:
    """The draw with its proof, and the promise that the order will be in the log."""
    assert history.drawn is not None
    drawn = history.drawn
    return {"draw": to_json(drawn.draw), "proof": to_json(drawn.proof), "inclusion": to_json(drawn.inclusion)}


def shown_failed(failed: FailedStep) -> Fields:
    """Why it came to nothing; it may be ordered again at once."""
    return {"code": failed.code, "message": failed.message, "remedy": failed.remedy}


def shown_logprobs(told: Logprobs) -> Fields:
    """A token's log probability and those of the likeliest ones in its place."""
    return {"logprob": told.chosen, "top": [[token, value] for token, value in told.top]}


def _by_operator(values: dict[Any, Any]) -> Fields:
    return {operator: to_json(value) for operator, value in values.items() if value is not None}


def shown_tiles(history: OrderHistory) -> Fields:
    """What everybody opened, sealed for the client; None for who did not."""
    segments = []
    for segment, node in enumerate(history.admitted.nodes):
        check = history.check_of(segment)
        opened = {one: history.unveiled.get((segment, "check", one)) for one in (check.operators if check else ())}
        sealed = history.unveiled.get((segment, "infer", node))
        segments.append({"node": to_json(sealed), "opened": _by_operator(opened)})
    return {"segments": segments}


def replay(history: OrderHistory) -> Lines:
    """All lines of an order that runs no more: for a client that was cut off."""
    lines = Lines()
    lines.send("admitted", **shown_admitted(history))
    for position, token in enumerate(history.tokens or ()):
        lines.send("token", position=position, id=token)
    if history.answered is not None:
        lines.send("results", **shown_results(history))
    if history.drawn is not None:
        lines.send("draw", **shown_draw(history))
    if history.failed is not None:
        lines.send("failed", **shown_failed(history.failed))
    lines.end()
    return lines


def replay_forgotten(history: OrderHistory) -> Lines:
    """What is still said of an order whose prompt and answer are gone; raises TooLate where nothing is."""
    if history.failed is None:
        raise TooLate("Prompt and answer are kept no longer", None, "What is owed for it can only be claimed on chain.")
    lines = Lines()
    lines.send("failed", **shown_failed(history.failed))
    lines.end()
    return lines
