"""The pools of a scheduler whose tasks settle one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from troth.protocol.state import State
from troth.protocol.types import Address
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.peers import Peers
from troth.scheduler.pool.coordinator import Coordinator, Wanted
from troth.scheduler.pool.gauges import Gauges
from troth.scheduler.pool.pace import Pace
from troth.scheduler.pool.task_sides import TaskSides
from troth.scheduler.served import Served


class TaskCoordinator(Coordinator):
    """`Chains` over the pools; `chain` gives state and block as they are now."""

    def __init__(
        self,
        served: Sequence[Served],
        chain: Callable[[], tuple[State, int]],
        peers: Peers,
        gauges: Gauges,
        pace: Callable[[], Pace] = Pace,
    ) -> None:
        super().__init__(served, TaskSides(chain), peers, gauges, pace)

    def choose(self, task: AdmittedTask, allowed: Sequence[Sequence[Address]]) -> tuple[Address, ...] | None:
        """The fastest chain among `allowed` candidates of each segment, with room for the task."""
        tokens = len(task.request.prompt_tokens) + task.request.max_tokens
        wanted = Wanted(task.task_id, task.order.execution_class, task.assignment.segments, tokens)
        return self.choose_for(wanted, allowed)

    def note_answer(self, task: AdmittedTask, node: Address, layers: int, seconds: float) -> None:
        """One position through `layers` layers took `seconds` at a node, the way included."""
        self.note_answer_for(task.order.execution_class, node, layers, seconds)

    def release(self, task: AdmittedTask) -> None:
        """Give back what a task holds."""
        self.release_for(task.order.execution_class, task.task_id)
