// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Entry, NodeRegistration} from "../../../market/interfaces/MarketTypes.sol";
import {MarketStage} from "./MarketStage.sol";

/// @title A market with few nodes, and a newcomer that is not registered
abstract contract StandingStage is MarketStage {
    uint256 internal constant NEW_KEY = 0x4e3000;
    bytes32 internal constant CASE = keccak256("case");
    address internal owner = makeAddr("owner");
    address internal newcomer = vm.addr(NEW_KEY);

    function wholeNodes() internal pure override returns (uint256) {
        return 3;
    }

    function halfNodes() internal pure override returns (uint256) {
        return 3;
    }

    function halfNode(uint256 index) internal pure returns (address) {
        return vm.addr(EXACT_KEY + HALVES_KEY + index);
    }

    function group() internal view returns (bytes32) {
        return registry.groupId(exact, 0, LAYERS);
    }

    function registration(uint96 stake) internal view returns (NodeRegistration memory) {
        return nodeRegistration(newcomer, exact, false, stake);
    }

    /// @dev Registers the newcomer with everything but `made` in order.
    function refused(NodeRegistration memory made, bytes memory failure) internal {
        refused(made, consentOf(NEW_KEY, owner), failure);
    }

    function refused(NodeRegistration memory made, bytes memory consent, bytes memory failure) internal {
        vm.deal(owner, 1000 ether);
        vm.prank(owner);
        vm.expectRevert(failure);
        registry.registerNode{value: made.stake}(made, consent);
    }

    function entryOf(address operator, bytes32 group_) internal view returns (Entry memory entry) {
        uint256 now_ = vm.getBlockNumber();
        for (uint256 i = 0; i < registry.sizeAt(group_, now_); ++i) {
            entry = registry.entryAt(group_, i, now_);
            if (entry.operator == operator) return entry;
        }
        delete entry;
    }
}

/// @dev A cheat code that the pinned forge-std does not declare yet.
interface Coolness {
    function cool(address target) external;
}
