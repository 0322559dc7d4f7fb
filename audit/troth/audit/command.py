"""`troth audit market`, `log`, `receipt`, `notes`, `credits`, `tickets`, `watch`, and their exit codes."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from troth.audit import running
from troth.audit.checks import CHAIN, LOG
from troth.audit.credits import audit_credits
from troth.audit.display import counted, finish, guarded
from troth.audit.evidence.bundle import write_bundle
from troth.audit.notes import audit_notes, read_notes
from troth.audit.options import LastOption, read_address
from troth.audit.receipts import audit_receipt, read_receipt
from troth.audit.report import Finding, Reproduce
from troth.audit.tickets import audit_tickets
from troth.audit.watching.command import watch
from troth.chain.tickets import TicketsContract
from troth.protocol.market import canonical
from troth.protocol.organisations import OrganisationsPlace
from troth.transport.command_options import BankOption, FactoryOption, JsonOption, RpcOption, StartBlockOption

BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", exists=True, dir_okay=False, help="Read this bundle instead of asking a chain node."),
]
CheckOption = Annotated[
    list[str] | None,
    typer.Option("--check", envvar="TROTH_AUDIT_CHECK", help="Carry out this check only; may be repeated."),
]
app = typer.Typer(
    no_args_is_help=True,
    help="Re-check from public data. Exit: 0 clean, 1 violation, 2 usage, 3 not completed, 4 undecided.",
)


def add_to(app: typer.Typer) -> None:
    """Add the market's commands to `troth audit`."""
    app.command()(market)
    app.command()(log)
    app.command()(receipt)
    app.command()(notes)
    app.command("credits")(credits_posted)
    app.command("tickets")(tickets_spent)
    app.command()(watch)


def market(
    *,
    factory: FactoryOption = "",
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    bundle: BundleOption = None,
    export: Annotated[Path | None, typer.Option("--export", help="Also write all that was read into a bundle.")] = None,
    start_block: StartBlockOption = 0,
    to_block: LastOption = None,
    check: CheckOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-check a deployment of the market: its events, money, cases, convictions and summonses."""
    only = _checks(check, [one.number for one in CHAIN])
    reading, lines, more = _read(rpc, factory, bank, bundle=bundle, start=start_block, last=to_block, whole=True)
    report = guarded(lambda: running.audit_market(reading, only))
    if export is not None:
        history, held = reading.subject.history, reading.served
        served = held if bundle is not None else guarded(lambda: running.every_log(history, held))
        content = guarded(lambda: write_bundle(export, reading.subject.evidence, served))
        lines.append(f"{counted(len(served), 'entry')} of logs, as their schedulers serve them")
        lines.append(f"bundle {export}, content {content}")
    finish(report, _again("market", rpc, factory, bundle, report.last_block), as_json, lines, more)


def log(
    scheduler: Annotated[str, typer.Argument(metavar="SCHEDULER", help="Operator address of the scheduler.")],
    *,
    factory: FactoryOption = "",
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    bundle: BundleOption = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            exists=True,
            file_okay=False,
            help="Folder with NUMBER.jsonl for each entry. Default: the scheduler serves it.",
        ),
    ] = None,
    promises: Annotated[
        Path | None,
        typer.Option("--promises", exists=True, dir_okay=False, help="Promises of inclusion, a line of JSON each."),
    ] = None,
    start_block: StartBlockOption = 0,
    to_block: LastOption = None,
    check: CheckOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-check what a scheduler served behind its log: proofs, lotteries, checks, totals and promised leaves."""
    only, address = _checks(check, list(LOG)), read_address(scheduler)
    reading, lines, more = _read(rpc, factory, bank, bundle=bundle, start=start_block, last=to_block)
    history = reading.subject.history
    served = guarded(lambda: running.served_data(history, address, data, reading.served, promises))
    report = guarded(lambda: running.audit_log(reading, served, only))
    finish(report, _again(f"log {address}", rpc, factory, bundle, report.last_block), as_json, lines, more)


def receipt(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A receipt, as the client wrote it.")],
    *,
    factory: FactoryOption = "",
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    bundle: BundleOption = None,
    start_block: StartBlockOption = 0,
    to_block: LastOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify one receipt, offline from the file alone; with --network or --bundle also who was drawn, and keys."""
    found = guarded(lambda: read_receipt(file))
    subject = None
    lines: list[str] = []
    more: dict[str, Any] = {}
    if factory or bundle is not None:
        reading, lines, more = _read(rpc, factory, bank, bundle=bundle, start=start_block, last=to_block)
        subject = reading.subject
    report = guarded(lambda: audit_receipt(found, subject))
    again = _again(f"receipt {shlex.quote(str(file))}", rpc, factory, bundle, report.last_block)
    finish(report, again, as_json, lines, more)


def notes(
    files: Annotated[
        list[Path], typer.Argument(exists=True, dir_okay=False, help="Files that `troth node notes --out` wrote.")
    ],
    *,
    factory: FactoryOption = "",
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    bundle: BundleOption = None,
    start_block: StartBlockOption = 0,
    to_block: LastOption = None,
    suspects: Annotated[
        Path | None, typer.Option("--suspects", help="Write who is suspected here, for client.toml and scheduler.toml.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put verifiers' notes about nodes together, and check every signature, draw and record behind them again."""
    tasks = guarded(lambda: read_notes(files))
    reading, lines, more = _read(rpc, factory, bank, bundle=bundle, start=start_block, last=to_block)
    report, known = guarded(lambda: audit_notes(tasks, reading.subject))
    if suspects is not None:
        suspects.write_bytes(canonical.encode(known))
        lines.append(f"{len(known.suspects)} suspects in {suspects}")
    what = " ".join(["notes", *(shlex.quote(str(one)) for one in files)])
    finish(report, _again(what, rpc, factory, bundle, report.last_block), as_json, lines, more)


def credits_posted(
    organisations: Annotated[str, typer.Argument(metavar="ORGANISATIONS", help="The contract; --network names it.")],
    *,
    factory: FactoryOption = "",
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    to_block: LastOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute every contribution credit again from who served and who was rated, and name each that is another."""
    contract = read_address(organisations)
    reading, lines, more = _read(rpc, factory, bank, bundle=None, start=start_block, last=to_block)
    place = OrganisationsPlace(contract, start_block)
    report = guarded(lambda: asyncio.run(audit_credits(rpc, place, reading.subject)))
    again = _again(f"credits {contract}", rpc, factory, None, report.last_block)
    finish(report, again, as_json, lines, more)


def tickets_spent(
    tickets: Annotated[str, typer.Argument(metavar="TICKETS", help="The contract; --network names it.")],
    *,
    factory: FactoryOption = "",
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    to_block: LastOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow the money of tickets epoch by epoch, and check the members' signature under each that was spent."""
    contract = read_address(tickets)
    reading, lines, more = _read(rpc, factory, bank, bundle=None, start=start_block, last=to_block)
    place = TicketsContract(contract, start_block)
    report = guarded(lambda: asyncio.run(audit_tickets(rpc, place, reading.subject)))
    again = _again(f"tickets {contract}", rpc, factory, None, report.last_block)
    finish(report, again, as_json, lines, more)


def _read(
    rpc: str,
    factory: str,
    bank: str,
    *,
    bundle: Path | None,
    start: int,
    last: int | None,
    whole: bool = False,
) -> tuple[running.Reading, list[str], dict[str, Any]]:
    if bundle is not None:
        reading, content = guarded(lambda: running.read_file(bundle))
        return reading, [f"bundle {bundle}, content {content}"], {"content": content}
    if not factory:
        raise typer.BadParameter("Name the --network, the deployment's --factory, or a --bundle.")
    maker, named = read_address(factory), read_address(bank) if bank else None

    async def read() -> running.Reading:
        place = await running.find_place(rpc, maker, named, start)
        return await running.read_chain(rpc, place, start=start, last=last, whole=whole)

    return guarded(lambda: asyncio.run(read())), [], {}


def _checks(names: list[str] | None, known: list[str]) -> tuple[str, ...]:
    """The checks to carry out, all of them without a name; wrong usage for an unknown one."""
    unknown = [name for name in names or () if name.upper() not in known]
    if unknown:
        raise typer.BadParameter(f"There is no check {unknown[0]} here; there are {', '.join(known)}.")
    return tuple(name.upper() for name in names or ()) or tuple(known)


def _again(what: str, rpc: str, factory: str, bundle: Path | None, last: int) -> Reproduce:
    """The command that shows a finding again, up to the block that was read."""
    source = f" --factory {factory} {running.at_node(rpc)} --to-block {last}" if factory else ""
    if bundle is not None:
        source = f" --bundle {shlex.quote(str(bundle))}"

    def command(finding: Finding) -> str:
        chosen = "" if what.startswith(("receipt", "notes", "credits", "tickets")) else f" --check {finding.check}"
        return f"troth audit {what}{chosen}{source}"

    return command


add_to(app)
