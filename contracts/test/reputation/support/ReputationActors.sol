// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ReputationUpdate, UpdateEvidence, SilenceReport} from "../../../reputation/IReputation.sol";
import {ReputationTest} from "./ReputationTest.sol";

/// @title Members that do what they may in any order; every argument is bounded to something that is there
contract ReputationActors is ReputationTest {
    uint256 public burnt;
    uint256 public rewarded;
    uint256 public returned;
    uint256 public settlements;
    uint256 public expelled;
    uint256 public silences;
    ReputationUpdate private last;

    function setUp() public override {
        super.setUp();
        addNodes(3);
        promptRoot = keccak256("prompts");
    }

    function isIn(uint256 index) public view returns (bool) {
        return reputation.raterOf(member(index)).owner != address(0);
    }

    function enrollOne(uint256 seed) public {
        uint256 index = seed % COUNT;
        if (isIn(index) || outcast[index]) return;
        enroll(index);
    }

    function leaveOne(uint256 seed) public {
        uint256 index = seed % COUNT;
        if (!isIn(index) || reputation.raterOf(member(index)).exitBlock != 0) return;
        vm.prank(ownerOf(index));
        reputation.leave(member(index));
    }

    function withdrawOne(uint256 seed) public {
        uint256 index = seed % COUNT;
        uint256 exitBlock = reputation.raterOf(member(index)).exitBlock;
        if (exitBlock == 0 || block.number <= exitBlock) return;
        uint256 before = ownerOf(index).balance;
        reputation.withdraw(member(index));
        returned += ownerOf(index).balance - before;
    }

    function expelOne(uint256 seed) public {
        uint256 index = seed % COUNT;
        // Some have to stay, or nothing is settled any more.
        if (!isIn(index) || expelled == COUNT - NEEDED) return;
        ReputationUpdate memory update = updateOf(nodes, promptRoot);
        UpdateEvidence memory first = hashed(update, index);
        update.promptRoot = keccak256(abi.encode(seed));
        UpdateEvidence memory second = hashed(update, index);
        vm.prank(reporter());
        reputation.expel(member(index), update.epoch, update.seed, first, second);
        (outcast[index], expelled) = (true, expelled + 1);
        (rewarded, burnt) = (rewarded + BOND / 10, burnt + BOND - BOND / 10);
    }

    function settleOne(uint256 seed) public {
        (uint64 through,, bytes32 list) = reputation.settled();
        uint64 epoch = reputation.epochNow();
        if (through > epoch) return;
        bool fixedNow = through == epoch && list != 0;
        ReputationUpdate memory update = updateOf(fixedNow ? nodes : new address[](0), fixedNow ? promptRoot : bytes32(0));
        for (uint256 i = 0; i < update.nodes.length; ++i) {
            uint256 credit = uint256(keccak256(abi.encode(seed, i))) % (1e9 + 1);
            if (credit % 5 != 0) update.credits[i] = uint32(credit);
        }
        bytes[] memory all = everybody(update);
        if (all.length < NEEDED) return;
        reputation.settle(update, noProof, new SilenceReport[](0), all);
        last = update;
        ++settlements;
    }

    /// @dev Of the update that was settled last, by all who still count: the unscored nodes that nobody rated yet.
    function reportOne(uint256 seed) public {
        (uint64 through,,) = reputation.settled();
        if (through == 0 || reputation.epochNow() > through || last.nodes.length == 0) return;
        uint256 node = seed % last.nodes.length;
        bool rated = reputation.standingOf(last.nodes[node]).lastEpoch == last.epoch;
        SilenceReport[] memory all = everybodyReports(1 << node);
        if (last.credits[node] != NOT_SCORED || rated || all.length < (NEEDED + 1) / 2) return;
        reputation.reportSilence(last, all);
        ++silences;
    }

    function wait(uint256 blocks) public {
        vm.roll(block.number + blocks % 60);
    }

    // ---- what is looked at

    mapping(uint256 index => bool) public outcast;

    function reporter() public pure returns (address) {
        return address(0x4e9047e4);
    }

    function held() external view returns (uint256) {
        return address(reputation).balance;
    }

    function bonded() external view returns (uint256) {
        return reputation.raters().length * BOND;
    }

    function highestScore() external view returns (uint256 highest) {
        for (uint256 i = 0; i < nodes.length; ++i) {
            uint256 score = reputation.standingOf(nodes[i]).score;
            if (score > highest) highest = score;
        }
    }

    function isInOrder() external view returns (bool) {
        (uint64 through,,) = reputation.settled();
        address[] memory roster = reputation.raters();
        for (uint256 i = 0; i < roster.length; ++i) {
            if (reputation.raterOf(roster[i]).owner == address(0)) return false;
            for (uint256 j = 0; j < i; ++j) {
                if (roster[i] == roster[j]) return false;
            }
        }
        return through <= reputation.epochNow() + 1;
    }

    /// @dev All who count now, ascending; none if the leader is missing.
    function everybody(ReputationUpdate memory update) private view returns (bytes[] memory made) {
        uint256 count;
        for (uint256 i = 0; i < COUNT; ++i) {
            if (counts(i, update.epoch)) ++count;
        }
        made = new bytes[](count);
        count = 0;
        for (uint256 i = 0; i < COUNT; ++i) {
            if (counts(i, update.epoch)) made[count++] = signed(keys[i], structHash(update));
        }
    }

    function everybodyReports(uint256 silent) private view returns (SilenceReport[] memory made) {
        uint256 count;
        for (uint256 i = 0; i < COUNT; ++i) {
            if (counts(i, last.epoch)) ++count;
        }
        made = new SilenceReport[](count);
        count = 0;
        for (uint256 i = 0; i < COUNT; ++i) {
            if (counts(i, last.epoch)) made[count++] = report(i, last, silent);
        }
    }

    function counts(uint256 index, uint64 epoch) private view returns (bool) {
        return isIn(index) && reputation.raterOf(member(index)).first <= epoch
            && epoch < reputation.raterOf(member(index)).end;
    }
}
