// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    Admission,
    Draw,
    Fault,
    LeafKind,
    Result,
    Row,
    SignedOrder,
    Tab,
    Verdict,
    VrfProof
} from "./MarketTypes.sol";

/// @title What signatures prove by themselves: one-transaction convictions, and what a claimed leaf is worth
/// @notice Whoever holds the evidence acts alone. A conviction takes L of the convict's class (a scheduler: of the order's), pays
///         first who is owed, then gas and a reward of a tenth of L to the caller, and burns the rest. Each subject convicts once.
interface IEvidence {
    event FaultProven(bytes32 indexed subject, address indexed convict, address indexed reporter, Fault fault, uint96 taken);

    function convictResults(Result calldata one, bytes calldata oneSignature, Result calldata other, bytes calldata otherSignature)
        external;
    function convictRows(Row calldata one, bytes calldata oneSignature, Row calldata other, bytes calldata otherSignature)
        external;
    function convictVerdicts(
        Verdict calldata one,
        bytes calldata oneSignature,
        Verdict calldata other,
        bytes calldata otherSignature
    ) external;
    /// @notice Two admissions of one order that name different nodes.
    function convictAdmissions(
        SignedOrder calldata order,
        Admission calldata one,
        bytes calldata oneSignature,
        Admission calldata other,
        bytes calldata otherSignature
    ) external;
    /// @notice Two draws over one order that differ in results or output.
    function convictDraws(
        SignedOrder calldata order,
        Draw calldata one,
        bytes calldata oneSignature,
        Draw calldata other,
        bytes calldata otherSignature
    ) external;
    /// @notice The admission names a node for `segment` that is not among the candidates drawn by this proof.
    function convictNodes(
        SignedOrder calldata order,
        Admission calldata admission,
        bytes calldata signature,
        address[] calldata nodes,
        uint8 segment,
        VrfProof calldata proof,
        bytes calldata hints
    ) external;
    /// @notice The draw's output is not that of this proof over (order, "draw").
    function convictBeta(
        SignedOrder calldata order,
        Draw calldata draw,
        bytes calldata signature,
        VrfProof calldata proof
    ) external;
    /// @notice The scheduler signed a draw over results whose heads do not meet.
    function convictHeads(
        SignedOrder calldata order,
        Draw calldata draw,
        bytes calldata signature,
        Result[] calldata results
    ) external;
    /// @notice A settled claim on a tab of which a scheduler's operator is the key was not covered: its stake pays the payee.
    function convictPayer(Tab calldata tab) external;
    /// @notice By the deployment's prover.
    function convictByProof(bytes calldata evidence) external;

    /// @notice What a claimed leaf is worth at most, or a revert that says why it is worth nothing.
    /// @param kind Order: abi.encode(Order, bytes signature, Result[], bytes[] signatures);
    ///        Promise: abi.encode(Promise, bytes signature, Result, bytes signature) for inference, and
    ///        abi.encode(Promise, bytes signature, Verdict, bytes signature) for a check
    function leafWorth(Tab calldata tab, LeafKind kind, uint64 sequence, bytes calldata leaf) external view returns (uint96);

    /// @notice Whether a subject has convicted already.
    function isProven(bytes32 subject) external view returns (bool);
}
