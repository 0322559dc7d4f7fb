"""`troth demo direct`: requests enter at a node of the model, which forwards each to whoever has its beginning."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from troth.demo import acts, direct_acts
from troth.demo.display import Display
from troth.demo.exact_play import READY_SECONDS, installed_engine
from troth.demo.gateway import LocalGateway
from troth.demo.network import LocalNetwork
from troth.demo.plan import Plan
from troth.demo.weights import prepare_model

LAYERS = 30
CANDIDATES, VERIFIERS = 2, 1
RELAYS = 12
"""Four paths of three."""
MEMBERS = 1
TOLD_SECONDS = 8.0
"""Until what a cache holds has reached the group: it is told every five seconds."""
STRANGERS = 6
"""Other conversations at most: the draw has to allow the node that holds their beginning, two times in three."""


def plan_of(engine: str) -> Plan:
    """As few nodes as a draw needs: each vLLM node takes half a minute, two gigabytes and several processes."""
    return Plan(
        slices=((0, LAYERS),), nodes_per_slice=CANDIDATES + VERIFIERS, candidates=CANDIDATES, verifiers=VERIFIERS,
        reviewers=VERIFIERS + 2, dtype="bfloat16", members=MEMBERS, relays=RELAYS, engine=engine, exact=True,
        direct=True,
    )  # fmt: skip


def play(folder: Path, models: Path, display: Display, engine: str, *, act: int = 1, tolerant_gas: int = 0) -> None:
    """Run everything below `folder`; processes end whatever happens.

    Args:
        engine: torch or vllm; vllm where it is installed if empty.
        act: the number of its heading.
        tolerant_gas: of a task of the tolerant class in the same run, to compare with; 0 for none.

    Raises:
        DemoError: something that must happen did not.
    """
    engine = engine or installed_engine()
    if engine == "torch":
        display.step(
            "vLLM is not installed here (`make vllm`): torch nodes play its part; they keep no prefixes, load decides"
        )
    plan = plan_of(engine)
    prepare_model(models, plan, display)
    with LocalNetwork(folder / "direct", models, plan, report=display.step, ready_seconds=READY_SECONDS) as network:
        display.act(act, f"Direct mode: {len(network.nodes)} whole nodes, engine {engine}, reached by the overlay")
        network.start()
        stage = acts.Stage(network, display, models)
        acts.deposit(stage)
        options = (stage.home.root, network.password_file, "--direct")
        gateway = LocalGateway.start(network.processes, *options)
        display.step(f"`troth client serve --direct` is ready at {gateway.address}/v1")
        spent = asyncio.run(_conversations(stage, gateway, keeps_prefixes=engine == "vllm"))
        beside = f"; {tolerant_gas:,} in the tolerant class, two segments" if tolerant_gas else ""
        display.good(f"all roots equal; {spent:,} gas a task on average{beside}")
        acts.audit_clean(stage)
    display.step(f"direct mode: done after {display.seconds:.0f} s")


async def _conversations(stage: acts.Stage, gateway: LocalGateway, *, keeps_prefixes: bool) -> int:
    """One conversation of two messages, then others with the same instructions; the mean gas of a task."""
    script = direct_acts.Script(stage, gateway)
    messages = [direct_acts.INSTRUCTIONS, {"role": "user", "content": direct_acts.OPENING}]
    first = await script.ask("a conversation begins", messages, expected="Paris")
    messages += [
        {"role": "assistant", "content": first.answer},
        {"role": "user", "content": direct_acts.FURTHER},
    ]
    second = await script.ask("it goes on", messages)
    script.require_affinity(first, second)
    for question in direct_acts.STRANGERS[:STRANGERS]:
        await asyncio.to_thread(time.sleep, TOLD_SECONDS)
        asked = await script.ask(
            "another conversation, under the same instructions",
            [direct_acts.INSTRUCTIONS, {"role": "user", "content": question}],
        )
        if not keeps_prefixes or asked.was_forwarded_to_its_prefix:
            break
    if keeps_prefixes:
        script.require_forwarded()
    return script.mean_gas
