"""The policy that ships: what a class and its groups must be worth before an answer of theirs is paid for.

A client that took whatever a scheduler offers was once given a class with one verifier and no tolerance worth the name,
staffed by one owner. So: a class that the user named, or minima of a class; and of every group enough seasoned stake,
enough owners, and most of it outside the few largest, since p in ``economy`` counts on honest seats.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from troth.client.errors import ConfigurationError, ModelUnavailable
from troth.client.market_table import MarketTable
from troth.client.orders.terms import CheckedOffer, groups_of
from troth.protocol.errors import InvalidField
from troth.protocol.market.draws import SPARE_OWNERS, GroupHistory, offers_checks, seats_by_owner
from troth.protocol.market.notes import epoch_of
from troth.protocol.market.prices import BASIS_POINTS, MILLION
from troth.protocol.market.state import State
from troth.protocol.market.suspicion import SuspectList, read_list, worst_of
from troth.protocol.typed_data import Domain
from troth.protocol.types import Segment

log = logging.getLogger(__name__)
LARGEST = 2
"""Owners beside k that may hold the rest: k + 2."""


def require_worth(
    offer: CheckedOffer, state: State, block: int, seasoning: int, table: MarketTable, *, named: bool
) -> None:
    """ModelUnavailable where the class or one of its groups is below the policy."""
    if not named:
        _require_class(offer, table)
    for segment, group in zip(offer.segments, groups_of(offer, state), strict=True):
        _require_group(offer, group, segment, block=block, seasoning=seasoning, table=table)


def _require_class(offer: CheckedOffer, table: MarketTable) -> None:
    rules = offer.rules
    minima = [("verifiers", rules.verifiers, table.verifiers), ("reviewers", rules.reviewers, table.reviewers)]
    if not rules.exact:
        minima.append(("agreement", rules.theta, table.agreement))
    for name, found, least in minima:
        if found < least:
            what = f"The class has {found} {name}, and the policy wants {least}"
            remedy = f"Use another class, name this one with --execution-class, or set {name} in [market]."
            raise ModelUnavailable(what, "0x" + offer.class_id.hex(), remedy)


def _require_group(
    offer: CheckedOffer, group: GroupHistory, segment: Segment, *, block: int, seasoning: int, table: MarketTable
) -> None:
    where = f"layers [{segment.first}, {segment.end})"
    if not offers_checks(group, offer.rules, block):
        least = offer.rules.verifiers + SPARE_OWNERS
        owners = len(group.owners_at(block))
        what = f"The group of {where} has {owners} owners; with fewer than {least} a check says little"
        raise ModelUnavailable(what, "0x" + offer.class_id.hex(), "Wait for more owners, or use another class.")
    seats = seats_by_owner(group, block, seasoning)
    total = seats.total()
    if total < table.seats:
        what = f"The group of {where} has {total} seasoned seats, and the policy wants {table.seats}"
        remedy = "Use another class, or lower seats in [market] of client.toml (`troth client init --seats`)."
        raise ModelUnavailable(what, "0x" + offer.class_id.hex(), remedy)
    largest = sum(count for _, count in seats.most_common(offer.rules.verifiers + LARGEST))
    if (total - largest) * BASIS_POINTS < table.outside * total:
        count = offer.rules.verifiers + LARGEST
        what = f"The {count} largest owners hold {largest} of {total} seats of {where}"
        wanted = f"The policy wants {table.outside / 100:g} % outside of them"
        remedy = f"{wanted}: use another class, or lower outside in [market] of client.toml."
        raise ModelUnavailable(what, "0x" + offer.class_id.hex(), remedy)


def with_suspicion(offer: CheckedOffer, state: State, block: int, domain: Domain, table: MarketTable) -> CheckedOffer:
    """The offer with whoever is suspected of those that may serve, by the file that the user named; raises
    ConfigurationError where that is no list of suspects of this deployment."""
    if not table.suspects:
        return offer
    known = _read_suspects(Path(table.suspects).expanduser(), domain)
    nodes = {one.operator for group in groups_of(offer, state) for one in group.members_at(block) if one.seats}
    suspect = worst_of(known, offer.class_id, nodes, epoch_of(block))
    if suspect is None:
        return offer
    raised = replace(offer, suspect=suspect)
    log.warning(
        "%.3g %% of answers are checked instead of %.3g %%: %s is under suspicion by %d tasks that verifiers noted",
        100 * raised.check_rate / MILLION,
        100 * offer.check_rate / MILLION,
        suspect.node,
        suspect.tasks,
    )
    return raised


def _read_suspects(path: Path, domain: Domain) -> SuspectList:
    remedy = "Write it with `troth audit notes … --suspects FILE`, or leave suspects in [market] of client.toml out."
    try:
        return read_list(path.read_bytes(), chain_id=domain.chain_id, bank=domain.contract)
    except OSError as error:
        raise ConfigurationError(f"The list of suspects cannot be read: {error.strerror}", str(path), remedy) from error
    except InvalidField as error:
        raise ConfigurationError(error.what, error.value, remedy) from error
