// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {IDocket} from "../../market/interfaces/IDocket.sol";
import {ILeaves} from "../../market/interfaces/ILeaves.sol";
import {ISummons} from "../../market/interfaces/ISummons.sol";
import {ClaimState, LeafKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {CaseKind, SummonsKind, SummonsState} from "../../market/interfaces/Proceedings.sol";
import {
    Admission,
    Opinion,
    Order,
    Promise,
    Result,
    TraceCommitment,
    Verdict,
    Work
} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {AttackMoney} from "./support/AttackMoney.sol";

/// @title Attempts that succeeded when they were first played, and what holds now
contract AttacksOpenTest is AttackMoney {
    bytes32 private summonsId;
    SummonsState private state;

    function test_AClaimsGasMakesNoHonestSchedulerShort() public {
        address node = exactNode(0);
        openNodeTab(node);
        Tab memory tab = nodeTab(node);
        // The deposit covers all that is authorised, as the protocol wants it, and not a unit more.
        Voucher memory voucher = voucherOf(tab, 0, DEPOSIT, 2);
        ClaimState memory state = claim(tab, voucher, SCHEDULER_KEY, oneLeaf(1, 4 ether), node);
        pass(parameters().claimDelay);
        bank.settle(tab, state);
        voucher.spent = 4 ether;
        voucher.acknowledgedThrough = 1;
        state = claim(tab, voucher, SCHEDULER_KEY, oneLeaf(2, 6 ether), node);
        pass(parameters().claimDelay);
        bank.settle(tab, state);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.NothingShort.selector, Messages.tabId(tab)));
        evidence.convictPayer(tab);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
    }

    /// @dev It computed nothing, and one no among two yes brings no case in which it could lose.
    function test_AVerifierThatAlwaysSaysNoIsPaidNothing() public {
        Served memory made = serve(1);
        (Tab memory tab, bytes memory leaf) = checkLeaf(made, Opinion.Reject, keccak256("computed nothing"));
        worthless(tab, leaf);
    }

    /// @dev A result that no node signed and no draw names: judge and judged are the verifier.
    function test_AVerifierThatJudgesAResultOfItsOwnIsPaidNothing() public {
        Served memory made = serve(1);
        made.results[0].traceCommitment = keccak256(abi.encode(keccak256("my own"), traceSalt(0)));
        (Tab memory tab, bytes memory leaf) = checkLeaf(made, Opinion.Accept, keccak256("my own"), keccak256("my own"));
        worthless(tab, leaf);
    }

    /// @dev What it signed before it saw the rows named another trace: who holds both convicts it, and its leaves are void.
    function test_AVerifierThatCopiesAfterItsCommitmentIsPaidNothing() public {
        Served memory made = serve(1);
        address verifier = made.seats[0];
        bytes32 earlier =
            keccak256(abi.encode(made.id, uint8(0), verifier, keccak256("computed nothing"), bytes32("salt")));
        TraceCommitment memory before = TraceCommitment(made.id, 0, Messages.hash(made.results[0]), earlier);
        (Tab memory tab, bytes memory leaf) = checkLeaf(made, Opinion.Accept, traceRoot(0));
        Verdict memory verdict = verdictOf(made, Opinion.Accept);
        verdict.commitment = keccak256(abi.encode(made.id, uint8(0), verifier, traceRoot(0), bytes32("salt")));
        bytes memory word = signAs(verifier, Messages.hash(before));
        bytes memory other = signAs(verifier, Messages.hash(verdict));
        uint256 stake = stakeOf(verifier);
        evidence.convictCommitment(before, word, verdict, other);
        assertEq(stakeOf(verifier), stake - PENALTY);
        worthless(tab, leaf);
    }

    function worthless(Tab memory tab, bytes memory leaf) private {
        ILeaves leaves = ILeaves(factory.addressesOf(parameters()).leaves);
        vm.expectRevert();
        leaves.leafWorth(tab, LeafKind.Promise, 1, leaf);
    }

    /// @dev It was silent when it was asked for results; later it signs what nobody can take to court any more.
    function test_ANodeThatKeptItsResultsBackIsPaidNothing() public {
        Served memory made = serve(1);
        address node = made.nodes[0];
        (Admission memory admission, bytes memory word) = signAdmission(made.order.order, made.nodes);
        pass(parameters().summonsWindow);
        uint256 deposit = summons.depositFor(SummonsKind.Results, block.basefee);
        vm.recordLogs();
        vm.prank(client);
        summonsId = summons.summonResults{value: deposit}(made.order, admission, word);
        readState();
        Tab memory tab = nodeTab(node);
        Promise memory promised = promiseOf(made, tab, Work.Inference);
        (promised.promptAsk, promised.writtenAsk, promised.price) = (ASK, ASK, FEE_CAP / 2);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        deposit = summons.passDepositFor(block.basefee);
        vm.deal(scheduler, deposit);
        vm.recordLogs();
        vm.prank(scheduler);
        summons.passOnResults{value: deposit}(summonsId, state, made.nodes, tab, promised, signature);
        readState();
        vm.roll(uint256(state.deadline) + 1);
        summons.convict(summonsId, state);
        assertEq(uint256(summons.summonsOf(summonsId)), 2, "nothing is owed for this order any more");
        pass(500);
        Result memory garbage = made.results[0];
        (garbage.prompt, garbage.written) = (type(uint32).max, type(uint32).max);
        worthless(tab, abi.encode(promised, signature, garbage, signAs(node, Messages.hash(garbage))));
    }

    function promiseOf(Served memory made, Tab memory tab, Work work) private pure returns (Promise memory promised) {
        promised.tab = Messages.tabId(tab);
        (promised.sequence, promised.order, promised.work) = (1, made.id, uint8(work));
        promised.referenceBlock = made.order.order.referenceBlock;
    }

    // ---- summons

    function readState() private {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            bytes32 topic = logs[i].topics[0];
            if (
                topic == ISummons.Summoned.selector || topic == ISummons.PassedOn.selector
                    || topic == ISummons.Responded.selector || topic == ISummons.NodeSilent.selector
            ) state = abi.decode(logs[i].data, (SummonsState));
        }
    }

    function summonCheck(Served memory made) private {
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.recordLogs();
        vm.prank(client);
        summonsId = summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, 0, made.secret);
        readState();
    }

    function passOn(Served memory made, address node) private {
        Tab memory tab = nodeTab(node);
        Promise memory promised = promiseOf(made, tab, Work.Check);
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        uint256 deposit = summons.passDepositFor(block.basefee);
        vm.deal(scheduler, scheduler.balance + deposit);
        vm.recordLogs();
        vm.prank(scheduler);
        summons.passOnCheck{value: deposit}(
            summonsId, state, made.results, compacted(made.signatures), tab, promised, signature, made.hints
        );
        readState();
    }

    /// @dev It was given no rows to compare with, and says that it is there.
    function respond(address node) private {
        vm.recordLogs();
        vm.prank(node);
        summons.respond(summonsId, state, "");
        readState();
    }

    /// @dev Verifiers that were given nothing say that they are there. The client still has its drawn leaf judged, by a court
    ///      that convicts.
    function test_AChecksRefusalKeepsNoLeafOutOfTheCourt() public {
        Served memory made = serve(1);
        summonCheck(made);
        address[] memory nodes = distinct(made.seats);
        for (uint256 i = 0; i < nodes.length; ++i) {
            passOn(made, nodes[i]);
            respond(nodes[i]);
        }
        made.verdicts = new Verdict[](0);
        made.verdictSignatures = new bytes[](0);
        summons.answerCheck(
            summonsId,
            state,
            made.results,
            compacted(made.signatures),
            wordsOf(made.verdicts, made.verdictSignatures),
            made.hints
        );
        say(made, Opinion.CannotTell);
        Trial memory trial = open(made, Opinion.CannotTell, client);
        assertEq(uint8(trial.state.kind), uint8(CaseKind.Acceptance), "the court can convict");
    }

    function test_ASummonsThatIsPassedOnLeavesTimeForTheCourt() public {
        Served memory made = serve(1);
        pass(20);
        summonCheck(made);
        vm.roll(state.deadline);
        // A friend is silent for a fine, and the next of the draw takes its place.
        passOn(made, made.seats[0]);
        vm.roll(uint256(state.deadline) + 1);
        vm.recordLogs();
        summons.convict(summonsId, state);
        readState();
        (made.seats, made.hints) = seatsOf(made, summons.silentOf(summonsId));
        address[] memory nodes = distinct(made.seats);
        for (uint256 i = 0; i < nodes.length; ++i) {
            vm.roll(state.deadline);
            passOn(made, nodes[i]);
            respond(nodes[i]);
        }
        vm.roll(state.deadline);
        say(made, Opinion.Reject);
        summons.answerCheck(
            summonsId,
            state,
            made.results,
            compacted(made.signatures),
            wordsOf(made.verdicts, made.verdictSignatures),
            made.hints
        );
        Trial memory trial = open(made, Opinion.Reject, client);
        assertEq(trial.state.node, made.nodes[0]);
    }

    /// @dev The check was complete; then a friend of the node's lets a summons lapse, so that others sit in its seats.
    function test_AFriendsSilenceUndoesNoCheck() public {
        Served memory made = serve(1);
        address[] memory seats = made.seats;
        pass(20);
        summonCheck(made);
        passOn(made, seats[0]);
        vm.roll(uint256(state.deadline) + 1);
        vm.recordLogs();
        summons.convict(summonsId, state);
        readState();
        (made.seats, made.hints) = seatsOf(made, summons.silentOf(summonsId));
        assertNotEq(made.seats[0], seats[0], "the summons goes on without the silent one");
        // Without its verdict it is passed over in court as well, and the others' verdicts stand beside the new seat.
        uint256 before = vm.snapshotState();
        Trial memory trial = open(made, Opinion.Reject, client);
        assertEq(trial.state.verifiers, made.seats);
        vm.revertToState(before);
        // Its seats changed by the fine: the draw is the same, by other hints.
        (made.seats, made.hints) = seatsOf(made, new address[](0));
        assertEq(made.seats, seats);
        trial = open(made, Opinion.Reject, client);
        assertEq(trial.state.verifiers, seats);
        assertEq(uint8(trial.state.kind), uint8(CaseKind.Rejection));
    }

    // ---- court

    function test_NobodyIsMadeAClientToKeepItsOwnerOutOfACommittee() public {
        address victim = exactNode(11);
        Order memory order = newOrder(exact, WHOLE, 1);
        order.tab = Messages.tabId(Tab({payer: victim, payee: scheduler, key: tabKey}));
        Served memory made = serve(signOrder(order));
        made.order.client = victim;
        // The key doubts in the name of a client that never opened a tab.
        vm.deal(tabKey, 1 ether);
        openFails(made, Opinion.None, tabKey, abi.encodeWithSelector(IDocket.TabUnknown.selector, order.tab));
    }
}
