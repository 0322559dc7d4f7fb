// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Opening, Outcome, Task, VrfProof} from "./TrothTypes.sol";

/// @title Sample, reveal, compare, pay and slash
/// @dev VeriLLM sections 5.7 and Appendix E.
interface ITrothSettlement {
    event TaskSampled(bytes32 indexed taskId, bytes32 seed, bytes proof);
    /// @param tilesHash keccak256 of the revealed tiles, so that the task's state can be rebuilt from events
    event TraceRevealed(
        bytes32 indexed taskId, address indexed party, uint8 segment, bytes32 root, bool verdict, bytes32 tilesHash
    );
    /// @param segmentOutcomes per segment: Accepted, Rejected or Indeterminate
    /// @param verdicts per segment: bit v is set if verifier v revealed the verdict true
    /// @param clusters per segment: bit v is set if verifier v is in the proper cluster
    event TaskSettled(
        bytes32 indexed taskId, Outcome outcome, uint8[] segmentOutcomes, uint8[] verdicts, uint8[] clusters
    );

    /// @notice Exact classes are not sampled.
    error ExactClass(bytes32 executionClass);
    error PartyOutOfRange(uint256 segment, uint256 party, uint256 parties);
    error WrongOpeningCount(uint256 given, uint256 expected);
    error AlreadyRevealed(uint256 segment, uint256 party);
    /// @notice The party made no commitment that could be opened.
    error NothingCommitted(uint256 segment, uint256 party);
    error RootMismatch(uint256 segment, bytes32 given, bytes32 posted);
    error CommitmentMismatch(uint256 segment, uint256 party, bytes32 opened, bytes32 posted);
    error RevealMismatch(uint256 segment, uint256 party, bytes32 given, bytes32 revealed);
    /// @notice The tiles do not lead to the root that the party committed to, or an exact opening carries tiles.
    error InvalidOpening(uint256 segment, uint256 party, bytes32 proven, bytes32 claimed);
    /// @notice Before the reveal deadline every opening of a committed party is needed.
    error OpeningMissing(uint256 segment, uint256 party, uint256 lastBlock);

    /// @notice Scheduler: derives the sample of a tolerant task, at least one block after the commitments.
    function sample(bytes32 taskId, Task calldata task, VrfProof calldata proof) external;

    /// @notice Anyone who holds a party's opening reveals it (only its maker can have given it away).
    /// @param party 0 for the inferencer, 1.. for the verifiers
    /// @param opening with plain tiles (not XORed)
    function reveal(bytes32 taskId, Task calldata task, uint8 segment, uint8 party, Opening calldata opening) external;

    /// @notice Anyone: decides the task, pays and slashes.
    /// @param proof sampling proof, used if the class is tolerant and the task is not sampled yet
    /// @param openings per segment 1 + k, the inferencer's first; verifiers' tiles are XORed with the inferencer's
    ///        (plain if that is absent); those that were revealed by their own call carry no siblings
    function settle(bytes32 taskId, Task calldata task, VrfProof calldata proof, Opening[] calldata openings) external;
}
