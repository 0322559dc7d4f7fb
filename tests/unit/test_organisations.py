"""Who served an epoch, what that buys, whose models a node takes, and what the audit says of credits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.market_logs import META, address
from support.market_record import joining
from support.market_scene import KEYS, MODEL
from support.organisation_record import (
    ALICE,
    BOB,
    CLASS,
    CONTRACT,
    EPOCH,
    FIRST,
    HONEST,
    RULES,
    SECOND,
    SERVED,
    START,
    THIRD,
    deployed,
    folded,
    market,
    posted,
    rating,
    reading,
    served_record,
)

from troth.audit.credits import examine
from troth.audit.report import Finding, FindingKind
from troth.chain.organisations import OrganisationsReading
from troth.node.configuration import FILE, HostingConsent, NodeInitOptions, load, render
from troth.node.errors import ConfigError
from troth.node.organisations import credits
from troth.node.organisations.credits import ModelDemand, by_demand, model_name, taken_by, with_deployment
from troth.protocol.bindings import ORGANISATIONS, named
from troth.protocol.bindings.structs import encode_parameters
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.logs import EventLog
from troth.protocol.market import events as on
from troth.protocol.market.types import GroupEntry
from troth.protocol.market.views import rules_in
from troth.protocol.organisation_events import (
    Contributed,
    DeploymentStopped,
    HostingEnded,
    ModelDeployed,
    OrganisationEvent,
    OrganisationsState,
    ReserveReturned,
    parse_organisation_log,
)
from troth.protocol.organisations import (
    OrganisationsPlace,
    cost_of,
    gibibyte_days,
    layer_bytes,
    served_by,
    served_in,
)
from troth.protocol.reputation import ONE
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment

# ---- reading


def test_a_source_that_is_no_text_keeps_nobody_from_reading_the_contract() -> None:
    announced = named("event", ORGANISATIONS)["ModelDeployed"]
    data = [one for one in announced.inputs if not one.indexed]
    written = encode_parameters(data, [1, 4, 5, SERVED, 0, "own/model"]).replace(b"own/model", b"own/\xff\xfe\x80el")
    indexed = (Hash32((1).to_bytes(32)), Hash32(bytes(12) + bytes.fromhex(ALICE[2:])), Hash32(CLASS))
    event = parse_organisation_log(EventLog(CONTRACT, (Hash32(announced.topic), *indexed), written, META))
    assert isinstance(event, ModelDeployed)
    assert (event.owner, event.reserve, event.source) == (ALICE, SERVED, "own/\ufffd\ufffd\ufffdel")


# ---- earning


def test_an_epoch_is_worth_the_bytes_that_were_held_in_it() -> None:
    (first, second, third) = served_in(1, served_record(rating(FIRST, 1)))
    assert (first.presence.node, first.amount, first.earned, first.refusal) == (FIRST, SERVED, SERVED, "")
    assert (second.earned, third.earned) == (0, 0)
    assert second.refusal == third.refusal == "no member rated an answer of it in this epoch"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"credit": 0, "silent": True, "abnormal": 1}, "it was silent"),
        ({"credit": ONE // 2, "abnormal": 3}, "its answers were abnormal"),
        ({"score": RULES.bar - 1}, "its score is below the bar"),
        ({"epoch": 0}, "no member rated an answer of it in this epoch"),
    ],
)
def test_nothing_is_earned_by_bad_service(changes: Mapping[str, Any], refusal: str) -> None:
    found = served_by(1, served_record(rating(FIRST, 1, **changes)), FIRST)
    assert found is not None
    assert (found.earned, found.refusal) == (0, refusal)


@pytest.mark.parametrize("block", [START + EPOCH + 1, START + 2 * EPOCH])
def test_who_comes_late_or_leaves_early_served_nothing(block: int) -> None:
    place = replace(META, block=block)
    group = group_id(CLASS, Segment(0, MODEL.layers))
    seen = {node: entry for entry, node in enumerate(list(KEYS)[:3])}
    gone = on.EntryChanged(group, seen[FIRST], GroupEntry(FIRST, block, block, 0, 0), 3, place)
    assert served_by(1, served_record(rating(FIRST, 1), state=market(gone)), FIRST) is None
    newcomer = address(90)
    late = joining(newcomer, BOB, 3, class_id=CLASS, place=place)
    assert served_by(1, served_record(state=market(*late)), newcomer) is None
    assert served_by(2, served_record(state=market(*late)), newcomer) is not None


def test_a_scheduler_or_a_stranger_serves_nothing() -> None:
    state = market()
    (scheduler,) = (one for one in state.parties if state.parties[one].execution_class == ZERO_HASH)
    assert served_by(1, served_record(), scheduler) is None
    assert served_by(1, served_record(), address(91)) is None


@given(st.integers(1, 500), st.integers(1, 500))
def test_few_machines_for_long_buy_many_for_short(machines: int, days: int) -> None:
    rules = rules_in(market(), CLASS)
    assert cost_of(rules, machines, days, EPOCH) == cost_of(rules, days, machines, EPOCH) == machines * days * SERVED
    assert gibibyte_days(layer_bytes(rules) * MODEL.layers * 7200, 12.0) == pytest.approx(
        MODEL.layers * 12 * MODEL.hidden_size**2 * 4 / 2**30
    )


@pytest.mark.parametrize(("replicas", "epochs"), [(0, 1), (1, 0), (2**16, 1), (1, 2**32), (-1, 5)])
def test_what_no_contract_takes_is_refused(replicas: int, epochs: int) -> None:
    with pytest.raises(InvalidField, match="A deployment"):
        cost_of(rules_in(market(), CLASS), replicas, epochs, EPOCH)


# ---- the fold


def test_credits_that_move_are_conserved() -> None:
    state = folded()
    assert state.total == 2 * SERVED == sum(state.balances.values())
    assert state.deployments[1].reserve == 0
    assert list(state.hosts_in(4)) == [SECOND]
    assert not state.hosts_in(5)


def test_what_comes_back_and_who_was_sent_away() -> None:
    dismissed = HostingEnded(1, SECOND, 4, True, 0, META)
    stopped, returned = (
        DeploymentStopped(1, 5, META),
        ReserveReturned(1, market().owner_of(FIRST), SERVED, 2 * SERVED, META),
    )
    state = folded((*HONEST[:5], dismissed, stopped, returned))
    assert (state.deployments[1].hosted, state.deployments[1].reserve) == (0, 0)
    assert state.dismissals == {market().owner_of(FIRST): (SECOND,)}
    assert not state.hosts_in(4)


FORGED: list[tuple[str, tuple[OrganisationEvent, ...]]] = [
    ("balance is not", (posted(balance=SERVED + 1),)),
    ("credited once", (*HONEST[:2], posted(epoch=0, balance=2 * SERVED))),
    ("balance is not", (deployed(balance=-SERVED),)),
    ("balance is not", (*HONEST[:2], deployed(balance=SERVED))),
    ("without a gap", (*HONEST[:3], deployed(number=2))),
    ("no such deployment", (DeploymentStopped(3, 4, META),)),
    ("no such deployment", (ReserveReturned(3, ALICE, 1, 1, META),)),
    ("Another sum than the reserve", (*HONEST[:4], ReserveReturned(1, ALICE, 1, 1, META))),
    ("reserve is not", (*HONEST, replace(HONEST[5], epoch=5, balance=2 * SERVED))),
    ("did not host", (*HONEST[:4], HostingEnded(1, SECOND, 4, False, 0, META))),
]


@pytest.mark.parametrize(("words", "events"), FORGED, ids=[str(number) for number in range(len(FORGED))])
def test_no_event_makes_credits_from_nothing_or_spends_them_twice(
    words: str, events: tuple[OrganisationEvent, ...]
) -> None:
    with pytest.raises(InvalidField, match=words):
        folded(events)


@given(st.lists(st.tuples(st.sampled_from((FIRST, SECOND, THIRD)), st.integers(1, 5), st.booleans()), max_size=30))
def test_no_order_of_earning_and_deploying_spends_more_than_was_earned(
    course: list[tuple[Address, int, bool]],
) -> None:
    """Whoever tries to deploy beyond its balance makes an event that does not fold."""
    state, epochs, balances = OrganisationsState(), dict.fromkeys((FIRST, SECOND, THIRD), 0), {}
    for node, times, spends in course:
        owner = market().owner_of(node)
        have = balances.get(owner, 0)
        if not spends:
            state = state.after(posted(node, epochs[node], have + SERVED))
            balances[owner], epochs[node] = have + SERVED, epochs[node] + 1
            continue
        cost = times * SERVED
        event = deployed(len(state.deployments) + 1, owner, have - cost, reserve=cost)
        if cost > have:
            with pytest.raises(InvalidField, match="balance is not"):
                state.after(event)
            continue
        state, balances[owner] = state.after(event), have - cost
    held = sum(state.balances.values()) + sum(one.reserve for one in state.deployments.values())
    assert held == state.total == sum(epochs.values()) * SERVED


# ---- the audit


def audited(*events: OrganisationEvent, **changes: Any) -> list[Finding]:
    return [one for result in examine(reading(*events, **changes)) for one in result.findings]


def violations(*events: OrganisationEvent, **changes: Any) -> list[str]:
    return [one.message for one in audited(*events, **changes) if one.kind is FindingKind.MISMATCH]


def test_an_honest_history_is_clean() -> None:
    assert violations(*HONEST) == []


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (posted(amount=SERVED + 1, balance=SERVED + 1), "The amount that was posted"),
        (posted(owner=ALICE), "The owner that was posted"),
        (posted(SECOND), "a node that earned none: no member rated"),
        (posted(end=MODEL.layers - 1), "did not stand in the group"),
        (posted(meta=replace(META, block=START + 4 * EPOCH)), "outside of the one that follows"),
        (posted(meta=replace(META, block=START + EPOCH - 1)), "outside of the one that follows"),
    ],
)
def test_a_wrong_movement_is_found(event: Contributed, words: str) -> None:
    (message,) = violations(HONEST[0], event)
    assert words in message


def test_credits_for_who_did_not_host_or_cost_another_sum_are_found() -> None:
    unhosted = replace(HONEST[5], node=THIRD, owner=market().owner_of(THIRD))
    assert violations(*HONEST[:5], unhosted) == ["A deployment paid a node that did not host it in this epoch"]
    cheap = deployed(reserve=SERVED - 1, balance=SERVED + 1)
    assert violations(*HONEST[:3], cheap) == ["Another sum was set aside than the deployment costs"]


def test_whoever_is_below_the_bar_neither_earns_by_hosting_nor_deploys() -> None:
    low = [*(rating(FIRST, epoch) for epoch in range(5)), rating(SECOND, 4, score=RULES.bar - 1)]
    assert violations(*HONEST, ratings=low) == ["A node was credited whose score was below the bar"]
    fallen = [rating(FIRST, 0), rating(FIRST, 1), rating(FIRST, 2, score=RULES.bar - 1)]
    assert (
        violations(*HONEST[:4], deployed(2, balance=0), ratings=fallen)
        == ["An owner deployed a model without a node that is rated above the bar"] * 2
    )


@pytest.mark.parametrize("sign", ["endpoint", "tls_key_hash"])
def test_two_owners_of_one_machine_are_named(sign: str) -> None:
    parties = market().parties
    second = replace(parties[SECOND], **{sign: getattr(parties[FIRST], sign)})
    shared, both = replace(market(), parties=parties.set(SECOND, second)), [rating(FIRST, 0), rating(SECOND, 0)]
    (only,) = audited(HONEST[0], posted(FIRST), posted(SECOND), ratings=both, state=shared)
    assert only.kind is FindingKind.OBSERVED
    assert "share a machine" in only.message
    assert audited(HONEST[0], posted(FIRST), posted(SECOND), ratings=both) == []
    assert audited(HONEST[0], posted(FIRST), ratings=both, state=shared) == []


# ---- consent and demand


def test_the_emptiest_deployment_comes_first() -> None:
    full, over = ModelDemand(1, 4, 4, 9), ModelDemand(2, 4, 0, 0)
    half, empty, longer, older = (ModelDemand(3, 4, 2, 9), ModelDemand(5, 4, 0, 3), ModelDemand(6, 4, 0, 8),
                                  ModelDemand(4, 4, 0, 3))  # fmt: skip
    assert [one.number for one in by_demand((full, over, half, empty, longer, older))] == [6, 4, 5, 3]


def test_only_models_of_owners_that_were_allowed_are_taken() -> None:
    place, owner = OrganisationsPlace(CONTRACT), market().owner_of(FIRST)
    found = reading(*HONEST[:3], deployed(first=7, end=9))
    assert not taken_by(HostingConsent(place), found, None)
    assert not taken_by(HostingConsent(place, frozenset({BOB})), found, BOB)
    for consent, own in (
        (HostingConsent(place, None), None),
        (HostingConsent(place, frozenset({owner})), None),
        (HostingConsent(place), owner),
    ):
        assert [one.number for one in taken_by(consent, found, own)] == [1]
    assert not taken_by(HostingConsent(place, None), reading(*HONEST), None)


@pytest.mark.parametrize(
    ("allow", "hosts"),
    [("owner", False), ("owner", True), ("any", True), ("", True)],
    ids=["its owner agreed to one", "which it hosts", "to any", "to none any more"],
)
async def test_no_stranger_says_which_model_a_registered_node_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allow: str, hosts: bool
) -> None:
    """A deployment of the same class may come first, and its source name another model that lies here: the node would
    load that one, find that it is not the registered one, and not start."""
    owner = market().owner_of(FIRST)
    false = deployed(1, BOB, balance=0, source="false/other")
    events = [*HONEST[:3], replace(posted(THIRD), owner=BOB), false, deployed(2, source="own/model")]
    if hosts:
        events.append(replace(HONEST[4], deployment=2))
    found = reading(*events)

    async def read(*_arguments: Any) -> OrganisationsReading:
        return found

    monkeypatch.setattr(credits, "read_organisations", read)
    monkeypatch.setattr(credits, "stored_models", lambda _folder: ["model", "other"])
    table = {"owner": f'allow = ["{owner}"]', "any": 'allow = "any"', "": ""}[allow]
    configuration = load(with_table(tmp_path, table))
    nobody: Any = SimpleNamespace(registry=None)
    chosen = await with_deployment(configuration, nobody, market(), SECOND, None)
    assert (chosen.model, chosen.execution_class) == ("model", CLASS)


@pytest.mark.parametrize(
    ("source", "name"),
    [("own/model", "model"), ("https://models.example/a/b/", "b"), ("../../etc", "etc"), ("..", ".."), ("", "")],
)
def test_a_source_names_a_folder_and_no_path(source: str, name: str) -> None:
    assert model_name(source) == name


@pytest.mark.parametrize(
    ("allow", "allowed"),
    [("", frozenset()), ('allow = "any"', None), (f'allow = ["{ALICE}"]', frozenset({ALICE}))],
)
def test_consent_is_what_the_file_says(tmp_path: Path, allow: str, allowed: frozenset[Address] | None) -> None:
    consent = load(with_table(tmp_path, allow)).organisations
    assert consent == HostingConsent(OrganisationsPlace(CONTRACT, 5), allowed)


@pytest.mark.parametrize("allow", ['allow = "all"', 'allow = ["0x12"]', "allow = true", 'owner = "any"'])
def test_unclear_consent_is_refused(tmp_path: Path, allow: str) -> None:
    with pytest.raises(ConfigError):
        load(with_table(tmp_path, allow))


def with_table(folder: Path, allow: str) -> Path:
    choices = NodeInitOptions(
        rpc="http://127.0.0.1:8545",
        factory="0x5FbDB2315678afecb367f032d93F642f64180aa3",
        execution_class="0x" + Hash32(keccak256(b"class")).hex(),
        model="model",
        slice="0:15",
        segments=("0:15",),
        host="127.0.0.1",
        port=9443,
        endpoint="https://127.0.0.1:9443",
        device="cpu",
        threads=1,
        start_block=7,
    )
    table = f'\n[organisations]\ncontract = "{CONTRACT}"\nstart_block = 5\n{allow}\n'
    (folder / FILE).write_text(render(choices) + table)
    return folder
