// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExecutionClass, ModelDescriptor} from "../market/interfaces/MarketTypes.sol";
import {Result, SignedOrder} from "../market/interfaces/Signed.sol";
import {ShownRow} from "../market/interfaces/IProofs.sol";
import {Matter} from "./ISteps.sol";

/// @notice Whose turn it is.
enum Turn {
    None,
    Accused, // shows the next levels of its trace, within the window
    Accuser, // names which of what was shown is wrong first, or convicts
    Row, // the accused gives the signed row that the accuser asked for, within the window
    Sum // the accused gives the parts of the sum that the accuser asked for, within the window
}

/// @notice A dispute. Calls bring it along in the form of Packed, whose hash is all that is kept of it.
/// @param matter hash of what it is about
/// @param result struct hash of the node's signed result: what it is convicted for, once
/// @param offenceBlock reference block of the order
/// @param bond what the accuser loses if it shows nothing wrong
/// @param deadline last block of whose turn it is
/// @param root of the trace; zero before the accused showed its first levels
/// @param node the part of the trace that the accuser named last
/// @param inTensor whether the node is in one tensor's tree, and not in the tree over all tensors
/// @param tensor which one
/// @param place of the node among those of its level
/// @param left levels below the node
/// @param shown how many of them the accused has shown
/// @param asked 1 + the position of the signed row that the accuser asked for; 0: it asked for none
/// @param nudge which one the accused defends itself with; 0: none
/// @param moved the number of the last row by which is measured how far the nudge moves it
/// @param number 1 + the number of the word of whose sum the parts were asked for; 0: none
/// @param parts hash of the parts that the accused gave
struct Dispute {
    bytes32 matter;
    bytes32 result;
    address accused;
    address accuser;
    uint64 offenceBlock;
    uint96 bond;
    uint40 deadline;
    Turn turn;
    bytes32 root;
    bytes32 node;
    bool inTensor;
    uint32 tensor;
    uint64 place;
    uint8 left;
    uint8 shown;
    uint32 asked;
    uint8 nudge;
    uint32 moved;
    uint8 number;
    bytes32 parts;
}

/// @notice A Dispute in eight words; see PackedDispute.
/// @param accused 160 bits, bond 96
/// @param accuser 160 bits, offenceBlock 64, moved 32
/// @param place deadline 40 bits, turn 8, inTensor 8, tensor 32, place 64, left 8, shown 8, asked 32, nudge 8, number 8
struct Packed {
    bytes32 matter;
    bytes32 result;
    bytes32 root;
    bytes32 node;
    bytes32 parts;
    uint256 accused;
    uint256 accuser;
    uint256 place;
}

/// @notice What a dispute is opened with.
/// @param result and its node's signature
/// @param shape of the model's layers, encoded as ISteps takes it
/// @param mark where in the class' name "/layers:" begins
/// @param position of the row that is wrong
struct Accusation {
    SignedOrder order;
    ExecutionClass executionClass;
    ModelDescriptor model;
    Result result;
    bytes signature;
    bytes shape;
    uint16 mark;
    uint32 position;
}

/// @notice One of the nodes that the accused has shown, and its way to the node above.
struct Choice {
    uint64 index;
    bytes32 node;
    bytes32[] siblings;
}

/// @title Disputes over arithmetic: whoever computed honestly convicts whoever did not, alone
/// @notice The accuser names a row that a node signed. The accused commits to the trace from which the row follows and opens it
///         level by level, wherever the accuser points; the accuser points at the first part that differs from its own. At
///         the end stands one number whose operands both hold to be the same, and one transaction computes it. Whoever is
///         silent on its turn loses: the accused its stake, the accuser its bond. A row itself may differ from the trace's by
///         what honest machines differ.
/// @dev The prover of one deployment's Evidence (Parameters.prover): it convicts by calling `convictByProof`, which asks it back.
///      Proofs of a wrong token pass through to the deployment's Proofs.
interface IDisputes {
    event DisputesDeployed(address indexed evidence, address steps, uint256 window);
    /// @notice The first state follows from it; each later one from the state before and the events of the turn.
    /// @param left levels of the tree over all tensors
    event DisputeOpened(
        bytes32 indexed dispute,
        address indexed accused,
        address indexed accuser,
        Matter matter,
        bytes shape,
        bytes32 result,
        uint64 offenceBlock,
        uint96 bond,
        uint8 left
    );
    /// @notice The accused names the nudge by which it defends itself; what it shows is told next.
    event Defended(bytes32 indexed dispute, uint8 nudge, uint32 moved);
    /// @notice What the accused showed: the nodes so many levels below the one that was named.
    event Shown(bytes32 indexed dispute, bytes32[] nodes);
    /// @notice The accuser named one of the nodes that were shown.
    event Chosen(bytes32 indexed dispute, uint64 index);
    /// @notice The accuser named a tensor, above whose words are so many levels.
    event TensorChosen(bytes32 indexed dispute, uint64 index, uint8 left);
    /// @notice The accuser asked for the signed row of a position.
    event RowAsked(bytes32 indexed dispute, uint32 position);
    /// @notice The accused gave the signed row that the accuser asked for.
    event RowGiven(bytes32 indexed dispute, ShownRow row);
    /// @notice The accuser named a word, and asked for the parts of the sum that is this number of it.
    event SumAsked(bytes32 indexed dispute, uint64 index, uint8 number);
    /// @notice The accused gave parts of the sum that was asked for; none, where the number is no long sum.
    event SumGiven(bytes32 indexed dispute, bytes parts);
    /// @notice The accused was convicted; the accuser was paid its bond and what the conviction earned.
    event DisputeWon(bytes32 indexed dispute, address indexed accused, address indexed accuser, uint256 paid);
    /// @notice The accuser showed nothing in time: its bond is the accused's.
    event DisputeLost(bytes32 indexed dispute, address indexed accused, address indexed accuser, uint256 paid);
    /// @notice The accused was convicted by somebody else, or nothing is left to take: the bond went back.
    event DisputeMoot(bytes32 indexed dispute, address indexed accused, address indexed accuser, uint256 paid);

    error AlreadyDisputed(bytes32 dispute);
    error StateMismatch(bytes32 dispute, bytes32 kept, bytes32 given);
    error WrongTurn(Turn turn, Turn expected);
    error WrongPlayer(address caller, address expected);
    error TooLate(uint256 blockNumber, uint256 lastBlock);
    error TooEarly(uint256 blockNumber, uint256 lastBlock);
    /// @notice Rows in bfloat16 are not disputed: no tolerance is proven that keeps honest nodes safe.
    error NotFloat32(uint8 dtype);
    /// @notice The class' name has no "/layers:" and this shape's hash at this place, before its end or its "/head:".
    error ShapeNotNamed(string className, bytes32 shape, uint256 mark);
    error NoSuchRow(uint256 position, uint256 rows);
    /// @notice The node's stake could be gone before the longest dispute ends, or is gone.
    error NothingToLose(address accused, uint256 exitBlock, uint256 stake);
    error BondMismatch(uint256 given, uint256 expected);
    /// @notice What is shown are not the nodes below the one that was named.
    error WrongNodes(bytes32 root, bytes32 expected);
    error NoSuchChoice(uint256 index, uint256 count);
    /// @notice A nudge is from 1 to the last, and is named with the first levels that are shown.
    error NoSuchNudge(uint8 nudge, uint8 last, bytes32 root);
    /// @notice The accuser points at a tensor with `chooseTensor`, at a word with `wrongStep`, at all else with `choose`.
    error WrongLevel(bool inTensor, uint256 left, uint256 shown);
    /// @notice A signed row is asked for once, and so are the parts of a sum.
    error AskedBefore(bytes32 dispute);
    /// @notice A word has eight numbers.
    error NoSuchNumber(uint8 number);
    /// @notice These parts are not those that were given.
    error WrongParts(bytes32 given, bytes32 expected);
    /// @notice More bytes than the parts of the longest sum have.
    error TooManyParts(uint256 given, uint256 most);
    error WrongMatter(bytes32 given, bytes32 expected);
    /// @notice The number is the one that follows, or the row is as near as honest rows are.
    error NothingWrong(bytes32 dispute);
    /// @notice A deployment whose stakes may leave before the longest dispute ends.
    error UnbondingTooShort(uint256 unbonding, uint256 expected);
    error NoSuchProof(bytes4 selector);
    error NotBank(address caller);

    /// @notice Opens a dispute; the caller pays `bondFor` (in a token: by allowance).
    function open(Accusation calldata accusation) external payable returns (bytes32 dispute);

    /// @notice Accused: shows the nodes `strideOf(left)` levels below the node that was named; at first, below the root.
    function show(bytes32 dispute, Packed calldata state, bytes32[] calldata nodes) external;

    /// @notice Accused, first: its row is further from the canonical one than usual, and so is what a nudge makes of it. It
    ///         commits to both traces, and shows the first levels of the tree over both.
    /// @param moved the number of the last row that the nudge moves the furthest
    function defend(bytes32 dispute, Packed calldata state, uint8 nudge, uint32 moved, bytes32[] calldata nodes)
        external;

    /// @notice Accuser: names the first node that differs, where levels are left below it.
    function choose(bytes32 dispute, Packed calldata state, Choice calldata choice) external;

    /// @notice Accuser: names the first tensor that differs, where the tree over all tensors ends.
    function chooseTensor(
        bytes32 dispute,
        Packed calldata state,
        Matter calldata matter,
        bytes calldata shape,
        Choice calldata choice
    ) external;

    /// @notice Accuser, once: asks for a signed row up to the one in dispute, of which only the hash travelled. Its turn comes
    ///         again.
    function askRow(bytes32 dispute, Packed calldata state, Matter calldata matter, uint32 position) external;

    /// @notice Accused: gives the signed row of this position, under the output head.
    function giveRow(bytes32 dispute, Packed calldata state, Matter calldata matter, ShownRow calldata row) external;

    /// @notice Accuser, once: a number of the word that differs is a sum too long for one transaction; its parts are asked for.
    function askSum(bytes32 dispute, Packed calldata state, Choice calldata choice, uint8 number) external;

    /// @notice Accused: gives the exact integers between whose sum and the number stands nothing but rounding; none, where the
    ///         number is no long sum. Whether they make the number is looked at where the accuser says that they do not.
    function giveSum(bytes32 dispute, Packed calldata state, bytes calldata parts) external;

    /// @notice Anyone: the parts that the accused gave do not make the number. The accuser is paid.
    function wrongSum(
        bytes32 dispute,
        Packed calldata state,
        Matter calldata matter,
        bytes calldata shape,
        bytes calldata parts
    ) external;

    /// @notice Anyone: one of the parts is not the sum of its terms. The accuser is paid.
    function wrongPart(
        bytes32 dispute,
        Packed calldata state,
        Matter calldata matter,
        bytes calldata shape,
        bytes calldata parts,
        uint256 index,
        bytes calldata step
    ) external;

    /// @notice Anyone: a number of a word of what was shown is not the one that follows. The accuser is paid.
    function wrongStep(
        bytes32 dispute,
        Packed calldata state,
        Matter calldata matter,
        bytes calldata shape,
        Choice calldata choice,
        bytes calldata step
    ) external;

    /// @notice Anyone: the signed row is further from the trace's last row than honest machines are. The accuser is paid.
    function wrongRow(
        bytes32 dispute,
        Packed calldata state,
        Matter calldata matter,
        bytes calldata shape,
        bytes calldata opening
    ) external;

    /// @notice Anyone, after the deadline of the accused: it showed or gave nothing. The accuser is paid.
    function silent(bytes32 dispute, Packed calldata state) external;

    /// @notice Anyone: ends a dispute in which the accuser was silent, or which nothing can come of any more.
    function close(bytes32 dispute, Packed calldata state) external;

    // ---- reads

    /// @notice Hash of the state of a dispute under way; 0: there is none; 1: it has ended.
    function disputeOf(bytes32 dispute) external view returns (bytes32);
    /// @notice One dispute for each signed row and accuser.
    function disputeIdOf(bytes32 result, uint32 position, address accuser) external pure returns (bytes32);
    /// @notice How many levels are shown at once, where so many are left.
    function strideOf(uint8 left) external pure returns (uint8);
    function bondFor() external view returns (uint96);
    /// @notice Blocks of each turn, and from an order's reference block to the last block in which a dispute over it is opened.
    function windows() external view returns (uint256 turn, uint256 opening);
}
