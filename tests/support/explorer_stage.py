"""A deployment for the explorer, made of events: two schedulers, groups of a model and of its halves, logs, a case.

What is signed is signed, and what is drawn is drawn, so that the audit's checks of logs mean something; the chain is a
list of logs, of which a test takes as much as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from support.market_case import CaseScene
from support.market_logs import CONTRACTS, META, address, log_of
from support.market_record import PLACE, SCHEDULER, line_of, posted, record
from support.market_scene import DOMAIN, KEYS, Scene, hash_of
from support.reputation_record import ratings_reading

from troth.audit.checks import logs as log_checks
from troth.audit.evidence.history import read_history
from troth.audit.report import CheckReport, Finding
from troth.audit.services import ReadServices
from troth.audit.subject import AuditSubject
from troth.explorer.index import ExplorerIndex
from troth.explorer.opening import Place
from troth.explorer.reading import INDEX_FILE
from troth.protocol.logs import EventLog
from troth.protocol.market import events as on
from troth.protocol.market import log_data
from troth.protocol.market.lottery import Secrets
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.state import State
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address, Hash32

CASES = CaseScene()
RATED = (next(one for one in KEYS if one != CASES.node), CASES.node, address(99))
"""Whom members rate: an honest node, the one that is convicted, and one that is registered nowhere."""


@dataclass(frozen=True, eq=False)
class Stage:
    """The chain as a list of logs, and what schedulers serve behind their entries."""

    logs: tuple[EventLog, ...]
    served: dict[tuple[Address, int], bytes]

    @property
    def blocks(self) -> list[int]:
        """Blocks in which something happened."""
        return sorted({log.meta.block for log in self.logs})

    def until(self, block: int) -> tuple[EventLog, ...]:
        """The chain up to a block."""
        return tuple(log for log in self.logs if log.meta.block <= block)

    def state(self, block: int) -> State:
        """What the chain up to a block folds to."""
        history = read_history(self.until(block), PLACE)
        assert not history.contradictions, history.contradictions
        return history.state

    def subject(self, block: int) -> AuditSubject:
        """The record of the chain up to a block."""
        whole = record()
        return AuditSubject(whole.evidence, read_history(self.until(block), PLACE))


def mined(events: Sequence[tuple[int, Any]], fork: str = "") -> tuple[EventLog, ...]:
    """Events as logs of a chain: each with its block's number; ``fork`` names another chain from there on."""
    made = []
    for index, (block, event) in enumerate(sorted(events, key=lambda one: one[0])):
        transaction = hash_of(f"transaction {block} {fork}")
        meta = replace(META, block=block, log_index=index, block_hash=hash_of(f"block {block} {fork}"))
        log = log_of(replace(event, meta=replace(meta, transaction=transaction)))
        made.append(replace(log, address=DOMAIN.contract) if log.address == CONTRACTS.bank else log)
    return tuple(made)


def events_of_record() -> list[tuple[int, Any]]:
    """The deployment of ``market_record``: a class, a scheduler, and 24 nodes, each in a block of its own."""
    made: list[tuple[int, Any]] = []
    block = 1
    for step in record(changes=CASES.scene.changes).history.steps:
        event = step.event
        if isinstance(event, on.Collected) and event.kind is PotKind.STAKE:
            block += 7
        if isinstance(event, on.SchedulerRegistered):
            # Another's than the tab's payer, whom no page may show.
            event = replace(event, owner=address(70), payout=address(70))
        if isinstance(event, on.EntryChanged):
            event = replace(event, entry=replace(event.entry, from_block=block, since=block))
        made.append((block, event))
    return made


def events_of_case() -> list[tuple[int, Any]]:
    """A case from its opening to its conviction."""
    blocks = {"open": 1_010, "draw": 2_015, "commit": 2_020, "decide": 2_030}
    told = [(blocks[call.call.function], event) for event, call in CASES.events()]
    suspended = on.Suspended(CASES.node, CASES.case_id, META)
    convicted = on.Convicted(CASES.node, Fault.FALSE_RESULT, CASES.case_id, 900, 2_030, 0, META)
    return [*told, (1_010, suspended), (2_030, convicted)]


@cache
def lines() -> tuple[log_data.LogLine, ...]:
    """Three orders in an exact class: one checked, one that no secret was shown of, one that was not drawn."""
    changes = CASES.scene.changes
    made = [line_of(Scene(changes))]
    hidden = Scene(changes, secrets=Secrets(hash_of("third"), hash_of("fourth")))
    made.append(line_of(hidden, secret="", verdicts=()))
    for number in range(40):
        rare = Scene(changes, check_rate=50_000, secrets=Secrets(hash_of(f"rare {number}"), hash_of("tiles")))
        line = line_of(rare, verdicts=())
        if not log_data.is_drawn(line):
            made.append(line)
            break
    return tuple(made)


def entry_of(number: int, content: Sequence[log_data.LogLine], before: Hash32) -> tuple[bytes, on.EntryLogged]:
    """An entry's data and its event, which goes on from the entry before."""
    data = log_data.encode_data(content)
    event = replace(posted(data), number=number)
    chain = log_data.next_chain(before, number, event.root, event.counts, event.data_hash)
    return data, replace(event, chain=chain)


@cache
def stage() -> Stage:
    """The whole."""
    first, posted_first = entry_of(1, lines()[:2], Hash32(bytes(32)))
    second, posted_second = entry_of(2, lines()[2:], posted_first.chain)
    events = [*events_of_record(), *events_of_case(), (1_020, posted_first), (2_040, posted_second)]
    return Stage(mined(events), {(SCHEDULER, 1): first, (SCHEDULER, 2): second})


def forked(chain: Stage, after: int, until: int, fork: str) -> Stage:
    """Another chain: the same up to block ``after``, then blocks of its own up to ``until``, and nothing later."""
    later = []
    for log in chain.logs:
        if after < log.meta.block <= until:
            names = [hash_of(f"{what} {log.meta.block} {fork}") for what in ("block", "transaction")]
            later.append(replace(log, meta=replace(log.meta, block_hash=names[0], transaction=names[1])))
    return Stage((*chain.until(after), *later), chain.served)


def reproduce(finding: Finding) -> str:
    """The command of a finding."""
    return f"troth audit market --check {finding.check}"


def bring_up(index: ExplorerIndex, chain: Stage, block: int) -> None:
    """Bring an index to a block of a chain."""
    held = chain.until(block)
    index.follow(block, chain.state(block), lambda after: [log for log in held if log.meta.block > after])


def examine(index: ExplorerIndex, chain: Stage, block: int) -> None:
    """Examine what waits, as the reader does, and audit."""
    subject = chain.subject(block)
    for entry in index.waiting():
        data = chain.served[entry.scheduler, entry.number]
        served = log_checks.ServedLogs(entry.scheduler, {entry.number: data}, {})
        reports = log_checks.examine(subject, served, {entry.number})
        index.examined(entry, log_data.decode_data(data), reports, reproduce)
    index.audited(block, [CheckReport("M1", "Events fold", ())], reproduce)


def tables(index: ExplorerIndex) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that an index holds, but when it looked."""
    times = {"progress": {"seen", "audited_at"}, "entries": {"examined"}}
    found = {}
    for name in sorted(index.database.tables()):
        held = index.database.execute(f"SELECT * FROM {name}")
        kept = [at for at, one in enumerate(held.names) if one not in times.get(name, set())]
        found[name] = sorted((tuple(row[at] for at in kept) for row in held), key=repr)
    return found


def home_of(folder: Path, chain: Stage | None = None, block: int = 2_060, place: Place | None = None) -> Path:
    """A reader's folder that has followed and examined a chain: the index, and logs as it keeps them."""
    held = chain or stage()
    index = ExplorerIndex.open(place or folder / INDEX_FILE, DOMAIN.chain_id, PLACE)
    bring_up(index, held, block)
    examine(index, held, block)
    times = {name: 1_800_000_000 + 12 * name for name in held.blocks}
    index.priced({name: (60_000 + number % 7 * 9_000, 10**9) for name, number in index.unpriced(1_000)}, times)
    index.served(ReadServices(None, None, (), ratings_reading(RATED)), reproduce)
    index.close()
    for (scheduler, number), data in held.served.items():
        path = folder / "logs" / scheduler.lower() / f"{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
