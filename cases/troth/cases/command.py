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
from troth.cases.evidence import Evidence
from troth.cases.office import CaseSettings, Office, open_office
from troth.cases.opening import WantedCase
from troth.chain.keystore import Key, load_account, read_password
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
)

NOTHING = 4
DEFAULT_HOME = Path("~/.troth/cases")

app = typer.Typer(no_args_is_help=True, help="Act on evidence: convict, go to court, summon. Exit 4: nothing to do.")

FileArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Evidence, or a receipt.")]
HomeOption = Annotated[Path, typer.Option("--home", envvar="TROTH_CASES_HOME", help="Folder of journal and state.")]


def read_evidence(path: Path) -> Evidence:
    """Evidence from its own file, or from a receipt."""
    try:
        return files.read(path)
    except ProtocolError as error:
        try:
            return files.of_receipt(receipt.decode(path.read_bytes()))
        except ProtocolError:
            raise error from None


@app.command()
def show(
    file: FileArgument,
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    home: HomeOption = DEFAULT_HOME,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say in words what can be done, what it costs and how it may end. Nothing is sent."""
    settings = _settings(rpc, factory, bank, start_block, home, keystore, password_file)
    held = read_evidence(file)

    async def work(office: Office) -> bool:
        said = await office.opener.dry_run(held)
        for words in said:
            _say({"option": words}, words, as_json)
        return not (await office.opener.assess(held)).nothing

    _run(settings, work, as_json)


@app.command("open")
def open_case(
    file: FileArgument,
    *,
    segment: Annotated[int, typer.Option("--segment", min=0, help="Which result is brought to the court.")] = 0,
    most_bond: Annotated[str, typer.Option("--most-bond", help=f"Most that is put up. {AMOUNT}")],
    suspend: Annotated[bool, typer.Option("--suspend", help="Suspend the node, where each rejecter locked.")] = False,
    carry_on: Annotated[bool, typer.Option("--carry/--no-carry", help="Carry it to its end.")] = True,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    home: HomeOption = DEFAULT_HOME,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a result to the court, and carry the case to its end."""
    settings = _settings(rpc, factory, bank, start_block, home, _required(keystore), password_file)
    held = read_evidence(file)

    async def work(office: Office) -> bool:
        most = (await asset_at(rpc, factory, bank, start_block)).parse(most_bond)
        wanted = WantedCase(segment, suspend, most)
        case_id = await office.opener.bring(held, wanted, file.parent.resolve())
        _say({"case": "0x" + case_id.hex()}, f"case 0x{case_id.hex()} is open", as_json)
        if carry_on:
            await office.carrier.carry(case_id)
        return True

    _run(settings, work, as_json)


@app.command()
def convict(
    file: FileArgument,
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    home: HomeOption = DEFAULT_HOME,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take every conviction that the evidence makes; the reward is the caller's."""
    settings = _settings(rpc, factory, bank, start_block, home, _required(keystore), password_file)
    held = read_evidence(file)

    async def work(office: Office) -> bool:
        done = False
        for proof in (await office.opener.assess(held)).convictions:
            try:
                mined = await office.opener.convict(proof)
                done = True
                _say({"convicted": proof.conviction.convict, "block": mined.block}, proof.words, as_json)
            except CallRefused as refused:
                _say({"refused": str(refused)}, str(refused), as_json)
        return done

    _run(settings, work, as_json)


@app.command()
def summon(
    file: FileArgument,
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    home: HomeOption = DEFAULT_HOME,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a scheduler on chain for what it owes; again later, convict who stayed silent."""
    settings = _settings(rpc, factory, bank, start_block, home, _required(keystore), password_file)
    held = read_evidence(file)

    async def work(office: Office) -> bool:
        ended = await office.opener.end_summons()
        found = (await office.opener.assess(held)).summons
        for one in found:
            try:
                mined = await office.opener.summon(held, one)
                _say({"summoned": one.scheduler, "segment": one.segment, "block": mined.block}, one.words, as_json)
            except CallRefused as refused:
                _say({"refused": str(refused)}, str(refused), as_json)
        return bool(ended or found)

    _run(settings, work, as_json)


@app.command()
def carry(
    case: Annotated[list[str] | None, typer.Argument(metavar="[CASE]...", help="Also these, by id.")] = None,
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    home: HomeOption = DEFAULT_HOME,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Carry the journal's cases, and any others that are named, to their ends. Gas is paid back by the contracts."""
    settings = _settings(rpc, factory, bank, start_block, home, _required(keystore), password_file)
    named = [hash32_of(one) for one in case or ()]

    async def work(office: Office) -> bool:
        cases: set[Hash32] = {*office.journal.cases(), *named}
        await asyncio.gather(*(office.carrier.carry(one) for one in sorted(cases)))
        return bool(cases)

    _run(settings, work, as_json)


# -------------------------------------------------------------------------------------------------------------- helpers


def _settings(  # noqa: PLR0917 - the options that all commands share
    rpc: str, factory: str, bank: str, start: int, home: Path, keystore: Path | None, password: Path | None
) -> CaseSettings:
    key = Key.generate() if keystore is None else load_account(keystore.expanduser(), read_password(password))
    named = to_address(bank) if bank else None
    return CaseSettings(rpc, to_address(factory), home.expanduser(), key, named, start)


def _required(keystore: Path | None) -> Path:
    if keystore is None:
        raise typer.BadParameter("Name the --keystore of the account that acts and pays.")
    return keystore


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
