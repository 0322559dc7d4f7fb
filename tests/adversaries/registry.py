"""Every adversary, what it does, and what must catch it.

`PLAYED` run as processes on real weights. `REFERENCED` are played elsewhere: each names the tests that show the attack
fail, and a unit test checks that those exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.settlement import SlashReason

STATES, TOKENS = "verdict: states", "verdict: tokens"
CONTRACT_TILES = "contract: tiles"
CONTRACT_MAJORITY = "contract: majority"
CONTRACT_SILENCE = "contract: reveal window"
NOT_CAUGHT = "not caught (stated)"
NODE, CLIENT, CONTRACT, SCHEDULER = "node refuses", "client refuses", "contract refuses", "scheduler refuses"

INFERENCER, CHEATING, HONEST = "inferencer", "cheating verifier", "honest verifier"


@dataclass(frozen=True, slots=True)
class Adversary:
    """One that is played.

    Args:
        inferencer: the cheat that the inferencer plays, "" for an honest one.
        verifiers: the cheats of so many of the three verifiers; the others are honest.
        scheduler: the cheat that the scheduler plays, "" for an honest one.
        refusal: what the client is told in place of a verdict, in part.
        slashed: seat to reason; nobody else is slashed.
        tokens, temperature: what the client orders.
        sure: how surely it is caught, in words.
        reduced: also played where time is short.
    """

    name: str
    role: str
    does: str
    caught_by: str
    inferencer: str = ""
    verifiers: tuple[str, ...] = ()
    scheduler: str = ""
    outcome: str = "rejected"
    slashed: tuple[tuple[str, SlashReason], ...] = ((INFERENCER, SlashReason.REJECTED),)
    tokens: int = 8
    temperature: float = 0.0
    refusal: str = ""
    reduced: bool = True


@dataclass(frozen=True, slots=True)
class Referenced:
    """One that a test elsewhere plays: "path::name", a Python or a Solidity test."""

    name: str
    role: str
    caught_by: str
    tests: tuple[str, ...]


def _inferencer(name: str, does: str, caught_by: str, cheat: str, **rest: object) -> Adversary:
    return Adversary(name, "inferencer", does, caught_by, inferencer=cheat, **rest)  # type: ignore[arg-type]


def _verifier(name: str, does: str, caught_by: str, *cheats: str, **rest: object) -> Adversary:
    return Adversary(name, "verifier", does, caught_by, verifiers=cheats, **rest)  # type: ignore[arg-type]


UNPUNISHED = {"outcome": "accepted", "slashed": ()}
DISAGREED = {"outcome": "accepted", "slashed": ((CHEATING, SlashReason.DISAGREED),)}
UNREVEALED = {"outcome": "accepted", "slashed": ((CHEATING, SlashReason.UNREVEALED),)}

INFERENCERS = (
    _inferencer("int8 weights", "weights through int8, a scale per channel", STATES, "int8"),
    _inferencer("W8A8", "int8 weights and int8 inputs of every matrix", STATES, "W8A8"),
    _inferencer("fp8 weights", "weights through float8 (e4m3)", STATES, "fp8"),
    _inferencer("int4 weights", "weights through int4", STATES, "int4"),
    _inferencer("fp8 KV cache", "keys and values kept as float8", STATES, "fp8 cache"),
    _inferencer("one layer skipped", "layer 15 of 30 left out", STATES, "a layer skipped"),
    _inferencer("early exit", "the last three layers left out", STATES, "early exit"),
    _inferencer("0.3 % weight change", "every weight off by 0.3 % of itself", STATES, "0.3 %"),
    _inferencer("0.1 % weight change", "every weight off by 0.1 % of itself", STATES, "0.1 %"),
    _inferencer("stale states", "the attention cache of another request", STATES, "stale cache"),
    _inferencer("altered system prompt", "three tokens of the system prompt replaced", STATES, "altered prompt"),
    _inferencer("injected prompt", "eight tokens put before the prompt", STATES, "injected prompt"),
    _inferencer("noise of 1 %", "correct states, each element off by 1 %", STATES, "noise 1 %"),
    _inferencer(
        "noise of 0.01 %", "correct states, each element off by 0.01 %", NOT_CAUGHT, "noise 0.01 %", **UNPUNISHED
    ),
    _inferencer("forged text", "half the layers write the text, one honest prefill", TOKENS, "forged", tokens=16),
    _inferencer("fake end", "an end token as the fourth token", TOKENS, "fake end"),
    _inferencer("greedy", "the likeliest token, ordered at temperature 1", TOKENS, "greedy", tokens=16, temperature=1),
    _inferencer(
        "wrong seed", "noise of its own, ordered at temperature 1", TOKENS, "wrong seed", tokens=16, temperature=1
    ),
    _inferencer("other temperature", "samples at 2, ordered at 1", TOKENS, "temperature x 2", tokens=16, temperature=1),
    _inferencer(
        "a little other temperature",
        "samples at 1, ordered at 0.7",
        TOKENS,
        "temperature x 1.43",
        tokens=64,
        temperature=0.7,
        reduced=False,
    ),
)

VERIFIERS = (
    _verifier(
        "lazy, random root", "commits to random rows and says yes", CONTRACT_TILES, "random rows, yes", **DISAGREED
    ),
    _verifier(
        "lazy, copied root",
        "commits to nothing it computed, then to the rows that it was shown",
        SCHEDULER,
        "random rows, then the copied ones",
        **UNPUNISHED,
    ),
    _verifier(
        "copied opening",
        "opens what another verifier opened",
        CONTRACT_SILENCE,
        "shows its opening",
        "copies an opening",
        **UNREVEALED,
    ),
    _verifier("never reveals", "commits and opens nothing", CONTRACT_SILENCE, "never reveals", **UNREVEALED),
    _verifier("always no", "rejects what it found right", CONTRACT_MAJORITY, "always no", **DISAGREED),
    Adversary(
        "always yes",
        "verifier",
        "accepts int8 weights",
        CONTRACT_TILES,
        inferencer="int8",
        verifiers=("always yes",),
        slashed=((INFERENCER, SlashReason.REJECTED), (CHEATING, SlashReason.DISAGREED)),
    ),
    Adversary(
        "1 of 3 colludes",
        "verifier",
        "runs the inferencer's int8 weights and accepts",
        STATES,
        inferencer="int8",
        verifiers=("int8",),
        slashed=((INFERENCER, SlashReason.REJECTED), (CHEATING, SlashReason.DISAGREED)),
    ),
    Adversary(
        "2 of 3 collude (m-1)",
        "verifier",
        "both run the inferencer's int8 weights and accept",
        NOT_CAUGHT,
        inferencer="int8",
        verifiers=("int8", "int8"),
        outcome="accepted",
        slashed=((HONEST, SlashReason.DISAGREED),),
    ),
    Adversary(
        "3 of 3 collude (m)",
        "verifier",
        "all run the inferencer's int8 weights and accept",
        NOT_CAUGHT,
        inferencer="int8",
        verifiers=("int8", "int8", "int8"),
        outcome="accepted",
        slashed=(),
    ),
)

ABORTED = {"outcome": "aborted", "slashed": ()}
NEVER_SETTLES = "never settles"


def _scheduler(name: str, does: str, caught_by: str, cheat: str, **rest: object) -> Adversary:
    return Adversary(name, "scheduler", does, caught_by, scheduler=cheat, **rest)  # type: ignore[arg-type]


# Both are sampled, and hot: the same text twice would have the same rows, and replaying them would be no lie.
BEFORE_REPLAY = _scheduler(
    "nothing",
    "serves honestly; these rows are replayed in a later task",
    "nothing to catch",
    "nothing",
    tokens=16,
    temperature=2,
    **UNPUNISHED,
)

SCHEDULERS = (
    _scheduler("wrong VRF key", "proves its draw with another key", CLIENT, "wrong VRF key", refusal="VRF", **ABORTED),
    _scheduler(
        "wrong assignment",
        "names other parties than its proofs draw",
        CLIENT,
        "wrong assignment",
        refusal="not drawn",
        **ABORTED,
    ),
    _scheduler("altered rows", "shows verifiers a flipped bit", NODE, "altered rows", refusal="verifiers", **ABORTED),
    _scheduler("dropped rows", "leaves a row out for verifiers", NODE, "dropped rows", refusal="verifiers", **ABORTED),
    _scheduler(
        "reordered rows", "swaps two rows for verifiers", NODE, "reordered rows", refusal="verifiers", **ABORTED
    ),
    _scheduler(
        "replayed rows",
        "shows verifiers another task's rows",
        NODE,
        "replayed rows",
        refusal="verifiers",
        tokens=16,
        temperature=2,
        **ABORTED,
    ),
    _scheduler(
        "withheld target",
        "never shows verifiers what to judge",
        "contract: no quorum",
        "withheld target",
        refusal="verifiers",
        **ABORTED,
    ),
    _scheduler(
        "never settles",
        "goes silent after the commitments",
        "contract: sample window",
        NEVER_SETTLES,
        outcome="expired",
        slashed=(("scheduler", SlashReason.SCHEDULER_LATE),),
    ),
)

PLAYED = (*INFERENCERS, *VERIFIERS, *SCHEDULERS)
