"""`troth committee start` with a [reputation] table on a whole network: real orders, a real model, and kill -9.

Members die by SIGKILL between two given steps of an epoch, scheduler and a node in the middle of it. They are started
again, the epoch is settled all the same, nobody asks a prompt twice or signs two updates.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support import dying, two_faced
from support.byte_language import END, TEMPLATE, VOCABULARY, tokenizer
from support.tiny_llama import model_folder, tiny_llama

from troth.chain import keystore
from troth.client.home import Home
from troth.client.orders.journal import RUNNING
from troth.client.orders.updates import OrderOutcome
from troth.testnet import cli
from troth.testnet.anvil import fund, rpc
from troth.testnet.asking import POLICY, Asker
from troth.testnet.display import Display
from troth.testnet.network import LAYERS, LocalNetwork
from troth.testnet.overlay import LocalOverlay
from troth.testnet.parties import ETHER, PASSWORD, NetworkPlan, PartyProcess, is_ready
from troth.testnet.weights import int8_name, prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(3600)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
MEMBERS, NODES, EPOCH, AGREEING, BOND, KILLED = 4, 9, 500, 260, "0.1ether", -9
SPELLING = tokenizer().to_str()
QUESTIONS = "SELECT question FROM orders"
UNDER_WAY = "SELECT COUNT(*) FROM orders WHERE phase IN ({})".format(", ".join(f"'{phase}'" for phase in RUNNING))
MOST_QUESTIONS = 26
RATING = (
    f"client = 'asking'\nprompts = 1\nleast = 1\ntokens = 16\nattempts = 1\nagreeing = {AGREEING}\ncharacters = 100\n"
)
SECONDS, LAST_DEATHS, MINED_AT_ONCE, HURRIED = 1500.0, 60.0, 5, 20


@dataclass
class RatingNetwork:
    """A network, and members that rate its nodes, each with a client and a tab of its own."""

    network: LocalNetwork
    overlay: LocalOverlay
    models: Path
    contract: str = ""
    start: int = 0
    tabs: list[str] = field(default_factory=list)

    @property
    def members(self) -> list[PartyProcess]:
        return self.overlay.members

    def owner(self, member: PartyProcess) -> Path:
        return self.network.home / "keys" / f"owner-{member.name}.json"

    def enroll(self) -> None:
        """The contract, and for each member its bond, its client and its tab."""
        network = self.network
        paid = ("--rpc", network.rpc, "--keystore", network.owner_keystore, "--broadcast")
        where = ("--committee", self.overlay.committee, "--factory", network.factory)
        terms = ("--epoch-blocks", EPOCH, "--bond", BOND)
        made = cli.run(network.password_file, "committee", "reputation", "deploy", *where, *terms, *paid)
        self.contract, self.start = made["reputation"], made["block"]
        for member in self.members:
            self._enroll(member)

    def _enroll(self, member: PartyProcess) -> None:
        network, owner = self.network, self.owner(member)
        network.account(owner)
        keystore.create_vrf_secret(member.home / "keys" / "vrf.json", PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N)
        paid = ("--rpc", network.rpc, "--reputation", self.contract, "--keystore", owner, "--broadcast")
        cli.run(network.password_file, "committee", "reputation", "enroll", *paid, "--home", member.home)
        self._client(member)
        with (member.home / "committee.toml").open("a") as file:
            file.write(f"\n[reputation]\ncontract = '{self.contract}'\nstart_block = {self.start}\n{RATING}")

    def _client(self, member: PartyProcess) -> None:
        network, home, keyfile = self.network, member.home / "asking", member.home / "wallet.json"
        key = keystore.Key.generate()
        keystore.create_account(keyfile, PASSWORD.strip(), scrypt_n=keystore.DEMO_SCRYPT_N, key=key)
        fund(network.rpc, key.address, ETHER)
        named = ("--execution-class", network.execution_class, "--import-key", keyfile)
        place = ("--home", home, "--factory", network.factory, "--rpc", network.rpc)
        cli.run(network.password_file, "client", "init", *place, *named)
        path, model = Home(home).configuration, self.models / "models" / network.plan.model
        text = path.read_text()
        for name, value in {**POLICY, "model": json.dumps(str(model))}.items():
            text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
            text = text if count else f"{text}{name} = {value}\n"
        path.write_text(text)
        whom = ("--scheduler", network.scheduler.operator, "--home", home)
        opened = cli.run(network.password_file, "client", "open", "0.05ether", *whom, "--broadcast")
        self.tabs.append(opened["tab"])

    def start_member(self, member: PartyProcess, command: list[str] | None = None) -> None:
        own = cli.command("committee", "start", "--home", member.home)
        environment = cli.environment(self.network.password_file)
        member.child = self.network.processes.start(member.name, command or own, environment)

    # ---- dying

    def doom(self, where: str, *, after: bool) -> None:
        """Start every member again so that it dies where it first comes to a place."""
        for member in self.members:
            assert member.child is not None
            member.child.stop()
            self.start_member(member, dying.command(where, "committee", "start", "--home", member.home, after=after))

    def renew(self) -> None:
        """Start every member again, to live: some that were to die did not come to the place, or die just now."""
        for member in self.members:
            assert member.child is not None
            member.child.stop()
            self.start_member(member)

    def tend(self) -> list[str]:
        """Start again whoever was killed, this time to live; their names."""
        dead = [member for member in self.members if member.child is not None and not member.child.alive]
        for member in dead:
            assert member.child is not None
            assert member.child.process.returncode == KILLED, member.child.tail()
            self.start_member(member)
        return [member.name for member in dead]

    def questions(self) -> Counter[str]:
        """How many orders there are for each question of each member, by their clients' journals."""
        # Members' own attempts have the same names.
        return Counter(f"{name} {question}" for name, question in self._asked(QUESTIONS))

    def _asked(self, query: str) -> Iterator[tuple[str, Any]]:
        """What each member's client has in its journal."""
        for member in self.members:
            database = sqlite3.connect(f"file:{Home(member.home / 'asking').tabs}?mode=ro", uri=True)
            try:
                yield from ((member.name, found) for (found,) in database.execute(query).fetchall())
            finally:
                database.close()

    # ---- looking

    def shown(self) -> dict[str, Any]:
        place = ("--rpc", self.network.rpc, "--reputation", self.contract, "--start-block", self.start)
        told: dict[str, Any] = cli.run(self.network.password_file, "committee", "reputation", "show", *place)
        return told

    def block(self) -> int:
        return int(str(rpc(self.network.rpc, "eth_blockNumber")), 16)

    def skip_to(self, epoch: int) -> None:
        """Nobody waits for blocks in which nothing happens."""
        while (left := self.start + epoch * EPOCH - self.block()) > 0:
            rpc(self.network.rpc, "anvil_mine", hex(min(left, MINED_AT_ONCE)))

    def hurry(self, epoch: int) -> None:
        """Nor for the next question, while all are up, none is under way and there is time left to ask."""
        left = self.start + (epoch + 1) * EPOCH - AGREEING - self.block()
        if left <= MINED_AT_ONCE or sum(count for _, count in self._asked(UNDER_WAY)):
            return
        if all(is_ready(party.endpoint) for party in (*self.members, self.network.scheduler)):
            rpc(self.network.rpc, "anvil_mine", hex(min(left, HURRIED)))

    def until(
        self, condition: Callable[[dict[str, Any]], bool], each: Callable[[], object] = lambda: None
    ) -> dict[str, Any]:
        """What is shown once it fulfils a condition; ``each`` is called at every look."""
        give_up = time.monotonic() + SECONDS
        while not condition(shown := self.shown()):
            assert time.monotonic() < give_up, f"{shown}\n{self.logs()}"
            each()
            time.sleep(1)
        return shown

    def epoch(self, each: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Another whole epoch, the next one, until it is settled."""
        number = max(self.shown()["settled_through"] + 1, (self.block() - self.start) // EPOCH + 1)
        self.skip_to(number)

        def settled(shown: dict[str, Any]) -> bool:
            assert shown["epoch"] <= number, f"epoch {number} passed without an update\n{self.logs()}"
            return bool(shown["settled_through"] is not None and shown["settled_through"] >= number)

        def look() -> None:
            each()
            self.hurry(number)

        return self.until(settled, look)

    def logs(self) -> str:
        folder = self.network.home / "logs"
        lines = [line for one in sorted(folder.glob("member*")) for line in one.read_text().splitlines()]
        return "\n".join(line for line in lines if "committee.leading" not in line and "committee.member" not in line)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RatingNetwork]:
    """Of a model that answers what is asked."""
    plan = NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=NODES)
    prepare_models(MODELS, plan, Display())
    with rating_network(tmp_path_factory.mktemp("rating") / "network", MODELS, plan) as made:
        yield made


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RatingNetwork]:
    """Of a small model with random weights: what is killed has other work than to compute."""
    folder = tmp_path_factory.mktemp("quick")
    model = model_folder(tiny_llama(vocab_size=VOCABULARY, eos_token_id=END), folder / "models" / "small", SPELLING)
    (model.path / "chat_template.jinja").write_text(TEMPLATE)
    plan = NetworkPlan(slices=((0, model.layers),), nodes_per_slice=NODES, model="small")
    with rating_network(folder / "network", folder, plan) as made:
        yield made


@contextmanager
def rating_network(folder: Path, models: Path, plan: NetworkPlan) -> Iterator[RatingNetwork]:
    """Nine whole nodes, a scheduler, and four members that are enrolled; no epoch has passed yet."""
    with LocalNetwork(folder, models, plan, report=lambda line: None, ready_seconds=1200.0) as network:
        network.start()
        place = (network.rpc, network.owner_keystore, network.factory)
        overlay = LocalOverlay(folder, replace(plan, members=MEMBERS), network.processes, network.password_file, *place)
        overlay.set_up()
        made = RatingNetwork(network, overlay, models)
        made.enroll()
        for member in made.members:
            made.start_member(member)
        yield made


def test_members_ask_score_sign_and_settle_by_themselves(stage: RatingNetwork) -> None:
    # The first epoch in which they count fixes a list.
    stage.skip_to(1)
    stage.until(lambda shown: shown["settled_through"] is not None)
    # Each was told once that anybody can look its questions up.
    assert stage.logs().count("challenges are made of the corpus that ships") == MEMBERS
    status = cli.run(stage.network.password_file, "committee", "status", "--home", stage.members[0].home)
    assert "looking them up" in status["corpus"]
    # The next one asks, scores and settles.
    shown = stage.epoch()
    rated = [node for node in shown["nodes"] if node["credit"] != "silent"]
    assert rated, stage.logs()
    operators = {node.operator for node in stage.network.nodes.values()}
    assert {node["node"] for node in rated} <= operators
    # Honest nodes that sample as they were asked to; a text of sixteen tokens says little.
    assert sum(node["credit"] for node in rated) > 0.6 * len(rated), rated


STEPS = {
    "before it asks": ("troth.committee.rating.asking:ClientExaminer.ask", False),
    "after it asked": ("troth.committee.rating.asking:ClientExaminer.ask", True),
    "before the last proof is shown": ("troth.committee.rating.member:RatingMember.prove", False),
    "after it kept a proposal": ("troth.committee.rating.member:RatingMember.keep", True),
    "before it signs": ("troth.committee.rating.epochs:EpochJournal.claim", False),
    "after its journal knows what it signs": ("troth.committee.rating.epochs:EpochJournal.claim", True),
    "before it reviews": ("troth.committee.rating.member:RatingMember.review", False),
    "before it settles": ("troth.committee.rating.turns:EpochTurns._settle", False),
    "after it settled": ("troth.committee.rating.turns:EpochTurns._settle", True),
}
"""Places of an epoch at which every member that comes to them dies once. A proof is shown where somebody else leads."""
BY_DRAW = {"before the last proof is shown"}


@pytest.mark.parametrize("step", STEPS)
def test_each_member_that_is_killed_at_a_step_goes_on_and_the_epoch_is_settled(quick: RatingNetwork, step: str) -> None:
    listed(quick)
    where, after = STEPS[step]
    quick.doom(where, after=after)
    dead: list[str] = []
    shown = quick.epoch(lambda: dead.extend(quick.tend()))
    # The chain tells of an epoch before whoever settled it has its receipt, and dies.
    give_up = time.monotonic() + LAST_DEATHS
    while not dead and step not in BY_DRAW and time.monotonic() < give_up:
        dead.extend(quick.tend())
        time.sleep(0.5)
    assert dead or step in BY_DRAW
    sound(quick, shown)


def test_scheduler_and_node_that_are_killed_while_members_ask_cost_nobody_a_score(quick: RatingNetwork) -> None:
    quick.renew()
    listed(quick)
    network, before = quick.network, set(quick.questions())
    scores = {node["node"]: node["score"] for node in quick.shown()["nodes"]}
    node, killed = network.nodes["a2"], list[str]()

    def kill() -> None:
        # Each dies while the epoch's first questions are with it.
        if not killed and set(quick.questions()) - before:
            for name, child in (("scheduler", network.scheduler.child), ("a2", node.child)):
                assert child is not None
                child.stop(kill=True)
                killed.append(name)
            network.start_node("a2", wait=False)
            network.start_scheduler()

    shown = quick.epoch(kill)
    assert killed
    sound(quick, shown)
    # Nobody is called silent for a scheduler's death: a score falls for what a node wrote alone.
    assert not [one for one in shown["nodes"] if one["credit"] == "silent" and one["node"] in scores]


def test_a_node_that_answers_members_well_and_users_badly_is_found_by_checks(stage: RatingNetwork) -> None:
    """Members' tabs are told to it. They rate it as what it pretends to be, and the first user's check rejects it."""
    listed(stage)
    network, liar = stage.network, stage.network.nodes[stage.network.favoured]
    assert liar.child is not None
    liar.child.stop()
    weights = MODELS / "models" / int8_name(network.plan)
    command = two_faced.command(weights, stage.tabs, "node", "start", "--home", liar.home)
    liar.child = network.processes.start(liar.name, command, cli.environment(network.password_file))
    network.wait_ready(liar.name)
    shown = stage.epoch()
    (rating,) = [node for node in shown["nodes"] if node["node"] == liar.operator]
    assert rating["credit"] > 0.6
    assert "below_the_bar" not in rating
    asker = Asker(network)
    asker.open_tab()
    seen: Counter[tuple[bool, str]] = Counter()
    for number in range(MOST_QUESTIONS):
        messages = [{"role": "user", "content": f"Name a city that begins with the letter {chr(65 + number)}."}]
        answered = asker.ask(messages, 12, lambda *_: None)
        cheated = liar.operator in answered.nodes[-1]
        seen[cheated, str(answered.outcome)] += 1
        if cheated:
            assert answered.outcome is OrderOutcome.REJECTED, seen
            break
        assert answered.outcome is OrderOutcome.CHECKED, seen
    else:
        pytest.fail(f"it was never drawn: {seen}")


def listed(stage: RatingNetwork) -> None:
    """See that the last epoch was settled, so that the next one has a list."""
    if stage.shown()["settled_through"] is None:
        stage.skip_to(1)
        stage.until(lambda shown: shown["settled_through"] is not None)


def sound(stage: RatingNetwork, shown: dict[str, Any]) -> None:
    """Nobody lost its bond, nodes have scores, and no question was ordered twice."""
    assert shown["expelled"] == []
    assert len(shown["members"]) == MEMBERS
    assert shown["nodes"], stage.logs()
    twice = [name for name, count in stage.questions().items() if count > 1]
    assert not twice
