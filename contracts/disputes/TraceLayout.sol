// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {ArithmeticOperations} from "../libraries/ArithmeticOperations.sol";
import {ISteps, Matter, Word} from "./ISteps.sol";

/// @title Where each number of a trace is
/// @notice The trace of a segment has for each layer the tensors of its operations, in their order, and behind the model's last
///         layer three more: its state again, the factor of the last norm, and the norm. A row of a tensor is that of a
///         position; the values alone stand with a row for each number, and a column for each position, since they are
///         read so. A nudged trace has the same tensors again; what its first layer reads is the plain trace's input, nudged.
/// @dev The same rules are `troth.protocol.disputes.layout`.
library TraceLayout {
    using ArithmeticOperations for ArithmeticOperations.Shape;

    /// @notice How a model computes, beside its weights.
    /// @param kinds of its layers
    /// @param pattern a byte for each layer: its kind
    /// @param layers what the names of layers' tensors begin with, before the layer's number
    /// @param embedding name of the tensor whose rows are the tokens' first states
    /// @param embeddingScale by which they are multiplied, float32 bits
    /// @param norm name of the last norm's weights
    struct ModelShape {
        ArithmeticOperations.Shape[] kinds;
        bytes pattern;
        string layers;
        string embedding;
        uint32 embeddingScale;
        string norm;
    }

    /// @dev Where a tensor is.
    struct Where {
        ArithmeticOperations.Shape shape;
        uint256 layer;
        ArithmeticOperations.Operation operation;
        bool nudged;
    }

    /// @notice A model that one transaction could not check: a sum too long, or a shape that does not hold together.
    error NotCheckable(uint256 kind, uint256 number);
    error WrongElement(uint256 element);

    uint256 internal constant OPERATIONS = 34;
    /// @dev Behind the last layer: its state, the factor and the norm.
    uint256 private constant LAST = 3;
    uint256 internal constant WORD_NUMBERS = 8;
    /// @dev The longest sum, and the most positions: what one transaction may take.
    uint256 private constant MOST_TERMS = 8192;
    uint256 private constant MOST_WIDTH = 1 << 16;

    /// @notice Levels of the tree over the tensors' roots; reverts for a shape or a matter that cannot be checked.
    function depth(Matter calldata matter, bytes calldata shape) internal pure returns (uint8) {
        modelOf(matter, shape);
        // Decoded whole, once: so nothing that the shape points to is outside of it, and the turns read it where it lies.
        ModelShape memory model = abi.decode(shape, (ModelShape));
        if (model.pattern.length != matter.layers || matter.end > matter.layers || matter.first >= matter.end) {
            revert NotCheckable(0, model.pattern.length);
        }
        for (uint256 i = 0; i < model.kinds.length; ++i) _requireCheckable(model.kinds[i], matter, i);
        for (uint256 i = 0; i < model.pattern.length; ++i) {
            if (uint8(model.pattern[i]) >= model.kinds.length) revert NotCheckable(uint8(model.pattern[i]), i);
        }
        return uint8(levelsOf(countOf(matter)));
    }

    function _requireCheckable(ArithmeticOperations.Shape memory kind, Matter calldata matter, uint256 number) private pure {
        uint256 queries = uint256(kind.heads) * kind.headWidth;
        bool holds = kind.hidden == matter.hidden && kind.hidden != 0 && kind.hidden <= MOST_TERMS
            && kind.keyHeads != 0 && kind.heads >= kind.keyHeads && kind.heads % kind.keyHeads == 0
            && kind.headWidth != 0 && kind.headWidth % 2 == 0 && kind.frequencies.length == 2 * kind.headWidth
            && queries <= MOST_TERMS && kind.intermediate != 0 && kind.intermediate <= MOST_TERMS
            && matter.position < MOST_TERMS
            && uint256(kind.heads) * (uint256(matter.position) + 1) <= MOST_WIDTH && kind.activation <= 1;
        if (!holds) revert NotCheckable(number, kind.hidden);
    }

    /// @notice The shape that calls bring along, where it lies.
    function modelOf(Matter calldata matter, bytes calldata shape) internal pure returns (ModelShape calldata model) {
        bytes32 hash = keccak256(shape);
        if (hash != matter.shape) revert ISteps.WrongShape(hash, matter.shape);
        assembly ("memory-safe") {
            model := add(shape.offset, calldataload(shape.offset))
        }
    }

    /// @notice Tensors of one trace.
    function countOf(Matter calldata matter) internal pure returns (uint256) {
        uint256 count = OPERATIONS * (uint256(matter.end) - matter.first);
        return matter.end == matter.layers ? count + LAST : count;
    }

    /// @notice Tensors of one trace, or of two.
    function wholeOf(Matter calldata matter, bool nudged) internal pure returns (uint256) {
        return nudged ? 2 * countOf(matter) : countOf(matter);
    }

    /// @notice The layer and operation of a tensor.
    /// @param nudged whether the trace has a nudged one behind it
    function whereOf(ModelShape calldata model, Matter calldata matter, bool nudged, uint256 tensor)
        internal
        pure
        returns (Where memory place)
    {
        uint256 count = countOf(matter);
        if (tensor >= wholeOf(matter, nudged)) revert ISteps.NoSuchTensor(tensor, wholeOf(matter, nudged));
        place.nudged = tensor >= count;
        if (place.nudged) tensor -= count;
        place.layer = matter.first + tensor / OPERATIONS;
        place.operation = ArithmeticOperations.Operation(tensor % OPERATIONS);
        // The last norm is one of the last layer's kind.
        uint256 known = place.layer == matter.layers ? place.layer - 1 : place.layer;
        place.shape = model.kinds[uint8(model.pattern[known])];
    }

    /// @notice Whether a row is that of a number, and a column that of a position.
    function isTurned(ArithmeticOperations.Operation operation) internal pure returns (bool) {
        return operation == ArithmeticOperations.Operation.Value;
    }

    /// @notice Levels over a row's words.
    function acrossOf(Where memory place, Matter calldata matter) internal pure returns (uint256) {
        uint256 columns = isTurned(place.operation)
            ? uint256(matter.position) + 1
            : place.shape.width(place.operation, matter.position);
        return levelsOf((columns + WORD_NUMBERS - 1) / WORD_NUMBERS);
    }

    /// @notice Levels over all words of a tensor.
    function depthOf(Where memory place, Matter calldata matter) internal pure returns (uint256) {
        uint256 rows = isTurned(place.operation)
            ? place.shape.width(place.operation, matter.position)
            : uint256(matter.position) + 1;
        return levelsOf(rows) + acrossOf(place, matter);
    }

    /// @notice 0 for one, and for none: a tensor that the layer does not have is one word, of which nothing can be wrong.
    function levelsOf(uint256 count) internal pure returns (uint256) {
        return count < 2 ? 0 : Math.log2(count - 1) + 1;
    }

    /// @notice Whether there is such a number of a word, its position and its place in the row.
    function placeOf(Where memory place, Matter calldata matter, Word calldata word, uint256 number)
        internal
        pure
        returns (bool exists, uint256 position, uint256 element)
    {
        if (number >= WORD_NUMBERS) revert WrongElement(number);
        uint256 across = acrossOf(place, matter);
        position = word.place >> across;
        element = (word.place & (1 << across) - 1) * WORD_NUMBERS + number;
        if (isTurned(place.operation)) (position, element) = (element, position);
        exists = position <= matter.position && element < place.shape.width(place.operation, position);
    }
}
