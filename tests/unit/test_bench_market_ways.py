"""The market's benchmark takes nobody's word for the way of a question: relays' counters and the kernel say it."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.market.running.ways import HIDDEN, OPEN, Way, WrongWay


class Relays:
    """Their count, and their places."""

    def __init__(self, *places: str) -> None:
        self.count = 0
        self.relays = [SimpleNamespace(endpoint=place) for place in places]

    def messages(self) -> int:
        return self.count


def way_of(name: str, scheduler: str, relays: Relays) -> Way:
    network = SimpleNamespace(overlay=relays, scheduler=SimpleNamespace(endpoint=f"https://{scheduler}"))
    gateway = SimpleNamespace(child=SimpleNamespace(process=SimpleNamespace(pid=os.getpid())))
    stage: Any = SimpleNamespace(network=network)
    client: Any = SimpleNamespace(gateway=gateway)
    return Way(name, stage, client)


@pytest.mark.parametrize("to_relay", [False, True])
@pytest.mark.parametrize("to_scheduler", [False, True])
@pytest.mark.parametrize("passed", [0, 12])
def test_only_a_question_that_went_its_way_is_counted(passed: int, to_scheduler: bool, to_relay: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as scheduler, socket.create_server(("127.0.0.1", 0)) as relay:
        places = ["{}:{}".format(*one.getsockname()) for one in (scheduler, relay)]
        relays = Relays(places[1])
        wanted = [scheduler] * to_scheduler + [relay] * to_relay
        connected = [socket.create_connection(one.getsockname()) for one in wanted]
        went = {}
        for name in (HIDDEN, OPEN):
            way = way_of(name, places[0], relays)
            before = way.relayed()
            way.look()
            relays.count += passed
            try:
                way.went(before)
            except WrongWay:
                went[name] = False
            else:
                went[name] = True
            assert way.messages == [passed]
        for one in connected:
            one.close()
    assert went[HIDDEN] == (passed > 0 and to_relay and not to_scheduler)
    assert went[OPEN] == (not passed and to_scheduler and not to_relay)
