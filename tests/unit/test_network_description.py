"""network.json: what is written is read back, and what was changed, cut, enlarged or forged is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.network_files import FACTORY, NETWORK

from troth.network import networks
from troth.network.description import (
    LARGEST_FILE,
    ImprintsPlace,
    NetworkDescription,
    parse_description,
    read_description,
    suggested,
    write_description,
)
from troth.network.errors import NetworkError, NetworkFileInvalid, NetworkUnknown
from troth.network.services import ServicePlace
from troth.protocol.market.addresses import contracts_of
from troth.protocol.market.shipped import DEMO
from troth.protocol.types import Hash32, address_from_bytes

Content = dict[str, Any]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "networks_folder", lambda: tmp_path / "kept" / "networks")


def content() -> Content:
    found: Content = json.loads(NETWORK.rendered())
    return found


def parsed(changed: Content) -> NetworkDescription:
    return parse_description(json.dumps(changed).encode(), "here")


SERVED = replace(
    NETWORK,
    services={
        "tickets": ServicePlace(address_from_bytes(b"\x44" * 20), Hash32(bytes(31) + b"\1"), None),
        "reputation": ServicePlace(address_from_bytes(b"\x45" * 20), Hash32(bytes(31) + b"\2"), NETWORK.created_by),
        "organisations": ServicePlace(address_from_bytes(b"\x46" * 20), Hash32(bytes(31) + b"\3"), NETWORK.created_by),
    },
)

PROVED = replace(NETWORK.parameters, prover=address_from_bytes(b"\x47" * 20))
PROVEN = replace(
    NETWORK,
    parameters=PROVED,
    contracts=contracts_of(NETWORK.factory, PROVED),
    imprints=ImprintsPlace(PROVED.prover, {3_584: Hash32(bytes(32)), 576: Hash32(bytes(31) + b"\4")}, None),
)


BARE = replace(NETWORK, committee=None, created_by=None, rpc=())


@pytest.mark.parametrize("network", [NETWORK, SERVED, PROVEN, BARE])
def test_what_is_written_is_read_back(network: NetworkDescription, tmp_path: Path) -> None:
    write_description(tmp_path / "deep" / "network.json", network)
    assert read_description(tmp_path / "deep" / "network.json") == network
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["network.json"]


def test_money_is_text_and_keeps_every_digit() -> None:
    network = replace(NETWORK, parameters=replace(DEMO, scheduler_stake=(1 << 96) - 1))
    network = replace(network, contracts=contracts_of(FACTORY, network.parameters))
    assert parse_description(network.rendered().encode(), "here").parameters.scheduler_stake == (1 << 96) - 1


def test_imprints_that_cannot_be_are_refused() -> None:
    changes: tuple[tuple[Callable[[Content], object], str], ...] = (
        (lambda one: one["imprints"].update(address=FACTORY), "another address than the prover"),
        (lambda one: one["imprints"]["keys"].update({"0576": "0x" + "00" * 32}), "0576"),
        (lambda one: one["imprints"]["keys"].update({"576": "0x00"}), "0x00"),
        (lambda one: one["imprints"].pop("created_by"), "created_by"),
    )
    for change, words in changes:
        changed = json.loads(PROVEN.rendered())
        change(changed)
        with pytest.raises(NetworkFileInvalid, match=words):
            parsed(changed)


def test_services_that_cannot_be_are_refused() -> None:
    whole = json.loads(SERVED.rendered())
    for change, said in (
        (lambda one: one["services"].update(lottery=one["services"]["tickets"]), "lottery"),
        (lambda one: one["services"].pop("reputation"), "no reputation"),
        (lambda one: one.update(committee=None), "without a committee"),
        (lambda one: one["services"]["tickets"].update(note="x"), "note"),
        (lambda one: one["services"]["tickets"].update(address="0x1"), "0x1"),
    ):
        changed = json.loads(json.dumps(whole))
        change(changed)
        with pytest.raises(NetworkFileInvalid, match=said):
            parsed(changed)


CHANGES: dict[str, tuple[Callable[[Content], object], str]] = {
    "another version": (lambda one: one.update(troth_network=2), "version"),
    "a version that only looks so": (lambda one: one.update(troth_network="1"), "version"),
    "an unknown key": (lambda one: one.update(note="hello"), "note"),
    "a missing key": (lambda one: one.pop("start_block"), "start_block"),
    "a number as text": (lambda one: one.update(chain_id="77"), "chain_id"),
    "no chain": (lambda one: one.update(chain_id=0), "no chain"),
    "a block before the first": (lambda one: one.update(start_block=-1), "no block"),
    "no pace": (lambda one: one.update(block_seconds=0), "no pace"),
    "a name that is a path": (lambda one: one.update(name="../mine"), "name"),
    "a node with a password": (lambda one: one.update(rpc=["https://me:secret@chain.example.org"]), "URL"),
    "a node that is a file": (lambda one: one.update(rpc=["file:///etc/passwd"]), "URL"),
    "a node with an escape sequence": (lambda one: one.update(rpc=["https://a\x1b[2J.example"]), "URL"),
    "a key with an escape sequence": (lambda one: one.update({"\x1b[2J": 1}), "\N{REPLACEMENT CHARACTER}[2J"),
    "too many nodes": (lambda one: one.update(rpc=["https://a.example"] * 9), "more than 8"),
    "another factory": (lambda one: one.update(factory=address_from_bytes(b"\x44" * 20)), "do not follow"),
    "another bank": (lambda one: one["contracts"].update(bank=FACTORY), "bank do not follow"),
    "a part too few": (lambda one: one["contracts"].pop("leaves"), "exactly bank"),
    "a part too many": (lambda one: one["contracts"].update(vault=FACTORY), "exactly bank"),
    "an address of wrong case": (lambda one: one["contracts"].update(bank=FACTORY.swapcase()), "address"),
    "another window": (lambda one: one["parameters"].update(unbonding=1), "do not follow"),
    "a window as text": (lambda one: one["parameters"].update(unbonding="2000"), "number of blocks"),
    "a window that is too large": (lambda one: one["parameters"].update(unbonding=1 << 32), "2**32"),
    "money as a number": (lambda one: one["parameters"].update(scheduler_stake=10**17), "digits in quotes"),
    "money below nothing": (lambda one: one["parameters"].update(gas_price="-1"), "digits in quotes"),
    "money in other digits": (lambda one: one["parameters"].update(gas_price="٣"), "digits in quotes"),
    "a parameter too few": (lambda one: one["parameters"].pop("lag"), "exactly asset"),
    "an asset that is a number": (lambda one: one["parameters"].update(asset=0), "no address"),
    "a hash too short": (lambda one: one["code"].update(bank="0x12"), "64 hexadecimal digits"),
    "a code too few": (lambda one: one["code"].pop("factory"), "exactly factory"),
    "a committee without code": (lambda one: one["committee"].pop("code"), "code"),
    "a committee that is text": (lambda one: one.update(committee=FACTORY), "committee"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_is_refused_with_its_reason(name: str) -> None:
    change, words = CHANGES[name]
    changed = content()
    change(changed)
    with pytest.raises(NetworkFileInvalid) as caught:
        parsed(changed)
    assert words in caught.value.what
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "Expecting value"),
        (b"[]", "version"),
        (b"\xff\xfe", "decode"),
        (b"[" * 5_000, "recursion"),
        (b" " * (LARGEST_FILE + 1), "more than"),
        (NETWORK.rendered().replace('"chain_id": 77', '"chain_id": 77, "chain_id": 1').encode(), "there twice"),
        (NETWORK.rendered().replace('"chain_id": 77', '"chain_id": NaN').encode(), "chain_id"),
    ],
)
def test_what_is_no_network_at_all_is_refused(raw: bytes, words: str) -> None:
    with pytest.raises(NetworkFileInvalid) as caught:
        parse_description(raw, "here")
    assert words in caught.value.what


@given(st.integers(0, len(NETWORK.rendered()) - 1), st.sampled_from('0aF"{}[],:-. \\'))
def test_one_other_character_is_refused_or_leaves_the_contracts(place: int, character: str) -> None:
    text = NETWORK.rendered()
    changed = text[:place] + character + text[place + 1 :]
    try:
        found = parse_description(changed.encode(), "here")
    except NetworkFileInvalid:
        return
    assert (found.factory, found.contracts, found.parameters) == (FACTORY, NETWORK.contracts, DEMO)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NetworkFileInvalid, match="No such file"):
        read_description(tmp_path / "none.json")
    with pytest.raises(NetworkFileInvalid, match="Is a directory"):
        read_description(tmp_path)


def test_names_and_files_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_description(tmp_path / "mine", replace(NETWORK, chain_id=78))
    networks.keep(NETWORK, "mine")
    assert networks.kept_names() == ["mine"]
    assert networks.find("mine") == NETWORK
    assert networks.find("./mine").chain_id == 78
    with pytest.raises(NetworkUnknown, match="mine") as caught:
        networks.find("yours")
    assert caught.value.exit_code == 2


def test_a_name_is_never_given_to_another_network() -> None:
    networks.keep(NETWORK, "mine")
    networks.keep(replace(NETWORK, rpc=()), "mine")
    assert networks.find("mine").rpc == ()
    with pytest.raises(NetworkError, match="Another network"):
        networks.keep(replace(NETWORK, chain_id=78), "mine")
    assert networks.find("mine").chain_id == 77


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8545", True),
        ("https://chain.example.org/", True),
        ("https://chain.example.org/v3/SECRET", False),
        ("https://chain.example.org?key=SECRET", False),
        ("https://me:SECRET@chain.example.org", False),
        ("ws://chain.example.org", False),
    ],
)
def test_a_chain_node_that_may_hold_a_secret_is_not_suggested(url: str, shown: bool) -> None:
    assert suggested(url) is shown
