"""A port of the router, over real sockets: asked for, renewed, given back; and routers that lie."""

from __future__ import annotations

import asyncio
import struct
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from support.toy_router import OUTER, NatPmpRouter, nat_pmp_router, upnp_router
from support.waiting import eventually

from troth.transport import router_datagrams, router_dialects, router_port, router_upnp
from troth.transport.errors import RouterRefused
from troth.transport.router_datagrams import NatPmp, default_gateway
from troth.transport.router_dialects import MappedPort
from troth.transport.router_port import RouterPort, doubt_of
from troth.transport.router_upnp import UpnpGateway

ENDPOINT = f"https://{OUTER}:9443"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_upnp, "SEARCH_SECONDS", 1)
    monkeypatch.setattr(router_datagrams, "PAUSES", (0.1, 0.2))
    monkeypatch.setattr(router_port, "AGAIN_SECONDS", 0.1)


async def kept(port: RouterPort) -> None:
    """Until the router opened the port, or said why not."""
    await eventually(lambda: port.trouble != "the router was not asked yet")


async def test_nat_pmp_opens_renews_and_gives_back() -> None:
    async with nat_pmp_router() as (router, port):
        made = RouterPort([NatPmp("127.0.0.1", port)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: not made.trouble)
        assert router.ports == {7443: (9443, router_dialects.LEASE_SECONDS)}
        await made.close()
        assert router.ports == {}


async def test_a_lease_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_datagrams, "LEASE_SECONDS", 1)
    async with nat_pmp_router() as (router, port):
        made = RouterPort([NatPmp("127.0.0.1", port)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: not made.trouble)
        router.ports.clear()
        await eventually(lambda: 7443 in router.ports)
        await made.close()


async def test_what_nobody_foresaw_of_a_router_ends_no_renewal(caplog: pytest.LogCaptureFixture) -> None:
    """A device of the local network may answer with anything; the port is asked for again, and it is said."""

    class OddGateway(UpnpGateway):
        asked = 0

        async def open(self, inside: int, outside: int) -> MappedPort:
            self.asked += 1
            if self.asked == 2:
                raise AttributeError("a description without a service")
            return MappedPort("UPnP", OUTER, outside, 1)

    router = OddGateway()
    made = RouterPort([router], ENDPOINT)
    made.start(7443)
    await eventually(lambda: made.trouble == "the router failed: a description without a service")
    await eventually(lambda: router.asked > 2 and not made.trouble)
    await made.close()
    assert "AttributeError" in caplog.text


async def test_an_unreachable_network_is_a_router_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_router: str) -> str:
        raise OSError("Network is unreachable")

    async with upnp_router() as (_, target):
        monkeypatch.setattr(router_upnp, "_own_address", unreachable)
        with pytest.raises(RouterRefused, match="UPnP cannot be used: Network is unreachable"):
            await UpnpGateway(target).open(7443, 9443)


async def test_upnp_opens_and_gives_back() -> None:
    async with upnp_router() as (router, target):
        made = RouterPort([UpnpGateway(target)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: not made.trouble)
        assert router.leases == {9443: (7443, "127.0.0.1", router_dialects.LEASE_SECONDS)}
        await made.close()
        assert router.leases == {}


async def test_a_router_that_knows_no_leases_opens_until_it_is_told() -> None:
    async with upnp_router() as (router, target):
        router.permanent_only = True
        gateway = UpnpGateway(target)
        assert await gateway.open(7443, 9443) == MappedPort("UPnP", OUTER, 9443, 0)
        await gateway.close(7443, 9443)
        assert router.leases == {}


async def test_lost_questions_are_asked_again_and_others_answers_are_passed_over() -> None:
    async with nat_pmp_router() as (router, port):
        router.silent = 1
        router.before = [b"", b"\0" * 7, struct.pack(">BBHI", 0, 129, 0, 1) + bytes(8)]
        assert await NatPmp("127.0.0.1", port).outside() == OUTER


@pytest.mark.parametrize("result", [1, 2, 3, 4, 5, 600])
async def test_a_refusal_by_nat_pmp_has_words(result: int) -> None:
    async with nat_pmp_router() as (router, port):
        router.result = result
        with pytest.raises(RouterRefused, match="opens no port by NAT-PMP"):
            await NatPmp("127.0.0.1", port).open(7443, 9443)


async def test_upnp_is_tried_where_nat_pmp_is_silent() -> None:
    async with nat_pmp_router() as (deaf, port), upnp_router() as (router, target):
        deaf.silent = 100
        made = RouterPort([NatPmp("127.0.0.1", port), UpnpGateway(target)], ENDPOINT)
        made.start(7443)
        await eventually(lambda: 9443 in router.leases)
        await made.close()


# ------------------------------------------------------------------------------------------ what a hostile network says


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"address": IPv4Address("203.0.114.9")}, "is registered"),
        ({"address": IPv4Address("192.168.7.7")}, "another one stands before it"),
        ({"address": IPv4Address("100.64.3.3")}, "another one stands before it"),
        ({"moves": 5}, "9448"),
    ],
)
async def test_what_the_router_says_is_compared_and_never_taken_over(change: dict[str, Any], word: str) -> None:
    async with nat_pmp_router() as (router, port):
        for name, value in change.items():
            setattr(router, name, value)
        made = RouterPort([NatPmp("127.0.0.1", port)], ENDPOINT)
        made.start(7443)
        await kept(made)
        assert word in made.trouble
        if "moves" in change:
            assert router.ports == {}
        await made.close()


def test_a_name_that_is_registered_is_not_compared_with_an_address() -> None:
    assert doubt_of(MappedPort("UPnP", OUTER, 9443, 0), "node.example", 9443) == ""
    assert "registered" in doubt_of(MappedPort("UPnP", OUTER, 9444, 0), "node.example", 9443)


@pytest.mark.parametrize("control", ["http://198.51.100.1/control", "http://169.254.169.254/latest"])
async def test_a_description_that_names_another_host_has_it_asked_nothing(control: str) -> None:
    async with upnp_router() as (router, target):
        router.control = control
        with pytest.raises(RouterRefused):
            await UpnpGateway(target).open(7443, 9443)
        assert router.asked == []


async def test_an_answer_that_leads_elsewhere_is_none() -> None:
    async with upnp_router() as (router, target):
        router.location = "http://198.51.100.1/description.xml"
        with pytest.raises(RouterRefused, match="no router answers UPnP"):
            await UpnpGateway(target).open(7443, 9443)


async def test_a_description_without_end_is_cut_off() -> None:
    async with upnp_router() as (router, target):
        router.padding = 2 * router_upnp.LARGEST_ANSWER
        with pytest.raises(RouterRefused):
            await UpnpGateway(target).open(7443, 9443)


async def test_a_conflict_is_told_and_the_node_goes_on() -> None:
    async with upnp_router() as (router, target):
        router.refuses = 718
        made = RouterPort([UpnpGateway(target)], ENDPOINT)
        made.start(7443)
        await kept(made)
        assert "718" in made.trouble
        router.refuses = 0
        await eventually(lambda: not made.trouble)
        await made.close()


async def test_an_address_that_is_none_is_refused() -> None:
    async with upnp_router() as (router, target):
        router.address = "my.own.example"
        with pytest.raises(RouterRefused, match="no outer address"):
            await UpnpGateway(target).outside()


async def test_nobody_there_is_said_and_stopping_is_clean() -> None:
    async with nat_pmp_router() as (_, port):
        pass
    made = RouterPort([NatPmp("127.0.0.1", port)], ENDPOINT)
    made.start(7443)
    await kept(made)
    assert "opens no port" in made.trouble
    await asyncio.wait_for(made.close(), 2)


def test_the_gateway_of_the_default_route_is_read(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
        "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\n"
    )
    assert default_gateway(table) == "192.168.1.1"
    table.write_text("Iface\nbroken")
    assert default_gateway(table) == ""
    assert default_gateway(tmp_path / "none") == ""
    assert NatPmpRouter().ports == {}
