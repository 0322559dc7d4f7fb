// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {ISummons} from "../../market/interfaces/ISummons.sol";
import {Tab} from "../../market/interfaces/MarketTypes.sol";
import {SummonsKind, SummonsState} from "../../market/interfaces/Proceedings.sol";
import {Draw, Opinion, Promise, Result, Row, VrfProof, Work} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {SummonsTest} from "./support/SummonsTest.sol";

/// @title What summons and convictions cost, the transaction's own gas included, everything cold, refunds not counted
abstract contract EvidenceGasTest is SummonsTest {
    bytes internal call_;
    /// @dev Computed before the test, in which the first call finds its receiver cold.
    uint256 internal deposit;

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

    /// @dev Within bounds, and more than what is paid for gas beside a tenth of L.
    function proven(uint256 used) internal view {
        assertLe(used, 260_000);
        assertGt(used * 1 gwei + PENALTY / 10, creditOf(stranger), "a profit");
    }

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
                compacted(made.resultSignatures),
                wordsOf(check.verdicts, check.signatures),
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
        deposit = summons.depositFor(SummonsKind.Check, block.basefee);
    }

    function test_GasOfASummonedCheck() public {
        // To reach: 90,000. The transaction of `scripts/bench gas` takes 89,796; this one has larger numbers to encode.
        assertLe(transact("summonCheck", address(summons), summoner, deposit, call_), 90_700);
    }
}

contract SummonResultsGasTest is EvidenceGasTest {
    function prepare() internal override {
        Play memory made = play(exact, WHOLE, 1);
        made.order.signature = "";
        vm.roll(uint256(made.admission.blockNumber) + 10);
        call_ = abi.encodeCall(ISummons.summonResults, (made.order, made.admission, made.admissionSignature));
        deposit = summons.depositFor(SummonsKind.Results, block.basefee);
    }

    function test_GasOfSummonedResults() public {
        assertLe(transact("summonResults", address(summons), summoner, deposit, call_), 90_000);
    }
}

contract AnswerCheckGasTest is EvidenceGasTest {
    /// @dev The dearest answer: three seats of three nodes.
    function prepare() internal override {
        Play memory made;
        for (uint64 i = 1; made.id == 0 || !isTypical(made); ++i) {
            made = play(exact, WHOLE, i);
        }
        summonCheck(made, 0);
        call_ = answerCall(made, checkOf(made, 0, Opinion.Accept));
    }

    /// @dev Three nodes by the first three tries: none falls on the inferencer, whose reads would be on top.
    function isTypical(Play memory made) private view returns (bool) {
        address[] memory seats = checkOf(made, 0, Opinion.Accept).seats;
        if (distinct(seats).length < 3) return false;
        bytes32 group = registry.groupId(exact, 0, LAYERS);
        uint256 size = registry.sizeAt(group, made.order.order.referenceBlock);
        bytes32 seed = Messages.segmentSeed(
            Messages.checkSeed(made.id, made.secret, made.draw.beta, made.resultsHash), 0
        );
        for (uint256 i = 0; i < 3; ++i) {
            uint256 place = (uint256(keccak256(abi.encode(seed, i))) >> 128) % size;
            if (registry.entryAt(group, place, made.order.order.referenceBlock).operator != seats[i]) return false;
        }
        return true;
    }

    function test_GasOfAnAnsweredCheck() public {
        uint256 used = transact("answerCheck", address(summons), scheduler, 0, call_);
        assertLe(used, 110_000);
        assertGt(used * 1 gwei, summons.depositFor(SummonsKind.Check, block.basefee), "a profit");
    }
}

/// @dev The cheapest: one node has all three seats.
contract AnswerCheckOfOneGasTest is EvidenceGasTest {
    function wholeNodes() internal pure override returns (uint256) {
        return 3;
    }

    function prepare() internal override {
        Play memory made;
        for (uint64 i = 1; made.id == 0 || distinct(checkOf(made, 0, Opinion.Accept).seats).length > 1; ++i) {
            made = play(exact, WHOLE, i);
        }
        summonCheck(made, 0);
        call_ = answerCall(made, checkOf(made, 0, Opinion.Accept));
    }

    function test_WhoLetsItselfBeSummonedEarnsNothing() public {
        uint256 used = transact("answerCheck of one node", address(summons), scheduler, 0, call_);
        assertGt(used * 1 gwei, summons.depositFor(SummonsKind.Check, block.basefee), "a profit");
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
            (summonsId, current, made.nodes, made.results, compacted(made.resultSignatures), made.draw, made.drawSignature)
        );
    }

    function test_GasOfAnsweredResults() public {
        uint256 used = transact("answerResults", address(summons), scheduler, 0, call_);
        assertLe(used, 110_000);
        assertGt(used * 1 gwei, summons.depositFor(SummonsKind.Results, block.basefee), "a profit");
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
        uint256 used = transact("Summons.convict", address(summons), stranger, 0, call_);
        assertGt(used * 1 gwei, creditOf(stranger), "a profit");
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
                compacted(made.resultSignatures),
                tab,
                promised,
                sign(SCHEDULER_KEY, Messages.hash(promised)),
                check.hints
            )
        );
        deposit = summons.passDepositFor(block.basefee);
    }

    function test_GasOfPassingOn() public {
        transact("passOnCheck", address(summons), scheduler, deposit, call_);
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
        deposit = summons.passDepositFor(block.basefee);
        SummonsState memory current = state;
        vm.recordLogs();
        vm.prank(scheduler);
        summons.passOnCheck{value: deposit}(
            summonsId, current, made.results, compacted(made.resultSignatures), tab, promised, signature, check.hints
        );
        read();
        current = state;
        call_ = abi.encodeCall(
            ISummons.respond, (summonsId, current, "")
        );
    }

    function test_GasOfAResponse() public {
        uint256 used = transact("respond", address(summons), node, 0, call_);
        assertGt(used * 1 gwei, summons.passDepositFor(block.basefee), "a profit");
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
        proven(transact("convictResults, evicted from two groups", address(evidence), stranger, 0, call_));
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
        proven(transact("convictNodes", address(evidence), stranger, 0, call_));
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
        proven(transact("convictDraws", address(evidence), stranger, 0, call_));
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
        proven(transact("convictBeta", address(evidence), stranger, 0, call_));
    }
}

contract ConvictRowsGasTest is EvidenceGasTest {
    function prepare() internal override {
        // The cheapest conviction: short messages, no eviction, a reporter that is known to the bank.
        bank.credit{value: 1}(stranger, 1);
        Row memory one = Row(keccak256("order"), 0, 1, keccak256("row"), keccak256("previous"));
        Row memory other = Row(keccak256("order"), 0, 1, keccak256("another row"), keccak256("previous"));
        (bytes memory first, bytes memory second) =
            (sign(EXACT_KEY, Messages.hash(one)), sign(EXACT_KEY, Messages.hash(other)));
        call_ = abi.encodeCall(IEvidence.convictRows, (one, first, other, second));
    }

    function test_GasOfTwoRows() public {
        proven(transact("convictRows", address(evidence), stranger, 0, call_));
    }
}
