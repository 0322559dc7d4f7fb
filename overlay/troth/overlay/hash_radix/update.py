"""What a node tells its group: changes since its last word, or all it holds."""

from __future__ import annotations

from dataclasses import dataclass

from troth.overlay.hash_radix.load import Load


@dataclass(frozen=True, slots=True)
class Run:
    """Chunks of one prefix, each the next one's parent; `parent` before the first (`ROOT` at a prompt's start)."""

    parent: int
    names: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """One message of one node.

    Args:
        whole: a snapshot, which replaces all that was said before; else a delta on top of `sequence` - 1.
        chunking: identity of the names, 4 bytes (`Naming.identity`).
        epoch: when the node began to count, in milliseconds; a restarted node has a later one.
        sequence: rises by one with each update of an epoch, from 1.
        load: how loaded the node is now.
        stored: chunks that it holds since, or, in a snapshot, all.
        removed: names that it holds no more, ascending; none in a snapshot.
    """

    whole: bool
    chunking: bytes
    epoch: int
    sequence: int
    load: Load
    stored: tuple[Run, ...] = ()
    removed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node's load between two updates, without names.

    Args:
        chunking: identity of its names, 4 bytes.
        epoch: as in its updates.
        sequence: of its last update, 0 before the first: who has not seen that one missed it.
        number: rises by one with each heartbeat of an epoch, from 1.
        load: how loaded the node is now.
    """

    chunking: bytes
    epoch: int
    sequence: int
    number: int
    load: Load


def runs_of(parents: dict[int, int], longest: int) -> tuple[Run, ...]:
    """The fewest runs in which name to parent can be said, at most `longest` names each; the same for equal input."""
    children: dict[int, list[int]] = {}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    heads = [(parent, name) for name, parent in parents.items() if parent not in parents or children[parent][0] != name]
    runs = []
    for parent, head in heads:
        names = [head]
        while names[-1] in children:
            names.append(children[names[-1]][0])
        for start in range(0, len(names), longest):
            runs.append(Run(names[start - 1] if start else parent, tuple(names[start : start + longest])))
    return tuple(runs)
