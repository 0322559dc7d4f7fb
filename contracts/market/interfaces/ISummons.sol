// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    Admission,
    Draw,
    Promise,
    Result,
    SignedOrder,
    SummonsState,
    Verdict,
    VrfProof
} from "./MarketTypes.sol";

/// @title A scheduler that owes results or a check is asked for them on chain, and convicted if it gives none
/// @notice The summoner's deposit pays the answerer's gas. Unanswered, the scheduler (or the silent node to whom it passed the
///         summons on) pays at once, without a committee.
interface ISummons {
    event Summoned(bytes32 indexed summonsId, bytes32 indexed order, address indexed scheduler, SummonsState state);
    event PassedOn(bytes32 indexed summonsId, address indexed node, SummonsState state);
    event SummonsAnswered(bytes32 indexed summonsId, address indexed answerer, bytes32 evidence);
    event SummonsUnanswered(bytes32 indexed summonsId, address indexed convicted);

    /// @notice Anyone with the evidence, within the order's deadline and lag: an admitted order has no results.
    function summonResults(SignedOrder calldata order, Admission calldata admission, bytes calldata signature)
        external
        payable
        returns (bytes32 summonsId);

    /// @notice Anyone with the evidence, within half of the lag after the draw: a drawn segment has no verdicts.
    function summonCheck(
        SignedOrder calldata order,
        Draw calldata draw,
        bytes calldata drawSignature,
        uint8 segment,
        bytes32 secret
    ) external payable returns (bytes32 summonsId);

    /// @notice Anyone: shows all results with their signatures, by the admitted nodes.
    function answerResults(
        bytes32 summonsId,
        SummonsState calldata state,
        address[] calldata nodes,
        Result[] calldata results,
        bytes[] calldata signatures
    ) external;

    /// @notice Anyone: shows the verdicts of the drawn verifiers, one per distinct node.
    function answerCheck(
        bytes32 summonsId,
        SummonsState calldata state,
        Result[] calldata results,
        bytes[] calldata resultSignatures,
        Verdict[] calldata verdicts,
        bytes[] calldata signatures,
        VrfProof calldata check,
        bytes calldata hints
    ) external;

    /// @notice The scheduler, once: a node to which it signed a promise is silent; the node answers or pays.
    function passOn(bytes32 summonsId, SummonsState calldata state, Promise calldata promised, bytes calldata signature)
        external;

    /// @notice Anyone, after the deadline: convicts who was to answer.
    function convict(bytes32 summonsId, SummonsState calldata state) external;

    /// @notice Hash of a live summons' state, 0 if there is none, 1 if it was answered, 2 if it was not.
    function summonsOf(bytes32 summonsId) external view returns (bytes32);
    function depositFor() external view returns (uint96);
}
