// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {ISummons} from "../../market/interfaces/ISummons.sol";
import {
    Draw,
    Opinion,
    Promise,
    Result,
    SummonsState,
    Tab,
    VrfProof,
    Work
} from "../../market/interfaces/MarketTypes.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {SummonsTest} from "./support/SummonsTest.sol";

/// @title What summons and convictions cost, the transaction's own gas included, everything cold, refunds not counted
abstract contract EvidenceGasTest is SummonsTest {
    bytes internal call_;

    function halfNodes() internal pure override returns (uint256) {
        return 6;
    }

    /// @dev The scheduler has been paid before.
    function setUp() public virtual override {
        super.setUp();
        bank.credit{value: 1}(scheduler, 1);
        bank.credit{value: 1}(summoner, 1);
        slash(tolerantNode(0), 1);
        prepare();
    }

    function prepare() internal virtual;

    function summonsCall(Play memory made) internal pure returns (bytes memory) {
        return abi.encodeCall(
            ISummons.summonCheck, (made.order, made.draw, made.drawSignature, 0, made.secret)
        );
    }

    function answerCall(Play memory made, Check memory check) internal view returns (bytes memory) {
        SummonsState memory current = state;
        return abi.encodeCall(
            ISummons.answerCheck,
            (
                summonsId,
                current,
                made.results,
                made.resultSignatures,
                check.verdicts,
                check.signatures,
                check.hints
            )
        );
    }
}

contract SummonCheckGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        made.order.signature = "";
        call_ = summonsCall(made);
    }

    function test_GasOfASummonedCheck() public {
        assertLe(transact("summonCheck", address(summons), summoner, summons.depositFor(), call_), 90_000);
    }
}

contract SummonResultsGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        made.order.signature = "";
        vm.roll(uint256(made.admission.blockNumber) + 10);
        call_ = abi.encodeCall(ISummons.summonResults, (made.order, made.admission, made.admissionSignature));
    }

    function test_GasOfSummonedResults() public {
        assertLe(transact("summonResults", address(summons), summoner, summons.depositFor(), call_), 90_000);
    }
}

contract AnswerCheckGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        call_ = answerCall(made, checkOf(made, 0, Opinion.Accept));
    }

    function test_GasOfAnAnsweredCheck() public {
        assertLe(transact("answerCheck", address(summons), scheduler, 0, call_), 110_000);
    }
}

contract AnswerResultsGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        vm.roll(uint256(made.admission.blockNumber) + 10);
        summonResults(made);
        made.draw.blockNumber = uint64(vm.getBlockNumber());
        signAgain(made);
        SummonsState memory current = state;
        call_ = abi.encodeCall(
            ISummons.answerResults,
            (summonsId, current, made.nodes, made.results, made.resultSignatures, made.draw, made.drawSignature)
        );
    }

    function test_GasOfAnsweredResults() public {
        assertLe(transact("answerResults", address(summons), scheduler, 0, call_), 110_000);
    }
}

contract ConvictSchedulerGasTest is EvidenceGasTest {
    function prepare() internal override {
        summonCheck(play(exact, WHOLE, 1), 0);
        vm.roll(state.deadline + 1);
        SummonsState memory current = state;
        call_ = abi.encodeCall(ISummons.convict, (summonsId, current));
    }

    function test_GasOfAnUnansweredSummons() public {
        transact("Summons.convict", address(summons), stranger, 0, call_);
    }
}

contract PassOnGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        Promise memory promised = promiseOf(made, check.seats[0], 0, Work.Check);
        Tab memory tab = nodeTab(check.seats[0]);
        SummonsState memory current = state;
        call_ = abi.encodeCall(
            ISummons.passOnCheck,
            (
                summonsId,
                current,
                made.results,
                made.resultSignatures,
                tab,
                promised,
                sign(SCHEDULER_KEY, Messages.hash(promised)),
                check.hints
            )
        );
    }

    function test_GasOfPassingOn() public {
        transact("passOnCheck", address(summons), scheduler, summons.passDepositFor(), call_);
    }
}

contract RespondGasTest is EvidenceGasTest {
    address private node;

    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        summonCheck(made, 0);
        Check memory check = checkOf(made, 0, Opinion.Accept);
        node = check.seats[0];
        Promise memory promised = promiseOf(made, node, 0, Work.Check);
        Tab memory tab = nodeTab(node);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        uint256 deposit = summons.passDepositFor();
        SummonsState memory current = state;
        vm.recordLogs();
        vm.prank(scheduler);
        summons.passOnCheck{value: deposit}(
            summonsId, current, made.results, made.resultSignatures, tab, promised, signature, check.hints
        );
        read();
        current = state;
        call_ = abi.encodeCall(
            ISummons.respond, (summonsId, current, abi.encode(check.verdicts[0], check.signatures[0]))
        );
    }

    function test_GasOfAResponse() public {
        transact("respond", address(summons), node, 0, call_);
    }
}

contract ConvictResultsGasTest is EvidenceGasTest {
    function prepare() internal override {
        // A node of both halves, whom a conviction takes below one seat.
        uint256 key = EXACT_KEY + HALVES_KEY;
        slash(vm.addr(key), NODE_STAKE - SEAT);
        Result memory one;
        one.order = keccak256("order");
        (one.prompt, one.cached, one.written) = (20, 4, 8);
        (one.inputHead, one.outputHead) = (keccak256("input"), keccak256("output"));
        (one.traceCommitment, one.outputHash) = (keccak256("trace"), keccak256("answer"));
        bytes memory first = sign(key, Messages.hash(one));
        Result memory other = abi.decode(abi.encode(one), (Result));
        other.outputHash = keccak256("another answer");
        bytes memory second = sign(key, Messages.hash(other));
        call_ = abi.encodeCall(IEvidence.convictResults, (one, first, other, second));
    }

    function test_GasOfTwoResultsAndTheEvictionFromTwoGroups() public {
        assertLe(transact("convictResults, evicted from two groups", address(evidence), stranger, 0, call_), 260_000);
    }
}

contract ConvictNodesGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        made.nodes[0] = tolerantNode(0);
        made.admission.nodes = Messages.nodesHash(made.nodes);
        signAgain(made);
        (VrfProof memory proof, bytes32 beta) = prove(scheduler, Messages.inferAlpha(made.id));
        (, bytes memory hints) = lens.draw(inferencersRequest(made.order.order, beta, 0));
        call_ = abi.encodeCall(
            IEvidence.convictNodes,
            (made.order, made.admission, made.admissionSignature, made.nodes, 0, proof, hints)
        );
    }

    function test_GasOfWrongNodes() public {
        assertLe(transact("convictNodes", address(evidence), stranger, 0, call_), 260_000);
    }
}

contract ConvictDrawsGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        Draw memory other = Draw(made.id, made.resultsHash, keccak256("another"), made.draw.blockNumber);
        call_ = abi.encodeCall(
            IEvidence.convictDraws,
            (made.order, made.draw, made.drawSignature, other, sign(SCHEDULER_KEY, Messages.hash(other)))
        );
    }

    function test_GasOfTwoDraws() public {
        assertLe(transact("convictDraws", address(evidence), stranger, 0, call_), 260_000);
    }
}

contract ConvictBetaGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        (VrfProof memory proof,) = prove(scheduler, Messages.drawAlpha(made.id));
        made.draw.beta = keccak256("luckier");
        signAgain(made);
        call_ = abi.encodeCall(IEvidence.convictBeta, (made.order, made.draw, made.drawSignature, proof));
    }

    function test_GasOfAWrongOutput() public {
        assertLe(transact("convictBeta", address(evidence), stranger, 0, call_), 260_000);
    }
}
