"""The prompts that a calibration runs: 64 texts of many kinds, in buckets of equal length.

Equal lengths let a bucket run as one batch without padding, which would change the numbers that are to be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.protocol.tokens import Sampling

BUCKET = 16
"""Prompts that run together."""
SAMPLINGS = (Sampling(0.0, 1.0), Sampling(0.7, 0.9), Sampling(1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Prompts of one length: ``tokens`` is prompts x positions; prompt i is sampled by ``samplings[i]``."""

    index: int
    first: int
    tokens: NDArray[np.int64]
    samplings: tuple[Sampling, ...]


def texts() -> list[str]:
    """The prompts as they ship."""
    return files(__package__).joinpath("prompts.txt").read_text(encoding="utf-8").splitlines()


def buckets(folder: ModelFolder, count: int) -> list[Bucket]:
    """The first `count` prompts in the model's own chat template, sorted by length, each cut to its bucket's shortest.

    Raises:
        ModelError: more prompts than there are, or none.
    """
    available = texts()
    if not 0 < count <= len(available):
        raise ModelError("so many prompts do not ship with Troth", count, f"Use 1 to {len(available)}.")
    return buckets_of(folder, available[:count])


def buckets_of(folder: ModelFolder, texts: Sequence[str]) -> list[Bucket]:
    """The same of other prompts, one or more."""
    tokenised = sorted(_tokenise(folder, texts), key=len)
    made = []
    for index, start in enumerate(range(0, len(texts), BUCKET)):
        group = tokenised[start : start + BUCKET]
        # The end is kept: it is where the template asks for the answer.
        tokens = np.array([tokens[-len(group[0]) :] for tokens in group], dtype=np.int64)
        samplings = tuple(SAMPLINGS[(start + offset) % len(SAMPLINGS)] for offset in range(len(group)))
        made.append(Bucket(index, start, tokens, samplings))
    return made


def _tokenise(folder: ModelFolder, texts: Iterable[str]) -> Iterator[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder.path)
    for text in texts:
        if not folder.chat_template:
            yield list(tokenizer(text)["input_ids"])
            continue
        asked = [{"role": "user", "content": text}]
        rendered = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
        yield list(tokenizer(rendered, add_special_tokens=False)["input_ids"])
