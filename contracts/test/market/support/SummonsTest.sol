// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {SummonsKind, SummonsState} from "../../../market/interfaces/Proceedings.sol";
import {ISummons} from "../../../market/interfaces/ISummons.sol";
import {EvidenceTest} from "./EvidenceTest.sol";

/// @title Summons over served orders
abstract contract SummonsTest is EvidenceTest {
    uint256 internal constant ANSWERED = 1;
    uint256 internal constant UNANSWERED = 2;

    address internal summoner = makeAddr("summoner");
    bytes32 internal summonsId;
    SummonsState internal state;

    function setUp() public virtual override {
        super.setUp();
        vm.deal(summoner, 1000 ether);
        vm.deal(scheduler, 1000 ether);
    }

    function summonCheck(Play memory made, uint8 segment) internal {
        uint256 deposit = summons.depositFor(SummonsKind.Check, block.basefee);
        vm.recordLogs();
        vm.prank(summoner);
        summonsId =
            summons.summonCheck{value: deposit}(made.order, made.draw, made.drawSignature, segment, made.secret);
        read();
    }

    function summonResults(Play memory made) internal {
        uint256 deposit = summons.depositFor(SummonsKind.Results, block.basefee);
        vm.recordLogs();
        vm.prank(summoner);
        summonsId = summons.summonResults{value: deposit}(made.order, made.admission, made.admissionSignature);
        read();
    }

    function answerCheck(Play memory made, Check memory check) internal {
        summons.answerCheck(
            summonsId, state, made.results, compacted(made.resultSignatures), wordsOf(check.verdicts, check.signatures), check.hints
        );
    }

    function answerResults(Play memory made) internal {
        summons.answerResults(
            summonsId, state, made.nodes, made.results, compacted(made.resultSignatures), made.draw, made.drawSignature
        );
    }

    function convict(address caller) internal {
        vm.recordLogs();
        vm.prank(caller);
        summons.convict(summonsId, state);
        read();
    }

    /// @dev The state that the last recorded event of the summons holds, if any does.
    function read() internal {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            bytes32 topic = logs[i].topics[0];
            if (
                topic != ISummons.Summoned.selector && topic != ISummons.PassedOn.selector
                    && topic != ISummons.Responded.selector && topic != ISummons.NodeSilent.selector
            ) continue;
            state = abi.decode(logs[i].data, (SummonsState));
        }
    }

    function status() internal view returns (uint256) {
        return uint256(summons.summonsOf(summonsId));
    }
}
