// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Contracts} from "./IDeployment.sol";
import {Ask, DrawRequest, Entry, Parameters, Role, Segment, TabState} from "./MarketTypes.sol";

/// @notice A member of a group at a past block.
/// @param seasoned seats that may check and judge then
/// @param weight of its seats in draws, basis points
struct Member {
    uint32 place;
    address owner;
    Entry entry;
    uint16 seasoned;
    uint16 weight;
    Ask ask;
}

/// @notice What is known of an account now. Anybody has credit; the rest is that of an operator.
/// @param seats that its stake covers, at most the class's cap; those in its groups may be fewer, until they season or
///        while suspended
/// @param suspendedBy the case that suspends it, or zero
/// @param suspendedAt block of its last suspension
struct Profile {
    Role role;
    address owner;
    address payout;
    uint96 stake;
    uint96 locked;
    uint96 credit;
    uint40 exitBlock;
    bytes32 executionClass;
    uint8 first;
    uint8 end;
    Segment[] segments;
    uint32[] places;
    uint16 seats;
    bytes32 suspendedBy;
    uint40 suspendedAt;
    uint256 convictions;
}

/// @title Reads for services: many values in one call
/// @notice No contract depends on it, and its cost may grow with history.
interface ILens {
    /// @notice The deployment's parameters and contracts, as they were fixed.
    function parameters() external view returns (Parameters memory);
    function contracts() external view returns (Contracts memory);

    /// @notice Members of a group at a block, from place `offset` on, at most `limit`.
    /// @return size of the whole group
    function members(
        bytes32 executionClass,
        uint8 first,
        uint8 end,
        uint256 blockNumber,
        uint256 offset,
        uint256 limit
    ) external view returns (uint256 size, Member[] memory page);

    /// @notice What a draw gives, and the hints that `Registry.draw` needs for it; `request.hints` is not looked at.
    function draw(DrawRequest calldata request) external view returns (address[] memory drawn, bytes memory hints);

    function profileOf(address account) external view returns (Profile memory);

    /// @notice A tab with its claim under way (zero: none) and what settled claims could not be paid.
    function tab(bytes32 tab_)
        external
        view
        returns (TabState memory state, bytes32 claimId, uint16 objections, uint96 short, uint40 shortBlock);
}
