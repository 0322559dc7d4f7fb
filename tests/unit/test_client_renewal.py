"""What a client does where nodes have moved since it was offered its terms: it signs the new ones, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from troth.client import asking
from troth.client.api import _refusal
from troth.client.asking import RENEWALS, ask_afresh
from troth.client.errors import OutdatedOffer, SchedulerRefused


@dataclass
class Offer:
    fee: int
    ends: tuple[int, ...] = (1, 12)


@dataclass
class Shop:
    """A session at a scheduler that refuses `refusals` orders as outdated; each renewal makes the fee of `fees`, and
    another split unless it is `stubborn`."""

    refusals: int
    fees: list[int]
    offer: Offer = field(default_factory=lambda: Offer(10))
    sent: list[int] = field(default_factory=list)
    stubborn: bool = False

    async def renewed(self) -> Shop:
        self.offer = Offer(self.fees.pop(0), self.offer.ends if self.stubborn else (self.offer.ends[0] + 1, 12))
        return self


@dataclass(frozen=True)
class Signed:
    fee: int


async def prepare(session: Any) -> Any:
    return Signed(session.offer.fee)


async def fake_ask(session: Any, signed: Any) -> AsyncIterator[str]:
    session.sent.append(signed.fee)
    if len(session.sent) <= session.refusals:
        raise OutdatedOffer(
            "The order is for another split of the layers", "HTTP 409, other_split", "Sign the new one."
        )
    yield "text"


async def asked(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(asking, "ask", fake_ask)
    session: Any = shop
    first: Any = Signed(10)
    return [update async for update in ask_afresh(session, first, prepare)]


async def test_a_new_offer_that_costs_no_more_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(refusals=2, fees=[10, 5])
    assert await asked(shop, monkeypatch) == [Signed(10), Signed(5), "text"]
    assert shop.sent == [10, 10, 5]


async def test_one_that_costs_more_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(refusals=1, fees=[11])
    with pytest.raises(OutdatedOffer):
        await asked(shop, monkeypatch)
    assert shop.sent == [10]


async def test_a_scheduler_that_never_takes_its_own_offer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(refusals=99, fees=[10] * 99)
    with pytest.raises(OutdatedOffer):
        await asked(shop, monkeypatch)
    assert len(shop.sent) == RENEWALS + 1


async def test_the_split_that_was_just_refused_is_not_signed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each signed order can be opened by whoever refused it: for a mere refusal there would be four fees to take."""
    shop = Shop(refusals=99, fees=[10] * 99, stubborn=True)
    with pytest.raises(OutdatedOffer):
        await asked(shop, monkeypatch)
    assert shop.sent == [10]


def test_only_that_refusal_is_an_outdated_offer() -> None:
    told = b'{"error":{"code":"%s","message":"m","remedy":"r"}}'
    assert isinstance(_refusal(409, told % b"other_split"), OutdatedOffer)
    other = _refusal(409, told % b"already_ordered")
    assert isinstance(other, SchedulerRefused)
    assert not isinstance(other, OutdatedOffer)
