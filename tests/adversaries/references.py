"""Adversaries that other tests play: on the contracts without a network, or against one service with toy models.

Each names the tests that show the attack fail, as "path::name". A unit test checks that they exist.
"""

from __future__ import annotations

from dataclasses import dataclass

MARKET = "contracts/test/market"
BANK, COURT, OPEN, PARTIES = (
    f"{MARKET}/{name}.t.sol" for name in ("BankAttacks", "AttacksCourt", "AttacksOpen", "AttacksParties")
)
DRAWS, EVIDENCE, OUTCOMES, OPENING = (
    f"{MARKET}/{name}.t.sol" for name in ("Draws", "EvidenceNodes", "CourtOutcomes", "CourtOpening")
)
OBJECTED, WORDS, MONEY = (f"{MARKET}/{name}.t.sol" for name in ("BankObjections", "AttacksWords", "AttacksMoney"))
COURT_DRAW, COMMITMENTS, REVEALS, STEPS = (
    f"{MARKET}/{name}.t.sol" for name in ("CourtDraw", "CourtCommitments", "CourtReveals", "CourtSteps")
)
CHECKS, CLASSES, GAS = (f"{MARKET}/{name}.t.sol" for name in ("SummonsCheck", "Classes", "CourtGas"))
TABS = "tests/integration/test_scheduler_tabs.py"
NODE = "tests/integration/test_node_on_tabs.py"
OBJECTIONS = "tests/integration/test_client_objections.py"
TOKENS = "tests/integration/test_wrong_tokens.py"
RING = "tests/integration/test_demo_court.py"
COURT_ROWS = "tests/unit/test_scheduler_court.py"
CASES = "tests/integration/test_cases_court.py"
PIPELINES = "tests/integration/test_cases_pipelines.py"
CONVICTIONS = "tests/integration/test_cases_convictions.py"
LOGS = "tests/unit/test_market_audit_logs.py"
RULES = "tests/unit/test_market_convictions.py"
ECONOMY = "tests/unit/test_bench_economy.py"
REFUSALS = "tests/unit/test_scheduler_refusals.py"
FAULTS = "tests/unit/test_tabs_faults.py"
FAILOVER = "tests/unit/test_tabs_failover.py"
PROCESSES = "tests/integration/test_failover_network.py"
TERMS = "tests/unit/test_tabs_terms.py"
JUDGING = "tests/unit/test_node_judging.py"
GRAMMARS = "tests/unit/test_orders_grammar.py"


@dataclass(frozen=True, slots=True)
class Referenced:
    """One that tests elsewhere play."""

    name: str
    caught_by: str
    tests: tuple[str, ...]


def _by(name: str, caught_by: str, *tests: str) -> Referenced:
    return Referenced(name, caught_by, tests)


REFERENCED = (
    _by(
        "a forged token, all others silent",
        "a proof",
        f"{TOKENS}::test_a_forged_token_convicts_alone_and_once",
        f"{TOKENS}::test_a_verifier_whose_verdict_lost_proves_it_by_what_it_kept",
    ),
    _by(
        "a ring of the inferencer and every drawn verifier",
        "a proof",
        f"{RING}::test_one_node_overturns_a_ring_that_every_check_believed",
    ),
    _by(
        "a proof copied by who is mined first",
        "the contract",
        f"{TOKENS}::test_a_copied_proof_convicts_the_same_node_once_and_pays_who_is_mined_first",
    ),
    _by(
        "a state that is no number",
        "a proof",
        f"{TOKENS}::test_a_row_that_is_no_number_convicts",
        f"{TOKENS}::test_numbers_that_are_no_state_convict_and_extremes_below_them_are_weighed",
    ),
    _by(
        "rows that a scheduler made up for a client",
        "a hash",
        f"{COURT_ROWS}::test_a_client_believes_only_the_rows_that_were_signed",
    ),
    _by(
        "a false accuser with any data",
        "the contract",
        f"{TOKENS}::test_no_other_data_makes_a_proof_and_the_python_rules_say_the_same",
        f"{TOKENS}::test_an_honest_token_stands_before_the_contract_whatever_rival_is_named",
    ),
    _by(
        "a near tie, shown as a forged token",
        "the slack",
        f"{TOKENS}::test_honest_answers_convict_nobody_even_on_near_ties",
    ),
    _by("heads that do not meet", "two words", f"{RULES}::test_a_draw_over_results_that_do_not_meet_convicts"),
    _by("two rows for one place", "the contract", f"{EVIDENCE}::test_TwoRowsAndTwoVerdictsCostLToo"),
    _by("two admissions or draws", "the contract", f"{RULES}::test_two_words_of_a_scheduler_convict_it"),
    _by(
        "a verdict over a copied trace",
        "the contract",
        f"{OPEN}::test_AVerifierThatCopiesAfterItsCommitmentIsPaidNothing",
    ),
    _by("every conviction, by a file", "the contract", f"{CONVICTIONS}::test_every_conviction_by_a_file"),
    _by(
        "rows withheld from reviewers",
        "the court",
        f"{PIPELINES}::test_a_scheduler_that_keeps_no_rows_is_convicted",
        f"{OUTCOMES}::test_rowsWithheldFromSomeReviewersSaveNobody",
    ),
    _by(
        "a node that keeps its rows back",
        "the court",
        f"{PIPELINES}::test_a_node_that_keeps_its_rows_back_is_convicted",
        f"{CASES}::test_a_node_that_shows_nothing_has_lost",
    ),
    _by("silent reviewers", "the court", f"{CASES}::test_silent_reviewers_pay_and_the_others_decide"),
    _by(
        "an honest node is accused",
        "the court",
        f"{CASES}::test_an_honest_node_is_upheld_and_the_opener_loses_its_bond",
    ),
    _by(
        "a case without data",
        "the court",
        f"{CASES}::test_who_opens_a_case_without_prompt_loses_it_and_the_leaf_stays_open",
    ),
    _by(
        "a front-run opening of a case",
        "the court",
        f"{OPENING}::test_aFrontRunOpeningLeavesTheRejectersTheirReward",
        f"{COURT}::test_AFriendThatOpensFirstOpensTheTrueCase",
    ),
    _by(
        "sham cases of friends",
        "the court",
        f"{COURT}::test_AFriendsCaseGivesACheatNothingBack",
        f"{COURT}::test_AnUpheldShamPaysItsOpenerNothing",
    ),
    _by(
        "letting a case lapse",
        "the court",
        f"{COURT}::test_LettingADrawLapseCostsTheBondAndFreesTheNode",
        f"{CASES}::test_a_case_that_nobody_carries_on_lapses_and_can_be_brought_again",
    ),
    _by(
        "joining after the verdict",
        "the draw",
        f"{COURT_DRAW}::test_whoJoinsAfterTheReferenceBlockJudgesNothing",
        f"{DRAWS}::test_JoiningAfterwardsChangesNothing",
    ),
    _by("leaving around a case", "the draw", f"{PARTIES}::test_WhoJoinsAndLeavesChangesNoPastDraw"),
    _by("twenty addresses of one owner", "the draw", f"{DRAWS}::test_TwentyAddressesOfOneOwnerGainNothing"),
    _by("two results, on chain", "the contract", f"{EVIDENCE}::test_TwoResultsForOnePlaceCostL"),
    _by("words over two results of a node", "nobody is framed", f"{WORDS}::test_VerdictsOverTwoResultsFrameNobody"),
    _by("a silent verifier", "a summons", f"{TABS}::test_a_silent_verifier_pays_and_the_next_one_is_drawn_on_chain"),
    _by("a friend's silence after a check", "the court", f"{OPEN}::test_AFriendsSilenceUndoesNoCheck"),
    _by(
        "a payer that never acknowledges",
        "a claim",
        f"{TABS}::test_vouchers_are_redeemed_and_what_is_left_is_claimed_shown_and_paid",
    ),
    _by(
        "a scheduler that never pays a node",
        "a claim",
        f"{NODE}::test_unacknowledged_work_is_claimed_defended_and_paid",
    ),
    _by(
        "a promise without money",
        "the contract",
        f"{CONVICTIONS}::test_a_claim_left_short_convicts_the_scheduler_that_promised",
    ),
    _by(
        "a leaf by voucher and claim",
        "the contract",
        f"{BANK}::test_ALeafPaidByVoucherAndByClaim",
        f"{BANK}::test_ALeafPaidByClaimAfterAVoucher",
    ),
    _by(
        "a claim of what was refunded",
        "an objection",
        f"{BANK}::test_APayeeThatClaimsWhatWasRefunded",
        f"{OBJECTIONS}::test_a_payee_that_claims_what_was_refunded_loses_the_claim",
    ),
    _by(
        "a claim of an answer whose check was refused",
        "an objection",
        f"{OBJECTIONS}::test_a_check_that_was_refused_is_not_paid_by_a_claim",
    ),
    _by(
        "a node that claims more than it is owed",
        "an objection",
        "tests/unit/test_scheduler_objections.py::test_a_number_that_was_shown_is_not_asked_for_again",
        "tests/unit/test_scheduler_objections.py::test_every_late_objection_to_a_nodes_claim_is_struck_whoever_dies_between",
    ),
    _by("a tab drained by many claims", "the contract", f"{BANK}::test_ATabDrainedByManyClaims"),
    _by(
        "a claim of what nobody answered for", "the contract", f"{OPEN}::test_ANodeThatKeptItsResultsBackIsPaidNothing"
    ),
    _by(
        "an answer withheld and claimed late",
        "the court",
        f"{MONEY}::test_AnAnswerThatWasNeverSeenAndIsClaimedLateCanStillBeDoubted",
    ),
    _by("vouchers of a tab that was opened again", "the contract", f"{BANK}::test_VouchersOfAReopenedTabReplay"),
    _by("vouchers after a fork", "the contract", f"{BANK}::test_VouchersOfAForkThatChangedItsNumber"),
    _by("a tab that is closed under its orders", "a claim", f"{OBJECTED}::test_DepositsOfAClosedTabGoToThePayer"),
    _by("a front-run opening of a tab", "the contract", f"{BANK}::test_AnOpeningFrontRun"),
    _by("a front-run answer of a claim", "the contract", f"{BANK}::test_AnAnswerFrontRunByAnObjection"),
    _by("a task left out of the log", "the auditor", f"{LOGS}::test_a_promised_leaf_that_is_missing_is_found"),
    _by("every lie in a log's line", "the auditor", f"{LOGS}::test_every_lie_in_a_line_is_found"),
    _by(
        "a captured share, bursts, slow cheats", "nothing to gain", f"{ECONOMY}::test_every_coalition_loses_everywhere"
    ),
    _by(
        "a burst that is gone before its checks",
        "nothing to gain",
        f"{ECONOMY}::test_a_burst_is_void_within_the_lag_and_paid_without_one",
    ),
    _by("more open orders than stake covers", "the scheduler", f"{REFUSALS}::test_work_beyond_the_stake_is_refused"),
    _by(
        "a class without honest checks",
        "the client",
        f"{TERMS}::test_a_class_below_the_policy_must_be_named_by_its_user",
    ),
    _by(
        "a class whose cases fit in no call",
        "the contract",
        f"{CLASSES}::test_RefusesClassesWhoseCallsDoNotFit",
        f"{GAS}::test_noCallOfAnAllowedClassIsTooLargeToBeRelayed",
    ),
    _by("a check refused for a tenth of a cent", "a summons", f"{CHECKS}::test_ACheckRefusedForATenthOfACentCostsL"),
    _by(
        "summons by the hundred",
        "nothing to gain",
        f"{CHECKS}::test_SummonsByTheHundredCostTheSummonerAndPayTheAnswers",
    ),
    _by("cases by the hundred", "nothing to gain", f"{STEPS}::test_casesByTheHundredCostABondEach"),
    _by(
        "self-conviction",
        "the contract",
        f"{WORDS}::test_WhoConvictsItselfLosesNineTenths",
        f"{CHECKS}::test_WhoSummonsItselfLosesNineTenths",
    ),
    _by("a stolen tab key", "bounded by its tab", f"{BANK}::test_AStolenTabKeyTakesItsTabAtMost"),
    _by(
        "a client from an old backup",
        "the scheduler",
        f"{FAULTS}::test_a_wallet_from_an_old_backup_goes_on_and_never_pays_twice",
    ),
    _by(
        "a RANDAO of one's choice, or too old",
        "the contract",
        f"{COURT_DRAW}::test_aRandaoIsProvenFromHistoryAndNotForever",
    ),
    _by(
        "a reorganisation below a case or a tab",
        "nobody loses",
        f"{CASES}::test_an_opening_that_a_reorganisation_took_away_is_made_again",
        f"{TABS}::test_a_reorganisation_below_a_redemption_pays_once",
    ),
    _by(
        "a dead scheduler",
        "another one serves",
        f"{FAILOVER}::test_a_dead_scheduler_costs_the_next_question_less_than_five_seconds",
        f"{FAILOVER}::test_a_machine_that_stands_still_is_left_within_five_seconds",
        f"{PROCESSES}::test_the_next_question_goes_to_the_second_tab_within_seconds",
    ),
    _by(
        "a grammar that is ignored",
        "verdict: tokens",
        f"{JUDGING}::test_a_forged_or_ignored_mask_is_refused_in_every_class",
        f"{GRAMMARS}::test_a_node_that_leaves_the_rules_out_is_rejected_in_every_class",
        "tests/integration/test_grammar_model.py::test_what_the_grammar_forces_is_verified_and_a_lie_is_not",
    ),
    _by(
        "penalties left out",
        "verdict: tokens",
        f"{JUDGING}::test_penalties_that_are_ignored_cost_margins",
        f"{GRAMMARS}::test_a_node_that_leaves_the_rules_out_is_rejected_in_every_class",
    ),
    _by(
        "a grammar that hangs nodes",
        "gateway, scheduler and node refuse",
        "tests/unit/test_grammar.py::test_what_could_take_long_is_refused_before_it_is_compiled",
        "tests/unit/test_grammar.py::test_what_is_within_the_bounds_takes_no_time",
        f"{GRAMMARS}::test_a_grammar_that_does_not_compile_is_refused_before_anything_is_computed",
        f"{REFUSALS}::test_a_grammar_that_nodes_would_refuse_is_refused_before_they_are_drawn",
    ),
)
