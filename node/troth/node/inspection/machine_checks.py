"""What `troth node doctor` looks at on the machine: engine, model, port; and that all agree about the layers."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator

from troth.chain.errors import ChainError
from troth.node.configuration import NodeConfiguration
from troth.node.errors import ConfigError, NodeError
from troth.node.inspection.process import NO_PROCESS, process_slice, process_state
from troth.node.registration.configured_slice import text_of
from troth.protocol.types import ModelDescriptor, Segment
from troth.transport.errors import OverlayError
from troth.transport.health import HealthFinding

Say = Callable[[str], None]
"""Hears what is being done, where the next finding may take a while."""


def quiet(_what: str) -> None:
    """Nobody waits."""


def machine_findings(
    configuration: NodeConfiguration, registered: Callable[[], ModelDescriptor] | None, say: Say = quiet
) -> Iterator[HealthFinding]:
    """Engine, model and port; ``registered`` reads the model's description from the chain, None: it is away."""
    say(f"device: loading what {configuration.engine} needs; a few seconds")
    yield _guarded("device", _device, configuration)
    if registered is not None:
        yield _guarded("model", lambda own: _model(own, registered(), say), configuration)
    yield _port(configuration)


def slice_finding(configuration: NodeConfiguration, hosted: Segment | None) -> HealthFinding:
    """The slice in the file, on chain and in the running process are one."""
    file, process = text_of(configuration.slice), process_slice(configuration)
    chain = text_of(hosted) if hosted is not None else file
    running = chain if process is None else text_of(process)
    seen = f"node.toml {file}, chain {chain if hosted else 'none'}, process {running if process else 'none'}"
    if running != chain:
        fix = "If the node is loading the new layers, wait; /readyz says what is wrong. Else restart it."
    else:
        fix = f'Set node.slice = "{chain}" in node.toml, or run: troth node move {file} --broadcast'
    return HealthFinding("slice", file == chain == running, seen, fix)


def _guarded(
    check: str, look: Callable[[NodeConfiguration], HealthFinding], configuration: NodeConfiguration
) -> HealthFinding:
    try:
        return look(configuration)
    except (NodeError, ChainError, OverlayError) as error:
        return HealthFinding(check, False, error.what, error.remedy)
    except ImportError as error:
        remedy = "Install Troth again with its extra: pip install 'WHEEL[torch]'."
        return HealthFinding(check, False, str(error), remedy)


def _device(configuration: NodeConfiguration) -> HealthFinding:
    import torch

    from troth.node.engine.loading import require_engine

    require_engine(configuration)
    seen = f"{configuration.engine} on {configuration.device}, torch {torch.__version__}"
    return HealthFinding("device", True, seen, "")


def _model(configuration: NodeConfiguration, registered: ModelDescriptor, say: Say = quiet) -> HealthFinding:
    say(f"model: reading {configuration.model} as a start does; a few seconds")
    from rich.filesize import decimal

    from troth.node.engine.loading import require_registered
    from troth.node.models.folder import find_model
    from troth.node.models.holding import held
    from troth.node.models.report import hashing
    from troth.node.models.sources import require_weights

    # As a start does: before anything is hashed, since a file may have any size.
    folder = held(find_model(configuration.folder, configuration.model))
    size = sum(one.length for one in require_weights(folder))
    say(f"model: comparing its weights, {decimal(size)}, with the chain's; they are hashed if they changed since")
    with hashing(size) as progress:
        require_registered(folder, registered, progress)
    if configuration.slice.end > registered.layers:
        raise ConfigError(
            f"node.slice ends at {configuration.slice.end}, the model has {registered.layers} layers",
            str(configuration.slice),
            f"Keep slice and segments within 0:{registered.layers}.",
        )
    return HealthFinding("model", True, f"{folder.place} is the registered model", "")


def _port(configuration: NodeConfiguration) -> HealthFinding:
    place = f"{configuration.host}:{configuration.port}"
    state = process_state(configuration)
    reasons = [str(one) for one in state.get("reasons", [])]
    if state.get("ready") or not any(one.startswith(NO_PROCESS) for one in reasons):
        return HealthFinding("port", True, f"this node answers on {place}", "")
    try:
        with socket.create_server((configuration.host, configuration.port)):
            return HealthFinding("port", True, f"{place} is free; the node is not running", "")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return HealthFinding("port", False, f"{place}: {error.strerror}", "Change listen.host or listen.port.")
        fix = "If this node is starting, wait; else stop what holds the port, or change listen.port."
        return HealthFinding("port", False, f"{place} is in use ({'; '.join(reasons)})", fix)
