// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Account, Rules} from "../interfaces/TrothTypes.sol";
import {Deployment} from "./Deployment.sol";

/// @title All storage of the contract
/// @dev The code is in two parts, since one would exceed the limit of EIP-170. Both inherit this contract and declare no
///      storage themselves, so that they see the same layout.
abstract contract State is Deployment {
    struct ModelShape {
        uint16 layers;
        uint32 hiddenSize;
    }

    struct VrfKey {
        uint256 x;
        uint256 y;
    }

    /// @param first first layer that the node hosts
    /// @param end layer after the last one
    /// @param keptUntil first block in which the node may change it again; 0 before the first change
    struct Slice {
        bytes32 executionClass;
        uint8 first;
        uint8 end;
        uint40 keptUntil;
        Membership[] memberships;
    }

    struct Membership {
        bytes32 group;
        uint32 slot;
    }

    /// @param toBlock first block at which the operator is no member; 0 while it is one
    struct Occupancy {
        address operator;
        uint40 fromBlock;
        uint40 toBlock;
    }

    /// @param size slots since `sizeBlock`
    /// @param latest per slot, who took it last; one word, since every assignment reads it
    /// @param earlier per slot, who had it before
    /// @param created per slot, the block it came into being; these rise, so they tell the size at any block
    struct Group {
        uint32 size;
        uint40 sizeBlock;
        mapping(uint256 slot => Occupancy) latest;
        mapping(uint256 slot => Occupancy[]) earlier;
        uint32[] vacant;
        uint40[] created;
    }

    mapping(bytes32 taskId => bytes32) internal _tasks;
    mapping(address client => uint96) internal _escrows;
    mapping(address operator => Account) internal _accounts;
    mapping(address operator => address) internal _owners;
    mapping(address operator => address) internal _payouts;
    mapping(address operator => Slice) internal _slices;
    mapping(address scheduler => VrfKey) internal _vrfKeys;
    mapping(bytes32 group => Group) internal _groups;
    mapping(bytes32 model => ModelShape) internal _models;
    mapping(bytes32 executionClass => Rules) internal _rules;
    mapping(bytes32 executionClass => uint96) internal _minimumStakes;
}
