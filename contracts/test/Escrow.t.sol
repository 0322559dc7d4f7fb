// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITroth} from "../interfaces/ITroth.sol";
import {ITrothEscrow} from "../interfaces/ITrothEscrow.sol";
import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {TrothTest} from "./support/TrothTest.sol";

/// @title A client that takes its money and asks for more before the first call has ended
contract Reentrant {
    ITroth private immutable TROTH;
    bool private _again;
    bytes public refusal;

    constructor(ITroth troth) {
        TROTH = troth;
    }

    function withdraw(uint96 amount) external {
        _again = true;
        TROTH.withdrawEscrow(amount);
    }

    receive() external payable {
        if (!_again) return;
        _again = false;
        try TROTH.withdrawEscrow(1) {}
        catch (bytes memory reason) {
            refusal = reason;
        }
    }
}

/// @title A client that refuses to be paid
contract Refuser {
    function withdraw(ITroth troth, uint96 amount) external {
        troth.withdrawEscrow(amount);
    }
}

contract EscrowTest is TrothTest {
    function test_DepositsForAnybody() public {
        address other = makeAddr("other");
        vm.expectEmit(address(troth));
        emit ITrothEscrow.EscrowDeposited(other, 2 ether, 2 ether);
        vm.prank(client);
        troth.deposit{value: 2 ether}(other);
        assertEq(troth.escrowOf(other), 2 ether);
        vm.expectRevert(ITrothMoney.ZeroAmount.selector);
        troth.deposit(other);
        vm.prank(client);
        vm.expectRevert(ITrothMoney.ZeroAddress.selector);
        troth.deposit{value: 1}(address(0));
    }

    function test_RefusesADepositBeyond96Bits() public {
        uint256 amount = uint256(type(uint96).max) + 1;
        vm.deal(client, amount);
        vm.prank(client);
        vm.expectRevert(abi.encodeWithSelector(ITrothMoney.AmountTooLarge.selector, amount));
        troth.deposit{value: amount}(client);
    }

    function test_WithdrawsWhatIsFree() public {
        uint256 before = client.balance;
        vm.expectEmit(address(troth));
        emit ITrothEscrow.EscrowWithdrawn(client, 3 ether, DEPOSIT - 3 ether);
        vm.startPrank(client);
        troth.withdrawEscrow(3 ether);
        assertEq(client.balance, before + 3 ether);
        vm.expectRevert(
            abi.encodeWithSelector(ITrothMoney.InsufficientEscrow.selector, client, DEPOSIT - 3 ether, DEPOSIT)
        );
        troth.withdrawEscrow(DEPOSIT);
        vm.expectRevert(ITrothMoney.ZeroAmount.selector);
        troth.withdrawEscrow(0);
    }

    function test_CannotBeReentered() public {
        Reentrant thief = new Reentrant(troth);
        vm.prank(client);
        troth.deposit{value: 5 ether}(address(thief));
        thief.withdraw(1 ether);
        assertEq(address(thief).balance, 1 ether);
        assertEq(troth.escrowOf(address(thief)), 4 ether);
        assertGt(thief.refusal().length, 0);
    }

    function test_KeepsTheMoneyOfWhoCannotTakeIt() public {
        Refuser refuser = new Refuser();
        vm.prank(client);
        troth.deposit{value: 5 ether}(address(refuser));
        vm.expectRevert(abi.encodeWithSelector(ITrothMoney.TransferFailed.selector, address(refuser), 1 ether));
        refuser.withdraw(troth, 1 ether);
        assertEq(troth.escrowOf(address(refuser)), 5 ether);
    }

    function testFuzz_DepositAndWithdrawalConserveMoney(uint96 amount, uint96 taken) public {
        amount = uint96(bound(amount, 1, 80 ether));
        taken = uint96(bound(taken, 1, DEPOSIT + amount));
        vm.startPrank(client);
        troth.deposit{value: amount}(client);
        troth.withdrawEscrow(taken);
        assertEq(troth.escrowOf(client), DEPOSIT + amount - taken);
        assertSolvent(0);
    }
}
