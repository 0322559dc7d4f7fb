// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {PotKind} from "../../market/interfaces/MarketTypes.sol";
import {Outcome} from "../../market/interfaces/Proceedings.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title One node has all seats of a committee, as it may in a small group: its word is the court's, and no money is lost
contract CourtLoneJurorTest is CourtTest {
    bytes private constant ALL_SEATS = hex"05";

    address private juror;

    function drawn(bytes32 class, bytes32 data) private returns (Play memory play) {
        play = begun(class, data);
        draw(play, ALL_SEATS);
        juror = play.state.reviewers[0];
    }

    function finish(Play memory play, bytes32 data, Vote memory vote) private {
        Vote[] memory votes = new Vote[](1);
        votes[0] = vote;
        commit(play, votes);
        if (play.state.executionClass == tolerant) seed(play);
        decide(play, data, votes);
    }

    /// @dev What all pots hold that this case touches.
    function money(Play memory play) private view returns (uint256 sum) {
        sum = burnt() + creditOf(client) + creditOf(address(this)) + creditOf(juror) + creditOf(scheduler);
        sum += bank.balanceOf(PotKind.Bond, play.caseId) + stakeOf(juror) + lockedOf(juror) + stakeOf(scheduler);
        // The node and the verifiers stand before the juror.
        for (uint256 i = 0; i < 4; ++i) {
            address party = node(base(play.state.executionClass) + i);
            sum += stakeOf(party) + lockedOf(party) + creditOf(party);
        }
    }

    function decidedAndPaidForEachSeat(bytes32 data, uint8 opinion, Outcome outcome) private {
        Play memory play = drawn(exact, data);
        uint256 before = money(play);
        finish(play, data, Vote(opinion, HONEST, 0, 0));
        assertOutcome(play, outcome);
        assertEq(creditOf(juror), 5 * 6 * UNIT);
        assertEq(money(play), before);
    }

    function test_ALoneJurorConvictsAndIsPaidForEachSeat() public {
        decidedAndPaidForEachSeat(FALSE, REJECT, Outcome.Convicted);
    }

    function test_ALoneJurorUpholds() public {
        decidedAndPaidForEachSeat(HONEST, ACCEPT, Outcome.Upheld);
    }

    /// @dev Alone it knows no spread but its own.
    function test_ALoneJurorOfATolerantClassConvictsBeyondItsOwnSpread() public {
        uint256 snapshot = vm.snapshotState();
        Play memory play = drawn(tolerant, FALSE);
        finish(play, FALSE, Vote(REJECT, HONEST, 2 * SECOND_CUT, SECOND_CUT));
        assertOutcome(play, Outcome.Refunded);
        vm.revertToState(snapshot);
        play = drawn(tolerant, FALSE);
        finish(play, FALSE, Vote(REJECT, HONEST, 2 * SECOND_CUT, SECOND_CUT - 1));
        assertOutcome(play, Outcome.Convicted);
    }

    /// @dev It pays for each seat that is silent, and the second committee is asked.
    function test_ALoneJurorThatIsSilentPaysForEachSeat() public {
        Play memory play = drawn(exact, FALSE);
        uint256 before = money(play);
        pass(COMMIT_WINDOW + 1);
        vm.recordLogs();
        court.expire(play.caseId, play.state);
        foldRestart(play);
        assertEq(stakeOf(juror), STAKE - 5 * 2 * UNIT);
        assertEq(money(play), before);
        draw(play, ALL_SEATS);
        pass(COMMIT_WINDOW + 1);
        court.expire(play.caseId, play.state);
        assertOutcome(play, Outcome.Undecided);
        assertEq(stakeOf(juror), STAKE - 2 * 5 * 2 * UNIT);
        assertEq(money(play), before);
    }
}
