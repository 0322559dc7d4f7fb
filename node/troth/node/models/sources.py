"""A folder of a model as somebody else left it: where its files are, and whether they are what they seem.

It may be any folder with safetensors, or one of Hugging Face's cache: `models--…/snapshots/REVISION` with links into
`models--…/blobs`, and into nothing else. Weights are taken over without copying where the file system can: as a
reflink, which shares blocks until one of both changes, or as a hard link, of which size and time are noted: who writes
into the source changes the model, too (`changed_links`). Other files are small, and copied: a
tokenizer that is changed in place at its source would let this node mask other tokens than all others. Pickles are not
touched: reading one runs it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from troth.node.errors import ModelError
from troth.node.models.folder import REQUIRED, ModelFolder
from troth.node.models.quantised import require_named, unpacked
from troth.node.models.taking import WEIGHTS, open_source
from troth.node.models.tensor_files import BITS, INDEX, PICKLES, RawTensor, raw_tensors, weight_files
from troth.node.models.texts import read_text, without_doubles
from troth.node.models.weights import FLOATS
from troth.protocol.architecture import architecture_name
from troth.protocol.chat_templates import TEMPLATE_FILE

TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", TEMPLATE_FILE, "generation_config.json")
OTHER_SOURCE = "Fetch the model again from its source."
LONGEST_REVISION = 1 << 10
CACHED = "models--"
"""Begins the name of a repository's folder in Hugging Face's cache."""
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
LINKS = ".links.json"
Mark = tuple[int, int]
"""Size in bytes, and when it was written in nanoseconds: what changes with a file's content."""


def cached_repository(source: str) -> Path | None:
    """The folder of `ORG/NAME` in Hugging Face's cache, wherever the environment says that it is; None where there is
    none."""
    if not REPOSITORY.fullmatch(source):
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = os.environ.get("HF_HOME") or Path(cache) / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    found = hub / (CACHED + source.replace("/", "--"))
    return found if found.is_dir() else None


def usual_name(source: str) -> str:
    """What a model is called in the home folder where nothing else is said: as its file, folder or repository is."""
    path = Path(source).expanduser()
    repositories = [part for part in path.parts if part.startswith(CACHED)]
    named = repositories[-1].rpartition("--")[2] if repositories else path.resolve().name
    return named.removesuffix(".gguf").lower()


def source_folder(path: Path) -> Path:
    """The folder with the files: `path`, or the snapshot of a repository in Hugging Face's cache.

    Raises:
        ModelError: there are several snapshots, and none of them is called main.
    """
    snapshots = path / "snapshots"
    if not snapshots.is_dir():
        return path
    main = path / "refs" / "main"
    # A link would lead to what is no part of the repository.
    found = sorted(one for one in snapshots.iterdir() if one.is_dir() and not one.is_symlink())
    name = read_text(main, LONGEST_REVISION).strip() if main.is_file() else None
    if named := [one for one in found if one.name == name]:
        return named[0]
    if len(found) != 1:
        shown = ", ".join(one.name for one in found[:3])
        value = f"{len(found)} ({shown}), and main is {name or 'none'}" if found else f"0, and main is {name or 'none'}"
        remedy = f"Name one below {snapshots}." if found else _fetched_again(path)
        raise ModelError("the cache has not one snapshot of this model", value, remedy)
    return found[0]


def require_there(folder: Path, names: Sequence[str]) -> None:
    """Raise ModelError if a file that is needed, or one of ``names``, is not in a folder that somebody else left.

    In Hugging Face's cache that is mostly a download that ended early: its files end in `.incomplete`.
    """
    lacking = [name for name in dict.fromkeys((*REQUIRED, *names)) if not (folder / name).exists()]
    if not any(name.endswith(WEIGHTS) for name in names):
        lacking.append(f"*{WEIGHTS}")
    if not lacking:
        return
    repository = folder.parent.parent
    begun = len([*(repository / "blobs").glob("*.incomplete")]) if folder.parent.name == "snapshots" else 0
    what = (
        "the download of this model is not finished: a file is missing" if begun else "a file of the model is missing"
    )
    value = f"{', '.join(lacking[:3])} in {folder}"
    value += f", and {begun} of {repository / 'blobs'} are .incomplete" if begun else ""
    raise ModelError(what, value, _fetched_again(repository))


def _fetched_again(repository: Path) -> str:
    """What to do about a repository of the cache, or about any other folder, in which something is missing."""
    if not repository.name.startswith(CACHED):
        return OTHER_SOURCE
    return f"Run: hf download {repository.name.removeprefix(CACHED).replace('--', '/', 1)}; then import it again."


def wanted_files(folder: Path) -> list[str]:
    """Names of the files that make the model, without a second copy of its weights; small ones come first.

    Raises:
        ModelError: there are only pickles, or several chat templates.
    """
    weights = weight_files(folder)
    if not weights:
        pickles = sorted(one.name for one in folder.iterdir() if one.suffix in PICKLES)
        if pickles:
            what = "the weights are pickles, which run code when they are read"
            raise ModelError(what, ", ".join(pickles[:3]), "Use a model with *.safetensors.")
    # Before other templates are left behind, of which one may be meant.
    _ = ModelFolder(folder).chat_template
    texts = [name for name in (*TEXT_FILES, INDEX) if os.path.lexists(folder / name)]
    return [*texts, *(path.name for path in weights)]


def mark(path: Path) -> Mark:
    """That of a file now."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


class Stamp(NamedTuple):
    """Of a file: `size` in bytes, times in nanoseconds, and its inode.

    When it was `written` anybody can set; when it was last `changed` nobody can, but a new link changes it as well. So
    another stamp is a reason to look into the file, and the same one is none.
    """

    size: int
    written: int
    changed: int
    inode: int


def stamp(path: Path) -> Stamp:
    """That of a file now."""
    found = path.stat()
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def note_links(folder: Path) -> None:
    """Write down how the hard links of a folder are now."""
    links = {path.name: mark(path) for path in sorted(folder.glob(f"*{WEIGHTS}")) if path.stat().st_nlink > 1}
    if links:
        (folder / LINKS).write_text(json.dumps(links), encoding="utf-8")


def changed_links(folder: Path) -> list[str]:
    """Weights that were changed at their source after the import, by name."""
    try:
        noted = json.loads((folder / LINKS).read_text(encoding="utf-8"))
        return [name for name, was in noted.items() if list(mark(folder / Path(name).name)) != was]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError("the notes on linked weights cannot be read", str(error), "Import the model again.") from error


def require_own_files(folder: ModelFolder) -> None:
    """Raise ModelError unless each file of a model is one, and lies in its folder, or in the cache that this is of."""
    with open_source(folder.path) as opened:
        for name in wanted_files(folder.path):
            with opened.file(name):
                pass


def require_sound(folder: ModelFolder) -> Sequence[RawTensor]:
    """Its tensors, once files, headers, index, tokenizer and all shapes are what they should be; reads no numbers.

    Raises:
        ModelError: what is wrong, and where.
    """
    require_own_files(folder)
    _require_tokenizer(folder)
    return require_weights(folder)


def require_weights(folder: ModelFolder) -> Sequence[RawTensor]:
    """The tensors of a folder, once their names, dtypes and shapes are those of the model that config.json describes.

    Raises:
        ModelError: what is wrong, and where.
    """
    import torch

    from troth.node.engine.decoder import Decoder
    from troth.node.models.checkpoint import Checkpoint

    tensors = raw_tensors(folder.path)
    if unknown := next((one for one in tensors if one.dtype not in BITS), None):
        what = "a tensor has a dtype that safetensors has not"
        raise ModelError(what, f"{unknown.name}: {unknown.dtype}", OTHER_SOURCE)
    settings = folder.quantisation
    quantised = None if settings is None else unpacked(tensors, settings)
    shapes = {one.name: one.shape for one in tensors} if quantised is None else quantised.shapes
    decoder = Decoder(folder, torch.bfloat16, torch.device("cpu"))
    checkpoint = Checkpoint(shapes, decoder.model, decoder.rooms)
    checkpoint.require_whole(shapes, decoder.tied)
    used = checkpoint.sources(lambda _name: True) - (frozenset() if quantised is None else quantised.made.keys())
    if other := next((one for one in tensors if one.name in used and one.dtype not in FLOATS), None):
        what = "config.json says nothing of a quantisation of this weight, and it is none of floats"
        raise ModelError(what, f"{other.name}: {other.dtype}", OTHER_SOURCE)
    if quantised is not None:
        require_named(quantised, checkpoint.linear(decoder.multiplies))
    return tensors


def _require_tokenizer(folder: ModelFolder) -> None:
    vocabulary = int(folder.text_config["vocab_size"])
    try:
        ids = _token_ids(json.loads(folder.tokenizer_json, object_pairs_hook=without_doubles))
        # Of other texts than UTF-8, no model has an identifier.
        architecture_name({}, folder.tokenizer_json, folder.chat_template)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ModelError("tokenizer.json cannot be read", f"{type(error).__name__}: {error}", OTHER_SOURCE) from error
    if not ids:
        raise ModelError("tokenizer.json has no vocabulary", str(folder.place), OTHER_SOURCE)
    if min(ids) < 0:
        raise ModelError("tokenizer.json gives a token that is no number of one", min(ids), OTHER_SOURCE)
    if max(ids) >= vocabulary:
        what = f"the tokenizer is another model's: the vocabulary has {vocabulary} tokens, it gives"
        raise ModelError(what, max(ids), OTHER_SOURCE)
    ends = folder.text_config.get("eos_token_id")
    for end in ends if isinstance(ends, list) else [ends]:
        if isinstance(end, int) and end not in ids:
            raise ModelError("the tokenizer is another model's: it has no end token", end, OTHER_SOURCE)


def _token_ids(tokenizer: Any) -> dict[int, str]:
    """The text of each token by its number; raises ModelError where readers would take one for two."""
    vocabulary = (tokenizer.get("model") or {}).get("vocab") or {}
    if isinstance(vocabulary, dict):
        placed = [(int(one), text) for text, one in vocabulary.items()]
    else:
        placed = [(number, str(one[0])) for number, one in enumerate(vocabulary)]
    texts: dict[int, str] = {}
    for number, text in placed:
        if (other := texts.setdefault(number, text)) != text:
            raise ModelError("tokenizer.json gives two tokens one number", _shown(number, other, text), OTHER_SOURCE)
    numbers = {text: number for number, text in texts.items()}
    for added in tokenizer.get("added_tokens") or ():
        number, text = int(added["id"]), str(added["content"])
        if (other := texts.setdefault(number, text)) != text:
            what = "an added token of tokenizer.json has another token's number"
            raise ModelError(what, _shown(number, other, text), OTHER_SOURCE)
        if (known := numbers.setdefault(text, number)) != number:
            what = "an added token of tokenizer.json has another number in its vocabulary"
            raise ModelError(what, _shown(known, text, number), OTHER_SOURCE)
    return texts


def _shown(*values: object) -> str:
    return ", ".join(ascii(value)[:80] for value in values)
