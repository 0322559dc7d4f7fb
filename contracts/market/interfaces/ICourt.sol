// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CasePhase, CaseState, NodeReveal, Outcome} from "./Proceedings.sol";
import {Draw, Result, SignedOrder, Verdict, VrfProof} from "./Signed.sol";

/// @title Decides one result by a committee drawn by RANDAO
/// @notice Opened -> Drawn (RANDAO of the opening block + lookahead, proven by its header) -> Committed -> Seeded
///         (tolerant classes: RANDAO of the committing block + lookahead) -> decided. Own posts and reveals of
///         reviewers count in any order and from the first block; anyone may carry a case on or expire it. Where everybody
///         has spoken, two steps are one call: `convene` draws and ends the commitments, `conclude` picks the tiles and
///         decides.
interface ICourt {
    event CaseOpened(bytes32 indexed caseId, bytes32 indexed order, address indexed node, CaseState state);
    /// @notice The state follows from its events: what is here, the block as its phaseBlock, and who called.
    /// @param seats of each reviewer, a byte
    /// @param drawer nobody where the same call ended the commitments (`convene`)
    event ReviewersDrawn(
        bytes32 indexed caseId,
        address indexed drawer,
        uint8 round,
        bytes32 randao,
        address[] reviewers,
        bytes seats
    );
    event ReviewPosted(bytes32 indexed caseId, address indexed reviewer, uint8 round, bytes32 commitment);
    event ReviewsCommitted(bytes32 indexed caseId, address indexed committer, bytes32[] commitments);
    /// @param seeder nobody where the same call decided (`conclude`)
    event CaseSeeded(bytes32 indexed caseId, address indexed seeder, bytes32 seed);
    event Revealed(bytes32 indexed caseId, address indexed party, uint8 round, bytes32 revealHash);
    /// @param cluster bit i: reviewer i is in the proper cluster
    /// @param score median of the cluster's scores, and of its spreads
    event CaseDecided(
        bytes32 indexed caseId, bytes32 indexed order, Outcome outcome, uint256 cluster, uint32 score, uint32 spread
    );
    /// @notice A second round: no reviewers, commitments, seed or callers; `bond` is what is left of it.
    event CaseRestarted(bytes32 indexed caseId, uint8 round, uint96 bond);
    event LeafVoided(bytes32 indexed order, uint8 segment, bytes32 caseId);
    /// @notice A refund was added to an owner's pool: for a rejection between the cuts, or in a Doubt for one beyond them.
    event Pooled(address indexed owner, bytes32 indexed executionClass, bytes32 caseId, uint16 count);

    error CaseUnderWay(bytes32 caseId);
    /// @notice The case was decided for good.
    error CaseClosed(bytes32 caseId, Outcome outcome);
    error StateMismatch(bytes32 caseId, bytes32 stored, bytes32 given);
    error WrongPhase(CasePhase phase);
    error TooEarly(uint256 blockNumber, uint256 firstBlock);
    error TooLate(uint256 blockNumber, uint256 lastBlock);
    /// @notice The node is suspended, or was less than the pause ago.
    error NotSuspended(address node);
    error NotReviewer(address caller, bytes32 caseId);
    error ZeroCommitment(bytes32 caseId);
    /// @notice A post is never replaced, and nobody shows its part twice.
    error AlreadyDone(address party, bytes32 hearing);
    error WrongCount(uint256 given, uint256 expected);
    error WrongSigner(uint256 reviewer, address signer, address expected);
    error TooFewCommitments(uint256 seats, uint256 all);

    /// @notice Opens a case; the bond is collected from msg.sender.
    /// @param draw the scheduler's word, with `drawSignature`
    /// @param secret first secret; zero, with no verdicts, for a Doubt
    /// @param verdicts of the drawn verifiers of `segment`, one per distinct node, as many as there are
    /// @param proof the scheduler's VRF proof of the draw's beta, from which with secret and results the verifiers follow
    /// @param hints for the draw of verifiers
    /// @param suspend whether the node is suspended (each rejecting verdict must lock L)
    function open(
        SignedOrder calldata order,
        Result[] calldata results,
        bytes[] calldata resultSignatures,
        Draw calldata draw,
        bytes calldata drawSignature,
        uint8 segment,
        bytes32 secret,
        Verdict[] calldata verdicts,
        bytes[] calldata verdictSignatures,
        VrfProof calldata proof,
        bytes calldata hints,
        bool suspend
    ) external payable returns (bytes32 caseId);

    /// @notice Anyone: draws the reviewers from the header of the block that is due.
    function draw(bytes32 caseId, CaseState calldata state, bytes calldata header, bytes calldata hints) external;

    /// @notice Anyone: `draw` and `commit` in one call, with the signed commitments of all reviewers.
    /// @param commitments one per reviewer, none of them zero
    /// @param signatures 65 bytes for each of them, in order
    function convene(
        bytes32 caseId,
        CaseState calldata state,
        bytes calldata header,
        bytes calldata hints,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) external;

    /// @notice A reviewer posts its own commitment; never replaced.
    function post(bytes32 caseId, CaseState calldata state, bytes32 commitment) external;

    /// @notice Anyone: ends the commitments: signed ones in one call, and all own posts; incomplete sets only after
    ///         3/4 of the window.
    /// @param commitments one per reviewer, or zero; one that a reviewer posted itself counts instead of what is
    /// given here
    /// @param signatures 65 bytes for each commitment that is given and not zero, in order
    function commit(bytes32 caseId, CaseState calldata state, bytes32[] calldata commitments, bytes calldata signatures)
        external;

    /// @notice Anyone, tolerant classes: proves the RANDAO that picks the tiles.
    function seed(bytes32 caseId, CaseState calldata state, bytes calldata header) external;

    /// @notice A reviewer or the node shows its part by its own call.
    function reveal(bytes32 caseId, CaseState calldata state, uint256 reviewer, bytes calldata reveal_) external;
    function revealNode(bytes32 caseId, CaseState calldata state, NodeReveal calldata reveal_) external;

    /// @notice Anyone: compares, decides, pays. All reveals, or after the window those that there are; a party that
    ///         revealed by its own call must be shown as it did.
    function decide(bytes32 caseId, CaseState calldata state, NodeReveal calldata node, bytes calldata reveals)
        external;

    /// @notice Anyone, tolerant classes: `seed` and `decide` in one call, with the reveals of the node and of all who
    ///         committed.
    function conclude(
        bytes32 caseId,
        CaseState calldata state,
        bytes calldata header,
        NodeReveal calldata node,
        bytes calldata reveals
    ) external;

    /// @notice Anyone: ends a case whose draw, commitments or seed are late.
    function expire(bytes32 caseId, CaseState calldata state) external;

    /// @notice Hash of a live case's state; the outcome's number once it is decided; 0 if there was none.
    function caseOf(bytes32 caseId) external view returns (bytes32);
    /// @notice One per order and segment; that of a Doubt over segment s is the one of segment 128 + s.
    function caseIdOf(bytes32 order, uint8 segment) external view returns (bytes32);
    /// @notice Whether the leaf of this order and segment fell; segment 255: any of its segments.
    function isVoided(bytes32 order, uint8 segment) external view returns (bool);
    function postOf(bytes32 caseId, uint8 round, address reviewer) external view returns (bytes32);
    function revealOf(bytes32 caseId, uint8 round, address party) external view returns (bytes32);
    function pooledOf(address owner, bytes32 executionClass) external view returns (uint16 count, uint40 since);
    /// @notice What an opener must put up for a case of this class over `rows` positions.
    function bondFor(bytes32 executionClass, uint256 rows) external view returns (uint96);
}
