"""Events of the market: dataclasses and ABI agree name by name, logs are read back, and nothing else is."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from support.market_logs import CONTRACTS, FACTORY, log_of, sample

from troth.protocol.bindings import AbiEntry, Parameter, entries, named
from troth.protocol.errors import InvalidField
from troth.protocol.market.calls import build, read_call, view
from troth.protocol.market.events import EVENTS_OF, Event, parse_log
from troth.protocol.market.parts import Part
from troth.protocol.market.reverts import REMEDIES, decode_error
from troth.protocol.market.types import PotKind, TabState
from troth.protocol.typed_data import camel_case
from troth.protocol.types import Address, Hash32, to_address

RENAMED = {"definition": "class", "sender": "from", "contracts": "contracts"}
KINDS = [(binding, kind) for binding, kinds in EVENTS_OF.items() for kind in kinds]


def bare(hint: Any) -> Any:
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def check_fields(parameters: tuple[Parameter, ...], kind: type) -> None:
    """A dataclass has exactly these fields, in their order and of their types."""
    hints = get_type_hints(kind)
    mine = [one for one in fields(kind) if one.name != "meta"]
    assert [RENAMED.get(one.name, camel_case(one.name)) for one in mine] == [one.name for one in parameters], kind
    for parameter, one in zip(parameters, mine, strict=True):
        check_type(parameter, bare(hints[one.name]))


def check_type(parameter: Parameter, hint: Any) -> None:
    if parameter.type.endswith("[]"):
        assert get_origin(hint) is tuple, parameter
        inner = replace(parameter, type=parameter.type[:-2])
        return check_type(inner, bare(get_args(hint)[0]))
    if parameter.components:
        assert is_dataclass(hint), parameter
        return check_fields(parameter.components, hint)
    if parameter.type.startswith("uint"):
        assert hint is int or issubclass(hint, IntEnum), (parameter, hint)
        return None
    known = {"bytes32": (Hash32,), "address": (Address,), "bool": (bool,), "string": (str,), "bytes": (bytes,)}
    assert hint in known[parameter.type], (parameter, hint)
    return None


@pytest.mark.parametrize("binding", EVENTS_OF)
def test_every_event_has_a_dataclass(binding: str) -> None:
    assert {kind.__name__ for kind in EVENTS_OF[binding]} == set(named("event", binding))


@pytest.mark.parametrize(("binding", "kind"), KINDS, ids=lambda one: getattr(one, "__name__", one))
def test_dataclasses_have_the_fields_of_their_events(binding: str, kind: type) -> None:
    check_fields(named("event", binding)[kind.__name__].inputs, kind)


@pytest.mark.parametrize(("binding", "kind"), KINDS, ids=lambda one: getattr(one, "__name__", one))
def test_every_event_is_read_back_from_its_log(binding: str, kind: type[Event]) -> None:
    event = sample(kind)
    assert parse_log(log_of(event), CONTRACTS, FACTORY) == event


def test_logs_of_others_and_of_the_wrong_part_are_refused() -> None:
    log = log_of(sample(EVENTS_OF[Part.BANK.binding][0]))
    for wrong in (
        replace(log, address=to_address("0x" + "99" * 20)),
        replace(log, address=CONTRACTS.court),
        replace(log, topics=()),
        replace(log, topics=log.topics[:1]),
        replace(log, data=log.data[:-32]),
        replace(log, topics=(Hash32(bytes(32)), *log.topics[1:])),
    ):
        with pytest.raises(InvalidField):
            parse_log(wrong, CONTRACTS, FACTORY)
    with pytest.raises(InvalidField):
        parse_log(log_of(sample(EVENTS_OF["market/deployment"][0])), CONTRACTS, None)


@pytest.mark.parametrize("part", list(Part))
def test_calls_are_built_from_values_and_read_back(part: Part) -> None:
    for entry in entries(part.binding):
        if entry.kind == "function":
            arguments = [zero_of(parameter) for parameter in entry.inputs]
            call = build(CONTRACTS, part, entry.name, *arguments, value=7)
            assert (call.to, call.call.value) == (part.of(CONTRACTS), 7)
            assert read_call(part, call.call.data).entry == entry


def zero_of(parameter: Parameter) -> Any:
    if parameter.type.endswith("[]"):
        return []
    if parameter.components:
        return tuple(zero_of(component) for component in parameter.components)
    if parameter.type.startswith("bytes"):
        return bytes(int(parameter.type[5:] or 0))
    return {"address": "0x" + "00" * 20, "bool": False, "string": ""}.get(parameter.type, 0)


def test_results_come_back_as_their_types() -> None:
    asked = view(CONTRACTS, Part.BANK, "tabOf", Hash32(b"\1" * 32), returns=TabState)
    words = [5, 7, 9, 1]
    assert asked.view.result(b"".join(word.to_bytes(32) for word in words)) == TabState(5, 7, 9, known=True)
    pair = view(CONTRACTS, Part.BANK, "shortOf", Hash32(b"\1" * 32), returns=(int, int))
    assert pair.view.result((3).to_bytes(32) + (4).to_bytes(32)) == (3, 4)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [("noSuchFunction", ()), ("withdraw", ()), ("withdraw", ("nobody",)), ("balanceOf", (PotKind.TAB, b"\1" * 33))],
)
def test_calls_that_do_not_fit_are_refused(function: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(InvalidField):
        build(CONTRACTS, Part.BANK, function, *arguments)


def errors() -> list[AbiEntry]:
    found = {entry.name: entry for binding in EVENTS_OF for entry in entries(binding) if entry.kind == "error"}
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("entry", errors(), ids=lambda entry: entry.name)
def test_errors_are_named_with_their_values_and_a_remedy(entry: AbiEntry) -> None:
    from troth.protocol.bindings.structs import encode_parameters

    data = entry.selector + encode_parameters(entry.inputs, [zero_of(parameter) for parameter in entry.inputs])
    decoded = decode_error(data)
    assert (decoded.name, list(decoded.arguments)) == (entry.name, [one.name for one in entry.inputs])
    assert decoded.remedy.endswith(".")
    assert decode_error(data[:-1] + b"").name in {entry.name, "Unknown"} or not entry.inputs


def test_what_a_token_says_is_told_in_words() -> None:
    """Who had too few tokens for a tab read "Unknown(data=0xe450d38c...)"."""
    account = bytes(12) + b"\x11" * 20
    few = decode_error(bytes.fromhex("e450d38c") + account + (5).to_bytes(32) + (70).to_bytes(32))
    assert few.name == "ERC20InsufficientBalance"
    assert "has 5 units of the token, and 70 are needed" in few.remedy
    none = decode_error(bytes.fromhex("fb8f41b2") + account + (5).to_bytes(32) + (70).to_bytes(32))
    assert (none.name, none.arguments["needed"]) == ("ERC20InsufficientAllowance", 70)


def test_remedies_are_for_errors_that_exist() -> None:
    assert set(REMEDIES) <= {entry.name for entry in errors()}
    assert decode_error(b"").name == "Reverted"
    assert decode_error(b"\x12\x34\x56\x78").name == "Unknown"
