"""Asking a router for a port by datagrams: PCP (RFC 6887) and its predecessor NAT-PMP (RFC 6886), on one UDP port.

The socket is connected, so that answers of nobody but the gateway's address are heard. Whoever forges that address
must also guess PCP's nonce, 96 bits that the answer repeats; NAT-PMP has nothing of the kind.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TypeVar

from troth.transport.errors import RouterRefused
from troth.transport.router_dialects import LEASE_SECONDS, MappedPort

PORT = 5351
PAUSES = (0.25, 0.5, 1.0, 2.0)
"""Seconds before a question is asked again (RFC 6886, section 3.1; both RFCs go on for longer)."""
ROUTES = Path("/proc/net/route")
LARGEST = 1100
"""Bytes of a PCP message (RFC 6887, section 7)."""
BY_HAND = "Forward the port by hand."

Answer = TypeVar("Answer")
Place = tuple[str, int]


def default_gateway(routes: Path = ROUTES) -> str:
    """The router of this machine's default route as Linux tells it; empty where that cannot be read."""
    with suppress(OSError, ValueError, IndexError):
        for line in routes.read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1] == "00000000" and int(fields[3], 16) & 2:
                return str(IPv4Address(struct.pack("<I", int(fields[2], 16))))
    return ""


async def _exchanged(
    way: str, place: Place, question: Callable[[str], bytes], heard: Callable[[bytes], Answer | None]
) -> Answer:
    """The answer to a question, which is asked again where none comes.

    Args:
        question: from this machine's address on the way to the router.
        heard: what a datagram says; None for one that is no answer to this question. Raises RouterRefused.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.setblocking(False)
        try:
            line.connect(place)
            asked = question(line.getsockname()[0])
            for pause in PAUSES:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await loop.sock_sendall(line, asked)
                        while True:
                            answer = heard(await loop.sock_recv(line, LARGEST + 1))
                            if answer is not None:
                                return answer
                            # Under a flood of forgeries everything else goes on, and time runs out.
                            await asyncio.sleep(0)
        except OSError as error:
            raise RouterRefused(f"the router does not speak {way}", error, BY_HAND) from error
    raise RouterRefused(f"the router does not answer {way}", place[0], BY_HAND)


def _refusal(way: str, words: tuple[str, ...], result: int) -> RouterRefused:
    why = words[min(result, len(words) - 1)] or "its answer is malformed"
    return RouterRefused(f"the router opens no port by {way}: {why}", result, BY_HAND)


# ----------------------------------------------------------------------------------------------------------------- PCP


class Pcp:
    """RFC 6887, for TCP over IPv4.

    Args:
        secret: of this node. A mapping belongs to whoever knows its nonce; a nonce that is made of a secret of the
            node's opens the mapping of the same node that was killed, which a random one does not for an hour.
    """

    way = "PCP"
    _VERSION, _ANNOUNCE, _MAP, _ANSWER, _TCP = 2, 0, 1, 0x80, 6
    _HEAD = struct.Struct(">BBxBII12x")
    _MAPPING = struct.Struct(">12sB3xHH16s")
    _ANYWHERE = IPv6Address("::ffff:0.0.0.0").packed
    _RESULTS = (
        "",
        "another version",
        "it is not allowed there, or another program has this port",
        "it finds the question malformed",
        "it knows no mappings",
        "it does not know an option",
        "an option is malformed",
        "its own network is down",
        "it has no room",
        "it maps no TCP",
        "this machine has too many ports",
        "the port is taken",
        "another router stands between",
        "too many peers",
        "unknown",
    )

    def __init__(self, gateway: str, secret: bytes, port: int = PORT) -> None:
        self._place = gateway, port
        self._secret = secret

    async def outside(self) -> IPv4Address | None:
        """None: whether it answers; the address comes with a mapping."""
        await _exchanged(self.way, self._place, lambda own: self._head(self._ANNOUNCE, 0, own), self._announced)
        return None

    async def open(self, inside: int, outside: int) -> MappedPort:
        seconds, port, address = await self._mapped(inside, outside, LEASE_SECONDS)
        if not seconds or not port:
            raise _refusal(self.way, self._RESULTS, 0)
        literal = IPv6Address(address).ipv4_mapped
        if literal is None:
            raise RouterRefused("the router's outer address is none of IPv4", IPv6Address(address), BY_HAND)
        return MappedPort(self.way, literal, port, seconds)

    async def close(self, inside: int, outside: int) -> None:
        await self._mapped(inside, 0, 0)

    async def _mapped(self, inside: int, outside: int, seconds: int) -> tuple[int, int, bytes]:
        """Seconds, outer port and outer address of a mapping."""
        nonce = self._nonce(inside)
        mapping = self._MAPPING.pack(nonce, self._TCP, inside, outside, self._ANYWHERE)

        def heard(datagram: bytes) -> tuple[int, int, bytes] | None:
            found = self._answer(datagram, self._MAP, self._MAPPING.size)
            if found is None:
                return None
            result, given = found
            said, protocol, at, port, address = self._MAPPING.unpack_from(datagram, self._HEAD.size)
            if (said, protocol, at) != (nonce, self._TCP, inside):
                return None
            if result:
                raise _refusal(self.way, self._RESULTS, result)
            return given, port, address

        return await _exchanged(self.way, self._place, lambda own: self._head(self._MAP, seconds, own) + mapping, heard)

    def _nonce(self, inside: int) -> bytes:
        named = f"{self._place[0]} {inside}".encode()
        return hashlib.blake2s(named, digest_size=12, key=self._secret[:32], person=b"trothpcp").digest()

    def _head(self, operation: int, seconds: int, own: str) -> bytes:
        client = IPv6Address(f"::ffff:{own}").packed
        return struct.pack(">BBxxI16s", self._VERSION, operation, seconds, client)

    def _announced(self, datagram: bytes) -> bool | None:
        found = self._answer(datagram, self._ANNOUNCE, 0)
        if found is None:
            return None
        if found[0]:
            raise _refusal(self.way, self._RESULTS, found[0])
        return True

    def _answer(self, datagram: bytes, operation: int, size: int) -> tuple[int, int] | None:
        """Result and seconds of an answer of this operation; None for anything else.

        A router that knows NAT-PMP alone says so in its own format, without a nonce. It is not listened to: whoever
        forges it would lead this node to the protocol that has none.
        """
        if not self._HEAD.size + size <= len(datagram) <= LARGEST or len(datagram) % 4:
            return None
        version, said, result, seconds, _epoch = self._HEAD.unpack_from(datagram)
        return (result, seconds) if (version, said) == (self._VERSION, self._ANSWER | operation) else None


# ------------------------------------------------------------------------------------------------------------- NAT-PMP


class NatPmp:
    """RFC 6886."""

    way = "NAT-PMP"
    _RESULTS = (
        "",
        "another version",
        "it is not allowed there",
        "it has no outer address",
        "it has no room",
        "unknown",
    )

    def __init__(self, gateway: str, port: int = PORT) -> None:
        self._place = gateway, port

    async def outside(self) -> IPv4Address:
        (answer,) = struct.unpack(">4s", await self._ask(struct.pack(">BB", 0, 0), 0, 4))
        return IPv4Address(answer)

    async def open(self, inside: int, outside: int) -> MappedPort:
        found = await self._mapped(inside, outside, LEASE_SECONDS)
        return MappedPort(self.way, await self.outside(), *found)

    async def close(self, inside: int, outside: int) -> None:
        await self._mapped(inside, 0, 0)

    async def _mapped(self, inside: int, outside: int, seconds: int) -> tuple[int, int]:
        asked = struct.pack(">BBHHHI", 0, 2, 0, inside, outside, seconds)
        port, given, lease = struct.unpack(">HHI", await self._ask(asked, 2, 8))
        if port != inside:
            raise RouterRefused("the router answers about another port", port, "Try again.")
        return given, lease

    async def _ask(self, question: bytes, operation: int, size: int) -> bytes:
        """What follows the head of the answer, ``size`` bytes."""

        def heard(datagram: bytes) -> bytes | None:
            if len(datagram) < 8:
                return None
            version, said, result = struct.unpack(">BBH", datagram[:4])
            if said != 128 + operation:
                return None
            if version or result or len(datagram) < 8 + size:
                raise _refusal(self.way, self._RESULTS, result)
            return datagram[8 : 8 + size]

        return await _exchanged(self.way, self._place, lambda _own: question, heard)
