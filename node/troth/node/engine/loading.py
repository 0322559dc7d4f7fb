"""Bringing up the engine: only with weights that are the registered model, unless the operator insists."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from troth.node.configuration import NodeConfiguration
from troth.node.engine.card import CardLock, cards_of, require_device
from troth.node.engine.interface import Arithmetic, Engine
from troth.node.engine.stressing import require_stressed
from troth.node.errors import ConfigError, EngineError, ModelError
from troth.node.models.activations import require_judged
from troth.node.models.descriptor import (
    Progress,
    contradicts_cache,
    describe,
    description,
    require_known_numbers,
)
from troth.node.models.folder import ModelFolder, find_model
from troth.node.models.holding import held
from troth.node.models.quantised import require_computed, unpacked
from troth.node.models.sources import TEXT_FILES, Stamp, changed_links, require_weights, stamp
from troth.node.models.tensor_files import INDEX, raw_tensors
from troth.node.models.texts import read_bytes
from troth.protocol.architecture import weights_version
from troth.protocol.types import ModelDescriptor, Segment

if TYPE_CHECKING:
    from troth.node.engine.vllm.settings import EngineSettings

log = logging.getLogger(__name__)
WATCH_SECONDS = 10.0
"""Between two looks whether files of the model were changed."""
CARD_SECONDS = 1.0
"""Between two looks whether the graphics card is gone; who asked meanwhile is answered before."""


class KnownFile(NamedTuple):
    """What is known of a file: its stamp, and of small files the SHA-256 of what they hold."""

    stamp: Stamp
    content: bytes = b""


WeightStamps = dict[str, KnownFile]
"""By the file's name: weights, and the texts that say how they are computed and what tokens mean."""


def load_engine(
    configuration: NodeConfiguration, execution_class: Arithmetic, descriptor: ModelDescriptor, *, verify: bool
) -> Engine:
    """Load the configured slice; takes seconds, so call it in a thread.

    Raises:
        ModelError: the folder holds another model than the registered one, or NaN, or the slice does not fit.
    """
    folder = held(find_model(configuration.folder, configuration.model))
    # Before anything is hashed, since a file may have any size; and vLLM may find room for weights that do not fit.
    require_weights(folder)
    changed = changed_links(folder.place)
    before = weight_stamps(folder)
    if verify or changed:
        for name in () if verify else changed:
            log.warning("%s was changed at its source after the import: the weights are checked after all", name)
        require_registered(folder, descriptor)
    else:
        require_described(folder, descriptor)
        log.warning("serving %s without checking it: other weights than the registered ones are slashed", folder.place)
    # The registered model itself may hold them; what was imported was looked at, and any other folder was not.
    require_known_numbers(folder)
    engine: Engine
    if configuration.engine == "vllm":
        from troth.node.engine.vllm.engine import VllmEngine

        settings = vllm_settings(configuration, execution_class, folder)
        CardLock(cards_of(settings.device, settings.parallel)).take()
        engine = VllmEngine(folder, settings, unchanged=partial(file_stamps, folder, before))
    else:
        CardLock(cards_of(configuration.device)).take()
        engine = torch_engine(
            folder,
            configuration.slice,
            execution_class,
            device=configuration.device,
            cache_bytes=configuration.cache_bytes,
            threads=configuration.threads,
        )
    require_unchanged(folder, before)
    return engine


def weight_stamps(folder: ModelFolder, before: Mapping[str, KnownFile] = MappingProxyType({})) -> WeightStamps:
    """Of all files of a model, as they are now; texts whose stamps are as `before` are not read again."""
    kept = {path.name: KnownFile(stamp(path)) for path in folder.weight_files}
    for path in (folder.path / name for name in (*TEXT_FILES, INDEX)):
        if os.path.lexists(path):
            known, now = before.get(path.name), stamp(path)
            same = known is not None and known.stamp == now
            kept[path.name] = known if known and same else KnownFile(now, hashlib.sha256(read_bytes(path)).digest())
    return kept


def require_unchanged(folder: ModelFolder, before: WeightStamps) -> WeightStamps:
    """The stamps now; raises ModelError where a file of the model is another than before: pages of weights are read
    while the node serves, and an engine that is started again reads everything again.

    Where nothing but the time of the last change is another, there is a new link to the file, or somebody wrote into it
    and set its time back: its hash decides.
    """
    try:
        now = weight_stamps(folder, before)
    except OSError as error:
        raise ModelError(
            "files of the model are gone", error, "Import the model again, then start the node."
        ) from error
    differing = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    changed = [name for name in differing if not _only_touched(before.get(name), now.get(name))]
    changed += [name for name in {*differing} - {*changed} if contradicts_cache(folder, name)]
    if changed:
        remedy = "Start the node again, which checks them; a model that was linked changes with its source."
        raise ModelError(f"files of the model below {folder.place} were changed", ", ".join(sorted(changed)), remedy)
    return now


def file_stamps(folder: ModelFolder, before: WeightStamps) -> tuple[WeightStamps, WeightStamps, Stamp]:
    """As `require_unchanged`, of the files that are read and of those that lie where the owner keeps them, with his
    folder's own stamp: another folder in its place leaves no trace in the files once it is taken away again."""
    placed = ModelFolder(folder.place)
    return require_unchanged(folder, before), require_unchanged(placed, before), stamp(folder.place)


def _only_touched(before: KnownFile | None, now: KnownFile | None) -> bool:
    if before is None or now is None or before.content != now.content:
        return False
    return before.stamp._replace(changed=now.stamp.changed) == now.stamp


def stamps_before(configuration: NodeConfiguration) -> WeightStamps:
    """Of the configured model's weights, to be taken before anything of them is read; none where there is no such
    folder: another loader of engines (`MarketParts`) may need none, and `load_engine` says what is missing."""
    try:
        return weight_stamps(find_model(configuration.folder, configuration.model))
    except (ModelError, OSError):
        return {}


async def watch_weights(configuration: NodeConfiguration, before: WeightStamps) -> None:
    """Raise ModelError once files of the model are others than `before` (`stamps_before`): the node would serve another
    model, and sign for it. Looks at once, since they may have changed since the last look while loading."""
    if not before:
        return
    folder = await asyncio.to_thread(find_model, configuration.folder, configuration.model)
    while True:
        before = await asyncio.to_thread(require_unchanged, folder, before)
        await asyncio.sleep(WATCH_SECONDS)


async def watch_card(engine: Engine) -> None:
    """Raise EngineError once the engine's graphics card is gone: only another process can have it again."""
    while (lost := getattr(engine, "lost", None)) is None:  # noqa: ASYNC110 - torch has no event for it
        await asyncio.sleep(CARD_SECONDS)
    remedy = "Look at nvidia-smi and the system's log; systemd starts the node again."
    raise EngineError("the node ends, since it can compute nothing more", lost, remedy)


def torch_engine(
    folder: ModelFolder,
    hosted: Segment,
    execution_class: Arithmetic,
    *,
    device: str = "cpu",
    cache_bytes: int = 1 << 30,
    threads: int | None = None,
) -> Engine:
    """The torch engine with the layers that an execution class computes with; raises ModelError."""
    from troth.node.engine.layers import LayerSlice
    from troth.node.engine.torch_engine import TorchEngine

    slices = LayerSlice
    if not execution_class.exact:
        require_judged(folder)
    else:
        from troth.node.engine.exact_layers import ExactSlice

        slices = ExactSlice
    return TorchEngine(
        folder,
        hosted,
        execution_class.dtype,
        device=device,
        cache_bytes=cache_bytes,
        threads=threads,
        layers=slices,
    )


def require_engine(configuration: NodeConfiguration) -> None:
    """Raise ConfigError where engine or device cannot be used here; before anything else is begun."""
    require_device(configuration.device)
    if configuration.engine == "vllm":
        from troth.node.engine.vllm.installing import require_vllm

        require_vllm()


def vllm_settings(configuration: NodeConfiguration, execution_class: Arithmetic, folder: ModelFolder) -> EngineSettings:
    """How vLLM is started for a class. What decides about bits is taken from the class' name, and not from node.toml.

    Raises:
        ConfigError: vLLM cannot compute this class here; said before the model is read.
        ModelError: or nowhere.
    """
    from troth.node.engine.vllm.machine import require_cpu, require_guarded, require_machine
    from troth.node.engine.vllm.settings import EngineSettings

    require_computed(folder.quantisation, execution_class.dtype)
    if not execution_class.exact:
        require_judged(folder)
    layers = Segment(0, folder.layers)
    if configuration.slice != layers:
        raise ConfigError("vLLM hosts whole models only", configuration.slice, f'Set node.slice = "0:{layers.end}".')
    if configuration.device not in {"cpu", "cuda"}:
        remedy = 'Set engine.device = "cuda" and choose cards by the variable CUDA_VISIBLE_DEVICES.'
        raise ConfigError("vLLM takes the first cards that it sees", configuration.device, remedy)
    settings = EngineSettings(
        folder.path,
        execution_class.dtype,
        configuration.device,
        folder.longest_text(configuration.positions),
        configuration.cache_bytes,
        configuration.threads,
        exact=execution_class.exact,
        graphs=configuration.graphs,
        parallel=configuration.cards,
    )
    _require_for_vllm(folder, on_card=settings.on_card, exact=execution_class.exact)
    if execution_class.exact:
        require_guarded(folder.quantisation)
        if settings.on_card:
            machine = require_machine(execution_class.name)
            require_stressed(configuration.folder, folder, execution_class.dtype, machine)
            return replace(settings, machine=machine, parallel=machine.parallel)
        require_cpu(execution_class.name)
    elif execution_class.dtype and settings.on_card:
        # The reference of a check is computed on the card as well, while vLLM is there.
        from troth.node.engine.streamed import reference_bytes

        return replace(settings, spared=reference_bytes(folder))
    return settings


def _require_for_vllm(folder: ModelFolder, *, on_card: bool, exact: bool) -> None:
    from troth.node.engine.vllm.machine import require_words

    settings = folder.quantisation
    if settings is None:
        return
    found = unpacked(raw_tensors(folder.path), settings)
    if told := found.in_torch:
        raise ConfigError("vLLM does not read such weights", ", ".join(sorted(told)), 'Set engine.name = "torch".')
    if on_card:
        return
    require_words(settings)
    if told := found.on_cards:
        remedy = 'Set engine.device = "cuda", or engine.name = "torch"; or serve a copy of 4 bits.'
        raise ConfigError("vLLM serves such weights on a graphics card alone", ", ".join(sorted(told)), remedy)
    if not exact and found.words_of_experts:
        # `CPUExpertsInt4`, whatever the environment says.
        what = "on a processor vLLM rounds what enters quantised experts, which no tolerant class allows"
        remedy = 'Set engine.name = "torch", or use a graphics card.'
        raise ConfigError(what, min(found.words_of_experts), remedy)


def require_registered(
    folder: ModelFolder, descriptor: ModelDescriptor, progress: Progress = lambda size: None
) -> None:
    """Raise ModelError naming the first field in which a folder differs from the registered descriptor; ``progress`` is
    told bytes of weights as they are hashed."""
    require_described(folder, descriptor)
    found = describe(folder, descriptor.dtype, progress, version=weights_version(descriptor.architecture))
    _require_fields(folder, found, descriptor, "weights_root")


def require_described(folder: ModelFolder, descriptor: ModelDescriptor) -> None:
    """As `require_registered`, of all but the weights: configuration, tokenizer and template; takes no time."""
    version = weights_version(descriptor.architecture)
    found = description(folder, descriptor.dtype, descriptor.weights_root, version=version)
    _require_fields(folder, found, descriptor, "architecture", "layers", "hidden_size", "vocabulary")


def _require_fields(folder: ModelFolder, found: ModelDescriptor, descriptor: ModelDescriptor, *names: str) -> None:
    for name in names:
        own, registered = getattr(found, name), getattr(descriptor, name)
        if own != registered:
            shown = own.hex() if isinstance(own, bytes) else own
            remedy = "Import the registered model again; serving another one is slashed."
            raise ModelError(f"{folder.place} is not the registered model: {name} differs", shown, remedy)
