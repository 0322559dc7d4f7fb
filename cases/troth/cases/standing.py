"""Where an order and its parties stand on the chain: the view of a case, also of a scheduler that is leaving."""

from __future__ import annotations

from typing import Any

from troth.cases.errors import EvidenceRefused
from troth.cases.evidence import Evidence
from troth.protocol import typed_data
from troth.protocol.errors import InvalidField, InvalidSignature
from troth.protocol.identifiers import group_id
from troth.protocol.market import messages
from troth.protocol.market.checks import OrderView
from troth.protocol.market.errors import MarketError
from troth.protocol.market.messages import KeyCheck, Signed, signed_by_account
from troth.protocol.market.state import State
from troth.protocol.market.types import ExecutionClass, Role
from troth.protocol.market.views import class_of, parameters_of, rules_in
from troth.protocol.types import Address, Hash32


def view_of(evidence: Evidence, state: State, block: int, key_check: KeyCheck = signed_by_account) -> OrderView:
    """The view of an order for who goes to court: a scheduler that is leaving can still be slashed.

    EvidenceRefused where the evidence is of another deployment, or chain and evidence do not know the same parties.
    """
    order, tab = evidence.signed_order.order, evidence.tab
    assert tab is not None
    deployed = state.deployed
    if deployed is None or deployed.contracts.bank != evidence.bank:
        raise EvidenceRefused("The evidence is of another deployment", evidence.bank, "Name its factory and chain.")
    scheduler = state.parties.get(tab.payee)
    if scheduler is None or scheduler.role is not Role.SCHEDULER or order.tab != messages.tab_id(tab):
        raise EvidenceRefused("The order is on no tab with a scheduler of this deployment", tab.payee, "Check it.")
    try:
        rules, parameters = rules_in(state, order.execution_class), parameters_of(state)
        segments = messages.segments_of(order, rules.layers)
    except (MarketError, InvalidField) as error:
        raise EvidenceRefused(error.what, error.value, error.remedy) from error
    return OrderView(
        domain=evidence.domain,
        execution_class=order.execution_class,
        rules=rules,
        vrf_key=scheduler.vrf_key,
        tab=tab,
        groups=tuple(state.group(group_id(order.execution_class, segment)) for segment in segments),
        block=block,
        time=0,
        lag=parameters.lag,
        seasoning=parameters.seasoning,
        reference_age=parameters.reference_age,
        tab_state=state.tab_state(order.tab),
        key_check=key_check,
    )


def definition_of(state: State, class_id: Hash32) -> ExecutionClass:
    """The class with its cuts; EvidenceRefused where it is unknown."""
    try:
        return class_of(state, class_id)[0]
    except MarketError as error:
        raise EvidenceRefused(error.what, error.value, error.remedy) from error


def signer_of(signed: Signed[Any], evidence: Evidence) -> Address | None:
    """Who signed a message; None for what is no signature."""
    try:
        return typed_data.recover(signed.message, evidence.domain, signed.signature)
    except InvalidSignature:
        return None


def require_order(evidence: Evidence, view: OrderView) -> Hash32:
    """The order's digest, once its tab key signed it; EvidenceRefused."""
    digest = evidence.order_id
    assert evidence.order is not None
    if not view.key_check(view.tab.key, digest, evidence.order.signature):
        raise EvidenceRefused("The tab key did not sign the order", digest.hex(), "Ask its client for the order.")
    return digest
