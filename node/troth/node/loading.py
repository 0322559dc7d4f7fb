"""Bringing up the engine: only with weights that are the registered model, unless the operator insists."""

from __future__ import annotations

import logging

from troth.node.configuration import Configuration
from troth.node.engine.interface import Engine
from troth.node.errors import ModelError
from troth.node.models.descriptor import describe
from troth.node.models.folder import ModelFolder, find_model
from troth.protocol.types import ExecutionClass, ModelDescriptor

log = logging.getLogger(__name__)


def load_engine(
    configuration: Configuration, execution_class: ExecutionClass, descriptor: ModelDescriptor, *, verify: bool
) -> Engine:
    """Load the configured slice; takes seconds, so call it in a thread.

    Raises:
        ModelError: the folder holds another model than the registered one, or the slice does not fit.
    """
    folder = find_model(configuration.folder, configuration.model)
    if verify:
        require_registered(folder, descriptor)
    else:
        log.warning("serving %s without checking it: other weights than the registered ones are slashed", folder.path)
    from troth.node.engine.torch_engine import TorchEngine

    return TorchEngine(
        folder,
        configuration.slice,
        execution_class.dtype,
        device=configuration.device,
        cache_bytes=configuration.cache_bytes,
        threads=configuration.threads,
    )


def require_registered(folder: ModelFolder, descriptor: ModelDescriptor) -> None:
    """Raise ModelError naming the first field in which a folder differs from the registered descriptor."""
    found = describe(folder, descriptor.dtype)
    for name in ("architecture", "layers", "hidden_size", "vocabulary", "weights_root"):
        own, registered = getattr(found, name), getattr(descriptor, name)
        if own != registered:
            shown = own.hex() if isinstance(own, bytes) else own
            remedy = "Import the registered model again; serving another one is slashed."
            raise ModelError(f"{folder.path} is not the registered model: {name} differs", shown, remedy)
