"""What `troth audit watch` does until it is stopped: looks, what is printed of them, and acting on evidence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from troth.audit import running
from troth.audit.display import finding_json, show_finding
from troth.audit.errors import AuditError
from troth.audit.evidence.source import Source
from troth.audit.report import ExitCode, Finding
from troth.audit.services import AuditedServices
from troth.audit.watching import handed
from troth.audit.watching.findings import ShownFindings
from troth.audit.watching.looks import CachingSource, Look, Watcher
from troth.cases.carrying import CaseProgress
from troth.cases.office import CaseSettings, Office, make_office
from troth.chain.errors import ChainError, FollowTimeout, KeystoreError
from troth.chain.keystore import Key, load_account, read_password
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.tokens import asset_of
from troth.protocol.types import Address
from troth.transport.errors import visible

LEAST_PAUSE = 1.0
"""Seconds between two looks, however fast blocks come."""


@dataclass(frozen=True, slots=True)
class Watching:
    """What the command was told. ``keystore`` None: nothing is acted on."""

    rpc: str
    factory: Address
    bank: Address | None
    start: int
    folder: Path
    evidence: Path | None
    promises: Path | None
    only: frozenset[str]
    keystore: Path | None
    password_file: Path | None
    most_bond: str
    interval: float
    services: AuditedServices

    def opened(self) -> Key | None:
        """The account that acts, if one does; its password may be asked for at the terminal. Raises AuditError."""
        if self.keystore is None:
            return None
        try:
            return load_account(self.keystore, read_password(self.password_file, purpose="the account that acts"))
        except KeystoreError as error:
            raise AuditError(error.what, error.value, error.remedy) from error


class Printer:
    """Prints what is new in each look, and keeps the exit code of the last one."""

    def __init__(self, told: Watching, as_json: bool) -> None:
        self._told = told
        self._as_json = as_json
        self._console = Console(soft_wrap=True, highlight=False)
        self._failing = ""
        self.code = ExitCode.CLEAN

    def failed(self, error: Exception) -> None:
        """A look that could not complete; in words once for each reason, in JSON each time."""
        self.code = ExitCode.COULD_NOT_COMPLETE
        if self._as_json or self._failing != str(error):
            self.say({"error": str(error)}, f"this look failed, the next may not: {error}")
        self._failing = str(error)

    def look(self, look: Look) -> None:
        """What one look found."""
        self.code = look.report.exit_code
        if self._failing and not self._as_json:
            self.say({}, "looks do not fail any more")
        self._failing = ""
        block = look.report.last_block
        for finding in look.fresh:
            if self._as_json:
                typer.echo(json.dumps({"block": block, "finding": finding_json(finding, self._again)}))
            else:
                show_finding(finding, self._again, self._console)
        for message in look.gone:
            self.say({"block": block, "gone": message}, f"no longer: {message}")
        if look.fresh or look.gone or self._as_json:
            self.say({"block": block, "exit_code": int(self.code)}, f"block {block}: {self.code.name.lower()}")

    def say(self, said: dict[str, Any], words: str) -> None:
        """One line."""
        if self._as_json:
            typer.echo(json.dumps(said))
        else:
            self._console.print(visible(words), markup=False)

    def progress(self, progress: CaseProgress) -> None:
        """What became of a case that the watcher carries."""
        case = "0x" + progress.case_id.hex()
        self.say({"case": case, "step": progress.words}, f"case {case}: {progress.words}")

    def _again(self, finding: Finding) -> str:
        return self._told.services.again(finding, self._told.factory)


async def run(told: Watching, printer: Printer, once: bool) -> None:
    """Look until it is cancelled, or once; raises AuditError."""
    async with _watching(told, printer) as (watcher, office):
        carrying = None if office is None else asyncio.create_task(office.carrier.run(), name="carrier")
        try:
            while True:
                await _look(watcher, office, printer, once)
                if once:
                    return
                await _next(watcher, told.interval)
        finally:
            if carrying is not None:
                carrying.cancel()
                await asyncio.gather(carrying, return_exceptions=True)


async def _look(watcher: Watcher, office: Office | None, printer: Printer, once: bool) -> None:
    """One look; what breaks it is said, and tried again."""
    try:
        look = await watcher.look()
        printer.look(look)
        watcher.shown_now(look)
    except (ChainError, AuditError, OSError) as error:
        # A chain that is away, or a full disk: neither ends the watching.
        if once:
            raise
        printer.failed(error)
        return
    if office is None or watcher.evidence is None:
        return
    for words in await handed.act(watcher.evidence, office):
        printer.say({"acted": words}, words)


async def _next(watcher: Watcher, interval: float) -> None:
    """Until there is a new block, or the time is over: logs and files change between blocks, too."""
    await asyncio.sleep(min(interval, LEAST_PAUSE))
    try:
        await watcher.follower.reach(watcher.follower.block + 1, interval)
    except FollowTimeout:
        return


@asynccontextmanager
async def _watching(told: Watching, printer: Printer) -> AsyncIterator[tuple[Watcher, Office | None]]:
    told.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Before a password is asked for: a chain that is away, and another factory, are said at once.
    place = await running.find_place(told.rpc, told.factory, told.bank, told.start)
    key = told.opened()
    shown = ShownFindings(told.folder / "findings.sqlite")
    try:
        async with (
            await Source.connect(told.rpc, place) as source,
            await Market.connect(told.rpc, place) as market,
            MarketFollower(market, told.folder / "chain.sqlite") as follower,
        ):
            watcher = Watcher(CachingSource.of(source), follower, told.folder, shown, told.evidence, only=told.only)
            watcher.services = told.services
            if told.promises is not None:
                watcher.promises = running.read_promises(told.promises)
            most = (await asset_of(market)).parse(told.most_bond) if told.most_bond else 0
            office = None if key is None else _office(told, key, market, follower, printer, most)
            yield watcher, office
    except ChainError as error:
        raise AuditError(error.what, error.value, error.remedy) from error
    finally:
        shown.close()


def _office(  # noqa: PLR0917
    told: Watching, key: Key, market: Market, follower: MarketFollower, printer: Printer, most_bond: int
) -> Office:
    settings = CaseSettings(told.rpc, told.factory, told.folder, key, told.bank, told.start)
    return make_office(market, follower, settings, printer.progress, most_bond=most_bond)
