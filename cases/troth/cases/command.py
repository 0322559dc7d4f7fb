"""`troth case`: what can be done with a piece of evidence, and doing it. Exit: 0 done, 4 nothing can be done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from troth.cases import evidence as files
from troth.cases.carrying import CaseProgress
from troth.cases.courtroom import CallRefused
from troth.cases.errors import EvidenceRefused
from troth.cases.evidence import Evidence
from troth.cases.office import CaseSettings, Office, open_office
from troth.cases.opening import WantedCase
from troth.chain.keystore import Key, load_account, read_password
from troth.chain.market import find_place
from troth.chain.tokens import asset_at
from troth.protocol.errors import ProtocolError
from troth.protocol.market import receipt
from troth.protocol.types import Hash32, hash32_of, to_address
from troth.transport.command_options import (
    AMOUNT,
    BankOption,
    FactoryOption,
    JsonOption,
    KeystoreOption,
    PasswordOption,
    RpcOption,
    StartBlockOption,
    folder_path,
    grouped,
    option_group,
)

NOTHING = 4
DEFAULT_HOME = Path("~/.troth/cases")

app = typer.Typer(no_args_is_help=True, help="Act on evidence: convict, go to court, summon. Exit 4: nothing to do.")

FileArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Evidence, or a receipt.")]
HomeOption = Annotated[
    Path,
    typer.Option(
        "--home", file_okay=False, callback=folder_path, envvar="TROTH_CASES_HOME", help="Folder of journal and state."
    ),
]


@option_group
class CaseOptions:
    """Where a case is carried, and by which account."""

    factory: FactoryOption
    bank: BankOption = ""
    rpc: RpcOption = "http://127.0.0.1:8545"
    start_block: StartBlockOption = 0
    home: HomeOption = DEFAULT_HOME
    keystore: KeystoreOption = None
    password_file: PasswordOption = None
    as_json: JsonOption = False

    def settings(self, *, must_pay: bool = True) -> CaseSettings:
        """The same, read; an account of the moment looks, if nothing has to be paid."""
        if self.keystore is None and must_pay:
            raise typer.BadParameter("Name the --keystore of the account that acts and pays.")
        named = to_address(self.bank) if self.bank else None
        # Before a password is asked for: a chain that is away, and another factory, are said at once.
        place = asyncio.run(find_place(self.rpc, to_address(self.factory), named, self.start_block))
        if self.keystore is None:
            key = Key.generate()
        else:
            key = load_account(self.keystore, read_password(self.password_file, purpose="the account that acts"))
        return CaseSettings(self.rpc, place.factory, self.home.expanduser(), key, place.contracts.bank, place.block)


def read_evidence(path: Path) -> Evidence:
    """Evidence from its own file, or from a receipt."""
    try:
        return files.read(path)
    except ProtocolError as error:
        try:
            return files.of_receipt(receipt.decode(path.read_bytes()))
        except ProtocolError:
            raise EvidenceRefused(f"{error.what}: {error.value}", path, error.remedy) from None


@app.command()
@grouped
def show(
    file: FileArgument,
    *,
    options: CaseOptions,
) -> None:
    """Say in words what can be done, what it costs and how it may end. Nothing is sent."""
    held = read_evidence(file)
    settings = options.settings(must_pay=False)

    async def work(office: Office) -> bool:
        said = await office.opener.dry_run(held)
        for words in said:
            _say({"option": words}, words, options.as_json)
        return not (await office.opener.assess(held)).nothing

    _run(settings, work, options.as_json)


@app.command("open")
@grouped
def open_case(
    file: FileArgument,
    *,
    segment: Annotated[int, typer.Option("--segment", min=0, help="Which result is brought to the court.")] = 0,
    most_bond: Annotated[str, typer.Option("--most-bond", help=f"Most that is put up. {AMOUNT}")],
    suspend: Annotated[bool, typer.Option("--suspend", help="Suspend the node, where each rejecter locked.")] = False,
    carry_on: Annotated[bool, typer.Option("--carry/--no-carry", help="Carry it to its end.")] = True,
    options: CaseOptions,
) -> None:
    """Bring a result to the court, and carry the case to its end.

    Sent at once: `troth case show` says first what it costs.
    """
    held = read_evidence(file)
    settings = options.settings()

    async def work(office: Office) -> bool:
        most = (await asset_at(options.rpc, options.factory, options.bank, options.start_block)).parse(most_bond)
        wanted = WantedCase(segment, suspend, most)
        case_id = await office.opener.bring(held, wanted, file.parent.resolve())
        _say({"case": "0x" + case_id.hex()}, f"case 0x{case_id.hex()} is open", options.as_json)
        if carry_on:
            await office.carrier.carry(case_id)
        return True

    _run(settings, work, options.as_json)


@app.command()
@grouped
def convict(
    file: FileArgument,
    *,
    options: CaseOptions,
) -> None:
    """Take every conviction that the evidence makes; the reward is the caller's.

    Sent at once: `troth case show` looks first.
    """
    held = read_evidence(file)
    settings = options.settings()

    async def work(office: Office) -> bool:
        done = False
        for proof in (await office.opener.assess(held)).convictions:
            try:
                mined = await office.opener.convict(proof)
                done = True
                _say({"convicted": proof.conviction.convict, "block": mined.block}, proof.words, options.as_json)
            except CallRefused as refused:
                _say({"refused": str(refused)}, str(refused), options.as_json)
        return done

    _run(settings, work, options.as_json)


@app.command()
@grouped
def summon(
    file: FileArgument,
    *,
    options: CaseOptions,
) -> None:
    """Ask a scheduler on chain for what it owes; again later, convict who stayed silent.

    Sent at once: `troth case show` looks first.
    """
    held = read_evidence(file)
    settings = options.settings()

    async def work(office: Office) -> bool:
        done = bool(await office.opener.end_summons())
        for one in (await office.opener.assess(held)).summons:
            try:
                mined = await office.opener.summon(held, one)
                done = True
                _say(
                    {"summoned": one.scheduler, "segment": one.segment, "block": mined.block},
                    one.words,
                    options.as_json,
                )
            except CallRefused as refused:
                _say({"refused": str(refused)}, str(refused), options.as_json)
        return done

    _run(settings, work, options.as_json)


@app.command()
@grouped
def carry(
    case: Annotated[list[str] | None, typer.Argument(metavar="[CASE]...", help="Also these, by id.")] = None,
    *,
    options: CaseOptions,
) -> None:
    """Carry the journal's cases, and any others that are named, to their ends. Gas is paid back by the contracts."""
    named = [hash32_of(one) for one in case or ()]
    settings = options.settings()

    async def work(office: Office) -> bool:
        cases: set[Hash32] = {*office.journal.cases(), *named}
        await asyncio.gather(*(office.carrier.carry(one) for one in sorted(cases)))
        return bool(cases)

    _run(settings, work, options.as_json)


def _run(settings: CaseSettings, work: Callable[[Office], Awaitable[bool]], as_json: bool) -> None:
    def report(progress: CaseProgress) -> None:
        _say({"case": "0x" + progress.case_id.hex(), "step": progress.words}, progress.words, as_json)

    async def run() -> bool:
        async with open_office(settings, report) as office:
            return await work(office)

    if not asyncio.run(run()):
        raise typer.Exit(NOTHING)


def _say(said: dict[str, Any], words: str, as_json: bool) -> None:
    typer.echo(json.dumps(said) if as_json else words)
