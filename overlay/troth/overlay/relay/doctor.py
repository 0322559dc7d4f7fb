"""`troth relay doctor`: one line per thing that must be right, and the exact fix for each that is not."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from pathlib import Path

from troth.overlay.relay.configuration import FILE, RelayConfiguration, load, load_directory
from troth.overlay.relay.keys import load_handshake_key, load_operator_key
from troth.protocol.typed_data import address_of
from troth.transport.errors import OverlayError
from troth.transport.health import HealthFinding
from troth.transport.identity import load_identity

_LISTED = 256
"""Links that a relay opens to others at most (`links.LinkPool`)."""


def examine(folder: Path) -> list[HealthFinding]:
    """All checks; without a configuration there is only one."""
    try:
        configuration = load(folder)
    except OverlayError as error:
        return [HealthFinding("config", False, error.what, error.remedy)]
    checks = {
        "tls": _tls,
        "handshake": _handshake,
        "operator": _operator,
        "directory": _directory if configuration.committee is None else _committee,
        "files": _files,
        "port": _port,
    }
    return [
        HealthFinding("config", True, str(folder / FILE), ""),
        *(_guarded(name, check, configuration) for name, check in checks.items()),
    ]


def _guarded(
    name: str, check: Callable[[RelayConfiguration], HealthFinding], configuration: RelayConfiguration
) -> HealthFinding:
    try:
        return check(configuration)
    except OverlayError as error:
        return HealthFinding(name, False, error.what, error.remedy)


def _tls(configuration: RelayConfiguration) -> HealthFinding:
    return HealthFinding("tls", True, "0x" + load_identity(configuration.tls_folder).spki_sha256.hex(), "")


def _handshake(configuration: RelayConfiguration) -> HealthFinding:
    public = load_handshake_key(configuration.handshake_key).public_key().public_bytes_raw()
    return HealthFinding("handshake", True, "0x" + public.hex(), "")


def _operator(configuration: RelayConfiguration) -> HealthFinding:
    return HealthFinding("operator", True, address_of(load_operator_key(configuration.operator_key)), "")


def _committee(configuration: RelayConfiguration) -> HealthFinding:
    """Whether members give a list, and whether this relay is in it."""
    from troth.overlay.directory.fetching import refresh
    from troth.overlay.directory.keeping import DirectoryKeeper
    from troth.overlay.directory.listing import read_membership

    committee = configuration.committee
    assert committee is not None
    name = load_identity(configuration.tls_folder).spki_sha256
    keeper = DirectoryKeeper()
    keeper.membership = asyncio.run(read_membership(committee.rpc, committee.contract))
    listing = asyncio.run(refresh(keeper))
    listed = name in listing.directory().relays
    seen = f"{len(listing.relays)} relays until {listing.valid_until}, this one {'' if listed else 'not '}among them"
    fix = "If it has been running for an hour, see its log: members say why they refuse it."
    return HealthFinding("directory", listed, seen, fix)


def _directory(configuration: RelayConfiguration) -> HealthFinding:
    directory = load_directory(configuration.directory)
    seen = f"{len(directory.relays)} relays, {len(directory.destinations)} destinations in {configuration.directory}"
    fix = f"Put others' entries (troth relay entry) into {configuration.directory}."
    return HealthFinding("directory", bool(directory.relays), seen, fix)


def _files(configuration: RelayConfiguration) -> HealthFinding:
    limits, (soft, _) = configuration.limits, resource.getrlimit(resource.RLIMIT_NOFILE)
    known = len(load_directory(configuration.directory).relays) if configuration.committee is None else _LISTED
    needed = limits.links + limits.tls_handshakes + known + 64
    return HealthFinding(
        "files", soft >= needed, f"{soft} open files allowed, {needed} needed", f"Run: ulimit -n {needed}"
    )


def _port(configuration: RelayConfiguration) -> HealthFinding:
    place = f"{configuration.host}:{configuration.port}"
    try:
        with socket.create_server((configuration.host, configuration.port)):
            return HealthFinding("port", True, f"{place} is free; the relay is not running", "")
    except OSError as error:
        fix = "If this relay is running, all is well; else stop what holds the port, or change listen.port."
        return HealthFinding("port", False, f"{place}: {error.strerror}", fix)
