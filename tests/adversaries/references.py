"""Adversaries that other tests play: on a contract without a network, or against one service with toy models.

Each names the tests that show the attack fail, as "path::name". A unit test checks that they exist.
"""

from __future__ import annotations

from adversaries.registry import CLIENT, CONTRACT, NODE, SCHEDULER, Referenced

ATTACKS, SETTLEMENT = "contracts/test/Attacks.t.sol", "contracts/test/Settlement.t.sol"
TASKS, COMMITMENTS, ENDINGS = (f"contracts/test/{name}.t.sol" for name in ("Tasks", "Commitments", "Endings"))
SAMPLING, REVEALS, OWN_POSTS = (f"contracts/test/{name}.t.sol" for name in ("Sampling", "Reveals", "OwnPosts"))
EQUIVOCATION, ESCROW = "contracts/test/Equivocation.t.sol", "contracts/test/Escrow.t.sol"
NODE_SERVICE, NODE_RIGHTS = "tests/integration/test_node_service.py", "tests/integration/test_node_rights.py"
NODE_VERIFICATION = "tests/integration/test_node_verification.py"
COLLUSION, SCHEDULER_ATTACKS = "tests/integration/test_collusion.py", "tests/integration/test_scheduler_attacks.py"
SCHEDULER_TASKS, SCHEDULER_API = "tests/integration/test_scheduler_tasks.py", "tests/integration/test_scheduler_api.py"
CLIENT_DISHONEST = "tests/integration/test_client_dishonest.py"
VRF_ATTACKS = "tests/contracts/test_vrf_attacks.py"


def _referenced(name: str, role: str, caught_by: str, *tests: str) -> Referenced:
    return Referenced(name, role, caught_by, tests)


SCHEDULERS = (
    _referenced(
        "wrong VRF key, at the node",
        "scheduler",
        NODE,
        f"{NODE_SERVICE}::test_announcements_that_do_not_hold_are_refused",
    ),
    _referenced(
        "wrong VRF key, on chain", "scheduler", CONTRACT, f"{TASKS}::test_RefusesProofsOfAnotherKeySegmentOrTask"
    ),
    _referenced("wrong assignment, on chain", "scheduler", CONTRACT, f"{TASKS}::test_AssignsWhatTheVrfDraws"),
    _referenced("a split of its choice", "scheduler", CONTRACT, f"{ATTACKS}::test_ASchedulerCannotChooseTheSplit"),
    _referenced("altered rows between segments", "scheduler", NODE, f"{NODE_SERVICE}::test_bad_tensors_change_nothing"),
    _referenced(
        "rows of another task or place",
        "scheduler",
        NODE,
        "tests/unit/test_rows.py::test_rows_of_another_message_are_refused",
    ),
    _referenced(
        "another text for verifiers",
        "scheduler",
        NODE,
        f"{NODE_VERIFICATION}::test_a_verifier_that_was_shown_other_tokens_refuses_to_judge",
    ),
    _referenced(
        "another text for the chain",
        "scheduler",
        CONTRACT,
        f"{COLLUSION}::test_an_accepted_text_is_the_one_that_was_judged",
        f"{ATTACKS}::test_AVerdictDoesNotFitAnotherText",
    ),
    _referenced(
        "another candidate's rows for verifiers",
        "scheduler",
        CONTRACT,
        f"{COLLUSION}::test_an_honest_inferencer_is_not_judged_by_anothers_rows",
        f"{ATTACKS}::test_AVerdictDoesNotFitAnotherCandidatesRoot",
    ),
    _referenced("replay of another task's posts", "scheduler", CONTRACT, f"{ATTACKS}::test_CommitmentsAreForOneTask"),
    _referenced(
        "one order opened twice",
        "scheduler",
        CONTRACT,
        f"{TASKS}::test_AnOrderOpensOnce",
        f"{SCHEDULER_API}::test_the_same_order_twice",
    ),
    _referenced(
        "two rows for one position",
        "scheduler",
        CONTRACT,
        f"{EQUIVOCATION}::test_ASchedulerThatCountersignedTwoRowsLosesItsStakeToo",
    ),
    _referenced(
        "many answers for one balance",
        "scheduler",
        NODE,
        f"{NODE_RIGHTS}::test_one_balance_does_not_pay_for_two_answers",
    ),
    _referenced(
        "work without ever opening",
        "scheduler",
        NODE,
        f"{NODE_RIGHTS}::test_a_scheduler_that_never_opens_runs_out_of_credit",
    ),
    _referenced(
        "never commits",
        "scheduler",
        CONTRACT,
        f"{ENDINGS}::test_AMissedCommitWindowCostsTheScheduler",
        f"{OWN_POSTS}::test_SealsWithAQuorumAfterHalfTheWindow",
    ),
    _referenced(
        "grinds commitments with a colluder",
        "scheduler",
        CONTRACT,
        f"{SAMPLING}::test_TheSeedIsBoundToKeyPostsAndBlock",
        f"{ATTACKS}::test_AnInferencerCannotChooseItsTile",
    ),
    _referenced(
        "opens early, or at places of its choice",
        "scheduler",
        NODE,
        f"{NODE_VERIFICATION}::test_nothing_is_opened_early_or_for_a_seed_of_choice",
    ),
    _referenced(
        "tokens unproven, skipped, or of another template",
        "scheduler",
        CLIENT,
        f"{CLIENT_DISHONEST}::test_a_lie_is_named_and_its_words_are_not_shown",
    ),
    _referenced(
        "silent while it streams",
        "scheduler",
        CONTRACT,
        f"{CLIENT_DISHONEST}::test_a_silent_scheduler_is_closed_and_the_fee_comes_back",
    ),
)

NODES = (
    _referenced(
        "signs two rows for one position",
        "inferencer",
        CONTRACT,
        f"{EQUIVOCATION}::test_TwoRowsForOnePositionCostTheWholeStake",
    ),
    _referenced(
        "collects two countersignatures",
        "inferencer",
        SCHEDULER,
        f"{SCHEDULER_ATTACKS}::test_a_node_cannot_collect_two_countersignatures_for_one_position",
    ),
    _referenced(
        "states that are no numbers",
        "inferencer",
        SCHEDULER,
        f"{SCHEDULER_ATTACKS}::test_states_that_are_no_numbers_cost_their_node_and_not_the_next_one",
    ),
    _referenced(
        "drips until its scheduler is late",
        "inferencer",
        SCHEDULER,
        f"{SCHEDULER_ATTACKS}::test_a_node_that_drips_cannot_make_its_scheduler_late",
    ),
    _referenced("silent inferencer", "inferencer", CONTRACT, f"{SETTLEMENT}::test_ASilentInferencerIsRejected"),
    _referenced(
        "openings that block a settlement",
        "verifier",
        SCHEDULER,
        f"{SCHEDULER_ATTACKS}::test_tiles_in_an_exact_class_do_not_block_the_settlement",
        f"{SCHEDULER_ATTACKS}::test_revealing_one_thing_and_telling_another_does_not_block_the_settlement",
    ),
)

CHAIN = (
    _referenced("reused or copied commitment", "chain", CONTRACT, f"{ATTACKS}::test_ACopiedCommitmentDoesNotOpen"),
    _referenced(
        "front-run reveal",
        "chain",
        CONTRACT,
        f"{REVEALS}::test_WhatWasRevealedCannotBeLeftOutOrChanged",
        f"{REVEALS}::test_NobodyRevealsTwice",
    ),
    _referenced("wrong opening in another's name", "chain", CONTRACT, f"{ATTACKS}::test_AWrongOpeningSlashesNobody"),
    _referenced("malleated signature", "chain", CONTRACT, f"{TASKS}::test_RefusesMalleatedSignatures"),
    _referenced(
        "malleated proof",
        "chain",
        CONTRACT,
        f"{VRF_ATTACKS}::test_encodings_that_are_not_canonical_are_not_taken",
        f"{VRF_ATTACKS}::test_flipped_signs_of_u_and_v_are_not_taken",
    ),
    _referenced(
        "forged hints of a proof",
        "chain",
        CONTRACT,
        f"{VRF_ATTACKS}::test_only_the_square_of_c_is_taken_for_t",
        f"{VRF_ATTACKS}::test_v_off_the_curve_is_not_taken",
    ),
    _referenced("replay at another contract", "chain", CONTRACT, f"{ATTACKS}::test_AnOrderIsForOneContract"),
    _referenced("replay on another chain", "chain", CONTRACT, f"{ATTACKS}::test_AnOrderIsForOneChain"),
    _referenced("another scheduler's order", "chain", CONTRACT, f"{ATTACKS}::test_ASchedulerCannotTakeAnothersOrder"),
    _referenced(
        "late and early calls",
        "chain",
        CONTRACT,
        f"{COMMITMENTS}::test_CommitsOnceAndInTime",
        f"{SAMPLING}::test_NotInTheBlockOfTheCommitments",
        f"{SAMPLING}::test_NotAfterTheSampleWindow",
        f"{REVEALS}::test_RevealsNeitherEarlyNorLate",
        f"{OWN_POSTS}::test_PostsNeitherEarlyNorLate",
        f"{ENDINGS}::test_OnlyADueTaskIsClosed",
    ),
    _referenced("an old state of the task", "chain", CONTRACT, f"{ATTACKS}::test_AnOldStateIsRefused"),
    _referenced(
        "an empty root that locks the task", "chain", CONTRACT, f"{ATTACKS}::test_AVerifierWithoutARootLocksNothing"
    ),
    _referenced(
        "stake withdrawn before the verdict",
        "chain",
        CONTRACT,
        f"{ATTACKS}::test_NobodyWithdrawsBeforeItsTasksHaveEnded",
    ),
    _referenced("re-entered withdrawal", "chain", CONTRACT, f"{ESCROW}::test_CannotBeReentered"),
)

REFERENCED = (*SCHEDULERS, *NODES, *CHAIN)
