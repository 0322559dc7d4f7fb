"""The process of a dishonest node: `python -m adversaries.node --home FOLDER --notes FOLDER`.

It is the shipped node, with its configuration, keys, channel, records and watchdog; the parts named here are replaced.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path

from adversaries.conspiracy import ConspiringService, ConspiringTraces, ConspiringWatchdog
from adversaries.deceits import DECEITS, HONEST, Deceit
from adversaries.impostor import Impostor
from adversaries.notes import Notes
from adversaries.sessions import Session
from adversaries.workshop import Workshop
from troth.chain.keystore import Key, load_account
from troth.chain.passwords import read_password
from troth.node.configuration import Configuration, load
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.loading import load_engine
from troth.node.parts import Parts
from troth.node.running import RunningNode
from troth.overlay.logs import configure
from troth.protocol.types import ExecutionClass, ModelDescriptor


def dishonest_parts(me: Key, notes: Notes) -> Parts:
    """The parts of a node that cheats in the tasks of which its notes speak."""

    def deceit_of(task: bytes) -> Deceit:
        cheat = notes.cheat(task, me.address)
        return HONEST if cheat is None else DECEITS[cheat]

    def session_for(shop: Workshop, key: SessionKey) -> Session:
        return deceit_of(key.task_id).session(shop, key)

    def impostor(
        configuration: Configuration, execution_class: ExecutionClass, descriptor: ModelDescriptor, *, verify: bool
    ) -> Impostor:
        honest = load_engine(configuration, execution_class, descriptor, verify=verify)
        assert isinstance(honest, TorchEngine)
        return Impostor(Workshop(honest, configuration), session_for)

    return Parts(
        engine=impostor,
        traces=partial(ConspiringTraces, me=me.address, deceit_of=deceit_of),
        service=partial(ConspiringService, notes=notes, deceit_of=deceit_of),
        watchdog=partial(ConspiringWatchdog, deceit_of=deceit_of),
    )


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--notes", type=Path, required=True)
    arguments = parser.parse_args()
    configure("INFO")
    configuration = load(arguments.home)
    key = load_account(configuration.operator_keystore, read_password(purpose="the operator's keystore"))
    parts = dishonest_parts(key, Notes(arguments.notes))

    async def serve() -> None:
        # It has the registered weights and need not prove it to itself.
        await RunningNode(configuration, key, verify_weights=False, parts=parts).run()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
