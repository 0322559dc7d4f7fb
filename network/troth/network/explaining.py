"""A deployment's parameters in money and hours, as a founder and whoever joins should read them."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.amounts import Asset
from troth.protocol.market.prices import PER
from troth.protocol.market.types import NO_ADDRESS, Parameters

WINDOWS = {
    "lag": "D: an answer that was not drawn is paid this long after it, so that a burst of lies is found unpaid",
    "summons_window": "how long a party that was summoned on chain has to show what it owes; silence convicts it",
    "lookahead": "a court is drawn by randomness that is this far ahead, so that nobody can know or choose it",
    "draw_window": "how long that randomness may be proven to the court",
    "commit_window": "how long reviewers have to compute an answer again and commit to what they found",
    "reveal_window": "how long reviewers have to show what they committed to",
    "claim_delay": "unacknowledged work that is claimed is paid after this, unless the payer objects",
    "answer_window": "how long a claimant has to answer an objection",
    "close_delay": "a tab that is closed gives the rest back after this; vouchers count until then",
    "unbonding": "stake of who leaves stays locked this long, since it answers for what was served",
    "seasoning": "stake counts in checks and courts only after this, so that nobody buys a jury overnight",
    "reference_age": "how old the block may be that an order's draw refers to",
    "suspension_pause": "a node that was suspended by a case cannot be suspended again for this long",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """One parameter: its name, its value for a person, and what follows from it."""

    name: str
    value: str
    meaning: str


def duration(seconds: float) -> str:
    """A time for a person: its two largest units."""
    if seconds < 1:
        return f"{seconds:.2g} s"
    left, parts = round(seconds), []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def explain(parameters: Parameters, block_seconds: float, paid: Asset) -> tuple[Explained, ...]:
    """All parameters; windows in the time that they last on a chain with this pace."""

    def window(name: str) -> Explained:
        blocks = getattr(parameters, name)
        lasts = duration(blocks * block_seconds) if blocks else "none"
        return Explained(name, f"{lasts} ({blocks:,} blocks)", WINDOWS[name])

    price, coin = parameters.gas_price / PER, parameters.asset == NO_ADDRESS
    money = (
        Explained("asset", _asset(parameters, paid), "what stakes, tabs, prices and penalties are in"),
        Explained("scheduler_stake", paid.show(parameters.scheduler_stake), "what a scheduler stands to lose"),
        Explained(
            "gas_price",
            f"{price / 10**9:g} gwei" if coin else f"{price:g} units a gas",
            "the most that courts and summonses pay back for gas; above it, who acts pays the rest"
            if coin
            else "what courts and summonses pay back for gas, whatever gas costs",
        ),
    )
    plugged = (
        Explained("weights", _plugged(parameters.weights), "a contract that weighs seats in draws beside their stake"),
        Explained(
            "prover", _plugged(parameters.prover), "a contract that convicts by proofs in place of the deployment's own"
        ),
    )
    return (*money, *(window(name) for name in WINDOWS), *plugged)


def _asset(parameters: Parameters, paid: Asset) -> str:
    return (
        f"the chain's coin ({paid.symbol})" if parameters.asset == NO_ADDRESS else f"{paid.symbol} {parameters.asset}"
    )


def _plugged(address: str) -> str:
    return "none" if address == NO_ADDRESS else address
