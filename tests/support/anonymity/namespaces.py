"""Hosts of their own on one machine: a network namespace for each, joined by a router that only the test looks into.

Every host has an address in a /16 of its own, one cable to the router and a default route, so nobody hears what is not
sent to him. Needs Linux, root, `ip` (iproute2) and `setpriv` (util-linux); `unavailable` says what is missing.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PREFIX = "troth-test"
ROUTER = "router"
TESTS = Path(__file__).resolve().parents[2]


def unavailable() -> str | None:
    """Why there can be no namespaces here, or None."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "setpriv"):
        if shutil.which(program) is None:
            return f"there is no `{program}` here (iproute2, util-linux)"
    probe = f"{PREFIX}-{os.getpid()}-probe"
    forward = ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    commands = (
        ["ip", "netns", "add", probe],
        ["ip", "-n", probe, "link", "add", "one", "type", "veth"],
        ["ip", "netns", "exec", probe, *forward],
    )
    tried = [subprocess.run(command, capture_output=True, text=True, check=False) for command in commands]
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return next((f"`ip netns` does not work here: {one.stderr.strip()}" for one in tried if one.returncode), None)


class HostedProcess:
    """A process on a host; what it prints is kept by line."""

    def __init__(self, namespace: str, name: str, arguments: list[str]) -> None:
        self.name = name
        self.lines: list[str] = []
        self._fresh: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # The last resort: if this process is killed, so are those that it started.
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, "setpriv", "--pdeathsig", "KILL", sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])},
        )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def output(self) -> str:
        """All that it has printed."""
        return "\n".join(self.lines)

    def tell(self, line: str) -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, words: str, seconds: float = 120.0) -> str:
        """The next line with these words; fails if it ends without, or says nothing in time."""
        give_up = time.monotonic() + seconds
        while True:
            try:
                line = self._fresh.get(timeout=max(0.0, give_up - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"{self.name} did not say {words!r}:\n{self.output[-3000:]}")
            if words in line:
                return line

    def end(self, seconds: float = 20.0) -> int:
        """Wait until it ends by itself; returns its exit code."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip("\n"))
                self._fresh.put(self.lines[-1])
        self._fresh.put(None)


class Internet:
    """The hosts and the router between them; made by `internet`."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        self._hosts = hosts
        self._processes: list[HostedProcess] = []

    def start(self, host: str, *arguments: str, name: str = "") -> HostedProcess:
        """Run this interpreter with these arguments on a host (or on ROUTER)."""
        process = HostedProcess(_namespace(host), name or host, list(arguments))
        self._processes.append(process)
        return process

    def raise_up(self) -> None:
        """Make the namespaces, the cables, the addresses and the routes."""
        for host in (ROUTER, *self._hosts):
            _ip("netns", "add", _namespace(host))
            _in(host, "for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e $file ] || echo 1 > $file; done")
        _in(ROUTER, "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for number, (host, address) in enumerate(self._hosts.items()):
            gateway, port = ".".join([*address.split(".")[:2], "0", "1"]), f"port{number}"
            _batch(
                ROUTER,
                f"link add {port} type veth peer name uplink netns {_namespace(host)}",
                f"addr add {gateway}/16 dev {port}",
                f"link set {port} up",
            )
            _batch(
                host,
                "link set lo up",
                f"addr add {address}/16 dev uplink",
                "link set uplink up",
                f"route add default via {gateway}",
            )

    def take_down(self) -> None:
        """End every process and remove every namespace."""
        for process in self._processes:
            process.kill()
        for host in (*self._hosts, ROUTER):
            subprocess.run(["ip", "netns", "del", _namespace(host)], capture_output=True, check=False)


@contextmanager
def internet(hosts: Mapping[str, str]) -> Iterator[Internet]:
    """Hosts by name with their addresses, each in another /16; everything is gone after the block."""
    _clear_away()
    made = Internet(hosts)
    try:
        made.raise_up()
        yield made
    finally:
        made.take_down()


def _clear_away() -> None:
    """What a test that was killed has left."""
    for name in _ip("netns", "list").split():
        prefix, _, rest = name.partition(f"{PREFIX}-")
        process = rest.partition("-")[0]
        if not prefix and process.isdecimal() and not Path(f"/proc/{process}").exists():
            _ip("netns", "del", name)


def _namespace(host: str) -> str:
    return f"{PREFIX}-{os.getpid()}-{host}"


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def _in(host: str, script: str) -> None:
    _ip("netns", "exec", _namespace(host), "sh", "-c", script)


def _batch(host: str, *lines: str) -> None:
    command = ["ip", "-n", _namespace(host), "-batch", "-"]
    subprocess.run(command, input="\n".join(lines), check=True, capture_output=True, text=True)
