"""What an audit of a deployment is made from: headers, logs, transactions. Plain data, from a node or a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from troth.audit.evidence.transactions import Transaction
from troth.chain.headers import RawHeader
from troth.chain.market import DeploymentPlace
from troth.protocol.logs import EventLog
from troth.protocol.market.messages import market_domain
from troth.protocol.market.types import Parameters
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32


@dataclass(frozen=True, slots=True)
class GetterAnswer:
    """What a getter said, and what the folded state says it must."""

    about: str
    part: str
    expected: Any
    answered: Any


@dataclass(frozen=True, slots=True)
class AuditEvidence:
    """Everything read of a deployment up to block ``last``.

    ``headers`` are whole, so that nothing in them can be made up. ``transactions`` lacks what could not be had.
    ``answers`` and ``holdings`` (what the Bank holds of the asset) are the node's own words for the last block; empty
    and None where there was no node to ask.
    """

    chain_id: int
    place: DeploymentPlace
    parameters: Parameters
    first: int
    last: RawHeader
    logs: tuple[EventLog, ...]
    headers: Mapping[int, RawHeader]
    transactions: Mapping[Hash32, Transaction]
    answers: tuple[GetterAnswer, ...] = field(default=())
    holdings: int | None = None

    @property
    def domain(self) -> Domain:
        """The EIP-712 domain of every signature of the deployment."""
        return market_domain(self.chain_id, self.place.contracts.bank)
