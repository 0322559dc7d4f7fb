"""network.json: what a network is, in one file that can be handed to anybody.

Nothing in it has to be believed. The contracts' addresses follow from factory, parameters and the shipped code, and
reading a file computes them again; `troth network verify` compares the rest with the chain. A file of another version,
with an unknown, missing or repeated key, or with a value of another type is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from troth.chain.new_files import replacing
from troth.network.errors import NetworkFileInvalid
from troth.network.services import SERVICES, ServicePlace, Services
from troth.protocol.bindings import MARKET_PARTS
from troth.protocol.errors import ProtocolError
from troth.protocol.market.addresses import contracts_of, deployment_id
from troth.protocol.market.types import Contracts, Parameters
from troth.protocol.struct_kinds import prepared
from troth.protocol.types import Address, Hash32, address_to_bytes, to_hash32
from troth.transport.errors import visible

VERSION = 1
LARGEST_FILE = 64 * 1024
"""Bytes; a file has about four thousand."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
MOST_URLS = 8
_URL = re.compile(r"""https?://[!#-?A-\[\]-~]{1,200}""")
"""Printable ASCII without quotes, backslashes and @, behind which a password could stand."""
_MONEY = ("scheduler_stake", "gas_price")
"""Parameters that are written as text: JSON numbers lose digits beyond 2^53."""

CONTRACTS_WITH_CODE = ("factory", *MARKET_PARTS)


class _CommitteeForm(msgspec.Struct, forbid_unknown_fields=True):
    address: str
    code: str


class _DisputesForm(msgspec.Struct, forbid_unknown_fields=True):
    address: str
    steps: str
    numbers: str
    created_by: str | None


class _ImprintsForm(msgspec.Struct, forbid_unknown_fields=True):
    address: str
    keys: dict[str, str]
    created_by: str | None


class _ServiceForm(msgspec.Struct, forbid_unknown_fields=True):
    address: str
    code: str
    created_by: str | None


class _NetworkForm(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of the file and their types."""

    troth_network: int
    name: str
    chain_id: int
    rpc: list[str]
    block_seconds: float
    start_block: int
    factory: str
    created_by: str | None
    contracts: dict[str, str]
    code: dict[str, str]
    parameters: dict[str, int | str]
    committee: _CommitteeForm | None
    disputes: _DisputesForm | None = None
    imprints: _ImprintsForm | None = None
    services: dict[str, _ServiceForm] = {}


@dataclass(frozen=True, slots=True)
class CommitteePlace:
    """The directory's committee: its contract, and keccak256 of the code there."""

    address: Address
    code: Hash32


@dataclass(frozen=True, slots=True)
class DisputesPlace:
    """The contracts of disputes: ``address`` is the deployment's prover, ``created_by`` the transaction that created it
    (None: not known)."""

    address: Address
    steps: Address
    numbers: Address
    created_by: Hash32 | None


@dataclass(frozen=True, slots=True)
class ImprintsPlace:
    """The contract of imprints: ``address`` is the deployment's prover, ``keys`` keccak256 of each key's words by the
    width of rows, in the order in which it took them, ``created_by`` as of disputes."""

    address: Address
    keys: dict[int, Hash32]
    created_by: Hash32 | None


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """A network. ``rpc`` are chain nodes that its founder suggests, ``block_seconds`` the chain's pace when it was
    created, ``start_block`` a block not after the deployment, ``created_by`` the transaction that created the factory
    (None: not known), ``code`` keccak256 of the code at each address, by ``CONTRACTS_WITH_CODE``, ``services`` what
    stands beside the market."""

    name: str
    chain_id: int
    rpc: tuple[str, ...]
    block_seconds: float
    start_block: int
    factory: Address
    created_by: Hash32 | None
    contracts: Contracts
    code: dict[str, Hash32]
    parameters: Parameters
    committee: CommitteePlace | None = None
    disputes: DisputesPlace | None = None
    imprints: ImprintsPlace | None = None
    services: Services = field(default_factory=dict)

    def rendered(self) -> str:
        """The file's text."""
        members = {"address": self.committee.address, "code": _hex(self.committee.code)} if self.committee else None
        content: dict[str, Any] = {
            "troth_network": VERSION,
            "name": self.name,
            "chain_id": self.chain_id,
            "rpc": list(self.rpc),
            "block_seconds": self.block_seconds,
            "start_block": self.start_block,
            "factory": self.factory,
            "created_by": None if self.created_by is None else _hex(self.created_by),
            "contracts": asdict(self.contracts),
            "code": {name: _hex(value) for name, value in self.code.items()},
            "parameters": plain_parameters(self.parameters),
            "committee": members,
        }
        if self.disputes is not None:
            made = self.disputes.created_by
            content["disputes"] = asdict(self.disputes) | {"created_by": None if made is None else _hex(made)}
        if self.imprints is not None:
            made = self.imprints.created_by
            content["imprints"] = {
                "address": self.imprints.address,
                "keys": {str(columns): _hex(key) for columns, key in self.imprints.keys.items()},
                "created_by": None if made is None else _hex(made),
            }
        if self.services:
            content["services"] = {name: _service(self.services[name]) for name in SERVICES if name in self.services}
        return json.dumps(content, indent=2) + "\n"


def plain_parameters(parameters: Parameters) -> dict[str, int | str]:
    """Parameters as JSON has them, money as text."""
    return {name: str(value) if name in _MONEY else value for name, value in asdict(parameters).items()}


def read_description(path: Path) -> NetworkDescription:
    """The network of a file; NetworkFileInvalid with the reason otherwise."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        remedy = "Name a file that `troth network create` wrote, or a name that `troth network list` shows."
        raise NetworkFileInvalid("This network file cannot be read", f"{path}: {error.strerror}", remedy) from error
    return parse_description(content, str(path))


def parse_description(content: bytes, place: str) -> NetworkDescription:
    """The network of a file's content; ``place`` names it in errors."""
    if len(content) > LARGEST_FILE:
        raise _invalid(place, f"it has more than {LARGEST_FILE} bytes")
    try:
        decoded = json.loads(content.decode("utf-8"), object_pairs_hook=_without_repetition)
        found = decoded.get("troth_network") if isinstance(decoded, dict) else None
        if found != VERSION:
            if found is None:
                raise _invalid(place, "it has no troth_network, the version that each of them begins with")
            raise _invalid(place, f"its version, troth_network, is {str(found)[:20]} and not {VERSION}")
        form = msgspec.convert(decoded, prepared(_NetworkForm))
        return _description(form)
    except (ValueError, RecursionError, msgspec.ValidationError, ProtocolError) as error:
        raise _invalid(place, str(error)) from error


def write_description(path: Path, network: NetworkDescription) -> None:
    """Write the file whole or not at all, for anybody to read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o666) as file:
        file.write(network.rendered().encode())


def is_url(text: str) -> bool:
    """Whether this may be a chain node's address in a file: http or https, without user and password."""
    return _URL.fullmatch(text) is not None


def suggested(url: str) -> bool:
    """Whether a chain node's address may stand in the file: one with a path or a query may hold a provider's secret."""
    return re.fullmatch(r"https?://[^\s/?#@\"\\]{1,200}/?", url) is not None


def _description(form: _NetworkForm) -> NetworkDescription:
    _require(NAME.fullmatch(form.name) is not None, f"the name {form.name!r} is not 1 to 32 of a-z, 0-9 and -")
    _require(0 < form.chain_id < 1 << 63, f"chain_id {form.chain_id} is no chain")
    _require(0 <= form.start_block < 1 << 63, f"start_block {form.start_block} is no block")
    _require(0 < form.block_seconds <= 3_600, f"block_seconds {form.block_seconds} is no pace of a chain")
    _require(len(form.rpc) <= MOST_URLS, f"rpc has more than {MOST_URLS} addresses")
    _require(all(is_url(one) for one in form.rpc), "rpc has an address that is no http or https URL")
    factory, parameters = _address(form.factory), _parameters(form.parameters)
    return NetworkDescription(
        name=form.name,
        chain_id=form.chain_id,
        rpc=tuple(form.rpc),
        block_seconds=form.block_seconds,
        start_block=form.start_block,
        factory=factory,
        created_by=None if form.created_by is None else _hash(form.created_by),
        contracts=_contracts(form, factory, parameters),
        code=_code(form),
        parameters=parameters,
        committee=None
        if form.committee is None
        else CommitteePlace(_address(form.committee.address), _hash(form.committee.code)),
        disputes=_disputes(form.disputes, parameters),
        imprints=_imprints(form.imprints, parameters),
        services=_services(form),
    )


def _disputes(form: _DisputesForm | None, parameters: Parameters) -> DisputesPlace | None:
    if form is None:
        return None
    _require(form.address == parameters.prover, "disputes are at another address than the prover of the parameters")
    made = None if form.created_by is None else _hash(form.created_by)
    return DisputesPlace(_address(form.address), _address(form.steps), _address(form.numbers), made)


def _imprints(form: _ImprintsForm | None, parameters: Parameters) -> ImprintsPlace | None:
    if form is None:
        return None
    _require(form.address == parameters.prover, "imprints are at another address than the prover of the parameters")
    wrong = [text for text in form.keys if re.fullmatch("[1-9][0-9]{0,4}", text) is None]
    _require(not wrong, f"imprints have a key for rows of {', '.join(wrong)[:60]} columns")
    made = None if form.created_by is None else _hash(form.created_by)
    keys = {int(columns): _hash(key) for columns, key in form.keys.items()}
    return ImprintsPlace(_address(form.address), keys, made)


def _services(form: _NetworkForm) -> Services:
    unknown = [name for name in form.services if name not in SERVICES]
    _require(not unknown, f"services has {', '.join(unknown)[:60]}; there are {', '.join(SERVICES)}")
    _require(not form.services or form.committee is not None, "services without a committee, whose members they need")
    _require(
        not ("organisations" in form.services and "reputation" not in form.services), "organisations, no reputation"
    )
    return {
        name: ServicePlace(
            _address(one.address), _hash(one.code), None if one.created_by is None else _hash(one.created_by)
        )
        for name, one in form.services.items()
    }


def _service(place: ServicePlace) -> dict[str, str | None]:
    created_by = None if place.created_by is None else _hex(place.created_by)
    return {"address": place.address, "code": _hex(place.code), "created_by": created_by}


def _contracts(form: _NetworkForm, factory: Address, parameters: Parameters) -> Contracts:
    _require(set(form.contracts) == set(MARKET_PARTS), f"contracts must name exactly {', '.join(MARKET_PARTS)}")
    found = Contracts(**{name: _address(text) for name, text in form.contracts.items()})
    computed = contracts_of(factory, parameters)
    wrong = [part for part in MARKET_PARTS if getattr(found, part) != getattr(computed, part)]
    _require(
        not wrong,
        f"the addresses of {', '.join(wrong)} do not follow from factory, parameters and this release's code: "
        "the file was changed, or is of a network with another release's contracts",
    )
    return found


def _parameters(given: dict[str, int | str]) -> Parameters:
    names = [one.name for one in fields(Parameters)]
    _require(set(given) == set(names), f"parameters must be exactly {', '.join(names)}")
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name in {"asset", "weights", "prover"}:
            read[name] = _address(value)
        elif name in _MONEY:
            _require(isinstance(value, str) and value.isascii() and value.isdigit(), f"{name} is digits in quotes")
            read[name] = int(value)
        else:
            _require(type(value) is int and value >= 0, f"{name} is a number of blocks")
            read[name] = value
    parameters = Parameters(**read)
    deployment_id(parameters)  # raises InvalidField where a number is larger than its type
    return parameters


def _code(form: _NetworkForm) -> dict[str, Hash32]:
    _require(set(form.code) == set(CONTRACTS_WITH_CODE), f"code must name exactly {', '.join(CONTRACTS_WITH_CODE)}")
    return {name: _hash(form.code[name]) for name in CONTRACTS_WITH_CODE}


def _address(text: object) -> Address:
    """An address with its checksum, as the file is written."""
    _require(isinstance(text, str), f"{str(text)[:60]} is no address")
    address_to_bytes(str(text))
    return Address(str(text))


def _hash(text: str) -> Hash32:
    _require(re.fullmatch("0x[0-9a-f]{64}", text) is not None, f"{text[:80]!r} is not 0x and 64 hexadecimal digits")
    return to_hash32(bytes.fromhex(text[2:]))


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise ValueError(words)


def _invalid(place: str, reason: str) -> NetworkFileInvalid:
    remedy = "Get the file again from who runs the network, and check it with `troth network verify`."
    return NetworkFileInvalid(f"This is no network file that can be used: {visible(reason)}", place, remedy)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _hex(raw: bytes) -> str:
    return "0x" + raw.hex()
