"""Events of the market's contracts as frozen dataclasses, and ``parse_log`` from a log of one of them to its event.

Fields are those of the Solidity event in its order; how they are read is derived from the ABI. What each means stands
at the event in contracts/market/interfaces. The dataclasses lie in three modules: money, parties, court. Readers take
them from here, as one namespace.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args

from troth.protocol.bindings import named
from troth.protocol.errors import InvalidField
from troth.protocol.logs import EventDecoder, EventLog, decoder
from troth.protocol.market.events.court import (
    CaseDecided,
    CaseOpened,
    CaseRestarted,
    CaseSeeded,
    CourtEvent,
    EntryLogged,
    FaultProven,
    LeafVoided,
    NodeSilent,
    PassedOn,
    Pooled,
    Responded,
    Revealed,
    ReviewersDrawn,
    ReviewPosted,
    ReviewsCommitted,
    Summoned,
    SummonsAnswered,
    SummonsEvent,
    SummonsUnanswered,
)
from troth.protocol.market.events.money import (
    BankEvent,
    Begun,
    Claimed,
    ClaimSettled,
    ClaimStruck,
    Collected,
    Deployed,
    FactoryEvent,
    Moved,
    MovedMany,
    Objected,
    ObjectionAnswered,
    PartCreated,
    TabClosed,
    TabClosing,
    TabForgiven,
    TabOpened,
    TabRedeemed,
    TabToppedUp,
    Withdrawn,
)
from troth.protocol.market.events.parties import (
    AskChanged,
    ClassesEvent,
    ClassRegistered,
    Convicted,
    Deregistered,
    EndpointChanged,
    EntryChanged,
    Evicted,
    ModelRegistered,
    NodeRegistered,
    PayoutChanged,
    RegistryEvent,
    Restored,
    SchedulerRegistered,
    SliceChanged,
    StakeWithdrawn,
    Suspended,
)
from troth.protocol.market.parts import FACTORY, Part, parts_by_address
from troth.protocol.market.types import Contracts
from troth.protocol.types import Address

__all__ = [
    "EVENTS_OF",
    "AskChanged",
    "BankEvent",
    "Begun",
    "CaseDecided",
    "CaseOpened",
    "CaseRestarted",
    "CaseSeeded",
    "ClaimSettled",
    "ClaimStruck",
    "Claimed",
    "ClassRegistered",
    "ClassesEvent",
    "Collected",
    "Convicted",
    "CourtEvent",
    "Deployed",
    "Deregistered",
    "EndpointChanged",
    "EntryChanged",
    "EntryLogged",
    "Event",
    "Evicted",
    "FactoryEvent",
    "FaultProven",
    "LeafVoided",
    "ModelRegistered",
    "Moved",
    "MovedMany",
    "NodeRegistered",
    "NodeSilent",
    "Objected",
    "ObjectionAnswered",
    "PartCreated",
    "PassedOn",
    "PayoutChanged",
    "Pooled",
    "RegistryEvent",
    "Responded",
    "Restored",
    "Revealed",
    "ReviewPosted",
    "ReviewersDrawn",
    "ReviewsCommitted",
    "SchedulerRegistered",
    "SliceChanged",
    "StakeWithdrawn",
    "Summoned",
    "SummonsAnswered",
    "SummonsEvent",
    "SummonsUnanswered",
    "Suspended",
    "TabClosed",
    "TabClosing",
    "TabForgiven",
    "TabOpened",
    "TabRedeemed",
    "TabToppedUp",
    "Withdrawn",
    "parse_log",
]

Event = FactoryEvent | BankEvent | ClassesEvent | RegistryEvent | CourtEvent | SummonsEvent | FaultProven | EntryLogged

EVENTS_OF: dict[str, tuple[type[Any], ...]] = {
    FACTORY: get_args(FactoryEvent),
    Part.BANK.binding: get_args(BankEvent),
    Part.REGISTRY.binding: get_args(RegistryEvent),
    Part.COURT.binding: get_args(CourtEvent),
    Part.SUMMONS.binding: get_args(SummonsEvent),
    Part.EVIDENCE.binding: (FaultProven,),
    Part.LOG.binding: (EntryLogged,),
    Part.LENS.binding: (),
    Part.DOCKET.binding: (),
    Part.JUDGEMENT.binding: (),
    Part.LEAVES.binding: (),
    Part.CLASSES.binding: get_args(ClassesEvent),
}
"""The dataclasses of each contract's events, by its binding."""


def parse_log(log: EventLog, contracts: Contracts, factory: Address | None = None) -> Event:
    """The event that a log of a deployment is; raises InvalidField for one that none of its contracts can emit."""
    part = parts_by_address(contracts).get(log.address)
    if part is None and log.address != factory:
        raise InvalidField("The log is of no contract of the deployment", log.address, "Ask for its addresses only.")
    found = _decoders(FACTORY if part is None else part.binding).get(log.topics[0]) if log.topics else None
    if found is None:
        name = "factory" if part is None else part.value
        topic = log.topics[0] if log.topics else b""
        raise InvalidField(f"The {name} has no event with this topic", topic, "Check the addresses and the version.")
    event: Event = found.event(log)
    return event


@lru_cache(maxsize=16)
def _decoders(binding: str) -> dict[bytes, EventDecoder[Any]]:
    entries = named("event", binding)
    return {entries[kind.__name__].topic: decoder(kind, entries[kind.__name__]) for kind in EVENTS_OF[binding]}
