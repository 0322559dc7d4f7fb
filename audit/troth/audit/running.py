"""From a node, a bundle or a file to a report: what the commands do before they print."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import httpx

from troth.audit.checks import CHAIN, HANDED, LOG, logs
from troth.audit.errors import AuditError, BundleRefused, SourceUnusable
from troth.audit.evidence.bundle import Served as ServedData
from troth.audit.evidence.bundle import read_bundle
from troth.audit.evidence.history import History, read_history
from troth.audit.evidence.source import Source
from troth.audit.evidence.types import AuditEvidence
from troth.audit.report import AuditReport, CheckReport, Finding
from troth.audit.subject import AuditSubject
from troth.chain import market
from troth.chain.errors import ChainError, without_credentials
from troth.chain.market import DeploymentPlace
from troth.protocol import typed_data
from troth.protocol.errors import InvalidField, InvalidSignature, ProtocolError
from troth.protocol.market.log_data import DATA_LIMIT, read_bytes, read_hash
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Inclusion
from troth.protocol.market.state import State
from troth.protocol.market.types import Role
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address
from troth.transport.errors import ChannelTimeout, OverlayError
from troth.transport.https import pinned_client

MOST_NAMED = 8
"""Schedulers that an error names."""
NOT_CHECKED = (
    "The model's computation: no layer is run again; verdicts are the verifiers' own.",
    "Prompts and outputs: chain, logs and receipts hold salted hashes of them only.",
    "Vouchers that nobody showed on chain: money that is owed and was not redeemed.",
    "Signatures by contracts (EIP-1271): the chain asked them when they counted.",
)
OFFLINE = (
    "That the chain contains these blocks: compare the printed block hash with a source that you trust.",
    "That the bundle has every log, and that logs are those of their blocks: it holds headers, and no receipts.",
    "The getters and the Bank's holdings: no node was asked.",
)
ENTRY_SECONDS = 60.0
"""For the data of one log entry, from connecting on: a scheduler that sends a byte now and then holds no audit up."""
UNSERVED = (OSError, httpx.HTTPError, OverlayError, ProtocolError, LookupError)
"""What keeps an entry's data from being had."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A deployment's record, with what a bundle holds of logs."""

    subject: AuditSubject
    served: ServedData
    notes: tuple[str, ...] = ()


async def find_place(rpc_url: str, factory: Address, bank: Address | None, start: int) -> DeploymentPlace:
    """The deployment of a factory, or that of them whose Bank is named."""
    try:
        return await market.find_place(rpc_url, factory, bank, start)
    except ChainError as error:
        raise SourceUnusable(error.what, error.value, error.remedy) from error


async def read_chain(
    rpc_url: str, place: DeploymentPlace, *, start: int, last: int | None, whole: bool = True
) -> Reading:
    """A deployment's record up to a block; ``whole``: with the headers, transactions and contracts' own words that the
    checks of a deployment's events look at."""
    try:
        async with await Source.connect(rpc_url, place) as source:
            head = await source.header(last)
            first = min(start, place.block)
            found = await source.logs(first, head.number)
            history = read_history(found, place)
            if whole and history.state.deployed is not None:
                found = await source.with_prover(found, history.state.deployed.parameters.prover, head.number)
            read = source.evidence if whole else source.record
            evidence = await read(first, head, found, history)
    except ChainError as error:
        raise SourceUnusable(error.what, error.value, error.remedy) from error
    return Reading(AuditSubject(evidence, history), {})


def read_file(path: Path) -> tuple[Reading, str]:
    """A bundle's record, and its content hash. No network."""
    bundle = read_bundle(path)
    history = read_history(bundle.evidence.logs, bundle.evidence.place)
    return Reading(AuditSubject(bundle.evidence, history), bundle.served, OFFLINE), bundle.content


def audit_market(reading: Reading, only: Collection[str]) -> AuditReport:
    """Every check of a deployment's events that is asked for."""
    reports = [check.report(reading.subject) for check in CHAIN if check.number in only]
    cases = tuple(sorted(reading.subject.history.state.cases))
    return _report(reading, reports, cases, subject="case", numbers=[check.number for check in CHAIN], only=only)


def audit_log(reading: Reading, served: logs.ServedLogs, only: Collection[str]) -> AuditReport:
    """Every check of a scheduler's log that is asked for."""
    entries = reading.subject.history.state.logs.get(served.scheduler, ())
    if not entries:
        raise _nothing_posted(reading.subject.history.state, served.scheduler)
    reports = [one for one in logs.examine(reading.subject, served) if one.number in only]
    return _report(
        reading, reports, tuple(one.root for one in entries), subject="log entry", numbers=list(LOG), only=only
    )


def _nothing_posted(state: State, scheduler: Address) -> AuditError:
    """Whoever has a chain node alone learns here which schedulers there are."""
    posted = sorted(one for one, entries in state.logs.items() if entries)
    registered = sorted(one for one, party in state.parties.items() if party.role is Role.SCHEDULER)
    if posted:
        remedy = f"Those that have posted: {', '.join(posted[:MOST_NAMED])}."
    elif registered:
        named = ", ".join(registered[:MOST_NAMED])
        remedy = f"None has: the first entry comes an hour after a scheduler's first order. Registered are {named}."
    else:
        remedy = "No scheduler is registered here: check the factory, and --to-block."
    return AuditError("The scheduler has posted no log entry", scheduler, remedy)


def _report(
    reading: Reading,
    reports: Iterable[CheckReport],
    subjects: tuple[bytes, ...],
    *,
    subject: str,
    numbers: list[str],
    only: Collection[str],
) -> AuditReport:
    evidence: AuditEvidence = reading.subject.evidence
    left_out = tuple(f"Check {number}: left out on demand." for number in numbers if number not in only)
    return AuditReport(
        chain_id=evidence.chain_id,
        contract=evidence.place.contracts.bank,
        first_block=evidence.first,
        last_block=evidence.last.number,
        last_block_hash=evidence.last.hash,
        tasks=tuple(read_hash("0x" + one.hex()) for one in subjects),
        checks=tuple(reports),
        not_checked=(*NOT_CHECKED, *reading.notes, *left_out),
        subject=subject,
    )


# -------------------------------------------------------------------------------------------------------- served data


def served_data(
    history: History, scheduler: Address, directory: Path | None, bundled: ServedData, promises: Path | None
) -> logs.ServedLogs:
    """A scheduler's data from a bundle, from files named by number, or from where the scheduler serves it.

    A scheduler that does not answer is not asked for its other entries.
    """
    numbers = [entry.number for entry in history.state.logs.get(scheduler, ())]
    fetch = _from_bundle(scheduler, bundled)
    if directory is not None:
        fetch = _from_files(directory)
    elif not bundled:
        fetch = from_scheduler(history, scheduler)
    data, refusals = dict[int, bytes](), dict[int, logs.MissingLogData]()
    away: logs.MissingLogData | None = None
    asks = directory is None and not bundled
    for number in numbers:
        if away is not None:
            refusals[number] = away
            continue
        try:
            data[number] = fetch(number)
        except UNSERVED as error:
            refusals[number] = refusal = refusal_of(error)
            away = refusal if asks and not refusal.reached else None
    return logs.ServedLogs(scheduler, data, refusals, () if promises is None else read_promises(promises))


def refusal_of(error: Exception) -> logs.MissingLogData:
    """Why data was not had, and whether the scheduler answered at all."""
    answered = isinstance(error, httpx.HTTPStatusError | ProtocolError)
    return logs.MissingLogData(f"{type(error).__name__}: {error}", answered)


def every_log(history: History, bundled: ServedData) -> ServedData:
    """The data of all schedulers' entries that can be had, for a bundle; what is not served is a finding of M13."""
    found = dict(bundled)
    for scheduler in sorted(history.state.logs):
        served = served_data(history, scheduler, None, bundled, None)
        found.update({(scheduler, number): data for number, data in served.data.items()})
    return found


def is_promise_of(promise: Signed[Inclusion], scheduler: Address, domain: Domain) -> bool:
    """Whether a scheduler signed a promise of inclusion."""
    try:
        return typed_data.recover(promise.message, domain, promise.signature) == scheduler
    except InvalidSignature:
        return False


def _from_bundle(scheduler: Address, bundled: ServedData) -> Callable[[int], bytes]:
    return lambda number: bundled[scheduler, number]


def _from_files(directory: Path) -> Callable[[int], bytes]:
    return lambda number: (directory / f"{number}.jsonl").read_bytes()


def from_scheduler(history: History, scheduler: Address) -> Callable[[int], bytes]:
    """Data of entries from where their scheduler serves them, for a thread without an event loop."""
    party = history.state.parties.get(scheduler)
    if party is None:
        raise AuditError("No such scheduler is registered", scheduler, "Check the address and --to-block.")
    endpoint, pin = party.endpoint, party.tls_key_hash

    def fetch(number: int) -> bytes:
        return asyncio.run(_served(endpoint, pin, number))

    return fetch


async def _served(endpoint: str, pin: bytes, number: int) -> bytes:
    try:
        async with (
            asyncio.timeout(ENTRY_SECONDS),
            pinned_client(endpoint, pin) as client,
            client.stream("GET", f"/v1/log/{number}") as response,
        ):
            response.raise_for_status()
            data = bytearray()
            async for part in response.aiter_bytes():
                data += part
                if len(data) > DATA_LIMIT:
                    raise InvalidField(f"Entry {number} is larger than entries may be", len(data), "Leave it.")
            return bytes(data)
    except TimeoutError as error:
        raise ChannelTimeout(f"Entry {number} was not sent within {ENTRY_SECONDS:g} s", endpoint) from error


def read_promises(path: Path) -> tuple[Signed[Inclusion], ...]:
    """Promises of inclusion: a line of JSON each, with ``order``, ``leaf``, ``entry`` and ``signature``."""
    try:
        return tuple(_promise(line) for line in path.read_text("utf-8").splitlines() if line)
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BundleRefused(f"The file holds no promises of inclusion: {error}", path, "Ask for them again.") from error


def _promise(line: str) -> Signed[Inclusion]:
    said = json.loads(line)
    inclusion = Inclusion(read_hash(said["order"]), read_hash(said["leaf"]), int(said["entry"]))
    return Signed(inclusion, read_bytes(said["signature"]))


def at_node(rpc: str) -> str:
    """The option by which a command that is shown names a chain node; a URL with a path or a password stays out."""
    return "--rpc " + (rpc if without_credentials(rpc) == rpc.rstrip("/") else '"$TROTH_RPC"')


def again(finding: Finding, factory: str, rpc: str) -> str:
    """The command that shows a finding of a whole deployment again."""
    if finding.check == HANDED[0]:
        what = "watch --once"
    else:
        what = f"log {finding.party}" if finding.check in LOG and finding.party else "market"
    return f"troth audit {what} --check {finding.check} --factory {factory} {at_node(rpc)}"
