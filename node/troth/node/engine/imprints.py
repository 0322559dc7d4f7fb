"""Imprints of a model's head: computed, named by a class, and looked at before a node serves a class with them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from troth.node.engine.head import find_head, head_numbers
from troth.node.engine.interface import Arithmetic
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.node.models.tensor_files import RawTensor
from troth.protocol.errors import InvalidField
from troth.protocol.imprints.naming import imprints_of, with_imprints
from troth.protocol.imprints.rows import HeadTree, RowKind, round_row
from troth.protocol.market.heads import head_of

ROWS_AT_ONCE = 1_000
log = logging.getLogger(__name__)


def head_imprints(tensor: RawTensor, dtype: int) -> list[int]:
    """The imprints of a head's rows in a class of this dtype: minutes for a large vocabulary."""
    found: list[int] = []
    for _, weights in head_numbers(tensor, dtype):
        for row in weights:
            found.append(round_row(row, RowKind.WEIGHTS).imprint())
            if len(found) % ROWS_AT_ONCE == 0:
                log.info("imprints of %s: %d of %d rows", tensor.name, len(found), tensor.shape[0])
    return found


def with_head_imprints(name: str, folder: ModelFolder, dtype: int) -> str:
    """A class' name that names the imprints of its head; raises ModelError where it names no head."""
    head = head_of(name)
    if not head:
        raise ModelError("imprints are of a head that the class names", name, "Leave --no-head out, or --imprints.")
    return with_imprints(name, HeadTree(head_imprints(find_head(folder, head), dtype)).root)


def require_imprints(execution_class: Arithmetic, model: Callable[[], ModelFolder]) -> None:
    """Check the imprints that a class names; one that names none needs nothing, and does not open the model's folder.

    Raises:
        ModelError: they are of another head, so that proofs over them could convict an honest node.
    """
    try:
        named = imprints_of(execution_class.name)
    except InvalidField as error:
        raise ModelError(error.what, execution_class.name, error.remedy) from error
    if named is None:
        return
    folder = model()
    tensor = find_head(folder, head_of(execution_class.name))
    found = HeadTree(head_imprints(tensor, execution_class.dtype)).root
    if found != named:
        raise ModelError("the class names imprints of another head", execution_class.name, "Serve another class.")
