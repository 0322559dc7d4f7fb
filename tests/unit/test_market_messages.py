"""Messages against independent encoders, and each hash and seed against its words in library Messages."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from eth_account._utils.encode_typed_data.encoding_and_hashing import hash_struct
from support.market_scene import DOMAIN, MODEL, TAB, Scene, execution_class, hash_of, owner_of

from troth.protocol import typed_data
from troth.protocol.errors import InvalidField, InvalidSignature
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.market import messages, proceedings, signed, types
from troth.protocol.market.messages import Signed, sign
from troth.protocol.typed_data import Domain, camel_case, solidity_type
from troth.protocol.types import Address, Hash32, Segment

SIGNED = (
    "Admission",
    "Consent",
    "Draw",
    "Inclusion",
    "Order",
    "Promise",
    "Result",
    "ReviewCommitment",
    "Row",
    "TabConsent",
    "TraceCommitment",
    "Verdict",
    "Voucher",
)
ONE, OTHER, THIRD = (hash_of(name) for name in ("one", "other", "third"))


def _filled(name: str) -> Any:
    """A message whose every field has another value."""
    kind = getattr(signed if hasattr(signed, name) else types, name)
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for number, field in enumerate(fields(kind), start=1):
        written = solidity_type(hints[field.name])
        filled = {"bytes32": hash_of(field.name), "address": owner_of(number), "bool": True}
        values[field.name] = filled.get(written, number)
    return kind(**values)


@pytest.mark.parametrize("name", SIGNED)
def test_struct_hash_equals_eth_accounts(name: str) -> None:
    message = _filled(name)
    hints = get_type_hints(type(message), include_extras=True)
    members = [{"name": camel_case(f.name), "type": solidity_type(hints[f.name])} for f in fields(message)]
    data = {camel_case(f.name): getattr(message, f.name) for f in fields(message)}
    assert typed_data.struct_hash(message) == hash_struct(name, {name: members}, data)


def test_the_type_strings_are_those_of_the_library() -> None:
    source = Path(__file__).parents[2] / "contracts" / "market" / "libraries" / "Messages.sol"
    text = source.read_text("utf-8")
    for name in SIGNED:
        assert f'"{typed_data.type_string(getattr(signed if hasattr(signed, name) else types, name))}"' in text
    for tag in (b"infer", b"draw", b"check", b"court", b"tiles"):
        assert f'"troth/market/{tag.decode()}/1"' in text
        assert getattr(messages, f"{tag.decode().upper()}_TAG") == keccak256(b"troth/market/" + tag + b"/1")


def test_versions_chains_and_banks_keep_signatures_apart() -> None:
    order = Scene().order
    others = (
        replace(DOMAIN, version="1"),
        replace(DOMAIN, chain_id=1),
        replace(DOMAIN, contract=owner_of(9)),
    )
    assert DOMAIN.version == "2"
    assert Domain(1, owner_of(1)).version == "1"
    assert len({messages.order_id(order, domain) for domain in (DOMAIN, *others)}) == 4
    signed = sign(order, DOMAIN, b"\x01" * 32)
    assert signed.require(DOMAIN, typed_data.address_of(b"\x01" * 32)) == order
    for domain in others:
        with pytest.raises(InvalidSignature):
            signed.require(domain, typed_data.address_of(b"\x01" * 32))
    assert not messages.signed_by_account(owner_of(1), messages.order_id(order, DOMAIN), b"short")
    assert Signed(order, b"") != signed


def test_ids_alphas_and_seeds() -> None:
    tags = {name: keccak256(f"troth/market/{name}/1".encode()) for name in ("infer", "draw", "check", "court", "tiles")}
    assert messages.tab_id(TAB) == abi_keccak(["address"] * 3, [TAB.payer, TAB.payee, TAB.key])
    assert messages.infer_alpha(ONE) == abi_keccak(["bytes32"] * 2, [tags["infer"], ONE])
    assert messages.draw_alpha(ONE) == abi_keccak(["bytes32"] * 2, [tags["draw"], ONE])
    check = abi_keccak(["bytes32"] * 5, [tags["check"], ONE, OTHER, THIRD, tags["draw"]])
    assert messages.check_seed(ONE, OTHER, THIRD, Hash32(tags["draw"])) == check
    summons = abi_keccak(["bytes32", "uint8", "uint8"], [ONE, 2, 3])
    assert messages.summons_id(ONE, proceedings.SummonsKind.CHECK, 3) == summons
    assert messages.segment_seed(ONE, 3) == abi_keccak(["bytes32", "uint256"], [ONE, 3])
    court = abi_keccak(["bytes32", "bytes32", "uint256", "bytes32"], [tags["court"], ONE, 1, OTHER])
    assert messages.court_seed(ONE, 1, OTHER) == court
    committed = keccak256(OTHER + THIRD)
    tiles = abi_keccak(["bytes32"] * 4, [tags["tiles"], ONE, committed, THIRD])
    assert messages.tiles_seed(ONE, [OTHER, THIRD], THIRD) == tiles
    assert messages.check_tiles_seed(ONE, [OTHER, THIRD]) == keccak256(ONE + OTHER + THIRD)
    assert messages.case_id(ONE, 2) == abi_keccak(["bytes32", "uint256"], [ONE, 2])
    hearing = abi_keccak(["bytes32", "bytes32", "uint256"], [keccak256(b"troth/market/hearing/1"), ONE, 1])
    assert messages.hearing_id(ONE, 1) == hearing
    assert messages.trace_commitment(ONE, OTHER) == abi_keccak(["bytes32"] * 2, [ONE, OTHER])
    names = [owner_of(1), owner_of(2)]
    assert messages.nodes_hash(names) == abi_keccak(["address"] * 2, names)
    review = messages.review_commitment(
        ONE, names[0], root=OTHER, opinion=signed.Opinion.REJECT, score=5, spread=6, salt=THIRD
    )
    kinds = ["bytes32", "address", "bytes32", "uint8", "uint32", "uint32", "bytes32"]
    assert review == abi_keccak(kinds, [ONE, names[0], OTHER, 2, 5, 6, THIRD])
    own = messages.verifier_commitment(ONE, 0, names[0], root=OTHER, salt=THIRD)
    assert own != messages.verifier_commitment(ONE, 0, names[1], root=OTHER, salt=THIRD)


def test_states_are_encoded_as_the_contracts_do() -> None:
    state = proceedings.CaseState(
        kind=proceedings.CaseKind.DOUBT,
        order=ONE,
        verifiers=(owner_of(1), owner_of(2)),
        opinions=b"\x01\x02",
        commitments=(ONE, OTHER, THIRD),
    )
    claim = types.ClaimState(
        types.Claim(1, 2, 3, 4, ONE), types.Voucher(ONE, 1, 2, 3, 4, 5), 6, 7, *(8,) * _claim_counts(), owner_of(3)
    )
    request = types.DrawRequest(ONE, 0, 12, 5, OTHER, 3, True, False, (owner_of(1),), types.Ask(1, 2, 3), b"hint")
    node = types.NodeRegistration(
        owner_of(1),
        owner_of(2),
        ONE,
        0,
        12,
        (Segment(0, 6), Segment(6, 12)),
        (types.Ask(1, 2, 3),),
        9,
        "https://a",
        OTHER,
    )
    for value in (state, claim, request, node, execution_class(), MODEL, signed.VrfProof(b"proof", (1, 2))):
        assert messages.state_hash(value) == abi_keccak([messages.abi_type(type(value))], [_plain(value)])


def _claim_counts() -> int:
    """Fields of ClaimState between its deadline and its claimer."""
    return len(fields(types.ClaimState)) - 5


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return tuple(_plain(getattr(value, field.name)) for field in fields(value))
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def test_values_that_do_not_fit_are_refused() -> None:
    order = Scene().order
    for wrong in (
        replace(order, sequence=1 << 64),
        replace(order, tab=Hash32(b"short")),
        replace(order, max_fee=-1),
        replace(order, node_share=True),
    ):
        with pytest.raises(InvalidField):
            messages.order_id(wrong, DOMAIN)
    with pytest.raises(InvalidField):
        messages.tab_id(replace(TAB, payee=Address("0x12")))
    with pytest.raises(InvalidField):
        messages.segment_seed(ONE, -1)
    with pytest.raises(InvalidField):
        messages.segments_of(order, layers=13)
