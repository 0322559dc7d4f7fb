"""Coalitions in checks and cases: friends, captured committees, lazy verifiers, refused checks, framing, idle cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from benchmarks.economy import cases, chances, leaves
from benchmarks.economy.cases import FALSE, TRUE, Play, Side, Voice
from benchmarks.economy.coalition import Coalition
from benchmarks.economy.leaves import BOTH, Cheat, word
from benchmarks.economy.world import COST, GAS, World
from troth.protocol.market import checks, convictions, lottery, prices
from troth.protocol.market.checks import Opened
from troth.protocol.market.proceedings import CaseKind
from troth.protocol.market.signed import Opinion
from troth.protocol.types import ZERO_HASH

CASES = 100
SUMMONS_REPAID, UNANSWERED_REPAID = 80_000, 80_000
"""Gas that a summons and the conviction after it pay back."""


# --------------------------------------------------------------------------------------------------- friends, captured


def seats_in(verifying: bool, voice: Voice) -> Cheat:
    """A false answer whose friends sit in some committees only."""
    return replace(BOTH, verifying=verifying, voice=voice)


# ----------------------------------------------------------------------------------------------------- refusing checks


def refusing(world: World) -> float:
    """A false answer whose scheduler refuses the check wherever honest seats would reject."""
    rejected = leaves.rejected(world)
    return (1 - rejected) * BOTH.gain(world) - rejected * fined(world)


def refusing_all(world: World) -> float:
    """The same, refusing whatever the lottery hits."""
    return (1 - world.rate) * BOTH.gain(world) - world.rate * fined(world)


def fined(world: World) -> float:
    """What an unanswered summons takes of a scheduler."""
    return float(convictions.fine(world.parameters.scheduler_stake, world.penalty)[0])


def sample_refusing(world: World, source: Random) -> float:
    """The same with real draws."""
    if not lottery.hits(word(source), word(source), world.check_rate):
        return BOTH.gain(world)
    honest = leaves.honest_seats(world, leaves.draw_verifiers(world, source, (world.cheat,)))
    return -fined(world) if leaves.rejects(world, honest, BOTH) else BOTH.gain(world)


def summoning(world: World) -> float:
    """What a client has of summoning a check that is refused: its deposit back, gas, and a tenth of what is taken."""
    reward = convictions.fine(world.parameters.scheduler_stake, world.penalty)[1]
    spent = world.wei(GAS.summons + GAS.unanswered)
    return reward + world.paid_back(SUMMONS_REPAID + UNANSWERED_REPAID) - spent


# ----------------------------------------------------------------------------------------- the verifier's dilemma


def lazy(world: World, false_share: float, *, bare: bool = False) -> float:
    """A drawn seat that always says yes, against one that checks: what it saves less what it loses, per check.

    It commits before it sees the node's rows, so that what it opens is not the node's trace: the client counts its yes
    as nothing, and such a check is not paid. Beside honest seats its yes to a false answer is fined. ``bare``: a claim
    is paid for a verdict without what it opens.
    """
    saved = COST * world.reward
    unpaid = 0.0 if bare or _is_counted(world) else float(world.reward)
    return saved - unpaid - false_share * (_fined_for_yes(world) + _brought(world))


def _is_counted(world: World) -> bool:
    """Whether a yes without a trace of its own counts, by the rule of checks."""
    verifier = cases.verifier(0)
    node, shown = Opened(TRUE, ZERO_HASH), {verifier: Opened(FALSE, ZERO_HASH)}
    counted = checks.honest_opinions({verifier: Opinion.ACCEPT}, node, shown, world.rules)
    return counted[verifier] is Opinion.ACCEPT


def _fined_for_yes(world: World) -> float:
    """What a yes to a false answer costs: two units where the court convicts."""
    both = chances.binomial(world.money.verifiers - 1, world.share)[world.money.verifiers - 1]
    court = chances.at_least(world.money.reviewers, -(-2 * world.money.reviewers // 3), world.share)
    return both * court * prices.PENALTY_UNITS * world.unit


def _brought(world: World) -> float:
    """What a checking seat earns by bringing a rejection, a third of the times."""
    return max(leaves.bringing(world), 0.0) / world.money.verifiers


# ------------------------------------------------------------------------------------------------- framing, idle cases


@dataclass(frozen=True, slots=True)
class Attack:
    """A case that a coalition's client or verifier opens over an honest node's answer."""

    kind: CaseKind
    suspends: bool = False
    odd: bool = False

    def play(self, world: World, lying: int, honest_reviewers: int) -> Play:
        """The case; ``lying`` verifiers are the coalition's."""
        return Play(
            self.kind,
            node_honest=True,
            opener=Side.COALITION,
            client=Side.COALITION,
            honest_verifiers=world.money.verifiers - lying,
            honest_reviewers=honest_reviewers,
            suspends=self.suspends,
            odd=self.odd,
        )


def is_lie(world: World, attack: Attack, honest: int) -> bool:
    """Whether a check with so many honest seats makes such a case possible."""
    if attack.kind is not CaseKind.REJECTION or attack.odd:
        return True
    return 2 * (world.money.verifiers - honest) > world.money.verifiers


def attacked(world: World, attack: Attack, value: Callable[[cases.Account], float]) -> float:
    """Expected value of a case, once its check allows it."""
    total = weight = 0.0
    for drawn in chances.verifying(world, node_honest=True):
        if not is_lie(world, attack, drawn.honest):
            continue
        weight += drawn.chance
        lying = world.money.verifiers - drawn.honest
        for honest, chance in enumerate(chances.reviewing(world, drawn.left)):
            total += drawn.chance * chance * value(cases.judge(world, attack.play(world, lying, honest)))
    return total / weight


def of_coalition(world: World, account: cases.Account) -> float:
    """What a case brings its coalition; an answer whose leaf falls it has for nothing."""
    return account.coalition + (world.fee if account.outcome in leaves.UNPAID else 0)


def framing(world: World, attack: Attack) -> float:
    """What one case over an honest answer brings."""
    return attacked(world, attack, partial(of_coalition, world))


def framed(world: World, attack: Attack) -> float:
    """What the honest node has of it."""
    fee = world.fee
    return attacked(world, attack, lambda account: account.node - (fee if account.outcome in leaves.UNPAID else 0))


def sample_framing(world: World, source: Random, attack: Attack) -> float:
    """The same with real draws: verifiers until their majority lies, then the court."""
    while True:
        drawn = leaves.draw_verifiers(world, source, (world.upright,))
        honest = leaves.honest_seats(world, drawn)
        if is_lie(world, attack, honest):
            break
    reviewers = leaves.draw_reviewers(world, source, (world.upright, *leaves.owners_of(world, drawn)))
    lying = world.money.verifiers - honest
    play = attack.play(world, lying, leaves.honest_seats(world, reviewers))
    return of_coalition(world, cases.judge(world, play))


def odd_prompts(world: World) -> float:
    """Cases by prompts with much honest noise until an owner's pool is full, and the reward for its conviction.

    The coalition's own reviewers earn, too. Its client has no use for these answers.
    """
    attack = Attack(CaseKind.REJECTION, odd=True)
    each = attacked(world, attack, lambda account: account.coalition)
    reward = convictions.fine(world.money.seat, world.penalty)[1]
    return (world.money.pool_limit + 1) * each + reward


def idle(world: World) -> float:
    """A hundred doubts of a client over honest answers."""
    return CASES * framing(world, Attack(CaseKind.DOUBT))


# --------------------------------------------------------------------------------------------------------- coalitions


def coalitions() -> list[Coalition]:
    """All that play in checks and cases."""
    return [*_friends(), *_refusals(), *_verifiers(), *_attacks()]


def _friends() -> list[Coalition]:
    named = (
        ("friends as verifiers: k is captured where it can be", seats_in(True, Voice.ABSTAINING)),
        ("m' is captured where it can be", seats_in(False, Voice.SHREWD)),
        ("k and m' are captured where they can be", BOTH),
    )
    return [
        Coalition(
            name,
            "false answer",
            partial(leaves.false_answer, cheat=cheat),
            partial(leaves.play_false_answer, cheat=cheat),
            plays=20_000,
        )
        for name, cheat in named
    ]


def _refusals() -> list[Coalition]:
    refuse = "refusing checks that honest seats would reject"
    return [
        Coalition(refuse, "false answer", refusing, sample_refusing, 20_000, honest=summoning, whom="who summons"),
        Coalition("refusing every check", "false answer", refusing_all, honest=summoning, whom="who summons"),
    ]


def _verifiers() -> list[Coalition]:
    shares = (0.0, 0.01, 1.0)
    return [
        Coalition(
            f"verifier always yes, {share:.0%} of answers false: against checking",
            "check",
            partial(lazy, false_share=share),
        )
        for share in shares
    ]


def _attacks() -> list[Coalition]:
    named = (
        ("framing by a captured k", Attack(CaseKind.REJECTION)),
        ("framing by a captured k that suspends the node", Attack(CaseKind.REJECTION, suspends=True)),
        ("framing by chosen cases: false doubts of accepted answers", Attack(CaseKind.ACCEPTANCE)),
    )
    framings = [
        Coalition(
            name,
            "case",
            partial(framing, attack=attack),
            partial(sample_framing, attack=attack),
            plays=4_000,
            honest=partial(framed, attack=attack),
            whom="the honest node",
        )
        for name, attack in named
    ]
    doubt = Attack(CaseKind.DOUBT)
    return [
        *framings,
        Coalition("framing by odd prompts until a pool is full", "campaign", odd_prompts),
        Coalition(
            "idle cases by the hundred",
            "100 cases",
            idle,
            lambda world, source: CASES * sample_framing(world, source, doubt),
            plays=4_000,
            honest=partial(framed, attack=doubt),
            whom="the honest node, a case",
        ),
    ]
