"""An order's steps as a client sees them: the lines of its stream, and all of them in one object."""

from __future__ import annotations

from typing import Any

from troth.protocol.logprobs import Logprobs
from troth.protocol.market.canonical import to_json
from troth.scheduler.errors import TooLate
from troth.scheduler.orders.steps import FailedStep
from troth.scheduler.orders.story import OrderHistory
from troth.scheduler.orders.stream import Lines

Fields = dict[str, Any]


def shown_admitted(story: OrderHistory) -> Fields:
    """Who serves, and the scheduler's word for it."""
    admitted = story.admitted
    return {
        "admission": to_json(admitted.admission),
        "nodes": list(admitted.nodes),
        "infer_proof": to_json(admitted.infer_proof),
    }


def shown_results(story: OrderHistory) -> Fields:
    """What the nodes signed, and why the text ended."""
    assert story.answered is not None
    return {"reason": story.answered.reason, "results": to_json(story.answered.results)}


def shown_draw(story: OrderHistory) -> Fields:
    """The draw with its proof, and the promise that the order will be in the log."""
    assert story.drawn is not None
    drawn = story.drawn
    return {"draw": to_json(drawn.draw), "proof": to_json(drawn.proof), "inclusion": to_json(drawn.inclusion)}


def shown_failed(failed: FailedStep) -> Fields:
    """Why it came to nothing; it may be ordered again at once."""
    return {"code": failed.code, "message": failed.message, "remedy": failed.remedy, "retry_free": True}


def shown_logprobs(told: Logprobs) -> Fields:
    """A token's log probability and those of the likeliest ones in its place."""
    return {"logprob": told.chosen, "top": [[token, value] for token, value in told.top]}


def _by_operator(values: dict[Any, Any]) -> Fields:
    return {operator: to_json(value) for operator, value in values.items() if value is not None}


def shown_tiles(story: OrderHistory) -> Fields:
    """What everybody opened, sealed for the client; None for who did not."""
    segments = []
    for segment, node in enumerate(story.admitted.nodes):
        check = story.check_of(segment)
        opened = {one: story.unveiled.get((segment, "check", one)) for one in (check.operators if check else ())}
        sealed = story.unveiled.get((segment, "infer", node))
        segments.append({"node": to_json(sealed), "opened": _by_operator(opened)})
    return {"segments": segments}


def replay(story: OrderHistory) -> Lines:
    """All lines of an order that runs no more: for a client that was cut off."""
    lines = Lines()
    lines.send("admitted", **shown_admitted(story))
    for position, token in enumerate(story.tokens or ()):
        lines.send("token", position=position, id=token)
    if story.answered is not None:
        lines.send("results", **shown_results(story))
    if story.drawn is not None:
        lines.send("draw", **shown_draw(story))
    if story.failed is not None:
        lines.send("failed", **shown_failed(story.failed))
    lines.end()
    return lines


def replay_forgotten(story: OrderHistory) -> Lines:
    """What is still said of an order whose prompt and answer are gone; raises TooLate where nothing is."""
    if story.failed is None:
        raise TooLate("Prompt and answer are kept no longer", None, "What is owed for it can only be claimed on chain.")
    lines = Lines()
    lines.send("failed", **shown_failed(story.failed))
    lines.end()
    return lines
