// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    IReputation,
    LeaderProof,
    Rater,
    ReputationRules,
    ReputationUpdate,
    SilenceReport,
    Standing
} from "../../reputation/IReputation.sol";
import {P256Prover} from "../support/P256Prover.sol";
import {ReputationTest} from "./support/ReputationTest.sol";

/// @title Members, and what an epoch may settle
contract ReputationEpochTest is ReputationTest {
    // -- members ---------------------------------------------------------------------------------------------------

    function test_AMemberEnrollsForTheNextEpoch() public {
        IReputation fresh = deployed(rulesOf());
        reputation = fresh;
        (uint256 x, uint256 y) = P256Prover.publicKey(vrfSecret(0));
        vm.expectEmit(address(fresh));
        emit IReputation.RaterEnrolled(member(0), ownerOf(0), x, y, 1);
        enroll(0);
        Rater memory rater = fresh.raterOf(member(0));
        assertEq(rater.owner, ownerOf(0));
        assertEq(rater.first, 1);
        assertEq(fresh.raters().length, 1);
        assertEq(address(fresh).balance, BOND);
        assertEq(fresh.leaderBy(0, bytes32(0)), address(0));
        assertEq(fresh.leaderBy(1, bytes32(0)), member(0));
    }

    function test_EnrollmentIsRefused() public {
        IReputation fresh = deployed(rulesOf());
        reputation = fresh;
        (uint256 x, uint256 y) = P256Prover.publicKey(3);
        bytes memory consent = consentOf(0, address(this), x, y);
        vm.expectRevert(abi.encodeWithSelector(IReputation.WrongBond.selector, BOND - 1, BOND));
        fresh.enroll{value: BOND - 1}(member(0), x, y, consent);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotInCommittee.selector, address(77)));
        fresh.enroll{value: BOND}(address(77), x, y, consent);
        vm.expectRevert(abi.encodeWithSelector(IReputation.InvalidVrfKey.selector, x, y + 1));
        fresh.enroll{value: BOND}(member(0), x, y + 1, consent);
        vm.expectPartialRevert(IReputation.InvalidConsent.selector);
        fresh.enroll{value: BOND}(member(1), x, y, consent);
        vm.deal(address(99), BOND);
        vm.prank(address(99));
        vm.expectPartialRevert(IReputation.InvalidConsent.selector);
        fresh.enroll{value: BOND}(member(0), x, y, consent);
        fresh.enroll{value: BOND}(member(0), x, y, consent);
        vm.expectRevert(abi.encodeWithSelector(IReputation.AlreadyEnrolled.selector, member(0)));
        fresh.enroll{value: BOND}(member(0), x, y, consent);
    }

    /// @dev Quorums count parties: with two operators an owner would have two votes.
    function test_AnOwnerHasOneMember() public {
        (uint256 x, uint256 y) = P256Prover.publicKey(3);
        IReputation fresh = deployed(rulesOf());
        reputation = fresh;
        fresh.enroll{value: BOND}(member(0), x, y, consentOf(0, address(this), x, y));
        bytes memory consent = consentOf(1, address(this), x, y);
        vm.expectRevert(abi.encodeWithSelector(IReputation.OwnerEnrolled.selector, address(this), member(0)));
        fresh.enroll{value: BOND}(member(1), x, y, consent);
    }

    function test_ALeaverServesTheEpochAndGetsItsBond() public {
        uint64 epoch = reputation.epochNow();
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotOwnerOrOperator.selector, member(2), address(this)));
        reputation.leave(member(2));
        vm.prank(ownerOf(2));
        reputation.leave(member(2));
        assertEq(reputation.raterOf(member(2)).end, epoch + 1);
        vm.prank(member(2));
        vm.expectPartialRevert(IReputation.AlreadyLeaving.selector);
        reputation.leave(member(2));
        uint256 exitBlock = block.number + 100;
        vm.roll(exitBlock);
        vm.expectRevert(abi.encodeWithSelector(IReputation.StillBonded.selector, member(2), exitBlock, exitBlock));
        reputation.withdraw(member(2));
        vm.roll(exitBlock + 1);
        reputation.withdraw(member(2));
        assertEq(ownerOf(2).balance, BOND);
        assertEq(reputation.raters().length, COUNT - 1);
        assertEq(address(reputation).balance, BOND * (COUNT - 1));
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotEnrolled.selector, member(2)));
        reputation.withdraw(member(2));
        enroll(2);
        assertEq(reputation.raters().length, COUNT);
    }

    function test_WhoStaysKeepsTheBondThere() public {
        vm.expectRevert(abi.encodeWithSelector(IReputation.StillBonded.selector, member(1), 0, block.number));
        reputation.withdraw(member(1));
    }

    function test_AnybodySendsAwayWhoLeftTheCommittee() public {
        vm.mockCall(address(committee), abi.encodeCall(committee.isMember, (member(3))), abi.encode(false));
        reputation.leave(member(3));
        assertGt(reputation.raterOf(member(3)).exitBlock, 0);
    }

    // -- an epoch --------------------------------------------------------------------------------------------------

    function test_AnEpochFixesTheNextList() public {
        addNodes(3);
        promptRoot = keccak256("prompts");
        ReputationUpdate memory update = updateOf(new address[](0), 0);
        vm.expectEmit(address(reputation));
        emit IReputation.EpochSettled(1, update.leader, structHash(update), update.nextList, NEEDED, false);
        settle(update);
        (uint64 through, address leader, bytes32 nextList) = reputation.settled();
        assertEq(through, 2);
        assertEq(leader, update.leader);
        assertEq(nextList, listHash(nodes, promptRoot));
    }

    function test_NodesAreRated() public {
        fixNodes(3);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        (update.credits[0], update.credits[1]) = (947_000_000, 250_000_000);
        vm.expectEmit(address(reputation));
        emit IReputation.NodeRated(
            nodes[0], address(0xb0b0000001), 2, 947_000_000, false, 768_200_000, 0
        );
        vm.expectEmit(address(reputation));
        emit IReputation.NodeRated(
            nodes[1], address(0xb0b0000002), 2, 250_000_000, false, 350_000_000, 1
        );
        settle(update);
        assertTrue(reputation.isTrusted(nodes[0]));
        assertFalse(reputation.isTrusted(nodes[1]));
        Standing memory third = reputation.standingOf(nodes[2]);
        // No reward without requests: who was not asked stays where it was.
        assertEq(third.score, 500_000_000);
        assertEq(third.rated, 0);
        assertEq(third.owner, address(0));
    }

    function test_PunishedCreditsWeighLess() public {
        fixNodes(1);
        for (uint256 i = 0; i < 20; ++i) {
            rateAll(877_000_000);
        }
        Standing memory standing = reputation.standingOf(nodes[0]);
        assertEq(standing.abnormal, 31);
        assertEq(standing.rated, 20);
        // 6 / 32 * 0.877 / 0.6
        assertApproxEqAbs(standing.score, 274_062_500, 100);
    }

    /// @dev A node climbs again: five good credits clear the window.
    function test_ANodeClimbsAgain() public {
        fixNodes(1);
        rateAll(0);
        rateAll(0);
        assertFalse(reputation.isTrusted(nodes[0]));
        for (uint256 i = 0; i < 6; ++i) {
            rateAll(950_000_000);
        }
        assertTrue(reputation.isTrusted(nodes[0]));
        assertEq(reputation.standingOf(nodes[0]).abnormal, 0);
    }

    /// @dev The abnormal bits never leave the window, no score is above the best of score and credit, and a worse credit
    ///      never gives a better score.
    function testFuzz_ScoresStayInBounds(uint32[6] memory seeds, uint32 worse) public {
        fixNodes(2);
        for (uint256 i = 0; i < seeds.length; ++i) {
            uint32 credit = uint32(bound(seeds[i], 0, 1e9));
            uint256 before = reputation.standingOf(nodes[0]).score;
            ReputationUpdate memory update = updateOf(nodes, promptRoot);
            update.credits[0] = credit;
            update.credits[1] = uint32(bound(worse, 0, credit));
            settle(update);
            toEpoch(reputation.epochNow() + 1);
            Standing memory standing = reputation.standingOf(nodes[0]);
            assertLe(standing.score, before > credit ? before : credit);
            assertLt(standing.abnormal, 32);
            assertLe(reputation.standingOf(nodes[1]).score, standing.score);
        }
    }

    function test_TheLastLeaderDrawsTheNext() public {
        ReputationUpdate memory update = updateOf(new address[](0), 0);
        settle(update);
        uint256 last = indexOf(update.leader);
        toEpoch(2);
        update = updateOf(new address[](0), 0);
        promptRoot = 0;
        (LeaderProof memory lead, bytes32 beta) = proofOf(last, update);
        (uint64 through,, bytes32 nextList) = reputation.settled();
        assertEq(through, 2);
        assertEq(nextList, listHash(nodes, promptRoot));
        update.leader = reputation.leaderBy(2, beta);
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectEmit(true, true, false, false, address(reputation));
        emit IReputation.EpochSettled(2, update.leader, 0, 0, 0, true);
        reputation.settle(update, lead, new SilenceReport[](0), made);
    }

    function test_AnotherMembersProofDrawsNobody() public {
        ReputationUpdate memory update = updateOf(new address[](0), 0);
        settle(update);
        uint256 other = (indexOf(update.leader) + 1) % COUNT;
        toEpoch(2);
        update = updateOf(new address[](0), 0);
        (LeaderProof memory lead, bytes32 beta) = proofOf(other, update);
        update.leader = reputation.leaderBy(2, beta);
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectRevert();
        reputation.settle(update, lead, new SilenceReport[](0), made);
    }

    /// @dev A stopped epoch: the next one rates nobody, and fixes a list again.
    function test_AnEpochThatFailedFixedNothing() public {
        fixNodes(1);
        toEpoch(reputation.epochNow() + 1);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectRevert(
            abi.encodeWithSelector(IReputation.ListNotFixed.selector, listHash(nodes, promptRoot), bytes32(0))
        );
        reputation.settle(update, noProof, new SilenceReport[](0), made);
        settle(updateOf(new address[](0), 0));
        toEpoch(reputation.epochNow() + 1);
        rateAll(9e8);
        assertEq(reputation.standingOf(nodes[0]).rated, 1);
    }

    // -- rules -----------------------------------------------------------------------------------------------------

    function test_UnsoundRulesAreRefused() public {
        ReputationRules[12] memory wrong;
        for (uint256 i = 0; i < wrong.length; ++i) {
            wrong[i] = rulesOf();
        }
        (wrong[0].epochBlocks, wrong[1].epochBlocks) = (7, 8001);
        (wrong[2].keep, wrong[3].take) = (4e8 + 1, 0);
        wrong[4].abnormal = 1e9 + 1;
        (wrong[5].bar, wrong[6].initial) = (1e9 + 1, 1e9 + 1);
        (wrong[7].window, wrong[8].window) = (0, 9);
        wrong[9].sensitivity = 1;
        (wrong[10].leaveBlocks, wrong[11].leaveBlocks) = (79, 2 ** 24 + 1);
        uint8[12] memory broken = [1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 7];
        for (uint256 i = 0; i < wrong.length; ++i) {
            (address created, bytes memory reason) = tryDeploy(address(committee), address(registry), wrong[i]);
            assertEq(created, address(0));
            assertEq(reason, abi.encodeWithSelector(IReputation.InvalidRules.selector, broken[i]));
        }
        (, bytes memory none) = tryDeploy(address(committee), address(1234), rulesOf());
        assertEq(none, abi.encodeWithSelector(IReputation.NotAContract.selector, address(1234)));
    }
}
