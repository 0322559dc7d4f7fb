// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {LeafKind, Role, Tab} from "./MarketTypes.sol";
import {NodeReveal} from "./Proceedings.sol";
import {Draw, Result, Verdict} from "./Signed.sol";

/// @notice What is shown of a check.
/// @param results struct hashes of all results, which the scheduler's draw names
/// @param result the judged one, with its node's signature
struct CheckLeaf {
    Verdict verdict;
    bytes signature;
    Draw draw;
    bytes drawSignature;
    bytes32[] results;
    Result result;
    bytes resultSignature;
    NodeReveal own;
    NodeReveal judged;
}

/// @title What a claimed leaf is worth
/// @notice Reads alone: it keeps nothing and moves nothing. The Bank asks it when somebody objects to a leaf.
interface ILeaves {
    error WrongSequence(uint64 sequence, uint64 expected);
    error LeafVoid(bytes32 order, uint256 segment);
    error LeafStale(uint64 drawBlock, uint256 blockNumber);
    /// @notice The results count positions that cost more than the order's bound or the class's cap.
    error LongerThanOrdered(uint256 price, uint256 most);
    error WrongParty(address operator, Role role, Role expected);
    error PartyLeft(address operator, uint40 exitBlock, uint256 blockNumber);
    error NotBonded(address node, uint96 stake, uint96 locked, uint256 least);
    error WorkMismatch(uint8 work);
    /// @notice That is no opinion of a verifier's.
    error NoOpinion(uint8 opinion);
    /// @notice The verifier shows a trace with which its own does not agree: that is no proof of its work.
    error NotChecked(bytes32 own, bytes32 judged);

    /// @notice It says no or cannot tell, shows no traces, and the result stands: nobody brought it to the court, or it was
    ///         upheld.
    error NotRejected(bytes32 order, uint8 segment);

    /// @notice What a claimed leaf is worth at most, or a revert that says why it is worth nothing.
    /// @param kind Order: abi.encode(SignedOrder, Result[], bytes[] signatures, Draw, bytes signature), results by
    ///        bonded nodes of the class, the first of which read the request, and a draw over them that is younger than a summons' window: a client that never saw
    ///        this answer has its lottery now;
    ///        Promise: abi.encode(Promise, bytes signature, Result, bytes signature) for inference, and for a check
    ///        abi.encode(Promise, bytes signature, CheckLeaf): the result is the one that the scheduler drew. With it the verifier's trace as it had committed to it, and the node's; in a tolerant class each with the one tile
    ///        that keccak256(abi.encode(own root, judged root)) picks, which nobody knew when the verifier committed: who
    ///        computed nothing has no trace that agrees. A no and CannotTell may show none, and are owed once the result fell.
    function leafWorth(Tab calldata tab, LeafKind kind, uint64 sequence, bytes calldata leaf) external view returns (uint96);
}
