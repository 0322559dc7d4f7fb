"""The main job, played on a local network: an honest answer, a caught cheat, an audit of both."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from troth.chain import keystore
from troth.client.asking import Assigned, Finished, Posted, Text, Verdict, ask
from troth.client.chain_view import view
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.money import format_amount
from troth.client.ordering import Choices, SignedOrder
from troth.client.session import Session, session
from troth.client.template import Message
from troth.demo import cli
from troth.demo.anvil import fund, gas_used
from troth.demo.display import Display
from troth.demo.errors import ActFailed, demand
from troth.demo.gateway import LocalGateway, Streamed
from troth.demo.network import PASSWORD, LocalNetwork
from troth.demo.party import Party
from troth.demo.plan import ETHER
from troth.demo.task_tables import gas_table, money_table
from troth.protocol import vrf
from troth.protocol.assignment import assignment_alpha, draw
from troth.protocol.events import Slashed, TaskAssigned, TaskCommitted, TaskOpened, TaskSettled
from troth.protocol.identifiers import group_id
from troth.protocol.settlement import SlashReason
from troth.protocol.state import State
from troth.protocol.types import Address, Hash32, segments_from_ends

DEPOSIT = "0.05ether"
MAX_TOKENS = 48
CHEAT_TOKENS = 16
KILL_AFTER_PIECES = 3
FOLLOW_SECONDS = 60.0
STEPS = ((TaskOpened, "opened"), (TaskCommitted, "committed"), (TaskSettled, "settled"))


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
        overlay = self.network.overlay
        committee = overlay.committee if overlay is not None else ""
        return Configuration(self.network.contract, self.network.rpc, committee=committee)

    def relay_at(self, address: str) -> Party:
        """The relay with this host:port."""
        assert self.network.overlay is not None
        return self.network.overlay.relay_at(*address.rsplit(":", 1))

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
    options: tuple[object, ...] = ("--home", home, "--contract", network.contract, "--rpc", network.rpc)
    if network.overlay is not None:
        options += ("--committee", network.overlay.committee)
    cli.run(network.password_file, "client", "init", *options, "--import-key", keyfile)
    done = cli.run(network.password_file, "client", "deposit", DEPOSIT, "--home", home, "--broadcast")
    stage.display.step(f"the client {stage.key.address} deposits {DEPOSIT} ({done['gas']:,} gas)")


def start_gateway(stage: Stage) -> LocalGateway:
    """Act 1, second half: the gateway that any OpenAI client can talk to, on circuits through the relays."""
    network = stage.network
    gateway = LocalGateway.start(network.processes, stage.home.root, network.password_file)
    paths = gateway.paths()
    stage.display.step(f"`troth client serve` is ready at {gateway.address}/v1, over {len(paths)} paths of relays:")
    for path in paths:
        stage.display.step(f"  {' → '.join(_relay(stage, address) for address in path)} → scheduler")
    return gateway


def honest_question(stage: Stage, gateway: LocalGateway, question: str) -> Played:
    """Acts 1 and 2: a question through gateway and overlay, of which two paths are cut in the middle of the answer."""
    stage.display.step(f"question: {question}")
    pieces: list[str] = []

    def shown(piece: str) -> None:
        stage.display.piece(piece)
        pieces.append(piece)
        if len(pieces) == KILL_AFTER_PIECES and stage.network.overlay is not None:
            stage.display.line()
            _cut_two_paths(stage, gateway)

    streamed = gateway.ask(question, MAX_TOKENS, shown)
    stage.display.line()
    demand(len(pieces) > KILL_AFTER_PIECES, "the relays were killed in the middle of the answer", len(pieces))
    stage.display.step(f"whole, in {len(pieces)} pieces; receipt: {streamed.receipt}")
    return asyncio.run(settled(stage, gateway, streamed))


def _cut_two_paths(stage: Stage, gateway: LocalGateway) -> None:
    """kill -9 for the middle of one path and the proxy of another."""
    first, second = gateway.paths()[:2]
    for address in (first[1], second[2]):
        relay = stage.relay_at(address)
        assert relay.child is not None
        relay.child.process.kill()
        stage.display.step(f"kill -9 {relay.name}, in the middle of the answer")


def _relay(stage: Stage, address: str) -> str:
    return stage.relay_at(address).name


async def settled(stage: Stage, gateway: LocalGateway, streamed: Streamed, *, tables: bool = True) -> Played:
    """What the chain says of an answer that came through the gateway, once it has decided.

    `tables`: print gas by step and who was paid.
    """
    receipt = await asyncio.to_thread(gateway.receipt, streamed)
    task = Hash32(bytes.fromhex(streamed.task[2:]))
    async with view(stage.home, stage.configuration) as (_, follower):
        record = (await follower.wait_until(lambda state: _decided(state, task), FOLLOW_SECONDS)).tasks[task]
    for event in record.events:
        if isinstance(event, TaskAssigned):
            _show_draw(stage, event.parties, len(event.betas))
    entry = receipt["tasks"][0]
    gas = {
        step: gas_used(stage.network.rpc, "0x" + event.meta.transaction.hex())
        for event in record.events
        for kind, step in STEPS
        if isinstance(event, kind)
    }
    played = Played(streamed.task, streamed.text, str(entry["outcome"]), int(entry["paid_wei"]), gas)
    _note_slashes(played, record.events)
    if tables:
        _show_money(stage, played, record.events)
    return played


def _decided(state: State, task: Hash32) -> bool:
    record = state.tasks.get(task)
    return record is not None and record.outcome is not None


def _show_draw(stage: Stage, parties: Sequence[str], segments: int) -> None:
    names, plan = stage.names(), stage.network.plan
    each = len(parties) // segments
    for segment in range(segments):
        drawn = [names.get(one, one).removeprefix("node ") for one in parties[segment * each : (segment + 1) * each]]
        candidates, verifiers = " ".join(drawn[: plan.candidates]), " ".join(drawn[plan.candidates :])
        stage.display.step(f"segment {segment}: candidates {candidates}; verifiers {verifiers}")


def _note_slashes(played: Played, events: Sequence[object]) -> None:
    played.slashed = [
        event.operator for event in events if isinstance(event, Slashed) and event.reason == SlashReason.REJECTED
    ]


def _show_money(stage: Stage, played: Played, events: Sequence[object]) -> None:
    gas_table(stage.display.console, played.gas)
    money_table(stage.display.console, events, stage.names())
    stage.display.step(f"verdict: {played.outcome}; the client paid {format_amount(played.cost)}")


async def plain_question(stage: Stage, messages: Sequence[Message], max_tokens: int) -> Played:
    """One question of a conversation, from the client's library."""
    async with session(stage.home, stage.configuration) as ready:
        return await _play(stage, ready, await ready.prepare(messages, Choices(max_tokens), stage.key))


async def cheated_question(stage: Stage, question: str) -> Played:
    """Act 3: the same, after the machines drawn for the last segment have changed to int8 weights.

    The question goes over the overlay as well, from the client's library rather than from the gateway: the demo must
    know the order before anybody is asked. The draw follows from the order and from the scheduler's key alone. The demo
    holds that key, so it can look the draw up and have exactly the drawn candidates cheat. Nobody without the key can.
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
        demand(code == expected, f"`troth audit task` exits {expected} for the {played.outcome} task", code)
        stage.display.good(f"troth audit task {played.task_id[:10]}… exits {code}")
    liar = cheated.slashed[0]
    _, as_json = _audit(stage, "task", cheated.task_id, "--json")
    demand(liar.lower() in as_json.lower(), "the audit names the party that was slashed", liar)
    stage.display.good(f"the audit names {stage.names()[liar]} ({liar})")
    code, report = _audit(stage, "chain")
    stage.display.console.print(report, markup=False, soft_wrap=True)
    demand(code == 1, "`troth audit chain` exits 1: it holds one proven violation", code)


async def _play(stage: Stage, ready: Session, signed: SignedOrder) -> Played:
    display = stage.display
    played = Played("0x" + signed.task_id.hex(), "", "", 0)
    async for update in ask(ready, signed):
        match update:
            case Assigned(assignment):
                _show_draw(stage, [one for parties in assignment.parties for one in parties], len(assignment.parties))
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
    _note_slashes(played, ready.follower.state.tasks[signed.task_id].events)
    _show_money(stage, played, ready.follower.state.tasks[signed.task_id].events)
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
    demand(played.outcome == "accepted", "the honest task is accepted", played.outcome)
    demand(word.lower() in played.answer.lower(), f"the answer names {word}", played.answer)
    demand(not played.slashed, "nobody honest is slashed", played.slashed)
    demand(played.cost > 0, "the client paid the fee", played.cost)


def audit_clean(stage: Stage) -> None:
    """Re-check everything on the chain, and demand that nothing is found."""
    code, report = _audit(stage, "chain")
    stage.display.console.print(report, markup=False, soft_wrap=True)
    demand(code == 0, "`troth audit chain` exits 0", code)


def require_rejected(played: Played) -> None:
    """What act 3 must have shown."""
    demand(played.outcome == "rejected", "the int8 task is rejected", played.outcome)
    demand(len(played.slashed) == 1, "exactly the int8 inferencer is slashed", played.slashed)
    demand(played.cost == 0, "the client gets its money back", played.cost)
