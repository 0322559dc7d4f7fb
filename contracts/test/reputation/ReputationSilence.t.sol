// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IReputation, ReputationUpdate, SilenceReport, Standing} from "../../reputation/IReputation.sol";
import {ReputationTest} from "./support/ReputationTest.sol";

/// @title Nodes that answer no member: what reports do, and that nobody who settles first keeps them out
contract ReputationSilenceTest is ReputationTest {
    function test_SilenceNeedsMoreThanAThird() public {
        fixNodes(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        uint256 snapshot = vm.snapshotState();
        reputation.settle(update, noProof, reportsOf(update, 2, 2), made);
        assertEq(reputation.standingOf(nodes[1]).score, 500_000_000);
        vm.revertToState(snapshot);
        reputation.settle(update, noProof, reportsOf(update, 3, 2), made);
        assertEq(reputation.standingOf(nodes[1]).score, 200_000_000);
        assertEq(reputation.standingOf(nodes[1]).abnormal, 1);
        assertEq(reputation.standingOf(nodes[0]).score, 500_000_000);
    }

    function test_OneMemberReportsOnce() public {
        fixNodes(1);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        SilenceReport[] memory reports = reportsOf(update, 3, 1);
        reports[2] = reports[1];
        vm.expectRevert(abi.encodeWithSelector(IReputation.SignersOutOfOrder.selector, member(1), member(1)));
        reputation.settle(update, noProof, reports, made);
    }

    function test_NobodyIsSilentAndScored() public {
        fixNodes(1);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        update.credits[0] = 9e8;
        bytes[] memory made = signatures(update, NEEDED);
        SilenceReport[] memory reports = reportsOf(update, 3, 1);
        vm.expectRevert(abi.encodeWithSelector(IReputation.SilentAndScored.selector, nodes[0], 3));
        reputation.settle(update, noProof, reports, made);
    }

    function test_ReportsNameNodesOfTheList() public {
        fixNodes(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        SilenceReport[] memory reports = reportsOf(update, 3, 4);
        vm.expectRevert(abi.encodeWithSelector(IReputation.ReportOutsideList.selector, 4, 2));
        reputation.settle(update, noProof, reports, made);
    }

    function test_ReportsOfAnotherEpochDoNotCount() public {
        fixNodes(1);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        SilenceReport[] memory reports = reportsOf(update, 3, 1);
        settle(update);
        toEpoch(reputation.epochNow() + 1);
        update = updateOf(nodes, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        vm.expectPartialRevert(IReputation.NotARater.selector);
        reputation.settle(update, noProof, reports, made);
    }

    // -- reports that whoever settled left out ---------------------------------------------------------------------

    /// @dev Two nodes, of which nobody scored any, and a settlement without reports.
    function settledWithout() private returns (ReputationUpdate memory update) {
        fixNodes(2);
        update = updateOf(nodes, promptRoot);
        settle(update);
    }

    /// @dev A silent node brings the signed update first, and leaves out who reports it.
    function test_ReportsThatWereLeftOutAreBroughtAfterwards() public {
        ReputationUpdate memory update = settledWithout();
        assertEq(reputation.standingOf(nodes[1]).score, 500_000_000);
        SilenceReport[] memory few = reportsOf(update, 2, 2);
        SilenceReport[] memory enough = reportsOf(update, 3, 2);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NobodySilent.selector, update.epoch));
        reputation.reportSilence(update, few);
        vm.expectEmit(address(reputation));
        emit IReputation.NodeRated(
            nodes[1], address(uint160(0xb0b0000002)), update.epoch, 0, true, 200_000_000, 1
        );
        vm.prank(makeAddr("anybody"));
        reputation.reportSilence(update, enough);
        assertEq(reputation.standingOf(nodes[0]).score, 500_000_000);
    }

    function test_NobodyIsRatedTwiceForOneSilence() public {
        ReputationUpdate memory update = settledWithout();
        reputation.reportSilence(update, reportsOf(update, 3, 2));
        SilenceReport[] memory again = reportsOf(update, 4, 2);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NobodySilent.selector, update.epoch));
        reputation.reportSilence(update, again);
        // The other node was left out of those reports.
        reputation.reportSilence(update, reportsOf(update, 4, 3));
        assertEq(reputation.standingOf(nodes[0]).score, 200_000_000);
        assertEq(reputation.standingOf(nodes[1]).score, 200_000_000);
        assertEq(reputation.standingOf(nodes[1]).rated, 1);
    }

    function test_WhoWasRatedWithTheUpdateStaysSo() public {
        fixNodes(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        reputation.settle(update, noProof, reportsOf(update, 3, 1), signatures(update, NEEDED));
        SilenceReport[] memory again = reportsOf(update, 5, 1);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NobodySilent.selector, update.epoch));
        reputation.reportSilence(update, again);
        assertEq(reputation.standingOf(nodes[0]).score, 200_000_000);
    }

    /// @dev The order of the two calls changes nothing of a node's standing.
    function testFuzz_LateReportsRateAsEarlyOnes(uint256 silent, uint256 reporters, uint32 before) public {
        fixNodes(3);
        rateAll(before % (1e9 + 1));
        silent = bound(silent, 1, 7);
        reporters = bound(reporters, 3, COUNT);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        bytes[] memory made = signatures(update, NEEDED);
        uint256 snapshot = vm.snapshotState();
        reputation.settle(update, noProof, reportsOf(update, reporters, silent), made);
        bytes32 early = standings();
        vm.revertToState(snapshot);
        settle(update);
        assertNotEq(standings(), early);
        reputation.reportSilence(update, reportsOf(update, reporters, silent));
        assertEq(standings(), early);
    }

    function standings() private view returns (bytes32) {
        Standing[] memory found = new Standing[](nodes.length);
        for (uint256 i = 0; i < found.length; ++i) {
            found[i] = reputation.standingOf(nodes[i]);
        }
        return keccak256(abi.encode(found));
    }

    /// @dev Whoever settles in an epoch's last block does not escape either.
    function test_TheyCountUntilTheNextEpochIsSettled() public {
        ReputationUpdate memory update = settledWithout();
        SilenceReport[] memory reports = reportsOf(update, 3, 2);
        toEpoch(update.epoch + 1);
        uint256 snapshot = vm.snapshotState();
        reputation.reportSilence(update, reports);
        assertEq(reputation.standingOf(nodes[1]).lastEpoch, update.epoch);
        vm.revertToState(snapshot);
        settle(updateOf(nodes, promptRoot));
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotTheLast.selector, update.epoch, update.epoch + 2));
        reputation.reportSilence(update, reports);
        vm.revertToState(snapshot);
        toEpoch(update.epoch + 2);
        vm.expectRevert(abi.encodeWithSelector(IReputation.WrongEpoch.selector, update.epoch, update.epoch + 2));
        reputation.reportSilence(update, reports);
    }

    function test_NothingIsReportedBeforeAnUpdateIsSettled() public {
        fixNodes(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        SilenceReport[] memory reports = reportsOf(update, 3, 2);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotTheLast.selector, update.epoch, update.epoch));
        reputation.reportSilence(update, reports);
        update.epoch = type(uint64).max;
        vm.expectRevert(
            abi.encodeWithSelector(IReputation.WrongEpoch.selector, type(uint64).max, reputation.epochNow())
        );
        reputation.reportSilence(update, reports);
    }

    /// @dev Else a node with a credit would be called unscored.
    function test_OnlyTheUpdateThatSettledTheEpochCounts() public {
        fixNodes(2);
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        update.credits[1] = 9e8;
        settle(update);
        bytes32 digest = structHash(update);
        SilenceReport[] memory reports = reportsOf(update, 3, 2);
        vm.expectRevert(abi.encodeWithSelector(IReputation.SilentAndScored.selector, nodes[1], 3));
        reputation.reportSilence(update, reports);
        update.credits[1] = NOT_SCORED;
        vm.expectRevert(
            abi.encodeWithSelector(IReputation.AnotherUpdate.selector, structHash(update), digest)
        );
        reputation.reportSilence(update, reports);
    }

    function test_LateReportersAreMembersThatCountOnce() public {
        ReputationUpdate memory update = settledWithout();
        SilenceReport[] memory reports = reportsOf(update, 3, 2);
        reports[2] = reports[1];
        vm.expectRevert(abi.encodeWithSelector(IReputation.SignersOutOfOrder.selector, member(1), member(1)));
        reputation.reportSilence(update, reports);
        keys[0] = 0xbad;
        reports = reportsOf(update, 3, 2);
        vm.expectRevert(abi.encodeWithSelector(IReputation.NotARater.selector, vm.addr(0xbad), update.epoch));
        reputation.reportSilence(update, reports);
    }
}
