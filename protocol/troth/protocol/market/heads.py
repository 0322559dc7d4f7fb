"""Which classes say of themselves that a token's logit is the product of a state and one row of one tensor.

Such a class' name ends in "/head:" and the tensor's name. Nodes prove that it is so before they serve, and the
contract weighs no token of a class that does not say it: a soft cap, a scale or a bias would make another choice right.
"""

from __future__ import annotations

MARK = "/head:"


def head_of(name: str) -> str:
    """The tensor that a class names; empty where it names none."""
    _, mark, tensor = name.rpartition(MARK)
    return tensor if mark else ""


def with_head(name: str, tensor: str) -> str:
    """A class' name that names its head."""
    return f"{name}{MARK}{tensor}" if tensor else name


def without_head(name: str) -> str:
    """What people call a class."""
    return name.rpartition(MARK)[0] or name
