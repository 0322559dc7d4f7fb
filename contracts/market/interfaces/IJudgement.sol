// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    CaseState,
    Draw,
    NodeReveal,
    Outcome,
    Result,
    Reveal,
    SignedOrder,
    Verdict,
    VrfProof
} from "./MarketTypes.sol";

/// @notice What the openings of a case say.
/// @param outcome Upheld, Convicted, Refunded, OpenerMissing, SchedulerMissing or NodeMissing; None: no proper cluster
/// @param cluster bit i: reviewer i is in the proper cluster
/// @param paid whether the cluster earned its reward: it told something
/// @param silent bit i: reviewer i committed nothing or did not show it
/// @param wrong bit i: reviewer i said Accept or Reject and is outside a cluster that says one of them
/// @param score weighted median of the cluster's scores (tolerant classes)
/// @param spread weighted median of the cluster's spreads
/// @param pooled whether this outcome counts in the owner's pool
struct Finding {
    Outcome outcome;
    uint256 cluster;
    bool paid;
    uint256 silent;
    uint256 wrong;
    uint32 score;
    uint32 spread;
    bool pooled;
}

/// @title Reads the evidence of a case; keeps nothing and moves nothing
/// @notice Its functions take the arguments of the Court's functions, which hands its calls on as they came.
interface IJudgement {
    error WrongTab(bytes32 tab, bytes32 expected);
    error WrongSignature(address expected);
    error WrongSegments(bytes32 ends, uint256 results);
    error ForeignResult(uint256 segment, bytes32 order, uint8 named);
    error ForeignDraw(bytes32 order, bytes32 results, bytes32 expected);
    error DrawOutOfTime(uint64 drawBlock, uint64 referenceBlock, uint256 blockNumber);
    error WrongClass(address node, bytes32 executionClass);
    error WrongSecret(bytes32 secret, bytes32 drawHash);
    error NotDrawn(bytes32 secret, bytes32 beta, uint32 checkRate);
    error ForeignVerdict(uint256 index, bytes32 result);
    error InvalidOpinion(uint256 index, uint8 opinion);
    error NotVerifier(uint256 index, address signer);
    error AlreadyJudged(uint256 index, address signer);
    error NoMajority(uint256 rejecting, uint256 accepting, uint256 seats);
    error LockMissing(uint256 index, address verifier);
    error WrongCount(uint256 given, uint256 expected);
    error TraceMismatch(bytes32 opened, bytes32 committed);
    error CommitmentMismatch(uint256 reviewer, bytes32 opened, bytes32 committed);
    /// @notice The tiles do not lead to the root; place 255: the node's.
    error InvalidOpening(uint256 place, bytes32 proven, bytes32 root);

    /// @notice Checks what a case is opened with; see ICourt.open. Phase, opener and bond are for the Court to fill in.
    /// @return state what it says
    /// @return penalty L of the class
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
        VrfProof calldata check,
        bytes calldata hints,
        bool suspend
    ) external view returns (CaseState memory state, uint96 penalty);

    /// @notice Reverts unless this is what the reviewer committed to, proven by its tiles in the clear.
    function checkReveal(bytes32 caseId, CaseState calldata state, uint256 reviewer, Reveal calldata reveal_) external view;

    /// @notice Reverts unless this is what the node committed to.
    function checkNode(bytes32 caseId, CaseState calldata state, NodeReveal calldata reveal_) external view;

    /// @notice Compares all that is shown, and says what follows.
    function judge(bytes32 caseId, CaseState calldata state, NodeReveal calldata node, Reveal[] calldata reveals)
        external
        view
        returns (Finding memory finding);
}
