// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role, Tab} from "./MarketTypes.sol";
import {Fault} from "./Proceedings.sol";
import {Admission, Draw, Result, Row, SignedOrder, TraceCommitment, Verdict, VrfProof} from "./Signed.sol";

/// @title What signatures prove by themselves: one-transaction convictions
/// @notice Whoever holds the evidence acts alone. A conviction takes L of the convict's class (a scheduler: of the
///         order's), pays first who is owed, then gas and a reward of a tenth of what was taken to the caller, and
///         burns the rest. One order's segment (a scheduler's order) convicts once for each fault, however many pairs
///         of messages show it.
interface IEvidence {
    /// @notice `taken` is zero where a conviction is dated; its subject is the hash of the dated one.
    event FaultProven(
        bytes32 indexed subject, address indexed convict, address indexed reporter, Fault fault, uint96 taken
    );

    error SameMessage(bytes32 structHash);
    error DifferentSigners(address one, address other);
    /// @notice The two messages do not contradict each other.
    error NoContradiction(bytes32 one, bytes32 other);
    error AlreadyProven(bytes32 subject);
    error NotProven(bytes32 subject);
    error WrongParty(address operator, Role role, Role expected);
    error PartyLeft(address operator, uint40 exitBlock, uint256 blockNumber);
    error NothingAtStake(address operator);
    error NodeWasDrawn(address node);
    error BetaIsRight(bytes32 beta);
    error HeadsMeet(bytes32 results);
    error NothingShort(bytes32 tab);
    /// @notice All of a shortfall was fined before, and no stake beyond the least is there to pay it.
    error AlreadyFined(bytes32 tab, uint96 short);

    /// @notice Two results of a node for one segment of an order.
    function convictResults(
        Result calldata one,
        bytes calldata oneSignature,
        Result calldata other,
        bytes calldata otherSignature
    ) external;
    /// @notice Two rows of a node for one position.
    function convictRows(
        Row calldata one,
        bytes calldata oneSignature,
        Row calldata other,
        bytes calldata otherSignature
    ) external;
    /// @notice Two verdicts of a node over one result that differ in opinion or trace. (Who shows a verifier two
    ///         results must not make it a convict.)
    function convictVerdicts(
        Verdict calldata one,
        bytes calldata oneSignature,
        Verdict calldata other,
        bytes calldata otherSignature
    ) external;
    /// @notice A verdict over another trace than the one that its verifier had committed to for this result before it
    ///         saw the node's rows. One offence with two verdicts: either convicts, and not both.
    function convictCommitment(
        TraceCommitment calldata before,
        bytes calldata beforeSignature,
        Verdict calldata verdict,
        bytes calldata verdictSignature
    ) external;
    /// @notice Anyone, once: shows the order of a node's conviction by two words. They do not tell how old it is, so
    ///         that the conviction voids from the oldest order that can be served on; an older one voids from its lag
    ///         on as well.
    /// @param fault TwoResults, TwoRows or TwoVerdicts
    function date(Fault fault, address node, uint8 segment, SignedOrder calldata order) external;
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
    /// @notice The scheduler signed a draw over results that are not one per segment of this order with heads that
    ///         meet, the first of which is the order's request hash.
    function convictHeads(
        SignedOrder calldata order,
        Draw calldata draw,
        bytes calldata signature,
        Result[] calldata results
    ) external;
    /// @notice A settled claim on a tab of which a scheduler's operator is the key was not covered. What the scheduler
    ///         holds beyond the least stake pays the payee; what stays unpaid, and a tenth of the shortfall, is burnt
    ///         from the rest, so that a debt to a friend is no way out for stake that others' losses stand on. A debt
    ///         is fined once, however often it is claimed; it is paid as soon as there is stake to pay it from.
    function convictPayer(Tab calldata tab) external;
    /// @notice By a prover (IProofs), against any majority: what it takes of gas is paid back, too.
    function convictByProof(bytes calldata evidence) external;

    /// @notice Whether a subject has convicted already.
    function isProven(bytes32 subject) external view returns (bool);
}
