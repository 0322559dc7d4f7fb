"""The benchmark with real nodes, without vLLM: real Groups and channels, staged engines, the driver as it is."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from research import forwarding
from research.forwarding.real import driver, processes
from research.forwarding.real import measure as measured_really
from research.forwarding.real.driver import Played, Reply, play
from research.forwarding.real.member import Member
from research.forwarding.real.messages import Counted, Line
from research.forwarding.real.nodes import NodeFailed, Nodes
from research.forwarding.real.outcome import figures, outcome, show
from research.forwarding.real.workloads import LONGEST, WORKLOADS, best_hit_rate
from rich.console import Console
from support.group_stage import hurry
from support.waiting import eventually
from support.writing_engine import WritingEngine

SEED, REQUESTS, RATE = 5, 24, 60.0


@asynccontextmanager
async def staged(folder: Path, count: int) -> AsyncIterator[tuple[Nodes, list[WritingEngine]]]:
    """Nodes in this event loop, on real local sockets to their driver."""
    nodes, engines = Nodes(), [WritingEngine() for _ in range(count)]
    path = str(folder / "driver")
    server = await asyncio.start_unix_server(lambda reader, writer: nodes.join(Line(reader, writer)), path=path)
    lines = [Line(*await asyncio.open_unix_connection(path)) for _ in engines]
    members = [
        Member(number, cast(Any, engine), 8, folder, line)
        for number, (engine, line) in enumerate(zip(engines, lines, strict=True))
    ]
    running = [asyncio.create_task(member.run()) for member in members]
    try:
        while nodes.joined < count:  # noqa: ASYNC110 - bounded by the test's own limit
            await asyncio.sleep(0.01)
        await nodes.ready()
        yield nodes, engines
    finally:
        await nodes.close()
        server.close()
        await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 60)
        for line in lines:
            line.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(driver, "SETTLED", 0.8)


@pytest.mark.slow
async def test_policies_are_played_on_the_same_requests_and_counted(tmp_path: Path, quick: None) -> None:
    played: dict[str, Played] = {}
    async with staged(tmp_path, 3) as (nodes, _):
        for policy in ("no forwarding", "round robin", "ours", "least loaded", "published"):
            played[policy] = await play(nodes, "tool use", policy, count=REQUESTS, rate=8.0, seed=SEED, told=1.0)
    sessions = WORKLOADS["tool use"](REQUESTS, SEED)
    tokens = sum(len(request.prompt) for session in sessions for request in session)
    for policy, one in played.items():
        assert sorted(reply.number for reply in one.replies) == list(range(REQUESTS)), policy
        assert all(0 < reply.first < reply.last for reply in one.replies)
        assert sum(counted.served for counted in one.counted) == REQUESTS
        assert sum(counted.prompt_tokens for counted in one.counted) == tokens
        assert 0 < outcome(one).values["hit rate"] <= best_hit_rate(sessions) + 1e-9
    in_turn = played["round robin"]
    assert [counted.served for counted in in_turn.counted] == [REQUESTS // 3] * 3
    assert outcome(in_turn).values["load"] == 1.0
    ours, none = outcome(played["ours"]), outcome(played["no forwarding"])
    # Each tool is computed at fewer nodes where those that hold it are known; arrivals leave them time to tell.
    published = outcome(played["published"])
    assert published.values["hit rate"] > none.values["hit rate"]
    assert ours.told > 0
    assert sum(counted.heartbeat_bytes for counted in played["ours"].counted) > 0


@pytest.mark.slow
async def test_entries_are_the_same_in_each_run_and_caches_are_emptied_between(tmp_path: Path, quick: None) -> None:
    async with staged(tmp_path, 2) as (nodes, _):
        one = await play(nodes, "chat", "no forwarding", count=10, rate=RATE, seed=SEED)
        two = await play(nodes, "chat", "no forwarding", count=10, rate=RATE, seed=SEED)
    by_number = [sorted((reply.number, reply.served) for reply in played.replies) for played in (one, two)]
    assert by_number[0] == by_number[1]
    assert len({name for _, name in by_number[0]}) == 2
    assert [counted.stored_blocks for counted in one.counted] == [counted.stored_blocks for counted in two.counted]
    assert all(counted.stored_blocks > 0 for counted in two.counted)


@pytest.mark.slow
async def test_a_broken_engine_ends_the_run_with_its_reason(tmp_path: Path, quick: None) -> None:
    async with staged(tmp_path, 2) as (nodes, engines):
        engines[1].breaks = True
        with pytest.raises(NodeFailed, match=r"staged engine broke|engine failed"):
            await play(nodes, "tool use", "round robin", count=6, rate=RATE, seed=SEED)


async def test_a_node_that_is_gone_ends_all_waits(tmp_path: Path) -> None:
    async with staged(tmp_path, 2) as (nodes, _):
        nodes.fail("a node has ended")
        with pytest.raises(NodeFailed, match="a node has ended"):
            await nodes.looks()


async def test_a_process_that_does_not_start_is_told_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes.sys, "executable", "/bin/ls")
    with pytest.raises(NodeFailed, match=r"ended before it called(?s:.)*ls: "):
        async with processes.running(2, tmp_path):
            pytest.fail("it cannot run")


@pytest.mark.slow
async def test_processes_and_what_they_started_end_though_they_never_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = tmp_path / "stubborn"
    stubborn.write_text(f"#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $$ $! >> {tmp_path}/pids\nwait\n")
    stubborn.chmod(0o700)
    monkeypatch.setattr(processes.sys, "executable", str(stubborn))
    monkeypatch.setattr(processes, "CALLING", 2.0)
    monkeypatch.setattr(processes, "ENDING", 0.2)
    with pytest.raises(NodeFailed, match="2 nodes did not call"):
        async with processes.running(2, tmp_path):
            pytest.fail("it cannot run")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 4
    # Whoever adopts the orphans may take a moment to bury them.
    await eventually(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_without_vllm_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="troth node engine install vllm"):
        forwarding.measure(["real"])
    with pytest.raises(SystemExit) as refused:
        measured_really(["--nodes", "1"])
    assert refused.value.code == 2


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_seeded_bounded_and_share_prefixes(name: str) -> None:
    sessions = WORKLOADS[name](40, 3)
    assert sessions == WORKLOADS[name](40, 3) != WORKLOADS[name](40, 4)
    requests = [request for session in sessions for request in session]
    assert [request.number for request in requests] == list(range(40))
    assert max(len(request.prompt) for request in requests) <= LONGEST
    assert 0.5 < best_hit_rate(sessions) < 0.95
    for session in sessions:
        for before, after in pairwise(session):
            assert after.prompt[: len(before.prompt)] == before.prompt


def test_figures_carry_both_ratios() -> None:
    def played(policy: str, first: float) -> Played:
        replies = [Reply(number, "ab"[number % 2], first, 2 * first, 0) for number in range(4)]
        return Played("chat", policy, replies, 8.0, [Counted(100, 50, 2, 4, 80, 9), Counted(100, 30, 2, 4, 0, 9)])

    runs = [outcome(played(name, first)) for name, first in (("ours", 1.0), ("no forwarding", 4.0), ("round robin", 2))]
    made = {figure.name: figure for figure in figures(runs, "here")}
    assert made["chat, ours: mean TTFT"].ratio == 0.25
    assert "ratio 0.50" in made["chat, ours: mean TTFT"].note
    assert made["chat, ours: hit rate"].value == 0.4
    assert made["chat, ours: load"].value == 1.0
    assert made["chat, ours: requests"].value == 0.5
    assert made["chat, ours: Tell per stored block"].value == 10.0
    printed = io.StringIO()
    show(runs, "title", Console(file=printed, width=200))
    assert "1 (0.25, 0.50)" in printed.getvalue()
