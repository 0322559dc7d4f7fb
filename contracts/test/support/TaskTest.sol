// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    CommitSubmission,
    Opening,
    Order,
    Phase,
    Progress,
    Rules,
    Task,
    Terms,
    VrfProof
} from "../../interfaces/TrothTypes.sol";
import {Permutation} from "../../libraries/Permutation.sol";
import {P256Prover} from "./P256Prover.sol";
import {Traces} from "./Traces.sol";
import {TrothTest} from "./TrothTest.sol";

/// @title Takes tasks through their life, from outside, by the specification rather than by the contract's code
abstract contract TaskTest is TrothTest {
    using Permutation for Permutation.Walk;

    uint32 internal constant POSITIONS = 8;
    bytes32 internal constant WHOLE = bytes32(bytes1(0x04));
    bytes32 internal constant HALVES = bytes32(bytes2(0x0204));
    bytes32 internal constant OUTPUT = keccak256("output");
    bytes32 internal constant TRUE_DATA = keccak256("the right states");
    bytes32 internal constant FALSE_DATA = keccak256("other states");

    /// @notice What a party of a segment does; party 0 is the inferencer.
    struct Conduct {
        bytes32 data;
        bool verdict;
        bool commits;
        bool opens;
    }

    /// @notice A task as a test sees it.
    struct Play {
        bytes32 id;
        Order order;
        Task task;
        Conduct[] conducts;
        uint256 width;
    }

    uint64 private _nonce;

    function newOrder(bytes32 class, bytes32 ends) internal returns (Order memory) {
        return Order({
            executionClass: class,
            requestHash: keccak256("request"),
            scheduler: scheduler,
            maxFee: 1 ether,
            deadline: uint64(vm.getBlockTimestamp() + 60),
            referenceBlock: uint64(vm.getBlockNumber() - 1),
            nonce: ++_nonce,
            ends: ends
        });
    }

    function orderHash(Order memory order) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256(
                    "Order(bytes32 executionClass,bytes32 requestHash,address scheduler,uint96 maxFee,uint64 deadline,uint64 referenceBlock,uint64 nonce,bytes32 ends)"
                ),
                order
            )
        );
    }

    /// @dev A play in which everybody is honest.
    function newPlay(bytes32 class, bytes32 ends) internal returns (Play memory play) {
        Rules memory rules = troth.rulesOf(class);
        uint256 segments = uint8(ends[1]) == 0 ? 1 : 2;
        play.order = newOrder(class, ends);
        play.id = troth.taskIdOf(play.order);
        play.width = 1 + uint256(rules.verifiers);
        play.conducts = new Conduct[](segments * play.width);
        for (uint256 i = 0; i < play.conducts.length; ++i) {
            play.conducts[i] = Conduct({data: TRUE_DATA, verdict: true, commits: true, opens: true});
        }
        play.task.terms = Terms({
            client: client,
            scheduler: scheduler,
            executionClass: class,
            fee: troth.feeOf(class, segments),
            referenceBlock: play.order.referenceBlock,
            ends: ends
        });
        play.task.progress.segments = uint8(segments);
        play.task.progress.candidates = rules.candidates;
    }

    function open(Play memory play) internal {
        bytes memory signature = signed(CLIENT_KEY, orderHash(play.order));
        vm.prank(scheduler);
        troth.open(play.order, signature);
        play.task.progress.phase = Phase.Opened;
        play.task.progress.phaseBlock = uint40(vm.getBlockNumber());
    }

    /// @dev Derives proofs and parties on its own.
    function assignment(Play memory play) internal view returns (VrfProof[] memory proofs, address[] memory parties) {
        Rules memory rules = troth.rulesOf(play.task.terms.executionClass);
        uint256 segments = play.task.progress.segments;
        proofs = new VrfProof[](segments);
        parties = new address[](segments * (uint256(rules.candidates) + rules.verifiers));
        for (uint256 s = 0; s < segments; ++s) {
            proofs[s] = drawSegment(play, s, parties);
        }
    }

    /// @dev Proves a segment's draw and writes the parties it draws into their places among all parties.
    function drawSegment(Play memory play, uint256 segment, address[] memory parties)
        private
        view
        returns (VrfProof memory proof)
    {
        bytes32 group = groupOfSegment(play, segment);
        uint256 size = troth.groupSizeAt(group, play.order.referenceBlock);
        bytes32 beta;
        (proof, beta) = P256Prover.prove(VRF_SECRET, assignmentAlpha(play, segment, size));
        Permutation.Walk memory walk = Permutation.start(beta, size);
        uint256 width = parties.length / play.task.progress.segments;
        for (uint256 found = 0; found < width;) {
            address member = troth.memberAt(group, walk.next(), play.order.referenceBlock);
            if (member != address(0)) parties[segment * width + found++] = member;
        }
    }

    function groupOfSegment(Play memory play, uint256 segment) private view returns (bytes32) {
        bytes32 ends = play.task.terms.ends;
        uint8 first = segment == 0 ? 0 : uint8(ends[segment - 1]);
        return troth.groupId(play.task.terms.executionClass, first, uint8(ends[segment]));
    }

    function assignmentAlpha(Play memory play, uint256 segment, uint256 size) internal view returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("troth/assignment/1"),
                block.chainid,
                address(troth),
                play.id,
                segment,
                size,
                uint256(play.order.referenceBlock)
            )
        );
    }

    function assign(Play memory play) internal {
        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        troth.assign(play.id, play.task, proofs);
        play.task.progress.parties = parties;
        play.task.progress.phase = Phase.Assigned;
    }

    /// @dev Address of a party; the inferencer stands first once it has posted.
    function partyOf(Play memory play, uint256 segment, uint256 party) internal pure returns (address) {
        Progress memory progress = play.task.progress;
        uint256 stride = progress.parties.length / progress.segments;
        return progress.parties[segment * stride + (party == 0 ? 0 : progress.candidates + party - 1)];
    }

    function traceOf(Play memory play, uint256 segment, uint256 party)
        internal
        view
        virtual
        returns (Traces.Trace memory)
    {
        bool noisy = !troth.rulesOf(play.task.terms.executionClass).exact;
        bytes32 data = keccak256(abi.encode(play.conducts[segment * play.width + party].data, segment));
        return Traces.Trace({data: data, noise: noisy ? keccak256(abi.encode(play.id, segment, party)) : bytes32(0)});
    }

    function shape() internal view virtual returns (Traces.Shape memory) {
        return Traces.Shape({rows: POSITIONS, columns: 32, dtype: 0});
    }

    function rootOf(Play memory play, uint256 segment, uint256 party) internal view virtual returns (bytes32) {
        return Traces.root(traceOf(play, segment, party), shape());
    }

    function saltOf(Play memory play, uint256 segment, uint256 party) internal pure returns (bytes32) {
        return keccak256(abi.encode("salt", play.id, segment, party));
    }

    function commitmentOf(Play memory play, uint256 segment, uint256 party) internal view returns (bytes32) {
        return keccak256(
            abi.encode(
                play.id,
                uint8(segment),
                partyOf(play, segment, party),
                rootOf(play, segment, party),
                play.conducts[segment * play.width + party].verdict,
                saltOf(play, segment, party)
            )
        );
    }

    /// @dev What the parties that commit post, signed; every segment's inferencer is candidate `candidate`.
    function submission(Play memory play, uint8 candidate) internal view returns (CommitSubmission memory made) {
        Progress memory progress = play.task.progress;
        made.attempt = 1;
        made.positions = shape().rows;
        made.outputHash = OUTPUT;
        made.posts = new bytes32[](play.conducts.length);
        uint256 stride = progress.parties.length / progress.segments;
        for (uint256 s = 0; s < progress.segments; ++s) {
            made.inferencers |= bytes32(bytes1(candidate)) >> (8 * s);
            (progress.parties[s * stride], progress.parties[s * stride + candidate]) =
                (progress.parties[s * stride + candidate], progress.parties[s * stride]);
            for (uint256 party = 0; party < play.width; ++party) {
                if (!play.conducts[s * play.width + party].commits) continue;
                bytes32 post = party == 0 ? rootOf(play, s, 0) : commitmentOf(play, s, party);
                made.posts[s * play.width + party] = post;
                made.signatures = bytes.concat(made.signatures, postSignature(play, s, party, post));
            }
        }
    }

    function postSignature(Play memory play, uint256 segment, uint256 party, bytes32 post)
        internal
        view
        returns (bytes memory)
    {
        bytes32 output = segment + 1 == play.task.progress.segments ? OUTPUT : bytes32(0);
        bytes32 claim = claimHash(play, segment, rootOf(play, segment, 0), output);
        bytes32 structHash = party == 0
            ? claim
            : keccak256(
                abi.encode(
                    keccak256(
                        "VerdictCommitment(bytes32 taskId,uint8 segment,uint8 attempt,bytes32 commitment,bytes32 judged)"
                    ),
                    play.id,
                    segment,
                    uint256(1),
                    post,
                    claim
                )
            );
        return signed(keys[partyOf(play, segment, party)], structHash);
    }

    /// @dev Struct hash of what an inferencer signs: TraceRoot.
    function claimHash(Play memory play, uint256 segment, bytes32 root, bytes32 output)
        internal
        view
        returns (bytes32)
    {
        return keccak256(
            abi.encode(
                keccak256(
                    "TraceRoot(bytes32 taskId,uint8 segment,uint8 attempt,uint32 positions,bytes32 root,bytes32 outputHash)"
                ),
                play.id,
                segment,
                uint256(1),
                shape().rows,
                root,
                output
            )
        );
    }

    /// @dev What `submission` promised has happened.
    function noteCommitted(Play memory play, CommitSubmission memory made) internal view {
        Progress memory progress = play.task.progress;
        progress.phase = Phase.Committed;
        progress.phaseBlock = uint40(vm.getBlockNumber());
        progress.attempt = made.attempt;
        progress.positions = made.positions;
        progress.outputHash = made.outputHash;
        progress.posts = made.posts;
    }

    function commit(Play memory play) internal {
        Task memory before = abi.decode(abi.encode(play.task), (Task));
        CommitSubmission memory made = submission(play, 0);
        troth.commit(play.id, before, new VrfProof[](0), made);
        noteCommitted(play, made);
    }

    function sampleProof(Play memory play) internal view returns (VrfProof memory proof, bytes32 seed) {
        bytes32 alpha = keccak256(
            abi.encode(
                keccak256("troth/sample/1"),
                block.chainid,
                address(troth),
                play.id,
                keccak256(abi.encode(play.task.progress.posts)),
                blockhash(play.task.progress.phaseBlock)
            )
        );
        return P256Prover.prove(VRF_SECRET, alpha);
    }

    function sample(Play memory play) internal {
        (VrfProof memory proof, bytes32 seed) = sampleProof(play);
        vm.prank(scheduler);
        troth.sample(play.id, play.task, proof);
        play.task.progress.phase = Phase.Sampled;
        play.task.progress.phaseBlock = uint40(vm.getBlockNumber());
        play.task.progress.seed = seed;
    }

    /// @dev An opening with plain tiles.
    function openingOf(Play memory play, uint256 segment, uint256 party, bytes32 seed)
        internal
        view
        virtual
        returns (Opening memory opening)
    {
        opening.root = rootOf(play, segment, party);
        if (party > 0) {
            opening.verdict = play.conducts[segment * play.width + party].verdict;
            opening.salt = saltOf(play, segment, party);
        }
        uint8 tiles = troth.rulesOf(play.task.terms.executionClass).tiles;
        if (tiles == 0) return opening;
        (opening.tiles, opening.siblings) = Traces.open(traceOf(play, segment, party), shape(), seed, segment, tiles);
    }

    /// @dev All openings of those that open, verifiers' tiles XORed with the inferencer's.
    function openingsOf(Play memory play, bytes32 seed) internal view returns (Opening[] memory openings) {
        openings = new Opening[](play.conducts.length);
        for (uint256 i = 0; i < openings.length; ++i) {
            if (!play.conducts[i].commits || !play.conducts[i].opens) continue;
            openings[i] = openingOf(play, i / play.width, i % play.width, seed);
            uint256 inferencer = i - i % play.width;
            if (i != inferencer && play.conducts[inferencer].opens) mask(openings[i], openings[inferencer].tiles);
        }
    }

    function mask(Opening memory opening, bytes memory tiles) internal pure {
        for (uint256 i = 0; i < opening.tiles.length; ++i) {
            opening.tiles[i] ^= tiles[i];
        }
    }

    /// @dev Settles from where the play stands, sampling on the way if that is still to do.
    function settle(Play memory play) internal {
        VrfProof memory proof;
        bytes32 seed = play.task.progress.seed;
        bool isExact = troth.rulesOf(play.task.terms.executionClass).exact;
        if (play.task.progress.phase == Phase.Committed && !isExact) (proof, seed) = sampleProof(play);
        troth.settle(play.id, play.task, proof, openingsOf(play, seed));
    }

    /// @dev The state hash by its definition.
    function stateHash(Task memory task) internal pure returns (bytes32) {
        // The last two bytes of a slot tell how a task ended.
        return keccak256(abi.encode(keccak256(abi.encode(task.terms)), task.progress)) & ~bytes32(uint256(0xffff));
    }

    /// @dev Opened, assigned and committed, one block later.
    function committedPlay(bytes32 class, bytes32 ends) internal returns (Play memory play) {
        play = newPlay(class, ends);
        open(play);
        assign(play);
        commit(play);
        vm.roll(vm.getBlockNumber() + 1);
    }
}
