"""A model's language side, its tokenizer, chat template and special tokens, checked against the chain and cached.

The descriptor on chain names the architecture as "family/<keccak of config>/<hash of tokenizer.json and template>"
(`language_hash`; the text after the slashes is 0x-prefixed hex), so a scheduler cannot hand out a tokenizer that
garbles prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from troth.chain.new_files import replace_file
from troth.client.errors import ModelUnavailable
from troth.client.template import Message, render
from troth.client.tokenizer_bounds import require_bounded
from troth.client.untrusted import bounded_recursion
from troth.protocol.architecture import language_hash, text_part, without_version
from troth.protocol.hashing import keccak256

LARGEST_FILES = 64 * 1024 * 1024
_NAMES = ("bos_token", "eos_token", "pad_token")


@dataclass(frozen=True, slots=True)
class LanguageFiles:
    """The three texts as the scheduler sends them; each is hashed exactly as it is."""

    tokenizer: str
    chat_template: str
    config: str

    @classmethod
    def from_json(cls, body: object) -> LanguageFiles:
        """Read an answer to GET /v1/models/{class}/tokenizer. Raises ModelUnavailable when a part is missing."""
        parts = body if isinstance(body, Mapping) else {}
        texts = [parts.get(name) for name in ("tokenizer", "chat_template", "config")]
        if not all(isinstance(text, str) for text in texts):
            raise ModelUnavailable(
                "The scheduler's tokenizer answer is incomplete", sorted(map(str, parts)), "Use another scheduler."
            )
        try:
            "".join(map(str, texts)).encode()
        except UnicodeEncodeError as error:
            what = "The scheduler's tokenizer answer is not UTF-8"
            raise ModelUnavailable(what, f"character {error.start}", "Use another scheduler.") from error
        return cls(*map(str, texts))


def check_files(files: LanguageFiles, architecture: str) -> None:
    """Compare both hashes with the descriptor's architecture string; raise ModelUnavailable on any difference."""
    config_hash = "0x" + keccak256(files.config.encode()).hex()
    tokenizer_hash = "0x" + language_hash(files.tokenizer.encode(), files.chat_template.encode()).hex()
    parts = without_version(architecture).split("/")
    expected = parts[1:] if len(parts) == 3 else ["unreadable", "unreadable"]
    for what, found, wanted in zip(
        ("config", "tokenizer or chat template"), (config_hash, tokenizer_hash), expected, strict=True
    ):
        if found != wanted.lower():
            raise ModelUnavailable(
                f"The model's {what} is not the one registered on chain",
                f"got {found}, the chain says {wanted}",
                "Do not use this scheduler for this model; nothing was sent or paid.",
            )


@dataclass(frozen=True, slots=True)
class Language:
    """Turns conversations into prompt tokens and output tokens into text."""

    tokenizer: Tokenizer
    chat_template: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    end_tokens: tuple[int, ...] = ()
    context: int = 0
    tokenizer_text: str = ""

    @classmethod
    def load(cls, files: LanguageFiles) -> Language:
        """Parse checked files. Raises ModelUnavailable when one does not parse."""
        try:
            with bounded_recursion():
                require_bounded(files.tokenizer)
            with _panics_told("does not load"):
                tokenizer = Tokenizer.from_str(files.tokenizer)
            # A tokenizer.json may carry settings of its training: they would cut or pad the question in silence.
            tokenizer.no_truncation()
            tokenizer.no_padding()
            with bounded_recursion():
                config = text_part(json.loads(files.config))
            special = {name: tokenizer.id_to_token(_first(config.get(f"{name}_id"))) for name in _NAMES}
            ends = _all(config.get("eos_token_id"))
            context = int(config.get("max_position_embeddings", 0))
        except ModelUnavailable:
            raise
        except Exception as error:  # the tokenizers package raises bare Exception
            raise ModelUnavailable("The model's tokenizer does not load", error, "Use another model.") from error
        known = {name: text for name, text in special.items() if text is not None}
        return cls(tokenizer, files.chat_template, known, ends, context, files.tokenizer)

    def prompt_tokens(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> tuple[int, ...]:
        """Tokens of a conversation in the model's own chat format, with tools if its template knows them."""
        text = render(self.chat_template, messages, self.special_tokens, tools)
        with _panics_told():
            return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """Text of some tokens (the Decoder of `troth.client.detokenizer`)."""
        with _panics_told():
            return str(self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))


@contextmanager
def _panics_told(what: str = "fails") -> Iterator[None]:
    """What goes wrong in the tokenizers package as ModelUnavailable. Its panics are no Exception, and end a program."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelUnavailable(f"The model's tokenizer {what}", str(error)[:200], "Use another model.") from error


def _all(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(token) for token in value) if isinstance(value, list) else (int(value),)


def _first(value: Any) -> int:
    # The tokenizer answers None for an id that no vocabulary has.
    return next(iter(_all(value)), 2**32 - 1)


class LanguageCache:
    """Checked files on disk, one folder per architecture hash, so that each is fetched once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, architecture: str) -> LanguageFiles | None:
        """Files stored for an architecture, checked again, or None when they are absent or were altered."""
        path = self._path(architecture)
        if not path.is_file() or path.stat().st_size > LARGEST_FILES:
            return None
        try:
            files = LanguageFiles.from_json(json.loads(path.read_text(encoding="utf-8")))
            check_files(files, architecture)
        except (ModelUnavailable, ValueError):
            # A damaged cache entry is fetched again; what is fetched is checked again too.
            return None
        return files

    def put(self, architecture: str, files: LanguageFiles) -> None:
        """Store checked files, whole or not at all."""
        path = self._path(architecture)
        path.parent.mkdir(parents=True, exist_ok=True)
        body = {"tokenizer": files.tokenizer, "chat_template": files.chat_template, "config": files.config}
        replace_file(path, json.dumps(body, ensure_ascii=False).encode())

    def _path(self, architecture: str) -> Path:
        return self._folder / f"{keccak256(architecture.encode()).hex()}.json"
