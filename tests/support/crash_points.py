"""A process that kills itself at a step: just before or just after it is on the disk.

The plan lies in a file that every process of a network looks at with each step, so that one network serves many kills.
The first process that comes to the step takes the plan away and dies; production code knows nothing of this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.audit.watching.findings import ShownFindings
from troth.cases import journal as cases_journal
from troth.cases.courtroom import LiveCourtroom, Mined
from troth.client.tabs.store import TabStore
from troth.node.earning.database import NodeDatabase
from troth.protocol.market.calls import PartCall
from troth.scheduler.tabs.database import SchedulerDatabase

Statement = tuple[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the plan is written: "PART MOMENT STEP", the step being a word of ``step_in``."""

    path: Path

    def set(self, part: str, moment: str, step: str) -> None:
        self.path.write_text(f"{part} {moment} {step}")

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def waits(self) -> bool:
        """Whether nobody has come to the step yet."""
        return self.path.exists()

    def die(self, part: str, moment: str, steps: Sequence[str]) -> None:
        """Kill this process if the plan names one of these steps, and no other process was faster."""
        if not steps:
            return
        try:
            wanted = self.path.read_text()
        except FileNotFoundError:
            return
        if wanted not in {f"{part} {moment} {step}" for step in steps}:
            return
        try:
            self.path.rename(self.path.with_suffix(f".{os.getpid()}"))
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def step_in(query: str, values: Sequence[Any]) -> str | None:
    """The step that a statement writes down; None for what is no step of an order or a case."""
    words = query.split()
    match words:
        case ["INSERT", "INTO", "steps", *_]:
            return str(values[1])
        case ["INSERT", "OR", "REPLACE", "INTO", "client_tab", *_]:
            return "client_tab"
        case ["DELETE", "FROM", "node_number", *_]:
            return "acknowledged_node"
        case ["INSERT", "INTO", "words", *_]:
            return str(values[2])
        case ["INSERT", "OR", "REPLACE", "INTO", "begun", *_]:
            return f"begun_{values[2]}"
        case ["INSERT", "INTO", "openings", *_]:
            return "opening"
        case ["INSERT", "OR", "REPLACE", "INTO", "tabs", *_]:
            return "voucher"
        case ["UPDATE", "orders", "SET", "phase", *_]:
            return str(values[0]).replace(" ", "_")
        case ["INSERT", "INTO", "orders", *_] if "held_until" in query:
            return "ordered"
        case ["UPDATE", "orders", "SET", "paid", *_]:
            return "paid"
        case _:
            return None


def arm(part: str, plan: Plan) -> None:
    """From now on this process dies where the plan says so."""
    {"scheduler": _scheduler, "node": _node, "client": _client, "watcher": _watcher}[part](plan)


def _named(statements: Sequence[Statement]) -> list[str]:
    return [step for query, values in statements if (step := step_in(query, values)) is not None]


def _scheduler(plan: Plan) -> None:
    commit = SchedulerDatabase.commit

    async def dying(self: SchedulerDatabase, *statements: Any) -> None:
        steps = _named(statements)
        plan.die("scheduler", "before", steps)
        await commit(self, *statements)
        plan.die("scheduler", "after", steps)

    SchedulerDatabase.commit = dying  # type: ignore[method-assign]


def _node(plan: Plan) -> None:
    _in_blocks(NodeDatabase, "transaction", "write", lambda self: self._connection.in_transaction, "node", plan)


def _client(plan: Plan) -> None:
    _in_blocks(TabStore, "writing", "execute", lambda self: self._database.in_transaction, "client", plan)


def _in_blocks(
    kind: type[Any], block: str, statement: str, is_inside: Callable[[Any], bool], part: str, plan: Plan
) -> None:
    """Stores whose steps are blocks: what was written in the outermost one is on the disk when it is left."""
    entering: Callable[[Any], AbstractContextManager[None]] = getattr(kind, block)
    write, steps = getattr(kind, statement), list[str]()

    def noting(self: Any, query: str, *values: Any) -> Any:
        found = write(self, query, *values)
        step = step_in(query, values)
        if step is not None:
            steps.append(step)
        return found

    @contextmanager
    def dying(self: Any) -> Iterator[None]:
        if is_inside(self):
            with entering(self):
                yield
            return
        steps.clear()
        with entering(self):
            yield
            plan.die(part, "before", steps)
        plan.die(part, "after", steps)

    setattr(kind, statement, noting)
    setattr(kind, block, dying)


def _watcher(plan: Plan) -> None:
    note = ShownFindings.note

    def dying(self: ShownFindings, *arguments: Any) -> None:
        plan.die("watcher", "before", ["shown"])
        note(self, *arguments)
        plan.die("watcher", "after", ["shown"])

    ShownFindings.note = dying  # type: ignore[method-assign]
    for name in ("follow", "end"):
        _method(cases_journal.CaseJournal, name, plan)
    send = LiveCourtroom.send

    async def sending(self: LiveCourtroom, call: PartCall) -> Mined:
        plan.die("watcher", "before", ["case_send"])
        mined = await send(self, call)
        plan.die("watcher", "after", ["case_send"])
        return mined

    LiveCourtroom.send = sending  # type: ignore[method-assign]


def _method(kind: type[Any], name: str, plan: Plan) -> None:
    method = getattr(kind, name)

    def dying(self: Any, *arguments: Any, **named: Any) -> Any:
        plan.die("watcher", "before", [f"case_{name}"])
        found = method(self, *arguments, **named)
        plan.die("watcher", "after", [f"case_{name}"])
        return found

    setattr(kind, name, dying)
