"""Which classes say of themselves how each of their numbers is computed, so that arithmetic alone can convict.

Such a class' name holds "/layers:0x" and keccak256 of the encoded shape of the model's layers, before its "/head:" or
its end. Nodes measure their own rows against that arithmetic before they serve.
"""

from __future__ import annotations

from troth.protocol.market.heads import head_of, with_head, without_head
from troth.protocol.types import Hash32

MARK = "/layers:"
_DIGITS = 66


def layers_of(name: str) -> Hash32 | None:
    """The shape's hash that a class names; None where it names none."""
    _, mark, digits = without_head(name).rpartition(MARK)
    if not mark or len(digits) != _DIGITS or not digits.startswith("0x"):
        return None
    try:
        return Hash32(bytes.fromhex(digits[2:]))
    except ValueError:
        return None


def mark_of(name: str) -> int:
    """Where in a class' name its mark begins, in bytes; -1 where there is none."""
    return name.encode().rfind(MARK.encode())


def with_layers(name: str, shape: Hash32) -> str:
    """A class' name that names its layers' shape; the head, if it names one, stays behind."""
    head = head_of(name)
    return with_head(f"{without_head(name)}{MARK}0x{shape.hex()}", head)


def without_layers(name: str) -> str:
    """What people call a class, without its head."""
    return without_head(name).partition(MARK)[0]
