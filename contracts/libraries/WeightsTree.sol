// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Rows of a model's weights under its weights root, version 2
/// @notice leaf = keccak256(ROW ‖ keccak256(name) ‖ uint32be(row) ‖ bytes of the row); root of a tensor =
///         keccak256(TENSOR ‖ keccak256(name) ‖ keccak256(dtype) ‖ uint32be(2) ‖ uint64be(rows) ‖ uint64be(columns) ‖
///         uint32be(rows) ‖ tree); weights root = keccak256(WEIGHTS ‖ keccak256(quantisation) ‖ uint32be(tensors) ‖ tree).
///         Trees are padded by zero leaves to a power of two; a node is keccak256(0x01 ‖ left ‖ right).
/// @dev The same rules are `troth.protocol.weight_rows`.
library WeightsTree {
    bytes32 internal constant ROW_TAG = keccak256("troth/weight-row/2");
    bytes32 internal constant TENSOR_TAG = keccak256("troth/weight-tensor/2");
    bytes32 internal constant WEIGHTS_TAG = keccak256("troth/weights/2");

    /// @notice A place beyond the end of a tree, or a path of another depth.
    error NotInTree(uint256 place, uint256 leaves, uint256 siblings);

    /// @notice A matrix: its name and dtype as its file has them, and the way from it to the weights root.
    /// @param quantisation keccak256 of the checkpoint's settings of quantisation
    /// @param tensors how many the model has; place: of this one, by name
    struct Matrix {
        string name;
        string dtype;
        uint32 rows;
        bytes32 quantisation;
        uint32 tensors;
        uint32 place;
        bytes32[] siblings;
    }

    /// @notice Root of the tree of a matrix by one of its rows.
    function rowsRoot(Matrix calldata matrix, uint256 place, bytes calldata row, bytes32[] calldata siblings)
        internal
        pure
        returns (bytes32)
    {
        bytes32 leaf = keccak256(abi.encodePacked(ROW_TAG, keccak256(bytes(matrix.name)), uint32(place), row));
        return treeRoot(leaf, place, matrix.rows, siblings);
    }

    /// @notice The weights root, by the root of a matrix' tree.
    function weightsRoot(Matrix calldata matrix, uint256 columns, bytes32 rows) internal pure returns (bytes32) {
        bytes32 tensor = keccak256(
            abi.encodePacked(
                TENSOR_TAG,
                keccak256(bytes(matrix.name)),
                keccak256(bytes(matrix.dtype)),
                uint32(2),
                uint64(matrix.rows),
                uint64(columns),
                matrix.rows,
                rows
            )
        );
        bytes32 tree = treeRoot(tensor, matrix.place, matrix.tensors, matrix.siblings);
        return keccak256(abi.encodePacked(WEIGHTS_TAG, matrix.quantisation, matrix.tensors, tree));
    }

    /// @notice Root of a padded tree by one leaf and its siblings from the bottom.
    function treeRoot(bytes32 leaf, uint256 place, uint256 leaves, bytes32[] calldata siblings)
        internal
        pure
        returns (bytes32 hash)
    {
        uint256 depth = siblings.length;
        if (place >= leaves || depth > 32 || leaves > 1 << depth || (depth > 0 && leaves <= 1 << depth - 1)) {
            revert NotInTree(place, leaves, depth);
        }
        hash = leaf;
        assembly ("memory-safe") {
            // At places that are known, which is cheaper: the tag, then both sides where the free pointer lies otherwise.
            let free := mload(0x40)
            mstore8(0x1f, 1)
            let next := siblings.offset
            for { let end := add(next, shl(5, depth)) } lt(next, end) { next := add(next, 0x20) } {
                let side := shl(5, and(place, 1))
                mstore(add(0x20, side), hash)
                mstore(sub(0x40, side), calldataload(next))
                hash := keccak256(0x1f, 65)
                place := shr(1, place)
            }
            mstore(0x40, free)
        }
    }
}
