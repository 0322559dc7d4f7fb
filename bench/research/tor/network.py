"""A private Tor on loopback: three directory authorities, six relays that are exits too, and a client.

Each ends with this process (`__OwningControllerProcess`) if it was not ended before. The options that change what is
measured: the Vanilla scheduler (KIST writes every 10 ms), TCP_NODELAY (`nodelay.c`, where there is a C compiler), no
padding, no circuits but those that are asked for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.relay_network import cpu_seconds

from research.tor.control import Controller, TorRefused
from troth.testnet.ports import free_port

AUTHORITIES, RELAYS = 3, 6
START_SECONDS = 180.0
INSTALL = "tor is not on PATH; apt-get install tor (Debian), then run this again"

_COMMON = """TestingTorNetwork 1
AssumeReachable 1
PathsNeededToBuildCircuits 0.25
V3AuthNIntervalsValid 20
Address 127.0.0.1
ShutdownWaitLength 0
Schedulers Vanilla
ConfluxEnabled 0
"""
_AUTHORITY = """AuthoritativeDirectory 1
V3AuthoritativeDirectory 1
ContactInfo bench@localhost
TestingV3AuthInitialVotingInterval 5
TestingV3AuthInitialVoteDelay 2
TestingV3AuthInitialDistDelay 2
V3AuthVotingInterval 20
V3AuthVoteDelay 2
V3AuthDistDelay 2
TestingDirAuthVoteExit *
TestingDirAuthVoteGuard *
ExitPolicy reject *:*
"""
_EXIT = """ExitRelay 1
ExitPolicy accept 127.0.0.0/8:*
ExitPolicyRejectPrivate 0
ExitPolicyRejectLocalInterfaces 0
ServerDNSDetectHijacking 0
NumCPUs 1
"""
_CLIENT = """UseEntryGuards 0
ClientDNSRejectInternalAddresses 0
ClientRejectInternalAddresses 0
ConnectionPadding 0
CircuitPadding 0
CookieAuthentication 1
LearnCircuitBuildTimeout 0
CircuitBuildTimeout 60
__DisablePredictedCircuits 1
__LeaveStreamsUnattached 1
"""


@dataclass(frozen=True)
class TorNetwork:
    """A network that has built its first circuit."""

    name: str
    """With its version, and how it was tuned."""
    control: Controller
    socks_port: int
    path: list[str]
    """Fingerprints of three relays, the exit last."""
    processes: list[subprocess.Popen[bytes]]
    """Those three relays' processes."""

    @property
    def cpu_seconds(self) -> list[float]:
        """User and system time of the path's relays."""
        return [cpu_seconds(process.pid) for process in self.processes]


@dataclass(frozen=True)
class _Node:
    """One tor process to be: its folder, ports, fingerprints."""

    folder: Path
    port: int
    directory_port: int
    fingerprint: str = ""
    authority: str = ""


def tor_version() -> str | None:
    """Which tor is on PATH, with tor-gencert; None if there is none."""
    if not shutil.which("tor") or not shutil.which("tor-gencert"):
        return None
    said = subprocess.run(["tor", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"Tor version ([0-9.]+[0-9])", said)
    return found[1] if found else "of unknown version"


@contextmanager
def tor_network(folder: Path) -> Iterator[TorNetwork]:
    """Starts everything, yields once a circuit was built, ends every process. Takes about a minute."""
    authorities = [_authority(folder / f"authority{number}") for number in range(AUTHORITIES)]
    relays = [_relay(folder / f"relay{number}") for number in range(RELAYS)]
    common = _COMMON + f"__OwningControllerProcess {os.getpid()}\n" + "".join(map(_directory_line, authorities))
    client, socks = folder / "client", free_port()
    client.mkdir(mode=0o700)
    control_port, environment = free_port(), _environment(folder)
    configurations = {
        **{node.folder: common + _server(node) + _AUTHORITY for node in authorities},
        **{node.folder: common + _server(node) + _EXIT for node in relays},
        client: common + _CLIENT + f"SocksPort 127.0.0.1:{socks}\nControlPort 127.0.0.1:{control_port}\n",
    }
    started: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        for home, text in configurations.items():
            started[home] = _start(home, text, environment)
        path = relays[:3]
        control = _connected(control_port, client)
        _first_circuit(control, [node.fingerprint for node in path])
        yield TorNetwork(
            f"Tor {tor_version()}, {_tuning(environment)}",
            control,
            socks,
            [node.fingerprint for node in path],
            [started[node.folder] for node in path],
        )
    finally:
        for process in started.values():
            process.kill()
        for process in started.values():
            process.wait()


def _authority(folder: Path) -> _Node:
    node = _relay(folder)
    keys = folder / "keys"
    subprocess.run(
        [
            *("tor-gencert", "--create-identity-key", "--passphrase-fd", "0", "-m", "12"),
            *("-a", f"127.0.0.1:{node.directory_port}"),
            *("-i", keys / "authority_identity_key", "-s", keys / "authority_signing_key"),
            *("-c", keys / "authority_certificate"),
        ],
        input=b"on loopback only\n",
        check=True,
        capture_output=True,
    )
    certificate = (keys / "authority_certificate").read_text(encoding="ascii")
    identity = re.search(r"^fingerprint ([0-9A-F]{40})$", certificate, re.MULTILINE)
    assert identity is not None
    return _Node(folder, node.port, node.directory_port, node.fingerprint, identity[1])


def _relay(folder: Path) -> _Node:
    """Keys of a server, and so its fingerprint."""
    (folder / "keys").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    nobody = f"nobody 127.0.0.1:1 {'F' * 40}"
    said = subprocess.run(
        [
            *("tor", "--ignore-missing-torrc", "-f", folder / "none", "--list-fingerprint", "--quiet"),
            *("--ORPort", "1", "--Nickname", folder.name, "--DataDirectory", folder, "--DirAuthority", nobody),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return _Node(folder, free_port(), free_port(), said.strip().rpartition("\n")[2].partition(" ")[2].replace(" ", ""))


def _directory_line(node: _Node) -> str:
    return (
        f"DirAuthority {node.folder.name} orport={node.port} no-v2 v3ident={node.authority} "
        f"127.0.0.1:{node.directory_port} {node.fingerprint}\n"
    )


def _server(node: _Node) -> str:
    directory = f"DirPort 127.0.0.1:{node.directory_port}\n" if node.authority else ""
    return f"Nickname {node.folder.name}\nORPort 127.0.0.1:{node.port} IPv4Only\nSocksPort 0\n{directory}"


def _environment(folder: Path) -> dict[str, str]:
    """With TCP_NODELAY preloaded if it can be compiled: no option of tor sets it."""
    library, source = folder / "nodelay.so", Path(__file__).with_name("nodelay.c")
    if not shutil.which("cc"):
        return dict(os.environ)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return os.environ | {"LD_PRELOAD": str(library)}


def _tuning(environment: dict[str, str]) -> str:
    return "Vanilla scheduler, " + ("TCP_NODELAY" if "LD_PRELOAD" in environment else "no cc: without TCP_NODELAY")


def _start(home: Path, text: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    file = home / "torrc"
    file.write_text(f"{text}DataDirectory {home}\nLog notice file {home / 'log'}\n", encoding="utf-8")
    arguments = ["tor", "-f", file, "--defaults-torrc", home / "none"]
    checked = subprocess.run([*arguments, "--verify-config"], check=False, capture_output=True, text=True)
    if checked.returncode:
        raise TorRefused(f"tor does not take {file}: {checked.stdout[-400:]}")
    return subprocess.Popen([*arguments, "--quiet"], env=environment)


def _connected(port: int, client: Path) -> Controller:
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            return Controller(port, client / "control_auth_cookie")
        except (OSError, TorRefused):
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _first_circuit(control: Controller, path: list[str]) -> None:
    """Until the authorities have agreed and the client knows every relay."""
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            control.close_circuit(control.build(path))
        except TorRefused:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)
        else:
            return
