"""What credits make of honest nodes and of cheats.

SmolLM2-135M in bfloat16 writes answers as it is, with int8 weights and activations, with int4 weights, as another model
(int4, six of thirty layers left out), and greedily; and with what only long windows of states show: int8 in half of the
layers, and caches of int8 and of float8. Temperatures and lengths are drawn as challenges' are, but for 160
tokens at most; a text ends where the model ends it. The members' own copy scores them by one prefill. An epoch takes
twelve such texts, which are as many tokens as four whole answers, as few as members score. A score is what 35
epochs of resampled texts come to by the contract's rules; evidence goes on from epoch to epoch.

A run asks 420 texts, and there are fewer. Had each place the token only that was written there, what is by chance above
or below what it should be would be so again in every epoch, and add up as a cheat does. So each place is drawn again in
every epoch: the node's own distribution there gives tokens, of which each draw takes one. What is left is what the
node's arithmetic does.

What was written and scored is kept below `cache/ratings`, for each way and group of prompts by itself: a run that was
cut off goes on. Remove that folder to measure anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.judging import shortcuts
from benchmarks.weights import weights
from troth.committee.rating.challenges import FEWEST_TOKENS, OUTPUT_MEAN, OUTPUT_SPREAD, TEMPERATURES
from troth.node.calibration import tampering
from troth.node.calibration.conditions import CHEAT, HONEST, SLOW, Condition
from troth.node.calibration.prompts import BUCKET, Bucket, buckets, buckets_of
from troth.node.calibration.stack import Stack
from troth.node.models.folder import ModelFolder
from troth.protocol.credit import NO_EVIDENCE, CreditRule, Surprises, credit_of, pooled_z, surprises_of
from troth.protocol.reputation import ONE, newcomer, paper_rules, rated
from troth.protocol.types import ZERO_ADDRESS, Segment

CACHE = Path(__file__).resolve().parents[2] / "cache" / "ratings"
PROMPTS, TOKENS, DRAWN_AGAIN = 64, 160, 64
"""Prompts that ship, tokens of a text at most, and tokens that each place of it is drawn from."""
TEXTS, EPOCHS, RUNS = 12, 35, 2000
"""Texts of an epoch, epochs of a run, and runs of each node."""
COLDEST = 1e-6
"""A temperature at which the first token is drawn alone."""
RULES = replace(paper_rules(1800, 0), initial=ONE // 2)


_INT8_GROUPS = partial(tampering.rounded, bits=8, group=32)


def _another(stack: Stack) -> None:
    tampering.quantise_weights(stack, 4)
    tampering.skip_layers(stack, frozenset(range(24, 30)))


NODES: tuple[tuple[Condition, float | None], ...] = (
    (Condition("honest", HONEST), 0.9),
    (Condition("W8A8", CHEAT, tampering.int8_activations), 0.4),
    (Condition("int4", CHEAT, partial(tampering.quantise_weights, bits=4)), 0.4),
    (Condition("other model", CHEAT, _another), 0.4),
    (Condition("greedy", CHEAT, text="greedy"), 0.4),
    (Condition("int8 cache in groups of 32", SLOW, partial(tampering.integer_cache, bits=8, group=32)), None),
    (Condition("int8 in half the layers", SLOW, partial(tampering.rounded_weights, rule=_INT8_GROUPS, every=2)), None),
    (Condition("fp8 cache", SLOW, tampering.fp8_cache), None),
    (Condition("fp8 cache without scales", SLOW, shortcuts.fp8_cache), None),
)
"""Ways of writing, and the score that is set out to be reached: at least for the honest one, at most for cheats."""
TRIAL = {"honest": 0.95, "W8A8": 0.30, "int4": 0.19}
"""Scores in a trial that came before."""
GROUPS = {"honest": 4, "W8A8": 2, "int8 cache in groups of 32": 2, "int8 in half the layers": 2, "fp8 cache": 2}
"""Groups of 16 prompts whose texts are written, one for whoever is not named: close ones want more of them."""
HELD_OUT, HELD_OUT_NODES = range(4, 6), {"honest", "W8A8"}
"""Groups of prompts that people typed, whose texts were written when rule and limits had been chosen; they are shown by
themselves, too, for some of the nodes."""
KEPT_OUT = Path(__file__).parent / "kept_out_prompts.txt"
HELD_OUT_LENGTHS = range(40, 160)
"""Characters. Prompts of a group are cut to the shortest of it."""


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A text as it was scored, and the surprises of what else its node could have drawn, shape (draws, tokens)."""

    scored: Surprises
    others: NDArray[np.float64]

    def drawn(self, source: np.random.Generator) -> Surprises:
        """The same places with tokens that are drawn again."""
        places = np.arange(self.others.shape[1])
        return replace(self.scored, surprise=self.others[source.integers(0, len(self.others), len(places)), places])

    def expected(self) -> Surprises:
        """What the node's distributions make of it on average."""
        return replace(self.scored, surprise=self.others.mean(axis=0))


def measure() -> Iterator[Figure]:
    """A score for each kind of node, by both rules, and how many honest nodes are banned."""
    for condition, reach in NODES:
        texts = [text for group in range(GROUPS.get(condition.name, 1)) for text in _kept(condition, group)]
        yield from _figures(condition.name, texts, reach)
        if condition.name in HELD_OUT_NODES:
            held_out = [text for group in HELD_OUT for text in _kept(condition, group)]
            yield from _figures(f"{condition.name}, held-out prompts alone", held_out, reach)


def _figures(name: str, texts: Sequence[WrittenText], reach: float | None) -> list[Figure]:
    scored = [one.scored for one in texts]
    whole, paper = credit_of(scored), credit_of(scored, CreditRule.PAPER)
    expected = pooled_z([one.expected() for one in texts])
    source = np.random.default_rng(35)
    scores = [_run(texts, source) for _ in range(RUNS)]
    each = f"{len(texts)} texts, {whole.tokens:,} tokens"
    found = f"credit {whole.mean:.3f}, z {whole.z:+.1f} over {each}, without chance {expected:+.1f}"
    mean = float(np.mean([score for score, _ in scores]))
    note = f"{found}; 1 / PPL {paper.mean:.3f}"
    score = Figure(
        f"{name} after {EPOCHS} epochs, entropy-normalised (SmolLM2)", mean, "", TRIAL.get(name), reach, note
    )
    banned = sum(least < RULES.bar / ONE for _, least in scores)
    wanted = 0 if name.startswith("honest") else None
    return [score, Figure(f"{name}: banned in {RUNS:,} bootstraps", banned, "", None, wanted)]


def _run(texts: Sequence[WrittenText], source: np.random.Generator) -> tuple[float, float]:
    """The score in the end, and the least one."""
    standing, least, evidence = newcomer(RULES, ZERO_ADDRESS), ONE, NO_EVIDENCE
    for epoch in range(EPOCHS):
        drawn = [texts[one].drawn(source) for one in source.integers(0, len(texts), TEXTS)]
        credit = credit_of(drawn, before=evidence)
        evidence = credit.evidence
        standing = rated(standing, credit.value, epoch, RULES)
        least = min(least, standing.score)
    return standing.score / ONE, least / ONE


# ---- texts, written once


def _kept(condition: Condition, group: int) -> list[WrittenText]:
    """The scored texts of a group of prompts, from its file if there is one."""
    path = CACHE / f"{condition.name.replace(' ', '-')}-{group}-drawn.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new.npz")
        with torch.inference_mode():
            rows = np.stack([_row(text) for text in _written(weights(), condition, group)])
        np.savez_compressed(fresh, rows=rows)
        fresh.replace(path)
    return [_text(row) for row in np.load(path)["rows"]]


def _row(text: WrittenText) -> NDArray[np.float32]:
    """The numbers of each token, filled up with NaN."""
    row = np.full((4 + DRAWN_AGAIN, TOKENS), np.nan, dtype=np.float32)
    one = text.scored
    values = np.stack([one.surprise, one.entropy, one.variance, one.plain, *text.others])
    row[:, : values.shape[1]] = values
    return row


def _text(row: NDArray[np.float32]) -> WrittenText:
    values = row[:, ~np.isnan(row[0])].astype(np.float64)
    return WrittenText(Surprises(*values[:4]), values[4:])


def _prompts(folder: ModelFolder, group: int) -> Bucket:
    """The ones that ship, and after them those that people typed."""
    shipped = buckets(folder, PROMPTS)
    if group < len(shipped):
        return shipped[group]
    typed = [line for line in KEPT_OUT.read_text("utf-8").splitlines() if len(line) in HELD_OUT_LENGTHS]
    chosen = np.random.default_rng(52).choice(len(typed), BUCKET * len(HELD_OUT), replace=False)
    return buckets_of(folder, [typed[place] for place in chosen])[group - len(shipped)]


def _written(folder: ModelFolder, condition: Condition, group: int) -> Iterator[WrittenText]:
    bucket = _prompts(folder, group)
    writer, reference = Stack(folder, torch.bfloat16), Stack(folder, torch.bfloat16)
    if condition.change is not None:
        condition.change(writer)
    prompts = torch.from_numpy(bucket.tokens)
    source = np.random.default_rng([35, group])
    asked = source.choice(list(TEMPERATURES), len(prompts), p=np.array(list(TEMPERATURES.values())) / 10) / 1e6
    drawn = source.lognormal(math.log(OUTPUT_MEAN) - OUTPUT_SPREAD**2 / 2, OUTPUT_SPREAD, len(prompts))
    most = np.clip(drawn.round(), FEWEST_TOKENS, TOKENS).astype(int)
    tokens, others = _decoded(writer, prompts, np.zeros_like(asked) if condition.text == "greedy" else asked, group)
    ends = {int(folder.text_config["eos_token_id"])}
    for row, (prompt, temperature) in enumerate(zip(prompts, asked, strict=True)):
        end = next((place + 1 for place, one in enumerate(tokens[row].tolist()) if one in ends), TOKENS)
        length = min(end, int(most[row]))
        yield _scored(reference, prompt, tokens[row, :length], others[row, :length], float(temperature))


def _decoded(
    stack: Stack, prompts: torch.Tensor, temperatures: NDArray[np.float64], seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of `TOKENS` tokens, each sampled at its temperature, and what else could stand at each place; 0 is greedy.

    Shapes: (texts, tokens) and (texts, tokens, draws).
    """
    generator = torch.Generator().manual_seed(seed)
    cache, whole = stack.cache(), Segment(0, stack.total)
    heat = torch.from_numpy(np.maximum(temperatures, COLDEST))[:, None]
    states, drawn = stack.forward(stack.embed(prompts), whole, cache), list[torch.Tensor]()
    for place in range(TOKENS):
        chances = torch.softmax(stack.logits(states[:, -1]).double() / heat, dim=1)
        drawn.append(torch.multinomial(chances, 1 + DRAWN_AGAIN, replacement=True, generator=generator))
        states = stack.forward(stack.embed(drawn[-1][:, :1]), whole, cache, prompts.shape[1] + place)
    found = torch.stack(drawn, dim=1)
    return found[:, :, 0], found[:, :, 1:]


def _scored(
    reference: Stack, prompt: torch.Tensor, text: torch.Tensor, others: torch.Tensor, temperature: float
) -> WrittenText:
    """By one prefill of prompt and text, as members do."""
    states = reference.forward(reference.embed(torch.cat([prompt, text[:-1]])[None]), Segment(0, reference.total))
    logits = reference.logits(states[0, len(prompt) - 1 :])
    surprises = -torch.log_softmax(logits.double() / temperature, dim=1).gather(1, others)
    return WrittenText(surprises_of(logits.numpy(), text.tolist(), temperature), surprises.numpy().T)
