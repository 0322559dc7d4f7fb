// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {ICommittee, Member} from "./ICommittee.sol";

/// @title Committee: whose signatures make a directory list
/// @notice Separate from Troth and without an administrator: more than 2/3 of the members change the membership, and
///         nothing else can. It holds no money.
contract Committee is ICommittee, EIP712 {
    /// @dev A client checks every signature of a list, and a change of members every signature here.
    uint256 private constant MAXIMUM_MEMBERS = 32;
    uint256 private constant MAXIMUM_ENDPOINT_BYTES = 256;

    bytes32 private constant ADD_TYPE =
        keccak256("AddMember(address operator,bytes32 tlsKeyHash,string endpoint,uint64 nonce)");
    bytes32 private constant REMOVE_TYPE = keccak256("RemoveMember(address operator,uint64 nonce)");
    bytes32 private constant MOVE_TYPE =
        keccak256("MoveMember(address operator,bytes32 tlsKeyHash,string endpoint,uint64 nonce)");

    /// @inheritdoc ICommittee
    uint64 public nonce;
    Member[] private _members;
    /// @dev Place in `_members` plus one; 0 for everybody else.
    mapping(address operator => uint256 place) private _places;

    constructor(Member[] memory first) EIP712("Troth", "1") {
        if (first.length == 0 || first.length > MAXIMUM_MEMBERS) revert InvalidCount(first.length);
        for (uint256 i = 0; i < first.length; ++i) {
            _add(first[i]);
        }
    }

    /// @inheritdoc ICommittee
    function addMember(Member calldata member, bytes[] calldata signatures) external {
        _requireSigned(_placeHash(ADD_TYPE, member), signatures);
        if (_members.length == MAXIMUM_MEMBERS) revert InvalidCount(MAXIMUM_MEMBERS + 1);
        ++nonce;
        _add(member);
    }

    /// @inheritdoc ICommittee
    function removeMember(address operator, bytes[] calldata signatures) external {
        _requireSigned(keccak256(abi.encode(REMOVE_TYPE, operator, nonce)), signatures);
        uint256 place = _placeOf(operator);
        uint256 count = _members.length;
        if (count == 1) revert InvalidCount(0);
        if (place != count) {
            Member storage last = _members[count - 1];
            _places[last.operator] = place;
            _members[place - 1] = last;
        }
        _members.pop();
        delete _places[operator];
        emit MemberRemoved(operator, ++nonce, count - 1);
    }

    /// @inheritdoc ICommittee
    function moveMember(Member calldata member, bytes[] calldata signatures) external {
        _requireSigned(_placeHash(MOVE_TYPE, member), signatures);
        uint256 place = _placeOf(member.operator);
        _requireReachable(member);
        bytes32 oldTlsKeyHash = _members[place - 1].tlsKeyHash;
        _members[place - 1] = member;
        emit MemberMoved(member.operator, oldTlsKeyHash, member.tlsKeyHash, member.endpoint, ++nonce);
    }

    /// @inheritdoc ICommittee
    function members() external view returns (Member[] memory) {
        return _members;
    }

    /// @inheritdoc ICommittee
    function threshold() public view returns (uint256) {
        return 2 * _members.length / 3 + 1;
    }

    /// @inheritdoc ICommittee
    function isMember(address operator) public view returns (bool) {
        return _places[operator] != 0;
    }

    /// @inheritdoc ICommittee
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    function _add(Member memory member) private {
        if (member.operator == address(0)) revert ZeroOperator();
        if (isMember(member.operator)) revert AlreadyMember(member.operator);
        _requireReachable(member);
        _members.push(member);
        _places[member.operator] = _members.length;
        emit MemberAdded(member.operator, member.tlsKeyHash, member.endpoint, nonce, _members.length);
    }

    /// @dev Reverts unless more than 2/3 of the members signed. Ascending signers: nobody counts twice.
    function _requireSigned(bytes32 structHash, bytes[] calldata signatures) private view {
        uint256 needed = threshold();
        if (signatures.length < needed) revert TooFewSignatures(signatures.length, needed);
        bytes32 digest = _hashTypedDataV4(structHash);
        address previous = address(0);
        for (uint256 i = 0; i < signatures.length; ++i) {
            (address signer,,) = ECDSA.tryRecover(digest, signatures[i]);
            if (!isMember(signer)) revert NotAMember(signer);
            if (signer <= previous) revert SignersOutOfOrder(previous, signer);
            previous = signer;
        }
    }

    function _placeHash(bytes32 kind, Member calldata member) private view returns (bytes32) {
        bytes32 endpoint = keccak256(bytes(member.endpoint));
        return keccak256(abi.encode(kind, member.operator, member.tlsKeyHash, endpoint, nonce));
    }

    function _placeOf(address operator) private view returns (uint256 place) {
        place = _places[operator];
        if (place == 0) revert UnknownMember(operator);
    }

    function _requireReachable(Member memory member) private pure {
        if (member.tlsKeyHash == bytes32(0)) revert ZeroTlsKeyHash(member.operator);
        bytes memory endpoint = bytes(member.endpoint);
        if (endpoint.length < 9 || endpoint.length > MAXIMUM_ENDPOINT_BYTES || bytes8(endpoint) != "https://") {
            revert InvalidEndpoint(member.endpoint);
        }
    }
}
