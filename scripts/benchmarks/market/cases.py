"""A case from its opening to the conviction: real proofs, traces, headers and signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.market.orders import (
    SHAPE,
    Leaf,
    Opened,
    draw_verifiers,
    hash_of,
    is_typical,
    open_tab,
    proof_of,
    seats_request,
    serve,
    verdicts_of,
)
from benchmarks.market.stage import PARAMETERS, Sent, Stage
from troth.protocol.market import messages, reveals
from troth.protocol.market.events import CaseDecided, CaseOpened, CaseSeeded, ReviewersDrawn, ReviewsCommitted
from troth.protocol.market.fold import case_after
from troth.protocol.market.messages import sign, state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseState, NodeReveal, Outcome, Reveal
from troth.protocol.market.signed import Opinion, ReviewCommitment, VrfProof
from troth.protocol.market.types import ExecutionClass
from troth.protocol.tensors import Dtype
from troth.protocol.trace import CommittedTrace, TileLayout, tile_indices
from troth.protocol.types import ZERO_HASH, Address, Hash32

SCORE, SPREAD = 5_000_000, 100_000
"""Of the node, beyond the second cut, and the reviewers' own noise; millionths of the first cut."""
NOISE = 1e-6
"""Relative; what honest float32 runs show."""
CHEAT = 3e-2
"""Relative; what a coarsely quantised model shows: signs and exponents are mostly right, so that masked tiles begin
with zeros."""
ATTEMPTS = 400


@dataclass
class Case:
    """A case on its way: its order, its check, and the gas of its calls."""

    stage: Stage
    rules: ExecutionClass
    leaf: Leaf
    verifiers: tuple[Address, ...]
    check: VrfProof
    hints: bytes
    traces: dict[Address, CommittedTrace] = field(default_factory=dict)
    identifier: Hash32 = ZERO_HASH
    state: CaseState = field(default_factory=CaseState)
    gas: dict[str, int] = field(default_factory=dict)

    @property
    def node(self) -> Address:
        """Whose result is judged."""
        return self.leaf.nodes[0]

    @property
    def client(self) -> Address:
        """Who opens the case and carries it on."""
        return self.leaf.signed.client

    def send(self, step: str, *arguments: object, value: int = 0) -> Sent:
        """A call to the Court from the client, and its gas."""
        sent = self.stage.send(Part.COURT, step, *arguments, sender=self.client, value=value)
        self.gas[step] = sent.gas
        return sent


def carry(
    stage: Stage, rules: ExecutionClass, node: Address, name: str, *, suspend: bool, together: bool = False
) -> Case:
    """A whole case over a false result of ``node``, which m' distinct reviewers reject.

    ``together``: in as few calls as there can be where everybody speaks; else each step is a call of its own.
    """
    case = prepare(stage, rules, node, name)
    open_case(case, suspend=suspend)
    header, hints, reviewers = draw_seats(case)
    if together:
        salts = convene(case, header, hints, reviewers)
    else:
        draw(case, header, hints, reviewers)
        salts = commit(case)
    if rules.exact:
        decide(case, salts)
    elif together:
        conclude(case, salts)
    else:
        seed(case)
        decide(case, salts)
    return case


def prepare(stage: Stage, rules: ExecutionClass, node: Address, name: str) -> Case:
    """An order, its results and a check by k distinct nodes, with a typical proof."""
    opened = open_tab(stage, f"of case {name}")
    for attempt in range(ATTEMPTS):
        case = _checked(stage, opened, rules, node, f"{name} {attempt}")
        if case is not None:
            return case
    raise AssertionError("No check by distinct verifiers was found")


def _checked(stage: Stage, opened: Opened, rules: ExecutionClass, node: Address, name: str) -> Case | None:
    trace = _trace(rules, CHEAT)
    commitment = messages.trace_commitment(Hash32(trace.root), hash_of("node salt"))
    leaf = serve(stage, opened, rules, [node], name=name, trace_commitment=commitment)
    proof = proof_of(stage, messages.draw_alpha(leaf.digest))
    if not is_typical(proof):
        return None
    seed = messages.check_seed(leaf.digest, leaf.secrets.draw, leaf.draw.beta, leaf.draw.results)
    verifiers, hints = draw_verifiers(stage, leaf, rules, seed)
    if len(set(verifiers)) < len(verifiers):
        return None
    return Case(stage, rules, leaf, verifiers, proof, hints, {node: trace})


def _trace(rules: ExecutionClass, change: float, seed: int = 0) -> CommittedTrace:
    """The true trace with so much relative noise."""
    true = np.random.default_rng(8).standard_normal(SHAPE)
    states = true * (1 + change * np.random.default_rng(seed).standard_normal(SHAPE))
    return TileLayout(hash_of("layout"), state_hash(rules), *SHAPE, Dtype.FLOAT32).commit(states.astype(np.float32))


# ------------------------------------------------------------------------------------------------------------- steps


def open_case(case: Case, *, suspend: bool) -> None:
    """All verifiers reject; the node is suspended if they lock stake for it."""
    stage, leaf = case.stage, case.leaf
    verdicts, signatures = verdicts_of(stage, leaf, case.verifiers, Opinion.REJECT, locks=suspend)
    bond: int = stage.read(Part.COURT, "bondFor", state_hash(case.rules), SHAPE[0], returns=int)
    arguments = (
        leaf.signed,
        list(leaf.results),
        list(leaf.result_signatures),
        leaf.draw,
        leaf.draw_signature,
        0,
        leaf.secrets.draw,
        list(verdicts),
        list(signatures),
        case.check,
        case.hints,
        suspend,
    )
    event = case.send("open", *arguments, value=bond).only(CaseOpened)
    case.identifier, case.state = event.case_id, event.state


def draw_seats(case: Case) -> tuple[bytes, bytes, tuple[Address, ...]]:
    """Header, hints and reviewers by the RANDAO that is due; the blocks up to it are mined again until all seats are
    different nodes'."""
    stage, state = case.stage, case.state
    for _ in range(ATTEMPTS):
        before = stage.node.rpc("evm_snapshot")
        stage.mine(PARAMETERS.lookahead + 1)
        header = stage.header(state.phase_block + PARAMETERS.lookahead)
        chance = messages.court_seed(case.identifier, state.round, header.randao)
        request = seats_request(case.leaf, case.rules, chance, case.rules.reviewers, state.excluded)
        reviewers, hints = stage.drawn(request)
        if len(set(reviewers)) == len(reviewers):
            return header.raw, hints, reviewers
        stage.node.rpc("evm_revert", before)
    raise AssertionError("No committee of distinct nodes was drawn")


def draw(case: Case, header: bytes, hints: bytes, reviewers: tuple[Address, ...]) -> None:
    """The reviewers, in a call of its own."""
    event = case.send("draw", case.identifier, case.state, header, hints).only(ReviewersDrawn)
    assert event.reviewers == reviewers
    case.state = case_after(event, case.state)


def commit(case: Case) -> dict[Address, Hash32]:
    """All reviewers' commitments, signed, in one call; their salts."""
    commitments, signatures, salts = pledges(case, case.state.reviewers)
    sent = case.send("commit", case.identifier, case.state, commitments, signatures)
    case.state = case_after(sent.only(ReviewsCommitted), case.state)
    return salts


def convene(case: Case, header: bytes, hints: bytes, reviewers: tuple[Address, ...]) -> dict[Address, Hash32]:
    """The reviewers and all their commitments in one call; their salts."""
    commitments, signatures, salts = pledges(case, reviewers)
    sent = case.send("convene", case.identifier, case.state, header, hints, commitments, signatures)
    drawn = case_after(sent.only(ReviewersDrawn), case.state)
    case.state = case_after(sent.only(ReviewsCommitted), drawn)
    return salts


def pledges(case: Case, reviewers: tuple[Address, ...]) -> tuple[list[Hash32], bytes, dict[Address, Hash32]]:
    """Commitments, signatures and salts."""
    stage = case.stage
    hearing = messages.hearing_id(case.identifier, case.state.round)
    commitments, signatures, salts = [], [], {}
    for number, reviewer in enumerate(reviewers, start=1):
        noise = 0.0 if case.rules.exact else NOISE
        case.traces[reviewer] = _trace(case.rules, noise, number)
        salts[reviewer] = reveals.salt_of(hash_of(f"salt {reviewer}"))
        commitment = messages.review_commitment(
            hearing,
            reviewer,
            root=Hash32(case.traces[reviewer].root),
            opinion=Opinion.REJECT,
            score=SCORE,
            spread=SPREAD,
            salt=salts[reviewer],
        )
        message = ReviewCommitment(hearing, commitment)
        commitments.append(commitment)
        signatures.append(sign(message, stage.domain, stage.keys[reviewer].secret).signature)
    return commitments, b"".join(signatures), salts


def seed(case: Case) -> None:
    """The RANDAO that picks the tiles."""
    case.stage.mine(PARAMETERS.lookahead + 1)
    header = case.stage.header(case.state.phase_block + PARAMETERS.lookahead)
    seeded = case.send("seed", case.identifier, case.state, header.raw).only(CaseSeeded)
    case.state = case_after(seeded, case.state)


def decide(case: Case, salts: dict[Address, Hash32]) -> None:
    """All reveals in one call."""
    node, packed = _showings(case, salts, case.state.seed)
    event = case.send("decide", case.identifier, case.state, node, packed).only(CaseDecided)
    assert event.outcome is Outcome.CONVICTED


def conclude(case: Case, salts: dict[Address, Hash32]) -> None:
    """The tiles and all reveals in one call."""
    state = case.state
    case.stage.mine(PARAMETERS.lookahead + 1)
    header = case.stage.header(state.phase_block + PARAMETERS.lookahead)
    tiles = messages.tiles_seed(case.identifier, state.commitments, header.randao)
    node, packed = _showings(case, salts, tiles)
    event = case.send("conclude", case.identifier, state, header.raw, node, packed).only(CaseDecided)
    assert event.outcome is Outcome.CONVICTED


def _showings(case: Case, salts: dict[Address, Hash32], seed: Hash32) -> tuple[NodeReveal, bytes]:
    """What node and reviewers show, packed. Credits that outlive the case are written before."""
    case.stage.credit(*case.state.reviewers, case.client)
    node, shown = parts(case, salts, seed)
    return node, reveals.encode(shown, node.tiles)


def parts(case: Case, salts: dict[Address, Hash32], seed: Hash32) -> tuple[NodeReveal, list[Reveal]]:
    """What node and reviewers show, in the clear."""
    indices = _indices(case, seed)
    shown = [_reveal(case, reviewer, salts[reviewer], indices) for reviewer in case.state.reviewers]
    return _node_reveal(case, indices), shown


def _indices(case: Case, seed: Hash32) -> Sequence[int]:
    count = case.traces[case.node].layout.count
    return tile_indices(seed, 0, case.rules.tiles, count) if case.rules.tiles else ()


def _node_reveal(case: Case, indices: Sequence[int]) -> NodeReveal:
    trace = case.traces[case.node]
    opening = trace.open(indices)
    siblings = tuple(Hash32(sibling) for sibling in opening.siblings)
    return NodeReveal(Hash32(trace.root), hash_of("node salt"), opening.tiles, siblings)


def _reveal(case: Case, reviewer: Address, salt: Hash32, indices: Sequence[int]) -> Reveal:
    trace = case.traces[reviewer]
    opening = trace.open(indices)
    siblings = tuple(Hash32(sibling) for sibling in opening.siblings)
    return Reveal(Hash32(trace.root), Opinion.REJECT, SCORE, SPREAD, salt, opening.tiles, siblings)
