"""Adversaries as real processes on real weights: each is caught by what must catch it, and only the guilty pay.

One network serves the module. `make adversaries` plays all of them one by one and prints the table of
docs/adversaries.md; here the slow ones are left out and several are played at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from adversaries.expectations import broken
from adversaries.registry import PLAYED, Adversary
from adversaries.stage import AdversaryStage, adversary_stage
from adversaries.trial import Finding, play_all

from troth.client.money import parse_amount
from troth.demo import acts, cli

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)]

REDUCED = tuple(adversary for adversary in PLAYED if adversary.reduced)
TOGETHER = 4
SECONDS = 1500.0
"""For all trials together: less than the test's own limit, so that a trial that gets stuck is named."""


@dataclass
class Season:
    """The network, and what every adversary came to."""

    stage: AdversaryStage
    findings: dict[str, Finding]


@pytest.fixture(scope="module")
def season(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Season]:
    with adversary_stage(tmp_path_factory.mktemp("adversaries")) as stage:
        findings = asyncio.run(play_all(stage, REDUCED, TOGETHER, seconds=SECONDS))
        yield Season(stage, {found.adversary.name: found for found in findings})


@pytest.mark.parametrize("adversary", REDUCED, ids=lambda adversary: adversary.name)
def test_it_ends_as_stated(season: Season, adversary: Adversary) -> None:
    assert broken(season.findings[adversary.name]) == []


def test_the_client_paid_for_accepted_answers_alone(season: Season) -> None:
    done = cli.run(season.stage.network.password_file, "client", "balance", "--home", season.stage.client.home.root)
    paid = sum(found.cost for found in season.findings.values() if found.outcome == "accepted")
    assert int(done["escrow_wei"]) == parse_amount(acts.DEPOSIT) - paid
