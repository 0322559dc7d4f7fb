// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticOperations} from "../libraries/ArithmeticOperations.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";

/// @title One number by its step, in float32
interface INumbers {
    /// @notice How one number of a layer is computed; see library ArithmeticOperations.
    function stepOf(
        ArithmeticOperations.Shape calldata shape,
        ArithmeticOperations.Operation operation,
        uint256 position,
        uint256 element
    ) external pure returns (ArithmeticOperations.Step memory);

    /// @notice The bits of the number; see library Arithmetic.
    function evaluate(
        Arithmetic.Kind kind,
        ArithmeticSums.Operand[] calldata operands,
        uint256[] calldata constants
    ) external pure returns (uint256);

    /// @notice The exact sum of some terms: 96 bytes, two's complement, big-endian, in units of 2^-298.
    function partOf(Arithmetic.Kind kind, ArithmeticSums.Operand[] calldata operands)
        external
        pure
        returns (bytes memory);

    /// @notice The bits of the number that these parts make.
    /// @param parts 96 bytes each
    /// @param terms how many the sum has
    function conclude(Arithmetic.Kind kind, bytes calldata parts, uint256 terms, uint256[] calldata constants)
        external
        pure
        returns (uint256);
}
