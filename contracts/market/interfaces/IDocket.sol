// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CaseKind, CasePhase, CaseState} from "./Proceedings.sol";
import {Draw, Result, SignedOrder, Verdict, VrfProof} from "./Signed.sol";

/// @title Reads what a case is opened with, and draws who reviews it and what they show; keeps nothing and moves
///        nothing
/// @notice Its functions take the arguments of the Court's functions, which hands its calls on as they came (library
///         HandedOn).
interface IDocket {
    error WrongTab(bytes32 tab, bytes32 expected);
    error TabUnknown(bytes32 tab);
    error WrongSignature(address expected);
    error WrongSegments(bytes32 ends, uint256 results);
    error WrongCount(uint256 given, uint256 expected);
    error ForeignResult(uint256 segment, bytes32 order, uint8 named);
    error ForeignDraw(bytes32 order, bytes32 results, bytes32 expected);
    error DrawOutOfTime(uint64 drawBlock, uint64 referenceBlock, uint256 blockNumber);
    error WrongClass(address node, bytes32 executionClass);
    /// @notice The draw's output is not that of the scheduler's VRF.
    error WrongBeta(bytes32 beta, bytes32 proven);
    error WrongSecret(bytes32 secret, bytes32 drawHash);
    error NotHit(bytes32 secret, bytes32 beta, uint32 checkRate);
    error ForeignVerdict(uint256 index, bytes32 result);
    error InvalidOpinion(uint256 index, uint8 opinion);
    error NotVerifier(uint256 index, address signer);
    error AlreadyJudged(uint256 index, address signer);
    error LockMissing(uint256 index, address verifier);
    /// @notice Only the client or its tab key may call this result into question.
    error NotClient(address caller, address client, address key);
    /// @notice Only a rejection suspends.
    error CannotSuspend(CaseKind kind);
    error WrongPhase(CasePhase phase);
    error ExactClass(bytes32 executionClass);
    error TooEarly(uint256 blockNumber, uint256 firstBlock);
    error TooLate(uint256 blockNumber, uint256 lastBlock);
    /// @notice The header is not that of block `expected`, or that block is too old to be known.
    error WrongHeader(uint256 expected, uint256 number, bytes32 hash, bytes32 knownHash);

    /// @notice Checks what a case is opened with; see ICourt.open. Phase and round are for the Court to fill in.
    /// @return state what it says; the opener is who called the Court
    /// @return locks a call to the Bank that locks stake for it, or empty
    function examine(
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
    ) external view returns (CaseState memory state, bytes memory locks);

    /// @notice Draws the reviewers; see ICourt.draw.
    function drawReviewers(bytes32 caseId, CaseState calldata state, bytes calldata header, bytes calldata hints)
        external
        view
        returns (bytes32 randao, address[] memory reviewers, bytes memory seats);

    /// @notice Seed of the tiles; see ICourt.seed.
    function drawTiles(bytes32 caseId, CaseState calldata state, bytes calldata header) external view returns (bytes32);

    /// @notice What an opener must put up for a case of this class over `rows` rows.
    function bondFor(bytes32 executionClass, uint256 rows) external view returns (uint96);
}
