// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {Profile, ILens, Member} from "./interfaces/ILens.sol";
import {DrawRequest, Entry, Parameters, PotKind, Role, Rules, Segment, TabState} from "./interfaces/MarketTypes.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {IWeights} from "./interfaces/IWeights.sol";
import {Entries} from "./libraries/Entries.sol";

/// @title Reads for services
contract Lens is ILens {
    uint256 private constant BASIS_POINTS = 10_000;

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    IWeights private immutable WEIGHTS;
    uint256 private immutable SEASONING;

    /// @dev Written once, by the constructor: nobody pays for reading them.
    Parameters private _parameters;
    Contracts private _contracts;

    constructor() {
        _parameters = IDeployment(msg.sender).parameters();
        _contracts = IDeployment(msg.sender).contracts();
        BANK = IBank(_contracts.bank);
        REGISTRY = IRegistry(_contracts.registry);
        WEIGHTS = IWeights(_parameters.weights);
        SEASONING = _parameters.seasoning;
    }

    /// @inheritdoc ILens
    function parameters() external view returns (Parameters memory) {
        return _parameters;
    }

    /// @inheritdoc ILens
    function contracts() external view returns (Contracts memory) {
        return _contracts;
    }

    /// @inheritdoc ILens
    function members(
        bytes32 executionClass,
        uint8 first,
        uint8 end,
        uint256 blockNumber,
        uint256 offset,
        uint256 limit
    ) external view returns (uint256 size, Member[] memory page) {
        bytes32 group = REGISTRY.groupId(executionClass, first, end);
        size = REGISTRY.sizeAt(group, blockNumber);
        uint256 count = offset < size ? Math.min(limit, size - offset) : 0;
        page = new Member[](count);
        for (uint256 i = 0; i < count; ++i) {
            page[i] = _member(group, offset + i, blockNumber);
        }
    }

    /// @inheritdoc ILens
    function draw(DrawRequest calldata request) external view returns (address[] memory drawn, bytes memory hints) {
        return REGISTRY.search(request);
    }

    /// @inheritdoc ILens
    function profileOf(address account) external view returns (Profile memory found) {
        (found.role, found.owner, found.exitBlock) = REGISTRY.roleOf(account);
        found.payout = REGISTRY.payoutOf(account);
        found.credit = BANK.balanceOf(PotKind.Credit, bytes32(uint256(uint160(account))));
        (found.stake, found.locked) = BANK.stakeOf(account);
        (found.suspendedBy, found.suspendedAt) = REGISTRY.suspensionOf(account);
        found.convictions = REGISTRY.convictionCount(account);
        if (found.role == Role.Node) _addHosting(account, found);
    }

    /// @inheritdoc ILens
    function tab(bytes32 tab_)
        external
        view
        returns (TabState memory state, bytes32 claimId, uint16 objections, uint96 short, uint40 shortBlock)
    {
        state = BANK.tabOf(tab_);
        (claimId, objections) = BANK.claimOf(tab_);
        (short, shortBlock) = BANK.shortOf(tab_);
    }

    function _member(bytes32 group, uint256 place, uint256 blockNumber) private view returns (Member memory member) {
        Entry memory entry = REGISTRY.entryAt(group, place, blockNumber);
        member.place = uint32(place);
        member.owner = REGISTRY.ownerOf(entry.operator);
        member.entry = entry;
        member.seasoned = uint16(Entries.seatsIn(Entries.pack(entry), true, blockNumber, SEASONING));
        member.weight = uint16(BASIS_POINTS);
        if (address(WEIGHTS) != address(0)) {
            member.weight = uint16(Math.min(BASIS_POINTS, WEIGHTS.weightAt(entry.operator, blockNumber)));
        }
        member.ask = REGISTRY.askAt(group, entry.operator, blockNumber);
    }

    function _addHosting(address operator, Profile memory found) private view {
        found.executionClass = REGISTRY.classOf(operator);
        Rules memory rules = REGISTRY.rulesOf(found.executionClass);
        uint256 covered = (uint256(found.stake) + found.locked) / rules.seat;
        found.seats = uint16(Math.min(rules.seatCap, covered));
        uint48 one;
        uint48 two;
        (found.first, found.end, one, two) = REGISTRY.sliceOf(operator);
        uint256 count = (one == 0 ? 0 : 1) + (two == 0 ? 0 : 1);
        found.segments = new Segment[](count);
        found.places = new uint32[](count);
        if (two != 0) _put(found, --count, two);
        if (one != 0) _put(found, --count, one);
    }

    function _put(Profile memory found, uint256 index, uint48 membership) private pure {
        found.segments[index] = Segment({first: uint8(membership >> 40), end: uint8(membership >> 32)});
        found.places[index] = uint32(membership);
    }
}
