"""Every attack that the market's specification names, and where it is played.

``FOUND`` are the rules that did not hold once (its section 9), ``NAMED`` the attacks that need a test which shows them
fail (its section 10), in its own words and in its order. Each is played by rows, that is by real processes, or shown by
tests where processes cannot play it; then the reason is told. A unit test holds that no word of either is left out, and
that the rows and tests exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from adversaries import references as at

FOUND = (
    "anyone's `commit` with any quorum replaced own posts: an honest verifier lost its pay, a rejection became "
    "undecided",
    "reviewers were drawn from members one block before the dispute: 60 seats joined after the verdict turned it",
    "client and scheduler ground order nonces: 10 framing draws in 22 s",
    "slots never shrink and draws walk vacancies: 8,000 empty slots and a review costs 28M gas, more than a "
    "transaction may",
    "one slot costs 138 units however much is at stake; one owner may fill a group",
    "the client took whatever class the scheduler offered: theta 1, one verifier, staffed by one owner",
    "the pay did not depend on positions: 1 and 4,096 cost the same",
    "letting a review lapse paid: coalition +2, client −30",
    "a node without stake stayed drawn, and its verifiers earned 0 of 18",
    "own reveals started at half the window, one a block: two honest parties were slashed",
    "a review of 31 with six tiles has 142–197 kB of calldata; nodes relay 128",
    "open and abort made nodes work unpaid",
    "equivocation reported by oneself before settlement left client and reviewers unpaid",
    "a cheat in one segment left honest nodes of others unpaid",
)
NAMED = (
    "A secret that is never revealed, revealed to the scheduler first, or reused; results withheld when the draw "
    "would hit (the client sees no result: no acknowledgement, a case for the answer it has); a result signed twice; "
    "heads that do not meet; other inputs shown to node and verifiers; rows withheld from verifiers or reviewers; "
    "verifiers that copy or always agree; a captured k; skipped parties; a scheduler that refuses checks, or checks "
    "with friends; odd prompts and chosen cases to frame; summons by the hundred; a check that is refused for a "
    "tenth of a cent; verifiers that do not bring a rejection; cases by the hundred; twenty addresses of one owner; "
    "joining or leaving around a case; bursts; slow cheats; self-conviction; a tab spent with two schedulers, closed "
    "under running orders, drained by many claims; a leaf paid by voucher and claim; vouchers that go backwards, from "
    "another deployment, for another asset; a payer that vanishes, a payee that claims what was refunded; many orders "
    "outstanding; a tab key that is stolen (loss bounded by its tab); a client restored from a month-old backup; "
    "RANDAO too old to prove, a fork that changes the header; a reorganisation below a case (wait for finality); "
    "front-run openings, reveals and claims; a dead scheduler; tokens that lie."
)


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack in the specification's words. ``reason``: why no row plays it; empty where one does."""

    words: str
    rows: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    reason: str = ""


def _played(words: str, *rows: str, tests: tuple[str, ...] = ()) -> Attack:
    return Attack(words, rows, tests)


def _shown(words: str, reason: str, *tests: str) -> Attack:
    return Attack(words, tests=tests, reason=reason)


TABS_TEST, TOKENS_TEST = f"{at.MARKET}/BankTabs.t.sol", f"{at.MARKET}/BankTokens.t.sol"
FAULTS_NETWORK = "tests/integration/test_faults_on_tabs.py"
HEADERS = f"{at.MARKET}/BlockHeader.t.sol"
ONE_CALL = "one transaction decides it, whoever sends it: no process has a part in it"
ELECTION = "its chance is one in many draws: a play would be luck, so that it is counted over all of them"
HUNDREDS = "a hundred of them differ from one in money alone, which is counted in gas"
PARAMETERS = "a network that can be deployed has no such class or window: construction refuses it"

ATTACKS = (
    # ---- section 9: rules that did not hold
    _shown(
        FOUND[0],
        ONE_CALL,
        f"{at.COMMITMENTS}::test_ownPostsAreNeverReplaced",
        f"{at.REVEALS}::test_nobodyIsLeftOutBeforeTheWindowEnds",
        f"{at.COMMITMENTS}::test_anIncompleteBatchWaitsForThreeQuarters",
    ),
    _shown(
        FOUND[1],
        "joining needs blocks between an order and its case, which the contract's tests choose",
        f"{at.COURT_DRAW}::test_whoJoinsAfterTheReferenceBlockJudgesNothing",
        f"{at.DRAWS}::test_JoiningAfterwardsChangesNothing",
    ),
    _shown(
        FOUND[2],
        ELECTION,
        f"{at.COURT_DRAW}::test_anotherRandaoDrawsOthers",
        f"{at.COURT}::test_VerifiersOfAnotherSecretOrdersOrResultsAreNone",
    ),
    _shown(
        FOUND[3],
        "what a draw costs is measured in gas, over groups that were large once",
        f"{at.DRAWS}::test_CostDoesNotGrowWithMembersOrHistory",
        f"{at.DRAWS}::test_ManySmallMembersDoNotStopACourt",
    ),
    _shown(
        FOUND[4],
        ELECTION,
        f"{at.DRAWS}::test_SeatsAreDrawnInProportion",
        f"{at.DRAWS}::test_TwentyAddressesOfOneOwnerGainNothing",
    ),
    _played(
        FOUND[5],
        "another class",
        tests=(
            f"{at.TERMS}::test_a_class_below_the_policy_must_be_named_by_its_user",
            f"{at.TERMS}::test_a_group_below_the_policy_is_refused_even_if_its_class_was_named",
        ),
    ),
    _played(FOUND[6], "too cheap", "claims more than it is worth", "pays half"),
    _shown(
        FOUND[7],
        "a case that everybody leaves alone ends by blocks that pass, which the contract's tests count",
        f"{at.COURT}::test_LettingADrawLapseCostsTheBondAndFreesTheNode",
        f"{at.STEPS}::test_anIdleCaseLosesItsBond",
        f"{at.CASES}::test_a_case_that_nobody_carries_on_lapses_and_can_be_brought_again",
    ),
    _shown(
        FOUND[8],
        "nodes of a network of processes have stake for many convictions, so that a convict plays on",
        f"{at.EVIDENCE}::test_AConvictedNodeBelowOneSeatIsOutOfAllGroups",
        f"{at.MARKET}/Standing.t.sol::test_AConvictionEvictsInTheSameCall",
    ),
    _shown(
        FOUND[9],
        ONE_CALL,
        f"{at.REVEALS}::test_ownRevealsInAnyOrderFromTheFirstBlock",
        f"{at.OUTCOMES}::test_silentReviewersPay",
    ),
    _shown(
        FOUND[10],
        PARAMETERS,
        f"{at.GAS}::test_noCallOfAnAllowedClassIsTooLargeToBeRelayed",
        f"{at.CLASSES}::test_RefusesClassesWhoseCallsDoNotFit",
    ),
    _played(FOUND[11], "pays its nodes nothing", "a payer that vanishes", "withholds its result"),
    _played(
        FOUND[12],
        "convicts itself",
        tests=(f"{at.EVIDENCE}::test_WhoConvictsItselfGetsATenthOfWhatIsThere",),
    ),
    _played(
        FOUND[13],
        "int8 weights",
        "refuses the check",
        tests=("tests/integration/test_tabs_pipelines.py::test_a_cheat_in_one_segment_is_rejected_and_pays_alone",),
    ),
    # ---- section 10: attacks that need a test
    _played("A secret that is never revealed", "secret never shown"),
    _played("revealed to the scheduler first", "secret shown first", "another secret"),
    _played("reused", "one secret for all"),
    _played(
        "results withheld when the draw would hit (the client sees no result: no acknowledgement, a case for the "
        "answer it has)",
        "results withheld",
        "withholds its result",
    ),
    _played("a result signed twice", "signs two results", "convicts twice"),
    _played("heads that do not meet", "results that do not meet"),
    _played("other inputs shown to node and verifiers", "other inputs for verifiers", "altered rows", "replayed rows"),
    _played(
        "rows withheld from verifiers or reviewers",
        "rows withheld",
        "dropped rows",
        "signs and shows other rows",
        tests=(f"{at.OUTCOMES}::test_rowsWithheldFromSomeReviewersSaveNobody",),
    ),
    _played(
        "verifiers that copy or always agree",
        "lazy, copied root",
        "copied opening",
        "always yes",
        "another trace than committed to",
    ),
    _played("a captured k", "2 of 3 collude", "3 of 3 collude", "3 of 3 collude, nobody doubts"),
    _played("skipped parties", "skipped parties", "admits twice"),
    _played(
        "a scheduler that refuses checks, or checks with friends",
        "refuses the check",
        "checks late",
        "friends check",
    ),
    _shown(
        "odd prompts and chosen cases to frame",
        "a toy has no odd prompts, and SmolLM2 in float32 has no noise to speak of: noise is made in the contract's "
        "tests, and measured in bfloat16",
        f"{at.OUTCOMES}::test_aClientsOwnChoiceBetweenTheCutsFillsNoPool",
        f"{at.OUTCOMES}::test_theReviewersOwnNoiseHoldsASlashOff",
        f"{at.OUTCOMES}::test_betweenTheCutsIsRefundedAndPooledUntilThePoolConvicts",
    ),
    _played(
        "summons by the hundred",
        "summons what came",
        "summons twice",
        tests=(f"{at.CHECKS}::test_SummonsByTheHundredCostTheSummonerAndPayTheAnswers",),
    ),
    _played(
        "a check that is refused for a tenth of a cent",
        "refuses the check",
        tests=(f"{at.CHECKS}::test_ACheckRefusedForATenthOfACentCostsL",),
    ),
    _played("verifiers that do not bring a rejection", "nobody brings it"),
    _shown("cases by the hundred", HUNDREDS, f"{at.STEPS}::test_casesByTheHundredCostABondEach"),
    _shown("twenty addresses of one owner", ELECTION, f"{at.DRAWS}::test_TwentyAddressesOfOneOwnerGainNothing"),
    _played(
        "joining or leaving around a case",
        "leaves before its conviction",
        tests=(
            f"{at.COURT_DRAW}::test_whoJoinsAfterTheReferenceBlockJudgesNothing",
            f"{at.PARTIES}::test_WhoJoinsAndLeavesChangesNoPastDraw",
        ),
    ),
    _shown(
        "bursts",
        ELECTION,
        f"{at.ECONOMY}::test_a_burst_is_void_within_the_lag_and_paid_without_one",
    ),
    _shown("slow cheats", ELECTION, f"{at.ECONOMY}::test_every_coalition_loses_everywhere"),
    _played("self-conviction", "convicts itself"),
    _played(
        "a tab spent with two schedulers",
        "one tab, two schedulers",
        "redeems another tab's word",
        tests=(f"{at.BANK}::test_ATabSpentWithTwoPayees",),
    ),
    _played("closed under running orders", "a tab closed under its work", "orders on a closing tab"),
    _played(
        "drained by many claims",
        "two claims at once",
        "claims by an old word",
        tests=(f"{at.BANK}::test_ATabDrainedByManyClaims",),
    ),
    _played("a leaf paid by voucher and claim", "by voucher and by claim", "claims what was paid"),
    _played("vouchers that go backwards", "voucher backwards", "open again", "redeems an older word"),
    _played(
        "from another deployment",
        "another deployment's voucher",
        "redeems another Bank's word",
        "redeems another chain's word",
    ),
    _shown(
        "for another asset",
        "an asset is a deployment's: a word for another one is a word of another deployment, which rows play",
        f"{at.BANK}::test_VouchersOfAnotherDeployment",
        f"{TABS_TEST}::test_RefusesVouchersThatAreNotThisTabs",
    ),
    _played("a payer that vanishes", "a payer that vanishes"),
    _played("a payee that claims what was refunded", "claims what failed", "a node claims what it did not do"),
    _shown(
        "many orders outstanding",
        HUNDREDS,
        f"{at.REFUSALS}::test_work_beyond_the_stake_is_refused",
        "tests/unit/test_tabs_failover.py::test_the_tab_covers_no_more_than_it_holds",
        "tests/unit/test_tabs_settling.py::test_older_numbers_hold_the_window_open_and_are_paid_first",
    ),
    _played(
        "a tab key that is stolen (loss bounded by its tab)",
        "a stolen tab key spends",
        "a stolen tab key closes",
    ),
    _played(
        "a client restored from a month-old backup",
        "a month-old backup",
        "one wallet on two machines",
        tests=(f"{at.FAULTS}::test_a_wallet_from_an_old_backup_goes_on_and_never_pays_twice",),
    ),
    _shown(
        "RANDAO too old to prove",
        "8,191 blocks must pass between two steps of one case",
        f"{at.COURT_DRAW}::test_aRandaoIsProvenFromHistoryAndNotForever",
        f"{HEADERS}::test_withoutHistoryOldBlocksAreUnknown",
    ),
    _shown(
        "a fork that changes the header",
        "anvil makes headers of one form: others are made byte by byte",
        f"{HEADERS}::test_fieldsOfLaterForksAreWalkedOver",
        f"{HEADERS}::test_onlyCanonicalEncodings",
    ),
    _shown(
        "a reorganisation below a case (wait for finality)",
        "it takes back what all other rows of the network stand on",
        f"{at.CASES}::test_an_opening_that_a_reorganisation_took_away_is_made_again",
        f"{at.TABS}::test_a_reorganisation_below_a_redemption_pays_once",
        f"{at.TABS}::test_a_reorganisation_below_openings_opens_again_and_serves_nobody_meanwhile",
    ),
    _played(
        "front-run openings, reveals and claims",
        "opens in another's name",
        "registers with a seen consent",
        "a stranger claims",
        tests=(
            f"{at.OPENING}::test_aFrontRunOpeningLeavesTheRejectersTheirReward",
            f"{at.COURT}::test_ACopiedCommitmentOpensForNobodyElse",
            f"{at.BANK}::test_AnAnswerFrontRunByAnObjection",
        ),
    ),
    _shown(
        "a dead scheduler",
        "a network of rows has one scheduler, which all rows need",
        f"{at.PROCESSES}::test_the_next_question_goes_to_the_second_tab_within_seconds",
        f"{at.FAILOVER}::test_a_dead_scheduler_costs_the_next_question_less_than_five_seconds",
    ),
    _shown(
        "tokens that lie",
        "these networks pay in the coin: each lie is a token of its own",
        f"{TOKENS_TEST}::test_AFeeAtTheOpeningCountsOnlyWhatArrived",
        f"{TOKENS_TEST}::test_ATokenThatReenters",
        f"{TOKENS_TEST}::test_ATokenThatReturnsFalse",
        f"{TOKENS_TEST}::test_ATokenThatTakesFromTheSender",
    ),
)
