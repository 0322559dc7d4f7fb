// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice One member of the directory's committee.
/// @param operator account that signs lists and changes
/// @param tlsKeyHash SHA-256 of the public key that answers at the endpoint
/// @param endpoint where it serves lists, `https://…`
struct Member {
    address operator;
    bytes32 tlsKeyHash;
    string endpoint;
}

/// @title Who signs the list of relays and model nodes (PlanetServe section 3.1)
/// @notice There is no owner: every change is signed (EIP-712, this contract's domain) by more than 2/3 of the members
///         over the change and the current nonce. Anybody may bring the signatures, in ascending order of signers.
interface ICommittee {
    event MemberAdded(address indexed operator, bytes32 tlsKeyHash, string endpoint, uint64 nonce, uint256 count);
    event MemberRemoved(address indexed operator, uint64 nonce, uint256 count);
    event MemberMoved(
        address indexed operator, bytes32 oldTlsKeyHash, bytes32 tlsKeyHash, string endpoint, uint64 nonce
    );

    /// @notice A committee has 1 to 32 members.
    error InvalidCount(uint256 count);
    error ZeroOperator();
    error ZeroTlsKeyHash(address operator);
    /// @notice An endpoint is `https://` and a host, 256 bytes at most.
    error InvalidEndpoint(string endpoint);
    error AlreadyMember(address operator);
    error UnknownMember(address operator);
    error TooFewSignatures(uint256 signatures, uint256 needed);
    /// @notice The signature is none, or its signer (of other words, perhaps) is no member.
    error NotAMember(address signer);
    /// @notice Signers come in ascending order, each once.
    error SignersOutOfOrder(address previous, address signer);

    /// @notice Adds a member. Signed: `AddMember(address operator,bytes32 tlsKeyHash,string endpoint,uint64 nonce)`.
    function addMember(Member calldata member, bytes[] calldata signatures) external;

    /// @notice Removes a member; the last one stays. Signed: `RemoveMember(address operator,uint64 nonce)`.
    function removeMember(address operator, bytes[] calldata signatures) external;

    /// @notice Gives a member another endpoint or TLS key.
    ///         Signed: `MoveMember(address operator,bytes32 tlsKeyHash,string endpoint,uint64 nonce)`.
    function moveMember(Member calldata member, bytes[] calldata signatures) external;

    /// @notice All members, in no particular order.
    function members() external view returns (Member[] memory);

    /// @notice How many signatures are more than 2/3 of the members: floor(2n/3) + 1.
    function threshold() external view returns (uint256);

    function isMember(address operator) external view returns (bool);

    /// @notice What the next change is signed over; each change counts it up, so that none is repeated.
    function nonce() external view returns (uint64);

    function domainSeparator() external view returns (bytes32);
}
