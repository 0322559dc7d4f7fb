// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {console} from "@uniswap/v4-core/lib/forge-std/src/console.sol";
import {ITroth} from "../interfaces/ITroth.sol";
import {
    CommitSubmission,
    ExecutionClass,
    ModelDescriptor,
    Opening,
    Phase,
    Progress,
    Task,
    VrfProof
} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";
import {Traces} from "./support/Traces.sol";

/// @title What each call costs as a transaction of its own, in the steady state
/// @notice Run by scripts/gas_snapshot in the profile "gas", where every call is a transaction: SmolLM2-135M's 576
///         dimensions, 100 positions (468 tiles, depth 9), one candidate, three verifiers, one segment.
contract GasFiguresTest is TaskTest {
    uint256 private constant BASE = 21_000;
    uint256 private constant FLOOR_PER_TOKEN = 10;

    function layers() internal pure override returns (uint8) {
        return 30;
    }

    function descriptor() internal view override returns (ModelDescriptor memory made) {
        made = super.descriptor();
        made.hiddenSize = 576;
    }

    function executionClass(bool isExact) internal view override returns (ExecutionClass memory made) {
        made = super.executionClass(isExact);
        made.candidates = 1;
    }

    function shape() internal pure override returns (Traces.Shape memory) {
        return Traces.Shape({rows: 100, columns: 576, dtype: 0});
    }

    function setUp() public override {
        super.setUp();
        // Steady state: all parties have credit, escrow and reserve are in use.
        for (uint256 i = 0; i < NODES; ++i) {
            credit(vm.addr(NODE_KEY + i));
            credit(vm.addr(NODE_KEY + 100 + i));
        }
        credit(scheduler);
    }

    /// @dev Sets the credit in the word that holds an account; the contract's getter tells whether it did.
    function credit(address account) private {
        bytes32 slot = keccak256(abi.encode(account, uint256(4)));
        vm.store(address(troth), slot, vm.load(address(troth), slot) | bytes32(uint256(1) << 96));
        assertEq(troth.accountOf(account).credit, 1);
    }

    function test_OwnPath() public {
        Play memory play = newPlay(tolerant, bytes32(bytes1(layers())));
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        uint256 total = send("open", scheduler, abi.encodeCall(troth.open, (play.order, play.task.terms.ends, signature)));
        play.task.progress.phase = Phase.Opened;
        play.task.progress.phaseBlock = uint40(block.number);

        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        total += send("assign", scheduler, abi.encodeCall(troth.assign, (play.id, play.task, proofs)));
        play.task.progress.parties = parties;
        play.task.progress.phase = Phase.Assigned;

        total += ownPosts(play);
        vm.roll(block.number + 1);
        (VrfProof memory proof, bytes32 seed) = sampleProof(play);
        total += send("sample", scheduler, abi.encodeCall(troth.sample, (play.id, play.task, proof)));
        play.task.progress.phase = Phase.Sampled;
        play.task.progress.phaseBlock = uint40(block.number);
        play.task.progress.seed = seed;

        total += ownReveals(play, seed);
        Opening[] memory openings = openingsOf(play, seed);
        VrfProof memory none;
        for (uint256 i = 0; i < openings.length; ++i) {
            delete openings[i].siblings;
            delete openings[i].salt;
        }
        total += send("settle after own reveals", scheduler, abi.encodeCall(troth.settle, (play.id, play.task, none, openings)));
        record("own path, total", total);
    }

    function ownPosts(Play memory play) private returns (uint256 total) {
        Progress memory progress = play.task.progress;
        bytes32 terms = keccak256(abi.encode(play.task.terms));
        bytes32 root = rootOf(play, 0, 0);
        total += send(
            "commitInference",
            partyOf(play, 0, 0),
            abi.encodeCall(troth.commitInference, (play.id, terms, progress, 0, 1, 100, root, OUTPUT))
        );
        progress.attempt = 1;
        progress.positions = 100;
        progress.outputHash = OUTPUT;
        progress.posts = new bytes32[](4);
        progress.posts[0] = root;
        for (uint256 v = 1; v <= 3; ++v) {
            bytes32 commitment = commitmentOf(play, 0, v);
            total += send(
                string.concat("commitVerification ", vm.toString(v)),
                partyOf(play, 0, v),
                abi.encodeCall(troth.commitVerification, (play.id, terms, progress, 0, commitment))
            );
            progress.posts[v] = commitment;
        }
        progress.phase = Phase.Committed;
        progress.phaseBlock = uint40(block.number);
    }

    function ownReveals(Play memory play, bytes32 seed) private returns (uint256 total) {
        for (uint8 party = 0; party < 4; ++party) {
            Opening memory opening = openingOf(play, 0, party, seed);
            total += send(
                string.concat("reveal ", vm.toString(party)),
                partyOf(play, 0, party),
                abi.encodeCall(troth.reveal, (play.id, play.task, 0, party, opening))
            );
            if (party == 0) play.task.progress.revealed = new bytes32[](4);
            play.task.progress.revealed[party] =
                keccak256(abi.encode(opening.root, opening.verdict, keccak256(opening.tiles)));
        }
    }

    function test_MergedTolerant() public {
        merged(tolerant, "tolerant");
    }

    function test_MergedExact() public {
        merged(exact, "exact");
    }

    function test_SeparateTolerant() public {
        Play memory play = newPlay(tolerant, bytes32(bytes1(layers())));
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        uint256 total = send("open", scheduler, abi.encodeCall(troth.open, (play.order, play.task.terms.ends, signature)));
        play.task.progress.phase = Phase.Opened;
        play.task.progress.phaseBlock = uint40(block.number);
        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        Task memory opened = abi.decode(abi.encode(play.task), (Task));
        play.task.progress.parties = parties;
        CommitSubmission memory made = submission(play, 0);
        total += send("assign and commit", scheduler, abi.encodeCall(troth.commit, (play.id, opened, proofs, made)));
        noteCommitted(play, made);
        total += settleNext(play, "tolerant");
        record("open, assign and commit, settle: tolerant, total", total);
    }

    function merged(bytes32 class, string memory name) private {
        Play memory play = newPlay(class, bytes32(bytes1(layers())));
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        play.task.progress.parties = parties;
        CommitSubmission memory made = submission(play, 0);
        uint256 total = send(
            string.concat("openAndCommit, ", name),
            scheduler,
            abi.encodeCall(troth.openAndCommit, (play.order, play.task.terms.ends, signature, proofs, made))
        );
        noteCommitted(play, made);
        total += settleNext(play, name);
        record(string.concat("openAndCommit and settle: ", name, ", total"), total);
    }

    function settleNext(Play memory play, string memory name) private returns (uint256) {
        vm.roll(block.number + 1);
        VrfProof memory proof;
        bytes32 seed;
        if (play.task.terms.executionClass == tolerant) (proof, seed) = sampleProof(play);
        return send(
            string.concat("settle, ", name),
            scheduler,
            abi.encodeCall(troth.settle, (play.id, play.task, proof, openingsOf(play, seed)))
        );
    }

    /// @dev Sends a transaction and records what it costs: execution, or the floor of EIP-7623 if that is more.
    function send(string memory name, address from, bytes memory data) private returns (uint256 gas) {
        vm.prank(from);
        (bool success, bytes memory result) = address(troth).call(data);
        assertTrue(success, string.concat(name, ": ", vm.toString(result)));
        uint256 tokens = 0;
        for (uint256 i = 0; i < data.length; ++i) {
            tokens += data[i] == 0 ? 1 : 4;
        }
        uint256 used = vm.lastCallGas().gasTotalUsed;
        uint256 least = BASE + FLOOR_PER_TOKEN * tokens;
        gas = used < least ? least : used;
        console.log(name, used, least);
        record(name, gas);
    }

    function record(string memory name, uint256 gas) private {
        vm.snapshotValue("Troth", name, gas);
    }
}
