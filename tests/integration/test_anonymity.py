"""Nobody sees the client's address beside its prompt: real processes in namespaces, every packet captured and opened.

Whoever looks here hears every cable and holds the TLS keys of every link. Times and sizes are not looked at: they do
tell (docs/reference/overlay.md, "What this does not protect from").
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.anonymity import leaks
from support.anonymity.destination import PIECES
from support.anonymity.namespaces import unavailable
from support.anonymity.recording import (
    CLIENT,
    DESTINATION,
    PIPE,
    PLACES,
    RELAYS,
    Recording,
    Run,
    record,
)

pytestmark = [pytest.mark.slow, pytest.mark.namespaces]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    if reason := unavailable():
        pytest.skip(reason)
    folder: Path = tmp_path_factory.mktemp("anonymity")
    print(f"capture and keys are in {folder}")
    return record(folder)


@pytest.fixture
def honest(recording: Recording) -> Run:
    return recording.runs["honest"]


def test_the_answer_arrived_and_every_packet_was_captured(recording: Recording, honest: Run) -> None:
    answer = honest.secrets["answer"].decode()
    assert honest.answer == "".join(f"{number} {answer} " for number in range(PIECES))
    assert recording.lost == 0
    assert set(honest.observed.links) == PLACES.pairs
    # Set-up, a prompt and an answer in pieces went over each of the sixteen links.
    assert min(len(link.units) for link in honest.observed.links.values()) > PIECES


def test_the_client_talks_to_its_guards_alone_and_the_destination_to_proxies(honest: Run) -> None:
    assert leaks.partners(honest.observed, CLIENT) == PLACES.guards
    assert leaks.partners(honest.observed, DESTINATION) == PLACES.proxies
    # No relay has both for neighbours.
    assert leaks.partners(honest.observed, CLIENT).isdisjoint(leaks.partners(honest.observed, DESTINATION))
    assert leaks.strangers(honest.observed, PLACES) == []
    assert leaks.without_tls(honest.observed) == []


def test_no_packet_holds_the_prompt_or_the_answer(honest: Run) -> None:
    assert leaks.in_packets(honest.observed, honest.secrets) == []


def test_nor_does_anything_inside_the_links_tls(honest: Run) -> None:
    assert leaks.in_cells(honest.observed, honest.secrets | {"client's address": CLIENT.encode()}) == []


def test_no_two_links_carry_equal_ids(honest: Run) -> None:
    assert leaks.equal_identities(honest.observed) == []


def test_no_two_links_carry_equal_bytes(honest: Run) -> None:
    assert leaks.equal_bytes(honest.observed) == []
    assert leaks.equal_records(honest.observed) == []


def test_guards_know_the_address_the_destination_knows_the_prompt_and_nobody_knows_both(honest: Run) -> None:
    """Read out of each process's memory while the answer is under way."""
    address = {"client's address"}
    expected = {name: address if name.startswith("guard") else set() for name in RELAYS}
    assert honest.known == expected | {"destination": {"prompt", "answer"}}


def test_the_application_is_told_no_address_and_logs_name_nobody(recording: Recording, honest: Run) -> None:
    assert honest.application["client"] is None
    assert honest.application["headers"] == 0
    for name, log in recording.logs.items():
        assert log
        assert CLIENT not in log, name
        if name != "destination":
            assert not any(secret.decode() in log for secret in honest.secrets.values()), name


# -- the same questions about clients and relays that do say too much -------------------------------------------------


def test_a_client_that_goes_straight_to_the_destination_is_noticed(recording: Recording) -> None:
    run = recording.runs["direct"]
    assert leaks.strangers(run.observed, PLACES) == [f"{DESTINATION} talks to {CLIENT}"]
    assert leaks.without_tls(run.observed) == [f"{CLIENT} dials {DESTINATION} without TLS"]
    assert leaks.in_packets(run.observed, run.secrets) == ["prompt is in a packet"]


def test_a_prompt_that_proxies_can_read_is_noticed(recording: Recording) -> None:
    run = recording.runs["unsealed"]
    deliveries = [frozenset((path[-1], DESTINATION)) for path in PLACES.paths[:2]]
    assert leaks.in_packets(run.observed, run.secrets) == []
    assert sorted(leaks.in_cells(run.observed, run.secrets)) == sorted(
        f"prompt is in what {'–'.join(sorted(ends))} carries" for ends in deliveries
    )
    (shared,) = leaks.equal_bytes(run.observed)
    assert all(address in shared for ends in deliveries for address in ends)
    assert {name for name in RELAYS if "prompt" in run.known[name]} == {"proxy0", "proxy1"}


def test_a_relay_that_passes_bytes_on_unchanged_is_noticed(recording: Recording) -> None:
    run = recording.runs["piped"]
    assert leaks.partners(run.observed, PIPE) == {CLIENT, RELAYS["guard0"]}
    for question in (leaks.equal_identities, leaks.equal_bytes, leaks.equal_records):
        (shared,) = question(run.observed)
        assert shared.count(PIPE) == 2
