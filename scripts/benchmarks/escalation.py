"""Proofs of a wrong token: their gas, and whom they convict, on SmolLM2's own states and weights.

Gas is a transaction's on anvil, with what its calldata costs at least (EIP-7623): an answer of 16 tokens with the
forged one at its end or beginning. SmolLM2's weights lie in float32 here. Heads of 3,584 columns are made up, and so
are their states; the bfloat16 one lies in bfloat16, as such models do.

What honest nodes have to fear is measured beside it: ``honest_tokens``, ``honest_disputes`` and ``honest_games``.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from conftest import anvil_process
from support.tabs_stage import execution_class_of, following, tabs_stage
from support.wrong_token_scene import Wording, WrongTokenScene, describe, named, write_model

from benchmarks.figures import Figure
from benchmarks.honest_disputes import measure_disputes
from benchmarks.honest_games import measure_games
from benchmarks.honest_tokens import measure_tokens
from benchmarks.imprints import hidden_figures
from benchmarks.weights import packed_weights, weights
from troth.cases.courtroom import LiveCourtroom
from troth.node.court.accusing import AccusedText, accuse
from troth.node.models.folder import ModelFolder
from troth.protocol import vrf
from troth.protocol.market.parts import Part
from troth.protocol.tensors import Dtype

WRITTEN = 16
WIDE = (4_096, 3_584)
PROMPTS = 4


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """``--no-gas``, ``--no-hidden``, ``--no-honest``: leave a part out; ``--prompts N``: weigh the tokens of N honest
    texts, ``--disputes N``: the rows of N more of ``--positions`` tokens, ``--games N``: play N honest disputes on a
    chain. All three go on where they were stopped."""
    parser = argparse.ArgumentParser(prog="scripts/bench escalation", description=__doc__)
    parser.add_argument("--no-gas", action="store_true")
    parser.add_argument("--no-hidden", action="store_true")
    parser.add_argument("--no-honest", action="store_true")
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--disputes", type=int, default=0)
    parser.add_argument("--positions", type=int, default=32)
    parser.add_argument("--games", type=int, default=0)
    chosen = parser.parse_args(list(options))
    figures: list[Figure] = []
    if not chosen.no_gas:
        figures += asyncio.run(_gas())
    if not chosen.no_hidden:
        figures += asyncio.run(hidden_figures())
    if not chosen.no_honest:
        figures += measure_tokens(chosen.prompts)
    if chosen.disputes:
        figures += measure_disputes(chosen.disputes, chosen.positions)
    if chosen.games:
        figures += measure_games(chosen.games)
    return figures


# ------------------------------------------------------------------------------------------------------------------ gas


async def _gas() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory() as made:
        wide = write_model(Path(made) / "wide", *WIDE)
        packed = write_model(Path(made) / "packed", *WIDE, bfloat16=True)
        for folder, dtype, lie, reach in (
            (weights(), Dtype.FLOAT32, "float32", 400_000),
            (weights(), Dtype.BFLOAT16, "float32", 400_000),
            (packed_weights(), Dtype.BFLOAT16, "bfloat16", 400_000),
            (wide, Dtype.FLOAT32, "float32", 2_400_000),
            (packed, Dtype.BFLOAT16, "bfloat16", 2_400_000),
        ):
            where = f"wrong token, {folder.config['hidden_size']} columns, {dtype.name.lower()}, weights in {lie}"
            async with _trial(folder, dtype, Path(made)) as trial:
                for what, wording in _wordings():
                    figures.append(Figure(f"{where}: {what}", await trial.convict(wording), "gas", reach=reach))
            async with _trial(folder, dtype, Path(made)) as trial:
                await trial.pay()
                what, wording = _wordings()[0]
                name = f"{where}: {what}, by who was paid before"
                figures.append(Figure(name, await trial.convict(wording), "gas", reach=reach))
    return figures


def _wordings() -> tuple[tuple[str, Wording], ...]:
    return (
        ("the last of 16, greedy", Wording(forged=WRITTEN - 1, rank=9, written=WRITTEN)),
        ("the first of 16, greedy", Wording(forged=0, rank=9, written=WRITTEN)),
        ("the last of 16, noise", Wording(800_000, forged=WRITTEN - 1, rank=9, written=WRITTEN)),
    )


@dataclass
class _Trial:
    scene: WrongTokenScene
    courtroom: LiveCourtroom

    async def pay(self) -> None:
        """Somebody pays the accuser, as every node that served a task was paid."""
        stage, account = self.scene.stage, self.courtroom.account
        await stage.send(stage.client, Part.BANK, "credit", account, 1, value=1)

    async def convict(self, wording: Wording) -> int:
        """Gas of the transaction."""
        stage = self.scene.stage
        evidence = self.scene.answer(wording)
        rows = evidence.rows[0].inside
        assert rows is not None
        text = AccusedText(evidence, stage.execution_class, stage.model, vrf.public_key(stage.vrf_secret), rows)
        call = accuse(text, self.scene.folder).build(stage.market.contracts, b"")
        mined = await self.courtroom.send(call)
        return int(stage.anvil.rpc("eth_getTransactionReceipt", "0x" + mined.transaction.hex())["gasUsed"], 16)


@asynccontextmanager
async def _trial(folder: ModelFolder, dtype: Dtype, home: Path) -> AsyncIterator[_Trial]:
    model = describe(folder, int(dtype))
    definition = named(execution_class_of(model, dtype=int(dtype), mantissa_bits=10 if dtype is Dtype.FLOAT32 else 7))
    with anvil_process() as anvil:
        async with (
            tabs_stage(anvil, model=model, execution_class=definition, nodes=1, tabs=False) as stage,
            following(stage) as follower,
        ):
            # What three convictions take.
            await stage.send(
                stage.owner_of(stage.nodes[0]), Part.REGISTRY, "topUp", stage.nodes[0].address, 4 * definition.penalty,
                value=4 * definition.penalty,
            )  # fmt: skip
            yield _Trial(
                WrongTokenScene(stage, folder, follower.block - 1),
                LiveCourtroom(stage.market, follower, anvil.keys[6]),
            )
