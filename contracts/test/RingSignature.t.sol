// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {RingSignature} from "../libraries/RingSignature.sol";
import {HarnessTest} from "./support/HarnessTest.sol";

/// @dev Of RingHarness.
interface IRingSignature {
    function verify(
        bytes calldata ring,
        bytes32 scope,
        bytes32 message,
        bytes calldata signature,
        uint256[] calldata hints
    ) external view returns (uint256 spent);
}

/// @notice A signature by the second of three keys; tests/contracts signs by others and compares with Python.
contract RingSignatureTest is HarnessTest {
    struct Vector {
        bytes32 scope;
        bytes32 message;
        bytes ring;
        bytes signature;
        uint256[] hints;
    }

    IRingSignature private harness;

    function setUp() public {
        harness = IRingSignature(deployed("RingHarness.sol:RingHarness"));
    }

    function test_aSignatureHolds() public view {
        _verify(_vector());
    }

    function testFuzz_noBitOfASignatureCanBeChanged(uint256 bit) public {
        Vector memory vector = _vector();
        bit = bound(bit, 0, 8 * vector.signature.length - 1);
        vector.signature[bit / 8] ^= bytes1(uint8(1 << bit % 8));
        vm.expectPartialRevert(RingSignature.InvalidSignature.selector);
        _verify(vector);
    }

    function testFuzz_noBitOfAHintCanBeChanged(uint256 bit) public {
        Vector memory vector = _vector();
        bit = bound(bit, 0, 256 * vector.hints.length - 1);
        vector.hints[bit / 256] ^= 1 << bit % 256;
        vm.expectPartialRevert(RingSignature.InvalidSignature.selector);
        _verify(vector);
    }

    function testFuzz_noBitOfARingCanBeChanged(uint256 bit) public {
        Vector memory vector = _vector();
        bit = bound(bit, 0, 8 * vector.ring.length - 1);
        vector.ring[bit / 8] ^= bytes1(uint8(1 << bit % 8));
        vm.expectPartialRevert(RingSignature.InvalidSignature.selector);
        _verify(vector);
    }

    function testFuzz_aSignatureIsReplayedNowhere(bytes32 scope, bytes32 message) public {
        Vector memory vector = _vector();
        vm.assume(scope != vector.scope || message != vector.message);
        (vector.scope, vector.message) = (scope, message);
        vm.expectPartialRevert(RingSignature.InvalidSignature.selector);
        _verify(vector);
    }

    function testFuzz_otherLengthsAreRefused(uint8 ring, uint8 signature, uint8 hints) public {
        Vector memory vector = _vector();
        vm.assume(ring != vector.ring.length || signature != vector.signature.length || hints != vector.hints.length);
        vector.ring = _cut(vector.ring, ring);
        vector.signature = _cut(vector.signature, signature);
        uint256[] memory given = new uint256[](hints);
        for (uint256 i = 0; i < given.length && i < vector.hints.length; ++i) {
            given[i] = vector.hints[i];
        }
        vector.hints = given;
        vm.expectRevert(abi.encodeWithSelector(RingSignature.InvalidSignature.selector, 1));
        _verify(vector);
    }

    /// @dev The same bytes, cut off or with zeros behind.
    function _cut(bytes memory data, uint256 length) private pure returns (bytes memory cut) {
        cut = new bytes(length);
        for (uint256 i = 0; i < length && i < data.length; ++i) {
            cut[i] = data[i];
        }
    }

    function _verify(Vector memory vector) private view {
        harness.verify(vector.ring, vector.scope, vector.message, vector.signature, vector.hints);
    }

    function _vector() private pure returns (Vector memory vector) {
        vector.scope = 0xb20422d830e14cfff98ff503afa0dca37ea0f541c3eed5fec8c01e2db47822f6;
        vector.message = 0xc19a0b44f5d543d428a5a0c67c3da55bf2a4acc158a93bb143300cec024e0b8a;
        vector.ring =
            hex"029811208574beb995defe39a4be161cc46abe41284b6dc3986aad588d5b59037f"
            hex"02c7c67305e143f25c3ef1f0c641890771d1d90dca979ec106043e8c8b22ef97ae"
            hex"03787cb26354b20cab089e9e2e6e40b822cfefff80f4fc3e2fd26370fdbea6203a";
        vector.signature =
            hex"027c55b6f21a86dc29d4cc986cc74dc294bf3644d2085c951d1143b23fc6cf5bbb"
            hex"3cb9d65a4c5ade3aa7791ea3bd3d48f5720cceb6fea8c9441956ccf4a267a2f3"
            hex"d3a32f627eb19831e6912487e7227e1b2c3488e9d2037c8b31da6f779371be30"
            hex"d7e85c00526b2bffef8ad3c93010d8eb9d928e6f205737b29d3418e2bb006567"
            hex"41cb4ab7c398bd3ba922b2658c25bef4b31c9892722e8ab5cb6de1cdc4ffa1cf";
        vector.hints = new uint256[](15);
        vector.hints[0] = 0xed9ec602ce116257e0b90affcdf4bf096aeeff66916ceb9a15c8ea68c72ae657;
        vector.hints[1] = 0xb7d37013e6115b18b159e7baef048b206107d12562e0a7406726fef380882041;
        vector.hints[2] = 0x0fff4563e838d5f53d1a46376f813467a27df710f3aa5320029969fb18cc33dc;
        vector.hints[3] = 0xbf1af7eb5c244d0a0611324425ee212c8930ceec7a223b985e5efc9bd8a6ffae;
        vector.hints[4] = 0x5b02256c4f078b07a38a50984835746b40a8bd43447329de1679470a41df6d7d;
        vector.hints[5] = 0x644575cb4374ac30ec5883bd6b67e9d3d997f1c20703925a60b12df8b843d337;
        vector.hints[6] = 0x91da8792098dc007b196be82a6641cf059fe81c83da68a2fc6ef32304a4bfc8c;
        vector.hints[7] = 0x27176a99969b3bcfc64cd35af6c5ae1826986511de86d1408d8b691bfac8b306;
        vector.hints[8] = 0xe1737aecfd67781ecc5187a87deab9e1d3f2656195500be3d7f1490745537d29;
        vector.hints[9] = 0x637cf5742af52055ae22fb9cd002b7ffc37f44f8f91639e5c4fb7f80f803d2f1;
        vector.hints[10] = 0x1b4d8f9ddae5ee7de3152c2e46c5869993feb50c3b669c68ad06e21ac670c2a7;
        vector.hints[11] = 0x04d0bc7d0b5771e80a328bb8bc54e10283acd3f321a532134356dc48c560db4a;
        vector.hints[12] = 0xeb5cf199ed4f785df2c3900a4ef9bfd7a03e5f9ccc93f4a11e6290876b69d09f;
        vector.hints[13] = 0x34f19e7667d423799442973359bf12e8ee7eb63b52f4875ed0ecc6ac834ca189;
        vector.hints[14] = 0xb18cc6aaeb9d188b809c422c79b2b15cba41f859fd9f3ff2f05151d8af3a2d5e;
    }
}
