// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothProgress} from "../interfaces/ITrothProgress.sol";
import {Outcome, Settled, Task} from "../interfaces/TrothTypes.sol";
import {Balances} from "./support/Balances.sol";

/// @title Who may dispute what, until when and for how much
contract DisputesTest is Balances {
    /// @dev Verifier 3 says no, alone and wrongly.
    function accepted(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        play.conducts[3].verdict = false;
        return disputeOf(play, finishFirst(play), 0);
    }

    /// @dev Verifiers 1 and 2 see a forgery; verifier 3 is the forger's.
    function rejected(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        (play.conducts[0].data, play.conducts[3].data) = (FALSE_DATA, FALSE_DATA);
        (play.conducts[1].verdict, play.conducts[2].verdict) = (false, false);
        return disputeOf(play, finishFirst(play), 0);
    }

    function undecided(bytes32 class) private returns (Dispute memory) {
        Play memory play = newPlay(class, WHOLE);
        play.conducts[2].data = FALSE_DATA;
        play.conducts[3].verdict = false;
        return disputeOf(play, finishFirst(play), 0);
    }

    function refused(Dispute memory made, address by, bytes memory reason) private {
        vm.prank(by);
        vm.expectRevert(reason);
        troth.dispute(made.first.id, made.first.task, made.settled, made.segment);
    }

    function test_ASettledTaskKeepsWhatADisputeNeeds() public {
        Dispute memory made = rejected(tolerant);
        assertEq(made.settled.outcomes[0], uint8(Outcome.Rejected));
        assertEq(made.settled.verdicts[0], 4);
        assertEq(made.settled.clusters[0], 3);
        assertEq(made.settled.valid[0], 7);
        bytes32 state = stateHash(made.first.task);
        bytes32 kept = keccak256(abi.encode(state, keccak256(abi.encode(made.settled))));
        uint256 last = 1 << 8 | uint256(Outcome.Rejected);
        assertEq(troth.taskState(made.first.id), kept & ~bytes32(uint256(0xffff)) | bytes32(last));
    }

    function test_AnnouncesADispute() public {
        Dispute memory made = rejected(exact);
        address inferencer = inferencerOf(made);
        uint96 left = stakeOf(inferencer) - BOND;
        vm.expectEmit(address(troth));
        emit ITrothDisputes.TaskDisputed(made.first.id, made.review.id, inferencer, 0, BOND, left);
        dispute(made, inferencer, BOND);
        made = accepted(tolerant);
        left = troth.escrowOf(outsider) - OUTSIDERS_BOND;
        vm.expectEmit(address(troth));
        emit ITrothDisputes.TaskDisputed(made.first.id, made.review.id, outsider, 0, OUTSIDERS_BOND, left);
        dispute(made, outsider, OUTSIDERS_BOND);
        made = undecided(tolerant);
        vm.expectEmit(address(troth));
        emit ITrothDisputes.TaskDisputed(made.first.id, made.review.id, address(0), 0, 0, 0);
        dispute(made, outsider, 0);
    }

    /// @dev Those whom another outcome would pay put up eight units of their stake.
    function test_PartiesThatWouldProfitPayFromTheirStake() public {
        Dispute memory made = rejected(exact);
        address[2] memory parties = [inferencerOf(made), verifierOf(made, 0)];
        snap();
        dispute(made, parties[0], BOND);
        units(parties[0], -8);
        assertChanges(BOND);
        made = accepted(exact);
        snap();
        dispute(made, verifierOf(made, 2), BOND);
        units(verifierOf(made, 2), -8);
        assertChanges(2 * BOND);
    }

    /// @dev The inferencer and the verifiers that were paid gain nothing by another outcome, nor does a mere candidate.
    function test_OtherPartiesAreOutsiders() public {
        Dispute memory made = accepted(exact);
        address[3] memory others = [inferencerOf(made), verifierOf(made, 0), made.first.task.progress.parties[1]];
        for (uint256 i = 0; i < others.length; ++i) {
            refused(
                made,
                others[i],
                abi.encodeWithSelector(ITrothMoney.InsufficientEscrow.selector, others[i], 0, OUTSIDERS_BOND)
            );
        }
        vm.deal(others[1], 1 ether);
        vm.prank(others[1]);
        troth.deposit{value: 1 ether}(others[1]);
        dispute(made, others[1], OUTSIDERS_BOND);
        assertEq(troth.escrowOf(others[1]), 1 ether - OUTSIDERS_BOND);
    }

    function test_AnybodyMayCallForAnUndecidedSegmentForNothing() public {
        bytes32[2] memory classes = [tolerant, exact];
        for (uint256 i = 0; i < 2; ++i) {
            Dispute memory made = undecided(classes[i]);
            assertOutcome(made.first.id, Outcome.Indeterminate);
            snap();
            dispute(made, makeAddr("anybody"), 0);
            assertChanges(0);
        }
    }

    function test_RefusesABondThatIsNotThere() public {
        Dispute memory made = rejected(tolerant);
        address inferencer = inferencerOf(made);
        setStake(inferencer, BOND - 1);
        refused(
            made, inferencer, abi.encodeWithSelector(ITrothDisputes.BondMissing.selector, inferencer, BOND - 1, BOND)
        );
        address nobody = makeAddr("nobody");
        refused(
            made,
            nobody,
            abi.encodeWithSelector(ITrothMoney.InsufficientEscrow.selector, nobody, 0, OUTSIDERS_BOND)
        );
        setStake(inferencer, BOND);
        dispute(made, inferencer, BOND);
        assertEq(stakeOf(inferencer), 0);
    }

    function test_EachSegmentIsDisputedOnce() public {
        Dispute memory made = rejected(exact);
        dispute(made, inferencerOf(made), BOND);
        bytes memory again = abi.encodeWithSelector(ITrothDisputes.AlreadyDisputed.selector, made.first.id, 0);
        refused(made, outsider, again);
        finishReview(made);
        refused(made, outsider, again);
    }

    function test_TheWindowEndsWithItsLastBlock() public {
        Dispute memory made = rejected(exact);
        uint256 last = uint256(made.settled.settledBlock) + DISPUTE_WINDOW;
        vm.roll(last + 1);
        refused(
            made, inferencerOf(made), abi.encodeWithSelector(ITrothProgress.TooLate.selector, last + 1, last)
        );
        vm.roll(last);
        dispute(made, inferencerOf(made), BOND);
    }

    function test_RefusesAnInferencerThatShowedNothing() public {
        Play memory play = newPlay(tolerant, WHOLE);
        play.conducts[0].opens = false;
        Dispute memory made = disputeOf(play, finishFirst(play), 0);
        assertEq(made.settled.valid[0], 0);
        refused(
            made,
            inferencerOf(made),
            abi.encodeWithSelector(ITrothDisputes.NotDisputable.selector, play.id, 0, Outcome.Rejected)
        );
    }

    /// @dev Nobody was paid for it, so that nothing could be taken back.
    function test_RefusesTheAcceptedSegmentOfARejectedTask() public {
        Play memory play = newPlay(exact, HALVES);
        play.conducts[0].data = FALSE_DATA;
        for (uint256 v = 1; v <= 3; ++v) {
            play.conducts[v].verdict = false;
        }
        Dispute memory made = disputeOf(play, finishFirst(play), 1);
        refused(
            made,
            outsider,
            abi.encodeWithSelector(ITrothDisputes.NotDisputable.selector, play.id, 1, Outcome.Accepted)
        );
        made.segment = 2;
        refused(made, outsider, abi.encodeWithSelector(ITrothProgress.SegmentOutOfRange.selector, 2, 2));
    }

    /// @dev Each word of what is handed in counts.
    function test_RefusesAnotherPast() public {
        Dispute memory made = rejected(tolerant);
        Dispute memory other = abi.decode(abi.encode(made), (Dispute));
        other.settled.outcomes[0] = uint8(Outcome.Indeterminate);
        mismatched(other);
        other = abi.decode(abi.encode(made), (Dispute));
        other.settled.valid[0] = 6;
        mismatched(other);
        other = abi.decode(abi.encode(made), (Dispute));
        ++other.settled.settledBlock;
        mismatched(other);
        other = abi.decode(abi.encode(made), (Dispute));
        other.first.task.terms.client = outsider;
        mismatched(other);
        other = abi.decode(abi.encode(made), (Dispute));
        other.first.task.progress.parties[0] = outsider;
        mismatched(other);
        other = abi.decode(abi.encode(made), (Dispute));
        other.settled.clusters = new uint8[](2);
        other.settled.clusters[0] = made.settled.clusters[0];
        mismatched(other);
    }

    function mismatched(Dispute memory made) private {
        vm.prank(outsider);
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.dispute(made.first.id, made.first.task, made.settled, made.segment);
    }

    /// @dev A mask has eight bits; what hides in the others of its word is refused before it is hashed.
    function test_RefusesDirtyMasks() public {
        Dispute memory made = rejected(tolerant);
        bytes memory data =
            abi.encodeCall(troth.dispute, (made.first.id, made.first.task, made.settled, made.segment));
        // The last word is valid[0].
        data[data.length - 2] = 0x01;
        vm.prank(outsider);
        (bool success,) = address(troth).call(data);
        assertFalse(success);
    }

    function test_RefusesTasksThatAreNotSettled() public {
        Play memory play = newPlay(exact, WHOLE);
        Settled memory settled = Settled(new uint8[](1), new uint8[](1), new uint8[](1), new uint8[](1), 0);
        settled.outcomes[0] = uint8(Outcome.Indeterminate);
        open(play);
        Task memory opened = abi.decode(abi.encode(play.task), (Task));
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.dispute(play.id, play.task, settled, 0);
        vm.prank(scheduler);
        troth.abort(play.id, play.task);
        vm.expectPartialRevert(ITrothProgress.StateMismatch.selector);
        troth.dispute(play.id, opened, settled, 0);
    }

    /// @dev Nine members: four are left beside the inferencer, the other candidate and three verifiers.
    function test_RefusesWhereTooFewCouldReview() public {
        for (uint256 i = NODES + 3; i < NODES + MORE_NODES; ++i) {
            vm.prank(owner);
            troth.deregister(exactNodeAddress(i));
        }
        pass(2);
        Dispute memory made = rejected(exact);
        bytes32 group = troth.groupId(exact, 0, 4);
        refused(
            made,
            inferencerOf(made),
            abi.encodeWithSelector(ITrothDisputes.TooFewReviewers.selector, group, 4, REVIEWERS)
        );
        registerNode(0x7e4, exact, NODE_STAKE);
        pass(2);
        dispute(made, inferencerOf(made), BOND);
    }
}
