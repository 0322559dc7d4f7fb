"""How surely verdicts tell honest nodes from cheats: hostile prompts, money-saving cheats, evidence over many tasks."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

from benchmarks.figures import Figure
from benchmarks.judging import corpus
from benchmarks.judging.alarms import false_convictions
from benchmarks.judging.convictions import WITHIN, Task, Trace, convicted
from benchmarks.judging.corpus import Group
from benchmarks.judging.costs import judging_share
from benchmarks.judging.every_id import EveryId
from benchmarks.judging.framing import framing_figures
from benchmarks.judging.hunt import Find, Hunt
from benchmarks.judging.programs import Programs, program_figures
from benchmarks.judging.recording import PLAIN, Recorder
from benchmarks.judging.runs import Arrays, run_all
from benchmarks.judging.scoring import TEXTS
from benchmarks.judging.steering import steering_figures
from benchmarks.judging.tiles import tile_figures
from benchmarks.judging.verdicts import refused_texts, verdicts
from benchmarks.judging.ways import HONEST, cheats
from benchmarks.weights import weights
from troth.node.calibration.intervals import share
from troth.node.models.execution_class import SECOND_CUT, rough_class
from troth.node.models.report import describe_with_progress
from troth.node.models.thresholds import Thresholds, shipped_calibration
from troth.protocol.findings import HONEST_LOST, HONEST_RATIO, HONEST_SHARE
from troth.protocol.identifiers import model_id
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

DTYPES = ("float32", "bfloat16")
PARTS = ("honest", "ids", "hunt", "long", "programs", "framing", "cheats", "tiles", "steering", "costs", "alarms")

ASKED_FOR = frozenset({"ids", "hunt", "long", "programs"})
"""What runs for hours, or needs what was hunted before and vLLM."""


def measure(options: list[str]) -> list[Figure]:
    """The parts that are asked for; what the scratch folder holds is not run again."""
    torch.set_num_threads(1)
    asked = _parse(options)
    print(f"seed of prompts and draws: {corpus.SEED}", file=sys.stderr)
    figures: list[Figure] = []
    for dtype in (0, 1):
        if DTYPES[dtype] in asked.dtypes:
            figures += _of_class(dtype, asked)
    if "alarms" in asked.parts:
        figures += _alarms(asked.nodes, asked.tasks)
    return figures


def _parse(options: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench judging", description=__doc__)
    split = partial(str.split, sep=",")
    parser.add_argument("--parts", type=split, default=[part for part in PARTS if part not in ASKED_FOR])
    parser.add_argument("--dtypes", type=split, default=list(DTYPES))
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "troth-judging")
    parser.add_argument("--hunt", type=float, default=5.0, help="minutes")
    parser.add_argument("--ids", type=int, default=1 << 32, help="how many ids, of all in the order that was drawn")
    parser.add_argument("--finds", type=int, default=150, help="of the hunt, that other programs judge")
    parser.add_argument("--repeats", type=int, default=6, help="noise seeds a text")
    parser.add_argument("--fresh", action="store_true", help="cheats on prompts on which nothing was fixed")
    parser.add_argument("--saving", type=float, default=0.0, help="cheats that save so many per cent or more")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    return parser.parse_args(options)


def _of_class(dtype: int, asked: argparse.Namespace) -> Iterator[Figure]:
    folder = weights()
    descriptor = describe_with_progress(folder, DTYPES[dtype])
    shipped = shipped_calibration(Hash32(model_id(descriptor)), DTYPES[dtype])
    assert shipped is not None, "the class of this model ships with Troth"
    recorder = Recorder(folder, asked.scratch, dtype)
    if "honest" in asked.parts:
        yield from _honest(recorder, shipped.thresholds)
    if "ids" in asked.parts:
        ids = EveryId(folder, asked.scratch, dtype, shipped.thresholds, recorder.heads)
        yield from _ids(ids, dtype, asked.ids)
    if "hunt" in asked.parts:
        hunt = Hunt(folder, asked.scratch, dtype, shipped.thresholds, recorder.heads)
        yield from _hunted(hunt, dtype, asked.hunt)
    if "long" in asked.parts:
        hunt = Hunt(folder, asked.scratch, dtype, shipped.thresholds, recorder.heads, long=True)
        yield from _hunted(hunt, dtype, asked.hunt, "long prompts hunted")
    if "programs" in asked.parts and dtype:
        finds = Hunt(folder, asked.scratch, dtype, shipped.thresholds, recorder.heads).finds()
        rules = shipped.apply(rough_class(Hash32(model_id(descriptor)), dtype, DTYPES[dtype], candidates=2))
        yield from program_figures(Programs(folder, rules, asked.scratch / "programs.jsonl"), finds, asked.finds, _say)
    if "framing" in asked.parts and dtype:
        yield from framing_figures(recorder)
    if "cheats" in asked.parts:
        yield from _cheats(recorder, shipped.thresholds, asked)
    if "tiles" in asked.parts and dtype == 0:
        yield from tile_figures(recorder, shipped.thresholds)
    if "steering" in asked.parts:
        yield from steering_figures(recorder, shipped.thresholds)
    if "costs" in asked.parts:
        group = corpus.ordinary(folder)
        run_all(folder, recorder.shelf, [group], ())
        share_of = judging_share(recorder, group)
        what = "the prefills in both formats" if dtype else "a prefill"
        note = f"one look at states, tokens and own rows, over {what} of 111 positions with logits; processor time"
        yield Figure(f"judging over the prefill, {DTYPES[dtype]}", share_of, "%", reach=5, note=note)


def _honest(recorder: Recorder, cuts: Thresholds) -> Iterator[Figure]:
    """Hostile prompts, group by group and all together."""
    label, counts = DTYPES[recorder.dtype], np.zeros(4, dtype=int)
    for group in [*corpus.odd(recorder.folder), corpus.long(recorder.folder)]:
        scores = recorder.honest(group)
        found = [one for way in HONEST for one in verdicts(recorder.shelf, group, way.name, scores, cuts)]
        first, second = (sum(one.refused for one in found), sum(one.refused_twice for one in found))
        unsure = sum(one.cannot_tell for one in found)
        counts += (len(found), first, second, unsure)
        worst = max(max(one.states_again, one.text_again if one.told else 0.0) for one in found)
        note = (
            f"of {len(found)}; {first} at the first look, {unsure} cannot be told; worst score {worst:.2f} of the cut"
        )
        yield Figure(f"honest refused, {label}: {group.name}", second, "tasks", note=note)
    total, first, second, unsure = map(int, counts)
    note = f"of {total} (at most {100 * share(second, total).high:.2f} %); {first} at the first look, {unsure} not told"
    yield Figure(f"honest refused, {label}", second, "tasks", reach=0, note=note)


def _ids(ids: EveryId, dtype: int, most: int) -> Iterator[Figure]:
    prefilled, decoded = ids.run(_say, most)
    yield _found(f"honest refused, {DTYPES[dtype]}: every id prefilled", prefilled)
    yield _found(f"honest refused, {DTYPES[dtype]}: the worst ids and others decoded", decoded)


def _hunted(hunt: Hunt, dtype: int, minutes: float, what: str = "hunted") -> Iterator[Figure]:
    yield _found(f"honest refused, {DTYPES[dtype]}: {what}", hunt.run(60 * minutes, _say))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _found(name: str, finds: list[Find]) -> Figure:
    finds = [one for one in finds if not one.own]
    refused, first = sum(one.second > 1 for one in finds), sum(one.first > 1 for one in finds)
    worst, unsure = max(finds, key=lambda one: one.second), sum(one.cannot_tell for one in finds)
    beyond, counted = sum(one.held > SECOND_CUT / 1e6 for one in finds), sum(one.counts for one in finds)
    note = (
        f"of {len(finds):,} (at most {100 * share(refused, len(finds)).high:.3f} %); {first} at the first look, "
        f"{unsure} not told, {beyond} beyond the second cut, {counted} evidence; worst {worst.second:.2f} of the cut: "
        f"{worst.tokens[:6]}"
    )
    return Figure(name, refused, "tasks", reach=0, note=note)


def _cheats(recorder: Recorder, cuts: Thresholds, asked: argparse.Namespace) -> Iterator[Figure]:
    group = corpus.ordinary(recorder.folder, fresh=asked.fresh)
    # Lies about tokens are made with the first two.
    ways = [
        *PLAIN,
        *(one for index, one in enumerate(cheats(recorder.dtype)) if index < 2 or one.saves >= asked.saving),
    ]
    recorded, honest = recorder.cheats(group, ways, asked.repeats), None
    for way in ways:
        found = list(verdicts(recorder.shelf, group, way.name, recorded[0][0], cuts))
        refused = [one.refused_twice for one in found]
        seen = Trace(way.name, refused, [one.mean for one in found])
        honest = honest or seen
        tasks = [task for scores, turn in recorded for task in seen.tasks(recorder.dtype, scores, turn)]
        saves = "honest" if way in PLAIN else f"saves {way.saves:g} %"
        stake = [one.held > SECOND_CUT / 1e6 for one in found]
        note = f"{sum(refused)} of {len(refused)} refused by themselves, {_stake(stake)}; {saves}"
        yield _convicted(recorder, way.name, tasks, note)
    assert honest is not None
    yield from _texts(recorder, group, recorded, cuts, honest.ratios)


def _texts(
    recorder: Recorder,
    group: Group,
    recorded: list[tuple[Arrays, list[Sampling]]],
    cuts: Thresholds,
    honest: Sequence[float],
) -> Iterator[Figure]:
    """Lies about tokens over states whose mean noise ratios are ``honest``."""
    cut = cuts.margin_cut / 1e6
    for name, bent in product(TEXTS, (False, True) if recorder.dtype else (False,)):
        tasks, stake = list[Task](), list[bool]()
        for scores, turn in recorded:
            refused = refused_texts(group, scores, name, cut)
            tasks += Trace(name, refused, honest, bent=bent).tasks(recorder.dtype, scores, turn)
            strayed = scores[f"beyond/{name}"].any(axis=1) & (not bent)
            lost = refused_texts(group, scores, name, SECOND_CUT / 1e6 * cut)
            stake += [bool(one) for one in strayed | lost]
        alone = sum(task.refused for task in tasks)
        note = f"{alone} of {len(tasks)} refused by themselves, {_stake(stake)}"
        yield _convicted(recorder, name + (", rows bent" if bent else ""), tasks, note)


def _convicted(recorder: Recorder, name: str, tasks: list[Task], note: str) -> Figure:
    found = convicted(tasks, corpus.SEED)
    shares = ", ".join(f"{100 * share:.0f}" for share in found.within)
    within = f"95 % within {found.most:.0f}; {shares} % within {', '.join(map(str, WITHIN))}; "
    return Figure(f"tasks to conviction, {DTYPES[recorder.dtype]}: {name}", found.median, "tasks", note=within + note)


def _stake(beyond: Sequence[bool]) -> str:
    """Tasks beyond the second cut, for each of which the court takes stake, and how many that takes."""
    found = convicted([Task(one, ()) for one in beyond], corpus.SEED)
    after = f", after {found.median:.0f} tasks (95 % {found.most:.0f})" if found.share else ""
    return f"{sum(beyond)} beyond the second cut{after}"


def _alarms(nodes: int, tasks: int) -> Iterator[Figure]:
    for name, honest in (
        ("states", HONEST_RATIO),
        ("tokens, float32", HONEST_LOST),
        ("tokens, bfloat16", HONEST_SHARE),
    ):
        count = false_convictions(honest, nodes=nodes, tasks=tasks, seed=corpus.SEED)
        note = f"of {nodes:,} nodes at the bound of {honest:g}, {tasks:,} tasks each, looked at after every one"
        yield Figure(f"false convictions: {name}", count, "nodes", reach=0, note=note)
