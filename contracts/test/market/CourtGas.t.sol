// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {console} from "@uniswap/v4-core/lib/forge-std/src/console.sol";
import {ICourt} from "../../market/interfaces/ICourt.sol";
import {CaseState, NodeReveal, Outcome, PotKind, Reveal} from "../../market/interfaces/MarketTypes.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title What a case costs, transactions with their calldata (EIP-7623) counted
/// @dev Registry and Bank are mocks here, which write as many words and emit nothing; `scripts/bench gas` has the whole.
contract CourtGasTest is CourtTest {
    uint256 private constant BASE = 21_000;
    uint256 private spent;

    function setUp() public override {
        super.setUp();
        registry.setClass(exact, rules(true, 15));
        registry.setClass(tolerant, rules(false, 15));
    }

    /// @dev What a transaction with this calldata costs, sent from outside.
    function send(string memory name, address from, uint256 value, bytes memory data) private {
        uint256 zeros = 0;
        for (uint256 i = 0; i < data.length; ++i) {
            if (data[i] == 0) ++zeros;
        }
        uint256 tokens = zeros + 4 * (data.length - zeros);
        vm.prank(from);
        (bool success,) = address(court).call{value: value}(data);
        require(success, name);
        uint256 used = vm.lastCallGas().gasTotalUsed;
        uint256 all = used;
        console.log("  calldata %d, floor %d", BASE + 4 * tokens, BASE + 10 * tokens);
        spent += all;
        console.log("%s: %d gas, %d bytes", name, all, data.length);
    }

    function play(bytes32 class, bytes32 data, bool fresh) private returns (uint256) {
        Play memory played = newPlay(class, data);
        verify(played, REJECT, REJECT, ACCEPT, false);
        if (!fresh) {
            for (uint256 i = 0; i < NODES; ++i) {
                bank.fund(PotKind.Credit, node(base(class) + i), 1);
            }
            bank.fund(PotKind.Credit, client, 1);
        }
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
        bytes memory call = abi.encodeCall(ICourt.decide, (played.caseId, played.state, shown, reveals));
        send("decide", client, 0, call);
        console.log("movements:", bank.movements());
        assertOutcome(played, data == HONEST ? Outcome.Upheld : Outcome.Convicted);
    }

    function test_gasOfAnExactCaseThatConvicts() public {
        console.log("all: %d", play(exact, FALSE, false));
    }

    function test_gasOfAnExactCaseThatIsUpheld() public {
        console.log("all: %d", play(exact, HONEST, false));
    }

    function test_gasOfATolerantCaseThatConvicts() public {
        console.log("all: %d", play(tolerant, FALSE, false));
    }

    function test_gasOfATolerantCaseThatIsUpheld() public {
        console.log("all: %d", play(tolerant, HONEST, false));
    }

    function test_gasWhereNobodyEverHadCredit() public {
        console.log("all: %d", play(exact, FALSE, true));
    }
}
