"""Every cheat that a node can play, by the name that notes use."""

from __future__ import annotations

from dataclasses import dataclass

from adversaries import sessions
from adversaries.sessions import Session, at_temperature, with_noise, with_weights
from troth.protocol.market.signed import Opinion


@dataclass(frozen=True, slots=True)
class Deceit:
    """How a node cheats in an order.

    Args:
        session: how it computes.
        opinion: what it says of the inferencer whatever it found, None for what it found.
        copies: as a verifier, its verdict names the trace that it was shown, in place of the one it committed to.
        opening: "own"; "silent": it opens nothing; "leaked": it opens, and shows the others; "copied": it opens what
            another leaked.
        result: "own"; "other trace": its result commits to a trace that its rows are not; "twice": it signs another
            result of the same segment for whoever wants it; "withheld": it never signs one.
        brings: whether it brings a rejection of its own to the court.
    """

    session: type[Session] = Session
    opinion: Opinion | None = None
    copies: bool = False
    opening: str = "own"
    result: str = "own"
    brings: bool = True


HONEST = Deceit()

DECEITS: dict[str, Deceit] = {
    "int8": Deceit(with_weights("int8")),
    "int4": Deceit(with_weights("int4")),
    "fp8": Deceit(with_weights("fp8")),
    "W8A8": Deceit(with_weights("W8A8")),
    "fp8 cache": Deceit(with_weights("fp8 cache")),
    "0.3 %": Deceit(with_weights("0.3 %")),
    "0.1 %": Deceit(with_weights("0.1 %")),
    "a layer skipped": Deceit(with_weights("a layer skipped")),
    "early exit": Deceit(with_weights("early exit")),
    "noise 1 %": Deceit(with_noise(1e-2)),
    "noise 0.0005 %": Deceit(with_noise(5e-6)),
    "stale cache": Deceit(sessions.StaleCache),
    "altered prompt": Deceit(sessions.AlteredPrompt),
    "injected prompt": Deceit(sessions.InjectedPrompt),
    "greedy": Deceit(sessions.Greedy),
    "temperature x 1.43": Deceit(at_temperature(1 / 0.7)),
    "temperature x 2": Deceit(at_temperature(2.0)),
    "wrong seed": Deceit(sessions.WrongSeed),
    "fake end": Deceit(sessions.FakeEnd),
    "forged": Deceit(sessions.Forged),
    "cheap model": Deceit(with_noise(0.3)),
    "random rows, yes": Deceit(sessions.Garbage, Opinion.ACCEPT),
    "random rows, then the copied ones": Deceit(sessions.Garbage, Opinion.ACCEPT, copies=True),
    "copies an opening": Deceit(sessions.Garbage, Opinion.ACCEPT, opening="copied"),
    "shows its opening": Deceit(opening="leaked"),
    "opens nothing": Deceit(opening="silent"),
    "always yes": Deceit(opinion=Opinion.ACCEPT),
    "always no": Deceit(opinion=Opinion.REJECT),
    "does not bring it": Deceit(brings=False),
    "other trace": Deceit(result="other trace"),
    "two results": Deceit(result="twice"),
    "withheld result": Deceit(result="withheld"),
}
