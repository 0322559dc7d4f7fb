// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {console} from "@uniswap/v4-core/lib/forge-std/src/console.sol";
import {ICourt} from "../../market/interfaces/ICourt.sol";
import {PotKind} from "../../market/interfaces/MarketTypes.sol";
import {CaseState, NodeReveal, Outcome} from "../../market/interfaces/Proceedings.sol";
import {Reveal} from "../../market/libraries/Reveals.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title What a case costs, its calldata apart: a bound that a change must not pass unnoticed
/// @dev Registry and Bank are mocks here; `scripts/bench gas` has the receipts of the whole.
contract CourtGasTest is CourtTest {
    uint256 private spent;

    function setUp() public override {
        super.setUp();
        registry.setClass(exact, rules(true, 15));
        registry.setClass(tolerant, rules(false, 15));
    }

    /// @dev What a call costs.
    function send(string memory name, address from, uint256 value, bytes memory data) private {
        vm.prank(from);
        (bool success,) = address(court).call{value: value}(data);
        require(success, name);
        uint256 used = vm.lastCallGas().gasTotalUsed;
        spent += used;
        console.log("%s: %d gas, %d bytes", name, used, data.length);
    }

    function play(bytes32 class, bytes32 data) private returns (uint256) {
        Play memory played = newPlay(class, data);
        verify(played, REJECT, REJECT, ACCEPT, false);
        // Nodes that earn have a credit; the first one costs 17,100 more.
        for (uint256 i = 0; i < NODES; ++i) {
            bank.fund(PotKind.Credit, node(base(class) + i), 1);
        }
        bank.fund(PotKind.Credit, client, 1);
        vm.recordLogs();
        bytes memory call = openCall(played);
        uint96 bond = court.bondFor(class, 99);
        send("open", client, bond, call);
        played.state = abi.decode(logged(ICourt.CaseOpened.selector), (CaseState));
        played.caseId = court.caseIdOf(played.digest, 0);
        drawBy(played);
        commitBy(played, votesOf(data));
        if (class == tolerant) seedBy(played);
        decideBy(played, data);
        return spent;
    }

    function openCall(Play memory played) private pure returns (bytes memory) {
        return abi.encodeCall(
            ICourt.open,
            (
                played.order,
                played.results,
                played.resultSignatures,
                played.draw,
                played.drawSignature,
                played.segment,
                played.secret,
                played.verdicts,
                played.verdictSignatures,
                played.check,
                "",
                played.suspend
            )
        );
    }

    function votesOf(bytes32 data) private pure returns (Vote[] memory votes) {
        votes = say(15, data == HONEST ? ACCEPT : REJECT, HONEST);
        for (uint256 i = 0; i < 15; ++i) {
            votes[i].score = SECOND_CUT + 100 + uint32(i * 7919 % 100);
            votes[i].spread = uint32(i * 104_729 % 100);
        }
    }

    function drawBy(Play memory played) private {
        address[] memory drawn = new address[](15);
        for (uint256 i = 0; i < 15; ++i) {
            drawn[i] = node(base(played.state.executionClass) + 4 + i);
        }
        registry.force(drawn);
        pass(LOOKAHEAD + 1);
        bytes memory header = dueHeader(played, "randao");
        vm.recordLogs();
        send("draw", client, 0, abi.encodeCall(ICourt.draw, (played.caseId, played.state, header, "")));
        foldDraw(played);
    }

    function commitBy(Play memory played, Vote[] memory votes) private {
        bytes32[] memory commitments = new bytes32[](15);
        bytes memory signatures;
        for (uint256 i = 0; i < 15; ++i) {
            commitments[i] = commitmentOf(played, i, votes[i]);
            signatures = bytes.concat(signatures, signedCommitment(played, i, commitments[i]));
        }
        vm.recordLogs();
        bytes memory call = abi.encodeCall(ICourt.commit, (played.caseId, played.state, commitments, signatures));
        send("commit", client, 0, call);
        foldCommit(played);
    }

    function seedBy(Play memory played) private {
        pass(LOOKAHEAD + 1);
        bytes memory header = dueHeader(played, "tiles");
        vm.recordLogs();
        send("seed", client, 0, abi.encodeCall(ICourt.seed, (played.caseId, played.state, header)));
        foldSeed(played);
    }

    function decideBy(Play memory played, bytes32 data) private {
        NodeReveal memory shown = nodeReveal(played, data);
        Reveal[] memory reveals = reviewReveals(played, votesOf(data), shown.tiles);
        bytes memory call = abi.encodeCall(ICourt.decide, (played.caseId, played.state, shown, packed(played, reveals)));
        send("decide", client, 0, call);
        console.log("movements:", bank.movements());
        assertOutcome(played, data == HONEST ? Outcome.Upheld : Outcome.Convicted);
    }

    function test_gasOfAnExactCaseThatConvicts() public {
        assertLt(play(exact, FALSE), 875_000);
    }

    function test_gasOfAnExactCaseThatIsUpheld() public {
        assertLt(play(exact, HONEST), 795_000);
    }

    function test_gasOfATolerantCaseThatConvicts() public {
        assertLt(play(tolerant, FALSE), 1_065_000);
    }

    function test_gasOfATolerantCaseThatIsUpheld() public {
        assertLt(play(tolerant, HONEST), 1_050_000);
    }

    /// @dev The largest classes that a registration may have: tiles of 22 levels for every party, and the state.
    function test_noCallOfAnAllowedClassIsTooLargeToBeRelayed() public view {
        uint8[4] memory reviewers = [31, 29, 17, 15];
        uint8[4] memory tiles = [2, 3, 5, 5];
        for (uint256 i = 0; i < 4; ++i) {
            assertLt(largest(reviewers[i], tiles[i]), 128 * 1024);
        }
    }

    function largest(uint256 reviewers, uint256 tiles) private view returns (uint256) {
        CaseState memory state;
        (state.verifiers, state.opinions) = (new address[](7), new bytes(7));
        (state.excluded, state.reviewers) = (new address[](44), new address[](reviewers));
        (state.seats, state.commitments) = (new bytes(reviewers), new bytes32[](reviewers));
        NodeReveal memory shown;
        (shown.tiles, shown.siblings) = (new bytes(512 * tiles), new bytes32[](22 * tiles));
        // Head, mask, tiles and siblings of each.
        bytes memory reveals = new bytes(reviewers * (57 + 1 + 512 * tiles + 22 * 32 * tiles));
        return abi.encodeCall(ICourt.decide, (0, state, shown, reveals)).length;
    }
}
