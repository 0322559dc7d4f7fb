// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticOperations} from "../libraries/ArithmeticOperations.sol";
import {ArithmeticRounding} from "../libraries/ArithmeticRounding.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ExactNumbers} from "../libraries/ExactNumbers.sol";
import {INumbers} from "./INumbers.sol";

/// @title What computes for Steps, which would be too large with it
contract Numbers is INumbers {
    using ArithmeticRounding for ArithmeticRounding.Wide;

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

    /// @inheritdoc INumbers
    function partOf(Arithmetic.Kind kind, ArithmeticSums.Operand[] calldata operands)
        external
        pure
        returns (bytes memory)
    {
        ArithmeticRounding.Wide memory none;
        ArithmeticRounding.Wide memory part = Arithmetic.add(kind, none, operands);
        return abi.encodePacked(part.high, part.middle, part.low);
    }

    /// @inheritdoc INumbers
    function conclude(Arithmetic.Kind kind, bytes calldata parts, uint256 terms, uint256[] calldata constants)
        external
        pure
        returns (uint256)
    {
        ArithmeticRounding.Wide memory total;
        for (uint256 i = 0; i < parts.length && ArithmeticSums.isNumber(total); i += 96) {
            ArithmeticRounding.Wide memory part = ArithmeticRounding.Wide(
                uint256(bytes32(parts[i:])), uint256(bytes32(parts[i + 32:])), uint256(bytes32(parts[i + 64:]))
            );
            total = ArithmeticSums.isNumber(part) ? total.add(part) : part;
        }
        uint256 last = constants.length == 0 ? 0 : constants[0];
        return Arithmetic.conclude(kind, total, terms, last, ExactNumbers.Format.Float32);
    }
}
