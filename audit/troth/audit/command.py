"""`troth audit`: exit code 0 clean, 1 proven violation, 2 usage, 3 could not complete, 4 inconclusive."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from troth.audit import reproduction, running
from troth.audit.bundle_writing import write_bundle
from troth.audit.evidence import Evidence
from troth.audit.guarding import finish, guarded
from troth.audit.market import command as market_command
from troth.audit.options import JsonOption, LastOption, RpcOption, StartOption, read_address
from troth.audit.task_options import CheckOption, ContractOption, read_checks, read_task

app = typer.Typer(
    no_args_is_help=True,
    help="Re-check tasks from the chain's record. Exit: 0 clean, 1 violation, 2 usage, 3 not completed, 4 undecided.",
)


@app.command()
def task(
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task's id, 0x and 64 digits.")],
    *,
    contract: ContractOption,
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartOption = 0,
    to_block: LastOption = None,
    check: CheckOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-check one task, and the event stream that it stands in."""
    wanted, place, only = read_task(task_id), read_address(contract), read_checks(check)
    report = guarded(
        lambda: asyncio.run(running.audit_task(rpc, place, wanted, start=start_block, last=to_block, only=only))
    )
    finish(report, reproduction.from_node(rpc, place, start_block, report.last_block), as_json)


@app.command()
def chain(
    *,
    contract: ContractOption,
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartOption = 0,
    from_block: Annotated[
        int, typer.Option("--from-block", envvar="TROTH_FROM_BLOCK", min=0, help="Only tasks with an event since then.")
    ] = 0,
    to_block: LastOption = None,
    check: CheckOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-check every task of a contract, or those with an event in a range of blocks."""
    if to_block is not None and to_block < from_block:
        raise typer.BadParameter("--to-block lies before --from-block.")
    place, only = read_address(contract), read_checks(check)
    report = guarded(
        lambda: asyncio.run(
            running.audit_chain(rpc, place, start=start_block, first=from_block, last=to_block, only=only)
        )
    )
    finish(report, reproduction.from_node(rpc, place, start_block, report.last_block), as_json)


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="Where to write the bundle.")],
    *,
    contract: ContractOption,
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartOption = 0,
    to_block: LastOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write all that an audit needs into one file, which `troth audit verify` reads without a network."""
    place = read_address(contract)

    def write() -> tuple[Evidence, str]:
        evidence = asyncio.run(running.collect(rpc, place, start=start_block, last=to_block))
        return evidence, write_bundle(file, evidence)

    evidence, content = guarded(write)
    if as_json:
        typer.echo(json.dumps({"file": str(file), "content": content, **_block(evidence)}, indent=2))
        return
    typer.echo(f"{file}: {len(evidence.logs)} logs, {len(evidence.transactions)} transactions, content {content}")
    typer.echo(f"up to block {evidence.last.number}, hash 0x{evidence.last.hash.hex()}")


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A bundle of `troth audit export`.")],
    *,
    task_id: Annotated[str | None, typer.Option("--task", envvar="TROTH_TASK", help="Only this task.")] = None,
    check: CheckOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-check the tasks of a bundle. Asks no network, so compare the printed block hashes with a trusted source."""
    wanted, only = None if task_id is None else read_task(task_id), read_checks(check)
    report, evidence, content = guarded(lambda: running.audit_bundle(file, wanted, only))
    blocks = [{"number": number, "hash": _hex(evidence.headers[number].hash)} for number in sorted(evidence.headers)]
    lines = [f"bundle {file}, content {content}"]
    lines.append(f"{len(blocks)} blocks; `--json` lists all their hashes to compare")
    finish(report, reproduction.from_bundle(file), as_json, lines, {"content": content, "blocks": blocks})


market_command.add_to(app)


def _block(evidence: Evidence) -> dict[str, Any]:
    return {"last_block": evidence.last.number, "last_block_hash": _hex(evidence.last.hash)}


def _hex(raw: bytes) -> str:
    return "0x" + raw.hex()
