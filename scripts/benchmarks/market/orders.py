"""An order with all that is signed over it, as claims, summons, convictions and cases need it: real keys and proofs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.market.stage import COLUMNS, ETHER, LAYERS, Stage, account, key
from troth.chain.keystore import Key
from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import messages
from troth.protocol.market.lottery import Secrets
from troth.protocol.market.messages import sign, state_hash, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.signed import Admission, Draw, Opinion, Order, Result, SignedOrder, Verdict, VrfProof
from troth.protocol.market.types import Ask, DrawRequest, ExecutionClass, Tab, TabConsent
from troth.protocol.typed_data import struct_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32, pack_ends
from troth.protocol.vrf import FIXED_HINTS, hints

PROMPT, WRITTEN = 40, 24
ROWS = PROMPT + WRITTEN - 1
SHAPE = (ROWS, COLUMNS)
SKIPPED = 1
"""Counters that hashing to the curve skips in every proof here: the mean, so that figures do not vary with it."""


def hash_of(text: str) -> Hash32:
    """A hash that depends on a text alone."""
    return Hash32(keccak256(text.encode()))


@dataclass(frozen=True, slots=True)
class Opened:
    """A client's tab with the scheduler."""

    tab: Tab
    key: Key

    @property
    def id(self) -> Hash32:
        """Its id."""
        return tab_id(self.tab)


def open_tab(stage: Stage, name: str, *, payee: Address | None = None, tab_key: Key | None = None) -> Opened:
    """A tab with an ether, under a key of its own."""
    payer, tab_key = account(f"payer {name}"), tab_key or key(f"tab key {name}")
    stage.fund(payer, tab_key.address)
    tab = Tab(payer, payee or stage.scheduler.address, tab_key.address)
    consent = sign(TabConsent(tab.payer, tab.payee), stage.domain, tab_key.secret).signature
    arguments = (tab.payee, tab.key, ETHER, consent)
    stage.send(Part.BANK, "openTab", *arguments, sender=payer, value=ETHER)
    return Opened(tab, tab_key)


@dataclass(frozen=True, slots=True)
class Leaf:
    """An order, its results, and the scheduler's words over it."""

    order: Order
    signed: SignedOrder
    digest: Hash32
    secrets: Secrets
    results: tuple[Result, ...]
    result_signatures: tuple[bytes, ...]
    draw: Draw
    draw_signature: bytes
    draw_proof: VrfProof
    nodes: tuple[Address, ...]
    admission: Admission
    admission_signature: bytes

    @property
    def result(self) -> Hash32:
        """Struct hash of the first result."""
        return struct_hash(self.results[0])


def proof_of(stage: Stage, alpha: bytes) -> VrfProof:
    """The scheduler's proof with the contract's hints."""
    proof = vrf.prove(stage.vrf_secret, alpha)
    return VrfProof(proof, tuple(hints(vrf.public_key(stage.vrf_secret), alpha, proof)))


def is_typical(proof: VrfProof) -> bool:
    """Whether hashing to the curve skipped as many counters as it does on average."""
    return len(proof.hints) == FIXED_HINTS + SKIPPED


def serve(
    stage: Stage,
    opened: Opened,
    rules: ExecutionClass,
    nodes: Sequence[Address],
    *,
    sequence: int = 1,
    name: str = "",
    ends: tuple[int, ...] = (LAYERS,),
    trace_commitment: Hash32 = ZERO_HASH,
) -> Leaf:
    """An order served by these nodes; the salt of the request is one for which the proof of the lottery is typical."""
    salt = 0
    while True:
        order = _order(stage, opened, rules, sequence=sequence, name=f"{name} {salt}", ends=ends)
        digest = messages.order_id(order, stage.domain)
        proof = proof_of(stage, messages.draw_alpha(digest))
        if is_typical(proof):
            break
        salt += 1
    results = tuple(_result(order, digest, segment, len(nodes), trace_commitment) for segment in range(len(nodes)))
    signed = tuple(
        sign(result, stage.domain, stage.keys[node].secret).signature
        for result, node in zip(results, nodes, strict=True)
    )
    beta = Hash32(vrf.proof_to_hash(proof.proof))
    draw = Draw(digest, messages.results_hash(results), beta, stage.block)
    admission = Admission(digest, messages.nodes_hash(nodes), stage.block)
    signature = sign(order, stage.domain, opened.key.secret).signature
    return Leaf(
        order=order,
        signed=SignedOrder(order, opened.tab.payer, opened.tab.payee, opened.tab.key, signature),
        digest=digest,
        secrets=_secrets(name),
        results=results,
        result_signatures=signed,
        draw=draw,
        draw_signature=sign(draw, stage.domain, stage.scheduler.secret).signature,
        draw_proof=proof,
        nodes=tuple(nodes),
        admission=admission,
        admission_signature=sign(admission, stage.domain, stage.scheduler.secret).signature,
    )


def _secrets(name: str) -> Secrets:
    return Secrets(hash_of(f"first {name}"), hash_of(f"second {name}"))


def _order(
    stage: Stage, opened: Opened, rules: ExecutionClass, *, sequence: int, name: str, ends: tuple[int, ...]
) -> Order:
    secrets = _secrets(name.rsplit(" ", 1)[0])
    return Order(
        tab=opened.id,
        sequence=sequence,
        execution_class=state_hash(rules),
        request_hash=hash_of(f"request {name}"),
        ends=pack_ends(ends),
        prompt_price=4 * 10**12,
        cached_price=4 * 10**11,
        written_price=8 * 10**12,
        node_share=8_000,
        max_fee=10**15,
        check_rate=1_000_000,
        deadline=1 << 40,
        reference_block=stage.block - 1,
        draw_hash=secrets.draw_hash,
        tiles_hash=secrets.tiles_hash,
        reply_key=hash_of(f"reply {name}"),
    )


def _result(order: Order, digest: Hash32, segment: int, count: int, trace_commitment: Hash32) -> Result:
    return Result(
        order=digest,
        segment=segment,
        input_head=hash_of(f"head {segment}") if segment else order.request_hash,
        output_head=hash_of(f"head {segment + 1}"),
        prompt=PROMPT,
        cached=0,
        written=WRITTEN,
        trace_commitment=trace_commitment if segment == 0 else hash_of("another trace"),
        output_hash=hash_of("output") if segment == count - 1 else ZERO_HASH,
    )


# ------------------------------------------------------------------------------------------------------------ checks


def draw_verifiers(stage: Stage, leaf: Leaf, rules: ExecutionClass, seed: Hash32) -> tuple[tuple[Address, ...], bytes]:
    """The k seats of a check of the first segment, without the inferencers' owners, and the hints for them."""
    return stage.drawn(seats_request(leaf, rules, messages.segment_seed(seed, 0), rules.verifiers, owners(stage, leaf)))


def owners(stage: Stage, leaf: Leaf) -> tuple[Address, ...]:
    """Owners of an order's inferencers."""
    return tuple(owner_of(stage, node) for node in leaf.nodes)


def owner_of(stage: Stage, operator: Address) -> Address:
    """An operator's owner."""
    owner: Address = stage.read(Part.REGISTRY, "ownerOf", operator, returns=Address)
    return owner


def seats_request(
    leaf: Leaf, rules: ExecutionClass, seed: Hash32, count: int, excluded: Sequence[Address]
) -> DrawRequest:
    """Seasoned seats of the first segment's group at the order's reference block."""
    end = leaf.order.ends[0]
    return DrawRequest(
        execution_class=state_hash(rules),
        first=0,
        end=end,
        block_number=leaf.order.reference_block,
        seed=seed,
        count=count,
        seasoned=True,
        distinct=False,
        excluded=tuple(excluded),
        bound=Ask(),
    )


def verdicts_of(
    stage: Stage, leaf: Leaf, verifiers: Sequence[Address], opinion: Opinion, *, locks: bool
) -> tuple[tuple[Verdict, ...], tuple[bytes, ...]]:
    """The same verdict of each verifier over the first result, and the signatures."""
    verdicts = tuple(
        Verdict(leaf.digest, 0, leaf.result, hash_of(f"commitment {verifier}"), opinion, locks)
        for verifier in verifiers
    )
    signatures = tuple(
        sign(verdict, stage.domain, stage.keys[verifier].secret).signature
        for verdict, verifier in zip(verdicts, verifiers, strict=True)
    )
    return verdicts, signatures


def resigned(stage: Stage, message: Any, signer: Key, **changes: Any) -> tuple[Any, bytes]:
    """A message that says something else, and its signature."""
    other = replace(message, **changes)
    return other, sign(other, stage.domain, signer.secret).signature
