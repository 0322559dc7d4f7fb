"""A deployment of the market on a local chain, with a scheduler, classes and groups of nodes.

The chain signs for every account, so that calls come from whom they should; its base fee is set before each of them,
since gas is paid back at the block's price and movements of nothing are passed over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from troth.chain import decoding
from troth.chain.deployment import deploy_market
from troth.chain.headers import RawHeader, header_of
from troth.chain.keystore import Key
from troth.chain.market import DeploymentPlace
from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import economy
from troth.protocol.market.calls import PartCall, build, view
from troth.protocol.market.events import Event, parse_log
from troth.protocol.market.messages import market_domain, sign, state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.reverts import decode_error
from troth.protocol.market.types import (
    NO_ADDRESS,
    Ask,
    Consent,
    DrawRequest,
    ExecutionClass,
    NodeRegistration,
    Parameters,
    SchedulerRegistration,
)
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32, ModelDescriptor, Segment, address_from_bytes

LAYERS, COLUMNS = 30, 576
WHOLE, HALF = Segment(0, LAYERS), Segment(0, LAYERS // 2)
ETHER, GWEI = 10**18, 10**9
FUNDS = 10_000 * ETHER
CALL_GAS = 16_000_000
"""Of every transaction: below what one may have (EIP-7825), and no estimate is needed."""
TIMEOUT = 600.0
ENDPOINT = "https://node-0001.example:8443"
TLS_KEY = Hash32(b"\x02" * 32)
ASK = Ask(10**12, 10**11, 2 * 10**12)

PARAMETERS = Parameters(
    asset=NO_ADDRESS,
    lag=200,
    summons_window=50,
    lookahead=8,
    draw_window=20,
    commit_window=20,
    reveal_window=20,
    claim_delay=1_300,
    answer_window=50,
    close_delay=1_400,
    unbonding=20_000,
    seasoning=20,
    reference_age=10_000,
    suspension_pause=100,
    scheduler_stake=ETHER,
    gas_price=ETHER,
    weights=NO_ADDRESS,
    prover=NO_ADDRESS,
)
"""Windows are counted, not waited for: gas does not depend on them. Gas is paid back up to 1 gwei."""

MODEL = ModelDescriptor("llama/gas/gas", LAYERS, COLUMNS, 49_152, 0, Hash32(b"\x01" * 32))


def class_of(name: str, *, exact: bool, reviewers: int = 15, tiles: int = 1) -> ExecutionClass:
    """The class of the paper: c = 2, k = 3, m' = 15, one tile; one seat a node, so that 15 reviewers are 15 nodes."""
    made = ExecutionClass(
        model=state_hash(MODEL),
        name=name,
        dtype=0,
        exact=exact,
        mantissa_bits=10,
        steps=8,
        theta=9_000,
        tiles=0 if exact else tiles,
        candidates=2,
        verifiers=3,
        reviewers=reviewers,
        check_price=6 * 10**15,
        fee_cap=10**15,
        least_check_rate=50_000,
        honest_share=8_000,
        penalty=0,
        seat=0,
        seat_cap=1,
        state_cut=1_000,
        margin_cut=20_000,
        second_cut=4_000_000,
        pool_limit=3,
        pool_window=50_000,
        calibration=ZERO_HASH,
    )
    penalty = economy.least_penalty(made.fee_cap, economy.detection_of(made))
    return replace(
        made, penalty=penalty, seat=economy.least_seat(penalty, economy.case_gas_of(made), PARAMETERS.gas_price)
    )


def key(name: str) -> Key:
    """A key that depends on its name alone, so that signatures are the same in every run."""
    return Key.from_secret(keccak256(b"troth gas " + name.encode()))


def account(name: str) -> Address:
    """An account for which nobody has to sign but the chain."""
    return address_from_bytes(keccak256(name.encode())[:20])


@dataclass(frozen=True, slots=True)
class Sent:
    """A mined call."""

    gas: int
    block: int
    transaction: str
    events: tuple[Event, ...] = ()

    def only(self, kind: type[Any]) -> Any:
        """Its one event of a kind."""
        return next(event for event in self.events if isinstance(event, kind))


class Node:
    """The local chain, asked in JSON over one connection that is kept: a client of more comfort costs 4 ms a call."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)

    def rpc(self, method: str, *parameters: object) -> Any:
        """One call."""
        return self.many([(method, parameters)])[0]

    def many(self, calls: Sequence[tuple[str, Sequence[object]]]) -> list[Any]:
        """Many calls in one request; the answers in order."""
        answers = sorted(self._answers(calls), key=lambda answer: int(answer["id"]))
        if refused := [answer["error"] for answer in answers if "error" in answer]:
            raise AssertionError(f"{calls[0][0]}: {refused[0]}")
        return [answer["result"] for answer in answers]

    def error(self, method: str, *parameters: object) -> dict[str, Any]:
        """Why a call is refused; empty if it is not."""
        return dict(self._answers([(method, parameters)])[0].get("error", {}))

    def mined(self, message: dict[str, str]) -> Any:
        """The receipt of a transaction that the chain signs; it answers when it has mined it."""
        return self.rpc("eth_sendTransactionSync", message)

    def _answers(self, calls: Sequence[tuple[str, Sequence[object]]]) -> list[dict[str, Any]]:
        body = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": list(parameters)}
            for number, (method, parameters) in enumerate(calls)
        ]
        self._connection.request("POST", "/", json.dumps(body), {"content-type": "application/json"})
        return list(json.loads(self._connection.getresponse().read()))


@dataclass
class Stage:
    """A deployment with its parties; every figure comes from ``send``."""

    node: Node
    place: DeploymentPlace
    domain: Domain
    scheduler: Key
    vrf_secret: bytes
    keys: dict[Address, Key] = field(default_factory=dict)

    # ---- the chain

    def send(self, part: Part, function: str, *arguments: object, sender: Address, value: int = 0) -> Sent:
        """A call to a contract of the deployment."""
        return self.transact(build(self.place.contracts, part, function, *arguments, value=value), sender)

    def transact(self, call: PartCall, sender: Address) -> Sent:
        """Any call, mined; AssertionError with the contract's own error if it fails."""
        self.node.rpc("anvil_setNextBlockBaseFeePerGas", hex(GWEI))
        message = {
            "from": sender,
            "to": call.to,
            "value": hex(call.call.value),
            "data": decoding.hexadecimal(call.call.data),
            "gas": hex(CALL_GAS),
            "gasPrice": hex(2 * GWEI),
        }
        receipt = self.node.mined(message)
        if int(receipt["status"], 16) != 1:
            raise AssertionError(f"{call.call.function} failed: {self._reason(message)}")
        addresses = {self.place.factory, *(part.of(self.place.contracts) for part in Part)}
        logs = [log for log in decoding.logs(receipt["logs"]) if log.address in addresses]
        events = tuple(parse_log(log, self.place.contracts, self.place.factory) for log in logs)
        return Sent(int(receipt["gasUsed"], 16), int(receipt["blockNumber"], 16), receipt["transactionHash"], events)

    def _reason(self, message: dict[str, str]) -> object:
        error = self.node.error("eth_call", message, "latest")
        data = error.get("data")
        return decode_error(decoding.data(data)) if isinstance(data, str) and data != "0x" else error

    def read(self, part: Part, function: str, *arguments: object, returns: Any) -> Any:
        """What a contract says now."""
        asked = view(self.place.contracts, part, function, *arguments, returns=returns)
        called = PartCall.of(asked)
        message = {"to": called.to, "data": decoding.hexadecimal(called.call.data)}
        return asked.view.result(decoding.data(self.node.rpc("eth_call", message, "latest")))

    def mine(self, blocks: int) -> None:
        """Empty blocks."""
        self.node.rpc("anvil_mine", hex(blocks))

    @property
    def block(self) -> int:
        """Number of the newest block."""
        return int(self.node.rpc("eth_blockNumber"), 16)

    def header(self, number: int) -> RawHeader:
        """A block's header as its bytes."""
        return header_of(self.node.rpc("eth_getBlockByNumber", hex(number), False))

    def fund(self, *accounts: Address) -> None:
        """Ether for accounts."""
        self.node.many([("anvil_setBalance", (one, hex(FUNDS))) for one in accounts])

    # ---- parties

    def consent(self, operator: Key, owner: Address) -> bytes:
        """An operator's consent to its owner."""
        return sign(Consent(owner, operator.address), self.domain, operator.secret).signature

    def register_scheduler(self) -> Sent:
        """The stage's scheduler, with stake for many convictions."""
        owner = account("scheduler's owner")
        self.fund(owner, self.scheduler.address)
        self.keys[self.scheduler.address] = self.scheduler
        x, y = vrf.public_key(self.vrf_secret)
        stake = 100 * PARAMETERS.scheduler_stake
        registration = SchedulerRegistration(self.scheduler.address, NO_ADDRESS, x, y, stake, ENDPOINT, TLS_KEY)
        arguments = (registration, self.consent(self.scheduler, owner))
        return self.send(Part.REGISTRY, "registerScheduler", *arguments, sender=owner, value=stake)

    def registration(self, operator: Key, rules: ExecutionClass, segments: Sequence[Segment]) -> NodeRegistration:
        """A node with the stake of one seat."""
        asks = (ASK,) * len(segments)
        shape = (state_hash(rules), 0, LAYERS, tuple(segments), asks, rules.seat)
        return NodeRegistration(operator.address, NO_ADDRESS, *shape, ENDPOINT, TLS_KEY)

    def register_node(self, name: str, rules: ExecutionClass, *segments: Segment) -> Sent:
        """A node with an owner of its own."""
        operator, owner = key(name), account(f"owner of {name}")
        self.fund(owner, operator.address)
        self.keys[operator.address] = operator
        registration = self.registration(operator, rules, segments or (WHOLE,))
        arguments = (registration, self.consent(operator, owner))
        return self.send(Part.REGISTRY, "registerNode", *arguments, sender=owner, value=rules.seat)

    def credit(self, *accounts: Address) -> None:
        """One wei of credit each, so that the slot is written before it is measured, as it is after a first pay."""
        giver = account("giver")
        self.fund(giver)
        for one in accounts:
            self.send(Part.BANK, "credit", one, 1, sender=giver, value=1)

    def drawn(self, request: DrawRequest) -> tuple[tuple[Address, ...], bytes]:
        """Who a request draws, and the hints for it."""
        found: tuple[tuple[Address, ...], bytes] = self.read(
            Part.LENS, "draw", request, returns=(tuple[Address, ...], bytes)
        )
        return found


def pot(one: Address) -> Hash32:
    """The id of an account's pot."""
    return Hash32(bytes(12) + bytes.fromhex(one[2:]))


def build_stage(url: str, *, asset: Address = NO_ADDRESS) -> Stage:
    """Deploy and register the scheduler and the model."""
    node = Node(url)
    node.rpc("anvil_autoImpersonateAccount", True)
    node.rpc("anvil_mine", hex(3))
    deployer = key("deployer")
    node.rpc("anvil_setBalance", deployer.address, hex(FUNDS))
    place = asyncio.run(_deploy(url, replace(PARAMETERS, asset=asset), deployer))
    chain_id = int(node.rpc("eth_chainId"), 16)
    vrf_secret = (1 + int.from_bytes(keccak256(b"troth gas vrf")) % (1 << 250)).to_bytes(32)
    domain = market_domain(chain_id, place.contracts.bank)
    stage = Stage(node, place, domain, key("scheduler"), vrf_secret)
    if asset == NO_ADDRESS:
        stage.register_scheduler()
        stage.send(Part.CLASSES, "registerModel", MODEL, sender=stage.scheduler.address)
    return stage


async def _deploy(url: str, parameters: Parameters, deployer: Key) -> DeploymentPlace:
    market, _ = await deploy_market(url, parameters, deployer)
    async with market:
        return market.place
