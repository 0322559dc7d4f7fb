"""The descriptor of a model folder, with a cache of what is slow: the weights root, and the look for NaN.

The cache lies beside the folder (`.NAME.roots.json`). An entry holds the SHA-256 of each weight file, its inode, size
and times: as long as they stand, the files are not read again; otherwise their hashes decide. Whoever writes into the
source of a linked file may set its time of writing back, but not the time of its last change. The cache guards the
operator against accidents, not against himself: it is his own stake.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from troth.chain.new_files import replacing
from troth.node.errors import ModelError
from troth.node.models.broken_numbers import require_numbers
from troth.node.models.folder import ModelFolder
from troth.node.models.roots.number_roots import numbers_root
from troth.node.models.roots.weights_root import weights_root
from troth.node.models.sources import stamp
from troth.node.models.tensor_files import raw_tensors
from troth.protocol.architecture import WEIGHTS_VERSION, canonical_json, with_version
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32, ModelDescriptor

DTYPE_NAMES = {"float32": 0, "bfloat16": 1}
Progress = Callable[[int], None]
PIECE_BYTES = 1 << 20
"""Of a file, between two words about how far its hash is."""


def describe(
    folder: ModelFolder, dtype: int, progress: Progress = lambda size: None, *, version: int = WEIGHTS_VERSION
) -> ModelDescriptor:
    """The descriptor that goes on chain; hashes all weights unless the cache knows these files.

    Args:
        version: of the weights root; another one than today's for a model that was registered by it.

    Raises:
        ModelError: the folder has no root of that version.
    """
    return description(folder, dtype, cached_weights_root(folder, dtype, progress, version=version), version=version)


def description(folder: ModelFolder, dtype: int, root: Hash32, *, version: int = WEIGHTS_VERSION) -> ModelDescriptor:
    """The descriptor of a folder whose weights have this root."""
    config = folder.text_config
    return ModelDescriptor(
        architecture=with_version(folder.architecture, version),
        layers=folder.layers,
        hidden_size=int(config["hidden_size"]),
        vocabulary=int(config["vocab_size"]),
        dtype=dtype,
        weights_root=root,
    )


def cached_weights_root(
    folder: ModelFolder, dtype: int, progress: Progress = lambda size: None, *, version: int = WEIGHTS_VERSION
) -> Hash32:
    """The weights root of the folder's files, recomputed only when the files changed; in a dtype, if of version 1.

    ``progress`` is told each byte twice, as it is read twice: by SHA-256, which says whether a file changed at all, and
    by the root. Files that stand as they were are not read for their hashes: these bytes are told at once.
    """
    if version not in {1, WEIGHTS_VERSION}:
        raise ModelError("the model is registered by rules of a later Troth", version, "Upgrade Troth.")
    cache_file, stamps = _cache_file(folder), _stamps(folder)
    cache = _read_cache(cache_file)
    if cache.get("stamps") != stamps:
        hashes = {path.name: _file_hash(path, progress) for path in folder.weight_files}
        known = cache.get("roots", {}) if cache.get("hashes") == hashes else {}
        looked = {"numbers": cache["numbers"]} if "numbers" in cache else {}
        cache = {"version": 1, "stamps": stamps, "hashes": hashes, "roots": known, **looked}
    else:
        progress(sum(path.stat().st_size for path in folder.weight_files))
    said = keccak256(canonical_json(folder.quantisation)).hex()
    name = str(dtype) if version == 1 else f"raw {said}"
    found = cache["roots"].get(name)
    if isinstance(found, str):
        return Hash32(bytes.fromhex(found))
    root = _root(folder, dtype, progress, version)
    _require_still(folder, stamps)
    cache["roots"][name] = root.hex()
    _write_cache(cache_file, cache)
    return root


def _require_still(folder: ModelFolder, stamps: dict[str, list[int]]) -> None:
    """What was hashed twice, or in pieces, would else be the root of no file that ever was, kept for one that is."""
    now = _stamps(folder)
    if differing := sorted(name for name in stamps.keys() | now.keys() if stamps.get(name) != now.get(name)):
        remedy = "Wait until nothing writes or links these files any more, then repeat the command."
        raise ModelError(
            f"weights below {folder.place} were changed while they were read", ", ".join(differing), remedy
        )


def contradicts_cache(folder: ModelFolder, name: str) -> bool:
    """Whether a file of weights surely is another than the one whose root was computed; reads all of it."""
    known = _read_cache(_cache_file(folder)).get("hashes", {}).get(name)
    return known is not None and _file_hash(folder.path / name) != known


def require_known_numbers(folder: ModelFolder) -> None:
    """Raise ModelError where weights hold NaN or infinity; files that were seen to hold none are not read again."""
    cache_file = _cache_file(folder)
    stamps = _stamps(folder)
    looked = {"stamps": stamps, "quantisation": keccak256(canonical_json(folder.quantisation)).hex()}
    if _read_cache(cache_file).get("numbers") == looked:
        return
    require_numbers(raw_tensors(folder.path), method=str((folder.quantisation or {}).get("quant_method", "")))
    _require_still(folder, stamps)
    # Where nothing can be written beside the folder, each start looks again.
    with suppress(OSError):
        _write_cache(cache_file, {"version": 1, **_read_cache(cache_file), "numbers": looked})


def _cache_file(folder: ModelFolder) -> Path:
    return folder.place.parent / f".{folder.place.name}.roots.json"


def _root(folder: ModelFolder, dtype: int, progress: Progress, version: int) -> Hash32:
    if version == WEIGHTS_VERSION:
        return weights_root(raw_tensors(folder.path), folder.quantisation, progress)
    from troth.node.models.weights import weight_rows

    return numbers_root(weight_rows(folder, dtype), dtype, progress)


def _stamps(folder: ModelFolder) -> dict[str, list[int]]:
    return {path.name: list(stamp(path)) for path in folder.weight_files}


def _file_hash(path: Path, progress: Progress = lambda size: None) -> str:
    hashed = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            hashed.update(piece)
            progress(len(piece))
    return hashed.hexdigest()


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        cache = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        # A missing or damaged cache costs a few seconds of hashing and nothing else.
        return {}
    return cache if isinstance(cache, dict) and cache.get("version") == 1 else {}


def _write_cache(path: Path, cache: dict[str, Any]) -> None:
    """For anybody to read: it lies beside a model's files, which several nodes may share."""
    with replacing(path, mode=0o666) as file:
        file.write(json.dumps(cache).encode())
