// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Linkable ring signatures over secp256k1 (Liu, Wei and Wong, ACISP 2004), with tags by scope
/// @notice One of the ring's keys signed the message, and nobody learns which; two signatures of one key in one scope have
/// the same tag, so whoever counts them counts each tag once. `troth.protocol.rings` states the equations, signs, and
/// makes the hints.
/// @dev `ecrecover` multiplies: with r = the abscissa of P it gives the account of sG + cP. So L(i) takes one call, and
/// R(i) = s(i)H + c(i)I two, which check points that are handed in as hints; their sum follows by the addition formula.
library RingSignature {
    /// @notice The ring, the signature or a hint is not what it must be.
    /// @param check number of the check that failed, as marked in the source
    error InvalidSignature(uint256 check);

    /// @notice Bytes of a compressed key.
    uint256 internal constant KEY_BYTES = 33;
    /// @notice Bytes of tag and first challenge; each key adds a scalar of 32.
    uint256 internal constant FIXED_BYTES = 65;
    /// @notice Hints of each key: s(i)H and c(i)I, two words each, and the inverse of their abscissas' difference.
    uint256 internal constant HINTS = 5;
    uint256 internal constant FEWEST = 2;
    uint256 internal constant MOST = 64;

    uint256 private constant P = 0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f;
    uint256 private constant N = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
    /// @dev (P + 1) / 4: the power that is a square's root.
    uint256 private constant ROOT = 0x3fffffffffffffffffffffffffffffffffffffffffffffffffffffffbfffff0c;
    bytes32 private constant SCOPE_TAG = keccak256("troth/ring/scope/1");
    bytes32 private constant TRANSCRIPT_TAG = keccak256("troth/ring/transcript/1");

    /// @dev What all keys of a ring are multiplied with.
    struct Statement {
        bytes32 transcript;
        uint256 base;
        uint256 tagSign;
        uint256 tagX;
    }

    /// @notice Reverts unless one key of the ring signed; its tag is the signature's first 33 bytes.
    /// @param ring compressed keys, 33 bytes each, in ascending order
    /// @param scope where signers count once
    /// @param message what is signed
    /// @param signature tag (33 bytes), c(0), then s(i) for each key
    /// @param hints what `troth.protocol.rings.hints` returns
    function verify(
        bytes calldata ring,
        bytes32 scope,
        bytes32 message,
        bytes calldata signature,
        uint256[] calldata hints
    ) internal view {
        // (1) Lengths.
        uint256 count = ring.length / KEY_BYTES;
        if (
            count < FEWEST || count > MOST || ring.length != count * KEY_BYTES
                || signature.length != FIXED_BYTES + 32 * count || hints.length != HINTS * count
        ) revert InvalidSignature(1);
        // (2) A first challenge below the group's order, so that there is one form of each signature.
        uint256 first = uint256(bytes32(signature[33:65]));
        if (first == 0 || first >= N) revert InvalidSignature(2);
        _requireAscending(ring, count);
        Statement memory statement;
        (statement.tagSign, statement.tagX) = _compressed(signature, 0);
        statement.transcript =
            keccak256(abi.encodePacked(TRANSCRIPT_TAG, scope, message, keccak256(ring), signature[:33]));
        statement.base = hashToCurve(scope);
        uint256 c = first;
        for (uint256 i = 0; i < count; ++i) {
            uint256 s = uint256(bytes32(signature[FIXED_BYTES + 32 * i:]));
            c = _step(statement, ring[KEY_BYTES * i:], s, c, hints[HINTS * i:]);
        }
        // (10) The ring closes.
        if (c != first) revert InvalidSignature(10);
    }

    /// @dev The challenge after one key's.
    function _step(
        Statement memory statement,
        bytes calldata key,
        uint256 s,
        uint256 c,
        uint256[] calldata hints
    ) private pure returns (uint256 next) {
        // (5) A scalar between zero and the order.
        if (s == 0 || s >= N) revert InvalidSignature(5);
        (uint256 sign, uint256 x) = _compressed(key, 0);
        address left = _multiply(N - mulmod(s, x, N), sign, x, c);
        (uint256 rightX, uint256 rightY) = _right(statement, s, c, hints);
        next = uint256(keccak256(abi.encodePacked(statement.transcript, left, rightX, rightY))) % N;
        // (9) The key is a point, L(i) not the one at infinity, and the challenge not zero.
        if (left == address(0) || next == 0) revert InvalidSignature(9);
    }

    /// @dev (4) Ascending keys: each once, and one form of each ring.
    function _requireAscending(bytes calldata ring, uint256 count) private pure {
        (uint256 lastSign, uint256 lastX) = _compressed(ring, 0);
        for (uint256 i = 1; i < count; ++i) {
            (uint256 sign, uint256 x) = _compressed(ring, KEY_BYTES * i);
            if (sign < lastSign || (sign == lastSign && x <= lastX)) revert InvalidSignature(4);
            (lastSign, lastX) = (sign, x);
        }
    }

    /// @notice The abscissa of H: the first hash of tag, scope and counter that is one. Its ordinate is the even one.
    function hashToCurve(bytes32 scope) internal view returns (uint256 x) {
        for (uint256 counter = 0; counter < 256; ++counter) {
            x = uint256(keccak256(abi.encodePacked(SCOPE_TAG, scope, uint8(counter))));
            if (x < P && _isAbscissa(x)) return x;
        }
        revert InvalidSignature(11);
    }

    /// @dev s(i)H + c(i)I from its two hinted parts.
    function _right(Statement memory statement, uint256 s, uint256 c, uint256[] calldata parts)
        private
        pure
        returns (uint256 x, uint256 y)
    {
        (uint256 firstX, uint256 firstY, uint256 secondX, uint256 secondY) = (parts[0], parts[1], parts[2], parts[3]);
        // (6), (7) Both parts are those multiples, so that their coordinates are below P and on the curve.
        if (_multiply(0, 2, statement.base, s) != _accountOf(firstX, firstY)) revert InvalidSignature(6);
        if (_multiply(0, statement.tagSign, statement.tagX, c) != _accountOf(secondX, secondY)) {
            revert InvalidSignature(7);
        }
        unchecked {
            // (8) Neither each other nor opposites: the formula for two different abscissas holds.
            if (mulmod(addmod(secondX, P - firstX, P), parts[4], P) != 1) revert InvalidSignature(8);
            uint256 slope = mulmod(addmod(secondY, P - firstY, P), parts[4], P);
            x = addmod(mulmod(slope, slope, P), P - addmod(firstX, secondX, P), P);
            y = addmod(mulmod(slope, addmod(firstX, P - x, P), P), P - firstY, P);
        }
    }

    /// @dev A compressed point's first byte and abscissa. That it is on the curve is `ecrecover`'s to say.
    function _compressed(bytes calldata data, uint256 at) private pure returns (uint256 sign, uint256 x) {
        sign = uint8(data[at]);
        x = uint256(bytes32(data[at + 1:at + 33]));
        // (3) Its form; ecrecover takes no r of N and more.
        if (sign >> 1 != 1 || x == 0 || x >= N) revert InvalidSignature(3);
    }

    /// @dev The account of -(hash / x)G + cP, where P has abscissa x, or zero where there is no such point.
    function _multiply(uint256 hash, uint256 sign, uint256 x, uint256 c) private pure returns (address) {
        return ecrecover(bytes32(hash), uint8(25 + sign), bytes32(x), bytes32(mulmod(c, x, N)));
    }

    /// @dev Never zero for coordinates that anybody can find.
    function _accountOf(uint256 x, uint256 y) private pure returns (address account) {
        assembly ("memory-safe") {
            mstore(0, x)
            mstore(0x20, y)
            account := and(keccak256(0, 0x40), 0xffffffffffffffffffffffffffffffffffffffff)
        }
    }

    /// @dev Whether x³ + 7 is a square modulo P.
    function _isAbscissa(uint256 x) private view returns (bool holds) {
        uint256 square = addmod(mulmod(mulmod(x, x, P), x, P), 7, P);
        uint256 root;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, 0x20)
            mstore(add(free, 0x20), 0x20)
            mstore(add(free, 0x40), 0x20)
            mstore(add(free, 0x60), square)
            mstore(add(free, 0x80), ROOT)
            mstore(add(free, 0xa0), P)
            if iszero(staticcall(gas(), 5, free, 0xc0, 0, 0x20)) { revert(0, 0) }
            root := mload(0)
        }
        return mulmod(root, root, P) == square;
    }
}
