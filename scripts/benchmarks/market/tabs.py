"""Tabs: opening, topping up, redeeming, claiming, closing; and the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coincurve import PrivateKey

from benchmarks.market.orders import Opened, hash_of, open_tab, serve
from benchmarks.market.stage import ETHER, FUNDS, PARAMETERS, Node, Stage, account, build_stage, key, pot
from troth.chain import decoding
from troth.protocol.bindings.structs import encode_values
from troth.protocol.calls import Call
from troth.protocol.hashing import keccak256
from troth.protocol.market import claims, prices
from troth.protocol.market.calls import PartCall
from troth.protocol.market.events import Claimed
from troth.protocol.market.messages import abi_type, compact, sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.signed import Draw, Result, SignedOrder
from troth.protocol.market.types import ExecutionClass, LeafKind, Rules, TabConsent, Voucher
from troth.protocol.typed_data import address_of
from troth.protocol.types import Address, to_address

TABS = 32
CLAIMED = 1_000
"""Leaves of the claim: a thousand, so that a path has ten steps."""
ROOT = Path(__file__).resolve().parents[3]
TOKEN = ROOT / "artifacts/contracts/test/market/support/BenchmarkToken.sol/BenchmarkToken.json"
PERMIT = keccak256(b"Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)")
DOMAIN = keccak256(b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")


@dataclass(frozen=True, slots=True)
class Tabs:
    """Gas of the calls on tabs."""

    open_coin: int
    open_token: int
    top_up: int
    redeem: int
    redeem_first: int
    redeem_many: int
    redeem_four: int
    close: int
    finish_closing: int


def measure(stage: Stage, url: str) -> Tabs:
    """Each call after one of its kind, so that slots that outlive it are written."""
    opened = [open_tab(stage, f"of many {number}") for number in range(TABS)]
    payer = opened[0].tab.payer
    first = _redeem(stage, opened[0], 1)
    second = _redeem(stage, opened[0], 2)
    top_up = stage.send(Part.BANK, "topUp", opened[0].id, ETHER, sender=payer, value=ETHER).gas
    many = [_redeem_many(stage, opened, spent) for spent in (3, 4)][-1]
    four = _redeem_many(stage, opened[:4], 5)
    close = stage.send(Part.BANK, "close", opened[0].tab, sender=payer).gas
    stage.mine(PARAMETERS.close_delay)
    finish = stage.send(Part.BANK, "finishClosing", opened[0].tab, sender=payer).gas
    return Tabs(
        open_coin=_open_coin(stage),
        open_token=_open_token(url),
        top_up=top_up,
        redeem=second,
        redeem_first=first,
        redeem_many=many,
        redeem_four=four,
        close=close,
        finish_closing=finish,
    )


def _open_coin(stage: Stage) -> int:
    payer, tab_key = account("a new payer"), key("a new tab")
    stage.fund(payer)
    consent = sign(TabConsent(payer, stage.scheduler.address), stage.domain, tab_key.secret).signature
    short = compact(consent)
    arguments = (stage.scheduler.address, tab_key.address, short.r, short.vs)
    return stage.send(Part.BANK, "openTabInCoin", *arguments, sender=payer, value=ETHER).gas


def voucher_of(
    stage: Stage, opened: Opened, spent: int, *, authorised: int = 0, sequence: int = 0
) -> tuple[Voucher, bytes]:
    """The payer's word, signed; by default one that acknowledges all it has ordered."""
    through = 0 if authorised else 250 * spent
    voucher = Voucher(
        tab=opened.id,
        spent=spent * 10**15,
        authorised=authorised or spent * 10**15 + 10**15,
        sequence=sequence or through + 3,
        acknowledged_through=through,
        exceptions=0,
    )
    return voucher, sign(voucher, stage.domain, opened.key.secret).signature


def _redeem(stage: Stage, opened: Opened, spent: int) -> int:
    arguments = (opened.tab, *voucher_of(stage, opened, spent))
    return stage.send(Part.BANK, "redeem", *arguments, sender=stage.scheduler.address).gas


def _redeem_many(stage: Stage, opened: Sequence[Opened], spent: int) -> int:
    """Of one of the tabs."""
    words = [voucher_of(stage, one, spent) for one in opened]
    lists = ([one.tab for one in opened], [word[0] for word in words], [word[1] for word in words])
    return stage.send(Part.BANK, "redeemMany", *lists, sender=stage.scheduler.address).gas // len(opened)


# ------------------------------------------------------------------------------------------------------------- token


def _open_token(url: str) -> int:
    """A tab in a token with permit, in a deployment of its own whose Bank holds some of that token already."""
    token, chain_id = _deploy_token(url)
    stage = build_stage(url, asset=token)
    gas = 0
    payer, deadline = key("token payer"), 1 << 40
    stage.fund(payer.address)
    minted = keccak256(b"mint(address,uint256)")[:4] + encode_values(["address", "uint256"], [payer.address, FUNDS])
    stage.transact(PartCall(token, Call("mint", minted)), payer.address)
    for nonce in range(2):
        tab_key = key(f"token tab {nonce}")
        signed = _permit(token, chain_id, payer.secret, stage.place.contracts.bank, nonce=nonce, deadline=deadline)
        consent = sign(TabConsent(payer.address, account("payee")), stage.domain, tab_key.secret).signature
        arguments = (account("payee"), tab_key.address, ETHER, consent, deadline, *signed)
        gas = stage.send(Part.BANK, "openTabWithPermit", *arguments, sender=payer.address).gas
    return gas


def _deploy_token(url: str) -> tuple[Address, int]:
    if not TOKEN.is_file():
        raise AssertionError(f"There is no {TOKEN.relative_to(ROOT)}: run `npx hardhat build` first")
    node, sender = Node(url), account("token's deployer")
    node.rpc("anvil_autoImpersonateAccount", True)
    node.rpc("anvil_setBalance", sender, hex(FUNDS))
    data = json.loads(TOKEN.read_text("utf-8"))["bytecode"]
    receipt = node.mined({"from": sender, "data": data})
    return to_address(receipt["contractAddress"]), decoding.quantity(node.rpc("eth_chainId"))


def _permit(
    token: Address, chain_id: int, secret: bytes, spender: Address, *, nonce: int, deadline: int
) -> tuple[int, bytes, bytes]:
    """An EIP-2612 permit for an ether."""
    words = [DOMAIN, keccak256(b"Good"), keccak256(b"1"), chain_id.to_bytes(32), pot(token)]
    separator = keccak256(b"".join(words))
    said = [
        PERMIT,
        pot(address_of(secret)),
        pot(spender),
        ETHER.to_bytes(32),
        nonce.to_bytes(32),
        deadline.to_bytes(32),
    ]
    digest = keccak256(b"\x19\x01" + separator + keccak256(b"".join(said)))
    signature = PrivateKey(secret).sign_recoverable(digest, hasher=None)
    return 27 + signature[64], signature[:32], signature[32:64]


# ------------------------------------------------------------------------------------------------------------ claims


@dataclass(frozen=True, slots=True)
class Claims:
    """Gas of a claim's calls; each of a second claim on another tab, when the payee's credit is written."""

    claim: int
    objection: int
    answer: int
    settle: int


def measure_claims(stage: Stage, rules: ExecutionClass, fee_rules: Rules, node: Address) -> Claims:
    """A claim of a root over many leaves, one of which is asked for and shown."""
    opened = open_tab(stage, "claimed")
    number = CLAIMED // 2
    leaf = serve(stage, opened, rules, [node], sequence=number, name="claimed")
    fee = prices.fee(leaf.order, fee_rules, 1, leaf.results[0])
    amounts = dict.fromkeys(range(1, CLAIMED + 1), fee)
    voucher, signature = voucher_of(stage, opened, 0, authorised=2 * fee * CLAIMED, sequence=CLAIMED)
    made, tree = claims.claim_of(voucher, amounts)
    payee = stage.scheduler.address
    sent = stage.send(Part.BANK, "claim", opened.tab, voucher, signature, made, sender=payee)
    state = sent.only(Claimed).state
    objection = stage.send(Part.BANK, "object", opened.tab, state, number, sender=opened.tab.payer).gas
    draw = replace(leaf.draw, block_number=stage.block)
    drawn = sign(draw, stage.domain, stage.scheduler.secret).signature
    shown = encode_values(
        [abi_type(SignedOrder), abi_type(tuple[Result, ...]), "bytes[]", abi_type(Draw), "bytes"],
        [leaf.signed, list(leaf.results), list(leaf.result_signatures), draw, drawn],
    )
    path = tree.path(number)
    arguments = (number, LeafKind.ORDER, fee, list(path.siblings), list(path.sums), shown)
    answer = stage.send(Part.BANK, "answer", opened.tab, state, *arguments, sender=payee).gas
    stage.mine(PARAMETERS.claim_delay)
    settle = stage.send(Part.BANK, "settle", opened.tab, state, sender=payee).gas
    return Claims(sent.gas, objection, answer, settle)


def measure_log(stage: Stage) -> int:
    """A scheduler's second log entry."""
    counts = LogCounts(1_000, 500_000, 50, 50, 1, 0, 10**18)
    gas = 0
    for number in (1, 2):
        arguments = (number, hash_of(f"root {number}"), counts, hash_of(f"data {number}"))
        gas = stage.send(Part.LOG, "post", *arguments, sender=stage.scheduler.address).gas
    return gas
