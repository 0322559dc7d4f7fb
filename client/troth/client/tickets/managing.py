"""What the commands for tickets do."""

from __future__ import annotations

from typing import Any

from troth.client.configuration import ClientConfiguration
from troth.client.errors import TicketsUnusable
from troth.client.orders.calls import refusal
from troth.client.reaching import reaching
from troth.client.tabs.managing import Purse, scheduler_of
from troth.client.tickets.payments import TicketPayments
from troth.client.tickets.session import ticket_session
from troth.protocol.market.views import registered_scheduler


async def buy(
    purse: Purse, configuration: ClientConfiguration, price: str, count: int, *, broadcast: bool = False
) -> dict[str, Any]:
    """`troth client tickets buy`."""
    async with ticket_session(purse, configuration) as session:
        wanted = session.asset.parse(price)
        if wanted not in session.rules.prices:
            shown = ", ".join(session.asset.show(one) for one in session.rules.prices)
            raise TicketsUnusable("There are no tickets of this price", price, f"Take one of {shown}.")
        return await session.buy(session.rules.prices.index(wanted), count, broadcast=broadcast)


async def collect(purse: Purse, configuration: ClientConfiguration) -> dict[str, Any]:
    """`troth client tickets collect`."""
    async with ticket_session(purse, configuration) as session:
        return await session.collect()


async def list_tickets(purse: Purse, configuration: ClientConfiguration) -> dict[str, Any]:
    """`troth client tickets list`."""
    async with ticket_session(purse, configuration) as session:
        return await session.listed()


async def refund(purse: Purse, configuration: ClientConfiguration, *, broadcast: bool = False) -> list[dict[str, Any]]:
    """`troth client tickets refund`."""
    async with ticket_session(purse, configuration) as session:
        return await session.refund(broadcast=broadcast)


async def change(purse: Purse, configuration: ClientConfiguration) -> list[dict[str, Any]]:
    """`troth client tickets change`: a step for every tab that tickets filled."""
    async with ticket_session(purse, configuration) as session, reaching(purse.home, configuration) as reach:
        done = []
        payments = TicketPayments(session)
        for payment in session.store.payments():
            if payment.done:
                party = registered_scheduler(session.follower.state, payment.payee)
                calls = (await reach.to(party)).refusing(refusal)
                done.append(await payments.change(payment, calls))
        return done


async def open_tab(purse: Purse, configuration: ClientConfiguration, amount: str) -> dict[str, Any]:
    """`troth client tickets open`: the same way to the scheduler as orders take, the overlay where one is named."""
    async with ticket_session(purse, configuration) as session, reaching(purse.home, configuration) as reach:
        payee = scheduler_of(session.follower.state, configuration)
        calls = await reach.to(registered_scheduler(session.follower.state, payee))
        return await TicketPayments(session).open_tab(session.asset.parse(amount), calls.refusing(refusal), payee)
