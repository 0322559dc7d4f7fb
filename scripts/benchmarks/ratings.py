"""What credits make of honest nodes and of cheats.

SmolLM2-135M in bfloat16 writes answers as it is, with int8 weights and activations, with int4 weights, as another model
(int4, six of thirty layers left out), and greedily. Temperatures and lengths are drawn as challenges' are, but for 160
tokens at most; a text ends where the model ends it. The members' own copy scores them by one prefill. An epoch takes
eight such texts, which are about as many tokens as four whole answers, as few as members score. A score is what 35
epochs of resampled texts come to by the contract's rules; evidence goes on from epoch to epoch.

What was written and scored is kept below `cache/ratings`, for each way and group of prompts by itself: a run that was
cut off goes on. Remove that folder to measure anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.committee.challenges import FEWEST_TOKENS, OUTPUT_MEAN, OUTPUT_SPREAD, TEMPERATURES
from troth.node.calibration import tampering
from troth.node.calibration.conditions import CHEAT, HONEST, Condition
from troth.node.calibration.prompts import buckets
from troth.node.calibration.stack import Stack
from troth.node.models.folder import ModelFolder
from troth.protocol.credit import NO_EVIDENCE, CreditRule, Surprises, credit_of, surprises_of
from troth.protocol.reputation import ONE, newcomer, paper_rules, rated
from troth.protocol.types import ZERO_ADDRESS, Segment

CACHE = Path(__file__).resolve().parents[2] / "cache" / "ratings"
PROMPTS, COPIES, TOKENS = 64, 4, 160
"""Prompts, texts of each, and tokens of a text at most."""
TEXTS, EPOCHS, RUNS = 8, 35, 2000
"""Texts of an epoch, epochs of a run, and runs of each node."""
RULES = replace(paper_rules(1800, 0), initial=ONE // 2)


def _another(stack: Stack) -> None:
    tampering.quantise_weights(stack, 4)
    tampering.skip_layers(stack, frozenset(range(24, 30)))


NODES: tuple[tuple[Condition, float], ...] = (
    (Condition("honest", HONEST), 0.9),
    (Condition("W8A8", CHEAT, tampering.int8_activations), 0.4),
    (Condition("int4", CHEAT, partial(tampering.quantise_weights, bits=4)), 0.4),
    (Condition("another model", CHEAT, _another), 0.4),
    (Condition("greedy", CHEAT, text="greedy"), 0.4),
)
GROUPS = {"honest": 4, "W8A8": 4}
"""Groups of 16 prompts whose texts are written, one for whoever is not named: close ones want more of them."""
HELD_OUT = 3
"""The group whose texts were written when rule and limits had been chosen; it is shown by itself, too."""


def measure() -> list[Figure]:
    """A score for each kind of node, by both rules, and how many honest nodes are banned."""
    figures = []
    for condition, reach in NODES:
        texts = [text for group in range(GROUPS.get(condition.name, 1)) for text in _kept(condition, group)]
        figures += _figures(condition.name, texts, reach)
        if condition.name in GROUPS:
            figures += _figures(f"{condition.name}, held-out prompts alone", _kept(condition, HELD_OUT), reach)
    return figures


def _figures(name: str, texts: Sequence[Surprises], reach: float) -> list[Figure]:
    whole, paper = credit_of(texts), credit_of(texts, CreditRule.PAPER)
    source = np.random.default_rng(35)
    scores = [_run(texts, source) for _ in range(RUNS)]
    each = f"{len(texts)} texts, {whole.tokens:,} tokens"
    note = f"credit {whole.mean:.3f}, z {whole.z:+.1f} over {each}; 1 / PPL {paper.mean:.3f}"
    mean = float(np.mean([score for score, _ in scores]))
    found = [Figure(f"{name} after {EPOCHS} epochs, entropy-normalised (SmolLM2)", mean, "", None, reach, note)]
    banned = sum(least < RULES.bar / ONE for _, least in scores)
    wanted = 0 if name.startswith("honest") else None
    return [*found, Figure(f"{name}: ever below the bar, of {RUNS} runs", banned, "", None, wanted)]


def _run(texts: Sequence[Surprises], source: np.random.Generator) -> tuple[float, float]:
    """The score in the end, and the least one."""
    standing, least, evidence = newcomer(RULES, ZERO_ADDRESS), ONE, NO_EVIDENCE
    for epoch in range(EPOCHS):
        credit = credit_of([texts[one] for one in source.integers(0, len(texts), TEXTS)], before=evidence)
        evidence = credit.evidence
        standing = rated(standing, credit.value, epoch, RULES)
        least = min(least, standing.score)
    return standing.score / ONE, least / ONE


# ---- texts, written once


def _kept(condition: Condition, group: int) -> list[Surprises]:
    """The scored texts of a group of prompts, from its file if there is one."""
    path = CACHE / f"{condition.name.replace(' ', '-')}-{group}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new.npz")
        with torch.inference_mode():
            rows = np.stack([_row(text) for text in _written(weights(), condition, group)])
        np.savez_compressed(fresh, rows=rows)
        fresh.replace(path)
    return [_text(row) for row in np.load(path)["rows"]]


def _row(text: Surprises) -> NDArray[np.float64]:
    """Four numbers a token, filled up with NaN."""
    row = np.full((4, TOKENS), np.nan)
    for line, values in zip(row, (text.surprise, text.entropy, text.variance, text.plain), strict=True):
        line[: len(values)] = values
    return row


def _text(row: NDArray[np.float64]) -> Surprises:
    return Surprises(*row[:, ~np.isnan(row[0])])


def _written(folder: ModelFolder, condition: Condition, group: int) -> Iterator[Surprises]:
    (bucket,) = [one for one in buckets(folder, PROMPTS) if one.index == group]
    writer, reference = Stack(folder, torch.bfloat16), Stack(folder, torch.bfloat16)
    if condition.change is not None:
        condition.change(writer)
    prompts = torch.from_numpy(np.repeat(bucket.tokens, COPIES, axis=0))
    source = np.random.default_rng([35, group])
    asked = source.choice(list(TEMPERATURES), len(prompts), p=np.array(list(TEMPERATURES.values())) / 10) / 1e6
    drawn = source.lognormal(math.log(OUTPUT_MEAN) - OUTPUT_SPREAD**2 / 2, OUTPUT_SPREAD, len(prompts))
    most = np.clip(drawn.round(), FEWEST_TOKENS, TOKENS).astype(int)
    tokens = _decoded(writer, prompts, np.zeros_like(asked) if condition.text == "greedy" else asked, group)
    ends = {int(folder.text_config["eos_token_id"])}
    for prompt, text, temperature, longest in zip(prompts, tokens, asked, most, strict=True):
        end = next((place + 1 for place, one in enumerate(text) if one in ends), TOKENS)
        yield _scored(reference, prompt, text[: min(end, longest)], float(temperature))


def _decoded(stack: Stack, prompts: torch.Tensor, temperatures: NDArray[np.float64], seed: int) -> list[list[int]]:
    """Texts of `TOKENS` tokens, each sampled at its temperature; 0 is greedy."""
    generator = torch.Generator().manual_seed(seed)
    heat, cache, whole = torch.from_numpy(temperatures)[:, None], stack.cache(), Segment(0, stack.total)
    states, chosen = stack.forward(stack.embed(prompts), whole, cache), list[torch.Tensor]()
    for place in range(TOKENS):
        logits = stack.logits(states[:, -1]).double()
        noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator, dtype=torch.float64)))
        chosen.append((logits + heat * noise).argmax(dim=1))
        states = stack.forward(stack.embed(chosen[-1][:, None]), whole, cache, prompts.shape[1] + place)
    return torch.stack(chosen, dim=1).tolist()  # type: ignore[no-any-return]


def _scored(reference: Stack, prompt: torch.Tensor, text: Sequence[int], temperature: float) -> Surprises:
    """By one prefill of prompt and text, as members do."""
    tokens = torch.cat([prompt, torch.tensor(text[:-1], dtype=prompt.dtype)])[None]
    states = reference.forward(reference.embed(tokens), Segment(0, reference.total))
    return surprises_of(reference.logits(states[0, len(prompt) - 1 :]).numpy(), text, temperature)
