// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticOperations} from "../libraries/ArithmeticOperations.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ExactNumbers} from "../libraries/ExactNumbers.sol";
import {INumbers} from "./INumbers.sol";

/// @title What computes for Steps, which would be too large with it
contract Numbers is INumbers {
    /// @inheritdoc INumbers
    function stepOf(
        ArithmeticOperations.Shape calldata shape,
        ArithmeticOperations.Operation operation,
        uint256 position,
        uint256 element
    ) external pure returns (ArithmeticOperations.Step memory) {
        return ArithmeticOperations.step(shape, operation, position, element);
    }

    /// @inheritdoc INumbers
    function evaluate(
        Arithmetic.Kind kind,
        ArithmeticSums.Operand[] calldata operands,
        uint256[] calldata constants
    ) external pure returns (uint256) {
        return Arithmetic.evaluate(kind, operands, constants, ExactNumbers.Format.Float32);
    }
}
