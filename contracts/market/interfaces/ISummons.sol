// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Tab} from "./MarketTypes.sol";
import {SummonsKind, SummonsState} from "./Proceedings.sol";
import {Admission, Draw, Promise, Result, Signature, SignedOrder, Word} from "./Signed.sol";

/// @title A scheduler that owes results or a check is asked for them on chain, and convicted if it gives none
/// @notice A summons is proven by the scheduler's own signature over the order's digest; the key's is not looked at and
///         may be left out. Who has no stake, or has left, has nothing to lose: look before. The summoner's deposit goes
///         to the scheduler at once and pays its answer's gas; unanswered, the scheduler's stake pays it back, with gas
///         and a tenth of what was taken. A scheduler whose node is silent passes the summons on to it: a node that
///         speaks costs it the node's gas, a silent one pays and is replaced by the next of the draw.
interface ISummons {
    event Summoned(bytes32 indexed summonsId, bytes32 indexed order, address indexed scheduler, SummonsState state);
    /// @notice `promised` is what the scheduler owes the node for its part.
    event PassedOn(
        bytes32 indexed summonsId, address indexed node, SummonsState state, Promise promised, bytes signature
    );
    /// @notice A node to which it was passed on spoke: `word` is what it shows (results or verdicts, for the scheduler
    ///         to use).
    event Responded(bytes32 indexed summonsId, address indexed node, SummonsState state, bytes word);
    /// @notice A node to which it was passed on said nothing. A check goes on without it; results are no longer asked
    ///         for.
    event NodeSilent(bytes32 indexed summonsId, address indexed node, SummonsState state, uint96 taken);
    /// @notice `evidence` is the hash of what answered: results, or opinions by seat; zero: no verifiers could be
    ///         drawn.
    event SummonsAnswered(bytes32 indexed summonsId, address indexed answerer, bytes32 evidence);
    event SummonsUnanswered(bytes32 indexed summonsId, address indexed convicted, uint96 taken);

    error AlreadySummoned(bytes32 summonsId);
    error SummonsMismatch(bytes32 summonsId, bytes32 stored, bytes32 given);
    error WrongKind(SummonsKind kind, SummonsKind expected);
    error WrongDeposit(uint256 value, uint256 least, uint256 most);
    error TooEarly(uint256 from, uint256 blockNumber);
    error TooLate(uint256 until, uint256 blockNumber);
    error SecretMisses(bytes32 secret, bytes32 beta, uint32 checkRate);
    error VerdictMissing(address node);
    error AlreadyPassedOn(address node);
    error PassedOnTooOften(uint256 times);
    error WrongPromise(bytes32 order, uint8 segment, uint8 work, uint64 referenceBlock);
    error NotPassedTo(address caller, address node);

    /// @notice Anyone with the evidence, from a summons' window after the admission until its lag is over: an admitted
    ///         order has no results.
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

    /// @notice Anyone: shows all results by the admitted nodes, and a draw over them that is no older than the summons
    ///         (or its last extension), so that the client has its lottery.
    function answerResults(
        bytes32 summonsId,
        SummonsState calldata state,
        address[] calldata nodes,
        Result[] calldata results,
        Signature[] calldata signatures,
        Draw calldata draw,
        bytes calldata drawSignature
    ) external;

    /// @notice Anyone: shows what the drawn verifiers said over the drawn result of this segment, one word per distinct
    ///         node. A node that only responded counts as CannotTell. What the verdicts say is for the court.
    function answerCheck(
        bytes32 summonsId,
        SummonsState calldata state,
        Result[] calldata results,
        Signature[] calldata resultSignatures,
        Word[] calldata words,
        bytes calldata hints
    ) external;

    /// @notice The scheduler, once: an inferencer that it admitted is silent. It pays for the node's response in
    ///         advance.
    function passOnResults(
        bytes32 summonsId,
        SummonsState calldata state,
        address[] calldata nodes,
        Tab calldata tab,
        Promise calldata promised,
        bytes calldata signature
    ) external payable;

    /// @notice The scheduler: a drawn verifier is silent; each one once.
    function passOnCheck(
        bytes32 summonsId,
        SummonsState calldata state,
        Result[] calldata results,
        Signature[] calldata resultSignatures,
        Tab calldata tab,
        Promise calldata promised,
        bytes calldata signature,
        bytes calldata hints
    ) external payable;

    /// @notice The node to which a summons was passed on: it is there. The scheduler has another window to answer.
    /// @param word its signed result or verdict, or nothing, if it was given nothing to work with
    function respond(bytes32 summonsId, SummonsState calldata state, bytes calldata word) external;

    /// @notice Anyone, after the deadline: makes who was to answer pay.
    function convict(bytes32 summonsId, SummonsState calldata state) external;

    /// @notice Hash of a live summons' state, 0 if there is none, 1 if it was answered, 2 if it was not.
    function summonsOf(bytes32 summonsId) external view returns (bytes32);
    function summonsIdOf(bytes32 order, SummonsKind kind, uint8 segment) external pure returns (bytes32);
    /// @notice Nodes that stayed silent: their owners' seats are passed over in this draw of verifiers, here and in
    ///         court.
    function silentOf(bytes32 summonsId) external view returns (address[] memory);
    /// @notice Nodes that responded.
    function respondedOf(bytes32 summonsId) external view returns (address[] memory);
    /// @notice Least deposit of a summons at a base fee (which a call that is no transaction may not see, so that it is
    ///         an argument). For a coin the value may be up to twice as much, as the base fee moves; for a token exactly
    ///         this is taken.
    function depositFor(SummonsKind kind, uint256 baseFee) external view returns (uint96);
    /// @notice Least deposit of a scheduler that passes a summons on, by the same rule.
    function passDepositFor(uint256 baseFee) external view returns (uint96);
}
