"""`troth node dispute`: have a settled segment verified again, with a dry run that says what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.chain.keystore import load_account
from troth.chain.passwords import read_password
from troth.node.configuration import load
from troth.node.errors import ConfigError
from troth.node.keyfiles import run
from troth.node.transactions import carry_out
from troth.protocol import calls
from troth.protocol.calls import views
from troth.protocol.disputable import dispute_of
from troth.protocol.settlement import Outcome
from troth.protocol.types import Hash32

DIGITS = 64


def dispute(
    home: Path, task: str, segment: int | None, password_file: Path | None, *, broadcast: bool
) -> dict[str, Any]:
    """Dispute with the operator's key; JSON values, amounts in wei as text.

    Raises:
        NotDisputable: nothing can be disputed; says why.
        ChainRejected: the contract refuses it, in a dry run as well.
    """
    configuration, id_ = load(home), task_id_of(task)
    key = load_account(configuration.operator_keystore, read_password(password_file, purpose="the operator"))

    async def send() -> dict[str, Any]:
        async with (
            await Chain.connect(configuration.rpc, configuration.contract, chain_id=configuration.chain_id) as chain,
            EventFollower(chain, None, start_block=configuration.start_block) as follower,
        ):
            state = await follower.catch_up()
            window = (await chain.read(views.parameters_of())).dispute_window
            found = dispute_of(state, id_, segment, key.address, block=follower.block, window=window)
            call = calls.dispute(id_, found.record.task, found.settled, found.segment)
            told = await carry_out(chain, call, key, broadcast=broadcast)
            return {
                **told,
                "task": "0x" + id_.hex(),
                "segment": found.segment,
                "outcome": Outcome(found.settled.outcomes[found.segment]).name.lower(),
                "bond": str(found.bond),
                "bond_from": "stake" if found.party else "escrow",
                "lost_at_most": str(found.at_most),
                "last_block": found.last_block,
            }

    result: dict[str, Any] = run(send())
    return result


def task_id_of(text: str) -> Hash32:
    """A task id as people write it; ConfigError for anything else."""
    digits = text.lower().removeprefix("0x")
    if len(digits) != DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise ConfigError("this is no task id", text[:80], "It is 0x and 64 hex digits, as logs and receipts show it.")
    return Hash32(bytes.fromhex(digits))
