"""A deployment's record made of logs alone, in which an order of ``market_scene`` was served and logged; no chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import msgspec
from support.market_logs import CONTRACTS, FACTORY, META, log_of
from support.market_scene import (
    BLOCK,
    DOMAIN,
    KEYS,
    MODEL,
    SCHEDULER_KEY,
    SEASONING,
    TAB,
    VRF_SECRET,
    Scene,
    execution_class,
)

from troth.audit.checks import logs
from troth.audit.evidence.history import read_history
from troth.audit.evidence.types import AuditEvidence
from troth.audit.subject import AuditSubject
from troth.chain.headers import RawHeader
from troth.chain.market import DeploymentPlace
from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.market import events as on
from troth.protocol.market import log_data, messages
from troth.protocol.market.log_data import LogLine, written
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.signed import Inclusion
from troth.protocol.market.types import Ask, ExecutionClass, GroupEntry, Parameters, PotKind
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment

SCHEDULER = TAB.payee
PLACE = DeploymentPlace(FACTORY, replace(CONTRACTS, bank=DOMAIN.contract))
PARAMETERS = Parameters(
    *(1_000 if one.name not in {"asset", "weights", "prover"} else "0x" + "00" * 20 for one in fields(Parameters))
)
PARAMETERS = replace(PARAMETERS, seasoning=SEASONING)
STAKE = 12 * execution_class().seat
"""Ten seats, and something to lose without losing one."""
ASK = Ask(300_000_000, 30_000_000, 600_000_000)


def record(*later: Any, nodes: int = 24, changes: Mapping[str, Any] | None = None) -> AuditSubject:
    """The deployment in which ``market_scene`` plays: its class, its group, its scheduler, its tab, then ``later``."""
    definition = execution_class(**changes or {})
    made = [*_standing(definition), *_members(nodes, definition), *later]
    numbered = [replace(event, meta=replace(event.meta, log_index=index)) for index, event in enumerate(made)]
    logs_ = tuple(_log(event) for event in numbered)
    history = read_history(logs_, PLACE)
    last = RawHeader(BLOCK + 500, ZERO_HASH, ZERO_HASH, 0, ZERO_HASH, b"")
    evidence = AuditEvidence(DOMAIN.chain_id, PLACE, PARAMETERS, 0, last, logs_, {}, {})
    return AuditSubject(evidence, history)


def _log(event: Any) -> EventLog:
    log = log_of(event)
    return replace(log, address=DOMAIN.contract) if log.address == CONTRACTS.bank else log


def _standing(definition: ExecutionClass) -> list[Any]:
    place = replace(META, block=1)
    x, y = vrf.public_key(VRF_SECRET)
    class_id = messages.state_hash(definition)
    owner = TAB.payer
    return [
        on.Deployed(messages.state_hash(PARAMETERS), PLACE.contracts, PARAMETERS, place),
        on.ModelRegistered(definition.model, MODEL, place),
        on.ClassRegistered(class_id, definition.model, definition, place),
        on.SchedulerRegistered(SCHEDULER, owner, owner, x, y, "https://s.example", ZERO_HASH, place),
        on.TabOpened(messages.tab_id(TAB), *(getattr(TAB, one.name) for one in fields(TAB)), 1_000_000, place),
    ]


def _members(nodes: int, definition: ExecutionClass) -> list[Any]:
    """Nodes that joined long ago, each with its own owner and enough stake."""
    group_of, place = Scene().view.groups[0], replace(META, block=1)
    class_id = messages.state_hash(definition)
    joined = enumerate(list(KEYS)[:nodes])
    return [
        event
        for number, operator in joined
        for event in joining(operator, group_of.owners[operator], number, class_id=class_id, place=place)
    ]


def joining(
    operator: Address, owner: Address, number: int, *, class_id: Hash32, seats: int = 10, place: LogMeta = META
) -> list[Any]:
    """A node of the whole model takes the next place, ``number``, of the class's group; its stake exceeds its seats."""
    pot, segment = Hash32(bytes(12) + bytes.fromhex(operator[2:])), Segment(0, 12)
    entry = GroupEntry(operator, place.block, place.block, seats, 0)
    endpoint, tls_key = f"https://{operator[2:12].lower()}.example", Hash32(keccak256(pot))
    return [
        on.Collected(ZERO_HASH, owner, PotKind.STAKE, pot, STAKE, STAKE, place),
        on.NodeRegistered(operator, owner, class_id, owner, 0, 12, endpoint, tls_key, place),
        on.EntryChanged(group_id(class_id, segment), number, entry, number + 1, place),
        on.AskChanged(operator, segment.first, segment.end, ASK, place),
    ]


# ---------------------------------------------------------------------------------------------------------------- log


def line_of(scene: Scene, **changes: Any) -> LogLine:
    """What the scheduler serves of the scene's order, checked and accepted."""
    journey = scene.checked()
    assert journey.results
    assert journey.draw
    assert journey.checks
    results, proofs = zip(journey.nodes, journey.results, strict=True), (journey.infer_proof, journey.draw_proof)
    line = log_data.promised_line(
        scene.order_id, scene.order, results, proofs, journey.draw.message, block=BLOCK, positions=42
    )
    said = tuple(
        log_data.logged_verdict(verifier, verdict)
        for check in journey.checks
        for verifier, verdict in check.verdicts.items()
    )
    return msgspec.structs.replace(line, **{"secret": written(scene.secrets.draw), "verdicts": said} | changes)


def posted(data: bytes, **changes: Any) -> on.EntryLogged:
    """The entry over such data, counted as it must be."""
    counted = {name: least for name, (least, _) in logs.count(log_data.decode_data(data)).items()}
    counts = LogCounts(**counted | changes.pop("counts", {}))
    root, hashed = log_data.data_root(data), log_data.data_hash(data)
    event = on.EntryLogged(
        SCHEDULER, 1, root, counts, hashed, log_data.next_chain(ZERO_HASH, 1, root, counts, hashed), META
    )
    return replace(event, **changes)


def promise_of(line: LogLine, entry: int = 1, key: bytes = SCHEDULER_KEY) -> Signed[Inclusion]:
    """The scheduler's promise that a line is in its log."""
    leaf = log_data.leaf_of(log_data.encode_line(line))
    return sign(Inclusion(log_data.read_hash(line.order), leaf, entry), DOMAIN, key)
