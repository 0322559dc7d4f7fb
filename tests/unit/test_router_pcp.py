"""A port of the router by PCP, over real sockets; and what others send in the router's name."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from ipaddress import IPv6Address

import pytest
from support.toy_router import OUTER, nat_pmp_router, pcp_router
from support.waiting import eventually

from troth.transport import router_datagrams, router_port
from troth.transport.errors import RouterRefused
from troth.transport.router_datagrams import NatPmp, Pcp
from troth.transport.router_dialects import LEASE_SECONDS, MappedPort
from troth.transport.router_port import RouterPort, first_answer, routers

ENDPOINT = f"https://{OUTER}:9443"
SECRET, ANOTHER = b"\x01" * 32, b"\x02" * 32
NONCE, PROTOCOL, INSIDE = 24, 36, 40
"""Where they are in an answer."""


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_datagrams, "PAUSES", (0.2, 0.4))
    monkeypatch.setattr(router_port, "AGAIN_SECONDS", 0.1)


async def test_pcp_opens_renews_and_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pcp_router() as (router, port):
        router.longest = 1
        made = RouterPort([Pcp("127.0.0.1", SECRET, port)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: not made.trouble)
        ((inside, (nonce, outside, seconds)),) = router.ports.items()
        assert (inside, outside, seconds, len(nonce)) == (7443, 9443, 1, 12)
        router.ports.clear()
        await eventually(lambda: 7443 in router.ports)
        await made.close()
        assert router.ports == {}


async def test_a_lease_of_years_is_renewed_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_port, "LEASE_SECONDS", 1)
    async with pcp_router() as (router, port):
        monkeypatch.setattr(router_datagrams, "LEASE_SECONDS", 1 << 31)
        made = RouterPort([Pcp("127.0.0.1", SECRET, port)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: not made.trouble)
        router.ports.clear()
        await eventually(lambda: 7443 in router.ports)
        await made.close()


async def test_a_node_that_was_killed_has_its_port_again_and_nobody_else_has() -> None:
    async with pcp_router() as (router, port):
        opened = MappedPort("PCP", OUTER, 9443, LEASE_SECONDS)
        assert await Pcp("127.0.0.1", SECRET, port).open(7443, 9443) == opened
        for attempt in (Pcp("127.0.0.1", ANOTHER, port).open, Pcp("127.0.0.1", ANOTHER, port).close):
            with pytest.raises(RouterRefused, match="another program has this port"):
                await attempt(7443, 9443)
        assert await Pcp("127.0.0.1", SECRET, port).open(7443, 9443) == opened
        await Pcp("127.0.0.1", SECRET, port).close(7443, 9443)
        assert router.ports == {}


def test_a_nonce_tells_nothing_and_is_another_for_each_port_and_router() -> None:
    made = {
        Pcp(gateway, secret)._nonce(inside) for gateway in "ab" for secret in (SECRET, ANOTHER) for inside in (1, 2)
    }
    assert len(made) == 8
    assert not any(SECRET[:4] in nonce for nonce in made)


async def test_lost_questions_are_asked_again() -> None:
    async with pcp_router() as (router, port):
        router.silent = 1
        assert (await Pcp("127.0.0.1", SECRET, port).open(7443, 9443)).port == 9443


@pytest.mark.parametrize("result", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 200])
async def test_a_refusal_has_words(result: int) -> None:
    async with pcp_router() as (router, port):
        router.result = result
        with pytest.raises(RouterRefused, match=r"opens no port by PCP: [a-z]") as refused:
            await Pcp("127.0.0.1", SECRET, port).open(7443, 9443)
        assert refused.value.value == result


async def test_asking_whether_it_answers_opens_nothing() -> None:
    async with pcp_router() as (router, port):
        assert await first_answer([Pcp("127.0.0.1", SECRET, port)]) == ("PCP", None)
        assert (router.announced, router.ports) == (1, {})
    async with nat_pmp_router() as (_, port):
        ways = [Pcp("127.0.0.1", SECRET, port), NatPmp("127.0.0.1", port)]
        assert await first_answer(ways) == ("NAT-PMP", OUTER)


async def test_a_router_that_knows_nat_pmp_alone_is_asked_by_it() -> None:
    async with nat_pmp_router() as (router, port):
        made = RouterPort([Pcp("127.0.0.1", SECRET, port), NatPmp("127.0.0.1", port)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: not made.trouble)
        assert router.ports == {7443: (9443, LEASE_SECONDS)}
        await made.close()


def test_what_the_file_says_is_asked() -> None:
    def named(by: str) -> list[str]:
        return [one.way for one in routers(SECRET, by, "192.168.1.1")]

    assert named("any") == ["PCP", "NAT-PMP", "UPnP"]
    assert [named(by) for by in ("pcp", "nat-pmp", "upnp")] == [["PCP"], ["NAT-PMP"], ["UPnP"]]


# --------------------------------------------------------------------------------- what others say in the router's name


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda answer: answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :]


FORGED: dict[str, Callable[[bytes], bytes]] = {
    "another nonce": flipped(NONCE),
    "the nonce's last byte": flipped(NONCE + 11),
    "another protocol": flipped(PROTOCOL),
    "another inner port": flipped(INSIDE + 1),
    "a question": flipped(1),
    "another operation": lambda answer: answer[:1] + b"\x80" + answer[2:],
    "another version": flipped(0),
    "nat-pmp's refusal": lambda _answer: struct.pack(">BBHI", 0, 129, 1, 1),
    "a refusal with another nonce": lambda answer: flipped(NONCE)(answer[:3] + b"\x08" + answer[4:]),
    "cut": lambda answer: answer[:-1],
    "cut to four": lambda answer: answer[:-4],
    "nothing": lambda _answer: b"",
    "too long": lambda answer: answer + bytes(1104 - len(answer)),
}


@pytest.mark.parametrize("name", FORGED)
async def test_what_does_not_answer_this_question_is_passed_over(name: str) -> None:
    """Alone it is no answer, and in front of the router's it does no harm."""
    forge = FORGED[name]
    async with pcp_router() as (router, port):
        router.bent = lambda answer: [forge(answer)]
        with pytest.raises(RouterRefused, match="does not answer PCP"):
            await Pcp("127.0.0.1", SECRET, port).open(7443, 9443)
        router.bent = lambda answer: [forge(answer)] * 20 + [answer]
        assert await Pcp("127.0.0.1", SECRET, port).open(7443, 9443) == MappedPort("PCP", OUTER, 9443, LEASE_SECONDS)


async def test_answers_from_another_address_are_not_heard() -> None:
    """Somebody in the local network who sees the question, nonce and all, but is not the router."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lying,
    ):
        deaf.bind(("127.0.0.1", 0))
        lying.bind(("127.0.0.2", 0))
        deaf.setblocking(False)
        port = deaf.getsockname()[1]
        asking = asyncio.create_task(Pcp("127.0.0.1", SECRET, port).open(7443, 9443))
        asked, place = await asyncio.get_running_loop().sock_recvfrom(deaf, 2048)
        address = IPv6Address("::ffff:198.51.100.66").packed
        answer = struct.pack(">BBBBII12x", 2, 129, 0, 0, 3600, 1) + asked[24:44] + address
        assert len(answer) == 60
        lying.sendto(answer, place)
        with pytest.raises(RouterRefused, match="does not answer PCP"):
            await asking
        # From the router's own socket the very same bytes are an answer.
        asking = asyncio.create_task(Pcp("127.0.0.1", SECRET, port).open(7443, 9443))
        while True:
            _, now = await asyncio.get_running_loop().sock_recvfrom(deaf, 2048)
            if now != place:
                break
        deaf.sendto(answer, now)
        assert str((await asking).address) == "198.51.100.66"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"address": IPv6Address("::ffff:203.0.114.9")}, "is registered"),
        ({"address": IPv6Address("::ffff:100.64.3.3")}, "another one stands before it"),
        ({"address": IPv6Address("2001:db8::7")}, "none of IPv4"),
        ({"moves": 5}, "9448"),
        ({"moves": -9443}, "malformed"),
        ({"longest": 0}, "malformed"),
    ],
)
async def test_what_the_router_says_is_compared_and_never_taken_over(change: dict[str, object], word: str) -> None:
    async with pcp_router() as (router, port):
        for name, value in change.items():
            setattr(router, name, value)
        made = RouterPort([Pcp("127.0.0.1", SECRET, port)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: made.trouble != "the router was not asked yet")
        assert word in made.trouble
        await made.close()
