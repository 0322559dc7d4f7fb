// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITroth} from "../interfaces/ITroth.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothReads} from "../interfaces/ITrothReads.sol";
import {Parameters} from "../interfaces/TrothTypes.sol";
import {TrothTest} from "./support/TrothTest.sol";

contract DeploymentTest is TrothTest {
    function test_KeepsItsParameters() public view {
        assertEq(abi.encode(troth.parametersOf()), abi.encode(parameters()));
    }

    function test_FitsTheCodeSizeLimit() public view {
        assertLe(address(troth).code.length, 24_576);
        assertLe(troth.coldPath().code.length, 24_576);
        assertLe(troth.reviewPath().code.length, 24_576);
        assertLe(trothCreation(parameters(), troth.reviewPath()).length, 49_152);
        assertLe(reviewPathCreation(parameters()).length, 49_152);
    }

    function test_DomainIsBoundToChainAndContract() public {
        bytes32 expected = separatorOf(address(troth));
        assertEq(troth.domainSeparator(), expected);
        vm.chainId(999);
        assertNotEq(troth.domainSeparator(), expected);
    }

    function test_RefusesClosedWindows() public {
        Parameters memory wrong = parameters();
        wrong.commitWindow = 0;
        refused(wrong);
        wrong = parameters();
        wrong.sampleWindow = 0;
        refused(wrong);
        wrong = parameters();
        wrong.revealWindow = 0;
        refused(wrong);
        wrong = parameters();
        wrong.disputeWindow = 0;
        refused(wrong);
    }

    function test_RefusesASampleWindowBeyondTheBlockHashes() public {
        Parameters memory wrong = parameters();
        wrong.unbondingPeriod = 10_000;
        wrong.sampleWindow = 200;
        deploy(wrong);
        wrong.sampleWindow = 201;
        refused(wrong);
    }

    function test_RefusesAnUnbondingPeriodThatATaskOutlasts() public {
        Parameters memory wrong = parameters();
        wrong.unbondingPeriod =
            3 * COMMIT_WINDOW + 2 * SAMPLE_WINDOW + 2 * REVEAL_WINDOW + DISPUTE_WINDOW + 200;
        refused(wrong);
        ++wrong.unbondingPeriod;
        deploy(wrong);
    }

    /// @dev Code with other windows would judge by them, and code at an empty address by nothing.
    function test_RefusesOtherCodeForDisputes() public {
        Parameters memory other = parameters();
        ++other.disputeWindow;
        address[2] memory wrong = [created(reviewPathCreation(other)), makeAddr("nobody")];
        for (uint256 i = 0; i < wrong.length; ++i) {
            bytes memory creation = trothCreation(parameters(), wrong[i]);
            vm.expectRevert(abi.encodeWithSelector(ITrothReads.WrongReviewPath.selector, wrong[i]));
            created(creation);
        }
    }

    function test_RefusesNoReserve() public {
        Parameters memory wrong = parameters();
        wrong.reserve = address(0);
        refused(wrong);
    }

    /// @dev The code of the rarer calls, called itself, must not take anybody's money.
    function test_ColdPathTakesNoMoneyItself() public {
        ITroth cold = ITroth(troth.coldPath());
        vm.deal(address(this), 10 ether);
        vm.expectRevert(ITrothMoney.NotDelegated.selector);
        cold.deposit{value: 1 ether}(client);
        bytes32 structHash = keccak256(
            abi.encode(keccak256("Consent(address owner,address operator)"), address(this), vm.addr(0x1234))
        );
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(0x1234, keccak256(abi.encodePacked(hex"1901", separatorOf(address(cold)), structHash)));
        bytes memory consent = abi.encodePacked(r, s, v);
        vm.expectRevert(ITrothMoney.NotDelegated.selector);
        cold.registerScheduler{value: 1 ether}(schedulerRegistration(vm.addr(0x1234), 3), consent);
    }

    /// @dev What the contract answers by the cold path's code is not to be reached with money, or by plain transfers.
    function test_RefusesMoneyAndCallsThatItDoesNotKnow() public {
        vm.deal(address(this), 10 ether);
        bytes[5] memory calls = [
            bytes(""),
            hex"00",
            hex"01020304",
            abi.encodeCall(troth.claim, (address(this))),
            abi.encodeCall(troth.withdrawEscrow, (0))
        ];
        for (uint256 i = 0; i < calls.length; ++i) {
            (bool paid,) = address(troth).call{value: 1}(calls[i]);
            assertFalse(paid);
            if (i > 2) continue;
            (bool answered,) = address(troth).call(calls[i]);
            assertFalse(answered);
        }
        (bool taken,) = address(troth).call{value: 1}(abi.encodeCall(troth.deposit, (address(this))));
        assertTrue(taken);
    }

    function separatorOf(address verifier) private view returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("Troth"),
                keccak256("1"),
                block.chainid,
                verifier
            )
        );
    }

    function refused(Parameters memory wrong) private {
        bytes memory creation = trothCreation(wrong, troth.reviewPath());
        vm.expectRevert(abi.encodeWithSelector(ITrothReads.InvalidParameters.selector, wrong));
        created(creation);
    }
}
