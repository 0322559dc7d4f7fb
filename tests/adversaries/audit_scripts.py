"""Receipts that are forged, and logs that leave out or change what was promised: `troth audit` as it ships."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from adversaries.network import LOG_SECONDS
from adversaries.registry import FOUND
from adversaries.trial import Trial
from troth.client.orders.evidence import served_of
from troth.client.orders.receipts import proof_of
from troth.protocol.market import receipt
from troth.protocol.market.receipt import Receipt
from troth.protocol.types import Hash32, address_from_bytes

TROTH = str(Path(sys.executable).parent / "troth")
VIOLATION = 1
"""Exit code of an audit that found a cheat."""


async def another_answer(trial: Trial) -> None:
    """The file says another answer than the node signed."""

    def forge(found: Receipt) -> Receipt:
        first = found.results[-1]
        other = replace(first, message=replace(first.message, output_hash=Hash32(b"\x71" * 32)))
        return replace(found, results=(*found.results[:-1], other))

    await _forged(trial, forge)


async def another_check(trial: Trial) -> None:
    """The file shows the check of another answer."""
    other = await _proven(trial)
    trial.begin_anew()
    await _forged(trial, lambda found: replace(found, checks=other.checks))


async def without_its_draw(trial: Trial) -> None:
    """The file shows another secret, so that the answer looks as if it had not been drawn, and no check of it."""
    await _forged(trial, lambda found: replace(found, secret=Hash32(b"\x72" * 32), checks=()))


async def another_price(trial: Trial) -> None:
    """The file says that it cost less."""

    def forge(found: Receipt) -> Receipt:
        order = found.order
        return replace(found, order=replace(order, message=replace(order.message, written_price=1)))

    await _forged(trial, forge)


async def of_another_deployment(trial: Trial) -> None:
    """The file says that it is of a Bank where nobody could be convicted."""
    await _forged(trial, lambda found: replace(found, bank=address_from_bytes(b"\x73" * 20)))


async def _forged(trial: Trial, forge: Callable[[Receipt], Receipt]) -> None:
    """The honest file is clean, the forged one is not."""
    found = await _proven(trial)
    honest, _ = await _audit_receipt(trial, found, "honest")
    assert honest == 0, "the true receipt is not clean"
    trial.note_answered()
    code, said = await _audit_receipt(trial, forge(found), "forged")
    trial.found.said = said
    trial.note_end(FOUND if code == VIOLATION else f"exit code {code}")


async def _proven(trial: Trial) -> Receipt:
    await trial.ask(check="always")
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")
    session = trial.client.session
    return proof_of(trial.entry, session.state, session.domain)


async def _audit_receipt(trial: Trial, found: Receipt, name: str) -> tuple[int, str]:
    path = trial.network.plan.root / f"{name} {trial.order.hex()[:12]}.receipt"
    path.write_bytes(receipt.encode(found))
    code, told = await _troth("audit", "receipt", str(path), "--json")
    return code, "; ".join(_findings(told))


# ------------------------------------------------------------------------------------------------------------- the log


async def leaves_out(trial: Trial) -> None:
    """The client holds the promise, the posted entry has no such leaf."""
    await _log_audited(trial, "M17")


async def serves_another(trial: Trial) -> None:
    """What is served is not what was posted."""
    await _log_audited(trial, "M13")


async def _log_audited(trial: Trial, check: str) -> None:
    """An answer, its promised entry on chain, and an audit of the scheduler's log with what the client was promised."""
    await trial.ask(check="always")
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")
    served = served_of(trial.entry)
    assert served is not None
    promise = served.lottery.inclusion
    assert promise is not None, "nothing was promised"
    scheduler, state = trial.network.scheduler, trial.network.follower
    await asyncio.sleep(LOG_SECONDS)
    await trial.until(lambda: state.state.head_of(scheduler)[0] >= promise.message.entry, "the entry on chain")
    path = trial.network.plan.root / f"promise {trial.order.hex()[:12]}"
    words = promise.message
    said = {"order": words.order, "leaf": words.leaf}
    line = {name: "0x" + bytes(one).hex() for name, one in {**said, "signature": promise.signature}.items()}
    path.write_text(json.dumps({**line, "entry": words.entry}) + "\n")
    place = trial.network.stage.market.place
    named = ("--factory", place.factory, "--bank", place.contracts.bank, "--rpc", trial.network.plan.rpc)
    trial.note_answered()
    code, told = await _troth("audit", "log", scheduler, *named, "--promises", str(path), "--check", check, "--json")
    findings = _findings(told)
    about = [one for one in findings if trial.order.hex() in one or f"Entry {words.entry}:" in one]
    trial.found.said = "; ".join(about or findings)
    trial.note_end(FOUND if code == VIOLATION and about else f"exit code {code}")


def _findings(told: str) -> list[str]:
    """What an audit says that it found."""
    return [f"{one['check']} {one['message']} {one['task']}" for one in json.loads(told)["findings"]]


async def _troth(*arguments: str) -> tuple[int, str]:
    """A command as it ships, in a process of its own; its exit code and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        TROTH, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        another_answer,
        another_check,
        without_its_draw,
        another_price,
        of_another_deployment,
        leaves_out,
        serves_another,
    )
}
