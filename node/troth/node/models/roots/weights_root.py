"""The weights root: one Merkle leaf per weight row, so that a single row can be opened on chain later.

It is version 2, over what the files hold, whatever it means: their own bytes with dtype and shape. A quantised
checkpoint's words, scales and settings count as they are. Its leaves and roots are those of
`troth.protocol.weight_rows`, where `quantisation` is quantization_config as canonical JSON, empty without one; dtypes
are named as safetensors does; what a row is, `tensor_files.RawTensor.rows` says. Tensors are sorted by name.

Models that were registered by version 1 keep it: `number_roots`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from troth.node.models.roots.weight_hashing import parts
from troth.node.models.tensor_files import RawTensor, rows_of_a_piece
from troth.protocol.architecture import canonical_json
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import model_hash, root_of_parts, tensor_hash, tree_root

Progress = Callable[[int], None]


def weights_root(
    tensors: Sequence[RawTensor],
    quantisation: Mapping[str, Any] | None,
    progress: Progress = lambda size: None,
    programs: int | None = None,
) -> Hash32:
    """The root over all tensors of a model, of names that are all different.

    Memory is bounded: 20 MB for each program, and 32 bytes for each piece of one tensor.

    Args:
        progress: is told bytes.
        programs: that hash a large model; None: one for each core.
    """
    roots = tensor_roots(tensors, progress, programs)
    tree = tree_root([roots[name] for name in sorted(roots)])
    return model_hash(settings_hash(quantisation), len(roots), tree)


def tensor_roots(
    tensors: Sequence[RawTensor], progress: Progress = lambda size: None, programs: int | None = None
) -> dict[str, bytes]:
    """The root of each tensor by its name."""
    roots: dict[str, bytes] = {}
    above: list[bytes] = []
    with closing(parts(tensors, programs)) as found:
        for part in found:
            tensor = part.tensor
            progress((part.end - part.first) * tensor.row_bytes)
            above.append(part.root)
            if part.end == tensor.rows:
                roots[tensor.name], above = _tensor_root(tensor, above), []
    return roots


def settings_hash(quantisation: Mapping[str, Any] | None) -> bytes:
    """What a weights root binds of a checkpoint's settings."""
    return keccak256(b"" if quantisation is None else canonical_json(quantisation))


def _tensor_root(tensor: RawTensor, above: Sequence[bytes]) -> bytes:
    tree = above[0] if len(above) == 1 else root_of_parts(above, rows_of_a_piece(tensor))
    return tensor_hash(tensor.name, tensor.dtype, tensor.shape, tensor.rows, tree)
