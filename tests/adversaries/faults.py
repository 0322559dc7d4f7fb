"""Faults that must end well, in the words of the plan, and the rows and tests that show each of them end.

Real processes are killed, cut off and filled up in the tests that are named; some faults are rows, since an adversary
makes them. A unit test holds that no word is left out, and that rows and tests exist.
"""

from __future__ import annotations

from adversaries import references as at
from adversaries.attacks import FAULTS_NETWORK, Attack

WORDS = (
    "kill -9 of scheduler, node, client, watcher before and after each step from order to acknowledgement and of a "
    "case; a chain that is away for an hour while questions are asked and answered; a reorganisation below an opening, "
    "a redemption, a case; a tab that closes under running orders; a scheduler that refuses a check, checks late, "
    "leaves a task out of its log, pays a node less, disappears; a node that signs and then shows other rows; two "
    "gateways with one tab; a wallet restored from a month-old backup (never acknowledges less than it did, never pays "
    "twice); disk full; windows that end while everybody was down."
)
KILLS, CLIENTS = "tests/unit/test_scheduler_orders_restart.py", "tests/unit/test_tabs_faults.py"
WATCHERS = "tests/integration/test_faults_of_watchers.py"


def _ends(words: str, *tests: str, rows: tuple[str, ...] = ()) -> Attack:
    return Attack(words, rows, tests, "" if rows else "no adversary has a part in it")


FAULTS = (
    _ends(
        "kill -9 of scheduler, node, client, watcher before and after each step from order to acknowledgement and of a "
        "case",
        f"{FAULTS_NETWORK}::test_killed_at_a_step_the_order_ends_and_nothing_is_lost",
        f"{WATCHERS}::test_a_watcher_that_is_killed_at_every_step_brings_its_case_to_the_end",
        f"{KILLS}::test_an_order_survives_a_kill_at_every_commit",
        f"{CLIENTS}::test_killed_at_any_step_the_order_ends_paid_exactly_once",
        "tests/unit/test_orders_restarts.py::test_a_check_goes_on_after_a_kill_at_any_step",
    ),
    _ends(
        "a chain that is away for an hour while questions are asked and answered",
        f"{FAULTS_NETWORK}::test_a_chain_that_is_away_while_questions_are_asked_loses_nothing",
    ),
    _ends(
        "a reorganisation below an opening, a redemption, a case",
        f"{at.TABS}::test_a_reorganisation_below_openings_opens_again_and_serves_nobody_meanwhile",
        f"{at.TABS}::test_a_reorganisation_below_a_redemption_pays_once",
        f"{at.CASES}::test_an_opening_that_a_reorganisation_took_away_is_made_again",
    ),
    _ends(
        "a tab that closes under running orders",
        f"{FAULTS_NETWORK}::test_a_tab_that_closes_under_running_orders_pays_what_was_served",
        rows=("a tab closed under its work", "orders on a closing tab"),
    ),
    _ends("a scheduler that refuses a check", rows=("refuses the check",)),
    _ends("checks late", rows=("checks late",)),
    _ends("leaves a task out of its log", rows=("leaves it out of its log",)),
    _ends("pays a node less", rows=("pays a node less", "pays its nodes nothing")),
    _ends(
        "disappears",
        f"{at.PROCESSES}::test_the_next_question_goes_to_the_second_tab_within_seconds",
    ),
    _ends("a node that signs and then shows other rows", rows=("signs and shows other rows",)),
    _ends(
        "two gateways with one tab",
        f"{FAULTS_NETWORK}::test_a_gateway_and_a_second_one_share_a_tab_while_one_is_killed",
        "tests/unit/test_tabs_failover.py::test_two_processes_give_no_number_out_twice",
        rows=("one wallet on two machines",),
    ),
    _ends(
        "a wallet restored from a month-old backup (never acknowledges less than it did, never pays twice)",
        f"{FAULTS_NETWORK}::test_a_wallet_from_an_old_backup_goes_on_and_pays_nothing_twice",
        rows=("a month-old backup",),
    ),
    _ends(
        "disk full",
        "tests/integration/test_faults_full_disks.py::"
        "test_with_a_full_disk_questions_fail_in_words_and_with_room_they_are_answered",
        f"{KILLS}::test_a_disk_that_is_full_for_a_while_takes_steps_again",
        "tests/unit/test_orders_restarts.py::test_a_full_disk_lets_nothing_leave",
        "tests/unit/test_tabs_settling.py::test_a_full_disk_sends_nothing",
    ),
    _ends(
        "windows that end while everybody was down",
        f"{FAULTS_NETWORK}::test_windows_that_end_while_everybody_is_down_cost_nobody_its_stake",
    ),
)
