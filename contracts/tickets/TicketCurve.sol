// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title BLS12-381 by the precompiles of EIP-2537: names as points, and batches of signatures
/// @dev Points are in the precompiles' form: a coordinate is 64 bytes, 16 of them zero. MSM and pairing refuse points
///      outside the subgroup; nothing here has to.
library TicketCurve {
    uint256 internal constant G1_BYTES = 128;
    uint256 internal constant G2_BYTES = 256;
    uint256 private constant TERM_BYTES = 160;

    address private constant MODEXP = address(0x05);
    address private constant G1_ADD = address(0x0b);
    address private constant G1_MSM = address(0x0c);
    address private constant G2_MSM = address(0x0e);
    address private constant PAIRING = address(0x0f);
    address private constant MAP_TO_G1 = address(0x10);

    /// @dev DST_prime of RFC 9380: the tag and its length.
    bytes private constant TAG = "TROTH-TICKET-V1-BLS12381G1_XMD:SHA-256_SSWU_RO_\x2f";
    bytes private constant FIELD =
        hex"1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab";
    /// @dev The generator of G2, negated.
    bytes private constant MINUS_G2 =
        hex"00000000000000000000000000000000024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d177"
        hex"0bac0326a805bbefd48056c8c121bdb80000000000000000000000000000000013e02b6052719f607dacd3a088274f65"
        hex"596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e00000000000000000000000000000000"
        hex"0d1b3cc2c7027888be51d9ef691d77bcb679afda66c73f17f9ee3837a55024f78c71363275a75d75d86bab79f74782aa"
        hex"0000000000000000000000000000000013fa4d4a0ad8b1ce186ed5061789213d993923066dddaf1040bc3ff59f825c78"
        hex"df74f2d75467e25e0f55f8a00fa030ed";

    /// @notice The precompile did not answer: the chain lacks EIP-2537, or the input was no point.
    error CurveFailed(address precompile);

    /// @notice Terms of one sum, coefficient times point, as G1MSM reads them.
    struct Sum {
        bytes terms;
        uint256 length;
    }

    /// @notice Room for so many terms.
    function sumOf(uint256 count) internal pure returns (Sum memory sum) {
        sum.terms = new bytes(count * TERM_BYTES);
    }

    /// @notice The point that a name hashes to: RFC 9380, BLS12381G1_XMD:SHA-256_SSWU_RO_, over the 20 bytes.
    function pointOf(address name) internal view returns (bytes memory point) {
        bytes32 base = sha256(abi.encodePacked(bytes32(0), bytes32(0), name, uint16(128), uint8(0), TAG));
        bytes32 first = sha256(abi.encodePacked(base, uint8(1), TAG));
        bytes32 second = sha256(abi.encodePacked(base ^ first, uint8(2), TAG));
        bytes32 third = sha256(abi.encodePacked(base ^ second, uint8(3), TAG));
        bytes32 fourth = sha256(abi.encodePacked(base ^ third, uint8(4), TAG));
        return _call(G1_ADD, bytes.concat(_mapped(first, second), _mapped(third, fourth)), G1_BYTES);
    }

    /// @notice A name's point times a scalar.
    function blinded(address name, uint256 blinding) internal view returns (bytes memory) {
        return _call(G1_MSM, abi.encodePacked(pointOf(name), blinding), G1_BYTES);
    }

    /// @notice Whether this is a point of G2's subgroup and not zero.
    function isKey(bytes calldata key) internal view returns (bool) {
        if (key.length != G2_BYTES) return false;
        (bool done, bytes memory same) = G2_MSM.staticcall(abi.encodePacked(key, uint256(1)));
        return done && same.length == G2_BYTES && keccak256(same) != keccak256(new bytes(G2_BYTES));
    }

    /// @notice Appends coefficient times a point of 96 bytes, x ‖ y, that lies in the calldata.
    function addSignature(Sum memory sum, bytes calldata signature, uint256 coefficient) internal pure {
        assembly ("memory-safe") {
            let at := add(add(mload(sum), 0x20), mload(add(sum, 0x20)))
            calldatacopy(add(at, 16), signature.offset, 48)
            calldatacopy(add(at, 80), add(signature.offset, 48), 48)
            mstore(add(at, 128), coefficient)
        }
        sum.length += TERM_BYTES;
    }

    /// @notice Appends coefficient times a name's point. What it takes to compute that is not kept in memory: a batch of
    ///         a hundred would pay for it by the square.
    function addName(Sum memory sum, address name, uint256 coefficient) internal view {
        uint256 free;
        assembly ("memory-safe") {
            free := mload(0x40)
        }
        bytes memory point = pointOf(name);
        assembly ("memory-safe") {
            let at := add(add(mload(sum), 0x20), mload(add(sum, 0x20)))
            mcopy(at, add(point, 0x20), 128)
            mstore(add(at, 128), coefficient)
            mstore(0x40, free)
        }
        sum.length += TERM_BYTES;
    }

    /// @notice Whether e(signatures, -G2) · ∏ e(names of a key, key) = 1.
    /// @param keys in the order of `names`; one whose sum has no term is left out
    function isSigned(Sum memory signatures, Sum[] memory names, bytes[] memory keys) internal view returns (bool) {
        bytes memory pairs = bytes.concat(_added(signatures), MINUS_G2);
        for (uint256 i = 0; i < names.length; ++i) {
            if (names[i].length != 0) pairs = bytes.concat(pairs, _added(names[i]), keys[i]);
        }
        (bool done, bytes memory answer) = PAIRING.staticcall(pairs);
        return done && answer.length == 32 && bytes32(answer) == bytes32(uint256(1));
    }

    function _added(Sum memory sum) private view returns (bytes memory) {
        bytes memory terms = sum.terms;
        uint256 length = sum.length;
        assembly ("memory-safe") {
            mstore(terms, length)
        }
        return _call(G1_MSM, terms, G1_BYTES);
    }

    /// @dev 64 uniform bytes, modulo the field's prime, mapped to a point (RFC 9380 section 5.2, m = 1, L = 64).
    function _mapped(bytes32 high, bytes32 low) private view returns (bytes memory) {
        bytes memory input = abi.encodePacked(uint256(64), uint256(1), uint256(48), high, low, uint8(1), FIELD);
        return _call(MAP_TO_G1, bytes.concat(bytes16(0), _call(MODEXP, input, 48)), G1_BYTES);
    }

    function _call(address precompile, bytes memory input, uint256 length) private view returns (bytes memory output) {
        output = new bytes(length);
        bool done;
        assembly ("memory-safe") {
            done := staticcall(gas(), precompile, add(input, 0x20), mload(input), add(output, 0x20), length)
            done := and(done, eq(returndatasize(), length))
        }
        if (!done) revert CurveFailed(precompile);
    }
}
