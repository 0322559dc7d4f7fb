// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {BlockHeader} from "../../market/libraries/BlockHeader.sol";
import {MockHistory} from "./support/CourtMocks.sol";
import {Headers} from "./support/Headers.sol";

/// @title Headers in RLP, to the letter
contract BlockHeaderTest is Test {
    bytes32 private constant RANDAO = keccak256("randao");
    address private constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;

    function parse(bytes calldata header) external pure returns (uint256, bytes32, bytes32) {
        return BlockHeader.parse(header);
    }

    function randaoOf(bytes calldata header) external pure returns (bytes32) {
        return BlockHeader.randaoOf(header);
    }

    function assertRefused(bytes memory header) private {
        vm.expectPartialRevert(BlockHeader.InvalidHeader.selector);
        this.parse(header);
    }

    function testFuzz_numberAndRandaoAreRead(uint64 number, bytes32 randao) public view {
        bytes memory header = Headers.build(number, randao);
        (uint256 read, bytes32 mixed, bytes32 hash) = this.parse(header);
        assertEq(read, number);
        assertEq(mixed, randao);
        assertEq(hash, keccak256(header));
        assertEq(this.randaoOf(header), randao);
    }

    /// @dev Mainnet's block 23,000,000 is not here; this is EIP-1559's shape with the fields of a fork to come behind
    ///      it.
    function test_fieldsOfLaterForksAreWalkedOver() public view {
        bytes memory fields = Headers.upToNonce(hex"80", 12_345, RANDAO);
        bytes memory later = bytes.concat(Headers.later(), Headers.word("a later fork's"), hex"8180", hex"00");
        (uint256 number, bytes32 randao,) = this.parse(Headers.list(bytes.concat(fields, later)));
        assertEq(number, 12_345);
        assertEq(randao, RANDAO);
        assertEq(this.randaoOf(Headers.list(bytes.concat(fields, later))), RANDAO);
        (number, randao,) = this.parse(Headers.list(fields));
        assertEq(randao, RANDAO);
    }

    function test_aDifficultyMeansThatThereIsNoBeacon() public {
        assertRefused(Headers.list(bytes.concat(Headers.upToNonce(hex"01", 5, RANDAO), Headers.later())));
    }

    function test_lengthsAreExact() public {
        bytes memory header = Headers.build(5, RANDAO);
        assertRefused("");
        assertRefused(hex"f9");
        assertRefused(bytes.concat(header, hex"00"));
        header[2] = bytes1(uint8(header[2]) - 1);
        assertRefused(header);
        bytes memory short = Headers.upToNonce(hex"80", 5, RANDAO);
        // Without the nonce's last byte its string runs over the end.
        assembly ("memory-safe") {
            mstore(short, sub(mload(short), 1))
        }
        assertRefused(Headers.list(short));
        // Without the nonce.
        assembly ("memory-safe") {
            mstore(short, sub(mload(short), 8))
        }
        assertRefused(Headers.list(short));
    }

    function test_onlyCanonicalEncodings() public {
        bytes memory fields = Headers.upToNonce(hex"80", 5, RANDAO);
        assertRefused(bytes.concat(hex"fa00", bytes2(uint16(fields.length)), fields));
        // A single byte in a string of its own, a long form for a short string, a leading zero of a length, a list.
        assertRefused(Headers.list(bytes.concat(fields, hex"8105")));
        assertRefused(Headers.list(bytes.concat(fields, hex"b801ff")));
        assertRefused(Headers.list(bytes.concat(fields, hex"b90038", new bytes(56))));
        assertRefused(Headers.list(bytes.concat(fields, hex"c0")));
        assertRefused(Headers.list(bytes.concat(fields, hex"ba000100", new bytes(256))));
        this.parse(Headers.list(bytes.concat(fields, hex"b838", new bytes(56))));
    }

    function test_aNumberHasNoLeadingZeroAndEightBytes() public {
        bytes memory header = Headers.build(0x0100, RANDAO);
        uint256 place = find(header, hex"820100");
        header[place + 1] = 0;
        assertRefused(header);
        assertRefused(Headers.build(1 << 64, RANDAO));
        (uint256 number,,) = this.parse(Headers.build(0, RANDAO));
        assertEq(number, 0);
    }

    function find(bytes memory header, bytes3 pattern) private pure returns (uint256 place) {
        while (bytes3(abi.encodePacked(header[place], header[place + 1], header[place + 2])) != pattern) ++place;
    }

    function test_hashesOfTheLastBlocksAndOfHistory() public {
        vm.etch(HISTORY, address(new MockHistory()).code);
        vm.roll(20_000);
        vm.setBlockhash(19_999, "one");
        vm.setBlockhash(19_744, "two");
        MockHistory(payable(HISTORY)).set(19_743, "three");
        assertEq(BlockHeader.known(19_999), "one");
        assertEq(BlockHeader.known(19_744), "two");
        assertEq(BlockHeader.known(19_743), "three");
        assertEq(BlockHeader.known(19_742), 0);
        assertEq(BlockHeader.known(20_000), 0);
        assertEq(BlockHeader.known(type(uint256).max), 0);
    }

    function test_withoutHistoryOldBlocksAreUnknown() public {
        vm.roll(20_000);
        assertEq(BlockHeader.known(1), 0);
    }
}
