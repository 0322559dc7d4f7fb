// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {ICourt} from "../../../market/interfaces/ICourt.sol";
import {PotKind, Tab} from "../../../market/interfaces/MarketTypes.sol";
import {CasePhase, CaseState, NodeReveal, Outcome} from "../../../market/interfaces/Proceedings.sol";
import {
    Draw,
    Order,
    Result,
    ReviewCommitment,
    SignedOrder,
    Verdict,
    VrfProof
} from "../../../market/interfaces/Signed.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {Reveal, Reveals} from "../../../market/libraries/Reveals.sol";
import {P256Prover} from "../../support/P256Prover.sol";
import {Traces} from "../../support/Traces.sol";
import {MockHistory} from "./CourtMocks.sol";
import {Headers} from "./Headers.sol";
import {CourtStage} from "./CourtStage.sol";

/// @title The life of a case as its parties live it
abstract contract CourtTest is CourtStage {
    /// @dev What a case is opened with, and where it is. Whoever plays it knows everybody's secrets.
    struct Play {
        SignedOrder order;
        Result[] results;
        bytes[] resultSignatures;
        Draw draw;
        bytes drawSignature;
        uint8 segment;
        bytes32 secret;
        Verdict[] verdicts;
        bytes[] verdictSignatures;
        VrfProof check;
        bool suspend;
        bytes32 digest;
        bytes32 caseId;
        CaseState state;
    }

    /// @dev What a reviewer says, by its trace.
    struct Vote {
        uint8 opinion;
        bytes32 data;
        uint32 score;
        uint32 spread;
    }

    /// @dev Second indexed word of the last log that was looked up: who drew, committed or seeded.
    address internal loggedCaller;

    // ---- an order and what was signed over it

    /// @dev Index of the first node of a class: 0 exact, 100 tolerant.
    function base(bytes32 class) internal view returns (uint256) {
        return class == tolerant ? 100 : 0;
    }

    function newOrder(bytes32 class) internal view returns (Order memory order) {
        order.tab = Messages.tabId(Tab({payer: client, payee: scheduler, key: vm.addr(TAB_KEY)}));
        order.sequence = 1;
        order.executionClass = class;
        order.requestHash = keccak256("request");
        order.ends = bytes32(bytes1(uint8(4)));
        order.promptPrice = 1e18;
        order.cachedPrice = 1e17;
        order.writtenPrice = 3e18;
        order.maxFee = 1 ether;
        order.checkRate = 1_000_000;
        order.referenceBlock = uint64(vm.getBlockNumber() - 5);
        order.drawHash = keccak256(abi.encodePacked(bytes32("secret")));
        order.tilesHash = keccak256("tiles");
    }

    /// @dev A whole-model answer of the class' first node: 60 prompt and 40 written positions, 99 rows.
    function newPlay(bytes32 class, bytes32 data) internal view returns (Play memory play) {
        setOrder(play, newOrder(class));
        play.results = new Result[](1);
        play.results[0] = newResult(play, 0, class, data);
        signResults(play);
        signDraw(play, uint64(vm.getBlockNumber()));
    }

    function setOrder(Play memory play, Order memory order) internal view {
        play.order.order = order;
        play.order.client = client;
        play.order.scheduler = scheduler;
        play.order.key = vm.addr(TAB_KEY);
        play.order.signature = signed(TAB_KEY, Messages.hash(order));
        play.digest = Messages.digest(bank.domainSeparator(), Messages.hash(order));
    }

    function newResult(Play memory play, uint8 segment, bytes32 class, bytes32 data)
        internal
        view
        returns (Result memory result)
    {
        result.order = play.digest;
        result.segment = segment;
        result.prompt = 60;
        result.written = 40;
        result.inputHead = keccak256(abi.encode("head", segment));
        result.outputHead = keccak256(abi.encode("head", segment + 1));
        result.traceCommitment = keccak256(abi.encode(rootOf(class, 99, data, address(0)), nodeSalt()));
    }

    /// @dev Segment s is signed by node base + s.
    function signResults(Play memory play) internal view {
        play.resultSignatures = new bytes[](play.results.length);
        for (uint256 s = 0; s < play.results.length; ++s) {
            uint256 key = NODE_KEY + base(play.order.order.executionClass) + s;
            play.resultSignatures[s] = signed(key, Messages.hash(play.results[s]));
        }
    }

    /// @dev The scheduler's draw, with the output of its VRF, whose proof is kept for the court.
    function signDraw(Play memory play, uint64 blockNumber) internal view {
        bytes32 beta;
        (play.check, beta) = P256Prover.prove(VRF_SECRET, Messages.drawAlpha(play.digest));
        bytes32[] memory hashes = new bytes32[](play.results.length);
        for (uint256 s = 0; s < hashes.length; ++s) {
            hashes[s] = Messages.hash(play.results[s]);
        }
        play.draw = Draw({
            order: play.digest,
            results: Messages.resultsHash(hashes),
            beta: beta,
            blockNumber: blockNumber
        });
        play.drawSignature = signed(SCHEDULER_KEY, Messages.hash(play.draw));
    }

    /// @dev The scheduler's proof, and one verdict of each drawn verifier: nodes base + 1, base + 2, base + 3.
    function verify(Play memory play, uint8 first, uint8 second, uint8 third, bool locks) internal {
        uint256 from = base(play.order.order.executionClass) + 1;
        address[] memory drawn = new address[](3);
        for (uint256 v = 0; v < 3; ++v) {
            drawn[v] = node(from + v);
        }
        registry.force(drawn);
        uint8[3] memory opinions = [first, second, third];
        play.secret = "secret";
        play.verdicts = new Verdict[](3);
        play.verdictSignatures = new bytes[](3);
        for (uint256 v = 0; v < 3; ++v) {
            play.verdicts[v] = verdictOf(play, opinions[v], locks);
            play.verdictSignatures[v] = signed(NODE_KEY + from + v, Messages.hash(play.verdicts[v]));
        }
    }

    function verdictOf(Play memory play, uint8 opinion, bool locks) internal pure returns (Verdict memory) {
        return Verdict({
            order: play.digest,
            segment: play.segment,
            result: Messages.hash(play.results[play.segment]),
            commitment: keccak256("verifier's trace"),
            opinion: opinion,
            locks: locks
        });
    }

    // ---- traces

    function nodeSalt() internal pure returns (bytes32) {
        return keccak256("node's salt");
    }

    function shape(uint32 rows) internal pure returns (Traces.Shape memory) {
        return Traces.Shape({rows: rows, columns: 32, dtype: 0});
    }

    /// @dev In a tolerant class everybody has noise of its own.
    function traceOf(bytes32 data, address maker) internal pure returns (Traces.Trace memory) {
        return Traces.Trace({data: data, noise: keccak256(abi.encode(maker))});
    }

    function rootOf(bytes32 class, uint32 rows, bytes32 data, address maker) internal view returns (bytes32) {
        if (class == exact) return keccak256(abi.encode("root", rows, data));
        return Traces.root(traceOf(data, maker), shape(rows));
    }

    function opened(CaseState memory state, bytes32 data, address maker)
        internal
        view
        returns (bytes32 root, bytes memory tiles, bytes32[] memory siblings)
    {
        root = rootOf(state.executionClass, state.rows, data, maker);
        if (state.executionClass == exact) return (root, "", new bytes32[](0));
        (tiles, siblings) = Traces.open(traceOf(data, maker), shape(state.rows), state.seed, state.segment, 1);
    }

    // ---- the life of a case

    /// @dev A case that its client opened over an answer which two of three verifiers reject.
    function begun(bytes32 class, bytes32 data) internal returns (Play memory play) {
        play = newPlay(class, data);
        verify(play, REJECT, REJECT, ACCEPT, false);
        open(play, client);
    }

    function open(Play memory play, address opener) internal {
        uint96 bond = court.bondFor(play.order.order.executionClass, 99);
        vm.recordLogs();
        vm.prank(opener);
        play.caseId = sendOpen(play, bond);
        play.state = abi.decode(logged(ICourt.CaseOpened.selector), (CaseState));
    }

    function sendOpen(Play memory play, uint256 value) internal returns (bytes32) {
        return court.open{value: value}(
            play.order,
            play.results,
            play.resultSignatures,
            play.draw,
            play.drawSignature,
            play.segment,
            play.secret,
            play.verdicts,
            play.verdictSignatures,
            play.check,
            "",
            play.suspend
        );
    }

    function expectOpen(Play memory play, address opener, bytes memory reason) internal {
        uint96 bond = court.bondFor(play.order.order.executionClass, 99);
        vm.expectRevert(reason);
        vm.prank(opener);
        sendOpen(play, bond);
    }

    /// @dev Data of the last log of this kind.
    function logged(bytes32 topic) internal returns (bytes memory data) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = logs.length; i > 0; --i) {
            if (logs[i - 1].topics[0] != topic) continue;
            if (logs[i - 1].topics.length > 2) loggedCaller = address(uint160(uint256(logs[i - 1].topics[2])));
            return logs[i - 1].data;
        }
        revert("not logged");
    }

    /// @dev A header of the block that is due, which becomes known.
    function dueHeader(Play memory play, bytes32 randao) internal returns (bytes memory header) {
        uint256 number = play.state.phaseBlock + LOOKAHEAD;
        header = Headers.build(number, randao);
        makeKnown(number, keccak256(header));
    }

    function makeKnown(uint256 number, bytes32 hash) internal {
        uint256 current = vm.getBlockNumber();
        if (number < current && current - number <= 256) vm.setBlockhash(number, hash);
        MockHistory(payable(HISTORY)).set(number, hash);
    }

    /// @dev Seats: nodes base + 4 and following, as `seats` says, a byte each; the mock draws them in this order.
    function draw(Play memory play, bytes memory seats) internal {
        uint256 total = 0;
        for (uint256 i = 0; i < seats.length; ++i) {
            total += uint8(seats[i]);
        }
        address[] memory drawn = new address[](total);
        uint256 place = 0;
        for (uint256 i = 0; i < seats.length; ++i) {
            for (uint256 j = 0; j < uint8(seats[i]); ++j) {
                drawn[place++] = node(base(play.state.executionClass) + 4 + i);
            }
        }
        registry.force(drawn);
        pass(LOOKAHEAD + 1);
        sendDraw(play, dueHeader(play, keccak256(abi.encode("randao", play.state.round))));
    }

    function sendDraw(Play memory play, bytes memory header) internal {
        vm.recordLogs();
        court.draw(play.caseId, play.state, header, "");
        foldDraw(play);
    }

    /// @dev The state follows from what was logged.
    function foldDraw(Play memory play) internal {
        CaseState memory state = play.state;
        (,, state.reviewers, state.seats) =
            abi.decode(logged(ICourt.ReviewersDrawn.selector), (uint8, bytes32, address[], bytes));
        state.drawer = loggedCaller;
        fold(play, CasePhase.Drawn);
    }

    function foldCommit(Play memory play) internal {
        play.state.commitments = abi.decode(logged(ICourt.ReviewsCommitted.selector), (bytes32[]));
        play.state.committer = loggedCaller;
        fold(play, CasePhase.Committed);
    }

    function foldSeed(Play memory play) internal {
        play.state.seed = abi.decode(logged(ICourt.CaseSeeded.selector), (bytes32));
        play.state.seeder = loggedCaller;
        fold(play, CasePhase.Seeded);
    }

    function foldRestart(Play memory play) internal {
        CaseState memory state = play.state;
        (state.round, state.bond) = abi.decode(logged(ICourt.CaseRestarted.selector), (uint8, uint96));
        state.reviewers = new address[](0);
        state.seats = "";
        state.commitments = new bytes32[](0);
        (state.seed, state.drawer, state.committer, state.seeder) = (0, address(0), address(0), address(0));
        fold(play, CasePhase.Opened);
    }

    function fold(Play memory play, CasePhase phase) internal view {
        play.state.phase = phase;
        play.state.phaseBlock = uint40(vm.getBlockNumber());
        assertEq(court.caseOf(play.caseId), keccak256(abi.encode(play.state)), "events give the state");
    }

    /// @dev So many reviewers with a seat each.
    function draw(Play memory play, uint256 reviewers) internal {
        bytes memory seats = new bytes(reviewers);
        for (uint256 i = 0; i < reviewers; ++i) {
            seats[i] = 0x01;
        }
        draw(play, seats);
    }

    function reviewSalt(address reviewer) internal pure returns (bytes16) {
        return bytes16(keccak256(abi.encode("review", reviewer)));
    }

    function hasTrace(uint8 opinion) internal pure returns (bool) {
        return opinion == ACCEPT || opinion == REJECT;
    }

    function commitmentOf(Play memory play, uint256 place, Vote memory vote) internal view returns (bytes32) {
        address reviewer = play.state.reviewers[place];
        bytes32 root = hasTrace(vote.opinion)
            ? rootOf(play.state.executionClass, play.state.rows, vote.data, reviewer)
            : bytes32(0);
        bytes32 hearing = Messages.hearing(play.caseId, play.state.round);
        return keccak256(
            abi.encode(hearing, reviewer, root, vote.opinion, vote.score, vote.spread, reviewSalt(reviewer))
        );
    }

    function signedCommitment(Play memory play, uint256 place, bytes32 commitment)
        internal
        view
        returns (bytes memory)
    {
        bytes32 hearing = Messages.hearing(play.caseId, play.state.round);
        return signed(
            keys[play.state.reviewers[place]],
            Messages.hash(ReviewCommitment({caseId: hearing, commitment: commitment}))
        );
    }

    /// @dev All that said something, in one call; an opinion of None is no commitment.
    function commit(Play memory play, Vote[] memory votes) internal {
        bytes32[] memory commitments = new bytes32[](votes.length);
        bytes memory signatures;
        for (uint256 i = 0; i < votes.length; ++i) {
            if (votes[i].opinion == NONE) continue;
            commitments[i] = commitmentOf(play, i, votes[i]);
            signatures = bytes.concat(signatures, signedCommitment(play, i, commitments[i]));
        }
        sendCommit(play, commitments, signatures);
    }

    function sendCommit(Play memory play, bytes32[] memory commitments, bytes memory signatures) internal {
        vm.recordLogs();
        court.commit(play.caseId, play.state, commitments, signatures);
        foldCommit(play);
    }

    function seed(Play memory play) internal {
        pass(LOOKAHEAD + 1);
        bytes memory header = dueHeader(play, keccak256(abi.encode("tiles", play.state.round)));
        vm.recordLogs();
        court.seed(play.caseId, play.state, header);
        foldSeed(play);
    }

    function nodeReveal(Play memory play, bytes32 data) internal view returns (NodeReveal memory shown) {
        (shown.root, shown.tiles, shown.siblings) = opened(play.state, data, address(0));
        shown.salt = nodeSalt();
    }

    /// @param mask the node's tiles, or nothing
    function reviewReveal(Play memory play, uint256 place, Vote memory vote, bytes memory mask)
        internal
        view
        returns (Reveal memory shown)
    {
        address reviewer = play.state.reviewers[place];
        shown.opinion = vote.opinion;
        shown.score = vote.score;
        shown.spread = vote.spread;
        shown.salt = reviewSalt(reviewer);
        if (!hasTrace(vote.opinion)) return shown;
        (shown.root, shown.tiles, shown.siblings) = opened(play.state, vote.data, reviewer);
        shown.mask = uint8(mask.length == 0 ? Reveals.CLEAR : Reveals.NODE);
        for (uint256 i = 0; i < mask.length; ++i) {
            shown.tiles[i] ^= mask[i];
        }
    }

    /// @dev As the Court reads it.
    function packed(Play memory play, Reveal memory shown) internal view returns (bytes memory) {
        return Reveals.pack(shown, play.state.executionClass == tolerant && hasTrace(shown.opinion));
    }

    function packed(Play memory play, Reveal[] memory reveals) internal view returns (bytes memory all) {
        for (uint256 i = 0; i < reveals.length; ++i) {
            all = bytes.concat(all, packed(play, reveals[i]));
        }
    }

    function sendDecide(Play memory play, NodeReveal memory shown, Reveal[] memory reveals) internal {
        bytes memory all = packed(play, reveals);
        court.decide(play.caseId, play.state, shown, all);
    }

    function reviewReveals(Play memory play, Vote[] memory votes, bytes memory mask)
        internal
        view
        returns (Reveal[] memory reveals)
    {
        reveals = new Reveal[](votes.length);
        for (uint256 i = 0; i < votes.length; ++i) {
            if (votes[i].opinion != NONE) reveals[i] = reviewReveal(play, i, votes[i], mask);
        }
    }

    /// @param data the node's trace; zero: it shows nothing
    function decide(Play memory play, bytes32 data, Vote[] memory votes) internal {
        NodeReveal memory shown;
        if (data != 0) shown = nodeReveal(play, data);
        sendDecide(play, shown, reviewReveals(play, votes, shown.tiles));
    }

    /// @dev From the draw of reviewers with a seat each to the last word.
    function conclude(Play memory play, bytes32 data, Vote[] memory votes) internal {
        draw(play, votes.length);
        commit(play, votes);
        if (play.state.executionClass == tolerant) seed(play);
        decide(play, data, votes);
    }

    /// @dev `count` equal votes.
    function say(uint256 count, uint8 opinion, bytes32 data) internal pure returns (Vote[] memory votes) {
        votes = new Vote[](count);
        for (uint256 i = 0; i < count; ++i) {
            votes[i] = Vote({opinion: opinion, data: data, score: 0, spread: 0});
        }
    }

    function assertOutcome(Play memory play, Outcome outcome) internal view {
        assertEq(uint256(court.caseOf(play.caseId)), uint256(outcome), "outcome");
        assertEq(bank.balanceOf(PotKind.Bond, play.caseId), 0, "nothing is left of the bond");
        assertEq(lockedOf(play.state.node), 0, "nothing of the node is locked");
    }
}
