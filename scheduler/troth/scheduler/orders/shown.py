"""An order's steps as a client sees them: the lines of its stream, and all of them in one object."""

from __future__ import annotations

from typing import Any

from troth.protocol.logprobs import Logprobs
from troth.protocol.market.canonical import to_json
from troth.scheduler.orders.steps import Failed
from troth.scheduler.orders.story import Story

Fields = dict[str, Any]


def shown_admitted(story: Story) -> Fields:
    """Who serves, and the scheduler's word for it."""
    admitted = story.admitted
    return {
        "admission": to_json(admitted.admission),
        "nodes": list(admitted.nodes),
        "infer_proof": to_json(admitted.infer_proof),
    }


def shown_results(story: Story) -> Fields:
    """What the nodes signed, and why the text ended."""
    assert story.answered is not None
    return {"reason": story.answered.reason, "results": to_json(story.answered.results)}


def shown_draw(story: Story) -> Fields:
    """The draw with its proof, and the promise that the order will be in the log."""
    assert story.drawn is not None
    drawn = story.drawn
    return {"draw": to_json(drawn.draw), "proof": to_json(drawn.proof), "inclusion": to_json(drawn.inclusion)}


def shown_failed(failed: Failed) -> Fields:
    """Why it came to nothing; it may be ordered again at once."""
    return {"code": failed.code, "message": failed.message, "remedy": failed.remedy, "retry_free": True}


def shown_logprobs(told: Logprobs) -> Fields:
    """A token's log probability and those of the likeliest ones in its place."""
    return {"chosen": told.chosen, "top": [[token, value] for token, value in told.top]}


def shown_check(story: Story, segment: int) -> Fields:
    """What was said in the check of one segment."""
    check = story.check_of(segment)
    operators = () if check is None else check.operators
    return {
        "segment": segment,
        "operators": list(operators),
        "promises": {} if check is None else _by_operator(dict(zip(check.operators, check.promises, strict=True))),
        "commitments": _by_operator({one: story.commitments.get((segment, one)) for one in operators}),
        "verdicts": _by_operator({one: story.verdicts.get((segment, one)) for one in operators}),
    }


def _by_operator(values: dict[Any, Any]) -> Fields:
    return {operator: to_json(value) for operator, value in values.items() if value is not None}


def shown_tiles(story: Story) -> Fields:
    """What everybody opened, sealed for the client; None for who did not."""
    segments = []
    for segment, node in enumerate(story.admitted.nodes):
        check = story.check_of(segment)
        opened = {one: story.unveiled.get((segment, "check", one)) for one in (check.operators if check else ())}
        sealed = story.unveiled.get((segment, "infer", node))
        segments.append({"node": to_json(sealed), "opened": _by_operator(opened)})
    return {"segments": segments}


def shown_story(story: Story) -> Fields:
    """Everything so far, tokens included: for a client that was cut off."""
    found: Fields = {
        "order": to_json(story.order_id),
        "admitted": shown_admitted(story),
        "head_salt": to_json(story.admitted.head_salt),
        "tokens": None if story.tokens is None else list(story.tokens),
        "results": None if story.answered is None else shown_results(story),
        "draw": None if story.drawn is None else shown_draw(story),
        "failed": None if story.failed is None else shown_failed(story.failed),
        "secret": None if story.revealed is None else to_json(story.revealed.secret),
        "checks": [shown_check(story, segment) for segment in sorted(story.checks)],
        "tiles": shown_tiles(story) if story.unveiled else None,
    }
    return found
