"""Classifiers that try to tell challenges from users' requests, in NumPy: each is given two sets of rows or texts to
learn from, and answers how likely others are of the first kind.

A logistic regression over features, squares and products; trees that are boosted (Friedman 2001, logistic loss,
features cut at quantiles); and a least-squares classifier over words, pairs of words and groups of characters.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

NEWTON_STEPS, RIDGE, WIDE_RIDGE, WIDE = 12, 1e-3, 0.3, 64
"""Of the logistic regression: from ``WIDE`` features on there are no products of them, and more of a ridge."""
ROUNDS, DEPTH, RATE, CUTS, LEAST = 80, 3, 0.1, 24, 16.0
"""Of boosted trees; ``CUTS`` of a feature, and ``LEAST`` rows' weight in a leaf (a leaf's curvature counts 4 times)."""
PLACES, GROUPS, GRAM_RIDGE = 1 << 14, (2, 3, 4, 5), 1.0
"""Of words and groups of characters: hashed to so many places."""

Features = NDArray[np.float64]


def told_apart(first: Features, second: Features) -> float:
    """Per cent of pairs in which the one of the first kind has the higher score; a draw counts half."""
    above, level = (first[:, None] > second[None, :]).mean(), (first[:, None] == second[None, :]).mean()
    return 100 * float(above + level / 2)


# ---- logistic regression


def logistic(ours: Features, theirs: Features) -> Callable[[Features], Features]:
    """Logistic regression by Newton's method, over standardised features, their squares and products."""
    rows = np.concatenate([ours, theirs])
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    expanded = _expanded((rows - mean) / spread)
    labels = np.concatenate([np.ones(len(ours)), np.zeros(len(theirs))])
    weights = np.zeros(expanded.shape[1])
    ridge = (WIDE_RIDGE if rows.shape[1] > WIDE else RIDGE) * len(rows) * np.eye(expanded.shape[1])
    for _ in range(NEWTON_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(expanded @ weights, -50, 50)))
        slope = expanded.T @ (labels - chances) - ridge @ weights
        curve = (expanded * (chances * (1 - chances))[:, None]).T @ expanded + ridge
        weights += np.linalg.solve(curve, slope)
    return partial(_scores, mean, spread, weights)


def _scores(mean: Features, spread: Features, weights: Features, rows: Features) -> Features:
    return np.asarray(_expanded((rows - mean) / spread) @ weights)


def _expanded(rows: Features) -> Features:
    if rows.shape[1] > WIDE:
        return np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
    first, second = np.triu_indices(rows.shape[1])
    return np.concatenate([np.ones((len(rows), 1)), rows, rows[:, first] * rows[:, second]], axis=1)


# ---- boosted trees


@dataclass(frozen=True, slots=True)
class _Split:
    """Rows of which a feature's bin is at most ``cut`` go to the first; a leaf is a number."""

    feature: int
    cut: int
    low: _Split | float
    high: _Split | float


def boosted(ours: Features, theirs: Features) -> Callable[[Features], Features]:
    """Boosted trees of a small depth, by Newton's steps on the logistic loss."""
    rows = np.concatenate([ours, theirs])
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, CUTS + 1)[1:-1])) for column in rows.T]
    binned, labels = _binned(edges, rows), np.concatenate([np.ones(len(ours)), np.zeros(len(theirs))])
    scores, trees = np.zeros(len(rows)), list[_Split | float]()
    for _ in range(ROUNDS):
        chances = 1 / (1 + np.exp(-scores))
        tree = _grown(binned, labels - chances, chances * (1 - chances), DEPTH)
        scores += RATE * _walked(tree, binned)
        trees.append(tree)
    return lambda asked: np.sum([_walked(tree, _binned(edges, asked)) for tree in trees], axis=0)


def _binned(edges: Sequence[Features], rows: Features) -> NDArray[np.int64]:
    return np.stack([np.searchsorted(cuts, column) for cuts, column in zip(edges, rows.T, strict=True)], axis=1)


def _grown(binned: NDArray[np.int64], slope: Features, curve: Features, depth: int) -> _Split | float:
    """The tree whose leaves lower the loss most, one split after another."""
    leaf = float(slope.sum() / (curve.sum() + 1.0))
    best, found = 1e-9, None
    for feature in range(binned.shape[1]) if depth else ():
        slopes = np.cumsum(np.bincount(binned[:, feature], slope, CUTS))
        curves = np.cumsum(np.bincount(binned[:, feature], curve, CUTS))
        rest_slopes, rest_curves = slopes[-1] - slopes, curves[-1] - curves
        gains = slopes**2 / (curves + 1) + rest_slopes**2 / (rest_curves + 1) - slopes[-1] ** 2 / (curves[-1] + 1)
        gains[(4 * curves < LEAST) | (4 * rest_curves < LEAST)] = 0.0
        if gains.max() > best:
            best, found = float(gains.max()), (feature, int(gains.argmax()))
    if found is None:
        return leaf
    low = binned[:, found[0]] <= found[1]
    halves = (_grown(binned[side], slope[side], curve[side], depth - 1) for side in (low, ~low))
    return _Split(*found, *halves)


def _walked(tree: _Split | float, binned: NDArray[np.int64]) -> Features:
    if isinstance(tree, float):
        return np.full(len(binned), tree)
    low = binned[:, tree.feature] <= tree.cut
    return np.where(low, _walked(tree.low, binned), _walked(tree.high, binned))


# ---- words and groups of characters


def worded(ours: Sequence[str], theirs: Sequence[str]) -> Callable[[Sequence[str]], Features]:
    """Least squares with a ridge over words, pairs of words and groups of characters, the rarer the heavier.

    As many rows as texts are solved for, not as many as there are groups.
    """
    texts = [*ours, *theirs]
    counted = [_counted(text) for text in texts]
    seen = np.zeros(PLACES)
    for places, _ in counted:
        seen[places] += 1
    weights = np.log((1 + len(texts)) / (1 + seen))
    rows = _dense(counted, weights)
    labels = np.where(np.arange(len(texts)) < len(ours), 1.0, -1.0)
    kernel = rows @ rows.T
    solved = np.linalg.solve(kernel + GRAM_RIDGE * np.eye(len(texts)), labels - labels.mean())
    direction = rows.T @ solved.astype(rows.dtype)
    return lambda asked: np.asarray(_dense([_counted(text) for text in asked], weights) @ direction, dtype=np.float64)


def _counted(text: str) -> tuple[NDArray[np.int64], Features]:
    """Places of a text's groups, and how often each is there, as logarithms."""
    words, padded = text.split(), f"^{text}$"
    groups = [*words, *map(" ".join, itertools.pairwise(words))]
    groups += [padded[at : at + size] for size in GROUPS for at in range(len(padded) - size + 1)]
    places, counts = np.unique([zlib.crc32(group.encode()) % PLACES for group in groups], return_counts=True)
    return places, 1 + np.log(counts)


def _dense(counted: Sequence[tuple[NDArray[np.int64], Features]], weights: Features) -> NDArray[np.float32]:
    rows = np.zeros((len(counted), PLACES), np.float32)
    for row, (places, values) in zip(rows, counted, strict=True):
        row[places] = values * weights[places]
    return np.asarray(rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9), np.float32)
