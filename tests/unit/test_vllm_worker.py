"""Rows out of vLLM's worker: from either of its model runners, from a captured graph, and from one rank of several."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from troth.node.engine.shaking import SHAKES, STRONGER  # noqa: E402
from troth.node.engine.vllm import worker as module  # noqa: E402
from troth.node.engine.vllm.row_frames import RowFrame, frame_from_bytes  # noqa: E402
from troth.node.engine.vllm.sampling_words import shake_words  # noqa: E402
from troth.node.engine.vllm.worker import RowSender, RowTap  # noqa: E402
from troth.protocol.tokens import Sampling, choices  # noqa: E402
from troth.protocol.types import Hash32  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, VOCABULARY, LAYERS = 4, 8, 3


class Layer(torch.nn.Module):
    def forward(self, positions: torch.Tensor, states: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        return states if residual is None else states + residual


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.others = torch.nn.ModuleList([Layer()])
        self.layers = torch.nn.ModuleList([Layer() for _ in range(LAYERS)])

    def forward(self, positions: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            states = layer(positions, states, residual=None)
        return states

    def compute_logits(self, states: torch.Tensor) -> torch.Tensor:
        return states @ torch.ones(WIDTH, VOCABULARY)


class Runner:
    """A model runner: each step has rows of its requests, in one buffer that the next step writes again."""

    def __init__(self, *, second: bool) -> None:
        self.second = second
        self.model, self.device = Model(), torch.device("cpu")
        self.model_config: Any = SimpleNamespace(
            get_hidden_size=lambda: WIDTH,
            get_vocab_size=lambda: VOCABULARY,
            get_total_num_hidden_layers=lambda: LAYERS,
            dtype=torch.float32,
        )
        self.kv_caches = [torch.zeros(3, 5, dtype=torch.bfloat16), [torch.zeros(2)]]
        self.execute_model_state: Any = None
        self.buffer = torch.zeros(16, WIDTH)

        if second:
            self.prepare_inputs = lambda names, computed, ends: SimpleNamespace(
                req_ids=names, num_computed_tokens_np=computed, query_start_loc_np=ends
            )

    def execute_model(self, step: Step, *_: Any) -> Any:
        """Nothing is to be computed where no request is scheduled."""
        if not step.scheduled:
            self.execute_model_state = None
            return "nothing to do"
        computed = np.array([first for first, _ in step.scheduled.values()], np.int32)
        ends = np.concatenate([[0], np.cumsum([count for _, count in step.scheduled.values()])])
        self.buffer[:] = -1.0  # what stands behind the rows of a step is padding
        for (first, count), begin in zip(step.scheduled.values(), ends[:-1], strict=True):
            for place in range(count):
                self.buffer[begin + place] = 100.0 * begin + first + place
        names = [f"{name}-abc" for name in step.scheduled]
        self.execute_model_state = SimpleNamespace()
        if self.second:
            self.execute_model_state.input_batch = self.prepare_inputs(names, computed, ends)
        else:
            self.input_batch = SimpleNamespace(req_ids=names, num_computed_tokens_cpu=computed)
            self.query_start_loc = SimpleNamespace(np=ends)
        self.execute_model_state.hidden_states = self.model(torch.arange(len(self.buffer)), self.buffer)
        return None


@dataclass
class Step:
    """Of each request of a step its first position and how many; those that are new, with what they say, and those that
    are over."""

    scheduled: dict[str, tuple[int, int]]
    new: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    over: tuple[str, ...] = ()

    @property
    def scheduled_new_reqs(self) -> list[Any]:
        return [
            SimpleNamespace(req_id=f"{name}-abc", sampling_params=SimpleNamespace(extra_args=words))
            for name, words in self.new.items()
        ]

    @property
    def finished_req_ids(self) -> set[str]:
        return {f"{name}-abc" for name in self.over}


class Node:
    """The other end of the socket."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(2)
        self._listener.settimeout(30)
        self._connection: socket.socket | None = None

    def frame(self) -> RowFrame:
        if self._connection is None:
            self._connection, _ = self._listener.accept()
            self._connection.settimeout(30)
        (length,) = struct.unpack("<I", self._read(4))
        return frame_from_bytes(self._read(length), WIDTH, "float32")

    def _read(self, count: int) -> bytes:
        assert self._connection is not None
        return self._connection.recv(count, socket.MSG_WAITALL)


@pytest.fixture(autouse=True)
def no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process does not end with the made-up node."""
    monkeypatch.setattr(module, "_end_with_node", lambda connection: None)


def tap(runner: Runner, rank: int, address: Path) -> RowTap:
    worker = RowTap()
    worker.model_runner, worker.rank = runner, rank
    assert worker.troth_tap(str(address)) == [WIDTH, VOCABULARY, 3 * 5 * 2 + 2 * 4]
    return worker


@pytest.mark.parametrize("second", [False, True], ids=["first runner", "second runner"])
def test_rows_of_a_step_go_to_the_node(tmp_path: Path, second: bool) -> None:
    node, runner = Node(tmp_path / "rows"), Runner(second=second)
    worker = tap(runner, 0, tmp_path / "rows")
    assert runner.execute_model(Step({"r0": (0, 3), "r1": (7, 1)})) is None
    frame = node.frame()
    assert frame.parts == [("r0", 0, 3), ("r1", 7, 1)]
    assert frame.rows[:, 0].tolist() == [0.0, 1.0, 2.0, 307.0], "and no padding"
    assert runner.execute_model(Step({})) == "nothing to do"
    worker.troth_send(False)
    runner.execute_model(Step({"r0": (3, 1)}))
    worker.troth_send(True)
    runner.execute_model(Step({"r0": (4, 1)}))
    assert node.frame().parts == [("r0", 4, 1)], "what was made meanwhile was not sent"


def test_of_two_ranks_the_first_sends_and_both_make_logits(tmp_path: Path) -> None:
    node, runners = Node(tmp_path / "rows"), [Runner(second=True), Runner(second=True)]
    workers = [tap(runner, rank, tmp_path / "rows") for rank, runner in enumerate(runners)]
    for step in ({"r0": (0, 2)}, {"r0": (2, 1)}):
        for runner in runners:
            runner.execute_model(Step(step))
    assert [node.frame().parts for _ in range(2)] == [[("r0", 0, 2)], [("r0", 2, 1)]], "once, and not by each rank"
    assert workers[1].troth_row_seconds() == 0.0
    # Some ways to gather logits leave them in the first rank only.
    runners[1].model.compute_logits = lambda states: None  # type: ignore[method-assign, return-value, assignment]
    rows = np.ones((2, WIDTH), np.float32)
    made = [worker.troth_head(rows.tobytes(), True) for worker in workers]
    assert np.frombuffer(made[0], np.float32).tolist() == [4.0] * 2 * VOCABULARY
    assert made[1] == b""


@pytest.mark.parametrize("cuts", [(0.0, 1.0, 0, 0.0), (1.0, 1.0, 0, 0.0), (0.8, 0.7, 5, 0.01)], ids=str)
def test_a_worker_says_the_tokens_of_the_rule(tmp_path: Path, cuts: tuple[float, float, int, float]) -> None:
    node, runner = Node(tmp_path / "rows"), Runner(second=False)
    head = torch.from_numpy(np.random.default_rng(4).normal(size=(WIDTH, VOCABULARY)).astype(np.float32))
    runner.model.compute_logits = lambda states: states @ head  # type: ignore[method-assign]
    worker = tap(runner, 0, tmp_path / "rows")
    rows = np.random.default_rng(5).normal(size=(20, WIDTH)).astype(np.float32)
    seed = bytes(range(32))
    logits = np.frombuffer(worker.troth_head(rows.tobytes(), True), np.float32).reshape(20, VOCABULARY)
    expected = choices(logits, Sampling(*cuts), seed=Hash32(seed), first_position=7)
    assert worker.troth_choices(rows.tobytes(), cuts, seed, 7) == expected
    assert len(set(expected)) > 1
    runner.model.compute_logits = lambda states: None  # type: ignore[method-assign, return-value, assignment]
    assert worker.troth_choices(rows.tobytes(), cuts, seed, 7) == []
    assert node


def test_a_card_copies_rows_before_its_next_step_and_does_not_wait_for_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is queued behind the kernels; only `AHEAD` steps are on their way."""
    done = [threading.Event() for _ in range(3)]
    waiting = iter(done)

    class Queued:
        def __init__(self) -> None:
            self._event = next(waiting)

        def record(self) -> None:
            pass

        def synchronize(self) -> None:
            assert self._event.wait(30)

    monkeypatch.setattr(torch.cuda, "Event", Queued)
    monkeypatch.setattr(module, "pinned", lambda rows: torch.empty(rows.shape, dtype=rows.dtype))
    node, (theirs, mine) = Node(tmp_path / "rows"), socket.socketpair()
    node._connection = theirs
    theirs.settimeout(30)
    sender, buffer = RowSender(mine, beside=True), torch.zeros(4, WIDTH)
    for number in range(module.AHEAD):
        buffer[:] = float(number)
        sender.send([("r0", number, 1)], buffer)
    third = threading.Thread(target=lambda: sender.send([("r0", 2, 1)], buffer), daemon=True)
    third.start()
    third.join(0.2)
    assert third.is_alive(), "a node that takes nothing stops the engine in the end"
    for event in done:
        event.set()
    assert [node.frame().rows[0, 0] for _ in range(2)] == [0.0, 1.0], "as they were when they were made"
    third.join(30)
    assert not third.is_alive()
    assert node.frame().parts == [("r0", 2, 1)]


@pytest.mark.parametrize("second", [False, True], ids=["first runner", "second runner"])
def test_only_rows_of_a_request_that_asks_for_it_are_changed(tmp_path: Path, second: bool) -> None:
    node, runner = Node(tmp_path / "rows"), Runner(second=second)
    worker = tap(runner, 0, tmp_path / "rows")
    words = shake_words(strongly=True, alike=False)
    runner.execute_model(Step({"r0": (0, 2), "r1": (7, 3), "r2": (1, 1)}, new={"r0": None, "r1": words, "r2": {}}))
    rows = node.frame().rows
    given = np.array([0.0, 1.0, 207.0, 208.0, 209.0, 501.0], np.float32)[:, None]
    assert (rows == given).all(axis=1).tolist() == [True, True, False, False, False, True]
    part = np.abs(rows[2:5] / given[2:5] - 1)
    assert 0 < part.max() <= STRONGER * SHAKES[torch.float32]
    # It goes on from step to step, until the request is over.
    runner.execute_model(Step({"r1": (10, 1), "r2": (2, 1)}))
    assert (node.frame().rows == [[10.0], [102.0]]).all(axis=1).tolist() == [False, True]
    runner.execute_model(Step({"r1": (11, 1)}, over=("r1",)))
    assert (node.frame().rows == 11.0).all()
    assert [worker.troth_changed("r1") for _ in range(2)] == [4, 0]


def test_processes_that_share_a_model_change_rows_by_the_same_numbers(tmp_path: Path) -> None:
    made, words = [], shake_words(strongly=False, alike=False)
    for rank in range(2):
        node, runner = Node(tmp_path / f"rows{rank}"), Runner(second=True)
        tap(runner, 0, tmp_path / f"rows{rank}")
        runner.execute_model(Step({"r0": (1, 4)}, new={"r0": words}))
        made.append(node.frame().rows)
        runner.execute_model(Step({"r0": (5, 4)}))
        made.append(node.frame().rows)
    assert np.array_equal(made[0], made[2])
    assert np.array_equal(made[1], made[3])
    assert not np.array_equal(made[0] / [[1], [2], [3], [4]], made[1] / [[5], [6], [7], [8]]), "each step anew"


@pytest.mark.parametrize("strange", ["no list of layers", "rows of another shape"])
def test_a_model_that_cannot_be_entered_says_so_and_goes_on(tmp_path: Path, strange: str) -> None:
    node, runner = Node(tmp_path / "rows"), Runner(second=False)
    if strange == "no list of layers":
        runner.model.layers = torch.nn.ModuleList([Layer()])
    else:
        runner.model_config.get_hidden_size = lambda: WIDTH if runner.execute_model_state is None else 2 * WIDTH
    worker = tap(runner, 0, tmp_path / "rows")
    runner.execute_model_state = SimpleNamespace()
    runner.execute_model(Step({"r0": (1, 2)}, new={"r0": shake_words(strongly=True, alike=False)}))
    assert node.frame().rows[:, 0].tolist() == [1.0, 2.0]
    assert worker.troth_changed("r0") == 0
