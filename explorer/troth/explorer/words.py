"""How pages write values: money in the unit that fits, accounts shortened, enumerations in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from troth.protocol.market.log_data import BLOCK_BUCKET
from troth.protocol.market.types import NO_ADDRESS

_UNITS = ((10**15, 18, "ether"), (10**5, 9, "gwei"), (0, 0, "wei"))
"""From which amount on a unit is used, its decimals, its name."""
_DIGITS = 6

REASONS: Mapping[str, str] = {
    "false_result": "Its result was false",
    "nothing_shown": "It showed nothing in court",
    "unanswered": "It left a summons unanswered",
    "two_results": "It signed two results for one place",
    "two_rows": "It signed two rows for one position",
    "two_verdicts": "It signed two verdicts over one result",
    "two_admissions": "It admitted one order twice",
    "two_draws": "It signed two draws of one order",
    "wrong_nodes": "It admitted nodes that were not drawn",
    "wrong_beta": "It signed another lottery than its proof gives",
    "heads_apart": "It drew over results that do not meet",
    "promise_broken": "It broke a signed promise of pay",
    "by_proof": "Signatures prove it",
    "pooled": "Too many outcomes between the cuts",
    "silent_when_summoned": "It said nothing when it was summoned",
    "rejection": "A majority of verifiers rejected",
    "acceptance": "Verifiers accepted, and somebody objects",
    "doubt": "Its client doubts the answer",
}
OUTCOMES: Mapping[str, str] = {
    "": "in court",
    "upheld": "upheld",
    "convicted": "convicted",
    "refunded": "refunded",
    "undecided": "undecided",
    "opener_missing": "the opener showed nothing",
    "scheduler_missing": "the scheduler showed nothing",
    "node_missing": "the node showed nothing",
    "lapsed": "lapsed",
}
ENDED: Mapping[str, str] = {
    "": "under way",
    "convicted": "convicted",
    "accuser_silent": "the accuser was silent",
    "moot": "nothing left to take",
}
"""How a dispute ended."""
STATES: Mapping[str, str] = {
    "clean": "in order",
    "wrong": "findings",
    "refused": "not served",
    "waiting": "waiting",
}

_LONG = re.compile("0x[0-9a-f]{5,}")

LEADERS = {
    "proved": "by VRF, proof holds", "by_seed": "by the seed", "wrong": "proof or draw is wrong", "unseen": "not seen",
}  # fmt: skip


def family(architecture: str) -> str:
    """A model's architecture as pages have room for it: hashes of configuration and tokenizer by their beginning."""
    return _LONG.sub(lambda found: found[0][:6] + "…", architecture)


@dataclass(frozen=True, slots=True)
class Money:
    """Writes amounts of a deployment's asset: the chain's coin in ether, gwei or wei, a token in its smallest unit."""

    asset: str

    def __call__(self, value: Any) -> str:
        """An amount, at most six digits of it; ``exact`` has them all."""
        amount = int(value or 0)
        if self.asset not in {"", NO_ADDRESS}:
            return f"{amount:,} units"
        if not amount:
            return "0 ether"
        least, decimals, unit = next(one for one in _UNITS if amount >= one[0])
        del least
        shown = Decimal(amount).scaleb(-decimals)
        digits = max(0, _DIGITS - max(1, shown.adjusted() + 1))
        text = f"{shown:,.{digits}f}"
        return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"

    def exact(self, value: Any) -> str:
        """An amount with all digits."""
        unit = "wei" if self.asset in {"", NO_ADDRESS} else f"units of {self.asset}"
        return f"{int(value or 0):,} {unit}"

    def price(self, per_billion: int) -> str:
        """A price per 10^9 positions, as one per million."""
        amount = Decimal(per_billion) / 1000
        if self.asset not in {"", NO_ADDRESS}:
            return f"{amount.normalize():f} units"
        return self(int(amount)) if amount >= 1 or not amount else f"{amount.normalize():f} wei"


def short(text: str) -> str:
    """An account or a hash by its ends."""
    return f"{text[:6]}…{text[-4:]}" if len(text) > 14 else text


def hue(text: str) -> int:
    """A colour's angle by which an account is recognised."""
    try:
        return int(text[2:8], 16) % 360
    except ValueError:
        return 0


def grouped(value: Any) -> str:
    """A number with thousands apart."""
    return "" if value is None else f"{int(value):,}"


def share(part: int, whole: int) -> str:
    """A share in per cent."""
    return "–" if not whole else f"{100 * part / whole:.3g} %"


def rate(millionths: int) -> str:
    """A rate of checks."""
    return f"{millionths / 10_000:.4g} %"


def blocks_of(bucket: int) -> str:
    """The blocks of a bucket of time."""
    return f"{bucket * BLOCK_BUCKET:,} – {(bucket + 1) * BLOCK_BUCKET - 1:,}"


def positions_of(bucket: int) -> str:
    """The positions of a bucket of lengths."""
    return f"≤ {1 << min(bucket, 62):,}"


def duration(seconds: float) -> str:
    """A time in the unit that fits."""
    for least, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * least:
            return f"{seconds / least:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def badge(audited: int, behind: int, findings: int) -> str:
    """How fresh and how clean: "audited to block 1,204, 3 behind, 0 findings"."""
    if audited < 0:
        return "not audited yet"
    counted = "1 finding" if findings == 1 else f"{findings:,} findings"
    return f"audited to block {audited:,}, {behind:,} behind, {counted}"


def day(seconds: int) -> str:
    """A day in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y")


def score(billionths: int) -> str:
    """A score or credit, 0 to 1, rounded down: what is below the bar never looks as if it were at it."""
    return f"{billionths // 10**6 / 1000:.3f}"


def _named(table: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: table.get(name, name.replace("_", " "))


FILTERS: Mapping[str, Callable[..., Any]] = {
    "short": short,
    "hue": hue,
    "grouped": grouped,
    "rate": rate,
    "blocks": blocks_of,
    "positions": positions_of,
    "reason": _named(REASONS),
    "outcome": _named(OUTCOMES),
    "audit_state": _named(STATES),
    "ended": _named(ENDED),
    "leader": _named(LEADERS),
    "score": score,
    "share": share,
    "day": day,
    "wei": Money(""),
}
