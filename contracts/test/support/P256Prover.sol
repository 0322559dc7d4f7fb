// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {VrfProof} from "../../market/interfaces/Signed.sol";

/// @title Makes the VRF proofs that the contract's tests need, with its hints
/// @dev The nonce is small and not that of RFC 6979, which no verifier can tell; it keeps the tests quick. Proofs by the
///      book are checked against the vectors of RFC 9381 in EcVrf.t.sol.
library P256Prover {
    Vm private constant VM = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    uint256 internal constant P = 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffff;
    uint256 internal constant N = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551;
    uint256 private constant B = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b;

    struct Point {
        uint256 x;
        uint256 y;
    }

    struct Work {
        Point key;
        Point hashed;
        Point gamma;
        Point u;
        Point v;
        uint256 c;
        uint256 s;
        uint256[] witnesses;
    }

    /// @notice The public key of a secret.
    function publicKey(uint256 secret) internal pure returns (uint256 x, uint256 y) {
        return VM.publicKeyP256(secret);
    }

    /// @notice A proof of a small secret over alpha.
    function prove(uint256 secret, bytes32 alpha) internal view returns (VrfProof memory made, bytes32 beta) {
        Work memory work;
        work.key = _base(secret);
        _hashToCurve(work, alpha);
        uint256 nonce = 2 + uint256(keccak256(abi.encode(secret, alpha))) % 1000;
        work.gamma = multiply(work.hashed, secret);
        work.u = _base(nonce);
        work.v = multiply(work.hashed, nonce);
        work.c = uint128(
            bytes16(
                sha256(
                    abi.encodePacked(
                        hex"0102",
                        _compress(work.key),
                        _compress(work.hashed),
                        _compress(work.gamma),
                        _compress(work.u),
                        _compress(work.v),
                        hex"00"
                    )
                )
            )
        );
        work.s = addmod(nonce, mulmod(work.c, secret, N), N);
        made.proof = abi.encodePacked(_compress(work.gamma), bytes16(uint128(work.c)), work.s);
        made.hints = _hints(work);
        beta = sha256(abi.encodePacked(hex"0103", _compress(work.gamma), hex"00"));
    }

    function _hints(Work memory work) private view returns (uint256[] memory hints) {
        Point memory shift = _base(mulmod(work.c, work.c, N));
        Point memory c = add(multiply(work.gamma, work.c), shift);
        Point memory d = add(c, work.v);
        Point memory sum = add(add(work.u, work.v), _base(1));
        Point memory e = add(d, Point(sum.x, P - sum.y));
        hints = new uint256[](11 + work.witnesses.length);
        hints[0] = work.hashed.y;
        hints[1] = work.gamma.y;
        hints[2] = work.u.x;
        hints[3] = work.u.y;
        hints[4] = work.v.x;
        hints[5] = work.v.y;
        hints[6] = c.x;
        hints[7] = d.x;
        hints[8] = e.x;
        hints[9] = power(mulmod(work.c, work.s, N), N - 2, N);
        hints[10] = mulmod(
            addmod(work.key.y, P - work.gamma.y, P), power(addmod(work.key.x, P - work.gamma.x, P), P - 2, P), P
        );
        for (uint256 i = 0; i < work.witnesses.length; ++i) {
            hints[11 + i] = work.witnesses[i];
        }
    }

    function _hashToCurve(Work memory work, bytes32 alpha) private view {
        uint256[] memory witnesses = new uint256[](256);
        for (uint256 counter = 0;; ++counter) {
            bytes memory message = abi.encodePacked(hex"0101", _compress(work.key), alpha, uint8(counter), hex"00");
            uint256 x = uint256(sha256(message));
            if (x < P) {
                uint256 cubic = _cubic(x);
                uint256 root = power(cubic, (P + 1) / 4, P);
                if (mulmod(root, root, P) == cubic) {
                    work.hashed = Point(x, root % 2 == 0 ? root : P - root);
                    assembly ("memory-safe") {
                        mstore(witnesses, counter)
                    }
                    work.witnesses = witnesses;
                    return;
                }
                root = power(P - cubic, (P + 1) / 4, P);
                witnesses[counter] = root % 2 == 0 ? root : P - root;
            }
        }
    }

    /// @notice Sum of two points with different abscissas, or the double of one; none may be the inverse of the other.
    function add(Point memory a, Point memory b) internal view returns (Point memory) {
        uint256 slope = a.x == b.x
            ? mulmod(addmod(mulmod(3, mulmod(a.x, a.x, P), P), P - 3, P), power(addmod(a.y, a.y, P), P - 2, P), P)
            : mulmod(addmod(b.y, P - a.y, P), power(addmod(b.x, P - a.x, P), P - 2, P), P);
        uint256 x = addmod(mulmod(slope, slope, P), P - addmod(a.x, b.x, P), P);
        return Point(x, addmod(mulmod(slope, addmod(a.x, P - x, P), P), P - a.y, P));
    }

    /// @notice A multiple of a point by double and add.
    function multiply(Point memory point, uint256 scalar) internal view returns (Point memory sum) {
        uint256 bit = 255;
        while (scalar >> bit & 1 == 0) --bit;
        sum = Point(point.x, point.y);
        while (bit > 0) {
            --bit;
            sum = add(sum, sum);
            if (scalar >> bit & 1 == 1) sum = add(sum, point);
        }
    }

    /// @notice base ** exponent modulo modulus, by the precompile of EIP-198.
    function power(uint256 base, uint256 exponent, uint256 modulus) internal view returns (uint256) {
        (bool success, bytes memory result) =
            address(5).staticcall(abi.encode(uint256(32), uint256(32), uint256(32), base, exponent, modulus));
        require(success, "modular power failed");
        return abi.decode(result, (uint256));
    }

    function _base(uint256 scalar) private pure returns (Point memory) {
        (uint256 x, uint256 y) = VM.publicKeyP256(scalar);
        return Point(x, y);
    }

    function _compress(Point memory point) private pure returns (bytes memory) {
        return abi.encodePacked(uint8(2 + point.y % 2), point.x);
    }

    function _cubic(uint256 x) private pure returns (uint256) {
        return addmod(mulmod(addmod(mulmod(x, x, P), P - 3, P), x, P), B, P);
    }
}
