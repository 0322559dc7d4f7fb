// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CasePhase, CaseState, Fault, NodeReveal, Outcome} from "./Proceedings.sol";

/// @notice What follows from the openings of a case, or from their absence.
/// @param outcome None: no proper cluster in the first round
/// @param cluster bit i: reviewer i is in the proper cluster
/// @param score weighted median of the cluster's scores (tolerant classes), and `spread` of its spreads
/// @param convict who is convicted, of `fault`; or zero
/// @param poolOwner whose pool this outcome counts in; or zero
/// @param poolCount outcomes in that pool with this one, counted since block `poolSince`
/// @param left what is left of the bond after an undecided first round
/// @param seed of the tiles, where the deciding call drew them; else zero
struct Finding {
    Outcome outcome;
    uint256 cluster;
    uint32 score;
    uint32 spread;
    address convict;
    Fault fault;
    address poolOwner;
    uint16 poolCount;
    uint40 poolSince;
    uint96 left;
    bytes32 seed;
}

/// @title Reads what the reviewers of a case show, and says what follows; keeps nothing and moves nothing
/// @notice Its functions take the arguments of the Court's functions of the same names, which hands its calls on as
///         they came (library HandedOn), with the round's marks (library Marks). `transfers` is a call to the Bank,
///         or empty.
interface IJudgement {
    error WrongPhase(CasePhase phase);
    error ExactClass(bytes32 executionClass);
    error TooEarly(uint256 blockNumber, uint256 firstBlock);
    error TooLate(uint256 blockNumber, uint256 lastBlock);
    /// @notice The reveals end elsewhere than what was given.
    error WrongLength(uint256 given, uint256 read);
    error NotReviewer(address caller, uint256 place);
    error InvalidOpinion(uint256 place, uint8 opinion);
    error TraceMismatch(bytes32 opened, bytes32 committed);
    error CommitmentMismatch(uint256 place, bytes32 opened, bytes32 committed);
    /// @notice The tiles do not lead to the root; place 255 is the node.
    error InvalidOpening(uint256 place, bytes32 proven, bytes32 root);
    /// @notice No tiles stand before this reveal that could be its mask.
    error InvalidMask(uint256 place, uint256 mask);
    /// @notice A party is left out before the window is over, or although it showed its part by its own call; `conclude`
    ///         leaves out nobody, whatever the block.
    error RevealMissing(uint256 place, uint256 lastBlock);

    /// @notice Reverts unless this is what the calling reviewer committed to, proven by its tiles in the clear.
    function reveal(bytes32 caseId, CaseState calldata state, uint256 reviewer, bytes calldata reveal_) external view;

    /// @notice Reverts unless this is what the calling node committed to.
    function revealNode(bytes32 caseId, CaseState calldata state, NodeReveal calldata reveal_) external view;

    /// @notice Compares all that is shown, and says what follows.
    function decide(bytes32 caseId, CaseState calldata state, NodeReveal calldata node, bytes calldata reveals)
        external
        view
        returns (Finding memory finding, bytes memory transfers);

    /// @notice The same where the header draws the tiles, too; see ICourt.conclude.
    function conclude(
        bytes32 caseId,
        CaseState calldata state,
        bytes calldata header,
        NodeReveal calldata node,
        bytes calldata reveals
    ) external view returns (Finding memory finding, bytes memory transfers);

    /// @notice What follows when the draw, the commitments or the seed are late.
    function expire(bytes32 caseId, CaseState calldata state)
        external
        view
        returns (Finding memory finding, bytes memory transfers);
}
