// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {Role} from "../../../market/interfaces/MarketTypes.sol";
import {VrfProof} from "../../../market/interfaces/Signed.sol";
import {ICommittee, Member} from "../../../overlay/ICommittee.sol";
import {
    IReputation,
    LeaderProof,
    ReputationRules,
    ReputationUpdate,
    UpdateEvidence,
    SilenceReport
} from "../../../reputation/IReputation.sol";
import {P256Prover} from "../../support/P256Prover.sol";

/// @title What Reputation asks a market's Registry
contract NodeRegistry {
    mapping(address operator => address) private _owners;

    function register(address node, address owner) external {
        _owners[node] = owner;
    }

    function roleOf(address operator) external view returns (Role, address, uint40) {
        address owner = _owners[operator];
        return (owner == address(0) ? Role.None : Role.Node, owner, 0);
    }
}

/// @notice A committee of seven that are all enrolled, in their first whole epoch, before anything was settled. The
///         contracts come from their artifacts, so that a test runs what is deployed.
abstract contract ReputationTest is Test {
    uint256 internal constant COUNT = 7;
    uint256 internal constant NEEDED = 5;
    uint32 internal constant NOT_SCORED = type(uint32).max;
    uint256 internal constant KEY = 0x7e9;
    uint96 internal constant BOND = 1 ether;
    uint32 internal constant EPOCH = 40;

    ICommittee internal committee;
    NodeRegistry internal registry;
    IReputation internal reputation;
    /// @dev Of the members, in ascending order of their addresses.
    uint256[] internal keys;
    address[] internal nodes;
    bytes32 internal promptRoot;
    LeaderProof internal noProof;

    function setUp() public virtual {
        vm.roll(1000);
        keys = sortedKeys(COUNT);
        committee = ICommittee(committeeOf(COUNT));
        registry = new NodeRegistry();
        reputation = deployed(rulesOf());
        for (uint256 i = 0; i < COUNT; ++i) {
            enroll(i);
        }
        toEpoch(1);
    }

    // ---- contracts

    function rulesOf() internal pure returns (ReputationRules memory) {
        return ReputationRules({
            epochBlocks: EPOCH,
            keep: 4e8,
            take: 6e8,
            abnormal: 9e8,
            bar: 4e8,
            initial: 5e8,
            window: 5,
            sensitivity: 5,
            leaveBlocks: 100,
            bond: BOND
        });
    }

    function deployed(ReputationRules memory rules) internal returns (IReputation) {
        (address created, bytes memory reason) = tryDeploy(address(committee), address(registry), rules);
        require(created != address(0), string(reason));
        return IReputation(created);
    }

    function tryDeploy(address first, address second, ReputationRules memory rules)
        internal
        returns (address created, bytes memory reason)
    {
        bytes memory code = vm.getCode("contracts/reputation/Reputation.sol:Reputation");
        code = abi.encodePacked(code, abi.encode(first, second, rules));
        assembly ("memory-safe") {
            created := create(0, add(code, 32), mload(code))
            if iszero(created) {
                reason := mload(0x40)
                mstore(0x40, add(reason, add(returndatasize(), 64)))
                mstore(reason, returndatasize())
                returndatacopy(add(reason, 32), 0, returndatasize())
            }
        }
    }

    function committeeOf(uint256 count) private returns (address created) {
        Member[] memory first = new Member[](count);
        for (uint256 i = 0; i < count; ++i) {
            first[i] = Member(vm.addr(keys[i]), keccak256(abi.encode(i)), "https://member.example:8543");
        }
        bytes memory code = abi.encodePacked(vm.getCode("Committee.sol:Committee"), abi.encode(first));
        assembly ("memory-safe") {
            created := create(0, add(code, 32), mload(code))
        }
    }

    function sortedKeys(uint256 count) private pure returns (uint256[] memory sorted) {
        sorted = new uint256[](count);
        for (uint256 i = 0; i < count; ++i) {
            uint256 at = i;
            for (; at > 0 && vm.addr(sorted[at - 1]) > vm.addr(KEY + i); --at) {
                sorted[at] = sorted[at - 1];
            }
            sorted[at] = KEY + i;
        }
    }

    // ---- members

    function member(uint256 index) internal view returns (address) {
        return vm.addr(keys[index]);
    }

    function ownerOf(uint256 index) internal pure returns (address) {
        return address(uint160(0xffff0000 + index));
    }

    function indexOf(address operator) internal view returns (uint256 index) {
        while (member(index) != operator) ++index;
    }

    /// @dev Small, so that proofs are quick to make.
    function vrfSecret(uint256 index) internal pure returns (uint256) {
        return 3 + index;
    }

    function enroll(uint256 index) internal {
        (uint256 x, uint256 y) = P256Prover.publicKey(vrfSecret(index));
        bytes memory consent = consentOf(index, ownerOf(index), x, y);
        vm.deal(ownerOf(index), BOND);
        vm.prank(ownerOf(index));
        reputation.enroll{value: BOND}(member(index), x, y, consent);
    }

    function consentOf(uint256 index, address owner, uint256 x, uint256 y) internal view returns (bytes memory) {
        bytes32 kind = keccak256("EnrollRater(address owner,address operator,uint256 vrfX,uint256 vrfY)");
        return signed(keys[index], keccak256(abi.encode(kind, owner, member(index), x, y)));
    }

    function signed(uint256 key, bytes32 hashed_) internal view returns (bytes memory) {
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", reputation.domainSeparator(), hashed_));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    // ---- epochs

    function toEpoch(uint256 epoch) internal {
        vm.roll(reputation.startBlock() + epoch * EPOCH + 5);
    }

    function addNodes(uint256 count) internal {
        for (uint256 i = 0; i < count; ++i) {
            nodes.push(address(uint160(0xa0de000000 + nodes.length)));
            registry.register(nodes[i], address(uint160(0xb0b0000000 + nodes.length)));
        }
    }

    /// @dev An update of the current epoch by the leader that the seed draws, with everybody unscored.
    function updateOf(address[] memory list, bytes32 root) internal view returns (ReputationUpdate memory update) {
        update.epoch = reputation.epochNow();
        update.seed = reputation.seedOf(update.epoch);
        update.leader = reputation.leaderBy(update.epoch, update.seed);
        update.promptRoot = root;
        update.nodes = list;
        update.credits = new uint32[](list.length);
        for (uint256 i = 0; i < list.length; ++i) {
            update.credits[i] = NOT_SCORED;
        }
        update.nextList = listHash(nodes, promptRoot);
    }

    function listHash(address[] memory list, bytes32 root) internal pure returns (bytes32) {
        return keccak256(abi.encode(keccak256(abi.encodePacked(list)), root));
    }

    function structHash(ReputationUpdate memory update) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256(
                    "ReputationUpdate(uint64 epoch,bytes32 seed,address leader,bytes32 promptRoot,bytes32 nodesHash,bytes32 creditsHash,bytes32 nextList)"
                ),
                update.epoch,
                update.seed,
                update.leader,
                update.promptRoot,
                keccak256(abi.encodePacked(update.nodes)),
                keccak256(abi.encodePacked(update.credits)),
                update.nextList
            )
        );
    }

    /// @dev Of the leader and the first others, ascending.
    function signatures(ReputationUpdate memory update, uint256 count) internal view returns (bytes[] memory made) {
        made = new bytes[](count);
        uint256 at;
        bool led;
        for (uint256 i = 0; at < count; ++i) {
            bool leads = member(i) == update.leader;
            if (!leads && !led && at + 1 == count) continue;
            led = led || leads;
            made[at++] = signed(keys[i], structHash(update));
        }
    }

    function settle(ReputationUpdate memory update) internal {
        bytes[] memory made = signatures(update, NEEDED);
        reputation.settle(update, noProof, new SilenceReport[](0), made);
    }

    /// @dev Nodes, and an epoch for which they are fixed.
    function fixNodes(uint256 count) internal {
        addNodes(count);
        promptRoot = keccak256("prompts");
        settle(updateOf(new address[](0), 0));
        toEpoch(reputation.epochNow() + 1);
    }

    /// @dev The current epoch gives every node this credit; the next one begins.
    function rateAll(uint32 credit) internal {
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        for (uint256 i = 0; i < nodes.length; ++i) {
            update.credits[i] = credit;
        }
        settle(update);
        toEpoch(reputation.epochNow() + 1);
    }

    function report(uint256 index, ReputationUpdate memory update, uint256 silent)
        internal
        view
        returns (SilenceReport memory)
    {
        bytes32 kind = keccak256("SilenceReport(uint64 epoch,bytes32 seed,bytes32 list,uint256 silent)");
        bytes32 list = listHash(update.nodes, update.promptRoot);
        return SilenceReport(
            silent, signed(keys[index], keccak256(abi.encode(kind, update.epoch, update.seed, list, silent)))
        );
    }

    function reportsOf(ReputationUpdate memory update, uint256 count, uint256 silent)
        internal
        view
        returns (SilenceReport[] memory made)
    {
        made = new SilenceReport[](count);
        for (uint256 i = 0; i < count; ++i) {
            made[i] = report(i, update, silent);
        }
    }

    function proofOf(uint256 index, ReputationUpdate memory update)
        internal
        view
        returns (LeaderProof memory lead, bytes32 beta)
    {
        VrfProof memory made;
        (made, beta) = P256Prover.prove(vrfSecret(index), reputation.alphaOf(update.epoch, update.seed));
        lead = LeaderProof(made.proof, made.hints);
    }

    function hashed(ReputationUpdate memory update, uint256 index) internal view returns (UpdateEvidence memory) {
        return UpdateEvidence(
            update.leader,
            update.promptRoot,
            keccak256(abi.encodePacked(update.nodes)),
            keccak256(abi.encodePacked(update.credits)),
            update.nextList,
            signed(keys[index], structHash(update))
        );
    }
}
