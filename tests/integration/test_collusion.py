"""A scheduler in league with one inferencer: a verdict cannot be posted beside anything but what it is about.

What a verifier signs holds the hash of the inferencer's message (root, length, text), which the contract takes from the
posts themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from support.scheduler_stage import stage

from troth.protocol.contract_types import CommitSubmission
from troth.protocol.request import output_hash
from troth.protocol.settlement import Outcome
from troth.protocol.types import Hash32, TraceRoot
from troth.protocol.wire import Compare
from troth.scheduler import closing, verification
from troth.scheduler.assembly import assembled
from troth.scheduler.posting import submission
from troth.scheduler.records import Committing

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def test_an_accepted_text_is_the_one_that_was_judged(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inferencer signs its root twice: with the text that verifiers are shown, and with another for the chain."""
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        task = lifecycle.task

        def forged(committing: Committing) -> CommitSubmission:
            *others, last = committing.segments
            other = output_hash(task.salt, (9, 9, 9, 9, 9, 9))
            signer = scene.node(task.assignment.candidates(1)[last.inferencer]).operator
            place = (Hash32(task.task_id), 1, committing.attempt, committing.positions)
            signature = signer.sign(TraceRoot(*place, Hash32(last.root), other))
            segments = (*others, structs.replace(last, root_signature=signature))
            return submission(Committing(committing.attempt, committing.positions, other, segments))

        monkeypatch.setattr(closing, "submission", forged)
        _ = [line async for line in lifecycle.stream.lines()]
        assert await scene.outcome(task.task_id) is not Outcome.ACCEPTED


async def test_an_honest_inferencer_is_not_judged_by_anothers_rows(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verifiers are shown what a second candidate signed, and their verdicts are posted beside the first one's root."""
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        shown = verification.SegmentVerification._compare_request

        def anothers(self: Any, start: int, count: int, root: Any) -> Compare:
            request = shown(self, start, count, root)
            candidates = self._task.assignment.candidates(self._segment)
            colluder = next(party for party in candidates if party != request.inferencer)
            return Compare(
                **{name: getattr(request, name) for name in request.__struct_fields__}
                | {"inferencer": colluder, "root": bytes(32)}
            )

        monkeypatch.setattr(verification.SegmentVerification, "_compare_request", anothers)
        lifecycle = await scheduler.submit(await scene.order())
        _ = [line async for line in lifecycle.stream.lines()]
        assert lifecycle.story.generated is not None
        honest = lifecycle.task.assignment.candidates(0)[lifecycle.story.generated.inferencers[0]]
        assert await scene.outcome(lifecycle.task.task_id) is not Outcome.REJECTED
        assert scheduler.desk.ledger.state.account(honest).stake == scene.execution_class.minimum_stake
