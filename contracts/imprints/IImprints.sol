// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ShownRequest, ShownToken} from "../market/interfaces/IProofs.sol";
import {ExecutionClass, ModelDescriptor} from "../market/interfaces/MarketTypes.sol";
import {Result, SignedOrder, VrfProof} from "../market/interfaces/Signed.sol";

/// @notice What checks proofs over rows of so many columns: the outcome of a ceremony (docs/explanation/ceremony.md).
struct ImprintKey {
    uint32 columns;
    uint256[24] words;
}

/// @notice A node chose a token that another one beats, and the row from which it chose is not shown.
/// @param mark where "/imprints:0x" begins in the class' name
/// @param result of the last segment
/// @param draw the scheduler's proof of who infers, from which the noise follows; empty at temperature 0
/// @param token what the node says it chose
/// @param rival what beats it
/// @param imprints root over the imprints of the rows that chose the answer's tokens
/// @param signature the node's, over Imprints(result, imprints)
/// @param imprint of the row that chose the token
/// @param siblings its way to that root
/// @param points of the proof
struct ImprintProof {
    SignedOrder order;
    ExecutionClass executionClass;
    ModelDescriptor model;
    uint256 mark;
    Result result;
    ShownRequest request;
    VrfProof draw;
    ShownToken token;
    uint32 rival;
    bytes32 imprints;
    bytes signature;
    uint256 imprint;
    bytes32[] siblings;
    uint256[8] points;
}

/// @title Convicts for a wrong token in zero knowledge
/// @notice Nodes of a class whose name holds "/imprints:0x" and a root sign imprints of their rows: hashes that are cheap in a
///         circuit. A proof shows that a row with a signed imprint, and two rows under that root, make another token win by
///         more than any honest machine can be wrong. Neither row nor weights are shown, and a proof costs the same for
///         every width of rows. It is for one recipient, so that nobody earns by sending another's.
/// @dev The prover of a deployment to come (IProver). What is not its own evidence goes to the prover behind it.
interface IImprints {
    event ImprintsDeployed(address indexed evidence, address indexed next);
    /// @param hash keccak256 of the key's words
    event ImprintKeyAdded(uint32 indexed columns, bytes32 hash);
    event BeatenByImprint(bytes32 indexed subject, address indexed party);

    /// @notice No key, or a second one, for rows of so many columns.
    error NoKey(uint256 columns);
    error KeyTwice(uint256 columns);
    /// @notice The class' name does not hold "/imprints:0x" and 64 digits there, before its end or another mark.
    error ImprintsNotNamed(string className, uint256 mark);
    /// @notice The proof does not hold for this imprint, root, terms and context.
    error ProofDoesNotHold(uint256 imprint, uint256 head, uint256 terms, uint256 context);
    /// @notice `convict` takes the calldata of `beaten` alone: no other evidence says who is paid.
    error NoSuchEvidence(bytes4 selector);
    /// @notice Evidence of this contract is shown to `convict`, which pays whom it is for.
    error NotByConvict();
    error ZeroRecipient();
    error NotBank(address sender);

    /// @notice Shows evidence to Evidence.convictByProof, and gives what that pays to the evidence's recipient.
    /// @param evidence calldata of `beaten`
    function convict(bytes calldata evidence) external;

    /// @notice Reverts unless the proof convicts; see IProver.
    /// @param recipient who is paid: the proof is for nobody else
    function beaten(ImprintProof calldata proof, address recipient)
        external
        view
        returns (address party, uint64 offenceBlock, bytes32 subject);

    /// @notice What the proof is for: keccak256(tag ‖ chain ‖ this contract ‖ result ‖ recipient), without its lowest byte.
    function contextOf(bytes32 result, address recipient) external view returns (uint256);

    /// @notice The words of a key.
    function keyOf(uint32 columns) external view returns (bytes memory);
}
