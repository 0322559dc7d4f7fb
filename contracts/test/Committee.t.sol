// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {ICommittee, Member} from "../overlay/ICommittee.sol";

contract CommitteeTest is Test {
    uint256 private constant FIRST_KEY = 0xc0117;
    uint256 private constant NEW_KEY = 0x5ea7;
    bytes32 private constant ADD =
        keccak256("AddMember(address operator,bytes32 tlsKeyHash,string endpoint,uint64 nonce)");
    bytes32 private constant REMOVE = keccak256("RemoveMember(address operator,uint64 nonce)");
    bytes32 private constant MOVE =
        keccak256("MoveMember(address operator,bytes32 tlsKeyHash,string endpoint,uint64 nonce)");

    /// @dev What is deployed, from its artifact: this test is compiled without the optimizer.
    bytes private creation = vm.getCode("Committee.sol:Committee");
    ICommittee private committee;
    uint256[] private keys;
    Member private newcomer = Member(vm.addr(NEW_KEY), bytes32(uint256(99)), "https://new.example:8543");

    function setUp() public {
        committee = committeeOf(4);
    }

    function test_KeepsItsFirstMembers() public view {
        Member[] memory found = committee.members();
        assertEq(found.length, 4);
        for (uint256 i = 0; i < 4; ++i) {
            assertEq(abi.encode(found[i]), abi.encode(member(i)));
            assertTrue(committee.isMember(found[i].operator));
        }
        assertFalse(committee.isMember(newcomer.operator));
        assertFalse(committee.isMember(address(0)));
        assertEq(committee.nonce(), 0);
    }

    function testFuzz_ThresholdIsTheLeastAboveTwoThirds(uint8 seed) public {
        uint256 count = 1 + uint256(seed) % 32;
        uint256 needed = committeeOf(count).threshold();
        assertGt(3 * needed, 2 * count);
        assertLe(3 * (needed - 1), 2 * count);
        assertLe(needed, count);
    }

    function test_RefusesWrongFirstMembers() public {
        Member[] memory none = new Member[](0);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.InvalidCount.selector, 0));
        create(none);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.InvalidCount.selector, 33));
        create(new Member[](33));
        Member[] memory two = new Member[](2);
        (two[0], two[1]) = (member(0), member(0));
        vm.expectRevert(abi.encodeWithSelector(ICommittee.AlreadyMember.selector, two[0].operator));
        create(two);
        two[1].operator = address(0);
        vm.expectRevert(ICommittee.ZeroOperator.selector);
        create(two);
        two[1] = member(1);
        two[1].tlsKeyHash = bytes32(0);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.ZeroTlsKeyHash.selector, two[1].operator));
        create(two);
        two[1] = member(1);
        two[1].endpoint = "http://plain.example";
        vm.expectRevert(abi.encodeWithSelector(ICommittee.InvalidEndpoint.selector, two[1].endpoint));
        create(two);
        two[1].endpoint = string.concat("https://", string(new bytes(249)));
        vm.expectRevert(abi.encodeWithSelector(ICommittee.InvalidEndpoint.selector, two[1].endpoint));
        create(two);
    }

    function test_AddsAMember() public {
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 3);
        vm.expectEmit(address(committee));
        emit ICommittee.MemberAdded(newcomer.operator, newcomer.tlsKeyHash, newcomer.endpoint, 1, 5);
        committee.addMember(newcomer, signatures);
        assertTrue(committee.isMember(newcomer.operator));
        assertEq(committee.members().length, 5);
        assertEq(committee.threshold(), 4);
        assertEq(committee.nonce(), 1);
    }

    function test_MovesAMember() public {
        Member memory moved = member(2);
        moved.endpoint = "https://elsewhere.example";
        moved.tlsKeyHash = bytes32(uint256(7));
        bytes[] memory signatures = signed(placeHash(MOVE, moved), 3);
        vm.expectEmit(address(committee));
        emit ICommittee.MemberMoved(moved.operator, member(2).tlsKeyHash, moved.tlsKeyHash, moved.endpoint, 1);
        committee.moveMember(moved, signatures);
        assertEq(abi.encode(committee.members()[2]), abi.encode(moved));
    }

    function testFuzz_RemovesAnyMember(uint8 seed) public {
        address gone = vm.addr(FIRST_KEY + uint256(seed) % 4);
        bytes[] memory signatures = signed(removeHash(gone, 0), 3);
        vm.expectEmit(address(committee));
        emit ICommittee.MemberRemoved(gone, 1, 3);
        committee.removeMember(gone, signatures);
        assertFalse(committee.isMember(gone));
        Member[] memory rest = committee.members();
        assertEq(rest.length, 3);
        for (uint256 i = 0; i < 3; ++i) {
            assertNotEq(rest[i].operator, gone);
            assertTrue(committee.isMember(rest[i].operator));
        }
        assertEq(committee.threshold(), 3);
    }

    function test_TheLastMemberStays() public {
        committee = committeeOf(1);
        address last = vm.addr(FIRST_KEY);
        bytes[] memory signatures = signed(removeHash(last, 0), 1);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.InvalidCount.selector, 0));
        committee.removeMember(last, signatures);
    }

    function test_AFullCommitteeTakesNobody() public {
        committee = committeeOf(32);
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 22);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.InvalidCount.selector, 33));
        committee.addMember(newcomer, signatures);
    }

    function test_RefusesChangesOfStrangersAndDoubles() public {
        bytes[] memory signatures = signed(placeHash(MOVE, newcomer), 3);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.UnknownMember.selector, newcomer.operator));
        committee.moveMember(newcomer, signatures);
        signatures = signed(removeHash(newcomer.operator, 0), 3);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.UnknownMember.selector, newcomer.operator));
        committee.removeMember(newcomer.operator, signatures);
        signatures = signed(placeHash(ADD, member(0)), 3);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.AlreadyMember.selector, member(0).operator));
        committee.addMember(member(0), signatures);
    }

    // -- attacks ---------------------------------------------------------------------------------------------------

    function testFuzz_ShortSignaturesChangeNothing(uint8 seed) public {
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), uint256(seed) % 3);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.TooFewSignatures.selector, signatures.length, 3));
        committee.addMember(newcomer, signatures);
    }

    function test_AChangeIsNotRepeated() public {
        bytes[] memory adding = signed(placeHash(ADD, newcomer), 3);
        bytes32 removal = removeHash(newcomer.operator, 1);
        committee.addMember(newcomer, adding);
        keys.push(NEW_KEY);
        committee.removeMember(newcomer.operator, signed(removal, 4));
        vm.expectPartialRevert(ICommittee.NotAMember.selector);
        committee.addMember(newcomer, adding);
    }

    function test_OneSignerCountsOnce() public {
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 3);
        signatures[2] = signatures[1];
        address twice = signerAt(1);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.SignersOutOfOrder.selector, twice, twice));
        committee.addMember(newcomer, signatures);
    }

    function test_SignersAreInOrder() public {
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 3);
        (signatures[0], signatures[1]) = (signatures[1], signatures[0]);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.SignersOutOfOrder.selector, signerAt(1), signerAt(0)));
        committee.addMember(newcomer, signatures);
    }

    function test_ANewcomerCannotSignForItself() public {
        bytes32 change = placeHash(ADD, newcomer);
        bytes[] memory signatures = signed(change, 3);
        signatures[1] = signature(NEW_KEY, change, committee.domainSeparator());
        vm.expectRevert(abi.encodeWithSelector(ICommittee.NotAMember.selector, newcomer.operator));
        committee.addMember(newcomer, signatures);
    }

    function test_MoreThanEnoughSignaturesAreAllChecked() public {
        bytes32 change = placeHash(ADD, newcomer);
        bytes[] memory signatures = signed(change, 4);
        signatures[3] = signature(NEW_KEY, change, committee.domainSeparator());
        vm.expectRevert(abi.encodeWithSelector(ICommittee.NotAMember.selector, newcomer.operator));
        committee.addMember(newcomer, signatures);
    }

    function test_SignaturesOfAnotherCommitteeDoNotCount() public {
        ICommittee other = committeeOf(4);
        bytes[] memory signatures = signedFor(placeHash(ADD, newcomer), 3, other.domainSeparator());
        vm.expectPartialRevert(ICommittee.NotAMember.selector);
        committee.addMember(newcomer, signatures);
    }

    function test_SignaturesOfAnotherChainDoNotCount() public {
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 3);
        vm.chainId(999);
        vm.expectPartialRevert(ICommittee.NotAMember.selector);
        committee.addMember(newcomer, signatures);
    }

    function test_SignaturesOfAMoveDoNotAdd() public {
        bytes[] memory signatures = signed(placeHash(MOVE, newcomer), 3);
        vm.expectPartialRevert(ICommittee.NotAMember.selector);
        committee.addMember(newcomer, signatures);
    }

    function test_TheNewcomersPlaceCannotBeSwapped() public {
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 3);
        Member memory swapped = newcomer;
        swapped.endpoint = "https://attacker.example";
        vm.expectPartialRevert(ICommittee.NotAMember.selector);
        committee.addMember(swapped, signatures);
    }

    function test_ARemovedMemberSignsNoMore() public {
        address gone = vm.addr(FIRST_KEY);
        bytes32 removal = removeHash(gone, 0);
        committee.removeMember(gone, signed(removal, 3));
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 4);
        vm.expectRevert(abi.encodeWithSelector(ICommittee.NotAMember.selector, gone));
        committee.addMember(newcomer, signatures);
    }

    function testFuzz_GarbageIsNoSignature(bytes calldata garbage) public {
        bytes[] memory signatures = signed(placeHash(ADD, newcomer), 3);
        signatures[0] = garbage;
        vm.expectPartialRevert(ICommittee.NotAMember.selector);
        committee.addMember(newcomer, signatures);
    }

    // -- building blocks -------------------------------------------------------------------------------------------

    function committeeOf(uint256 count) private returns (ICommittee) {
        delete keys;
        Member[] memory first = new Member[](count);
        for (uint256 i = 0; i < count; ++i) {
            first[i] = member(i);
            keys.push(FIRST_KEY + i);
        }
        return create(first);
    }

    function create(Member[] memory first) private returns (ICommittee) {
        bytes memory code = abi.encodePacked(creation, abi.encode(first));
        address at;
        assembly ("memory-safe") {
            at := create(0, add(code, 0x20), mload(code))
            if iszero(at) {
                returndatacopy(code, 0, returndatasize())
                revert(code, returndatasize())
            }
        }
        return ICommittee(at);
    }

    function member(uint256 index) private pure returns (Member memory) {
        return Member(vm.addr(FIRST_KEY + index), keccak256(abi.encode(index)), "https://member.example:8543");
    }

    function placeHash(bytes32 kind, Member memory changed) private view returns (bytes32) {
        bytes32 endpoint = keccak256(bytes(changed.endpoint));
        return keccak256(abi.encode(kind, changed.operator, changed.tlsKeyHash, endpoint, committee.nonce()));
    }

    function removeHash(address operator, uint64 nonce) private pure returns (bytes32) {
        return keccak256(abi.encode(REMOVE, operator, nonce));
    }

    function signed(bytes32 structHash, uint256 count) private view returns (bytes[] memory) {
        return signedFor(structHash, count, committee.domainSeparator());
    }

    /// @dev Signatures of the first `count` keys, in ascending order of their addresses.
    function signedFor(bytes32 structHash, uint256 count, bytes32 separator)
        private
        view
        returns (bytes[] memory signatures)
    {
        uint256[] memory signers = ordered(count);
        signatures = new bytes[](count);
        for (uint256 i = 0; i < count; ++i) {
            signatures[i] = signature(signers[i], structHash, separator);
        }
    }

    function signature(uint256 key, bytes32 structHash, bytes32 separator) private pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, keccak256(abi.encodePacked(hex"1901", separator, structHash)));
        return abi.encodePacked(r, s, v);
    }

    function signerAt(uint256 index) private view returns (address) {
        return vm.addr(ordered(3)[index]);
    }

    function ordered(uint256 count) private view returns (uint256[] memory signers) {
        signers = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            uint256 key = keys[i];
            uint256 at = i;
            for (; at > 0 && vm.addr(signers[at - 1]) > vm.addr(key); --at) {
                signers[at] = signers[at - 1];
            }
            signers[at] = key;
        }
    }
}
