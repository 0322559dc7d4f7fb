// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";

import {Arithmetic} from "../libraries/Arithmetic.sol";
import {ArithmeticRounding} from "../libraries/ArithmeticRounding.sol";
import {ArithmeticSums} from "../libraries/ArithmeticSums.sol";
import {ExactNumbers} from "../libraries/ExactNumbers.sol";

/// @title What holds for canonical arithmetic of any numbers; the numbers themselves are compared with the Python rules
contract ArithmeticTest is Test {
    uint256 private constant COLUMNS = 11;
    ExactNumbers.Format private constant FLOAT32 = ExactNumbers.Format.Float32;

    function evaluate(Arithmetic.Kind kind, ArithmeticSums.Operand[] calldata operands, uint256[] calldata constants)
        external
        pure
        returns (uint256)
    {
        return Arithmetic.evaluate(kind, operands, constants, FLOAT32);
    }

    function add(ArithmeticRounding.Wide calldata soFar, ArithmeticSums.Operand[] calldata operands)
        external
        pure
        returns (ArithmeticRounding.Wide memory)
    {
        return Arithmetic.add(Arithmetic.Kind.Product, soFar, operands);
    }

    /// @dev Little-endian bits.
    function little(uint32 bits) private pure returns (bytes memory) {
        return abi.encodePacked(uint8(bits), uint8(bits >> 8), uint8(bits >> 16), uint8(bits >> 24));
    }

    /// @dev Finite numbers of every size, from column `first` to `last`, the order of columns turned by `turn`.
    function row(uint256 seed, uint256 first, uint256 last, uint256 turn, uint32 flip) private pure returns (bytes memory data) {
        for (uint256 i = first; i < last; ++i) {
            uint256 drawn = uint256(keccak256(abi.encode(seed, (i + turn) % COLUMNS)));
            uint32 bits = uint32(drawn % 0x7f800000) | uint32(drawn >> 255 << 31);
            data = bytes.concat(data, little(bits ^ flip));
        }
    }

    function pair(bytes memory one, bytes memory other) private pure returns (ArithmeticSums.Operand[] memory operands) {
        operands = new ArithmeticSums.Operand[](2);
        operands[0] = ArithmeticSums.Operand(FLOAT32, false, one);
        operands[1] = ArithmeticSums.Operand(FLOAT32, false, other);
    }

    function testFuzz_ASumHasNoOrder(uint256 a, uint256 b, uint256 turn) public view {
        turn %= COLUMNS;
        ArithmeticRounding.Wide memory none;
        ArithmeticRounding.Wide memory one = this.add(none, pair(row(a, 0, COLUMNS, 0, 0), row(b, 0, COLUMNS, 0, 0)));
        ArithmeticRounding.Wide memory other =
            this.add(none, pair(row(a, 0, COLUMNS, turn, 0), row(b, 0, COLUMNS, turn, 0)));
        assertEq(abi.encode(one), abi.encode(other));
    }

    function testFuzz_ASumInPartsIsTheWhole(uint256 a, uint256 b, uint256 cut) public view {
        cut %= COLUMNS + 1;
        ArithmeticRounding.Wide memory sum;
        ArithmeticRounding.Wide memory whole = this.add(sum, pair(row(a, 0, COLUMNS, 0, 0), row(b, 0, COLUMNS, 0, 0)));
        sum = this.add(sum, pair(row(a, 0, cut, 0, 0), row(b, 0, cut, 0, 0)));
        sum = this.add(sum, pair(row(a, cut, COLUMNS, 0, 0), row(b, cut, COLUMNS, 0, 0)));
        assertEq(abi.encode(sum), abi.encode(whole));
    }

    function testFuzz_SignsOfAProductAreThoseOfItsRows(uint256 a, uint256 b) public view {
        bytes memory other = row(b, 0, COLUMNS, 0, 0);
        uint256[] memory none = new uint256[](0);
        uint256 plain = this.evaluate(Arithmetic.Kind.Product, pair(row(a, 0, COLUMNS, 0, 0), other), none);
        uint256 negated = this.evaluate(Arithmetic.Kind.Product, pair(row(a, 0, COLUMNS, 0, 0x80000000), other), none);
        if (plain == 0 || plain == 0x7fc00000) assertEq(negated, plain);
        else assertEq(negated, plain ^ 0x80000000);
    }

    function testFuzz_OneNumberThatIsNoneSpoilsASum(uint256 a, uint256 place, uint32 bits) public view {
        bytes memory wrong = row(a, 0, COLUMNS, 0, 0);
        bits |= 0x7f800000;
        place %= COLUMNS;
        for (uint256 i = 0; i < 4; ++i) wrong[4 * place + i] = bytes1(uint8(bits >> 8 * i));
        uint256[] memory none = new uint256[](0);
        assertEq(this.evaluate(Arithmetic.Kind.Product, pair(wrong, wrong), none), 0x7fc00000);
    }

    /// @dev No float32 is at a place where the bounds round to two numbers.
    function testFuzz_FunctionsDecideEverywhere(uint32 bits, uint256 position) public view {
        uint256[] memory constants = new uint256[](1);
        for (uint256 kind = 0; kind < 2; ++kind) {
            constants[0] = kind;
            this.evaluate(Arithmetic.Kind.Gating, pair(little(bits), little(bits)), constants);
        }
        this.evaluate(Arithmetic.Kind.Exponential, pair(little(bits), little(0)), new uint256[](0));
        constants = new uint256[](2);
        (constants[0], constants[1]) = (position % (1 << 20), bits % 0x3f800001);
        ArithmeticSums.Operand[] memory none = new ArithmeticSums.Operand[](0);
        uint256 cosine = this.evaluate(Arithmetic.Kind.Cosine, none, constants) & 0x7fffffff;
        uint256 sine = this.evaluate(Arithmetic.Kind.Sine, none, constants) & 0x7fffffff;
        assertLe(cosine, 0x3f800000);
        assertLe(sine, 0x3f800000);
    }
}
