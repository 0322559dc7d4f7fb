// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {Opinion, Order, Result, Row, SignedOrder, TraceCommitment, Verdict} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Orders} from "../../market/libraries/Orders.sol";
import {EvidenceTest} from "./support/EvidenceTest.sol";

/// @title Two words of a node for one place
contract EvidenceNodesTest is EvidenceTest {
    address private node = exactNode(0);
    uint256 private key = EXACT_KEY;
    address private reporter = makeAddr("reporter");

    function resultOf(uint256 version) private pure returns (Result memory made) {
        made.order = keccak256("order");
        made.segment = 1;
        made.outputHash = keccak256(abi.encode(version));
    }

    function rowOf(uint256 version) private pure returns (Row memory) {
        return Row(keccak256("order"), 1, 5, keccak256(abi.encode(version)), keccak256("previous"));
    }

    function verdictOf(uint256 version) private pure returns (Verdict memory) {
        bytes32 commitment = keccak256(abi.encode(version));
        return Verdict(keccak256("order"), 1, keccak256("result"), commitment, uint8(Opinion.Accept), false);
    }

    function sign(Result memory made) private view returns (bytes memory) {
        return sign(key, Messages.hash(made));
    }

    function sign(Row memory made) private view returns (bytes memory) {
        return sign(key, Messages.hash(made));
    }

    function sign(Verdict memory made) private view returns (bytes memory) {
        return sign(key, Messages.hash(made));
    }

    function convict(Result memory one, Result memory other) private {
        (bytes memory first, bytes memory second) = (sign(one), sign(other));
        vm.prank(reporter);
        evidence.convictResults(one, first, other, second);
    }

    function subject(Fault fault) private view returns (bytes32) {
        return keccak256(abi.encode(fault, node, keccak256(abi.encode(keccak256("order"), uint256(1)))));
    }

    function test_TwoResultsForOnePlaceCostL() public {
        uint256 burnt = burntMoney();
        bytes32 proven = subject(Fault.TwoResults);
        assertFalse(evidence.isProven(proven));
        (Result memory one, Result memory other) = (resultOf(1), resultOf(2));
        (bytes memory first, bytes memory second) = (sign(one), sign(other));
        vm.expectEmit(address(registry));
        uint64 from = uint64(vm.getBlockNumber() - parameters().referenceAge - parameters().lag);
        emit IRegistry.Convicted(node, Fault.TwoResults, proven, from, uint64(vm.getBlockNumber()), 0);
        vm.expectEmit(address(evidence));
        emit IEvidence.FaultProven(proven, node, reporter, Fault.TwoResults, PENALTY);
        vm.prank(reporter);
        evidence.convictResults(one, first, other, second);
        assertTrue(evidence.isProven(proven));
        assertEq(stakeOf(node), NODE_STAKE - PENALTY);
        assertGe(creditOf(reporter), PENALTY / 10);
        assertLt(creditOf(reporter), PENALTY / 10 + 0.001 ether);
        assertEq(burntMoney() - burnt, PENALTY - creditOf(reporter));
        assertTrue(registry.isVoidByAny(node, last()));
    }

    function test_TwoRowsAndTwoVerdictsCostLToo() public {
        (Row memory row, Row memory otherRow) = (rowOf(1), rowOf(2));
        evidence.convictRows(row, sign(row), otherRow, sign(otherRow));
        assertEq(stakeOf(node), NODE_STAKE - PENALTY);
        (Verdict memory verdict, Verdict memory otherVerdict) = (verdictOf(1), verdictOf(2));
        evidence.convictVerdicts(verdict, sign(verdict), otherVerdict, sign(otherVerdict));
        assertEq(stakeOf(node), NODE_STAKE - 2 * PENALTY);
        assertTrue(evidence.isProven(subject(Fault.TwoRows)));
        assertTrue(evidence.isProven(subject(Fault.TwoVerdicts)));
    }

    function test_OnePlaceConvictsOnceHoweverManyPairsThereAre() public {
        convict(resultOf(1), resultOf(2));
        vm.expectRevert(abi.encodeWithSelector(IEvidence.AlreadyProven.selector, subject(Fault.TwoResults)));
        this.convictPair(2, 3);
        Row memory row = rowOf(1);
        Row memory other = rowOf(2);
        evidence.convictRows(row, sign(row), other, sign(other));
        (row.position, other.position) = (6, 6);
        (bytes memory first, bytes memory second) = (sign(row), sign(other));
        vm.expectRevert(abi.encodeWithSelector(IEvidence.AlreadyProven.selector, subject(Fault.TwoRows)));
        evidence.convictRows(row, first, other, second);
    }

    function convictPair(uint256 one, uint256 other) external {
        convict(resultOf(one), resultOf(other));
    }

    function test_OneMessageTwiceIsNoProof() public {
        Result memory one = resultOf(1);
        bytes memory signature = sign(one);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.SameMessage.selector, Messages.hash(one)));
        evidence.convictResults(one, signature, one, signature);
    }

    function test_OtherPlacesAreNoProof() public {
        for (uint256 change = 0; change < 2; ++change) {
            Result memory other = resultOf(2);
            if (change == 0) other.order = keccak256("another order");
            if (change == 1) other.segment = 0;
            bytes memory first = sign(resultOf(1));
            bytes memory second = sign(other);
            vm.expectPartialRevert(Orders.Mismatch.selector);
            evidence.convictResults(resultOf(1), first, other, second);
        }
        Row memory row = rowOf(2);
        row.position = 6;
        (bytes memory one, bytes memory two) = (sign(rowOf(1)), sign(row));
        vm.expectPartialRevert(Orders.Mismatch.selector);
        evidence.convictRows(rowOf(1), one, row, two);
    }

    /// @dev A node that was shown two results by a cheating scheduler and judged both has done nothing wrong.
    function test_VerdictsOverTwoResultsAreNoProof() public {
        Verdict memory other = verdictOf(2);
        other.result = keccak256("another result");
        (bytes memory first, bytes memory second) = (sign(verdictOf(1)), sign(other));
        vm.expectPartialRevert(Orders.Mismatch.selector);
        evidence.convictVerdicts(verdictOf(1), first, other, second);
    }

    function test_OtherSignersForeignDomainsAndMalleatedSignaturesAreNoProof() public {
        (Result memory one, Result memory other) = (resultOf(1), resultOf(2));
        bytes memory first = sign(one);
        bytes memory second = sign(EXACT_KEY + 1, Messages.hash(other));
        vm.expectRevert(abi.encodeWithSelector(IEvidence.DifferentSigners.selector, node, exactNode(1)));
        evidence.convictResults(one, first, other, second);
        second = foreign(EXACT_KEY, Messages.hash(other));
        vm.expectPartialRevert(IEvidence.DifferentSigners.selector);
        evidence.convictResults(one, first, other, second);
        second = malleated(sign(other));
        vm.expectPartialRevert(ECDSA.ECDSAInvalidSignatureS.selector);
        evidence.convictResults(one, first, other, second);
    }

    function test_ABadlyPaddedMessageIsNotTheSignedOne() public {
        (Result memory one, Result memory other) = (resultOf(1), resultOf(2));
        bytes memory call_ = abi.encodeCall(IEvidence.convictResults, (one, sign(one), one, sign(other)));
        // The second message's segment gets a bit that a byte does not have: it hashes otherwise, and nobody signed
        // that.
        call_[4 + 10 * 32 + 32 + 32] = 0x01;
        (bool success,) = address(evidence).call(call_);
        assertFalse(success);
    }

    function test_ASchedulerIsNoNode() public {
        key = SCHEDULER_KEY;
        (Result memory one, Result memory other) = (resultOf(1), resultOf(2));
        (bytes memory first, bytes memory second) = (sign(one), sign(other));
        vm.expectRevert();
        evidence.convictResults(one, first, other, second);
    }

    function test_WhoHasLeftIsOutOfReachAfterTheExitBlockOnly() public {
        vm.prank(node);
        registry.deregister(node);
        (,, uint40 exitBlock) = registry.roleOf(node);
        vm.roll(exitBlock + 1);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.PartyLeft.selector, node, exitBlock, exitBlock + 1));
        this.convictPair(1, 2);
        vm.roll(exitBlock);
        convict(resultOf(1), resultOf(2));
        assertEq(stakeOf(node), NODE_STAKE - PENALTY);
    }

    function test_WithoutStakeNothingIsProvenAndTheSubjectStaysOpen() public {
        slash(node, NODE_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.NothingAtStake.selector, node));
        this.convictPair(1, 2);
        assertFalse(evidence.isProven(subject(Fault.TwoResults)));
    }

    function test_WhoConvictsItselfGetsATenthOfWhatIsThere() public {
        slash(node, NODE_STAKE - PENALTY / 10);
        reporter = ownerOf(node);
        convict(resultOf(1), resultOf(2));
        assertEq(stakeOf(node), 0);
        assertLt(creditOf(reporter), PENALTY / 100 + 150_000 gwei);
    }

    function test_AConvictedNodeBelowOneSeatIsOutOfAllGroups() public {
        slash(node, NODE_STAKE - SEAT);
        convict(resultOf(1), resultOf(2));
        (,, uint48 one, uint48 two) = registry.sliceOf(node);
        assertEq(uint256(one) + two, 0);
    }

    // ---- a verdict over another trace than was committed to

    function commitmentOf(bytes32 result) private pure returns (TraceCommitment memory) {
        return TraceCommitment(keccak256("order"), 1, result, keccak256("before the rows"));
    }

    function convictCommitment(bytes32 result) public {
        TraceCommitment memory before = commitmentOf(result);
        Verdict memory verdict = verdictOf(1);
        evidence.convictCommitment(before, sign(key, Messages.hash(before)), verdict, sign(verdict));
    }

    function test_AVerdictOverAnotherTraceThanCommittedToCostsL() public {
        this.convictCommitment(keccak256("result"));
        assertEq(stakeOf(node), NODE_STAKE - PENALTY);
        assertTrue(evidence.isProven(subject(Fault.TwoVerdicts)));
    }

    /// @dev A cheating scheduler shows a verifier one result, has it commit, and then another: it commits once more.
    function test_ACommitmentForAnotherResultFramesNobody() public {
        vm.expectRevert(
            abi.encodeWithSelector(Orders.Mismatch.selector, keccak256("result"), keccak256("another result"))
        );
        this.convictCommitment(keccak256("another result"));
    }

    /// @dev Two verdicts, the second of which also breaks the commitment, are one offence.
    function test_OneOffenceIsNotFinedAsTwoVerdictsAndAsABrokenCommitment() public {
        (Verdict memory one, Verdict memory other) = (verdictOf(1), verdictOf(2));
        evidence.convictVerdicts(one, sign(one), other, sign(other));
        vm.expectRevert(abi.encodeWithSelector(IEvidence.AlreadyProven.selector, subject(Fault.TwoVerdicts)));
        this.convictCommitment(keccak256("result"));
        assertEq(stakeOf(node), NODE_STAKE - PENALTY);
    }

    // ---- how old the offence is

    function convictOver(Order memory order) private {
        (Result memory one, Result memory other) = (resultOf(1), resultOf(2));
        (one.order, other.order) = (orderId(order), orderId(order));
        evidence.convictResults(one, sign(one), other, sign(other));
    }

    function datedFails(SignedOrder memory order, bytes4 failure) private {
        vm.expectPartialRevert(failure);
        evidence.date(Fault.TwoResults, node, 1, order);
    }

    /// @dev Evidence that is shown late voids the leaf of its order, too, once the order is shown.
    function test_AnOldOffenceVoidsFromItsOwnOrderOn() public {
        Order memory order = newOrder(exact, HALVES, 1);
        SignedOrder memory signed = signOrder(order);
        pass(500);
        datedFails(signed, IEvidence.NotProven.selector);
        convictOver(order);
        uint64 until = uint64(vm.getBlockNumber());
        assertFalse(registry.isVoidByAny(node, order.referenceBlock), "nobody knows how old it is");
        pass(10);
        evidence.date(Fault.TwoResults, node, 1, signed);
        assertTrue(registry.isVoidByAny(node, order.referenceBlock));
        assertTrue(registry.isVoidByAny(node, order.referenceBlock - parameters().lag));
        assertFalse(registry.isVoidByAny(node, order.referenceBlock - parameters().lag - 1));
        assertTrue(registry.isVoidByAny(node, until));
        assertFalse(registry.isVoidByAny(node, until + 1), "what it did since is not void");
        datedFails(signed, IEvidence.AlreadyProven.selector);
        assertEq(stakeOf(node), NODE_STAKE - PENALTY, "nothing more is taken");
    }

    function test_AnotherOrderDatesNoOffence() public {
        Order memory order = newOrder(exact, HALVES, 1);
        convictOver(order);
        SignedOrder memory older = signOrder(order);
        older.order.referenceBlock -= 100;
        datedFails(older, IEvidence.NotProven.selector);
        SignedOrder memory foreign_ = signOrder(order);
        foreign_.client = stranger;
        datedFails(foreign_, Orders.ForeignTab.selector);
        vm.expectPartialRevert(IEvidence.NotProven.selector);
        evidence.date(Fault.TwoRows, node, 1, signOrder(order));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, address(this)));
        registry.date(node, Fault.TwoResults, 0, 1);
    }
}
