"""The simulations against sums and cases that can be worked out by hand."""

from __future__ import annotations

from math import exp, log2
from xml.etree import ElementTree

import numpy as np
import pytest
from research.anonymity import churn, confidentiality, entropy, plots, threshold
from research.anonymity.lines import Line, Point


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def test_k_of_n_is_the_sum_of_appendix_a4(generator: np.random.Generator) -> None:
    p = 0.97**3
    assert float(threshold.arrives(3, 4, np.array(0.03))) == pytest.approx(4 * p**3 * (1 - p) + p**4)
    assert threshold.simulated(3, 4, 0.03, generator, 20_000) == pytest.approx(0.959, abs=0.006)


def test_nobody_bad_leaves_full_entropy_and_everybody_bad_none(generator: np.random.Generator) -> None:
    assert entropy.appendix_a5(0, 3, 3, generator, trials=10) == 1
    assert entropy.bayes(0, 4, generator, linked=True, trials=10) == 1
    assert entropy.bayes(1, 4, generator, linked=True, trials=10) == 0


def test_predecessors_are_counted_once_each() -> None:
    cases = {"100 100": 1, "010 000": 1, "101 000": 2, "111 011": 2, "000 000": 0}
    for drawn, expected in cases.items():
        bad = np.array([[[relay == "1" for relay in path] for path in drawn.split()]])
        assert entropy.predecessors(bad).tolist() == [expected], drawn


def test_one_suspect_of_even_chance_leaves_half_of_the_entropy_and_a_bit() -> None:
    value = entropy.entropy_of(np.array([1.0]), 0.5, 10_000)
    assert value[0] == pytest.approx((1 + 0.5 * log2(9999)) / log2(10_000))


def test_the_paper_s_entropy_comes_out_at_three_paths_of_three(generator: np.random.Generator) -> None:
    assert entropy.appendix_a5(0.05, 3, 3, generator) == pytest.approx(0.965, abs=0.002)


def test_the_paper_s_confidentiality_comes_out_at_four_and_six_relays() -> None:
    assert (confidentiality.fitted_relays(0.88), confidentiality.fitted_relays(0.73)) == (4, 6)


def test_nodes_drawn_one_by_one_agree_with_the_sum(generator: np.random.Generator) -> None:
    drawn = confidentiality.simulated(0.1, 4, 3, 3, generator, trials=4000)
    assert drawn == pytest.approx(float(confidentiality.unread(np.array(0.1), 4, 3, 3)), abs=0.015)


def test_survival_without_repair_is_the_closed_form(generator: np.random.Generator) -> None:
    survival, delivery = churn.simulated(4, 3, generator, repaired=False, trials=4000)
    assert np.abs(survival - churn.closed_form(4, 3, churn.MINUTES)).max() < 0.03
    assert (delivery <= survival).all()


def test_a_repaired_path_stands_for_its_share_of_the_time(generator: np.random.Generator) -> None:
    survival, _ = churn.simulated(1, 1, generator, repaired=True, trials=4000)
    life = 1 / (3 * churn.RATE)
    assert survival[5:].mean() == pytest.approx(life / (life + churn.REPAIR), abs=0.005)


def test_the_rate_for_a_share_gives_that_share() -> None:
    rate = churn.rate_for(0.8, 4, 3, 15)
    assert float(threshold.at_least(3, 4, np.array(exp(-3 * rate * 15)))) == pytest.approx(0.8)


def test_long_lives_have_the_mean_of_the_churn_and_old_nodes_stay_longer() -> None:
    minutes = np.linspace(0, 5000, 200_001)
    lives = churn.LongLived()
    assert np.trapezoid(lives.stays(minutes, 0), minutes) == pytest.approx(1 / churn.RATE, rel=0.01)
    assert lives.stays(np.array(15.0), 1440) > lives.stays(np.array(15.0), 60) > lives.stays(np.array(15.0), 0)


def test_a_page_is_well_formed_and_shows_every_line_and_point() -> None:
    x = np.linspace(0, 1, 5)
    svg = plots.chart([Line("a < b", x, x), Line("flat", x, x * 0 + 0.5, paper=True)], [Point("dot", 0.5, 0.7)], "x")
    root = ElementTree.fromstring(svg)
    assert len(root.findall("polyline")) == 2
    assert {"a < b", "flat", "dot", "x"} <= {text.text for text in root.findall("text")}
