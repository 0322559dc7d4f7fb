"""Proofs of a wrong token: their gas, and whom they convict, on SmolLM2's own states and weights.

Gas is a transaction's on anvil, with what its calldata costs at least (EIP-7623): an answer of 16 tokens with the
forged one at its end or beginning. SmolLM2's weights lie in float32 here. Heads of 3,584 columns are made up, and so
are their states; the bfloat16 one lies in bfloat16, as such models do.

Honest choices are those of the torch engine; each is compared with every other token of the vocabulary. The share of
the slack that the best rival uses says how far honest machines are from a conviction.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from conftest import anvil_process
from numpy.typing import NDArray
from support.tabs_stage import execution_class_of, following, tabs_stage
from support.wrong_token_scene import HEAD, Wording, WrongTokenScene, describe, named, write_model

from benchmarks.figures import Figure
from benchmarks.honest_disputes import measure_disputes
from benchmarks.imprints import hidden_figures
from benchmarks.weights import weights
from troth.cases.courtroom import LiveCourtroom
from troth.node.court.accusing import AccusedText, accuse
from troth.node.engine.head import find_head, head_numbers, slack_of
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import ModelFolder
from troth.protocol import vrf
from troth.protocol.market.parts import Part
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import noise
from troth.protocol.types import Hash32, Segment

WRITTEN = 16
WIDE = (4_096, 3_584)
PROMPTS, POSITIONS = 4, 128
TEMPERATURE = 0.8
DTYPES = (Dtype.FLOAT32, Dtype.BFLOAT16)


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """``--no-gas``, ``--no-hidden``, ``--no-honest``: leave a part out; ``--prompts``: of 128 tokens each;
    ``--disputes N``: weigh the rows of N honest texts of ``--positions`` tokens, going on where it was stopped."""
    parser = argparse.ArgumentParser(prog="scripts/bench escalation", description=__doc__)
    parser.add_argument("--no-gas", action="store_true")
    parser.add_argument("--no-hidden", action="store_true")
    parser.add_argument("--no-honest", action="store_true")
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--disputes", type=int, default=0)
    parser.add_argument("--positions", type=int, default=32)
    chosen = parser.parse_args(list(options))
    figures: list[Figure] = []
    if not chosen.no_gas:
        figures += asyncio.run(_gas())
    if not chosen.no_hidden:
        figures += asyncio.run(hidden_figures())
    if not chosen.no_honest:
        figures += asyncio.run(_honest(chosen.prompts))
    if chosen.disputes:
        figures += measure_disputes(chosen.disputes, chosen.positions)
    return figures


# ------------------------------------------------------------------------------------------------------------------ gas


async def _gas() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory() as made:
        wide = write_model(Path(made) / "wide", *WIDE)
        packed = write_model(Path(made) / "packed", *WIDE, bfloat16=True)
        for folder, dtype, reach in (
            (weights(), Dtype.FLOAT32, 400_000),
            (weights(), Dtype.BFLOAT16, 400_000),
            (wide, Dtype.FLOAT32, 2_400_000),
            (packed, Dtype.BFLOAT16, 2_400_000),
        ):
            async with _trial(folder, dtype, Path(made)) as trial:
                columns = folder.config["hidden_size"]
                for what, wording in _wordings():
                    name = f"wrong token, {columns} columns, {dtype.name.lower()}: {what}"
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


# --------------------------------------------------------------------------------------------------------------- honest


async def _honest(prompts: int) -> list[Figure]:
    figures = []
    for dtype in DTYPES:
        figures += await _honest_in(dtype, prompts)
    return figures


@dataclass
class _Seen:
    """What is told of all positions: by how much the best rival of the honest choice is ahead, as a share of the slack;
    whether another choice was the exact one; and the same of the second-best token where a node had taken it."""

    shares: list[float]
    others: int
    caught: int
    pairs: int


async def _honest_in(dtype: Dtype, prompts: int) -> list[Figure]:
    folder = weights()
    engine = TorchEngine(folder, Segment(0, folder.layers), int(dtype), threads=1)
    seen = _Seen([], 0, 0, 0)
    try:
        source = np.random.default_rng(11)
        for number in range(prompts):
            text = await _written(engine, source.integers(100, 40_000, 8), number)
            rows, logits = text
            _compare(seen, folder, dtype, rows, logits, temperature=0.0 if number % 2 == 0 else TEMPERATURE)
    finally:
        await engine.close()
    name = dtype.name.lower()
    positions = len(seen.shares)
    return [
        Figure(f"honest tokens convicted, {name}", sum(one > 1 for one in seen.shares), "tokens", reach=0,
               note=f"{positions} positions, {seen.pairs:,} pairs"),
        Figure(f"the most of the slack that an honest token used, {name}", max(seen.shares), "of 1"),
        Figure(f"honest tokens that are not the exact choice, {name}", seen.others / positions, "of 1",
               note="a margin of zero would convict these"),
        Figure(f"second-best tokens convicted, {name}", seen.caught / positions, "of 1"),
    ]  # fmt: skip


async def _written(engine: TorchEngine, prompt: NDArray[Any], number: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and logits of a text that the model writes, so that states are those of real answers."""
    key = SessionKey(number.to_bytes(32), 0, 0)
    rows, inputs = [], prompt.astype(np.int64)
    logits: list[NDArray[Any]] = []
    start = 0
    while start < POSITIONS:
        computed = await engine.forward(key, engine.slice, start, inputs)
        start += len(inputs)
        made = (await engine.logits(computed.rows[-1:])).rows
        rows.append(computed.rows[-1:])
        logits.append(made)
        gumbel = noise(Hash32(number.to_bytes(32)), start, made.shape[1])
        inputs = np.array([int(np.argmax(made[0] + gumbel))], np.int64)
    await engine.forget(key)
    return np.concatenate(rows), np.concatenate(logits)


def _compare(
    seen: _Seen, folder: ModelFolder, dtype: Dtype, rows: NDArray[Any], logits: NDArray[Any], *, temperature: float
) -> None:
    states = widen(rows, dtype).astype(np.float64)
    exact, size = np.empty(logits.shape), np.empty(logits.shape)
    for first, part in head_numbers(find_head(folder, HEAD), int(dtype)):
        wide = part.astype(np.float64)
        exact[:, first : first + len(wide)] = states @ wide.T
        size[:, first : first + len(wide)] = np.abs(states) @ np.abs(wide).T
    slack = slack_of(exact, size, states.shape[1], int(dtype))
    for at, row in enumerate(logits):
        gumbel = temperature * noise(Hash32(b"\x07" * 32), at, len(row))
        honest, best = int(np.argmax(row + gumbel)), np.argsort(-(exact[at] + gumbel))[:2]
        seen.shares.append(_share(exact[at] + gumbel, slack[at], honest))
        seen.others += int(honest != best[0])
        seen.caught += int(_share(exact[at] + gumbel, slack[at], int(best[1])) > 1)
        seen.pairs += len(row) - 1


def _share(score: NDArray[np.float64], slack: NDArray[np.float64], token: int) -> float:
    """How much of the slack the best rival uses."""
    shares = (score - score[token]) / (slack + slack[token])
    return float(max(np.delete(shares, token).max(), 0.0))
