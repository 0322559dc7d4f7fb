"""The money of a case: what is taken, in which order it is paid, and what nobody gets (contract Judgement).

Movements are data. L joins the bond, and both are paid out in this order: the client's fee, the reviewers' work, gas,
the opener's bond and reward; what is left is burnt. Every slash is at most what is there, and every payment at most
what is left, so that no case makes money. The figures of a class keep the proportions of VeriLLM's Appendix E.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from troth.protocol.errors import InvalidField
from troth.protocol.market import prices
from troth.protocol.market.court import CaseFinding, case_of
from troth.protocol.market.economy import REWARD_SHARE
from troth.protocol.market.errors import InvalidCase
from troth.protocol.market.prices import PER
from troth.protocol.market.proceedings import CaseKind, CaseState, Fault, Outcome
from troth.protocol.market.reveals import Sample
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import Movement, PotKind, Rules
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Address, Hash32, address_to_bytes

Pot = tuple[PotKind, Hash32]
BURNT: Pot = (PotKind.BURNT, ZERO_HASH)
CONVICTING = frozenset({Outcome.CONVICTED, Outcome.SCHEDULER_MISSING, Outcome.NODE_MISSING})
"""Outcomes that take L from somebody by themselves."""
_MOVEMENT = 33
"""Bytes of a packed movement: the kinds that it leaves and enters, four bits each; an account; an amount."""
_DOUBT, _OPEN, _SUSPEND = 168_000, 250_000, 60_000
_DRAW, _DRAW_REVIEWER = 70_000, 3_000
_COMMIT, _COMMIT_REVIEWER, _POSTED, _SIGNED = 44_000, 800, 2_100, 5_000
_CONVENE, _CONVENE_REVIEWER = 78_000, 8_000
_SEED, _SEED_REVIEWER = 66_000, 1_000
_DECIDE, _SHOWN, _PAID = 105_000, 1_700, 5_500
_CONVICT, _EVICT, _RESTORE, _PROVE = 20_000, 40_000, 20_000, 10_000
_TILE, _LEVEL = 3_000, 600


def pot_of(kind: PotKind, account: Address) -> Pot:
    """An account's pot: its id is the address as a number."""
    return kind, Hash32(bytes(12) + address_to_bytes(account))


def apply_movements(balances: Mapping[Pot, int], movements: Sequence[Movement]) -> dict[Pot, int]:
    """The pots after the movements, as the Bank applies them; raises InvalidCase where one holds too little."""
    after = dict(balances)
    for movement in movements:
        source, target = (movement.from_kind, movement.from_id), (movement.to_kind, movement.to_id)
        if movement.amount > after.get(source, 0):
            raise InvalidCase(f"The pot {source[0].name} holds {after.get(source, 0)}", movement.amount, "Move less.")
        after[source] = after.get(source, 0) - movement.amount
        after[target] = after.get(target, 0) + movement.amount
    return after


def unpack_movements(subject: Hash32, packed: bytes) -> tuple[Movement, ...]:
    """The movements that MovedMany tells of; raises InvalidField for other bytes."""
    if len(packed) % _MOVEMENT:
        raise InvalidField(f"A packed movement has {_MOVEMENT} bytes", len(packed), "Take the event's bytes.")
    made = []
    for start in range(0, len(packed), _MOVEMENT):
        kinds, account = packed[start], packed[start + 1 : start + 21]
        amount = int.from_bytes(packed[start + 21 : start + _MOVEMENT])
        source, target = (_pot_of(PotKind(kind), subject, account) for kind in (kinds >> 4, kinds & 0xF))
        made.append(Movement(*source, *target, amount))
    return tuple(made)


def _pot_of(kind: PotKind, subject: Hash32, account: bytes) -> Pot:
    if kind is PotKind.BOND:
        return kind, subject
    return BURNT if kind is PotKind.BURNT else (kind, Hash32(bytes(12) + account))


@dataclass(frozen=True, slots=True)
class DecisionEffects:
    """What a decision is paid back by beside what was shown.

    ``convicts``: somebody is convicted; ``evicts``: and loses its last seat. ``restores``: the case had suspended the
    node. ``proves``: the same call drew the tiles.
    """

    convicts: bool = False
    evicts: bool = False
    restores: bool = False
    proves: bool = False


def most_paid(reviewers: int, tiles: int, depth: int) -> int:
    """Gas that an opening and two rounds are paid back, at most; ``depth`` of the tree that a tile is proven by."""
    a_round = _DRAW + _COMMIT + _SEED + _DECIDE + (reviewers + 1) * tiles * (_TILE + _LEVEL * depth)
    a_round += (_DRAW_REVIEWER + _COMMIT_REVIEWER + _SIGNED + _SEED_REVIEWER + _SHOWN + _PAID) * reviewers
    return _OPEN + _SUSPEND + 2 * a_round + _CONVICT + _EVICT + _RESTORE


@dataclass(frozen=True, slots=True)
class CaseGas:
    """What the steps of a case cost, as far as it is paid back (library CaseGas), at a price per 10^9 gas.

    Below what each step costs at least, so that nobody earns by carrying cases on. ``reviewers``: distinct ones;
    ``rows`` of the trace that is judged, on which the depth of its tree depends.
    """

    rules: Rules
    rows: int
    price: int

    def opening(self, kind: CaseKind, *, suspends: bool = False) -> int:
        """Opening a case; a doubt shows no verifiers."""
        return self._worth((_DOUBT if kind is CaseKind.DOUBT else _OPEN) + _SUSPEND * suspends)

    def drawing(self, reviewers: int) -> int:
        """Proving the beacon and drawing the reviewers."""
        return self._worth(_DRAW + _DRAW_REVIEWER * reviewers)

    def committing(self, reviewers: int, *, posted: int, signed: int) -> int:
        """Ending the commitments, of which some were ``posted`` and others are ``signed``."""
        return self._worth(_COMMIT + _COMMIT_REVIEWER * reviewers + _POSTED * posted + _SIGNED * signed)

    def convening(self, reviewers: int) -> int:
        """Drawing the reviewers and ending their commitments in one call."""
        return self._worth(_CONVENE + _CONVENE_REVIEWER * reviewers)

    def seeding(self, reviewers: int) -> int:
        """Proving the beacon that picks the tiles."""
        return self._worth(_SEED + _SEED_REVIEWER * reviewers)

    def deciding(self, reviewers: int, finding: CaseFinding, done: DecisionEffects) -> int:
        """Comparing all openings, and paying whom they pay."""
        sample = Sample.of(self.rules, self.rows)
        tiles = sample.tiles * (len(finding.telling) + finding.node)
        gas = _DECIDE + _SHOWN * (reviewers - len(finding.silent)) + tiles * (_TILE + _LEVEL * sample.depth)
        gas += _PAID * len(finding.cluster) * finding.paid
        gas += _CONVICT * done.convicts + _EVICT * done.evicts + _RESTORE * done.restores + _PROVE * done.proves
        return self._worth(gas)

    @property
    def whole(self) -> int:
        """An opening and two rounds, at most: what a bond holds."""
        return self._worth(most_paid(self.rules.reviewers, self.rules.tiles, Sample.of(self.rules, self.rows).depth))

    def _worth(self, gas: int) -> int:
        return gas * self.price // PER


def bond_of(rules: Rules, rows: int, gas_price: int) -> int:
    """What an opener puts up: eight units, the pay of m' seats, and the gas of all steps at the ceiling price."""
    units = prices.BOND_UNITS + prices.REWARD_UNITS * rules.reviewers
    return prices.unit(rules, rows + 1) * units + CaseGas(rules, rows, gas_price).whole


@dataclass(frozen=True, slots=True)
class OutcomePool:
    """Outcomes between the cuts that were counted against an owner in a class, since a block."""

    count: int = 0
    since: int = 0

    def counted(self, block: int, rules: Rules) -> OutcomePool:
        """The pool with one more; counting begins anew after the class's window."""
        if self.count == 0 or block > self.since + rules.pool_window:
            return OutcomePool(1, block)
        return replace(self, count=self.count + 1)

    def convicts(self, rules: Rules) -> bool:
        """Whether there are more than honest noise gives."""
        return self.count > rules.pool_limit


def convict_of(state: CaseState, finding: CaseFinding, pool: OutcomePool, rules: Rules) -> tuple[Address, Fault] | None:
    """Whom an outcome convicts of what, if anybody; ``pool`` counts this outcome already."""
    if finding.outcome is Outcome.SCHEDULER_MISSING:
        return state.scheduler, Fault.NOTHING_SHOWN
    if finding.outcome is Outcome.NODE_MISSING:
        return state.node, Fault.NOTHING_SHOWN
    if finding.outcome is Outcome.CONVICTED:
        return state.node, Fault.FALSE_RESULT
    return (state.node, Fault.POOLED) if finding.pooled and pool.convicts(rules) else None


@dataclass(slots=True)
class _Draft:
    """Movements as they are drawn up (library Ledger): what is owed is paid in its order, while the bond lasts."""

    bond: Pot
    balances: Mapping[Pot, int]
    left: int
    movements: list[Movement] = field(default_factory=list)

    def shift(self, source: Pot, target: Pot, amount: int) -> None:
        """Moves an amount between two pots; nothing if it is zero."""
        if amount:
            self.movements.append(Movement(*source, *target, amount))

    def held(self, kind: PotKind, account: Address) -> int:
        """What an operator's pot held before the case was decided."""
        return self.balances.get(pot_of(kind, account), 0)

    def take(self, source: Pot, amount: int) -> int:
        """From an operator's pot into the bond: at most what it holds."""
        taken = min(amount, self.balances.get(source, 0))
        self.shift(source, self.bond, taken)
        self.left += taken
        return taken

    def pay(self, account: Address, amount: int, since: int | None = None) -> None:
        """From the bond to an account's credit, in one movement with what it was given since movement ``since``."""
        paid = min(amount, self.left)
        self.left -= paid
        target = pot_of(PotKind.CREDIT, account)
        first = len(self.movements) if since is None else since
        for index, earlier in enumerate(self.movements[first:], start=first):
            if (earlier.to_kind, earlier.to_id) == target:
                self.movements[index] = replace(earlier, amount=earlier.amount + paid)
                return
        self.shift(self.bond, target, paid)

    def fine(self, operator: Address, amount: int) -> None:
        """Burns a part of an operator's stake: at most what it held before the case."""
        self.shift(pot_of(PotKind.STAKE, operator), BURNT, min(amount, self.held(PotKind.STAKE, operator)))


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the outcome's money depends on beside the case: pots, gas price, who decides, the pool before, the block.

    ``voided``: the leaf fell by another case already, so that its client is whole. ``posted``: reviewers who committed
    by their own calls, whose signatures nobody sent. ``proves``: the deciding call drew the tiles, too.
    """

    balances: Mapping[Pot, int]
    gas_price: int
    decider: Address
    pool: OutcomePool = OutcomePool()
    block: int = 0
    voided: bool = False
    posted: frozenset[int] = frozenset()
    proves: bool = False


def settle(state: CaseState, finding: CaseFinding, rules: Rules, around: Circumstances) -> tuple[Movement, ...]:
    """The movements of a case that was decided, or of a round that left it undecided.

    After a conviction the client's fee comes first, out of L alone, so that no opener pays for a convict without
    stake. Whoever convicts itself loses nine tenths of it and more. In all other cases the bond pays reviewers and
    gas; the rest returns to the opener if the leaf fell.
    """
    draft = _Draft((PotKind.BOND, case_of(state)), around.balances, state.bond)
    gas = CaseGas(rules, state.rows, around.gas_price)
    if finding.outcome in {Outcome.NONE, Outcome.UNDECIDED}:
        return _leave_undecided(draft, state, finding, gas, around)
    pool = around.pool.counted(around.block, rules)
    convicted = convict_of(state, finding, pool, rules)
    taken = 0 if convicted is None else _take_penalty(draft, state, convicted, rules, around.voided)
    evicts = convicted is not None and convicted[0] == state.node and _evicts(draft, state.node, taken, rules)
    done = DecisionEffects(convicted is not None, evicts, state.suspends, around.proves)
    if convicted is not None and convicted[0] == state.node:
        # Its own lock is used up; what else is locked is another case's.
        state = replace(state, locked=0)
    for index in sorted(finding.cluster) if finding.paid else ():
        draft.pay(state.reviewers[index], prices.REWARD_UNITS * state.unit * state.seats[index])
    since = len(draft.movements)
    _pay_gas(draft, _steps(state, gas, around, gas.deciding(len(state.reviewers), finding, done)), since)
    if convicted is not None:
        _pay_opener(draft, state, 0 if convicted[1] is Fault.POOLED else taken, gas, since)
    elif finding.outcome is Outcome.REFUNDED:
        draft.pay(state.opener, draft.left, since)
    draft.shift(draft.bond, BURNT, draft.left)
    upheld = finding.outcome is Outcome.UPHELD
    _unlock(draft, state, taken if convicted and convicted[0] == state.node else 0, rules, lost=upheld)
    if upheld:
        _fine_verifiers(draft, state, Opinion.REJECT)
    if finding.outcome is Outcome.CONVICTED:
        _fine_verifiers(draft, state, Opinion.ACCEPT)
    _fine_reviewers(draft, state, finding.silent | finding.wrong)
    return tuple(draft.movements)


def lapse(state: CaseState, rules: Rules, balances: Mapping[Pot, int]) -> tuple[Movement, ...]:
    """The movements of a case that nobody carried on: its opener loses the bond."""
    draft = _Draft((PotKind.BOND, case_of(state)), balances, state.bond)
    draft.shift(draft.bond, BURNT, draft.left)
    _unlock(draft, state, 0, rules, lost=False)
    return tuple(draft.movements)


def _leave_undecided(
    draft: _Draft, state: CaseState, finding: CaseFinding, gas: CaseGas, around: Circumstances
) -> tuple[Movement, ...]:
    """No proper cluster: the round's gas is paid, and silence fined. After the second round the leaf falls."""
    spent = gas.deciding(len(state.reviewers), finding, DecisionEffects(proves=around.proves))
    _pay_gas(draft, _steps(state, gas, around, spent), 0)
    _fine_reviewers(draft, state, finding.silent)
    if state.round % 2:
        draft.pay(state.opener, draft.left, 0)
        _unlock(draft, state, 0, gas.rules, lost=False)
    return tuple(draft.movements)


def _take_penalty(draft: _Draft, state: CaseState, convicted: tuple[Address, Fault], rules: Rules, voided: bool) -> int:
    """L, or what is there of it: what is locked, for this case or another, then free stake. Returns what was taken.

    A lock only keeps stake from leaving; were it one case's own, friends could lock everything by sham cases before
    the true one. The client's refund comes out of L alone; a leaf that fell already is not refunded.
    """
    convict, fault = convicted
    taken = draft.take(pot_of(PotKind.LOCKED, convict), rules.penalty)
    taken += draft.take(pot_of(PotKind.STAKE, convict), rules.penalty - taken)
    if fault is not Fault.POOLED and not voided:
        draft.pay(state.client, min(state.fee, taken))
    return taken


def _evicts(draft: _Draft, node: Address, taken: int, rules: Rules) -> bool:
    """Whether a node loses its last seat by what is taken."""
    stake = draft.held(PotKind.STAKE, node) + draft.held(PotKind.LOCKED, node)
    return stake >= rules.seat > stake - taken


def _steps(state: CaseState, gas: CaseGas, around: Circumstances, deciding: int) -> tuple[tuple[Address, int], ...]:
    """Who carried this round on, and what that costs; ``deciding``: what the decider's call is paid."""
    reviewers = len(state.reviewers)
    return (
        (state.drawer, gas.drawing(reviewers)),
        (state.committer, _committing(state, gas, around.posted)),
        (state.seeder, gas.seeding(reviewers)),
        (around.decider, deciding),
    )


def _pay_gas(draft: _Draft, steps: tuple[tuple[Address, int], ...], since: int) -> None:
    """Gas of this round, to those who paid it."""
    for account, amount in steps:
        if account != ZERO_ADDRESS:
            draft.pay(account, amount, since)


def _committing(state: CaseState, gas: CaseGas, posted: frozenset[int]) -> int:
    """Where nobody drew, the commitments were ended in the call that did."""
    reviewers = len(state.reviewers)
    if state.drawer == ZERO_ADDRESS:
        return gas.convening(reviewers)
    signed = sum(index not in posted for index, one in enumerate(state.commitments) if one != ZERO_HASH)
    return gas.committing(reviewers, posted=len(posted), signed=signed)


def _pay_opener(draft: _Draft, state: CaseState, taken: int, gas: CaseGas, since: int) -> None:
    """Bond, gas and reward: a tenth of what was taken or of the bond, so that nobody lets a rejection lie.

    Who convicts itself with little stake gets little; a full pool, which prompts may have filled, pays none. Anyone who
    sees a rejection on its way can bring it first: then half of the reward is the rejecters', whose work it is.
    """
    reward = max(taken, state.bond) // REWARD_SHARE if taken else 0
    rejecting = [one for one, said in zip(state.verifiers, state.opinions, strict=True) if said == Opinion.REJECT]
    stranger = state.opener != state.client and state.opener not in rejecting
    shared = reward // 2 if state.kind is CaseKind.REJECTION and stranger else 0
    opening = gas.opening(state.kind, suspends=state.suspends)
    draft.pay(state.opener, state.bond + opening + reward - shared, since)
    for verifier in rejecting if shared else ():
        draft.pay(verifier, shared // len(rejecting), since)


def _unlock(draft: _Draft, state: CaseState, taken: int, rules: Rules, *, lost: bool) -> None:
    """What is still locked returns; but a rejection that fell costs each rejecter L: it suspended an honest node.

    ``taken`` of the node's lock went in this case; another conviction may have taken of each lock before.
    """
    locked = max(draft.held(PotKind.LOCKED, state.node) - taken, 0)
    draft.shift(pot_of(PotKind.LOCKED, state.node), pot_of(PotKind.STAKE, state.node), min(state.locked, locked))
    said = dict(zip(state.verifiers, state.opinions, strict=True)) if state.suspends else {}
    for verifier, opinion in said.items():
        if opinion == Opinion.REJECT:
            target = BURNT if lost else pot_of(PotKind.STAKE, verifier)
            kept = min(rules.penalty, draft.held(PotKind.LOCKED, verifier))
            draft.shift(pot_of(PotKind.LOCKED, verifier), target, kept)


def _fine_verifiers(draft: _Draft, state: CaseState, fallen: Opinion) -> None:
    """Two units a seat of verifiers whose opinion fell."""
    for verifier, opinion in dict(zip(state.verifiers, state.opinions, strict=True)).items():
        if opinion == fallen:
            draft.fine(verifier, prices.PENALTY_UNITS * state.unit * state.verifiers.count(verifier))


def _fine_reviewers(draft: _Draft, state: CaseState, fined: frozenset[int]) -> None:
    """Two units a seat of reviewers that were outvoted or silent."""
    for index in sorted(fined):
        draft.fine(state.reviewers[index], prices.PENALTY_UNITS * state.unit * state.seats[index])
