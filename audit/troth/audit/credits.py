"""M23: every contribution credit that was made or moved is what its node served, by Registry's and Reputation's events.

The contract computes credits itself, from what it reads of Registry and Reputation. Here the same follows from events
alone: a movement that does not means that contract, node of the chain or bindings are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from troth.audit.checks import CREDITED
from troth.audit.errors import SourceUnusable
from troth.audit.report import AuditReport, CheckReport, CheckResult, Finding, FindingKind
from troth.audit.subject import AuditSubject, differing
from troth.chain.errors import ChainError
from troth.chain.organisations import OrganisationsReading, OrganisationStep, read_organisations
from troth.protocol.errors import ProtocolError
from troth.protocol.logs import LogMeta
from troth.protocol.market.state import Party
from troth.protocol.market.views import rules_in
from troth.protocol.organisation_events import (
    Contributed,
    CreditMovement,
    HostingCredited,
    ModelDeployed,
    OrganisationsState,
)
from troth.protocol.organisations import OrganisationsPlace, ServiceRecord, cost_of, served_by
from troth.protocol.types import Address, Segment

NUMBER, TITLE = CREDITED
NOT_CHECKED = (
    "That a node's machine is its owner's alone: two nodes that share one are named where endpoint or TLS key say so.",
    "What members based their ratings on: `troth committee reputation show` computes the scores.",
    "Credits that were earned and not posted in time: they are lost, and nobody else has them.",
)


async def audit_credits(rpc: str, place: OrganisationsPlace, subject: AuditSubject) -> AuditReport:
    """Read the contract up to the audit's last block, and check all of it.

    Raises:
        SourceUnusable: the chain node or the contract cannot be used.
    """
    registry = subject.evidence.place.contracts.registry
    market, last = subject.history.state, subject.block
    try:
        reading = await read_organisations(rpc, place, market, registry, block=last)
        results = list(examine(reading))
    except ChainError as error:
        raise SourceUnusable(error.what, error.value, error.remedy) from error
    except ProtocolError as error:
        # A log that cannot follow the one before.
        finding = Finding(NUMBER, FindingKind.MISMATCH, f"The events do not fit together: {error}")
        results = [CheckResult(None, (finding,))]
    evidence = subject.evidence
    return AuditReport(
        chain_id=evidence.chain_id,
        contract=place.contract,
        first_block=place.start_block,
        last_block=evidence.last.number,
        last_block_hash=evidence.last.hash,
        tasks=(),
        checks=(CheckReport(NUMBER, TITLE, tuple(results)),),
        not_checked=NOT_CHECKED,
        subject="order",
    )


def examine(reading: OrganisationsReading) -> Iterator[CheckResult]:
    """A result for each movement of credits and each deployment, one for what is held, one for shared machines."""
    for step in reading.steps:
        match step.event:
            case Contributed() | HostingCredited():
                yield CheckResult(None, tuple(_moved(step, step.event, reading.record)))
            case ModelDeployed():
                yield CheckResult(None, tuple(_deployed(step.event, reading.record)))
            case _:
                pass
    yield CheckResult(None, tuple(_held(reading.state)))
    yield CheckResult(None, tuple(_shared(reading)))


def _moved(step: OrganisationStep, event: CreditMovement, record: ServiceRecord) -> Iterator[Finding]:
    """One epoch of one node: it was there all the time, was rated or hosted, and is worth what was posted."""
    segment = _segment(event, step.before)
    if segment is None:
        yield _finding(event, "A deployment paid a node that did not host it in this epoch")
        return
    served = served_by(event.epoch, record, event.node, segment)
    if served is None:
        yield _finding(event, "A node was credited for an epoch through which it did not stand in the group")
        return
    if isinstance(event, Contributed) and served.refusal:
        yield _finding(event, f"Credits were made for a node that earned none: {served.refusal}")
    elif not _was_trusted(record, event.node, event.meta):
        yield _finding(event, "A node was credited whose score was below the bar")
    due = record.first_block(event.epoch + 1), record.first_block(event.epoch + 2)
    if not due[0] < event.meta.block < due[1]:
        yield _finding(event, "An epoch was credited outside of the one that follows it")
    pairs = (("amount", event.amount, served.amount), ("owner", event.owner, served.owner))
    for name, posted, expected in differing(pairs):
        yield _finding(event, f"The {name} that was posted is not what follows", posted=posted, expected=expected)


def _segment(event: CreditMovement, before: OrganisationsState) -> Segment | None:
    """The layers that were credited; None where a deployment did not pay the node for this epoch."""
    if isinstance(event, Contributed):
        return Segment(event.first, event.end)
    hosted = before.hosts_in(event.epoch).get(event.node)
    return hosted[1] if hosted is not None and hosted[0].number == event.deployment else None


def _deployed(event: ModelDeployed, record: ServiceRecord) -> Iterator[Finding]:
    """What was set aside is what the machines cost, and its owner had a node that was rated above the bar."""
    rules = rules_in(record.market, event.execution_class)
    cost = cost_of(rules, event.replicas, event.end - event.first, record.epoch_blocks)
    for _, posted, expected in differing((("reserve", event.reserve, cost),)):
        what = "Another sum was set aside than the deployment costs"
        yield _finding(event, what, posted=posted, expected=expected)
    own = (party.operator for party in record.market.parties.values() if party.owner == event.owner)
    if not any(record.ratings.get(node) and _was_trusted(record, node, event.meta) for node in own):
        yield _finding(event, "An owner deployed a model without a node that is rated above the bar")


def _was_trusted(record: ServiceRecord, node: Address, place: LogMeta) -> bool:
    """Whether a node's score was not below the bar at a place of the chain."""
    rules = record.reputation.rules
    scores = [one.score for one in record.ratings.get(node, ()) if one.meta < place]
    return (scores[-1] if scores else rules.initial) >= rules.bar


def _held(state: OrganisationsState) -> Iterator[Finding]:
    """No credit was lost, and none came from nowhere."""
    held = sum(state.balances.values()) + sum(one.reserve for one in state.deployments.values())
    if held != state.total:
        values = (("made", str(state.total)), ("held", str(held)))
        what = "Balances and reserves are not the credits that were made"
        yield Finding(NUMBER, FindingKind.MISMATCH, what, evidence=values)


def _shared(reading: OrganisationsReading) -> Iterator[Finding]:
    """Nodes of several owners behind one TLS key or endpoint earn twice for one machine. No contract sees that."""
    seen: dict[bytes | str, Party] = {}
    parties = reading.record.market.parties
    for node in sorted({event.node for event in reading.state.movements}):
        party = parties[node]
        for sign in (party.tls_key_hash, party.endpoint):
            other = seen.setdefault(sign, party)
            if other.owner != party.owner:
                what = "Nodes of two owners were credited and share a machine, as their endpoint or TLS key says"
                values = (("nodes", f"{other.operator}, {node}"), ("endpoint", party.endpoint))
                yield Finding(NUMBER, FindingKind.OBSERVED, what, party=party.owner, role="owner", evidence=values)
                break


def _finding(event: CreditMovement | ModelDeployed, what: str, **values: str) -> Finding:
    about = (("epoch", str(event.epoch)), ("node", event.node)) if not isinstance(event, ModelDeployed) else ()
    shown = (*about, *values.items())
    return Finding(
        NUMBER, FindingKind.MISMATCH, what, party=event.owner, role="owner", place=event.meta, evidence=shown
    )
