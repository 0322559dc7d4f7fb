"""Whether what stands on a chain is what network.json says, in numbered checks that anybody can repeat.

N1 and N2 say that the node is of this chain, and that the network is read from its beginning. N3 reads the transaction
that created the factory: a plain creation of exactly the shipped code. An account's nonce is used once, so no other
code was ever at this address; the parts' addresses (CREATE2) then prove their code, and their immutables, since only
the factory's own code can have told them their parameters. N4 to N6 look at what is there today: the code of each
contract, immutables masked, against the shipped one, and what the file says of it. N7 is the committee, N8 the
suggested chain nodes. N9 to N11 are Tickets, Reputation and Organisations, where the file names them (`services.py`).
N12 is the contracts of disputes or of imprints: the transaction that created the deployment's prover.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from troth.chain import decoding
from troth.chain.errors import ChainError, ChainUnavailable, RpcRefused, WrongChain
from troth.chain.market import find_deployed
from troth.chain.rpc import Rpc
from troth.chain.transactions import message
from troth.network.description import CONTRACTS_WITH_CODE, NetworkDescription
from troth.network.disputes import examine
from troth.network.imprints import examine_imprints
from troth.network.services import CHECK_NUMBERS, ServiceVerifier
from troth.protocol.bindings import COMMITTEE, MARKET_PARTS, named
from troth.protocol.bindings.structs import decode_parameters
from troth.protocol.hashing import keccak256
from troth.protocol.market.addresses import code_hashes, factory_code
from troth.protocol.market.calls import build_factory
from troth.protocol.market.parts import FACTORY
from troth.protocol.runtime_code import part_runtime, runtime_of
from troth.protocol.types import Address

CHAIN_CHECK = "the node is on the network's chain"
INCOMPLETE = 3
"""Exit code where a check could not be made; 1 where one failed, 0 where all hold."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What one check found; ``ok`` is None where it could not be made. ``remedy`` is empty where it holds."""

    number: str
    what: str
    ok: bool | None
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of a network."""

    findings: tuple[Verified, ...]

    @property
    def exit_code(self) -> int:
        """0 all hold, 1 one failed, 3 one could not be made."""
        verdicts = {one.ok for one in self.findings}
        return 1 if False in verdicts else INCOMPLETE if None in verdicts else 0


async def verify(network: NetworkDescription, url: str, *, timeout: float | None = None) -> Verification:
    """Compare a network with its chain over a node; where that does not answer, the checks are not completed."""
    rpc = Rpc(url, timeout=timeout)
    try:
        return await _Verifier(network, rpc, url).verify()
    except ChainUnavailable as error:
        away = f"{error.what} ({error.value})"
        return Verification((Verified("N1", CHAIN_CHECK, None, away, "Name a node that answers with --rpc."),))
    finally:
        await rpc.close()


class _Verifier:
    """One network under examination."""

    def __init__(self, network: NetworkDescription, rpc: Rpc, url: str) -> None:
        self._network = network
        self._rpc = rpc
        self._url = url
        self._code: dict[str, bytes] = {}

    async def verify(self) -> Verification:
        first = await self._chain()
        if not first.ok:
            return Verification((first,))
        await self._read_code()
        checks: tuple[Callable[[], Awaitable[Verified]], ...] = (
            *(self._start, self._creation, self._factory, self._parts, self._as_written),
            *(self._committee, self._suggestions),
        )
        findings = [await check() for check in checks]
        findings += [await self._service(name) for name in self._network.services]
        return Verification((first, *findings, await self._prover()))

    async def _chain(self) -> Verified:
        expected = self._network.chain_id
        found = decoding.quantity(await self._rpc.request("eth_chainId"))
        remedy = "" if found == expected else f"Name a node of chain {expected} with --rpc."
        return Verified("N1", CHAIN_CHECK, found == expected, f"chain {found}", remedy)

    async def _start(self) -> Verified:
        what, network = "the network is found from its start block on", self._network
        try:
            found = await find_deployed(self._url, network.factory, network.contracts.bank, network.start_block)
        except WrongChain:
            remedy = "Wait until the node has caught up; if it has, put no money there: a start too late hides events."
            return Verified("N2", what, False, f"no deployment from block {network.start_block} on", remedy)
        except RpcRefused as error:
            return Verified("N2", what, None, f"the node refuses: {error.message}", "Use a node that gives logs.")
        return Verified("N2", what, True, f"from block {network.start_block}; it stood in block {found.meta.block}")

    async def _creation(self) -> Verified:
        what = "the factory was created by a plain transaction with exactly the shipped code"
        created_by, factory = self._network.created_by, self._network.factory
        if created_by is None:
            remedy = "Ask the founder for a file that names it; a node that keeps old states lets `describe` find it."
            return Verified("N3", what, None, "the file names no transaction", remedy)
        name = decoding.hexadecimal(created_by)
        try:
            sent: Any = await self._rpc.request("eth_getTransactionByHash", name)
            receipt: Any = await self._rpc.request("eth_getTransactionReceipt", name)
        except RpcRefused as error:
            return Verified("N3", what, None, f"the node refuses: {error.message}", "Use another node.")
        if not isinstance(sent, dict) or not isinstance(receipt, dict):
            remedy = "Use a node that keeps old transactions."
            return Verified("N3", what, None, f"the node does not know {name}", remedy)
        made = decoding.receipt(receipt).created
        if made != factory or sent.get("to") is not None:
            return Verified("N3", what, False, f"it created {made or 'nothing'}, not {factory}", _distrust())
        if decoding.data(sent.get("input")) != factory_code():
            return Verified("N3", what, False, "it created the factory with other code", _distrust())
        return Verified("N3", what, True, f"{name} in block {decoding.receipt(receipt).block}")

    async def _factory(self) -> Verified:
        what, code = "the factory has the shipped code and makes exactly the shipped parts", self._code["factory"]
        if not runtime_of(FACTORY).fits(code):
            return Verified("N4", what, False, _of_code(self._network.factory, code), _distrust())
        outputs = named("function", FACTORY)["codeHashOf"].outputs
        for index, (part, expected) in enumerate(zip(MARKET_PARTS, code_hashes(), strict=True)):
            call = message(build_factory(self._network.factory, "codeHashOf", index).call, None, self._network.factory)
            (found,) = decode_parameters(outputs, decoding.data(await self._rpc.request("eth_call", call, "latest")))
            if found != expected:
                return Verified("N4", what, False, f"it makes another {part}", _distrust())
        return Verified("N4", what, True, f"{len(code):,} bytes at {self._network.factory}")

    async def _parts(self) -> Verified:
        what = "every part has the shipped code, its immutables left out"
        wrong = [part for part in MARKET_PARTS if not part_runtime(part).fits(self._code[part])]
        if wrong:
            place = getattr(self._network.contracts, wrong[0])
            others = f"; also {', '.join(wrong[1:])}" if wrong[1:] else ""
            return Verified(
                "N5", what, False, f"{wrong[0]}: {_of_code(place, self._code[wrong[0]])}{others}", _distrust()
            )
        return Verified("N5", what, True, f"{len(MARKET_PARTS)} contracts")

    async def _as_written(self) -> Verified:
        what = "the code of every contract has the hash that the file says"
        wrong = [name for name in CONTRACTS_WITH_CODE if keccak256(self._code[name]) != self._network.code[name]]
        if wrong:
            remedy = "The file was changed or is of another network: get it again from who runs the network."
            return Verified("N6", what, False, f"other code of {', '.join(wrong)}", remedy)
        return Verified("N6", what, True, f"{len(CONTRACTS_WITH_CODE)} hashes")

    async def _committee(self) -> Verified:
        what, place = "the directory's committee has the shipped code", self._network.committee
        if place is None:
            return Verified("N7", what, True, "the network has none: no overlay, schedulers see who asks")
        code = await self._code_at(place.address)
        if not runtime_of(COMMITTEE).fits(code):
            return Verified("N7", what, False, _of_code(place.address, code), _distrust())
        if keccak256(code) != place.code:
            return Verified(
                "N7", what, False, "the file says another hash", "Get the file again from who runs the network."
            )
        return Verified("N7", what, True, f"at {place.address}")

    async def _service(self, name: str) -> Verified:
        committee = None if self._network.committee is None else self._network.committee.address
        verifier = ServiceVerifier(self._network.services, self._network.contracts, committee, self._rpc)
        verdict = await verifier.verdict(name)
        what = f"{name} has the shipped code and was made for this network"
        return Verified(CHECK_NUMBERS[name], what, verdict.ok, verdict.found, verdict.remedy)

    async def _suggestions(self) -> Verified:
        """A suggested node on another chain would lead every reader astray; one that is away is nobody's fault."""
        what, away = "the chain nodes that the file suggests are on this chain", 0
        for url in self._network.rpc:
            rpc = Rpc(url, attempts=1)
            try:
                found = decoding.quantity(await rpc.request("eth_chainId"))
            except ChainError:
                away += 1
                continue
            finally:
                await rpc.close()
            if found != self._network.chain_id:
                return Verified("N8", what, False, f"{url} is on chain {found}", "Take it out of the file's rpc.")
        answered = len(self._network.rpc) - away
        found_words = f"{answered} of {len(self._network.rpc)} answered" if self._network.rpc else "it suggests none"
        return Verified("N8", what, True, found_words)

    async def _prover(self) -> Verified:
        what = "the deployment's prover has the shipped code and was created for this deployment alone"
        place = self._network.imprints
        found = examine_imprints(self._rpc, self._network, place) if place else examine(self._rpc, self._network)
        return Verified("N12", what, *await found)

    async def _read_code(self) -> None:
        places = {"factory": self._network.factory} | {
            part: getattr(self._network.contracts, part) for part in MARKET_PARTS
        }
        for name, place in places.items():
            self._code[name] = await self._code_at(place)

    async def _code_at(self, place: Address) -> bytes:
        return decoding.data(await self._rpc.request("eth_getCode", place, "latest"))


def _of_code(place: Address, code: bytes) -> str:
    return f"no code at {place}" if not code else f"other code at {place}, {len(code):,} bytes"


def _distrust() -> str:
    return "Put no money there. Where you expected your own network: is this the chain, and the release, of its file?"
