"""The whole play: hosts, twelve relays, a destination, clients that behave and clients that do not, all recorded.

The relays are `troth relay start` processes. Everything runs under one capture; runs are told apart by time. Nothing
is left out: what one sends as it ends may count as the next one's. The folder keeps `capture.pcap` and `tls-keys.txt`,
which Wireshark opens.
"""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.anonymity.leaks import Places
from support.anonymity.links import Observed, observe
from support.anonymity.memory import found_in
from support.anonymity.namespaces import ROUTER, HostedProcess, Internet, internet
from support.anonymity.tls import read_keys
from support.relay_network import destination_entry

from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.relay.configuration import relay_entry
from troth.overlay.relay.initialisation import RelayInitOptions, initialise, own_descriptor
from troth.transport.identity import create_identity

PATHS, HOPS, PORT = 4, 3, 9001
CLIENT, DESTINATION, PIPE = "10.99.7.31", "10.200.0.5", "10.150.0.5"
ROLES = ("guard", "middle", "proxy")
RELAYS = {
    f"{role}{path}": f"10.{20 + path * HOPS + hop}.0.9" for path in range(PATHS) for hop, role in enumerate(ROLES)
}
PLACES = Places(CLIENT, tuple(tuple(RELAYS[f"{role}{path}"] for role in ROLES) for path in range(PATHS)), DESTINATION)
_HOSTS = {"client": CLIENT, "destination": DESTINATION, "pipe": PIPE, **RELAYS}
_KEYLOGGED = ("-m", "support.anonymity.keylogged")
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Run:
    """One client's run.

    Attributes:
        secrets: the prompt's mark and, where the application answers, the answer's.
        observed: what was captured while it lasted.
        answer: what the client received.
        application: what the destination's application was asked and knew.
        known: what of address, prompt and answer lay in each process's memory: in the middle of the honest answer,
            at the end of the unsealed run.
    """

    secrets: dict[str, bytes]
    observed: Observed = field(default_factory=lambda: Observed([], {}, []))
    answer: str = ""
    application: dict[str, object] = field(default_factory=dict)
    known: dict[str, set[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Recording:
    """What came of it.

    Attributes:
        runs: by name: honest, unsealed, direct, piped.
        logs: what each process had logged, at debug level, after the honest run.
        lost: frames that the capture missed.
    """

    runs: dict[str, Run]
    logs: dict[str, str]
    lost: int


def record(folder: Path) -> Recording:
    """Play everything once; about half a minute."""
    with internet(_HOSTS) as hosts:
        return _Play(folder, hosts).record()


@dataclass(frozen=True)
class _Timed:
    run: Run
    ended: float


class _Play:
    def __init__(self, folder: Path, hosts: Internet) -> None:
        self._folder = folder
        self._hosts = hosts
        self._capture = hosts.start(ROUTER, str(_HERE / "capture.py"), str(folder / "capture.pcap"))
        self._capture.hear("capturing")
        self._descriptors = {name: _initialised(folder / name, address) for name, address in RELAYS.items()}
        identity = create_identity(folder / "destination")
        self._destination_place = PinnedAddress(DESTINATION, PORT, identity.spki_sha256)
        self._seal_key = X25519PrivateKey.generate()
        (folder / "seal-key").write_bytes(self._seal_key.private_bytes_raw())
        self._destination = self._start_destination()
        self._relays = self._start_relays()

    def record(self) -> Recording:
        for process in (*self._relays.values(), self._destination):
            process.hear("relaying on" if process is not self._destination else "destination listens")
        timed = {"honest": self._run("session", "/slowly")}
        # Taken before the clients come that say too much.
        logs = {process.name: process.output for process in (*self._relays.values(), self._destination)}
        timed["unsealed"] = self._run("unsealed")
        timed["direct"] = self._run("direct")
        timed["piped"] = self._run("session", paths=self._piped_paths())
        self._capture.process.send_signal(signal.SIGTERM)
        lost = int(self._capture.hear("lost").split()[1])
        observed = observe(self._folder / "capture.pcap", self._keys(), DESTINATION)
        starts = [0.0, *(one.ended for one in timed.values())]
        runs = {
            name: replace(one.run, observed=observed.during(start, one.ended))
            for start, (name, one) in zip(starts, timed.items(), strict=False)
        }
        return Recording(runs, logs, lost)

    # -- processes -------------------------------------------------------------------------------------------------

    def _start_destination(self) -> HostedProcess:
        folder = self._folder
        arguments = (str(folder / "destination"), DESTINATION, str(PORT), str(folder / "seal-key"))
        return self._keylogged("destination", "support.anonymity.destination", *arguments)

    def _start_relays(self) -> dict[str, HostedProcess]:
        entries = [*map(relay_entry, self._descriptors.values()), destination_entry(self._destination_place)]
        started = {}
        for name in RELAYS:
            home = self._folder / name
            (home / "directory.toml").write_text("\n".join(entries), encoding="utf-8")
            command = ("relay", "start", "--home", str(home), "--log-level", "debug")
            started[name] = self._keylogged(name, "troth.command.main", *command)
        return started

    def _keylogged(self, host: str, module: str, *arguments: str) -> HostedProcess:
        return self._hosts.start(host, *_KEYLOGGED, str(self._folder / f"{host}.keys"), module, *arguments)

    def _keys(self) -> dict[tuple[str, bytes], bytes]:
        files = sorted(self._folder.glob("*.keys"))
        together = self._folder / "tls-keys.txt"
        together.write_text("".join(file.read_text(encoding="ascii") for file in files), encoding="ascii")
        return read_keys([together])

    # -- runs ------------------------------------------------------------------------------------------------------

    def _run(self, way: str, target: str = "/", paths: list[list[Mapping[str, object]]] | None = None) -> _Timed:
        mark = secrets.token_hex(32)
        run = Run({"prompt": mark.encode()})
        client = self._keylogged("client", "support.anonymity.client")
        client.tell(json.dumps(self._order(way, target, mark, paths or self._paths())))
        if way == "session":
            application = json.loads(self._destination.hear(mark))
            run = replace(
                run, secrets=run.secrets | {"answer": application["answer"].encode()}, application=application
            )
        if target == "/slowly":
            run = replace(run, known=self._memories(run.secrets))
            self._destination.tell("go on")
        run = replace(run, answer=json.loads(client.hear('"answer"'))["answer"])
        if way == "unsealed":
            run = replace(run, known=self._memories(run.secrets))
        assert client.end() == 0, client.output
        return _Timed(run, time.time())

    def _order(self, way: str, target: str, mark: str, paths: list[list[Mapping[str, object]]]) -> dict[str, object]:
        return {
            "way": way,
            "target": target,
            "prompt": f"{mark} tell nobody " * 80,
            "destination": _entry(self._destination_place),
            "seal_key": self._seal_key.public_key().public_bytes_raw().hex(),
            "paths": paths,
        }

    def _memories(self, marks: Mapping[str, bytes]) -> dict[str, set[str]]:
        wanted = {**marks, "client's address": CLIENT.encode()}
        processes = {**self._relays, "destination": self._destination}
        return {name: found_in(process.process.pid, wanted) for name, process in processes.items()}

    def _paths(self) -> list[list[Mapping[str, object]]]:
        return [[_relay_entry(self._descriptors[f"{role}{path}"]) for role in ROLES] for path in range(PATHS)]

    def _piped_paths(self) -> list[list[Mapping[str, object]]]:
        """The first path's guard is reached through the pipe."""
        guard = self._descriptors["guard0"].place
        pipe = self._hosts.start("pipe", str(_HERE / "pipe.py"), PIPE, str(PORT), guard.host, str(guard.port))
        pipe.hear("pipe listens")
        first, *others = self._paths()
        return [[{**first[0], "host": PIPE}, *first[1:]], *others]


def _initialised(home: Path, address: str) -> RelayDescriptor:
    initialise(home, RelayInitOptions(address, PORT, f"{address}:{PORT}", None, True))
    return own_descriptor(home)


def _entry(place: PinnedAddress) -> dict[str, object]:
    return {"host": place.host, "port": place.port, "name": place.name.hex()}


def _relay_entry(relay: RelayDescriptor) -> dict[str, object]:
    return {**_entry(relay.place), "handshake_key": relay.handshake_key.hex()}
