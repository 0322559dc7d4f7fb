// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ArithmeticOperations} from "../libraries/ArithmeticOperations.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ExactNumbers} from "../libraries/ExactNumbers.sol";
import {WeightsTree} from "../libraries/WeightsTree.sol";
import {Orders} from "../market/libraries/Orders.sol";
import {Claim, Matter} from "./ISteps.sol";
import {TraceLayout} from "./TraceLayout.sol";
import {TraceTree} from "./TraceTree.sol";

/// @title What a number follows from, opened up to the trace's root or to the weights root
library Operands {
    /// @notice Words of a tensor that stand side by side, up to the trace's root.
    struct Opening {
        bytes words;
        bytes32[] siblings;
    }

    /// @notice A leaf of a tensor of the weights, up to the weights root.
    /// @param rows and columns of the tensor; 0 rows: it is a vector
    /// @param leaves into how many the tensor is cut
    /// @param quantisation, tensors, place, siblings as in WeightsTree.Matrix
    struct WeightOpening {
        string dtype;
        uint32 rows;
        uint32 columns;
        uint32 leaves;
        bytes32 quantisation;
        uint32 tensors;
        uint32 place;
        bytes32[] siblings;
        bytes leaf;
        bytes32[] leafSiblings;
    }

    /// @notice The opening does not lead to the trace that the accused committed to.
    error AnotherTrace(bytes32 root, bytes32 expected);
    /// @notice Weights in other numbers than float32 and bfloat16 are not read.
    error UnknownNumbers(string dtype);

    /// @notice Numbers of one row of a tensor of this layer.
    function numbersOf(
        TraceLayout.Where memory place,
        Matter calldata matter,
        Claim calldata claim,
        ArithmeticOperations.RowSlice memory slice,
        Opening calldata opening
    ) internal pure returns (bytes calldata) {
        TraceLayout.Where memory read = TraceLayout.Where(place.shape, place.layer, slice.operation, place.nudged);
        (uint256 row, uint256 start, uint256 stop) = TraceLayout.isTurned(slice.operation)
            ? (slice.start, slice.first, slice.last)
            : (slice.first, slice.start, slice.stop);
        uint256 levels = TraceLayout.depthOf(read, matter);
        uint256 tensor = TraceLayout.OPERATIONS * (place.layer - matter.first) + uint8(slice.operation);
        if (place.nudged) tensor += TraceLayout.countOf(matter);
        uint256 begin = start / TraceLayout.WORD_NUMBERS;
        uint256 first = tensor << levels | row << TraceLayout.acrossOf(read, matter) | begin;
        levels += TraceLayout.levelsOf(TraceLayout.wholeOf(matter, claim.nudge != 0));
        bytes32 found = TraceTree.rangeRoot(opening.words, first, levels, opening.siblings);
        if (found != claim.root) revert AnotherTrace(found, claim.root);
        if (opening.words.length != 32 * ((stop + TraceLayout.WORD_NUMBERS - 1) / TraceLayout.WORD_NUMBERS - begin)) {
            revert AnotherTrace(found, bytes32(opening.words.length));
        }
        return opening.words[4 * (start % TraceLayout.WORD_NUMBERS):4 * (stop - begin * TraceLayout.WORD_NUMBERS)];
    }

    /// @notice Numbers of one row of a tensor of the weights, which lie in one of its leaves.
    function weightsOf(
        Matter calldata matter,
        string memory name,
        ArithmeticOperations.WeightSlice memory slice,
        WeightOpening calldata opening
    ) internal pure returns (ArithmeticSums.Operand memory) {
        ExactNumbers.Format format = _formatOf(opening.dtype);
        uint256 size = ExactNumbers.width(format);
        uint256 rows = opening.rows == 0 ? 1 : opening.rows;
        if (slice.row >= rows || slice.stop > opening.columns) revert TraceLayout.WrongElement(slice.stop);
        uint256 length = rows * opening.columns * size / opening.leaves;
        uint256 start = (slice.row * opening.columns + slice.start) * size;
        uint256 leaf = start / length;
        if (opening.leaf.length != length || start % length + (slice.stop - slice.start) * size > length) {
            revert TraceLayout.WrongElement(opening.leaf.length);
        }
        Orders.requireEqual(_weightsRoot(keccak256(bytes(name)), leaf, opening), matter.weightsRoot);
        uint256 from = start - leaf * length;
        return ArithmeticSums.Operand(format, false, opening.leaf[from:from + (slice.stop - slice.start) * size]);
    }

    /// @dev As WeightsTree for a matrix; of a vector the only dimension counts.
    function _weightsRoot(bytes32 name, uint256 leaf, WeightOpening calldata opening) private pure returns (bytes32) {
        bytes32 first = keccak256(abi.encodePacked(WeightsTree.ROW_TAG, name, uint32(leaf), opening.leaf));
        bytes32 tree = WeightsTree.treeRoot(first, leaf, opening.leaves, opening.leafSiblings);
        bytes memory dimensions = opening.rows == 0
            ? abi.encodePacked(uint32(1), uint64(opening.columns))
            : abi.encodePacked(uint32(2), uint64(opening.rows), uint64(opening.columns));
        bytes32 tensor = keccak256(
            abi.encodePacked(
                WeightsTree.TENSOR_TAG, name, keccak256(bytes(opening.dtype)), dimensions, opening.leaves, tree
            )
        );
        bytes32 whole = WeightsTree.treeRoot(tensor, opening.place, opening.tensors, opening.siblings);
        return keccak256(abi.encodePacked(WeightsTree.WEIGHTS_TAG, opening.quantisation, opening.tensors, whole));
    }

    function _formatOf(string calldata dtype) private pure returns (ExactNumbers.Format) {
        bytes32 named = keccak256(bytes(dtype));
        if (named == keccak256("F32")) return ExactNumbers.Format.Float32;
        if (named == keccak256("BF16")) return ExactNumbers.Format.BFloat16;
        revert UnknownNumbers(dtype);
    }

    /// @notice Numbers as they lie in rows.
    function float32(bytes memory numbers) internal pure returns (ArithmeticSums.Operand memory) {
        return ArithmeticSums.Operand(ExactNumbers.Format.Float32, false, numbers);
    }

    /// @notice One number by its bits.
    function constantOf(uint256 bits) internal pure returns (ArithmeticSums.Operand memory) {
        return float32(abi.encodePacked(uint8(bits), uint8(bits >> 8), uint8(bits >> 16), uint8(bits >> 24)));
    }
}
