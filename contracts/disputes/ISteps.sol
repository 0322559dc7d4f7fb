// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ShownRow} from "../market/interfaces/IProofs.sol";

/// @notice What a dispute is about: one row that a node signed, and all that the row follows from. Whoever opens a dispute
///         shows it, and the dispute keeps its hash.
/// @param order digest of the order
/// @param inputHead chain head of the rows that the segment read; of the first segment the request hash
/// @param outputHead chain head of the rows that the node signed
/// @param weightsRoot of the model
/// @param shape keccak256 of the encoded shape of the model's layers, which the class names
/// @param layers of the model
/// @param hidden numbers of a row
/// @param segment of the order: layers first to end, without end
/// @param rows how many rows the node signed
/// @param position of the row in dispute
struct Matter {
    bytes32 order;
    bytes32 inputHead;
    bytes32 outputHead;
    bytes32 weightsRoot;
    bytes32 shape;
    uint16 layers;
    uint32 hidden;
    uint8 segment;
    uint8 first;
    uint8 end;
    uint32 rows;
    uint32 position;
}

/// @notice Where a word of a trace is: eight numbers of one tensor.
/// @param place of the word in the tensor's tree
struct Word {
    uint32 tensor;
    uint64 place;
    bytes32 value;
}

/// @notice One part of a sum that is too long to be computed at once.
/// @param number of the word whose sum it is
/// @param index of the part
/// @param value what the accused says it is: 96 bytes, two's complement, big-endian, in units of 2^-298
struct Part {
    uint8 number;
    uint256 index;
    bytes value;
}

/// @notice What the accused says that its signed row follows from.
/// @param root of the tree over the roots of all tensors
/// @param seed of nudges: the struct hash of the signed result
/// @param nudge 0: the trace alone; else the trace, and behind it the one that this nudge gives
/// @param moved which number of the nudged trace's last row says how far rounding may move the row
struct Claim {
    bytes32 root;
    bytes32 seed;
    uint8 nudge;
    uint32 moved;
}

/// @title The arithmetic that disputes are about: how the trace of a segment is laid out, and how one number of it follows
///        from numbers before it
/// @notice A trace is a list of tensors, in an order in which each follows from those before it, from the segment's input to the
///         row in dispute. A tensor is a table of rows, each padded to a power of two of words of eight float32 numbers, and
///         the rows to a power of two. The trace's root is that of the tree over the tensors' roots. What pads is zero, and
///         anything else in its place is as wrong as a wrong number. Where a nudge is named, as many tensors follow: those of the
///         same computation, in which each number of the state before each layer, and before the last norm, is multiplied by
///         1 + 2^-20 or 1 - 2^-20, as a hash says. How far that moves the last row says what rounding may do to it.
/// @dev Keeps no state. The same rules are `troth.protocol.disputes.layout`.
interface ISteps {
    /// @notice The shape is not the one that the class names, or is beyond what one transaction can check.
    error WrongShape(bytes32 given, bytes32 expected);
    error NoSuchTensor(uint256 tensor, uint256 count);

    /// @notice Levels of the tree over the tensors' roots; reverts for a shape that is not the matter's, and for a matter that
    ///         cannot be checked.
    function depth(Matter calldata matter, bytes calldata shape) external view returns (uint8);

    /// @notice Levels of one tensor's tree, above its words.
    /// @param nudged whether the trace has a nudged one behind it
    function depthOf(Matter calldata matter, bytes calldata shape, bool nudged, uint32 tensor)
        external
        view
        returns (uint8);

    /// @notice Whether a number of this word is another one than what the numbers before it give. Reverts where what is shown
    ///         is not of this trace, this model or this order.
    /// @param claim what the accused committed to
    /// @param step which number, and the openings of all that it follows from, as the contract takes them
    function isWrong(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        bytes calldata step
    ) external view returns (bool);

    /// @notice Whether these parts, 96 bytes each and as many as there must be, make the number of the word. A sum is cut into
    ///         parts of 128 terms, the last one has what is left, and a bias is a part of its own behind them. What is computed
    ///         at once has none.
    function concludes(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        uint8 number,
        bytes calldata parts
    ) external view returns (bool);

    /// @notice Whether a part is another one than its terms make; see `isWrong`.
    function isWrongPart(
        Matter calldata matter,
        bytes calldata shape,
        Claim calldata claim,
        Word calldata word,
        Part calldata part,
        bytes calldata step
    ) external view returns (bool);

    /// @notice Whether the signed row is further from the trace's last row than honest machines are: than the tolerance, and
    ///         than four times as far as the nudge moves the row.
    /// @param opening the rows, as the contract takes them
    function isFar(Matter calldata matter, bytes calldata shape, Claim calldata claim, bytes calldata opening)
        external
        view
        returns (bool);

    /// @notice Reverts unless this is the row of a position, under the matter's output head.
    function requireSigned(Matter calldata matter, uint256 position, ShownRow calldata row) external pure;
}
