// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title ECVRF-P256-SHA256-TAI (RFC 9381, suite 0x01) over the P256VERIFY precompile (EIP-7951)
/// @notice A proof (Γ, c, s) of key Y over alpha holds if c is the hash of Y, H, Γ, U = sG - cY and V = sH - cΓ, where
/// H is alpha hashed to the curve. P256VERIFY only tells whether aG + bQ has a claimed abscissa, so the prover hands in
/// points and abscissas as hints, and with t = c² mod n the checks are:
///
///  - U, C = cΓ + tG, D = sH + tG and E = c(Γ + Y) + (t - s - 1)G have the hinted abscissas (four calls);
///  - V = D - C, and U + V + G = D - E, each up to signs, by Semaev's third summation polynomial, which vanishes on
///    three abscissas exactly if signs exist with which the points add up to zero.
///
/// The wrong choice of signs in either sum would need a root of a fixed polynomial in c, while c is a hash taken after
/// everything else was fixed. The second sum holds the signs of U and V, so that exactly the proofs of the RFC pass
/// (except with c = 0, s = 0, U or V = ±G and the like, which no prover meets). All hints are unique for a proof.
/// @dev Proofs are built and hinted by `troth.protocol.vrf` and `troth.protocol.vrf_hints`.
library EcVrf {
    /// @notice The key, the proof or a hint is not what it must be.
    /// @param check number of the check that failed, as marked in the source
    error InvalidProof(uint256 check);

    /// @notice Length of a proof: Γ compressed (33 bytes), c (16 bytes), s (32 bytes).
    uint256 internal constant PROOF_BYTES = 81;
    /// @notice Hints of a proof whose first counter hits the curve; each skipped counter adds one.
    uint256 internal constant FIXED_HINTS = 11;

    uint256 private constant P = 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffff;
    uint256 private constant N = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551;
    /// @dev P - N - 1: up to here an abscissa may be another one's residue.
    uint256 private constant LAST_AMBIGUOUS = 0x4319055358e8617b0c46353d039cdaad;
    uint256 private constant B = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b;
    uint256 private constant TWICE_B = 0xb58c6bb1547527cf67d77aaaed310d78ca3a0d6198a761ec779c787c4fa4c096;
    uint256 private constant GX = 0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296;
    uint256 private constant GY = 0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5;

    /// @dev Places of the hints. The first eleven are fixed, then follow the witnesses of the skipped counters.
    uint256 private constant H_Y = 0;
    uint256 private constant GAMMA_Y = 1;
    uint256 private constant U_X = 2;
    uint256 private constant U_Y = 3;
    uint256 private constant V_X = 4;
    uint256 private constant V_Y = 5;
    uint256 private constant C_X = 6;
    uint256 private constant D_X = 7;
    uint256 private constant E_X = 8;
    uint256 private constant INVERSE = 9;
    uint256 private constant SLOPE = 10;

    /// @notice Whether (x, y) is a point of P-256 other than the one at infinity.
    function isOnCurve(uint256 x, uint256 y) internal pure returns (bool) {
        return x < P && y < P && mulmod(y, y, P) == addmod(mulmod(addmod(mulmod(x, x, P), P - 3, P), x, P), B, P);
    }

    /// @notice Verifies a proof over the 32 bytes `alpha`.
    /// @param x abscissa of the public key
    /// @param y ordinate of the public key
    /// @param alpha the VRF's input
    /// @param proof 81 bytes: Γ compressed, c, s
    /// @param hints what `troth.protocol.vrf_hints.hints` returns for this key, input and proof
    /// @return beta the VRF's output
    function verify(uint256 x, uint256 y, bytes32 alpha, bytes calldata proof, uint256[] calldata hints)
        internal
        view
        returns (bytes32 beta)
    {
        bytes memory message;
        assembly ("memory-safe") {
            message := mload(0x40)
            mstore(message, 0x20)
            mstore(add(message, 0x20), alpha)
            mstore(0x40, add(message, 0x40))
        }
        return verify(x, y, message, proof, hints);
    }

    /// @notice The same for an input of any length.
    function verify(uint256 x, uint256 y, bytes memory alpha, bytes calldata proof, uint256[] calldata hints)
        internal
        view
        returns (bytes32 beta)
    {
        // (1) Lengths, and one hint for each skipped counter.
        bool holds;
        assembly ("memory-safe") {
            holds := and(eq(proof.length, PROOF_BYTES), lt(sub(hints.length, FIXED_HINTS), 256))
        }
        if (!holds) revert InvalidProof(1);
        // (2) The sign of Γ. That its coordinates are below p and on the curve is checked by P256VERIFY.
        uint256 gammaX;
        uint256 c;
        uint256 s;
        assembly ("memory-safe") {
            gammaX := calldataload(add(proof.offset, 1))
            c := shr(128, calldataload(add(proof.offset, 33)))
            s := calldataload(add(proof.offset, 49))
            holds := eq(byte(0, calldataload(proof.offset)), add(2, and(calldataload(add(hints.offset, 0x20)), 1)))
        }
        if (!holds) revert InvalidProof(2);

        uint256 hX = _encodeToCurve(x, y, alpha, hints);
        if (_challenge(x, y, hX, proof, hints) != c) revert InvalidProof(5);
        _checkPoints(x, y, gammaX, hX, c, s, hints);
        assembly ("memory-safe") {
            mstore(0, shl(240, 0x0103))
            mstore(0x20, 0)
            calldatacopy(2, proof.offset, 33)
            if iszero(staticcall(gas(), 2, 0, 36, 0, 0x20)) { revert(0, 0) }
            beta := mload(0)
        }
        _checkSums(hints);
    }

    /// @dev Try-and-increment (RFC 9381, section 5.4.1.1): abscissa of H. Its ordinate is the even one.
    function _encodeToCurve(uint256 x, uint256 y, bytes memory alpha, uint256[] calldata hints)
        private
        view
        returns (uint256 hX)
    {
        // (3) H has the even ordinate. That it is on the curve is checked by P256VERIFY.
        if (_at(hints, H_Y) & 1 != 0) revert InvalidProof(3);
        uint256 message;
        uint256 end;
        assembly ("memory-safe") {
            message := mload(0x40)
            mstore(message, shl(232, or(0x010102, and(y, 1))))
            mstore(add(message, 3), x)
            mcopy(add(message, 35), add(alpha, 0x20), mload(alpha))
            end := add(message, add(37, mload(alpha)))
            mstore8(sub(end, 1), 0)
            mstore(0x40, end)
        }
        for (uint256 place = FIXED_HINTS; ; ) {
            assembly ("memory-safe") {
                mstore8(sub(end, 2), sub(place, FIXED_HINTS))
                if iszero(staticcall(gas(), 2, message, sub(end, message), 0, 0x20)) { revert(0, 0) }
                hX := mload(0)
            }
            if (place == hints.length) return hX;
            // (4) A skipped counter is no abscissa: either too large, or -f(x) is a square, and then f(x) is none.
            if (!_isWitness(_at(hints, place), hX)) revert InvalidProof(4);
            unchecked {
                ++place;
            }
        }
    }

    /// @dev Whether the witness is the even root of -f(hX), or zero where hX is no field element.
    function _isWitness(uint256 witness, uint256 hX) private pure returns (bool holds) {
        uint256 p = _once(P);
        assembly ("memory-safe") {
            let cubic := addmod(mulmod(addmod(mulmod(hX, hX, p), sub(p, 3), p), hX, p), B, p)
            holds := iszero(or(and(witness, 1), addmod(mulmod(witness, witness, p), cubic, p)))
            holds := and(holds, lt(witness, p))
            if iszero(lt(hX, p)) { holds := iszero(witness) }
        }
    }

    /// @dev (5) c is the hash of all points (RFC 9381, section 5.4.3).
    function _challenge(uint256 x, uint256 y, uint256 hX, bytes calldata proof, uint256[] calldata hints)
        private
        view
        returns (uint256 challenge)
    {
        assembly ("memory-safe") {
            // Every word lands on what the one before it spilt past its own end.
            let message := mload(0x40)
            mstore(message, shl(232, or(0x010202, and(y, 1))))
            mstore(add(message, 3), x)
            mstore8(add(message, 35), 2)
            mstore(add(message, 36), hX)
            calldatacopy(add(message, 68), proof.offset, 33)
            mstore8(add(message, 101), add(2, and(calldataload(add(hints.offset, 0x60)), 1)))
            mstore(add(message, 102), calldataload(add(hints.offset, 0x40)))
            mstore8(add(message, 134), add(2, and(calldataload(add(hints.offset, 0xa0)), 1)))
            mstore(add(message, 135), calldataload(add(hints.offset, 0x80)))
            mstore8(add(message, 167), 0)
            if iszero(staticcall(gas(), 2, message, 168, 0, 0x20)) { revert(0, 0) }
            challenge := shr(128, mload(0))
        }
    }

    /// @dev Checks the abscissas of U, C, D and E, and through the precompile that Y, H and Γ are points.
    function _checkPoints(
        uint256 x,
        uint256 y,
        uint256 gammaX,
        uint256 hX,
        uint256 c,
        uint256 s,
        uint256[] calldata hints
    ) private view {
        uint256 n = _once(N);
        uint256 t;
        unchecked {
            t = c * c; // c has 128 bits
        }
        // (6) s is canonical. One inverse of c·s serves for both; it exists, so neither is zero.
        uint256 inverseOfC = _once(_inverseOfC(c, s, _at(hints, INVERSE), n));
        // (7) U = sG - cY
        checkAbscissa(_at(hints, U_X), s, n - inverseOfC, x, y, n, 7);
        // (8) C = tG + cΓ
        checkAbscissa(_at(hints, C_X), t, inverseOfC, gammaX, _at(hints, GAMMA_Y), n, 8);
        // (9) D = tG + sH
        checkAbscissa(_at(hints, D_X), t, _product(c, _at(hints, INVERSE), n), hX, _at(hints, H_Y), n, 9);
        // (10) E = (t - s - 1)G + c(Γ + Y)
        (x, y) = _add(gammaX, _at(hints, GAMMA_Y), x, y, _at(hints, SLOPE));
        assembly ("memory-safe") {
            t := addmod(t, sub(sub(n, s), 1), n)
        }
        checkAbscissa(_at(hints, E_X), t, inverseOfC, x, y, n, 10);
    }

    /// @dev The inverse of c, from that of c·s.
    function _inverseOfC(uint256 c, uint256 s, uint256 inverse, uint256 n) private pure returns (uint256 inverseOfC) {
        bool holds;
        assembly ("memory-safe") {
            inverseOfC := mulmod(s, inverse, n)
            holds := and(and(lt(s, n), lt(inverse, n)), eq(mulmod(c, inverseOfC, n), 1))
        }
        if (!holds) revert InvalidProof(6);
    }

    function _product(uint256 first, uint256 second, uint256 n) private pure returns (uint256 product) {
        assembly ("memory-safe") {
            product := mulmod(first, second, n)
        }
    }

    /// @dev (11) Γ + Y by the hinted slope of their chord.
    function _add(uint256 gammaX, uint256 gammaY, uint256 x, uint256 y, uint256 slope)
        private
        pure
        returns (uint256 sumX, uint256 sumY)
    {
        uint256 p = _once(P);
        bool holds;
        assembly ("memory-safe") {
            let run := addmod(x, sub(p, gammaX), p)
            let rise := addmod(y, sub(p, gammaY), p)
            holds := and(and(lt(slope, p), iszero(iszero(run))), eq(mulmod(slope, run, p), rise))
            sumX := addmod(mulmod(slope, slope, p), sub(p, addmod(gammaX, x, p)), p)
        }
        if (!holds) revert InvalidProof(11);
        sumX = _once(sumX);
        assembly ("memory-safe") {
            sumY := addmod(mulmod(slope, addmod(gammaX, sub(p, sumX), p), p), sub(p, gammaY), p)
        }
    }

    /// @dev Reverts unless factor·G + (1 / inverse)·Q has this abscissa. P256VERIFY(h, r, v, Q) compares (h/v)G +
    /// (r/v)Q with r modulo n; from p - n on and below n an abscissa equals its residue.
    function checkAbscissa(
        uint256 abscissa,
        uint256 factor,
        uint256 inverse,
        uint256 x,
        uint256 y,
        uint256 n,
        uint256 check
    ) internal view {
        bool holds;
        assembly ("memory-safe") {
            let free := mload(0x40)
            let v := mulmod(abscissa, inverse, n)
            mstore(free, mulmod(factor, v, n))
            mstore(add(free, 0x20), abscissa)
            mstore(add(free, 0x40), v)
            mstore(add(free, 0x60), x)
            mstore(add(free, 0x80), y)
            // A failed check returns nothing, as does a chain without the precompile, and leaves the zero.
            mstore(0, 0)
            holds := staticcall(gas(), 0x100, free, 0xa0, 0, 0x20)
            holds := and(and(holds, eq(mload(0), 1)), and(lt(abscissa, n), gt(abscissa, LAST_AMBIGUOUS)))
        }
        if (!holds) revert InvalidProof(check);
    }

    /// @dev Ties U and V, signs and all, to C, D and E.
    function _checkSums(uint256[] calldata hints) private pure {
        uint256 p = _once(P);
        // (12) U and V are points, neither ±G (for -G the other's sign would be free), and not each other's opposite.
        // For U and V themselves the denominator is 1, which the check returns.
        uint256 one = _areFitPoints(_at(hints, U_X), _at(hints, U_Y), _at(hints, V_X), _at(hints, V_Y), p);
        if (one == 0) revert InvalidProof(12);
        // (13) V = ±C ± D
        if (!_areCollinear(_at(hints, C_X), _at(hints, D_X), _at(hints, V_X), one, p)) revert InvalidProof(13);
        // (14) U + V + G = ±D ± E
        (uint256 numerator, uint256 denominator) = _sumWithGenerator(hints, p);
        if (denominator == 0) revert InvalidProof(14);
        if (!_areCollinear(_at(hints, D_X), _at(hints, E_X), numerator, denominator, p)) revert InvalidProof(14);
    }

    /// @dev 1 if U and V are as (12) says, else 0.
    function _areFitPoints(uint256 uX, uint256 uY, uint256 vX, uint256 vY, uint256 p)
        private
        pure
        returns (uint256 fit)
    {
        uint256 b = _once(B);
        assembly ("memory-safe") {
            fit := and(and(lt(uX, p), lt(uY, p)), and(lt(vX, p), lt(vY, p)))
            fit := and(fit, iszero(or(or(eq(uX, GX), eq(vX, GX)), eq(uX, vX))))
            let cubic := addmod(mulmod(addmod(mulmod(uX, uX, p), sub(p, 3), p), uX, p), b, p)
            fit := and(fit, eq(cubic, mulmod(uY, uY, p)))
            cubic := addmod(mulmod(addmod(mulmod(vX, vX, p), sub(p, 3), p), vX, p), b, p)
            fit := and(fit, eq(cubic, mulmod(vY, vY, p)))
        }
    }

    /// @dev Abscissa of U + V + G as a fraction, by two chord additions; the denominator is zero if a chord is
    /// vertical or a tangent.
    function _sumWithGenerator(uint256[] calldata hints, uint256 p)
        private
        pure
        returns (uint256 numerator, uint256 denominator)
    {
        (uint256 x, uint256 y, uint256 square, uint256 cube) =
            _chord(_at(hints, U_X), _at(hints, U_Y), _at(hints, V_X), _at(hints, V_Y), p);
        uint256 run;
        uint256 rise;
        assembly ("memory-safe") {
            rise := addmod(mulmod(GY, cube, p), sub(p, y), p)
            run := addmod(mulmod(GX, square, p), sub(p, x), p)
        }
        run = _once(run);
        assembly ("memory-safe") {
            numerator := addmod(addmod(x, x, p), run, p)
            run := mulmod(run, run, p)
            denominator := mulmod(run, square, p)
            numerator := addmod(mulmod(rise, rise, p), sub(p, mulmod(run, numerator, p)), p)
        }
    }

    /// @dev U + V = (x / square, y / cube), where run² = square and run³ = cube for the run of their chord.
    function _chord(uint256 uX, uint256 uY, uint256 vX, uint256 vY, uint256 p)
        private
        pure
        returns (uint256 x, uint256 y, uint256 square, uint256 cube)
    {
        uint256 run;
        uint256 rise;
        assembly ("memory-safe") {
            run := addmod(vX, sub(p, uX), p)
            rise := addmod(vY, sub(p, uY), p)
        }
        run = _once(run);
        rise = _once(rise);
        assembly ("memory-safe") {
            square := mulmod(run, run, p)
            cube := mulmod(square, run, p)
            x := addmod(mulmod(rise, rise, p), sub(p, mulmod(addmod(uX, vX, p), square, p)), p)
        }
        (x, square) = (_once(x), _once(square));
        assembly ("memory-safe") {
            y := addmod(mulmod(rise, addmod(mulmod(uX, square, p), sub(p, x), p), p), sub(p, mulmod(uY, cube, p)), p)
        }
        (y, cube) = (_once(y), _once(cube));
    }

    /// @dev Semaev's S3(x, y, z) = (x-y)²z² + (xy-a)² - 4b(x+y) - 2((x+y)(xy+a) + 2b)z for z = numerator / denominator,
    /// with what is subtracted on the other side.
    function _areCollinear(uint256 x, uint256 y, uint256 numerator, uint256 denominator, uint256 p)
        private
        pure
        returns (bool vanishes)
    {
        assembly ("memory-safe") {
            let left := mulmod(addmod(x, sub(p, y), p), numerator, p)
            left := mulmod(left, left, p)
            let sum := addmod(x, y, p)
            let product := mulmod(x, y, p)
            let right := mulmod(addmod(product, 3, p), denominator, p)
            left := addmod(left, mulmod(right, right, p), p)
            right := addmod(mulmod(sum, addmod(product, sub(p, 3), p), p), TWICE_B, p)
            sum := mulmod(mulmod(sum, TWICE_B, p), denominator, p)
            right := addmod(mulmod(right, numerator, p), sum, p)
            vanishes := eq(left, mulmod(addmod(right, right, p), denominator, p))
        }
    }

    /// @dev The value, by way of memory that the compiler must take for overwritten. What it knows it computes again
    /// wherever it is used: the modulus by eight instructions each time, a chord's rise and run from the calldata on.
    /// Half of the arithmetic's gas went there.
    function _once(uint256 value) private pure returns (uint256 same) {
        assembly ("memory-safe") {
            mstore(0x20, value)
            calldatacopy(0, 0, 0x20)
            same := mload(0x20)
        }
    }

    /// @dev A hint whose place was checked against the array's length in (1).
    function _at(uint256[] calldata hints, uint256 place) private pure returns (uint256 hint) {
        assembly ("memory-safe") {
            hint := calldataload(add(hints.offset, shl(5, place)))
        }
    }
}
