"""Every adversary that is played, what it does, what must catch it, and who may lose money by it.

Those that other tests play are in `references`.
"""

from __future__ import annotations

from dataclasses import dataclass

from adversaries.notes import INFERENCER, SCHEDULER, verifier

STATES, TOKENS = "verdict: states", "verdict: tokens"
OPENINGS, MAJORITY = "client: openings", "majority of verifiers"
CLIENT, NODE, COURT, SUMMONS = "client refuses", "node refuses", "the court", "a summons"
SCHEDULERS, CONTRACT = "scheduler refuses", "the contract"
NOT_CAUGHT, NOTHING = "not caught (stated)", "nothing to gain"
CONVICTED, CHECKED, FAILED = "convicted", "checked", "failed"
SCHEDULER_CONVICTED, UNPAID = "scheduler convicted", "unchecked, not paid"


@dataclass(frozen=True, slots=True)
class Row:
    """One adversary.

    Args:
        kind: the network that it is played on: "weights" (SmolLM2) or "toy" (two segments).
        caught_by: what catches it; for STATES and TOKENS every honest verifier's own check must say so.
        outcome: how the order, its case or its summons must end.
        cheats: part to cheat, as the notes take them.
        losers: parts that lose money by it; nobody else may lose a wei beyond what an answer costs.
        says: what the client is told, in part.
        client: who asks: "client", or "suer", which brings cases by itself.
        script: a course of its own in `scripts`.
        reduced: also played by `make test`.
    """

    name: str
    does: str
    caught_by: str
    outcome: str
    cheats: tuple[tuple[str, str], ...] = ()
    losers: tuple[str, ...] = ()
    kind: str = "toy"
    tokens: int = 8
    temperature: float = 0.0
    check: str = "always"
    client: str = "client"
    says: str = ""
    script: str = ""
    reduced: bool = False


def _node(name: str, does: str, caught_by: str, cheat: str, **rest: object) -> Row:
    cheats, losers = ((INFERENCER, cheat),), (INFERENCER,)
    fields = {"outcome": CONVICTED, "losers": losers, "kind": "weights"} | rest
    return Row(name, does, caught_by, cheats=cheats, **fields)  # type: ignore[arg-type]


def _checker(name: str, does: str, caught_by: str, *cheats: str, inferencer: str = "", **rest: object) -> Row:
    named = [(verifier(number), cheat) for number, cheat in enumerate(cheats)]
    named += [(INFERENCER, inferencer)] if inferencer else []
    fields = {"outcome": CHECKED, "kind": "weights"} | rest
    return Row(name, does, caught_by, cheats=tuple(named), **fields)  # type: ignore[arg-type]


def _scheduler(name: str, does: str, caught_by: str, cheat: str, **rest: object) -> Row:
    fields = {"outcome": SCHEDULER_CONVICTED, "losers": (SCHEDULER,)} | rest
    return Row(name, does, caught_by, cheats=((SCHEDULER, cheat),), **fields)  # type: ignore[arg-type]


def _script(name: str, does: str, caught_by: str, script: str, outcome: str, **rest: object) -> Row:
    return Row(name, does, caught_by, outcome, script=script, **rest)  # type: ignore[arg-type]


INFERENCERS = (
    _node("int8 weights", "weights through int8, a scale per channel", STATES, "int8", reduced=True),
    _node("W8A8", "int8 weights and int8 inputs of every matrix", STATES, "W8A8"),
    _node("fp8 weights", "weights through float8 (e4m3)", STATES, "fp8"),
    _node("int4 weights", "weights through int4", STATES, "int4"),
    _node("fp8 KV cache", "keys and values kept as float8", STATES, "fp8 cache"),
    _node("one layer skipped", "layer 15 of 30 left out", STATES, "a layer skipped"),
    _node("early exit", "the last three layers left out", STATES, "early exit"),
    _node("0.3 % weight change", "every weight off by 0.3 % of itself", STATES, "0.3 %"),
    _node("0.1 % weight change", "every weight off by 0.1 % of itself", STATES, "0.1 %"),
    _node("stale states", "the attention cache of another request", STATES, "stale cache"),
    _node("altered system prompt", "three tokens of the system prompt replaced", STATES, "altered prompt"),
    _node("injected prompt", "eight tokens put before the prompt", STATES, "injected prompt"),
    _node("noise of 1 %", "correct states, each element off by 1 %", STATES, "noise 1 %"),
    _node(
        "noise of 0.0005 %", "correct states, each element off by 0.0005 %", NOT_CAUGHT, "noise 0.0005 %",
        outcome=CHECKED, losers=(),
    ),
    _node("forged text", "half the layers write the text, one honest prefill", TOKENS, "forged", tokens=16),
    _node("fake end", "an end token as the fourth token", TOKENS, "fake end", reduced=True),
    _node("greedy", "the likeliest token, ordered at temperature 1", TOKENS, "greedy", tokens=16, temperature=1),
    _node("wrong seed", "noise of its own, ordered at temperature 1", TOKENS, "wrong seed", tokens=16, temperature=1),
    _node("other temperature", "samples at 2, ordered at 1", TOKENS, "temperature x 2", tokens=16, temperature=1),
    _node(
        "a little other temperature", "samples at 1, ordered at 0.7", TOKENS, "temperature x 1.43",
        tokens=64, temperature=0.7,
    ),
)  # fmt: skip

VERIFIERS = (
    _checker("lazy, random root", "commits to random rows and says yes", OPENINGS, "random rows, yes", reduced=True),
    _checker("copied opening", "opens what another one opened", OPENINGS, "shows its opening", "copies an opening"),
    _checker("never opens", "commits, says yes, opens nothing", OPENINGS, "opens nothing"),
    _checker("always no", "rejects what it found right", MAJORITY, "always no"),
    _checker(
        "always yes", "accepts int8 weights", STATES, "always yes", inferencer="int8",
        outcome=CONVICTED, losers=(INFERENCER,),
    ),
    _checker(
        "1 of 3 colludes", "runs the node's int8 weights and accepts", STATES, "int8", inferencer="int8",
        outcome=CONVICTED, losers=(INFERENCER,),
    ),
    _checker(
        "2 of 3 collude", "both run the node's int8 weights and accept", COURT, "int8", "int8", inferencer="int8",
        outcome=CONVICTED, losers=(INFERENCER,), client="suer", check="court",
    ),
    _checker(
        "3 of 3 collude, nobody doubts", "all run the node's int8 weights and accept", NOT_CAUGHT,
        "int8", "int8", "int8", inferencer="int8",
    ),
    _checker(
        "3 of 3 collude", "the same, and the client wants the chain's word", COURT, "int8", "int8", "int8",
        inferencer="int8", outcome=CONVICTED, client="suer", check="court",
        losers=(INFERENCER,),
    ),
    _checker(
        "nobody brings it", "all verifiers reject, and let the rejection lie", COURT,
        "does not bring it", "does not bring it", "does not bring it", inferencer="cheap model",
        outcome=CONVICTED, losers=(INFERENCER,), client="suer", kind="toy", reduced=True,
    ),
)  # fmt: skip

NODES = (
    _node(
        "signs and shows other rows", "its result commits to another trace than its rows", COURT, "other trace",
        outcome="node missing", client="suer", check="court",
    ),
    _node(
        "withholds its result", "answers, and signs nothing", NOTHING, "withheld result", kind="toy", outcome=FAILED,
        losers=(),
    ),
    _node(
        "signs two results", "another trace commitment for whoever wants it", CONTRACT, "two results",
        kind="toy", outcome=CONVICTED, script="two_results", reduced=True,
    ),
)  # fmt: skip

SCHEDULERS_ROWS = (
    _scheduler("wrong VRF key", "proves its draw with another key", CLIENT, "wrong VRF key",
               outcome="refused", losers=(), says="proof of who infers"),
    _scheduler("skipped parties", "names a node that was not drawn", CONTRACT, "wrong assignment",
               says="not drawn", script="wrong_nodes", reduced=True),
    _scheduler("friends check", "lets other verifiers check than were drawn", CLIENT, "friends check",
               outcome="refused", says="other verifiers", reduced=True),
    _scheduler("altered rows", "shows verifiers a flipped bit", SUMMONS, "altered rows", outcome=UNPAID,
               reduced=True),
    _scheduler("dropped rows", "leaves a row out for verifiers", SUMMONS, "dropped rows", outcome=UNPAID),
    _scheduler("reordered rows", "swaps two rows for verifiers", SUMMONS, "reordered rows", outcome=UNPAID),
    _scheduler("replayed rows", "shows verifiers another order's rows", SUMMONS, "replayed rows", outcome=UNPAID),
    _scheduler("other inputs for verifiers", "gives verifiers another text", SUMMONS, "other text", outcome=UNPAID),
    _scheduler("rows withheld", "never shows verifiers what to judge", SUMMONS, "withheld target", outcome=UNPAID),
    _scheduler("verifiers never asked", "asks no verifier to commit", SUMMONS, "shows nothing to verifiers",
               outcome=UNPAID),
    _scheduler("results withheld", "keeps the results of an answer back", SUMMONS, "withholds results"),
    _scheduler("refuses the check", "answers neither secret nor summons", SUMMONS, "refuses the check", reduced=True),
    _scheduler("checks late", "answers the summons alone", SUMMONS, "checks late", outcome=CHECKED, losers=()),
)  # fmt: skip

CLIENTS = (
    _script("secret never shown", "keeps its first secret", NOTHING, "never_shown", "undrawn", reduced=True),
    _script("secret shown first", "shows its secret before there are results", SCHEDULERS, "shown_first", "refused"),
    _script("one tab, two schedulers", "orders on a tab with another payee", SCHEDULERS, "other_payee", "refused"),
    _script("voucher backwards", "says that less was spent", SCHEDULERS, "backwards", "refused", reduced=True),
    _script("open again", "opens a number that it acknowledged", NOTHING, "unacknowledged_again", "changes nothing"),
    _script("another deployment's voucher", "signs in another Bank's domain", SCHEDULERS, "another_bank", "refused"),
)

# A node that was paid less than it thinks it is owed works for that scheduler no more, so that these rows are the last
# of their networks.
STRIKES = (
    _checker("lazy, copied root", "says yes over the rows that it was shown", SCHEDULERS,
             "random rows, then the copied ones"),
    _scheduler("pays a node less", "acknowledges half of what it promised", NODE, "pays a node less",
               outcome="claimable", losers=(), script="pays_less", reduced=True),
)  # fmt: skip

PLAYED = (*INFERENCERS, *VERIFIERS, *NODES, *SCHEDULERS_ROWS, *CLIENTS, *STRIKES)
