// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IDocket} from "../../market/interfaces/IDocket.sol";
import {CasePhase, CaseState, Outcome} from "../../market/interfaces/Proceedings.sol";
import {CourtTest} from "./support/CourtTest.sol";
import {Headers} from "./support/Headers.sol";

/// @title Reviewers are drawn by a later block, from the members of an earlier one
contract CourtDrawTest is CourtTest {
    function test_reviewersAreDrawnByTheBlockThatIsDue() public {
        registry.force(new address[](0));
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        bytes memory header = Headers.build(due, "randao");
        vm.roll(due);
        vm.expectRevert(abi.encodeWithSelector(IDocket.TooEarly.selector, due, due + 1));
        court.draw(play.caseId, play.state, header, "");
        vm.roll(due + 1);
        makeKnown(due, keccak256(header));
        sendDraw(play, header);
        uint256 seats = 0;
        for (uint256 i = 0; i < play.state.seats.length; ++i) {
            seats += uint8(play.state.seats[i]);
            for (uint256 j = 0; j < i; ++j) {
                assertNotEq(play.state.reviewers[i], play.state.reviewers[j]);
            }
        }
        assertEq(seats, 5);
        assertEq(uint256(play.state.phase), uint256(CasePhase.Drawn));
        assertEq(play.state.drawer, address(this));
    }

    function test_anotherRandaoDrawsOthers() public {
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        vm.roll(due + 1);
        bytes memory header = Headers.build(due, "randao");
        bytes memory ground = Headers.build(due, "another");
        makeKnown(due, keccak256(header));
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.WrongHeader.selector, due, due, keccak256(ground), keccak256(header))
        );
        court.draw(play.caseId, play.state, ground, "");
    }

    function test_theHeaderOfAnotherBlockDrawsNobody() public {
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        vm.roll(due + 2);
        bytes memory next = Headers.build(due + 1, "randao");
        makeKnown(due + 1, keccak256(next));
        bytes memory header = Headers.build(due, "randao");
        makeKnown(due, keccak256(header));
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.WrongHeader.selector, due, due + 1, keccak256(next), keccak256(header))
        );
        court.draw(play.caseId, play.state, next, "");
    }

    /// @dev EIP-2935 keeps 8,191 hashes; here the draw's window ends earlier.
    function test_aRandaoIsProvenFromHistoryAndNotForever() public {
        Play memory play = begun(exact, FALSE);
        uint256 due = play.state.phaseBlock + LOOKAHEAD;
        bytes memory header = Headers.build(due, "randao");
        vm.roll(due + DRAW_WINDOW);
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.WrongHeader.selector, due, due, keccak256(header), bytes32(0))
        );
        court.draw(play.caseId, play.state, header, "");
        makeKnown(due, keccak256(header));
        CaseState memory waiting = abi.decode(abi.encode(play.state), (CaseState));
        uint256 snapshot = vm.snapshotState();
        sendDraw(play, header);
        vm.revertToState(snapshot);
        play.state = waiting;
        vm.roll(due + DRAW_WINDOW + 1);
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.TooLate.selector, due + DRAW_WINDOW + 1, due + DRAW_WINDOW)
        );
        court.draw(play.caseId, play.state, header, "");
    }

    function test_repeatedSeatsAreOneReviewerAtItsFirstPlace() public {
        Play memory play = begun(exact, FALSE);
        address[] memory drawn = new address[](5);
        (drawn[0], drawn[1], drawn[2], drawn[3], drawn[4]) = (node(6), node(5), node(6), node(7), node(6));
        registry.force(drawn);
        pass(LOOKAHEAD + 1);
        sendDraw(play, dueHeader(play, "randao"));
        assertEq(play.state.reviewers.length, 3);
        assertEq(play.state.reviewers[0], node(6));
        assertEq(play.state.reviewers[1], node(5));
        assertEq(uint8(play.state.seats[0]), 3);
        assertEq(uint8(play.state.seats[2]), 1);
        // Three of five seats are a cluster but not two thirds; the two are outside it.
        Vote[] memory votes = say(3, ACCEPT, FALSE);
        votes[0] = Vote(REJECT, HONEST, 0, 0);
        commit(play, votes);
        decide(play, FALSE, votes);
        assertOutcome(play, Outcome.Refunded);
        assertEq(creditOf(node(6)), 18 * UNIT);
        assertEq(stakeOf(node(5)), STAKE - 2 * UNIT);
    }

    function test_fourSeatsOfOneNodeConvict() public {
        Play memory play = begun(exact, FALSE);
        draw(play, hex"0401");
        Vote[] memory votes = say(2, REJECT, HONEST);
        votes[1] = Vote(ACCEPT, FALSE, 0, 0);
        commit(play, votes);
        decide(play, FALSE, votes);
        assertOutcome(play, Outcome.Convicted);
        assertEq(creditOf(node(4)), 24 * UNIT);
    }

    function test_whoJoinsAfterTheReferenceBlockJudgesNothing() public {
        registry.force(new address[](0));
        Play memory play = newPlay(exact, FALSE);
        verify(play, REJECT, REJECT, REJECT, false);
        open(play, client);
        for (uint256 i = 30; i < 60; ++i) {
            _join(i, exact);
        }
        pass(LOOKAHEAD + 1);
        registry.force(new address[](0));
        sendDraw(play, dueHeader(play, "randao"));
        for (uint256 i = 0; i < play.state.reviewers.length; ++i) {
            assertLt(keys[play.state.reviewers[i]] - NODE_KEY, 20);
        }
    }
}
