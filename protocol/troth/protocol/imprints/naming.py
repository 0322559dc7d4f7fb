"""Which classes have imprints, and what a node of one signs beside its result.

Such a class' name holds "/imprints:0x" and the root over the imprints of its head's rows in 64 digits, before its
"/layers:", its "/head:" or its end. It names its head, too. Nodes compute the root before they serve.
"""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.errors import InvalidField
from troth.protocol.imprints.poseidon import FIELD
from troth.protocol.market import heads, layers
from troth.protocol.types import Hash32

MARK = "/imprints:0x"
_WORD = "/imprints:"
_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Imprints:
    """What a node signs beside its result: the struct hash of the result, and the root over the answer's imprints."""

    result: Hash32
    root: Hash32


def imprints_of(name: str) -> int | None:
    """The root that a class names; None where it names none.

    Raises InvalidField where it names two, no root, or no head: a contract would read what nobody has checked.
    """
    if _WORD not in name:
        return None
    _, _, behind = name.partition(_WORD)
    digits, rest = behind[2 : 2 + _DIGITS], behind[2 + _DIGITS :]
    whole = behind.startswith("0x") and len(digits) == _DIGITS and set(digits) <= set("0123456789abcdef")
    ends = not rest or rest.startswith("/")
    if name.count(_WORD) != 1 or not whole or not ends or int(digits, 16) >= FIELD or not heads.head_of(name):
        raise InvalidField("A class names one root of imprints, and its head", name, "Serve another class.")
    return int(digits, 16)


def mark_of(name: str) -> int:
    """Where in a class' name the mark begins, in bytes; -1 where there is none."""
    return name.encode().find(MARK.encode())


def with_imprints(name: str, root: int) -> str:
    """A class' name that names the root, before what it names of its layers and its head."""
    called = layers.without_layers(name)
    return f"{called}{MARK}{root:0{_DIGITS}x}{name[len(called) :]}"
