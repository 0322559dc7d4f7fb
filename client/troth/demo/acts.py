"""The main job, played on a local network: an honest answer, a caught cheat, an audit of both."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from troth.chain import keystore
from troth.client.asking import Assigned, Finished, Posted, Text, Verdict, ask
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.money import format_amount
from troth.client.ordering import Choices, SignedOrder
from troth.client.session import Session, session
from troth.demo import cli
from troth.demo.anvil import fund
from troth.demo.display import Display
from troth.demo.errors import ActFailed
from troth.demo.network import PASSWORD, LocalNetwork
from troth.demo.plan import ETHER
from troth.protocol import vrf
from troth.protocol.assignment import assignment_alpha, draw
from troth.protocol.events import Slashed
from troth.protocol.identifiers import group_id
from troth.protocol.settlement import SlashReason
from troth.protocol.types import Address, Hash32, segments_from_ends

DEPOSIT = "0.05ether"
MAX_TOKENS = 48
CHEAT_TOKENS = 16


@dataclass(slots=True)
class Played:
    """What one question showed."""

    task_id: str
    answer: str
    outcome: str
    cost: int
    gas: dict[str, int] = field(default_factory=dict)
    slashed: list[str] = field(default_factory=list)
    cheats: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Stage:
    """A running network, a client's home on it, and where to print."""

    network: LocalNetwork
    display: Display
    cheating_weights: Path
    key: keystore.Key = field(default_factory=keystore.Key.generate)

    @property
    def home(self) -> Home:
        """The client's files."""
        return Home(self.network.home / "client")

    @property
    def configuration(self) -> Configuration:
        """The client's configuration."""
        return Configuration(self.network.contract, self.network.rpc)

    def names(self) -> dict[str, str]:
        """Readable names of the addresses of this network."""
        network = self.network
        owner = keystore.address_in(network.owner_keystore)
        known = {party.operator: f"node {party.name}" for party in network.nodes.values()}
        return {
            **known,
            network.scheduler.operator: "scheduler",
            self.key.address: "client",
            str(owner): "reserve",
        }


def deposit(stage: Stage) -> None:
    """Act 1, first half: create a wallet and fill its escrow, through the commands a user has."""
    network, home = stage.network, stage.network.home / "client"
    keyfile = network.home / "keys" / "client.json"
    keystore.create_account(keyfile, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N, key=stage.key)
    fund(network.rpc, stage.key.address, ETHER)
    options = ("--home", home, "--contract", network.contract, "--rpc", network.rpc)
    cli.run(network.password_file, "client", "init", *options, "--import-key", keyfile)
    done = cli.run(network.password_file, "client", "deposit", DEPOSIT, "--home", home, "--broadcast")
    stage.display.step(f"the client {stage.key.address} deposits {DEPOSIT} ({done['gas']:,} gas)")


async def honest_question(stage: Stage, question: str) -> Played:
    """Acts 1 and 2: a question in words, its answer, and its settlement."""
    async with session(stage.home, stage.configuration) as ready:
        signed = await ready.prepare([{"role": "user", "content": question}], Choices(MAX_TOKENS), stage.key)
        stage.display.step(f"question: {question}   ({format_amount(ready.offer.fee)})")
        return await _play(stage, ready, signed)


async def cheated_question(stage: Stage, question: str) -> Played:
    """Act 3: the same, after the machines drawn for the last segment have changed to int8 weights.

    The draw follows from the order and from the scheduler's key alone. The demo holds that key, so it can look the draw
    up before anybody is asked, and have exactly the drawn candidates cheat. Nobody without the key can.
    """
    async with session(stage.home, stage.configuration) as ready:
        signed = await ready.prepare([{"role": "user", "content": question}], Choices(CHEAT_TOKENS), stage.key)
        candidates = _candidates(stage, ready, signed)
        cheats = [stage.network.node_of(operator).name for operator in candidates]
        stage.display.step(f"nodes {' and '.join(cheats)}, drawn for the last segment, now serve int8 weights")
        await asyncio.to_thread(_change_weights, stage, cheats, stage.cheating_weights)
        stage.display.step(f"question: {question}")
        played = await _play(stage, ready, signed)
    played.cheats = cheats
    return played


def restore_weights(stage: Stage, names: list[str]) -> None:
    """Let the cheats serve the registered weights again.

    Call this from the main thread: Linux ends a child with the thread that started it, and the cheats were started by
    one that is gone.
    """
    stage.display.step(f"nodes {' and '.join(names)} go back to the registered weights")
    _change_weights(stage, names, None)


def audit(stage: Stage, honest: Played, cheated: Played) -> None:
    """Act 4: re-check both tasks and the whole chain from events, and demand the right exit codes."""
    for played, expected in ((honest, 0), (cheated, 1)):
        code, report = _audit(stage, "task", played.task_id)
        stage.display.console.print(report, markup=False, soft_wrap=True)
        _demand(code == expected, f"`troth audit task` exits {expected} for the {played.outcome} task", code)
        stage.display.good(f"troth audit task {played.task_id[:10]}… exits {code}")
    liar = cheated.slashed[0]
    _, as_json = _audit(stage, "task", cheated.task_id, "--json")
    _demand(liar.lower() in as_json.lower(), "the audit names the party that was slashed", liar)
    stage.display.good(f"the audit names {stage.names()[liar]} ({liar})")
    code, report = _audit(stage, "chain")
    stage.display.console.print(report, markup=False, soft_wrap=True)
    _demand(code == 1, "`troth audit chain` exits 1: it holds one proven violation", code)


async def _play(stage: Stage, ready: Session, signed: SignedOrder) -> Played:
    display, names = stage.display, stage.names()
    played = Played("0x" + signed.task_id.hex(), "", "", 0)
    async for update in ask(ready, signed):
        match update:
            case Assigned(assignment):
                for segment, parties in enumerate(assignment.parties):
                    drawn = [names.get(party, party).removeprefix("node ") for party in parties]
                    count = assignment.candidate_count
                    display.step(
                        f"segment {segment}: candidates {' '.join(drawn[:count])}; verifiers {' '.join(drawn[count:])}"
                    )
                display.step("the draw's VRF proofs check out; the answer:")
            case Text(text):
                played.answer += text
                display.piece(text)
            case Finished(_, tokens):
                display.line()
                display.step(f"{tokens} tokens; the verifiers re-compute them by one prefill each")
            case Posted(step, transaction, gas):
                played.gas[step] = gas
                display.step(f"{step} on chain: {transaction[:18]}…")
            case Verdict(outcome, cost):
                played.outcome, played.cost = outcome, cost
    display.gas(played.gas)
    events = ready.follower.state.tasks[signed.task_id].events
    display.money(events, names)
    played.slashed = [
        event.operator for event in events if isinstance(event, Slashed) and event.reason == SlashReason.REJECTED
    ]
    display.step(f"verdict: {played.outcome}; the client paid {format_amount(played.cost)}")
    return played


def _candidates(stage: Stage, ready: Session, signed: SignedOrder) -> tuple[Address, ...]:
    secret = keystore.load_vrf_secret(stage.network.vrf_keystore, PASSWORD.strip())
    order, offer = signed.order, ready.offer
    segments = segments_from_ends(offer.ends, offer.model.layers)
    last = len(segments) - 1
    group = ready.follower.state.groups[group_id(offer.class_id, segments[last])]
    members = group.members_at(order.reference_block)
    alpha = assignment_alpha(
        ready.chain.domain, signed.task_id, last, group_size=len(members), reference_block=order.reference_block
    )
    beta = Hash32(vrf.proof_to_hash(vrf.prove(secret, alpha)))
    return draw(beta, members, offer.rules.candidates)


def _change_weights(stage: Stage, names: list[str], model: Path | None) -> None:
    for name in names:
        child = stage.network.nodes[name].child
        if child is not None:
            child.stop()
        stage.network.start_node(name, model=model, wait=False)
    for name in names:
        stage.network.wait_ready(name)


def _audit(stage: Stage, *arguments: str) -> tuple[int, str]:
    network = stage.network
    done = subprocess.run(
        cli.command("audit", *arguments, "--rpc", network.rpc, "--contract", network.contract),
        capture_output=True,
        text=True,
        env=cli.environment(network.password_file),
        timeout=cli.TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode not in {0, 1}:
        raise ActFailed(
            "The audit did not complete", f"exit code {done.returncode}", f"It said:\n{done.stdout}{done.stderr}"
        )
    return done.returncode, done.stdout


def require_accepted(played: Played, word: str) -> None:
    """What act 2 must have shown."""
    _demand(played.outcome == "accepted", "the honest task is accepted", played.outcome)
    _demand(word.lower() in played.answer.lower(), f"the answer names {word}", played.answer)
    _demand(not played.slashed, "nobody honest is slashed", played.slashed)
    _demand(played.cost > 0, "the client paid the fee", played.cost)


def require_rejected(played: Played) -> None:
    """What act 3 must have shown."""
    _demand(played.outcome == "rejected", "the int8 task is rejected", played.outcome)
    _demand(len(played.slashed) == 1, "exactly the int8 inferencer is slashed", played.slashed)
    _demand(played.cost == 0, "the client gets its money back", played.cost)


def _demand(held: bool, what: str, found: object) -> None:
    if not held:
        raise ActFailed(
            f"The demo expected that {what}", json.dumps(found, default=str), "Look into the logs with --keep."
        )
