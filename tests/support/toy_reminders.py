"""What a toy node says that is asked what was promised to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from troth.protocol.market import canonical, tabs
from troth.protocol.market.messages import Signed
from troth.protocol.market.reminders import OpenPromise, Reminder
from troth.protocol.market.signed import Promise, Result, Verdict, Work
from troth.protocol.market.types import Voucher
from troth.protocol.types import Hash32

_LIMIT = 1 << 12


def reminder_of(
    vouchers: Mapping[Hash32, Signed[Voucher]],
    promises: Mapping[Hash32, Mapping[int, Signed[Promise]]],
    words: Mapping[tuple[bytes, int, str], bytes],
) -> Reminder:
    """Of its only tab, with what it signed."""
    for tab, best in vouchers.items():
        open_ = [one for _, one in sorted(promises[tab].items())]
        left = [one for one in open_ if not tabs.is_acknowledged(best.message, one.message.sequence)]
        return Reminder(best, tuple(_shown(one, words) for one in left))
    return Reminder(None, ())


def _shown(promised: Signed[Promise], words: Mapping[tuple[bytes, int, str], bytes]) -> OpenPromise:
    place = (promised.message.order, promised.message.segment)
    infers = promised.message.work == Work.INFERENCE
    word = words.get((*place, "infer" if infers else "verdict"))
    if word is None:
        return OpenPromise(promised)
    signed: Any = canonical.decode(Signed[Result] if infers else Signed[Verdict], word, _LIMIT)
    return OpenPromise(promised, result=signed) if infers else OpenPromise(promised, verdict=signed)
