// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {WeightsTree} from "../../libraries/WeightsTree.sol";
import {ExecutionClass, ModelDescriptor} from "./MarketTypes.sol";
import {Result, SignedOrder, VrfProof} from "./Signed.sol";

/// @notice What an order's request hash says of how tokens are chosen, without the prompt:
///         keccak256(tag ‖ head ‖ blind) is the request hash.
/// @param head version, class, most tokens, temperature and top_p, as the canonical request begins; version 3 says that top_k
///        or min_p, which stand behind, leave tokens out
/// @param blind keccak256(salt ‖ canonical request)
struct ShownRequest {
    bytes head;
    bytes32 blind;
}

/// @notice One token of an answer under the result's output hash; nothing is told of the others.
/// @param index from 0
/// @param blind keccak256(salt ‖ uint32be(index))
struct ShownToken {
    uint32 index;
    uint32 token;
    bytes32 blind;
    bytes32[] siblings;
}

/// @notice The row from which a token was chosen, in the chain whose head the result names.
/// @param headSalt salt of the order's heads
/// @param previous link of the row before
/// @param read token that the row was computed from, where the first segment is the last one, too; else zero
/// @param later hashes of the rows behind it, to the end of the chain
struct ShownRow {
    bytes32 headSalt;
    bytes32 previous;
    uint32 read;
    bytes row;
    bytes32[] later;
}

/// @notice One row of the head, which makes a token's logit.
struct ShownWeights {
    bytes row;
    bytes32[] siblings;
}

/// @notice A node chose a token that another one beats: by the head's own rows, over the state that it signed.
/// @param result of the last segment, and its node's signature
/// @param draw the scheduler's proof of who infers, from which the noise follows; empty at temperature 0
/// @param token what the node says it chose
/// @param rival what beats it
/// @param claimed the head's row of the token; better: of the rival
/// @param unitBits sums are in units of 2^-unitBits: as fine as the largest product allows
struct TokenProof {
    SignedOrder order;
    ExecutionClass executionClass;
    ModelDescriptor model;
    Result result;
    bytes signature;
    ShownRequest request;
    VrfProof draw;
    ShownToken token;
    ShownRow state;
    uint32 rival;
    WeightsTree.Matrix head;
    ShownWeights claimed;
    ShownWeights better;
    uint8 unitBits;
}

/// @title Proofs that need no committee: arithmetic over what a node signed
/// @notice Sums of products are integers here (library ExactNumbers), and a token falls only where it loses by more than any
///         honest machine can be wrong. So a proof holds against any majority of verifiers and reviewers, and no data makes
///         one against an honest node. A proof is shown to Evidence.convictByProof.
/// @dev `proven` takes the calldata of one of the functions here. Nothing is stored: Evidence uses each proof once.
interface IProofs {
    /// @notice The order's segments do not end with the one of this result.
    error NotLastSegment(uint256 segment, uint256 count);
    /// @notice The class' name does not end in "/head:" and the name of this tensor: it does not say that logits are the
    ///         products of states and this tensor's rows alone.
    error HeadNotNamed(string className, string tensor);
    /// @notice The request transforms logits, or is of a version to come.
    error RequestNotPlain(uint256 version);
    error WrongTerms(uint256 length, bytes32 executionClass);
    error NoSuchToken(uint256 index, uint256 count);
    /// @notice Numbers of this kind are not read, or not in a class of this dtype.
    error UnknownNumbers(string dtype, uint8 classDtype);
    /// @notice The rival is not ahead by more than machines may differ by, all in units of 2^-unitBits; where top_p, top_k
    ///         or min_p leaves tokens out it must also be the likelier one.
    /// @param likelier by how much the rival's logit is larger
    /// @param ahead by how much its score is, noise included
    error TokenStands(int256 likelier, int256 ahead, uint256 slack);
    error NoSuchProof(bytes4 selector);

    /// @notice Reverts unless the proof convicts; see IProver.
    function wrongToken(TokenProof calldata proof)
        external
        view
        returns (address party, uint64 offenceBlock, bytes32 subject);
}
