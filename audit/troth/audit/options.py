"""Options that the audit commands share, and how their values are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from troth.protocol.errors import InvalidField
from troth.protocol.types import Address, to_address
from troth.transport.command_options import BankOption, FactoryOption, RpcOption, StartBlockOption, option_group

if TYPE_CHECKING:
    from troth.audit.services import AuditedServices

LastOption = Annotated[
    int | None, typer.Option("--to-block", envvar="TROTH_TO_BLOCK", min=0, help="Last block read; default: the newest.")
]
TicketsOption = Annotated[
    str, typer.Option("--tickets", envvar="TROTH_TICKETS", help="Also look at this Tickets contract, 0x….")
]
OrganisationsOption = Annotated[
    str,
    typer.Option(
        "--organisations", envvar="TROTH_ORGANISATIONS", help="Also look at this Organisations contract, 0x…."
    ),
]
ReputationOption = Annotated[
    str, typer.Option("--reputation", envvar="TROTH_REPUTATION", help="Also look at this Reputation contract, 0x….")
]


def read_address(text: str) -> Address:
    """An address from the command line; wrong usage otherwise."""
    try:
        return to_address(text)
    except InvalidField as error:
        raise typer.BadParameter(str(error)) from error


@option_group
class WatchedOptions:
    """The deployment that is watched, and what is looked at beside it."""

    factory: FactoryOption
    bank: BankOption = ""
    rpc: RpcOption = "http://127.0.0.1:8545"
    start_block: StartBlockOption = 0
    tickets: TicketsOption = ""
    organisations: OrganisationsOption = ""

    def services(self) -> AuditedServices:
        """What stands beside the market, by its addresses."""
        return audited_services(self.rpc, self.tickets, self.organisations, self.start_block)


def audited_services(
    rpc: str, tickets: str, organisations: str, start_block: int, reputation: str = ""
) -> AuditedServices:
    """What stands beside a market, by its addresses; empty: not looked at."""
    from troth.audit.services import AuditedServices
    from troth.chain.tickets import TicketsContract
    from troth.protocol.organisations import OrganisationsPlace
    from troth.protocol.reputation import ReputationPlace

    return AuditedServices(
        rpc,
        TicketsContract(read_address(tickets), start_block) if tickets else None,
        OrganisationsPlace(read_address(organisations), start_block) if organisations else None,
        ReputationPlace(read_address(reputation), start_block) if reputation else None,
    )
