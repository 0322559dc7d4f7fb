// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEquivocation} from "../interfaces/ITrothEquivocation.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {Role, Row, SlashReason} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";

contract EquivocationTest is TaskTest {
    address private reporter = makeAddr("reporter");

    function row() private pure returns (Row memory) {
        return Row({
            taskId: keccak256("task"),
            segment: 0,
            attempt: 1,
            position: 5,
            rowHash: keccak256("row"),
            previous: keccak256("previous")
        });
    }

    function structHash(Row memory signedRow) private pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256(
                    "Row(bytes32 taskId,uint8 segment,uint8 attempt,uint32 position,bytes32 rowHash,bytes32 previous)"
                ),
                signedRow
            )
        );
    }

    function sign(uint256 key, Row memory signedRow) private view returns (bytes memory) {
        return signed(key, structHash(signedRow));
    }

    function prove(Row memory a, bytes memory signatureA, Row memory b, bytes memory signatureB) private {
        vm.prank(reporter);
        troth.proveEquivocation(a, signatureA, b, signatureB);
    }

    function test_TwoRowsForOnePositionCostTheWholeStake() public {
        Row memory a = row();
        Row memory b = row();
        b.rowHash = keccak256("another row");
        bytes32 digestA = keccak256(abi.encodePacked(hex"1901", troth.domainSeparator(), structHash(a)));
        bytes32 digestB = keccak256(abi.encodePacked(hex"1901", troth.domainSeparator(), structHash(b)));
        bytes memory signatureA = sign(NODE_KEY, a);
        bytes memory signatureB = sign(NODE_KEY, b);
        vm.expectEmit(address(troth));
        emit ITrothEquivocation.EquivocationProven(a.taskId, nodeAddress(0), reporter, 0, 1, 5);
        vm.expectEmit(address(troth));
        emit ITrothMoney.Slashed(
            a.taskId, nodeAddress(0), NODE_STAKE, 0, SlashReason.Equivocated, keccak256(abi.encode(digestA, digestB))
        );
        prove(a, signatureA, b, signatureB);
        assertEq(stakeOf(nodeAddress(0)), 0);
        assertEq(creditOf(reporter), NODE_STAKE / 4);
        assertEq(creditOf(reserve), NODE_STAKE - NODE_STAKE / 4);
        assertSolvent(creditOf(reporter));
    }

    function test_TheReporterClaimsAndTheNodeIsEvicted() public {
        Row memory b = row();
        b.previous = keccak256("another history");
        prove(row(), sign(NODE_KEY, row()), b, sign(NODE_KEY, b));
        vm.expectEmit(address(troth));
        emit ITrothRegistry.Claimed(reporter, reporter, NODE_STAKE / 4);
        troth.claim(reporter);
        assertEq(reporter.balance, NODE_STAKE / 4);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.Evicted(nodeAddress(0));
        troth.evict(nodeAddress(0));
        bytes32 group = troth.groupId(tolerant, 0, 4);
        assertEq(troth.memberAt(group, 0, vm.getBlockNumber()), address(0));
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.StakeTooLow.selector, 0, NODE_STAKE));
        troth.enroll(nodeAddress(0), 0, 4);
        troth.topUp{value: NODE_STAKE}(nodeAddress(0));
        troth.enroll(nodeAddress(0), 0, 4);
        assertEq(troth.memberAt(group, 0, vm.getBlockNumber() + 1), nodeAddress(0));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NothingToEvict.selector, nodeAddress(7)));
        troth.evict(nodeAddress(7));
    }

    function test_ASchedulerThatCountersignedTwoRowsLosesItsStakeToo() public {
        Row memory b = row();
        b.rowHash = keccak256("another row");
        prove(row(), sign(SCHEDULER_KEY, row()), b, sign(SCHEDULER_KEY, b));
        assertEq(stakeOf(scheduler), 0);
        assertEq(uint8(troth.accountOf(scheduler).role), uint8(Role.Scheduler));
    }

    function test_OneRowSignedTwiceIsNoProof() public {
        bytes memory signature = sign(NODE_KEY, row());
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", troth.domainSeparator(), structHash(row())));
        vm.expectRevert(abi.encodeWithSelector(ITrothEquivocation.SameRow.selector, digest));
        troth.proveEquivocation(row(), signature, row(), signature);
    }

    function test_RowsOfDifferentPlacesAreNoProof() public {
        for (uint256 change = 0; change < 4; ++change) {
            Row memory b = row();
            if (change == 0) b.taskId = keccak256("another task");
            if (change == 1) b.segment = 1;
            if (change == 2) b.attempt = 2;
            if (change == 3) b.position = 6;
            bytes memory signatureA = sign(NODE_KEY, row());
            bytes memory signatureB = sign(NODE_KEY, b);
            vm.expectPartialRevert(ITrothEquivocation.DifferentPositions.selector);
            troth.proveEquivocation(row(), signatureA, b, signatureB);
        }
    }

    function test_RowsOfDifferentSignersAreNoProof() public {
        Row memory b = row();
        b.rowHash = keccak256("another row");
        bytes memory signatureA = sign(NODE_KEY, row());
        bytes memory signatureB = sign(NODE_KEY + 1, b);
        vm.expectRevert(
            abi.encodeWithSelector(ITrothEquivocation.DifferentSigners.selector, nodeAddress(0), nodeAddress(1))
        );
        troth.proveEquivocation(row(), signatureA, b, signatureB);
    }

    function test_NothingIsTakenFromWhoHasNothing() public {
        Row memory b = row();
        b.rowHash = keccak256("another row");
        bytes memory signatureA = sign(CLIENT_KEY, row());
        bytes memory signatureB = sign(CLIENT_KEY, b);
        vm.expectRevert(abi.encodeWithSelector(ITrothEquivocation.NothingAtStake.selector, client));
        troth.proveEquivocation(row(), signatureA, b, signatureB);
        signatureA = sign(NODE_KEY, row());
        signatureB = sign(NODE_KEY, b);
        troth.proveEquivocation(row(), signatureA, b, signatureB);
        vm.expectRevert(abi.encodeWithSelector(ITrothEquivocation.NothingAtStake.selector, nodeAddress(0)));
        troth.proveEquivocation(row(), signatureA, b, signatureB);
    }

    /// @dev Slashable up to and including the exit block, and not a block longer.
    function test_ALeavingPartyIsSlashableUntilTheExitBlock() public {
        Row memory b = row();
        b.rowHash = keccak256("another row");
        vm.startPrank(owner);
        troth.deregister(nodeAddress(0));
        troth.deregister(nodeAddress(1));
        vm.stopPrank();
        vm.roll(troth.accountOf(nodeAddress(0)).exitBlock);
        prove(row(), sign(NODE_KEY, row()), b, sign(NODE_KEY, b));
        assertEq(stakeOf(nodeAddress(0)), 0);
        pass(1);
        bytes memory signatureA = sign(NODE_KEY + 1, row());
        bytes memory signatureB = sign(NODE_KEY + 1, b);
        vm.expectRevert(abi.encodeWithSelector(ITrothEquivocation.NothingAtStake.selector, nodeAddress(1)));
        troth.proveEquivocation(row(), signatureA, b, signatureB);
        troth.withdraw(nodeAddress(0));
        troth.withdraw(nodeAddress(1));
        assertEq(payout.balance, NODE_STAKE);
    }
}
