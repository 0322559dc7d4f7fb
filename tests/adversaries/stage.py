"""The network of the adversaries: real weights, honest nodes as they are shipped, and processes that can cheat.

Every node hosts the whole model, so each can be drawn for every seat. Who is drawn follows from the order and from the
scheduler's VRF key; this stage holds that key, and signs orders until one is drawn as a trial needs it. Nobody without
the key can.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from adversaries.notes import Notes
from troth.chain import keystore
from troth.client.choices import Choices
from troth.client.ordering import SignedOrder, sign_order
from troth.client.session import Session
from troth.demo import acts, cli
from troth.demo.display import Display
from troth.demo.network import LocalNetwork
from troth.demo.parties import PASSWORD, READY_SECONDS, is_ready
from troth.demo.party import Party
from troth.demo.plan import Plan
from troth.demo.processes import Child, wait_until
from troth.demo.weights import prepare_models
from troth.protocol import vrf
from troth.protocol.assignment import assignment_alpha, draw
from troth.protocol.identifiers import group_id
from troth.protocol.types import Address, Hash32, Segment

TESTS = Path(__file__).resolve().parent.parent
MODELS = TESTS.parent / ".troth"
HONEST, ROGUES = 3, 4
VERIFIERS = 3
COMMIT_BLOCKS, SAMPLE_BLOCKS, REVEAL_BLOCKS = 600, 60, 30
"""Blocks pass while nodes compute, on a busy machine many: no window may be over before an honest party is done. Nobody
waits for the end of the commit window; those who are silent make one wait for that of the reveal or sample window."""
ORDERS = 2_000
WAITS = "[waits]\ntoken = 60\nopening = 4\n"
"""The scheduler's patience: much with a busy machine, little with openings that do not come."""
QUESTION = "Count from one to twenty in words."


@dataclass(slots=True)
class MixedNetwork(LocalNetwork):
    """A local network in which the last nodes are dishonest processes, and the scheduler as long as it is to be."""

    honest_scheduler: bool = True

    @property
    def notes(self) -> Notes:
        """What the dishonest processes read."""
        return Notes(self.home / "notes")

    @property
    def rogues(self) -> tuple[str, ...]:
        """Names of the dishonest nodes."""
        return tuple(self.nodes)[HONEST:]

    def start_node(self, name: str, *, model: Path | None = None, wait: bool = True) -> None:
        """Start one node: the shipped command, or the dishonest process."""
        if name not in self.rogues:
            LocalNetwork.start_node(self, name, model=model, wait=wait)
            return
        node = self.nodes[name]
        node.child = self._start_dishonest(node, "adversaries.node")
        if wait:
            self.wait_ready(name)

    def start_scheduler(self, *, wait: bool = True) -> None:
        """Start the shipped scheduler, with `WAITS`."""
        settings = self.scheduler.home / "scheduler.toml"
        if "[waits]" not in settings.read_text():
            settings.write_text(f"{settings.read_text()}\n{WAITS}")
        if self.honest_scheduler:
            LocalNetwork.start_scheduler(self, wait=wait)
        else:
            self.scheduler.child = self._start_dishonest(self.scheduler, "adversaries.scheduler")

    def replace_scheduler(self) -> None:
        """From now on the scheduler is the dishonest process, with the same keys, stake and journal."""
        assert self.scheduler.child is not None
        self.scheduler.child.stop()
        self.honest_scheduler = False
        self.start_scheduler()
        endpoint, started = self.scheduler.endpoint, [self.scheduler.child]
        wait_until(lambda: is_ready(endpoint), "the dishonest scheduler becoming ready", READY_SECONDS, started)

    def _start_dishonest(self, party: Party, module: str) -> Child:
        environment = cli.environment(self.password_file)
        environment["PYTHONPATH"] = f"{TESTS}:{environment.get('PYTHONPATH', '')}".rstrip(":")
        command = [sys.executable, "-m", module, "--home", str(party.home), "--notes", str(self.notes.folder)]
        return self.processes.start(party.name, command, environment)


@dataclass
class AdversaryStage:
    """The running network and the client that asks."""

    network: MixedNetwork
    client: acts.Stage

    @cached_property
    def vrf_secret(self) -> bytes:
        """The scheduler's, to look a draw up beforehand."""
        return keystore.load_vrf_secret(self.network.vrf_keystore, PASSWORD.strip())

    @cached_property
    def rogues(self) -> frozenset[str]:
        """Operators of the dishonest nodes."""
        return frozenset(self.network.nodes[name].operator for name in self.network.rogues)

    def name(self, operator: str) -> str:
        """A readable name."""
        return self.client.names().get(operator, operator).removeprefix("node ")

    async def drawn_order(
        self,
        ready: Session,
        choices: Choices,
        *,
        rogue_inferencer: bool | None,
        rogue_verifiers: int,
        ends: bool = True,
    ) -> tuple[SignedOrder, tuple[Address, ...]]:
        """An order whose draw seats so many dishonest nodes, and its parties: the inferencer first.

        With `rogue_inferencer` None any draw will do.
        """
        await ready.follower.catch_up()
        prompt = ready.language.prompt_tokens([{"role": "user", "content": QUESTION}])
        end_tokens = ready.language.end_tokens if ends else ()
        reference = ready.follower.block - 1
        for _ in range(ORDERS):
            signed = sign_order(
                ready.offer, prompt, end_tokens, choices, self.client.key, ready.chain.domain, reference
            )
            parties = self._draw(ready, signed)
            seated = [party in self.rogues for party in parties]
            if rogue_inferencer is None or (seated[0] == rogue_inferencer and sum(seated[1:]) == rogue_verifiers):
                return signed, parties
        raise AssertionError(f"no draw in {ORDERS} seats {rogue_verifiers} dishonest verifiers")

    def _draw(self, ready: Session, signed: SignedOrder) -> tuple[Address, ...]:
        whole = Segment(0, ready.offer.model.layers)
        reference = signed.order.reference_block
        members = ready.follower.state.groups[group_id(ready.offer.class_id, whole)].members_at(reference)
        alpha = assignment_alpha(
            ready.chain.domain, signed.task_id, 0, group_size=len(members), reference_block=reference
        )
        return draw(Hash32(vrf.proof_to_hash(vrf.prove(self.vrf_secret, alpha))), members, 1 + VERIFIERS)


@contextmanager
def adversary_stage(folder: Path) -> Iterator[AdversaryStage]:
    """The network, up and funded; everything ends with the block."""
    plan = Plan(
        slices=((0, 30),),
        nodes_per_slice=HONEST + ROGUES,
        candidates=1,
        verifiers=VERIFIERS,
        block_seconds=0.5,
        windows=(COMMIT_BLOCKS, SAMPLE_BLOCKS, REVEAL_BLOCKS, 60, 4_000),
    )
    # Standard output is for tables, as Markdown or JSON.
    display = Display(Console(stderr=True))
    prepare_models(MODELS, plan, display)
    with MixedNetwork(folder / "network", MODELS, plan, report=lambda line: None) as network:
        network.start()
        client = acts.Stage(network, display, MODELS)
        acts.deposit(client)
        yield AdversaryStage(network, client)
