"""An operator's way through the command line on a market: init, register, ask, serve, be killed, earn, leave."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

pytest.importorskip("torch")

from support.operated import DEADLINE, PASSWORD, Operated, joined, wait_until_ready
from support.tabs_stage import ASK, TabsStage, following, tabs_stage
from support.tiny_llama import tiny_model
from support.toy_router import NatPmpRouter, nat_pmp_router

from troth.chain.keystore import load_account
from troth.node.models.descriptor import describe
from troth.protocol import vrf
from troth.protocol.market import canonical, lottery, messages, tabs
from troth.protocol.market.messages import Signed, sign, tab_id
from troth.protocol.market.papers import InferencePapers, Pay
from troth.protocol.market.signed import Admission, Order, Promise, Result, Work
from troth.protocol.market.types import Tab
from troth.protocol.request import Request, canonical_bytes, request_hash
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Hash32, pack_ends
from troth.protocol.wire_decoding import WantedText, WrittenPart, decode_parts, encode_wanted
from troth.protocol.wire_market import Advance, Conclude, Proceed, Redeemable
from troth.testnet.forked import Forked
from troth.testnet.ports import free_port
from troth.transport.channel import Channel
from troth.transport.errors import KeyInUse, RemoteFailure
from troth.transport.identity import Operator
from troth.transport.router_datagrams import PORT

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PROMPT = (3, 14, 15, 9, 26)
SALT = Hash32(b"s" * 32)


@pytest.fixture
def processes() -> Iterator[list[Forked]]:
    started: list[Forked] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def require_exported(endpoint: str) -> None:
    """A node process exports what dashboard and alerts name, but for a tunnel, which this one does not have."""
    text = httpx.get(f"{endpoint}/metrics", verify=False).text
    deploy = Path(__file__).parents[2] / "deploy"
    files = (deploy / "grafana/dashboards/node.json", deploy / "prometheus/rules.yml")
    named = {name for file in files for name in re.findall(r"\btroth_node_[a-z_]+", file.read_text())}
    exported = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    missing = {name for name in named if name.removesuffix("_bucket") not in exported}
    assert missing == {"troth_node_tunnel_open", "troth_node_tunnel_visitors"}


@contextmanager
def nat_pmp_beside() -> Iterator[NatPmpRouter]:
    """A router on loopback's port of NAT-PMP, in a thread: the test waits for processes without a loop."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(nat_pmp_router(PORT)) as (router, _),
    ):
        router.address = IPv4Address("127.0.0.1")
        yield router


@pytest.fixture
def routers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def test_from_init_to_leave(anvil: Any, tmp_path: Path, processes: list[Forked], routers: ExitStack) -> None:
    folder = tiny_model(tmp_path / "model")
    async with tabs_stage(anvil, nodes=1, model=describe(folder, 0), tabs=False) as stage:
        operated, made = await joined(stage, anvil, tmp_path)
        operator = load_account(operated.home / "keys" / "operator.json", PASSWORD)
        await stage.open_tab(stage.client, stage.scheduler.address, stage.tab_key)
        await stage.open_tab(stage.scheduler, operator.address, stage.scheduler)
        anvil.mine(3)
        processes.append(operated.start("--no-verify-weights"))
        wait_until_ready(operated, made, processes[-1])
        seen = operated.told("status")
        assert (seen["role"], seen["seats"], seen["process"]["ready"]) == ("node", 2, True)
        findings = json.loads(operated.run("doctor", "--json").stdout)
        # The stage's scheduler is registered, and no process answers for it.
        assert [finding["check"] for finding in findings if not finding["ok"]] == ["outside"]
        assert {"endpoint", "clock", "gas"} <= {finding["check"] for finding in findings}
        refuses_a_copy(operated, processes)
        served = Served(stage, made, operator.address)
        async with served.channel() as channel:
            word = await served.answer(channel)
            result = canonical.decode(Signed[Result], word, 1 << 16).require(stage.market.domain, operator.address)
            assert (result.prompt, result.written) == (len(PROMPT), 4)
        processes[-1].send_signal(signal.SIGKILL)
        processes[-1].wait()
        file = operated.home / "node.toml"
        file.write_text(file.read_text() + '\n[router]\nby = "nat-pmp"\ngateway = "127.0.0.1"\n')
        router = routers.enter_context(nat_pmp_beside())
        processes.append(operated.start("--no-verify-weights"))
        wait_until_ready(operated, made, processes[-1])
        port = int(made["endpoint"].rpartition(":")[2])
        assert {inside: outside for inside, (outside, _) in router.ports.items()} == {port: port}
        require_exported(made["endpoint"])
        async with served.channel() as channel:
            again = await channel.request(served.conclude, served.text)
            assert bytes(again.payload) == word
            with pytest.raises(RemoteFailure, match="two chains"):
                await channel.request(*served.first)
            told = operated.told("earnings")
            assert told["today"]["answers"] == 1
            assert told["unpaid_units"] == told["today"]["earned_units"] != "0"
            await channel.request(Redeemable(), served.acknowledged(int(told["unpaid_units"])))
        (shown,) = operated.told("tabs")["tabs"]
        assert (shown["payable_units"], shown["unpaid_units"]) == (told["unpaid_units"], "0")
        paid = operated.signed("redeem", "--broadcast")
        assert paid["sent"]
        assert paid["amount_units"] == told["unpaid_units"]
        assert operated.told("earnings")["credit_units"] == told["unpaid_units"]
        assert operated.signed("claim")["remedy"]
        moves(operated)
        processes[-1].send_signal(signal.SIGTERM)
        assert processes[-1].wait(30) == 0
        assert router.ports == {}
        leaves(operated, str(told["unpaid_units"]), seen["stake_units"])


def refuses_a_copy(operated: Operated, processes: list[Forked]) -> None:
    """A home that was copied to another machine does not serve beside this one."""
    copy = Operated(operated.home.parent / "copied", operated.password)
    shutil.copytree(operated.home, copy.home)
    file = copy.home / "node.toml"
    file.write_text(re.sub(r"(?m)^port = \d+$", f"port = {free_port()}", file.read_text()))
    processes.insert(0, copy.start("--no-verify-weights"))
    assert processes[0].wait(DEADLINE) == KeyInUse.exit_code
    assert "Another process serves with this key" in copy.log
    assert processes[-1].poll() is None


def leaves(operated: Operated, earned: str, stake: str) -> None:
    """What was earned is withdrawn at once, and stake is said to be bound until its block."""
    dry = operated.signed("leave")
    assert dry["exit_block"] is None
    assert dry["stake_units"] == stake
    left = operated.signed("leave", "--broadcast")
    assert left["stake_free_after_block"] == left["exit_block"] == left["block"] + dry["unbonding_blocks"]
    assert dry["stake_free_after_block"] <= left["exit_block"]
    assert "withdraw --broadcast" in left["next"][-1]
    assert operated.told("status")["seats"] == 0
    withdrawn = operated.signed("withdraw", "--broadcast")
    assert withdrawn["calls"][0]["function"] == "withdraw"
    assert withdrawn["amount_units"] == withdrawn["credit_units"] == earned
    assert (withdrawn["bound_units"], withdrawn["bound_until_block"]) == (stake, left["exit_block"])
    again = operated.run("withdraw", "--password-file", operated.password)
    assert again.returncode == 1
    assert f"bound until block {left['exit_block']}" in again.stderr


def moves(operated: Operated) -> None:
    """To one layer of two, and the running node follows without a restart."""
    for words, why in ((("0:1", "--segment", "0:2"), "outside"), (("0:2", *("--segment", "0:1") * 3), "two groups")):
        refused = operated.run("move", *words, "--password-file", operated.password)
        assert refused.returncode != 0
        assert why in refused.stderr
    dry = operated.signed("move", "1:2")
    assert (dry["sent"], dry["before"], dry["asks"]["1:2"]["written_units_per_billion"]) == (
        False,
        "0:2",
        str(ASK.written // 2),
    )
    assert operated.signed("move", "1:2", "--ask", "5,1,7")["asks"]["1:2"]["written_units_per_billion"] == "7"
    assert operated.signed("move", "1:2", "--broadcast")["sent"]
    assert operated.told("ask")["asks"] == {"1:2": dry["asks"]["1:2"]}
    assert operated.told("status")["slice"] == "1:2"
    give_up, wrong = time.monotonic() + DEADLINE, [""]
    while wrong:
        found = json.loads(operated.run("doctor", "--json").stdout)
        wrong = [finding for finding in found if not finding["ok"] and finding["check"] != "outside"]
        assert time.monotonic() < give_up, wrong


class Served:
    """One order of the stage's client, as its scheduler sends it to one node."""

    def __init__(self, stage: TabsStage, made: dict[str, Any], node: Any) -> None:
        self.stage, self.made, self.node = stage, made, node
        self.payer = tabs.PayerBook(tab_id(self.tab))
        self.first: Any = None
        self.conclude: Any = None
        self.text = b""

    @property
    def tab(self) -> Tab:
        return Tab(self.stage.scheduler.address, self.node, self.stage.scheduler.address)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        operator = Operator(self.stage.scheduler.secret, self.stage.market.domain)
        channel = Channel(self.made["endpoint"], bytes.fromhex(self.made["tls_key_hash"][2:]), operator, self.node)
        try:
            yield channel
        finally:
            await channel.close()

    async def answer(self, channel: Any) -> bytes:
        async with following(self.stage) as follower:
            self.first = self._papers(follower)
        reply = await channel.request(*self.first)
        tokens, finished, position = [reply.header.token], reply.header.finished, len(PROMPT)
        order = self.first[0].order
        while finished is None:
            reply = await channel.request(Proceed(1, 64), encode_wanted([WantedText(order, position)]))
            (part,) = decode_parts(reply.payload, reply.header.texts)
            assert isinstance(part, WrittenPart)
            tokens += part.tokens
            finished, position = part.finished, position + len(part.tokens)
        self.conclude = Conclude(order, 0, len(PROMPT) + len(tokens) - 1, len(tokens))
        self.text = tokens_to_bytes(tokens)
        frame = await channel.request(self.conclude, self.text)
        return bytes(frame.payload)

    def acknowledged(self, fee: int) -> bytes:
        self.payer = tabs.acknowledge(self.payer, 1, fee)
        return canonical.encode(sign(self.payer.voucher, self.stage.market.domain, self.stage.scheduler.secret))

    def _papers(self, follower: Any) -> Any:
        stage, domain = self.stage, self.stage.market.domain
        request = Request(stage.class_id, PROMPT, 4, 0, 1_000_000, ())
        secrets = lottery.secrets_for(b"\x07" * 32, tab_id(stage.client_tab), 1, request_hash(request, SALT))
        order = Order(
            tab_id(stage.client_tab), 1, stage.class_id, request_hash(request, SALT), pack_ends((2,)),
            10**9, 10**8, 2 * 10**9, 8000, 10_000, 10**6, int(time.time()) + 600, follower.block - 1,
            secrets.draw_hash, secrets.tiles_hash, Hash32(b"\x25" * 32),
        )  # fmt: skip
        signed = sign(order, domain, stage.tab_key.secret)
        digest = messages.order_id(order, domain)
        secret = stage.scheduler.secret
        admission = sign(Admission(digest, messages.nodes_hash([self.node]), follower.block), domain, secret)
        self.payer, number = tabs.order_next(self.payer, 10_000, follower.state.tab_state(self.payer.tab))
        promise = Promise(
            self.payer.tab, number, digest, 0, Work.INFERENCE, order.reference_block,
            ASK.prompt, ASK.cached, ASK.written, 10_000,
        )  # fmt: skip
        pay = Pay(self.tab, sign(promise, domain, secret), sign(self.payer.voucher, domain, secret))
        proof = vrf.prove(stage.vrf_secret, messages.infer_alpha(digest))
        head_salt = Hash32(b"\x4e" * 32)
        papers = InferencePapers(signed, stage.client_tab, admission, (self.node,), proof, pay, head_salt, SALT)
        written, data = canonical.encode(papers), canonical_bytes(request)
        header = Advance(
            digest, 0, "infer", 0, len(PROMPT), emit=True, papers_size=len(written), request_size=len(data)
        )
        return header, written + data + tokens_to_bytes(PROMPT)
