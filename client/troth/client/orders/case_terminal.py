"""What `troth client case` does: show what can be done about an order, write its evidence, bring it to the court."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from troth.cases import evidence as files
from troth.cases.assessing import Assessment
from troth.cases.courtroom import LiveCourtroom
from troth.cases.evidence import Evidence as CaseFile
from troth.cases.journal import CaseJournal
from troth.cases.opening import Opener
from troth.chain.keystore import ENVIRONMENT, Key, load_account, read_password
from troth.chain.tokens import read_asset
from troth.client.configuration import ClientConfiguration
from troth.client.errors import ConfigurationError
from troth.client.orders.case_files import case_file
from troth.client.orders.court import ClientDeployment, Court, open_court
from troth.client.orders.fetching_rows import fetched_imprints, with_rows
from troth.client.orders.following import FollowedCase, cases_of
from troth.client.orders.journal import OrderJournal, OrderRecord
from troth.client.orders.seams import OrderEvidence
from troth.client.orders.session import following, market_session
from troth.client.tabs.keys import Keyring
from troth.client.tabs.managing import Purse
from troth.client.tabs.store import opened
from troth.client.wallet import require_wallet
from troth.protocol.imprints.naming import Imprints
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import CaseKind
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Address, Hash32

WITHOUT_OPENINGS = "without --password-file the openings of its check are left out: the tab key reads them"


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """What is printed: ``lines`` in words, ``cases`` as they stand; ``nothing``: nothing can be done."""

    order: str
    lines: tuple[str, ...]
    cases: tuple[FollowedCase, ...] = ()
    written: Path | None = None
    nothing: bool = False

    def to_json(self) -> dict[str, Any]:
        """As programs read it."""
        return {
            "order": self.order,
            "said": list(self.lines),
            "cases": [one.to_json() for one in self.cases],
            "written": None if self.written is None else str(self.written),
            "nothing": self.nothing,
        }


@dataclass(frozen=True, slots=True)
class How:
    """How a case is brought: most bond as it was typed, the segment (-1: by itself), whether to its end."""

    most_bond: str = ""
    segment: int = -1
    carry: bool = True


@dataclass(slots=True)
class Onlooker(LiveCourtroom):
    """A courtroom that only looks, as an account whose key stays closed."""

    address: Address

    @property
    def account(self) -> Address:
        """Whose calls are simulated."""
        return self.address


@asynccontextmanager
async def _placed(purse: Purse, configuration: ClientConfiguration) -> AsyncIterator[ClientDeployment]:
    async with following(purse.home, configuration) as (market, follower):
        with opened(purse.home.tabs) as store:
            yield ClientDeployment(market, follower, OrderJournal(store), purse.home)


async def show(
    purse: Purse, configuration: ClientConfiguration, order: str, write: Path | None, *, rows: bool = False
) -> CaseSummary:
    """Every option in words, with what the chain says of its call; nothing is sent.

    ``rows``: they are asked of the order's scheduler, and written with the rest.
    """
    fetched, imprints = await _rows_of(purse, configuration, order) if rows else (None, None)
    async with _placed(purse, configuration) as place:
        entry = place.orders.find(order)
        at_hand = purse.password_file is not None or bool(os.environ.get(ENVIRONMENT))
        key = _tab_key(purse.keyring(), entry) if at_hand else None
        file = case_file(entry, place.market.domain, key)
        courtroom = Onlooker(place.market, place.follower, Key.generate(), payer_of(file))
        if fetched is not None:
            file = replace(file, head_salt=fetched.head_salt, rows=fetched.rows)
        journal = CaseJournal(purse.home.cases / "cases.sqlite")
        try:
            opener = Opener(courtroom, journal)
            said = await opener.dry_run(file)
            found = await opener.assess(file)
        finally:
            journal.close()
        cases = cases_of(entry, place.follower.state)
    lines = [f"case {one.words}" for one in cases] + list(said)
    lines += ways(found, entry)
    lines += [WITHOUT_OPENINGS] if key is None and "openings" in entry.evidence else []
    lines += [] if write is None else [written(write, file)]
    lines += [] if write is None or imprints is None else [written_imprints(write, imprints)]
    return CaseSummary(entry.name, tuple(lines), cases, write, found.nothing and write is None)


async def _rows_of(
    purse: Purse, configuration: ClientConfiguration, order: str
) -> tuple[CaseFile, Signed[Imprints] | None]:
    password = read_password(purse.password_file, purpose="the tab keys")
    async with market_session(purse.home, configuration, password) as session:
        entry = session.journal.find(order)
        file = await with_rows(session, entry, case_file(entry, session.domain))
        return file, await fetched_imprints(session, entry)


def ways(found: Assessment, entry: OrderRecord) -> list[str]:
    """The commands that take the options."""
    name = f"troth client case {entry.name[:12]}"
    said = []
    if found.convictions:
        said.append(f"to convict: `{name} --write FILE`, then `troth case convict FILE`")
    if found.cases:
        least = min(one.bond for one in found.cases)
        said.append(f"to go to court: `{name} --open --most-bond {least}units`")
    if found.summons:
        said.append(f"to summon: `troth client summon {entry.name[:12]} --broadcast`")
    return said


def payer_of(file: CaseFile) -> Address:
    """The account from which calls are tried: that of the tab."""
    assert file.tab is not None
    return file.tab.payer


def written(path: Path, file: CaseFile) -> str:
    """Write the evidence; the line that says so."""
    files.write(path, file)
    return f"written to {path}, with prompt and answer in it; `troth case show {path}` reads it"


def written_imprints(path: Path, signed: Signed[Imprints]) -> str:
    """Write what a node signed of its imprints beside the evidence; the line that says so."""
    beside = path.with_name(path.name + ".imprints")
    beside.write_bytes(canonical.encode(signed))
    return f"imprints written to {beside}; `troth node accuse {path} --imprints {beside}` shows no row"


async def bring(
    purse: Purse, configuration: ClientConfiguration, order: str, write: Path | None, how: How
) -> CaseSummary:
    """Bring an answer to the court from the wallet, and carry it to its end."""
    require_wallet(purse.home)
    password = read_password(purse.password_file, purpose="the wallet and the tab keys")
    wallet = load_account(purse.home.keystore, password)
    async with _placed(purse, configuration) as place:
        entry = place.orders.find(order)
        file = case_file(entry, place.market.domain, _tab_key(Keyring(purse.home, password), entry))
        asset = await read_asset(place.market, parameters_of(place.follower.state).asset)
        allowed = how.most_bond or configuration.market.case
        if not allowed:
            what = "Nothing says how large a bond may be"
            raise ConfigurationError(what, order, "Name it with --most-bond, or set case in [market].")
        async with open_court(place, wallet, asset, asset.parse(allowed), _report) as court:
            told = await brought(court, place.orders, entry, file, how)
        cases = cases_of(entry, place.follower.state)
    more = () if write is None else (written(write, file),)
    return CaseSummary(entry.name, (*told, *(f"case {one.words}" for one in cases), *more), cases, write, not cases)


async def brought(court: Court, orders: OrderJournal, entry: OrderRecord, file: CaseFile, how: How) -> list[str]:
    """Open what is to be opened, and carry it to its end; what was done."""
    found = await court.office.opener.assess(file)
    segments = (how.segment,) if how.segment >= 0 else chosen(found) or await _standing(court, entry)
    line = await court.open(OrderEvidence(CaseKind.NONE, segments, file, entry.tokens)) if segments else ""
    line = line or " ".join(found.against) or "no case can be opened"
    orders.step(entry.identifier, court=line.encode())
    orders.release(entry.identifier)
    lines = [line]
    for case_id in wanted_of(court, entry.identifier) if how.carry else ():
        lines.append((await court.carry(case_id)).words)
    return lines


def chosen(found: Assessment) -> tuple[int, ...]:
    """The segments that were rejected, or the only one; ConfigurationError where that is not clear."""
    rejected = tuple(one.segment for one in found.cases if one.kind is CaseKind.REJECTION)
    if rejected or len(found.cases) < 2:
        return rejected or tuple(one.segment for one in found.cases)
    names = ", ".join(str(one.segment) for one in found.cases)
    raise ConfigurationError("A case is over one segment", names, "Name one with --segment; each has its own bond.")


def wanted_of(court: Court, order: Hash32) -> list[Hash32]:
    """Cases of the journal that are over this order's results."""
    journal = court.office.journal
    found = [(one, journal.case(one)) for one in journal.cases()]
    return [one for one, kept in found if kept and kept.evidence and kept.evidence.order_id == order]


async def _standing(court: Court, entry: OrderRecord) -> tuple[int, ...]:
    """Segments over which a case goes on already: it is followed and carried."""
    state = (await court.office.courtroom.seen()).state
    return tuple(one.segment for one in cases_of(entry, state) if not one.outcome)


def _tab_key(keyring: Keyring, entry: OrderRecord) -> Key | None:
    return None if entry.submission is None else keyring.key(entry.submission.tab.key)


def _report(_entry: OrderRecord | None, line: str) -> None:
    print(line, file=sys.stderr, flush=True)
