"""One side of a dispute as a process of its own: what a node runs for it, over a chain that both sides share.

It knows a text from a file, follows the chain, computes traces on its own disk, and takes the turns that are its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from troth.chain.keystore import Key
from troth.chain.market import DeploymentPlace, Market
from troth.chain.market_follower import MarketFollower
from troth.node.court.canonical_traces import CanonicalTraces
from troth.node.court.dispute_chain import find_disputes
from troth.node.court.disputing import Disputant
from troth.node.court.opened_weights import OpenedWeights
from troth.node.court.segment_text import SegmentText
from troth.node.models.folder import open_folder
from troth.protocol.disputes.game import Matter
from troth.protocol.types import Hash32
from troth.testnet.forked import Forked, fork, preload, take_streams

Rows = NDArray[np.float32]
LAYER = 17
"""The layer in which cheats have something otherwise."""
PAUSE = 0.2

preload("support.dispute_party")


class CheapWeights(OpenedWeights):
    """A dishonest node's model: ``wrong`` one weight of one layer, ``int8`` all matrices, or a layer that is
    ``skipped``."""

    def __init__(self, folder: Path, cheat: str, layer: int) -> None:
        super().__init__(open_folder(folder))
        self._cheat, self._layer = cheat, layer

    def layer(self, number: int) -> Mapping[str, Rows]:
        tensors = {name: tensor.copy() for name, tensor in super().layer(number).items()}
        if self._cheat == "int8":
            return {name: _int8(tensor) for name, tensor in tensors.items()}
        if number != self._layer:
            return tensors
        prefix = f"{self.shape.layers}{number}."
        if self._cheat == "wrong":
            tensors[prefix + "mlp.down_proj.weight"][7, 11] = 2.0
        else:
            # What both parts add to the state is nothing.
            for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
                tensors[prefix + name][:] = 0
        return tensors


def _int8(tensor: Rows) -> Rows:
    if tensor.ndim == 1:
        return tensor
    step = np.abs(tensor).max(axis=1, keepdims=True) / 127
    return np.asarray(np.round(tensor / step) * step, np.float32)


@dataclass(frozen=True, slots=True)
class PartySettings:
    """``cheat`` empty: an honest one."""

    rpc: str
    place: DeploymentPlace
    key: Key
    model: Path
    folder: Path
    text: SegmentText
    cheat: str = ""
    layer: int = LAYER

    @property
    def weights(self) -> OpenedWeights:
        folder = open_folder(self.model)
        return CheapWeights(self.model, self.cheat, self.layer) if self.cheat else OpenedWeights(folder)


@dataclass(slots=True)
class Party:
    """A process that can be killed and started again."""

    name: str
    settings: PartySettings
    running: Forked | None = None

    def start(self) -> Party:
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        self.running = fork(run, (self.settings, str(self.settings.folder / "log")), self.name)
        return self

    def kill(self) -> None:
        """As kill -9 does."""
        assert self.running is not None
        os.kill(self.running.pid, signal.SIGKILL)
        assert self.running.wait(30) == -signal.SIGKILL

    @property
    def alive(self) -> bool:
        return self.running is not None and self.running.poll() is None

    @property
    def said(self) -> str:
        return (self.settings.folder / "log").read_text(errors="replace")


def run(settings: PartySettings, output: str) -> None:
    """In the new process, until it is killed."""
    take_streams(output, output)
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(_play(settings))


async def _play(settings: PartySettings) -> None:
    weights, key = settings.weights, settings.key

    async def text_of(matter: Matter) -> SegmentText | None:
        return settings.text if matter.order == settings.text.order else None

    async with (
        await Market.connect(settings.rpc, settings.place) as market,
        MarketFollower(market, poll_interval=PAUSE) as follower,
    ):
        await follower.catch_up()
        chain = await find_disputes(settings.rpc, market, follower, key)
        assert chain is not None
        traces = CanonicalTraces(settings.folder / "traces", lambda: weights)
        disputant = Disputant(chain, lambda: weights, traces, text_of)
        while True:
            await disputant.look()
            await asyncio.sleep(PAUSE)


def order_text(order: Hash32, salt: Hash32, tokens: NDArray[np.int64], rows: Rows) -> SegmentText:
    """What everybody who was sent the text knows of an order of one segment."""
    given = rows.astype("<f4").tobytes()
    return SegmentText(order, 0, salt, tuple(int(one) for one in tokens), None, given, rows.shape[1])
