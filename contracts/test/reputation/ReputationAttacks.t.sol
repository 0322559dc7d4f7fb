// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IReputation, LeaderProof, ReputationUpdate, UpdateEvidence, SilenceReport} from "../../reputation/IReputation.sol";
import {ReputationTest} from "./support/ReputationTest.sol";

/// @title What somebody who read the contract might try
contract ReputationAttacksTest is ReputationTest {
    SilenceReport[] private noReports;

    function testFuzz_TooFewSignaturesSettleNothing(uint8 seed) public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        bytes[] memory made = signatures(update, 1 + seed % (NEEDED - 1));
        vm.expectRevert(abi.encodeWithSelector(IReputation.TooFewSignatures.selector, made.length, NEEDED));
        reputation.settle(update, noProof, noReports, made);
    }

    function test_OneSignerCountsOnce() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        bytes[] memory made = signatures(update, NEEDED);
        made[4] = made[3];
        vm.expectPartialRevert(IReputation.SignersOutOfOrder.selector);
        reputation.settle(update, noProof, noReports, made);
    }

    /// @dev The threshold is that of the whole Committee: two who are enrolled are not all of a committee of seven.
    function test_AFewWhoAreEnrolledAreNotEnough() public {
        IReputation fresh = deployed(rulesOf());
        reputation = fresh;
        enroll(0);
        enroll(1);
        toEpoch(1);
        ReputationUpdate memory update = updateOf(nodes, 0);
        bytes[] memory made = new bytes[](2);
        (made[0], made[1]) = (signed(keys[0], structHash(update)), signed(keys[1], structHash(update)));
        vm.expectRevert(abi.encodeWithSelector(IReputation.TooFewSignatures.selector, 2, NEEDED));
        fresh.settle(update, noProof, noReports, made);
    }

    function test_AnEpochIsSettledOnce() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        bytes[] memory made = signatures(update, NEEDED);
        reputation.settle(update, noProof, noReports, made);
        vm.expectRevert(abi.encodeWithSelector(IReputation.AlreadySettled.selector, 1));
        reputation.settle(update, noProof, noReports, made);
        toEpoch(2);
        vm.expectRevert(abi.encodeWithSelector(IReputation.WrongEpoch.selector, 1, 2));
        reputation.settle(update, noProof, noReports, made);
    }

    /// @dev A reorganisation below the epoch changes its seed, and what was signed counts no more.
    function test_SignaturesOfAnotherSeedDoNotCount() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        bytes[] memory made = signatures(update, NEEDED);
        bytes32 known = update.seed;
        update.seed = keccak256("another branch");
        vm.expectRevert(abi.encodeWithSelector(IReputation.WrongSeed.selector, update.seed, known));
        reputation.settle(update, noProof, noReports, made);
    }

    function test_WhoeverIsNotDrawnDoesNotLead() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        address drawn = update.leader;
        update.leader = member((indexOf(drawn) + 1) % COUNT);
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(IReputation.WrongLeader.selector, update.leader, drawn));
        reputation.settle(update, noProof, noReports, made);
    }

    function test_TheLeaderSigns() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        bytes[] memory made = new bytes[](NEEDED);
        uint256 at;
        for (uint256 i = 0; at < NEEDED; ++i) {
            if (member(i) != update.leader) made[at++] = signed(keys[i], structHash(update));
        }
        vm.expectRevert(abi.encodeWithSelector(IReputation.LeaderDidNotSign.selector, update.leader));
        reputation.settle(update, noProof, noReports, made);
    }

    /// @dev The list is fixed an epoch ahead: a leader that drops a node, adds one or changes prompts settles nothing.
    function test_NodesAndPromptsCannotBeChanged() public {
        fixNodes(3);
        address[] memory fewer = new address[](2);
        (fewer[0], fewer[1]) = (nodes[0], nodes[2]);
        ReputationUpdate memory update = updateOf(fewer, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectPartialRevert(IReputation.ListNotFixed.selector);
        reputation.settle(update, noProof, noReports, made);
        update = updateOf(nodes, keccak256("easier prompts"));
        made = signatures(update, NEEDED);
        vm.expectPartialRevert(IReputation.ListNotFixed.selector);
        reputation.settle(update, noProof, noReports, made);
        update = updateOf(nodes, promptRoot);
        update.credits = new uint32[](2);
        made = signatures(update, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(IReputation.InvalidList.selector, 3, 2));
        reputation.settle(update, noProof, noReports, made);
    }

    function test_ANodeTwiceIsRefused() public {
        addNodes(2);
        nodes[1] = nodes[0];
        promptRoot = keccak256("prompts");
        settle(updateOf(new address[](0), 0));
        toEpoch(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NodesOutOfOrder.selector, nodes[0], nodes[0]));
        reputation.settle(update, noProof, noReports, made);
    }

    function test_OnlyNodesAreRated() public {
        addNodes(1);
        nodes.push(address(0xffffffffffff));
        promptRoot = keccak256("prompts");
        settle(updateOf(new address[](0), 0));
        toEpoch(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        update.credits[1] = 9e8;
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotANode.selector, nodes[1]));
        reputation.settle(update, noProof, noReports, made);
    }

    function testFuzz_CreditsAreAtMostOne(uint32 credit) public {
        credit = uint32(bound(credit, 1e9 + 1, NOT_SCORED - 1));
        fixNodes(1);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        update.credits[0] = credit;
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(IReputation.InvalidCredit.selector, nodes[0], credit));
        reputation.settle(update, noProof, noReports, made);
    }

    /// @dev Who executes cannot judge itself: an owner's signature does not count where its own node is rated.
    function test_NobodyJudgesItsOwnNode() public {
        addNodes(1);
        promptRoot = keccak256("prompts");
        settle(updateOf(new address[](0), 0));
        toEpoch(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        registry.register(nodes[0], ownerOf(indexOf(update.leader)));
        update.credits[0] = 1e9;
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectRevert(
            abi.encodeWithSelector(
                IReputation.JudgesItself.selector, nodes[0], ownerOf(indexOf(update.leader)), NEEDED - 1, NEEDED
            )
        );
        reputation.settle(update, noProof, noReports, made);
        reputation.settle(update, noProof, noReports, signatures(update, NEEDED + 1));
        assertEq(reputation.standingOf(nodes[0]).rated, 1);
    }

    function test_ALeaverDoesNotSignInTheNextEpoch() public {
        vm.prank(member(0));
        reputation.leave(member(0));
        toEpoch(2);
        ReputationUpdate memory update = updateOf(nodes, 0);
        assertNotEq(update.leader, member(0));
        bytes[] memory made = new bytes[](NEEDED);
        uint256 at;
        for (uint256 i = 0; i < COUNT && at < NEEDED; ++i) {
            bool isLast = at + 1 == NEEDED;
            if (!isLast || member(i) == update.leader || indexOf(update.leader) < i) {
                made[at++] = signed(keys[i], structHash(update));
            }
        }
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotARater.selector, member(0), 2));
        reputation.settle(update, noProof, noReports, made);
    }

    /// @dev A key that was chosen when the seed was known could choose the leader.
    function test_ANewcomerWaitsForTheNextEpoch() public {
        IReputation fresh = deployed(rulesOf());
        reputation = fresh;
        enroll(0);
        toEpoch(1);
        enroll(1);
        for (uint256 i = 0; i < 50; ++i) {
            assertEq(fresh.leaderBy(1, keccak256(abi.encode(i))), member(0));
        }
        assertEq(fresh.raterOf(member(1)).first, 2);
    }

    function test_SignaturesOfAnotherDeploymentDoNotCount() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        IReputation here = reputation;
        reputation = deployed(rulesOf());
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectPartialRevert(IReputation.NotARater.selector);
        here.settle(update, noProof, noReports, made);
    }

    function testFuzz_GarbageIsNoSignature(bytes calldata garbage) public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        bytes[] memory made = signatures(update, NEEDED);
        made[0] = garbage;
        vm.expectPartialRevert(IReputation.NotARater.selector);
        reputation.settle(update, noProof, noReports, made);
    }

    // -- equivocation ----------------------------------------------------------------------------------------------

    function test_WhoSignsTwoUpdatesIsExpelled() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        UpdateEvidence memory first = hashed(update, 4);
        update.nextList = keccak256("another list");
        UpdateEvidence memory second = hashed(update, 4);
        address reporter = makeAddr("reporter");
        vm.expectEmit(address(reputation));
        emit IReputation.RaterExpelled(member(4), 1, BOND, BOND / 10, reporter);
        vm.prank(reporter);
        reputation.expel(member(4), 1, update.seed, first, second);
        assertEq(reporter.balance, BOND / 10);
        assertEq(reputation.raters().length, COUNT - 1);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotEnrolled.selector, member(4)));
        reputation.withdraw(member(4));
        vm.deal(ownerOf(4), BOND);
        vm.prank(ownerOf(4));
        vm.expectRevert(abi.encodeWithSelector(IReputation.AlreadyEnrolled.selector, member(4)));
        reputation.enroll{value: BOND}(member(4), 1, 1, "");
        // The others, five of them needed still, carry on.
        ReputationUpdate memory next = updateOf(nodes, 0);
        assertNotEq(next.leader, member(4));
    }

    function test_OneUpdateIsNoEquivocation() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        UpdateEvidence memory first = hashed(update, 4);
        vm.expectRevert(abi.encodeWithSelector(IReputation.SameUpdate.selector, structHash(update)));
        reputation.expel(member(4), 1, update.seed, first, first);
    }

    /// @dev Honest members sign again where a reorganisation gave the epoch another seed.
    function test_AnotherSeedIsNoEquivocation() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        UpdateEvidence memory first = hashed(update, 4);
        update.seed = keccak256("another branch");
        UpdateEvidence memory second = hashed(update, 4);
        vm.expectPartialRevert(IReputation.WrongSigner.selector);
        reputation.expel(member(4), 1, update.seed, first, second);
    }

    function test_NobodyIsExpelledForAnother() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        UpdateEvidence memory first = hashed(update, 4);
        update.nextList = keccak256("another list");
        UpdateEvidence memory second = hashed(update, 3);
        vm.expectRevert(abi.encodeWithSelector(IReputation.WrongSigner.selector, member(4), member(3)));
        reputation.expel(member(4), 1, update.seed, first, second);
    }

    function test_ALeaverIsStillExpelled() public {
        ReputationUpdate memory update = updateOf(nodes, 0);
        UpdateEvidence memory first = hashed(update, 4);
        update.nextList = keccak256("another list");
        UpdateEvidence memory second = hashed(update, 4);
        vm.prank(member(4));
        reputation.leave(member(4));
        vm.roll(block.number + 100);
        vm.prank(makeAddr("reporter"));
        reputation.expel(member(4), 1, update.seed, first, second);
        assertEq(ownerOf(4).balance, 0);
        assertEq(makeAddr("reporter").balance, BOND / 10);
    }
}
