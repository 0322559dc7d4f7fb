"""A language of bytes: a token for each, and one that ends the answer; and the model that speaks it."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from troth.client.language import Language, LanguageFiles
from troth.protocol.hashing import keccak256
from troth.protocol.types import ZERO_HASH, ModelDescriptor

END = 256
VOCABULARY = 257
TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


def tokenizer() -> Tokenizer:
    """A token per byte, and one that ends the answer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    assert made.add_special_tokens(["<|end|>"]) == 1
    return made


def language_files(**config: Any) -> LanguageFiles:
    """What a scheduler serves for the byte tokenizer."""
    return LanguageFiles(
        tokenizer().to_str(),
        TEMPLATE,
        json.dumps({"eos_token_id": END, "max_position_embeddings": 512} | config),
    )


LANGUAGE = Language.load(language_files())


def tokens_of(text: str) -> list[int]:
    """Tokens of an answer, the end token included."""
    return [*LANGUAGE.tokenizer.encode(text, add_special_tokens=False).ids, END]


def architecture(files: LanguageFiles) -> str:
    both = (files.tokenizer + files.chat_template).encode()
    return f"toy/0x{keccak256(files.config.encode()).hex()}/0x{keccak256(both).hex()}"


MODEL = ModelDescriptor(architecture(language_files()), 2, 16, VOCABULARY, 0, ZERO_HASH)
