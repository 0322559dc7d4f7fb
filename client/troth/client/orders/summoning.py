"""Asking on chain for what a scheduler owes: results of an admitted order, or the check of a drawn answer.

Whoever holds the evidence may summon; the deposit pays the answer's gas, and a scheduler that stays silent pays it back
and is convicted. The client says in one line how, or does it by itself up to a deposit that its user named in advance.
"""

from __future__ import annotations

from dataclasses import dataclass

import rlp  # type: ignore[import-untyped]

from troth.cases.calls import convict_silence
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.tokens import approvals_beside
from troth.client.errors import AnswerUnavailable
from troth.client.home import Home
from troth.client.orders.evidence import served_of
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.tabs.spending import spending
from troth.protocol.amounts import Asset
from troth.protocol.market import lottery
from troth.protocol.market.bodies import Admitted
from troth.protocol.market.calls import PartCall, build, view
from troth.protocol.market.messages import summons_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import SignedOrder
from troth.protocol.market.state import State, SummonsRecord
from troth.protocol.market.types import Parameters
from troth.protocol.types import Address, Hash32

BASE_FEE = 15
"""Place of the base fee in a block's header (EIP-1559)."""


@dataclass(frozen=True, slots=True)
class SummonsDue:
    """What can be summoned of an order, in which segment, and in which blocks."""

    kind: SummonsKind
    segment: int
    first: int
    last: int


def due_of(entry: OrderRecord, parameters: Parameters, state: State) -> SummonsDue | None:
    """What is owed and has not come; None where nothing is, or it was summoned already."""
    admitted, served = entry.read("admitted", Admitted), served_of(entry)
    if served is None:
        if admitted is None or entry.phase not in {Phase.ADMITTED, Phase.ANSWERED}:
            return None
        since = admitted.admission.message.block_number
        due = SummonsDue(SummonsKind.RESULTS, 0, since + parameters.summons_window, since + parameters.lag)
    elif served.shown and entry.phase in {Phase.REVEALED, Phase.REFUSED_CHECK}:
        last = lottery.secret_due(served.draw, parameters)
        segment = _unsummoned(entry, len(served.given), state)
        due = SummonsDue(SummonsKind.CHECK, segment, served.draw.block_number, last)
    else:
        return None
    return None if summons_id(entry.identifier, due.kind, due.segment) in state.summons else due


def first_by_itself(entry: OrderRecord, due: SummonsDue) -> int:
    """From which block a program summons that nobody told to.

    Summoning pays the gas of the answer, so that a check that runs is given half of the time in which it can be
    summoned; one that was refused is not waited for.
    """
    runs = due.kind is SummonsKind.CHECK and entry.phase is Phase.REVEALED
    return (due.first + due.last) // 2 if runs else due.first


def _unsummoned(entry: OrderRecord, segments: int, state: State) -> int:
    """The first segment whose check was not summoned yet."""
    ids = [summons_id(entry.identifier, SummonsKind.CHECK, segment) for segment in range(segments)]
    return next((segment for segment, one in enumerate(ids) if one not in state.summons), segments - 1)


async def deposit_of(market: Market, kind: SummonsKind) -> int:
    """The least deposit of a summons of this kind at the newest block's base fee."""
    asked = view(market.contracts, Part.SUMMONS, "depositFor", kind, await base_fee(market), returns=int)
    found: int = await market.read(asked)
    return found


async def base_fee(market: Market) -> int:
    """Of the newest block, in wei per gas."""
    header = rlp.decode((await market.header()).raw)
    return int.from_bytes(header[BASE_FEE])


async def calls_of(  # noqa: PLR0917
    market: Market, asset: Asset, entry: OrderRecord, due: SummonsDue, deposit: int, sender: Address
) -> tuple[PartCall, ...]:
    """The transactions of a summons; a token's deposit needs an approval before."""
    submission, admitted, served = entry.submission, entry.read("admitted", Admitted), served_of(entry)
    if submission is None or admitted is None:
        raise AnswerUnavailable("Nothing signed is here by which it can be summoned", entry.name, "See the receipt.")
    tab = submission.tab
    order = SignedOrder(submission.order.message, tab.payer, tab.payee, tab.key, submission.order.signature)
    # The base fee moves between the look and the block; up to twice the deposit is taken.
    value = deposit * 3 // 2 if asset.is_coin else 0
    if due.kind is SummonsKind.RESULTS:
        words = (admitted.admission.message, admitted.admission.signature)
        call = build(market.contracts, Part.SUMMONS, "summonResults", order, *words, value=value)
    else:
        assert served is not None
        draw = served.lottery.draw
        shown = (draw.message, draw.signature, due.segment, served.secret)
        call = build(market.contracts, Part.SUMMONS, "summonCheck", order, *shown, value=value)
    before = () if asset.is_coin else await approvals_beside(market, asset.token, sender, deposit)
    return (*before, call)


@dataclass(frozen=True, slots=True)
class AutomaticSummons:
    """Summons by itself while the deposit is at most ``most``, which its user named in advance."""

    market: Market
    asset: Asset
    key: Key
    most: int
    home: Home | None = None

    async def summon(self, entry: OrderRecord, due: SummonsDue) -> str:
        """What was done, in one line."""
        deposit = await deposit_of(self.market, due.kind)
        if deposit * 3 // 2 > self.most:
            limit = self.asset.show(self.most)
            return f"not summoned: the deposit is {self.asset.show(deposit)}, and [market] summons allows {limit}"
        async with spending(self.market, self.asset, self.home):
            calls = await calls_of(self.market, self.asset, entry, due, deposit, self.key.address)
            transactions = [(await self.market.execute(call, self.key)).transaction.hex() for call in calls]
        return f"summoned {due.kind.name.lower()} on chain: 0x{transactions[-1]}"

    def overdue(self, state: State, block: int) -> dict[Hash32, SummonsRecord]:
        """Summonses of this account whose time is over, and which nobody answered."""
        return {
            summons: record
            for summons, record in state.summons.items()
            if record.answered is None and record.state.summoner == self.key.address and block > record.state.deadline
        }

    async def end(self, summons: Hash32, record: SummonsRecord) -> str:
        """Convict who stayed silent, which pays the deposit and the reward out; what was done, in one line."""
        done = await self.market.execute(convict_silence(self.market.contracts, summons, record.state), self.key)
        about = f"the {record.state.kind.name.lower()} of order 0x{record.state.order.hex()[:10]}"
        return f"{about} was summoned and did not come: convicted on chain by 0x{done.transaction.hex()}"
