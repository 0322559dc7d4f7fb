// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

/// @title ECVRF-P256-SHA256-TAI (RFC 9381, suite 0x01) over the P256VERIFY precompile (EIP-7951)
/// @notice A proof (Γ, c, s) of key Y over alpha holds if c is the hash of Y, H, Γ, U = sG - cY and V = sH - cΓ, where H
/// is alpha hashed to the curve. P256VERIFY only tells whether aG + bQ has a claimed abscissa, so the prover hands in
/// points and abscissas as hints, and with t = c² mod n the checks are:
///
///  - U, C = cΓ + tG, D = sH + tG and E = c(Γ + Y) + (t - s - 1)G have the hinted abscissas (four calls);
///  - V = D - C, and U + V + G = D - E, each up to signs, by Semaev's third summation polynomial, which vanishes on three
///    abscissas exactly if signs exist with which the points add up to zero.
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
        return x < P && y < P && mulmod(y, y, P) == _cubic(x);
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
        return verify(x, y, abi.encodePacked(alpha), proof, hints);
    }

    /// @notice The same for an input of any length.
    function verify(uint256 x, uint256 y, bytes memory alpha, bytes calldata proof, uint256[] calldata hints)
        internal
        view
        returns (bytes32 beta)
    {
        // (1) Lengths, and one hint for each skipped counter.
        if (proof.length != PROOF_BYTES || hints.length < FIXED_HINTS || hints.length > FIXED_HINTS + 255) {
            revert InvalidProof(1);
        }
        // (2) The canonical encodings of Γ and s. That Γ is on the curve is checked by P256VERIFY.
        uint256 gammaX = uint256(bytes32(proof[1:33]));
        uint256 s = uint256(bytes32(proof[49:81]));
        if (uint8(proof[0]) != 2 + (_at(hints, GAMMA_Y) & 1) || gammaX >= P || s >= N) revert InvalidProof(2);

        uint256 hX = _encodeToCurve(x, y, alpha, hints);
        _checkChallenge(x, y, hX, proof, hints);
        _checkPoints(x, y, gammaX, hX, uint128(bytes16(proof[33:49])), s, hints);
        _checkSums(hints);
        assembly ("memory-safe") {
            mstore(0, shl(240, 0x0103))
            mstore(0x20, 0)
            calldatacopy(2, proof.offset, 33)
            if iszero(staticcall(gas(), 2, 0, 36, 0, 0x20)) { revert(0, 0) }
            beta := mload(0)
        }
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
        unchecked {
        uint256 skipped = hints.length - FIXED_HINTS;
        for (uint256 counter = 0; ; ++counter) {
            assembly ("memory-safe") {
                mstore8(sub(end, 2), counter)
                if iszero(staticcall(gas(), 2, message, sub(end, message), 0, 0x20)) { revert(0, 0) }
                hX := mload(0)
            }
            if (counter == skipped) return hX;
            // (4) A skipped counter is no abscissa: either too large, or -f(x) is a square, and then f(x) is none.
            uint256 witness = _at(hints, FIXED_HINTS + counter);
            if (hX >= P) {
                if (witness != 0) revert InvalidProof(4);
            } else if (witness >= P || witness & 1 != 0 || addmod(mulmod(witness, witness, P), _cubic(hX), P) != 0) {
                revert InvalidProof(4);
            }
        }
        }
    }

    /// @dev (5) c is the hash of all points (RFC 9381, section 5.4.3).
    function _checkChallenge(uint256 x, uint256 y, uint256 hX, bytes calldata proof, uint256[] calldata hints)
        private
        view
    {
        bytes32 challenge;
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
            challenge := mload(0)
        }
        if (bytes16(challenge) != bytes16(proof[33:49])) revert InvalidProof(5);
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
        uint256 inverse = _at(hints, INVERSE);
        unchecked {
        // (6) One inverse of c·s serves for both; it exists, so neither is zero.
        if (inverse >= N || mulmod(mulmod(c, s, N), inverse, N) != 1) revert InvalidProof(6);
        uint256 inverseOfC = mulmod(s, inverse, N);
        uint256 gammaY = _at(hints, GAMMA_Y);
        uint256 t = c * c;
        // (7) U = sG - cY
        checkAbscissa(_at(hints, U_X), s, N - inverseOfC, x, y, 7);
        // (8) C = tG + cΓ
        checkAbscissa(_at(hints, C_X), t, inverseOfC, gammaX, gammaY, 8);
        // (9) D = tG + sH
        checkAbscissa(_at(hints, D_X), t, mulmod(c, inverse, N), hX, _at(hints, H_Y), 9);
        // (10) E = (t - s - 1)G + c(Γ + Y)
        (uint256 sumX, uint256 sumY) = _add(gammaX, gammaY, x, y, _at(hints, SLOPE));
        checkAbscissa(_at(hints, E_X), addmod(addmod(t, N - s, N), N - 1, N), inverseOfC, sumX, sumY, 10);
        }
    }

    /// @dev (11) Γ + Y by the hinted slope of their chord.
    function _add(uint256 gammaX, uint256 gammaY, uint256 x, uint256 y, uint256 slope)
        private
        pure
        returns (uint256 sumX, uint256 sumY)
    {
        unchecked {
        uint256 run = addmod(x, P - gammaX, P);
        if (run == 0 || slope >= P || mulmod(slope, run, P) != addmod(y, P - gammaY, P)) revert InvalidProof(11);
        sumX = addmod(mulmod(slope, slope, P), addmod(P - gammaX, P - x, P), P);
        sumY = addmod(mulmod(slope, addmod(gammaX, P - sumX, P), P), P - gammaY, P);
        }
    }

    /// @dev Reverts unless factor·G + (1 / inverse)·Q has this abscissa. P256VERIFY(h, r, v, Q) compares (h/v)G + (r/v)Q with r
    /// modulo n; from p - n on and below n an abscissa equals its residue.
    function checkAbscissa(
        uint256 abscissa,
        uint256 factor,
        uint256 inverse,
        uint256 x,
        uint256 y,
        uint256 check
    ) internal view {
        bool holds = abscissa >= P - N && abscissa < N;
        assembly ("memory-safe") {
            let free := mload(0x40)
            let v := mulmod(abscissa, inverse, N)
            mstore(free, mulmod(factor, v, N))
            mstore(add(free, 0x20), abscissa)
            mstore(add(free, 0x40), v)
            mstore(add(free, 0x60), x)
            mstore(add(free, 0x80), y)
            // A failed check returns nothing, as does a chain without the precompile, and leaves the zero.
            mstore(0, 0)
            let answered := staticcall(gas(), 0x100, free, 0xa0, 0, 0x20)
            holds := and(holds, and(answered, eq(mload(0), 1)))
        }
        if (!holds) revert InvalidProof(check);
    }

    /// @dev Ties U and V, signs and all, to C, D and E.
    function _checkSums(uint256[] calldata hints) private pure {
        uint256 p = _modulus();
        // (12) U and V are points, neither ±G (for -G the other's sign would be free), and not each other's opposite.
        uint256 one = _areFitPoints(_at(hints, U_X), _at(hints, U_Y), _at(hints, V_X), _at(hints, V_Y), p);
        if (one == 0) revert InvalidProof(12);
        // (13) V = ±C ± D
        if (!_areCollinear(_at(hints, C_X), _at(hints, D_X), _at(hints, V_X), one, p)) revert InvalidProof(13);
        // (14) U + V + G = ±D ± E
        (uint256 numerator, uint256 denominator) =
            _sumWithGenerator(_at(hints, U_X), _at(hints, U_Y), _at(hints, V_X), _at(hints, V_Y), p);
        if (denominator == 0 || !_areCollinear(_at(hints, D_X), _at(hints, E_X), numerator, denominator, p)) {
            revert InvalidProof(14);
        }
    }

    /// @dev 1 if U and V are as (12) says, else 0.
    function _areFitPoints(uint256 uX, uint256 uY, uint256 vX, uint256 vY, uint256 p) private pure returns (uint256 fit) {
        assembly ("memory-safe") {
            fit := and(and(lt(uX, p), lt(uY, p)), and(lt(vX, p), lt(vY, p)))
            fit := and(fit, iszero(or(or(eq(uX, GX), eq(vX, GX)), eq(uX, vX))))
            let cubic := addmod(mulmod(addmod(mulmod(uX, uX, p), sub(p, 3), p), uX, p), B, p)
            fit := and(fit, eq(cubic, mulmod(uY, uY, p)))
            cubic := addmod(mulmod(addmod(mulmod(vX, vX, p), sub(p, 3), p), vX, p), B, p)
            fit := and(fit, eq(cubic, mulmod(vY, vY, p)))
        }
    }

    /// @dev Abscissa of U + V + G as a fraction, by two chord additions; denominator zero if a chord is vertical or a tangent.
    function _sumWithGenerator(uint256 uX, uint256 uY, uint256 vX, uint256 vY, uint256 p)
        private
        pure
        returns (uint256 numerator, uint256 denominator)
    {
        assembly ("memory-safe") {
            // U + V = (sumX / run², sumY / run³)
            let run := addmod(vX, sub(p, uX), p)
            let rise := addmod(vY, sub(p, uY), p)
            let square := mulmod(run, run, p)
            let cube := mulmod(square, run, p)
            let sumX := addmod(mulmod(rise, rise, p), sub(p, mulmod(addmod(uX, vX, p), square, p)), p)
            let sumY := mulmod(rise, addmod(mulmod(uX, square, p), sub(p, sumX), p), p)
            sumY := addmod(sumY, sub(p, mulmod(uY, cube, p)), p)
            // and G in the same denominators
            rise := addmod(mulmod(GY, cube, p), sub(p, sumY), p)
            run := addmod(mulmod(GX, square, p), sub(p, sumX), p)
            let chord := mulmod(run, run, p)
            denominator := mulmod(chord, square, p)
            numerator := mulmod(chord, addmod(addmod(sumX, sumX, p), run, p), p)
            numerator := addmod(mulmod(rise, rise, p), sub(p, numerator), p)
        }
    }

    /// @dev Semaev's S3(x, y, z) = (x-y)²z² + (xy-a)² - 4b(x+y) - 2((x+y)(xy+a) + 2b)z for z = numerator / denominator, with
    /// what is subtracted on the other side.
    function _areCollinear(uint256 x, uint256 y, uint256 numerator, uint256 denominator, uint256 p)
        private
        pure
        returns (bool vanishes)
    {
        assembly ("memory-safe") {
            let sum := addmod(x, y, p)
            let product := mulmod(x, y, p)
            let left := mulmod(addmod(x, sub(p, y), p), numerator, p)
            let right := mulmod(addmod(product, 3, p), denominator, p)
            left := addmod(mulmod(left, left, p), mulmod(right, right, p), p)
            right := addmod(mulmod(sum, addmod(product, sub(p, 3), p), p), TWICE_B, p)
            right := addmod(mulmod(right, numerator, p), mulmod(mulmod(sum, TWICE_B, p), denominator, p), p)
            vanishes := eq(left, mulmod(addmod(right, right, p), denominator, p))
        }
    }

    /// @dev The curve's x³ - 3x + b.
    function _cubic(uint256 x) private pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := addmod(mulmod(addmod(mulmod(x, x, P), sub(P, 3), P), x, P), B, P)
        }
    }

    /// @dev P by way of memory that the compiler must take for overwritten. Where it knows the value, it spells it in eight
    /// instructions each time, which is most of what the arithmetic here would cost.
    function _modulus() private pure returns (uint256 p) {
        assembly ("memory-safe") {
            mstore(0x20, P)
            calldatacopy(0, 0, 0x20)
            p := mload(0x20)
        }
    }

    /// @dev First byte of a compressed point.
    function _prefix(uint256 y) private pure returns (uint8) {
        return uint8(2 + (y & 1));
    }

    /// @dev A hint whose place was checked against the array's length in (1).
    function _at(uint256[] calldata hints, uint256 place) private pure returns (uint256 hint) {
        assembly ("memory-safe") {
            hint := calldataload(add(hints.offset, shl(5, place)))
        }
    }
}
