"""A case over an order of ``market_scene``: its calls' inputs, and the events that an honest Court would emit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from support.market_logs import META, address
from support.market_record import PARAMETERS, PLACE, SCHEDULER, STAKE, record
from support.market_scene import DOMAIN, KEYS, MODEL, SEASONING, TAB, Scene, execution_class, hash_of, rules
from support.movements import pack_movements

from troth.audit.evidence.transactions import Transaction
from troth.audit.subject import AuditSubject
from troth.chain.headers import RawHeader
from troth.protocol import typed_data
from troth.protocol.hashing import keccak256
from troth.protocol.market import court, court_money, draws, messages, prices, reveals
from troth.protocol.market import events as on
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.messages import sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, NodeReveal, Reveal
from troth.protocol.market.receipt import VERSION, CheckedSegment, Receipt
from troth.protocol.market.signed import Opinion, ReviewCommitment, SignedOrder, VrfProof
from troth.protocol.market.types import Ask, DrawRequest, Movement, PotKind
from troth.protocol.types import ZERO_HASH, Address, Hash32

OPENED = 1_010
"""Block of the opening."""
RANDAO = hash_of("randao")
BLOCKS = {"open": OPENED, "draw": OPENED + 1_005, "commit": OPENED + 1_010, "decide": OPENED + 1_020}


@dataclass(frozen=True)
class CaseScene:
    """A rejection in a class that compares roots, so that no tiles are opened; ``node`` lied."""

    scene: Scene = field(default_factory=lambda: Scene({"exact": True, "tiles": 0}))

    @cached_property
    def journey(self) -> Any:
        return self.scene.checked(node=self.scene.trace(0.5, 9), opinion=Opinion.REJECT)

    @cached_property
    def result(self) -> Any:
        return self.journey.results[0].message

    @property
    def node(self) -> Address:
        return self.journey.nodes[0]  # type: ignore[no-any-return]

    @cached_property
    def opening(self) -> CaseState:
        order, journey = self.scene.order, self.journey
        limits, positions = rules(**self.scene.changes), prices.positions(self.result)
        drawn = self.drawn_verifiers
        return CaseState(
            kind=CaseKind.REJECTION,
            phase=CasePhase.OPENED,
            phase_block=OPENED,
            reference_block=order.reference_block,
            answered_at=journey.draw.message.block_number,
            rows=positions - 1,
            order=self.scene.order_id,
            execution_class=order.execution_class,
            ends=order.ends,
            result=typed_data.struct_hash(self.result),
            trace_commitment=self.result.trace_commitment,
            client=TAB.payer,
            scheduler=SCHEDULER,
            node=self.node,
            opener=TAB.payer,
            fee=prices.fee(order, limits, 1, self.result),
            unit=prices.unit(limits, positions),
            bond=10_000,
            locked=limits.penalty,
            verifiers=drawn,
            opinions=bytes((Opinion.REJECT,) * len(drawn)),
            excluded=(TAB.payer,),
        )

    @cached_property
    def drawn_verifiers(self) -> tuple[Address, ...]:
        (drawn,) = self.scene.verifiers(self.journey)
        return drawn.operators

    @cached_property
    def case_id(self) -> Hash32:
        return messages.case_id(self.scene.order_id, 0)

    @property
    def open_call(self) -> PartCall:
        journey = self.journey
        verdicts = list(journey.checks[0].verdicts.values())
        signed = SignedOrder(self.scene.order, TAB.payer, SCHEDULER, TAB.key, journey.order.signature)
        return build(
            PLACE.contracts,
            Part.COURT,
            "open",
            signed,
            [self.result],
            [journey.results[0].signature],
            journey.draw.message,
            journey.draw.signature,
            0,
            self.scene.secrets.draw,
            [one.message for one in verdicts],
            [one.signature for one in verdicts],
            VrfProof(journey.draw_proof),
            b"",
            False,
        )

    # ---- the committee

    @cached_property
    def drawn(self) -> CaseState:
        limits = rules(**self.scene.changes)
        request = DrawRequest(
            self.opening.execution_class,
            0,
            12,
            self.opening.reference_block,
            messages.court_seed(self.case_id, 0, RANDAO),
            limits.reviewers,
            True,
            False,
            self.opening.excluded,
            Ask(),
        )
        group = self.scene.view.groups[0]
        seats = Counter(draws.draw(request, group, seat_cap=limits.seat_cap, seasoning=SEASONING).operators)
        state = replace(self.opening, phase=CasePhase.DRAWN, phase_block=OPENED + 1_005)
        return replace(state, reviewers=tuple(seats), seats=bytes(seats.values()))

    @cached_property
    def reveals(self) -> tuple[Reveal, ...]:
        true = Hash32(self.scene.trace().root)
        return tuple(
            Reveal(true, int(Opinion.REJECT), 0, 0, reveals.salt_of(hash_of(one))) for one in self.drawn.reviewers
        )

    @cached_property
    def committed(self) -> CaseState:
        hearing = messages.hearing_id(self.case_id, 0)
        commitments = tuple(
            messages.review_commitment(
                hearing, one, root=show.root, opinion=Opinion.REJECT, score=0, spread=0, salt=show.salt
            )
            for one, show in zip(self.drawn.reviewers, self.reveals, strict=True)
        )
        block = self.drawn.phase_block + 5
        return replace(self.drawn, phase=CasePhase.COMMITTED, phase_block=block, commitments=commitments)

    @property
    def commit_call(self) -> PartCall:
        hearing = messages.hearing_id(self.case_id, 0)
        signatures = b"".join(
            sign(ReviewCommitment(hearing, one), DOMAIN, KEYS[reviewer]).signature
            for reviewer, one in zip(self.drawn.reviewers, self.committed.commitments, strict=True)
        )
        arguments = (self.case_id, self.drawn, list(self.committed.commitments), signatures)
        return build(PLACE.contracts, Part.COURT, "commit", *arguments)

    @property
    def node_reveal(self) -> NodeReveal:
        return NodeReveal(Hash32(self.scene.trace(0.5, 9).root), hash_of("node salt"))

    @property
    def decide_call(self) -> PartCall:
        arguments = (self.case_id, self.committed, self.node_reveal, reveals.encode(self.reveals))
        return build(PLACE.contracts, Part.COURT, "decide", *arguments)

    @cached_property
    def judged(self) -> court.CaseFinding:
        shown = tuple(court.Showing(one.root, b"", Opinion.REJECT) for one in self.reveals)
        hearing = court.Hearing(CaseKind.REJECTION, self.drawn.seats, shown, court.Showing(self.node_reveal.root))
        return court.judge(hearing, rules(**self.scene.changes))

    # ---- the record

    def events(self) -> list[tuple[Any, PartCall]]:
        """Each event with the call behind it, in order."""
        limits, case = rules(**self.scene.changes), self.case_id
        stake, bond = court_money.pot_of(PotKind.STAKE, self.node), (PotKind.BOND, case)
        locked = court_money.pot_of(PotKind.LOCKED, self.node)
        held = STAKE
        locking = Movement(*stake, *locked, limits.penalty)
        opened, committed = self.open_call, self.commit_call
        drawing = build(PLACE.contracts, Part.COURT, "draw", case, self.opening, b"", b"")
        made: list[tuple[Any, PartCall]] = [
            (on.Collected(case, TAB.payer, PotKind.BOND, case, 10_000, 10_000, META), opened),
            (on.CaseOpened(case, self.scene.order_id, self.node, self.opening, META), opened),
            (on.MovedMany(case, pack_movements(case, (locking,)), META), opened),
            (
                on.ReviewersDrawn(case, self.drawn.drawer, 0, RANDAO, self.drawn.reviewers, self.drawn.seats, META),
                drawing,
            ),
            (on.ReviewsCommitted(case, self.committed.committer, self.committed.commitments, META), committed),
        ]
        balances = {**self._stakes(), stake: held - limits.penalty, locked: limits.penalty, bond: 10_000}
        around = court_money.Circumstances(balances, 1, TAB.payer, block=BLOCKS["decide"])
        movements = court_money.settle(self.committed, self.judged, limits, around)
        made.append((on.MovedMany(case, pack_movements(case, movements), META), self.decide_call))
        cluster = sum(1 << index for index in self.judged.cluster)
        decided = on.CaseDecided(case, self.scene.order_id, self.judged.outcome, cluster, 0, 0, META)
        return [*made, (decided, self.decide_call)]

    def _stakes(self) -> dict[Any, int]:
        held = STAKE
        return {
            court_money.pot_of(PotKind.STAKE, one): held for one in list(KEYS)[: self.scene.nodes] if one != self.node
        }

    def subject(self, events: list[tuple[Any, PartCall]] | None = None, randao: Hash32 = RANDAO) -> AuditSubject:
        """The record in which the case stands, with the inputs of its transactions and the header that draws."""
        return recorded(self.events() if events is None else events, self.scene.changes, randao)


def recorded(events: list[tuple[Any, PartCall]], changes: Any = None, randao: Hash32 = RANDAO) -> AuditSubject:
    """A record whose later events each come from a call; calls with the same input are one transaction."""
    transactions, later = {}, []
    for event, call in events:
        name = Hash32(keccak256(call.call.data))
        block = BLOCKS.get(call.call.function, OPENED)
        later.append(replace(event, meta=replace(META, block=block, transaction=name)))
        transactions[name] = Transaction(name, address(50), call.to, call.call.data, b"")
    subject = record(*later, changes=changes or {})
    header = RawHeader(OPENED + PARAMETERS.lookahead, ZERO_HASH, ZERO_HASH, 0, randao, b"")
    evidence = replace(subject.evidence, transactions=transactions, headers={header.number: header})
    return AuditSubject(evidence, subject.history)


def receipt_of(scene: Scene, opinion: Opinion = Opinion.ACCEPT) -> Receipt:
    """What the client keeps of the scene's order, checked by verifiers that say ``opinion``."""
    journey, view = scene.checked(opinion=opinion), scene.view
    assert journey.results
    assert journey.draw
    assert journey.checks
    drawn = scene.verifiers(journey)
    segments = tuple(
        CheckedSegment(seats.operators, tuple(check.commitments.values()), tuple(check.verdicts.values()))
        for seats, check in zip(drawn, journey.checks, strict=True)
    )
    return Receipt(
        version=VERSION,
        chain_id=DOMAIN.chain_id,
        bank=DOMAIN.contract,
        model=MODEL,
        execution_class=execution_class(),
        tab=TAB,
        vrf_x=view.vrf_key[0],
        vrf_y=view.vrf_key[1],
        order=journey.order,
        admission=journey.admission,
        nodes=journey.nodes,
        infer_proof=journey.infer_proof,
        results=journey.results,
        draw=journey.draw,
        draw_proof=journey.draw_proof,
        secret=scene.secrets.draw,
        checks=segments,
    )
