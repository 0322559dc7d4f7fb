"""The process of several nodes: `python -m adversaries.nodes --plan FILE --name NAME NUMBER …`.

Each is the shipped node, with records, channel, court and keeper of its own behind its own TLS port; the parts that
`conspiracy` and `impostor` name are replaced. They share one set of weights, so that a machine holds twelve of them.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from adversaries.conspiracy import Conspiracy, ConspiringService, break_rules
from adversaries.impostor import Impostor
from adversaries.notes import Notes
from adversaries.plan import CONTEXT, POLL_SECONDS, Plan, key_of
from adversaries.sessions import Session
from adversaries.workshop import Workshop
from troth.chain.keystore import Key
from troth.node.configuration import NodeConfiguration
from troth.node.earning.policy import EarningPolicy
from troth.node.engine.interface import SessionKey
from troth.node.orders.running import MarketParts, RunningNode
from troth.node.orders.session import INFERS
from troth.protocol.market.parts import MarketPlace
from troth.protocol.types import Segment
from troth.transport.logs import configure

DEAR = 100.0
"""Times what it brings that a node pays for the gas of a redemption or a claim, where it is to collect all it is owed:
a tip costs more than a toy's answer."""


def configuration_of(plan: Plan, number: int) -> NodeConfiguration:
    """As `troth node init` writes it."""
    folder, port = plan.home(f"node {number}"), plan.ports[number]
    return NodeConfiguration(
        folder=folder,
        rpc=plan.rpc,
        chain_id=31337,
        poll_seconds=POLL_SECONDS,
        execution_class=plan.execution_class,
        model=plan.model or "toy",
        slice=Segment(0, plan.ends[-1]),
        segments=plan.segments,
        operator_keystore=folder / "unused.json",
        host="127.0.0.1",
        port=port,
        endpoint=f"https://127.0.0.1:{port}",
        engine="torch",
        device="cpu",
        threads=1,
        cache_bytes=1 << 30,
        sessions=16,
        positions=CONTEXT,
        trace_bytes=1 << 30,
        market=MarketPlace(*plan.addresses),
        earning=EarningPolicy(gas_share=DEAR) if plan.collects else EarningPolicy(),
    )


def honest_engine(plan: Plan) -> Any:
    """The weights that all nodes of this process serve, or the toy."""
    if not plan.model:
        from support.toy_engine import ToyEngine

        return ToyEngine()
    from troth.node.engine.torch_engine import TorchEngine
    from troth.node.models.folder import open_folder

    return TorchEngine(open_folder(Path(plan.model)), Segment(0, plan.ends[-1]), 0, threads=1)


def made(plan: Plan, number: int, shop: Workshop, conspiracy: Conspiracy) -> RunningNode:
    """One node."""
    key: Key = key_of(f"node {number}")

    def session_for(workshop: Workshop, name: SessionKey, cache: SessionKey) -> Session:
        if len(name.task_id) != 32:
            return Session(workshop, cache)  # a review in court
        infers = name.attempt == INFERS
        deceit = conspiracy.deceit(name.task_id, name.segment, key.address, infers=infers)
        return deceit.session(workshop, cache)

    def engine(*_arguments: Any, **_options: Any) -> Impostor:
        return Impostor(shop, key.address, session_for)

    parts = MarketParts(engine=engine, service=ConspiringService)
    return RunningNode(configuration_of(plan, number), key, verify_weights=False, parts=parts)


async def serve(plan: Plan, name: str, numbers: list[int]) -> None:
    """Serve until SIGTERM, which stops the node that started last, and with it all others."""
    conspiracy = Conspiracy(Notes(plan.notes))
    break_rules(conspiracy)
    shop = Workshop(honest_engine(plan), configuration_of(plan, numbers[0]))
    nodes = [made(plan, number, shop, conspiracy) for number in numbers]
    tasks = [asyncio.create_task(node.run()) for node in nodes]
    while not all(node._service for node in nodes):
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.05)
    for node in nodes:
        assert node._court is not None
        node._court.bringer.pause = 0.5
    plan.ready(name).touch()
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for node in nodes:
        node.stop()
    await asyncio.gather(*tasks)


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("numbers", type=int, nargs="+")
    arguments = parser.parse_args()
    configure("INFO")
    asyncio.run(serve(Plan.read(arguments.plan), arguments.name, arguments.numbers))


if __name__ == "__main__":
    main()
