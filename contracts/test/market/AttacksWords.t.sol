// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {IProofs} from "../../market/interfaces/IProofs.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {ISummons} from "../../market/interfaces/ISummons.sol";
import {PotKind, Role, Tab} from "../../market/interfaces/MarketTypes.sol";
import {Fault, SummonsKind, SummonsState} from "../../market/interfaces/Proceedings.sol";
import {Admission, Draw, Opinion, Order, Promise, Result, Row, Verdict, Word} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Orders} from "../../market/libraries/Orders.sol";
import {AttackStage} from "./support/AttackStage.sol";

/// @title Attempts on what signatures prove: convictions, summons, messages of one kind shown as another
contract AttacksWordsTest is AttackStage {
    address private friend = makeAddr("friend");

    function signed(address node, Result memory result_) private view returns (bytes memory) {
        return signAs(node, Messages.hash(result_));
    }

    /// @dev Two results of one node for one segment, and their signatures.
    function twoResults(Served memory made)
        private
        view
        returns (Result memory one, bytes memory oneSignature, Result memory other, bytes memory otherSignature)
    {
        (one, other) = (made.results[0], result(made.order.order, 0));
        other.written += 1;
        (oneSignature, otherSignature) = (signed(made.nodes[0], one), signed(made.nodes[0], other));
    }

    function convictTwice(Served memory made) private {
        (Result memory one, bytes memory first, Result memory other, bytes memory second) = twoResults(made);
        evidence.convictResults(one, first, other, second);
    }

    // ---- escaping

    /// @dev Friends lock all of its stake by cases of their own before the true evidence is shown.
    function test_LockedStakeIsTakenToo() public {
        Served memory made = serve(1);
        bytes32 node = idOf(made.nodes[0]);
        move(PotKind.Stake, node, PotKind.Locked, node, NODE_STAKE - 1);
        convictTwice(made);
        assertEq(stakeOf(made.nodes[0]) + lockedOf(made.nodes[0]), NODE_STAKE - PENALTY);
    }

    /// @dev It shows its own fault first, to be convicted once, by itself, for a tenth.
    function test_WhoConvictsItselfLosesNineTenths() public {
        Served memory made = serve(1);
        (Result memory one, bytes memory first, Result memory other, bytes memory second) = twoResults(made);
        vm.prank(made.nodes[0]);
        evidence.convictResults(one, first, other, second);
        uint96 returned = creditOf(made.nodes[0]);
        assertLe(returned, PENALTY / 10 + 0.0002 ether);
        assertEq(stakeOf(made.nodes[0]), NODE_STAKE - PENALTY);
        // The other order of the same two, or a third one, convicts no more.
        vm.expectPartialRevert(IEvidence.AlreadyProven.selector);
        evidence.convictResults(other, second, one, first);
        one.written += 7;
        first = signed(made.nodes[0], one);
        vm.expectPartialRevert(IEvidence.AlreadyProven.selector);
        evidence.convictResults(one, first, other, second);
    }

    /// @dev A late conviction of its own choice does not shrink what an earlier one voided.
    function test_AnotherConvictionOfOneselfHidesNoVoidLeaf() public {
        Served memory made = serve(1);
        convictTwice(made);
        uint64 early = made.order.order.referenceBlock;
        assertTrue(registry.isVoidByAny(made.nodes[0], early));
        pass(500);
        Served memory later = serve(2);
        for (uint64 sequence = 3; later.nodes[0] != made.nodes[0]; ++sequence) later = serve(sequence);
        convictTwice(later);
        assertTrue(registry.isVoidByAny(made.nodes[0], early), "still void");
        assertTrue(registry.isVoidByAny(made.nodes[0], later.order.order.referenceBlock));
        assertEq(registry.convictionCount(made.nodes[0]), 2);
    }

    function test_WhoLeavesIsConvictedUntilItsLastBlock() public {
        Served memory made = serve(1);
        vm.prank(made.nodes[0]);
        registry.deregister(made.nodes[0]);
        pass(parameters().unbonding);
        vm.expectPartialRevert(IRegistry.StillUnbonding.selector);
        registry.withdrawStake(made.nodes[0]);
        convictTwice(made);
        pass(1);
        registry.withdrawStake(made.nodes[0]);
        assertEq(creditOf(made.nodes[0]), NODE_STAKE - PENALTY);
    }

    // ---- framing

    function test_OneWordTwiceOrInTwoSignaturesIsOneWord() public {
        Served memory made = serve(1);
        Result memory one = made.results[0];
        bytes memory signature = made.signatures[0];
        bytes32 hash = Messages.hash(one);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.SameMessage.selector, hash));
        evidence.convictResults(one, signature, one, signature);
        // A signature of somebody else over a word that the node never said.
        Result memory other = result(made.order.order, 0);
        other.written += 1;
        bytes memory foreign = sign(CLIENT_KEY, Messages.hash(other));
        vm.expectRevert(abi.encodeWithSelector(IEvidence.DifferentSigners.selector, made.nodes[0], client));
        evidence.convictResults(one, signature, other, foreign);
        assertEq(stakeOf(made.nodes[0]), NODE_STAKE);
    }

    /// @dev A verifier that adds its lock says nothing else.
    function test_AVerdictWithItsLockIsNoSecondVerdict() public {
        Served memory made = serve(1);
        address verifier = made.seats[0];
        Verdict memory plain = verdictOf(made, Opinion.Reject);
        Verdict memory locking = verdictOf(made, Opinion.Reject);
        locking.locks = true;
        bytes memory first = signAs(verifier, Messages.hash(plain));
        bytes memory second = signAs(verifier, Messages.hash(locking));
        vm.expectRevert(abi.encodeWithSelector(IEvidence.SameMessage.selector, plain.commitment));
        evidence.convictVerdicts(plain, first, locking, second);
    }

    /// @dev It is shown two results of one node, and judges both: they must not be one verdict twice.
    function test_VerdictsOverTwoResultsFrameNobody() public {
        Served memory made = serve(1);
        address verifier = made.seats[0];
        Verdict memory one = verdictOf(made, Opinion.Accept);
        Verdict memory other = verdictOf(made, Opinion.Reject);
        other.result = keccak256("the result that only this verifier was shown");
        bytes memory first = signAs(verifier, Messages.hash(one));
        bytes memory second = signAs(verifier, Messages.hash(other));
        vm.expectPartialRevert(Orders.Mismatch.selector);
        evidence.convictVerdicts(one, first, other, second);
    }

    /// @dev Words of one kind signed, and shown as another of the same size.
    function test_NoWordIsAnotherKindOfWord() public {
        Served memory made = serve(1);
        bytes32 hash = Messages.hash(Row(made.id, 0, 1, "row", "previous"));
        Row memory row = Row(made.id, 0, 1, "another row", "previous");
        bytes memory rowSignature = signAs(made.nodes[0], Messages.hash(row));
        // The signature of a Result under a Row: its signer is nobody known.
        address nobody = ECDSA.recover(digest(hash), made.signatures[0]);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.DifferentSigners.selector, nobody, made.nodes[0]));
        evidence.convictRows(Row(made.id, 0, 1, "row", "previous"), made.signatures[0], row, rowSignature);
        // An Admission of three words is no Draw of four, though both begin with the order.
        Admission memory admission = Admission(made.id, made.resultsHash, made.draw.blockNumber);
        bytes memory word = sign(SCHEDULER_KEY, Messages.hash(admission));
        Draw memory other = Draw(made.id, made.resultsHash, "beta", made.draw.blockNumber);
        vm.expectPartialRevert(Orders.WrongSigner.selector);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, word);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
    }

    /// @dev Another client, key or scheduler under the order that the scheduler signed for.
    function test_NothingInASignedOrderIsFree() public {
        Served memory made = serve(1);
        Draw memory other = Draw(made.id, "other results", made.draw.beta, made.draw.blockNumber);
        bytes memory word = sign(SCHEDULER_KEY, Messages.hash(other));
        made.order.client = friend;
        vm.expectPartialRevert(Orders.ForeignTab.selector);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, word);
        (made.order.client, made.order.scheduler) = (client, vm.addr(SCHEDULER_KEY + 1));
        vm.expectPartialRevert(Orders.ForeignTab.selector);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, word);
        (made.order.scheduler, made.order.key) = (scheduler, friend);
        vm.expectPartialRevert(Orders.ForeignTab.selector);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, word);
        // Another class with a greater penalty: then it is another order.
        made.order.key = tabKey;
        made.order.order.executionClass = tolerant;
        vm.expectPartialRevert(Orders.WrongPlace.selector);
        evidence.convictDraws(made.order, made.draw, made.drawSignature, other, word);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
    }

    function test_WhatIsNoProofConvictsNobody() public {
        vm.expectRevert(abi.encodeWithSelector(IProofs.NoSuchProof.selector, bytes4(0)));
        evidence.convictByProof(abi.encode(scheduler, uint64(1), bytes32("mine")));
    }

    function test_NobodyConvictsOrVoidsByHand() public {
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, address(this)));
        registry.convict(scheduler, Fault.TwoDraws, "mine", 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, address(this)));
        registry.suspend(exactNode(0), "mine");
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, address(this)));
        registry.restore(exactNode(0), "mine");
    }

    // ---- summons

    function summon(Served memory made, address summoner) private returns (bytes32 id, SummonsState memory state) {
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.deal(summoner, summoner.balance + deposit);
        vm.recordLogs();
        vm.prank(summoner);
        id = summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, 0, made.secret);
        state = abi.decode(logged(ISummons.Summoned.selector), (SummonsState));
    }

    /// @dev Summoner and scheduler are one: it pays itself, and loses L.
    function test_WhoSummonsItselfLosesL() public {
        Served memory made = serve(1);
        (bytes32 id, SummonsState memory state) = summon(made, friend);
        vm.roll(uint256(state.deadline) + 1);
        vm.prank(friend);
        summons.convict(id, state);
        uint256 returned = friend.balance + creditOf(friend) + creditOf(scheduler);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - PENALTY);
        assertLt(returned, PENALTY / 5 + state.deposit);
        // And once.
        vm.expectPartialRevert(ISummons.SummonsMismatch.selector);
        summons.convict(id, state);
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.expectRevert(abi.encodeWithSelector(ISummons.AlreadySummoned.selector, id));
        summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, 0, made.secret);
    }

    /// @dev Words that the scheduler never signed, and orders of another one.
    function test_NobodyIsSummonedOverOrdersThatItNeverTook() public {
        Served memory made = serve(1);
        bytes memory own = sign(CLIENT_KEY, Messages.hash(made.draw));
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.expectRevert(abi.encodeWithSelector(Orders.WrongSigner.selector, client, scheduler));
        summons.summonCheck{value: deposit}(made.order, made.draw, own, 0, made.secret);
        (Admission memory admission, bytes memory word) = signAdmission(made.order.order, made.nodes);
        admission.blockNumber -= 20;
        vm.expectPartialRevert(Orders.WrongSigner.selector);
        summons.summonResults{value: deposit}(made.order, admission, word);
        // Not before the window, and only with the right sum.
        admission.blockNumber += 20;
        vm.expectPartialRevert(ISummons.TooEarly.selector);
        summons.summonResults{value: deposit}(made.order, admission, word);
        vm.expectRevert(abi.encodeWithSelector(ISummons.WrongDeposit.selector, 1, deposit, 2 * deposit));
        summons.summonCheck{value: 1}(made.order, made.draw, made.drawSignature, 0, made.secret);
    }

    /// @dev A draw that runs out of gas must not look like one that finds too few seats.
    function test_ADrawStarvedOfGasIsNoAnswer() public {
        Served memory made = serve(1);
        (bytes32 id, SummonsState memory state) = summon(made, friend);
        bytes memory call_ = abi.encodeCall(
            summons.answerCheck, (id, state, made.results, compacted(made.signatures), new Word[](0), made.hints)
        );
        for (uint256 gas_ = 40_000; gas_ <= 200_000; gas_ += 4_000) {
            (bool success,) = address(summons).call{gas: gas_}(call_);
            assertFalse(success);
        }
        assertGt(uint256(summons.summonsOf(id)), 2, "it is still open");
    }

    /// @dev Hints of another draw, so that it finds others or nobody.
    function test_HintsThatLieAnswerNothing() public {
        Served memory made = serve(1);
        say(made, Opinion.Accept);
        // Changes after the reference block make hints needed.
        pass(2);
        address[] memory drawn = distinct(made.seats);
        for (uint256 i = 0; i < drawn.length; ++i) {
            vm.prank(drawn[i]);
            registry.deregister(drawn[i]);
        }
        pass(1);
        (bytes32 id, SummonsState memory state) = summon(made, friend);
        Word[] memory words = wordsOf(made.verdicts, made.verdictSignatures);
        vm.expectPartialRevert(bytes4(keccak256("WrongHint(uint256,uint256,uint256)")));
        summons.answerCheck(id, state, made.results, compacted(made.signatures), words, "");
        bytes memory lies = new bytes(4000);
        vm.expectPartialRevert(bytes4(keccak256("WrongHint(uint256,uint256,uint256)")));
        summons.answerCheck(id, state, made.results, compacted(made.signatures), words, lies);
        (, bytes memory hints) = seatsOf(made, new address[](0));
        assertGt(hints.length, 0);
        // More than is needed changes nothing.
        hints = bytes.concat(hints, lies);
        summons.answerCheck(id, state, made.results, compacted(made.signatures), words, hints);
        assertEq(uint256(summons.summonsOf(id)), 1);
    }

    /// @dev An invented order names an honest node, so that it must speak or pay: speaking is paid for.
    function test_ANodeThatWasNeverDrawnIsPaidForSpeaking() public {
        Served memory made = serve(1);
        address victim = made.nodes[0] == exactNode(0) ? exactNode(1) : exactNode(0);
        made.nodes[0] = victim;
        (Admission memory admission, bytes memory word) = signAdmission(made.order.order, made.nodes);
        pass(parameters().summonsWindow);
        uint256 deposit = summons.depositFor(SummonsKind.Results, block.basefee);
        vm.deal(friend, deposit);
        vm.recordLogs();
        vm.prank(friend);
        bytes32 id = summons.summonResults{value: deposit}(made.order, admission, word);
        SummonsState memory state = abi.decode(logged(ISummons.Summoned.selector), (SummonsState));
        passOn(made, id, state, victim);
        state = passed;
        vm.prank(victim);
        summons.respond(id, state, "");
        assertEq(stakeOf(victim), NODE_STAKE);
        assertEq(creditOf(victim), summons.passDepositFor(block.basefee));
    }

    SummonsState private passed;

    function passOn(Served memory made, bytes32 id, SummonsState memory state, address node) private {
        Tab memory tab = Tab({payer: ownerOf(scheduler), payee: node, key: scheduler});
        Promise memory promised;
        promised.tab = Messages.tabId(tab);
        (promised.sequence, promised.order) = (1, made.id);
        promised.referenceBlock = made.order.order.referenceBlock;
        bytes memory signature = sign(SCHEDULER_KEY, Messages.hash(promised));
        uint256 deposit = summons.passDepositFor(block.basefee);
        vm.deal(scheduler, deposit);
        vm.recordLogs();
        vm.prank(scheduler);
        summons.passOnResults{value: deposit}(id, state, made.nodes, tab, promised, signature);
        (passed,,) = abi.decode(logged(ISummons.PassedOn.selector), (SummonsState, Promise, bytes));
    }
}
