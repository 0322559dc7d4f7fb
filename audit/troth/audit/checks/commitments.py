"""V4: every root and commitment was made by the party that it counts for."""

from __future__ import annotations

from collections.abc import Iterator

from troth.audit.case import TaskCase, compare, mismatch, unavailable
from troth.audit.history import Step
from troth.audit.inputs import decoded, direct, struct
from troth.audit.market.inputs import Unavailable
from troth.audit.report import Finding
from troth.protocol.calls import DecodedCall
from troth.protocol.contract_types import SIGNATURE_BYTES, CommitSubmission, pack_inferencers
from troth.protocol.errors import InvalidField, ProtocolError
from troth.protocol.events import InferenceCommitted, TaskCommitted, VerificationCommitted
from troth.protocol.task import Task
from troth.protocol.typed_data import require_signer, struct_hash
from troth.protocol.types import ZERO_HASH, Hash32, TraceRoot, VerdictCommitment

NUMBER = "V4"
TITLE = "Commitments and their signatures"

_OWN = ("seal", "commitInference", "commitVerification")
_HANDED_IN = {False: ("commit", "openAndCommit"), True: ("commitReview",)}
"""Calls that carry all posts with their signatures, of a task and of a review."""


def examine(case: TaskCase) -> list[Finding] | None:
    """Findings on own posts and on the commit transaction; None before there are any."""
    own = case.of(InferenceCommitted, VerificationCommitted)
    step = case.first(TaskCommitted)
    findings = [finding for post in own for finding in _own_post(case, post)]
    if step is None:
        return findings if own else None
    return findings + _committed(case, step)


def _own_post(case: TaskCase, step: Step) -> list[Finding]:
    """A party that posts for itself is the transaction's sender; no signature is needed."""
    event = step.event
    assert isinstance(event, InferenceCommitted | VerificationCommitted)
    function = "commitInference" if isinstance(event, InferenceCommitted) else "commitVerification"
    call, transaction = decoded(case.evidence, event.meta, function), direct(case.evidence, event.meta)
    if isinstance(call, Unavailable):
        return [unavailable(NUMBER, case, step, "A party's own post", call)]
    assert not isinstance(transaction, Unavailable)
    if isinstance(event, InferenceCommitted):
        party, post, name = event.inferencer, event.root, "root"
    else:
        party, post, name = event.verifier, event.commitment, "commitment"
    differences: list[tuple[str, object, object]] = [
        ("The sender of the party's own post", transaction.sender, party),
        ("The task of the post", bytes(call.value("taskId")), event.task_id),
        ("The posted value", bytes(call.value(name)), post),
        ("The post's segment", call.value("segment"), event.segment),
    ]
    if isinstance(event, InferenceCommitted):
        shape = (event.attempt, event.positions, event.output_hash)
        sent = (call.value("attempt"), call.value("positions"), bytes(call.value("outputHash")))
        differences.append(("Attempt, length and output of the post", sent, shape))
    return compare(NUMBER, case, step, differences, event.segment)


def _committed(case: TaskCase, step: Step) -> list[Finding]:
    event = step.event
    assert isinstance(event, TaskCommitted)
    after = case.committed_task()
    findings = _quorum(case, step, after)
    if findings:
        return findings
    handed_in = _HANDED_IN[case.review is not None]
    call = decoded(case.evidence, event.meta, *handed_in, *_OWN)
    if isinstance(call, Unavailable):
        return [*findings, unavailable(NUMBER, case, step, "The signatures of the commitments", call)]
    if call.entry.name not in handed_in:
        # The phase ended on posts that the parties made themselves, each of which is checked above.
        before = case.before(step).progress
        shape = (before.attempt, before.positions, before.output_hash, before.posts)
        stood = (event.attempt, event.positions, event.output_hash, event.posts)
        return findings + compare(NUMBER, case, step, [("The posts", shape, stood)])
    try:
        submission = _handed_in(case, step, call)
    except (ProtocolError, ValueError) as error:
        return [*findings, mismatch(NUMBER, case, step, f"The submission cannot be read: {error}")]
    return findings + _submission(case, step, after, submission)


def _handed_in(case: TaskCase, step: Step, call: DecodedCall) -> CommitSubmission:
    """All posts of the call. A review's root, attempt, length and output are those of the first verification."""
    if case.review is None:
        return struct(call, "submission", CommitSubmission)
    first = case.before(step).progress
    if bytes(call.value("reviewId")) != case.task_id:
        raise InvalidField("The call is about another review", call.value("reviewId"), "Take the event's transaction.")
    posts = (first.posts[0], *(Hash32(bytes(commitment)) for commitment in call.value("commitments")))
    signatures: bytes = call.value("signatures")
    shape = (first.attempt, first.positions, first.output_hash, pack_inferencers((0,)))
    return CommitSubmission(*shape, posts, signatures)


def _quorum(case: TaskCase, step: Step, task: Task) -> list[Finding]:
    event = step.event
    assert isinstance(event, TaskCommitted)
    width = 1 + case.definition.verifiers
    if len(event.posts) != width * task.progress.segments:
        return [mismatch(NUMBER, case, step, f"{len(event.posts)} posts do not fill the segments")]
    findings = []
    for segment in range(task.progress.segments):
        root, *commitments = event.posts[segment * width : (segment + 1) * width]
        given = sum(commitment != ZERO_HASH for commitment in commitments)
        if root == ZERO_HASH or given < case.definition.quorum:
            message = f"The segment was closed without a root or with {given} commitments"
            findings.append(mismatch(NUMBER, case, step, message, segment=segment))
    return findings


def _submission(case: TaskCase, step: Step, task: Task, submission: CommitSubmission) -> list[Finding]:
    event = step.event
    assert isinstance(event, TaskCommitted)
    before = case.before(step)
    width, segments = case.definition.parties, task.progress.segments
    named = []
    for segment, candidate in enumerate(submission.inferencers[:segments]):
        if candidate >= case.definition.candidates:
            return [mismatch(NUMBER, case, step, "The inferencer is no candidate", segment=segment)]
        named.append(before.progress.parties[segment * width + candidate])
    findings = compare(
        NUMBER,
        case,
        step,
        [
            ("The inferencers", tuple(named), event.inferencers),
            ("The posts", submission.posts, event.posts),
            ("The attempt", submission.attempt, event.attempt),
            ("The number of positions", submission.positions, event.positions),
            ("The output hash", submission.output_hash, event.output_hash),
        ],
    )
    return findings or list(_signatures(case, step, task, submission))


def _signatures(case: TaskCase, step: Step, task: Task, submission: CommitSubmission) -> Iterator[Finding]:
    """One signature for each post that is not zero, in the posts' order; a review's root was signed before."""
    width, used = 1 + case.definition.verifiers, 0
    segments = task.progress.segments
    for place, post in enumerate(submission.posts):
        segment, party = divmod(place, width)
        if post == ZERO_HASH or (party == 0 and case.review is not None):
            continue
        signer = task.parties_of(segment)[0] if party == 0 else task.verifiers_of(segment)[party - 1]
        output = submission.output_hash if segment + 1 == segments else ZERO_HASH
        root = submission.posts[segment * width]
        claim = TraceRoot(case.task_id, segment, submission.attempt, submission.positions, root, output)
        message = (
            claim
            if party == 0
            else VerdictCommitment(case.task_id, segment, submission.attempt, post, struct_hash(claim))
        )
        signature = submission.signatures[used : used + SIGNATURE_BYTES]
        used += SIGNATURE_BYTES
        try:
            require_signer(message, case.evidence.domain, signature, signer)
        except ProtocolError as error:
            role = case.roles[party > 0]
            yield mismatch(
                NUMBER, case, step, f"The post was not signed: {error}", segment=segment, party=signer, role=role
            )
    if used != len(submission.signatures):
        yield mismatch(NUMBER, case, step, f"{len(submission.signatures)} signature bytes, not {used}")
