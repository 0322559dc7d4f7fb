// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {ExecutionClass} from "../../market/interfaces/MarketTypes.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {Admission, Draw, Result, VrfProof} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Orders} from "../../market/libraries/Orders.sol";
import {EcVrf} from "../../libraries/EcVrf.sol";
import {EvidenceTest} from "./support/EvidenceTest.sol";

/// @title What a scheduler signed and should not have
contract EvidenceSchedulersTest is EvidenceTest {
    address private reporter = makeAddr("reporter");
    bytes private stored;

    function halfNodes() internal pure override returns (uint256) {
        return 6;
    }

    function setUp() public override {
        super.setUp();
        stored = abi.encode(play(exact, HALVES, 1));
    }

    function load() private view returns (Play memory) {
        return abi.decode(stored, (Play));
    }

    function convicted(Play memory made, Fault fault) private view {
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - PENALTY);
        assertTrue(evidence.isProven(keccak256(abi.encode(fault, scheduler, made.id))));
        assertGe(creditOf(reporter), PENALTY / 10);
        assertTrue(registry.isVoidByAny(scheduler, made.order.order.referenceBlock));
    }

    // ---- two admissions

    function test_TwoAdmissionsOfOneOrderCostL() public {
        Play memory made = load();
        Admission memory other = Admission(made.id, keccak256("others"), 0);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(other));
        vm.prank(reporter);
        evidence.convictAdmissions(made.order, made.admission, made.admissionSignature, other, signature);
        convicted(made, Fault.TwoAdmissions);
        vm.expectPartialRevert(IEvidence.AlreadyProven.selector);
        evidence.convictAdmissions(made.order, other, signature, made.admission, made.admissionSignature);
    }

    function test_AnAdmissionRepeatedLaterIsNoProof() public {
        Play memory made = load();
        Admission memory other = Admission(made.id, made.admission.nodes, made.admission.blockNumber + 1);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(other));
        vm.expectPartialRevert(IEvidence.NoContradiction.selector);
        evidence.convictAdmissions(made.order, made.admission, made.admissionSignature, other, signature);
    }

    function test_AdmissionsOfOthersOrOtherOrdersAreNoProof() public {
        Play memory made = load();
        Admission memory other = Admission(keccak256("another"), keccak256("others"), 0);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(other));
        vm.expectPartialRevert(Orders.WrongPlace.selector);
        evidence.convictAdmissions(made.order, made.admission, made.admissionSignature, other, signature);
        other.order = made.id;
        signature = sign(CLIENT_KEY, Messages.hash(other));
        vm.expectRevert(abi.encodeWithSelector(Orders.WrongSigner.selector, client, scheduler));
        evidence.convictAdmissions(made.order, made.admission, made.admissionSignature, other, signature);
        signature = foreign(SCHEDULER_KEY, Messages.hash(other));
        vm.expectPartialRevert(Orders.WrongSigner.selector);
        evidence.convictAdmissions(made.order, made.admission, made.admissionSignature, other, signature);
        signature = malleated(sign(SCHEDULER_KEY, Messages.hash(other)));
        vm.expectPartialRevert(ECDSA.ECDSAInvalidSignatureS.selector);
        evidence.convictAdmissions(made.order, made.admission, made.admissionSignature, other, signature);
    }

    function test_AnotherSchedulerCannotBePutUnderTheOrder() public {
        Play memory made = load();
        made.order.scheduler = vm.addr(SCHEDULER_KEY + 1);
        vm.expectPartialRevert(Orders.ForeignTab.selector);
        evidence.convictAdmissions(
            made.order, made.admission, made.admissionSignature, made.admission, made.admissionSignature
        );
    }

    // ---- two draws, another output, heads

    function test_TwoDrawsCostL() public {
        Play memory made = load();
        Draw memory other = Draw(made.id, made.resultsHash, keccak256("another beta"), made.draw.blockNumber);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(other));
        vm.prank(reporter);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, signature);
        convicted(made, Fault.TwoDraws);
    }

    function test_ADrawRepeatedLaterIsNoProof() public {
        Play memory made = load();
        Draw memory other = Draw(made.id, made.resultsHash, made.draw.beta, made.draw.blockNumber + 9);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(other));
        vm.expectPartialRevert(IEvidence.NoContradiction.selector);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, signature);
    }

    function test_AnotherOutputThanThatOfTheVrfCostsL() public {
        Play memory made = load();
        (VrfProof memory proof,) = prove(scheduler, Messages.drawAlpha(made.id));
        vm.expectRevert(abi.encodeWithSelector(IEvidence.BetaIsRight.selector, made.draw.beta));
        evidence.convictBeta(made.order, made.draw, made.drawSignature, proof);
        made.draw.beta = keccak256("luckier");
        signAgain(made);
        vm.prank(reporter);
        evidence.convictBeta(made.order, made.draw, made.drawSignature, proof);
        convicted(made, Fault.WrongBeta);
    }

    function test_AProofOverAnythingElseShowsNothing() public {
        Play memory made = load();
        (VrfProof memory proof,) = prove(scheduler, Messages.inferAlpha(made.id));
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        evidence.convictBeta(made.order, made.draw, made.drawSignature, proof);
        (proof,) = prove(vm.addr(SCHEDULER_KEY + 1), Messages.drawAlpha(made.id));
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        evidence.convictBeta(made.order, made.draw, made.drawSignature, proof);
    }

    function test_ADrawOverHeadsThatDoNotMeetCostsL() public {
        Play memory made = load();
        vm.expectRevert(abi.encodeWithSelector(IEvidence.HeadsMeet.selector, made.resultsHash));
        evidence.convictHeads(made.order, made.draw, made.drawSignature, made.results);
        made.results[1].inputHead = keccak256("other inputs");
        drawOver(made);
        vm.prank(reporter);
        evidence.convictHeads(made.order, made.draw, made.drawSignature, made.results);
        convicted(made, Fault.HeadsApart);
    }

    function test_ADrawOverTooFewOrForeignResultsCostsLToo() public {
        for (uint256 change = 0; change < 4; ++change) {
            Play memory made = play(exact, HALVES, uint64(change + 2));
            if (change == 0) made.results = firstOnly(made);
            if (change == 1) made.results[0].order = keccak256("another order");
            if (change == 2) made.results[1].segment = 0;
            if (change == 3) made.results[1].cached += 1;
            drawOver(made);
            uint96 before = stakeOf(scheduler);
            evidence.convictHeads(made.order, made.draw, made.drawSignature, made.results);
            assertEq(before - stakeOf(scheduler), PENALTY);
        }
    }

    function test_OtherResultsThanTheDrawsShowNothing() public {
        Play memory made = load();
        made.results[1].inputHead = keccak256("other inputs");
        vm.expectPartialRevert(Orders.Mismatch.selector);
        evidence.convictHeads(made.order, made.draw, made.drawSignature, made.results);
    }

    function firstOnly(Play memory made) private pure returns (Result[] memory list) {
        list = made.results;
        assembly ("memory-safe") {
            mstore(list, 1)
        }
    }

    function drawOver(Play memory made) private view {
        bytes32[] memory hashes = new bytes32[](made.results.length);
        for (uint256 s = 0; s < hashes.length; ++s) hashes[s] = Messages.hash(made.results[s]);
        made.draw.results = Messages.resultsHash(hashes);
        signAgain(made);
    }

    // ---- other nodes than those drawn

    function admit(Play memory made, uint256 segment, address node) private view {
        made.nodes[segment] = node;
        made.admission.nodes = Messages.nodesHash(made.nodes);
        signAgain(made);
    }

    function convictNodes(Play memory made, uint8 segment) private {
        (VrfProof memory proof, bytes32 beta) = prove(scheduler, Messages.inferAlpha(made.id));
        (, bytes memory hints) = lens.draw(inferencersRequest(made.order.order, beta, segment));
        vm.prank(reporter);
        evidence.convictNodes(
            made.order, made.admission, made.admissionSignature, made.nodes, segment, proof, hints
        );
    }

    function test_ANodeThatWasNotDrawnCostsTheSchedulerL() public {
        Play memory made = load();
        admit(made, 1, exactNode(0));
        convictNodes(made, 1);
        convicted(made, Fault.WrongNodes);
    }

    function test_EachOfTheCandidatesMayServe() public {
        Play memory made = load();
        (, bytes32 beta) = prove(scheduler, Messages.inferAlpha(made.id));
        (address[] memory drawn,) = lens.draw(inferencersRequest(made.order.order, beta, 0));
        assertEq(drawn.length, 2);
        for (uint256 i = 0; i < 2; ++i) {
            admit(made, 0, drawn[i]);
            vm.expectRevert(abi.encodeWithSelector(IEvidence.NodeWasDrawn.selector, drawn[i]));
            this.convictNodesOf(made, 0);
        }
    }

    function convictNodesOf(Play memory made, uint8 segment) external {
        (VrfProof memory proof, bytes32 beta) = prove(scheduler, Messages.inferAlpha(made.id));
        (, bytes memory hints) = lens.draw(inferencersRequest(made.order.order, beta, segment));
        evidence.convictNodes(
            made.order, made.admission, made.admissionSignature, made.nodes, segment, proof, hints
        );
    }

    function test_OtherNodesSegmentsOrProofsShowNothing() public {
        Play memory made = load();
        (VrfProof memory proof,) = prove(scheduler, Messages.inferAlpha(made.id));
        vm.expectPartialRevert(Orders.UnknownSegment.selector);
        evidence.convictNodes(made.order, made.admission, made.admissionSignature, made.nodes, 2, proof, "");
        made.nodes[1] = exactNode(0);
        vm.expectPartialRevert(Orders.Mismatch.selector);
        evidence.convictNodes(made.order, made.admission, made.admissionSignature, made.nodes, 1, proof, "");
        admit(made, 1, exactNode(0));
        (proof,) = prove(scheduler, Messages.drawAlpha(made.id));
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        evidence.convictNodes(made.order, made.admission, made.admissionSignature, made.nodes, 1, proof, "");
    }

    function test_AnAbsurdOrderConvictsNobody() public {
        Play memory made = load();
        made.order.order.referenceBlock = type(uint64).max;
        made.id = orderId(made.order.order);
        made.admission.order = made.id;
        admit(made, 1, exactNode(0));
        (VrfProof memory proof,) = prove(scheduler, Messages.inferAlpha(made.id));
        vm.expectPartialRevert(IRegistry.BlockNotPast.selector);
        evidence.convictNodes(made.order, made.admission, made.admissionSignature, made.nodes, 1, proof, "");
    }

    // ---- who pays what

    /// @dev L is that of the class whose order it was, not of the one that costs least.
    function test_TheOrdersClassCounts() public {
        ExecutionClass memory dear = executionClass(true);
        (dear.name, dear.penalty, dear.seat) = ("dear", 2 * PENALTY, 2 * SEAT);
        bytes32 class = classes.registerClass(dear);
        Play memory made = load();
        made.order.order.executionClass = class;
        made.id = orderId(made.order.order);
        made.draw.order = made.id;
        signAgain(made);
        Draw memory other = Draw(made.id, made.resultsHash, keccak256("another beta"), 0);
        evidence.convictDraws(
            made.order, made.draw, made.drawSignature, other, sign(SCHEDULER_KEY, Messages.hash(other))
        );
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - 2 * PENALTY);
    }

    function test_ASchedulerThatHasLeftOrHoldsNothingIsOutOfReach() public {
        Play memory made = load();
        Draw memory other = Draw(made.id, made.resultsHash, keccak256("another beta"), 0);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(other));
        slash(scheduler, SCHEDULER_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.NothingAtStake.selector, scheduler));
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, signature);
        vm.prank(scheduler);
        registry.deregister(scheduler);
        (,, uint40 exitBlock) = registry.roleOf(scheduler);
        vm.roll(exitBlock + 1);
        vm.expectPartialRevert(IEvidence.PartyLeft.selector);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, signature);
    }
}
