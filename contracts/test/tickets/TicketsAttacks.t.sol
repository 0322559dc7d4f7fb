// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITickets, LostTicket, Purchase, Spending, Ticket, TicketKey} from "../../tickets/ITickets.sol";
import {TicketCurve} from "../../tickets/TicketCurve.sol";
import {TicketsTest} from "./support/TicketsTest.sol";

/// @notice Each of these takes money in a contract that lacks one check.
contract TicketsAttacksTest is TicketsTest {
    uint256 private constant FIELD_HIGH = 0x1a0111ea397fe69a4b1ba7b6434bacd7;
    uint256 private constant FIELD_LOW = 0x64774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab;

    function test_aTicketIsSpentOnce() external {
        buy(0, 1, 0, 2);
        spend(0, 1, spending(0, 1, 0, 1, 0));
        address other = makeAddr("second scheduler");
        Spending memory again = spendingTo(other, tabKey, 0, 1, 0, 2, 0);
        vm.expectEmit();
        emit ITickets.TicketPassedOver(nameOf(0), tickets.payerOf(tabKey));
        spend(0, 1, again);
        // The second scheduler has what was not spent before, and sees it before it works.
        assertEq(bank.tabOf(keccak256(abi.encode(tickets.payerOf(tabKey), other, tabKey))).balance, 0.01 ether);
    }

    function test_aReplayedTransactionPaysNobody() external {
        buy(0, 1, 0, 2);
        Spending memory made = spending(0, 1, 0, 1, 0.001 ether);
        spend(0, 1, made);
        spend(0, 1, made);
        assertEq(payee.balance, 0.001 ether);
        assertEq(address(tickets).balance, 0.01 ether);
    }

    function test_oneTicketTwiceInACall() external {
        buy(0, 1, 0, 2);
        Spending memory made = spending(0, 1, 0, 2, 0);
        made.tickets[1] = made.tickets[0];
        spend(0, 1, made);
        assertEq(address(bank).balance, 0.01 ether);
    }

    /// @dev sigma1 + D and sigma2 - D: their sum is right, each of them is wrong.
    function test_signaturesThatCancelAreRefused() external {
        buy(0, 1, 0, 2);
        Spending memory made = spending(0, 1, 0, 2, 0);
        (uint256 secret, uint256 shift) = (secretOf(0, 1), 12345);
        bytes memory off = TicketCurve.blinded(address(1), shift);
        bytes memory back = TicketCurve.blinded(address(1), ORDER - shift);
        made.tickets[0].signature = compact(added(TicketCurve.blinded(nameOf(0), secret), off));
        made.tickets[1].signature = compact(added(TicketCurve.blinded(nameOf(1), secret), back));
        refused(0, 1, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 2));
    }

    /// @dev The same with the two of a batch exchanged.
    function test_exchangedSignaturesAreRefused() external {
        buy(0, 1, 0, 2);
        Spending memory made = spending(0, 1, 0, 2, 0);
        (made.tickets[0].signature, made.tickets[1].signature) =
            (made.tickets[1].signature, made.tickets[0].signature);
        refused(0, 1, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 2));
    }

    function test_aTicketOfALowerDenominationOrAnotherEpoch() external {
        buy(0, 0, 0, 1);
        buy(0, 2, 5, 1);
        Spending memory made = spending(0, 0, 0, 1, 0);
        refused(0, 2, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 1));
        vm.roll(1000 + EPOCH);
        register(1);
        buy(1, 0, 9, 1);
        refused(1, 0, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 1));
        vm.roll(1000 + 2 * EPOCH);
        refused(0, 0, made, abi.encodeWithSelector(ITickets.TicketExpired.selector, 0, 2));
    }

    function test_aTicketForAnotherPayeeOrTabKey() external {
        buy(0, 1, 0, 1);
        Spending memory made = spending(0, 1, 0, 1, 0);
        made.payee = makeAddr("thief");
        refused(0, 1, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 1));
        (made.payee, made.tabKey) = (payee, makeAddr("thief"));
        refused(0, 1, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 1));
        (made.tabKey, made.fee) = (tabKey, 1);
        refused(0, 1, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 1));
    }

    function test_malformedPoints() external {
        buy(0, 1, 0, 1);
        Spending memory made = spending(0, 1, 0, 1, 0);
        bytes memory good = made.tickets[0].signature;
        made.tickets[0].signature = bytes.concat(good, hex"00");
        refused(0, 1, made, abi.encodeWithSelector(ITickets.MalformedTicket.selector, 97, 65));
        // Zero, whose pairing with anything is one.
        made.tickets[0].signature = new bytes(96);
        refused(0, 1, made, abi.encodeWithSelector(ITickets.InvalidTickets.selector, 1));
        // Off the curve.
        good[95] ^= 0x01;
        made.tickets[0].signature = good;
        refused(0, 1, made, abi.encodeWithSelector(TicketCurve.CurveFailed.selector, address(0x0c)));
        // A coordinate above the prime.
        made.tickets[0].signature = abi.encodePacked(uint128(FIELD_HIGH), FIELD_LOW, uint128(0), uint256(2));
        refused(0, 1, made, abi.encodeWithSelector(TicketCurve.CurveFailed.selector, address(0x0c)));
        // (0, 2) is on the curve and has order three: outside the subgroup.
        made.tickets[0].signature = abi.encodePacked(uint128(0), uint256(0), uint128(0), uint256(2));
        refused(0, 1, made, abi.encodeWithSelector(TicketCurve.CurveFailed.selector, address(0x0c)));
    }

    function test_aSpendingThatNobodySigned() external {
        buy(0, 1, 0, 1);
        Spending memory made = spending(0, 1, 0, 1, 0);
        made.tickets[0].spending = new bytes(65);
        refused(0, 1, made, abi.encodeWithSelector(ITickets.NobodySigned.selector, new bytes(65)));
        made.tickets[0].key = 1;
        refused(0, 1, made, abi.encodeWithSelector(ITickets.UnknownKey.selector, 1));
    }

    function test_anotherKeyThanTheRegisteredOne() external {
        buy(0, 1, 0, 1);
        (TicketKey[] memory keys, Spending[] memory all) = (new TicketKey[](1), new Spending[](1));
        keys[0] = TicketKey(0, 1, publicKey(777));
        all[0] = spending(0, 1, 0, 1, 0);
        all[0].tickets[0].signature = signature(777, nameOf(0));
        vm.expectRevert(abi.encodeWithSelector(ITickets.InvalidKey.selector, 0, 1));
        tickets.spend(keys, all);
    }

    /// @dev Colluding members have the whole key; they get at most what was sold under it.
    function test_ticketsOutOfNothingStopAtWhatWasSold() external {
        buy(0, 0, 0, 1);
        buy(0, 1, 10, 4);
        spend(0, 0, spending(0, 0, 0, 1, 0));
        Spending memory forged = spending(0, 0, 100, 1, 0);
        refused(0, 0, forged, abi.encodeWithSelector(ITickets.MoreSpentThanSold.selector, 0, 0));
        assertEq(address(tickets).balance, 0.04 ether);
    }

    function test_aSpentTicketIsNotRefunded() external {
        Purchase memory purchase = buy(0, 1, 0, 3);
        spend(0, 1, spending(0, 1, 1, 1, 0));
        vm.roll(1000 + 2 * EPOCH);
        LostTicket memory one = lost(0, 3, 1);
        vm.expectRevert(abi.encodeWithSelector(ITickets.AlreadySpent.selector, nameOf(1)));
        refund(purchase, one);
    }

    function test_refundsOfWhatIsNotInThePurchase() external {
        Purchase memory purchase = buy(0, 1, 0, 3);
        vm.roll(1000 + 2 * EPOCH);
        LostTicket memory one = lost(0, 3, 1);
        bytes32 id = keccak256(abi.encode(purchase));
        one.ticket = nameOf(77);
        vm.expectRevert(abi.encodeWithSelector(ITickets.NotInPurchase.selector, id, nameOf(77), 1));
        refund(purchase, one);
        (one.ticket, one.index) = (nameOf(1), 2);
        vm.expectRevert(abi.encodeWithSelector(ITickets.NotInPurchase.selector, id, nameOf(1), 2));
        refund(purchase, one);
        purchase.count = 4;
        vm.expectRevert(
            abi.encodeWithSelector(ITickets.UnknownPurchase.selector, keccak256(abi.encode(purchase)))
        );
        refund(purchase, one);
    }

    /// @dev A leaf of the zero point is what every name comes to, times zero: one leaf would refund without end.
    function test_theZeroPointIsNobodysTicket() external {
        bytes32 root = keccak256(bytes.concat(keccak256(abi.encodePacked(uint16(0), new bytes(128)))));
        vm.prank(buyer);
        tickets.buy{value: 0.01 ether}(0, 1, 1, root);
        vm.roll(1000 + 2 * EPOCH);
        Purchase memory purchase = Purchase(buyer, 0, 1, 1, root);
        bytes32 id = keccak256(abi.encode(purchase));
        uint256[2] memory zeros = [uint256(0), ORDER];
        for (uint256 i = 0; i < 2; ++i) {
            LostTicket memory one = LostTicket(nameOf(i), 0, zeros[i], new bytes32[](0));
            vm.expectRevert(abi.encodeWithSelector(ITickets.NotInPurchase.selector, id, nameOf(i), 0));
            refund(purchase, one);
        }
    }

    function test_keysNeedAQuorumAndAreRegisteredOnce() external {
        bytes[] memory keys = keysOf(1);
        bytes[] memory few = signedKeys(1, keys, NEEDED - 1);
        vm.expectRevert(abi.encodeWithSelector(ITickets.TooFewSignatures.selector, 4, 5));
        tickets.registerKeys(1, DEALING, keys, few);
        bytes[] memory twice = signedKeys(1, keys, NEEDED);
        twice[4] = twice[3];
        address signer = vm.addr(memberKeys[3]);
        vm.expectRevert(abi.encodeWithSelector(ITickets.SignersOutOfOrder.selector, signer, signer));
        tickets.registerKeys(1, DEALING, keys, twice);
        bytes[] memory foreign = signedKeys(2, keys, NEEDED);
        vm.expectPartialRevert(ITickets.NotAMember.selector);
        tickets.registerKeys(1, DEALING, keys, foreign);
        register(1);
        bytes[] memory good = signedKeys(1, keys, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(ITickets.AlreadyRegistered.selector, 1));
        tickets.registerKeys(1, DEALING, keys, good);
    }

    /// @dev Under the zero key every name is signed by zero.
    function test_keysThatAreNoKeys() external {
        bytes[] memory keys = keysOf(1);
        keys[1] = new bytes(256);
        bytes[] memory signatures = signedKeys(1, keys, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(ITickets.InvalidKey.selector, 1, 1));
        tickets.registerKeys(1, DEALING, keys, signatures);
        keys[1] = keysOf(1)[1];
        keys[1][255] ^= 0x01;
        signatures = signedKeys(1, keys, NEEDED);
        vm.expectRevert(abi.encodeWithSelector(ITickets.InvalidKey.selector, 1, 1));
        tickets.registerKeys(1, DEALING, keys, signatures);
    }

    function test_purchasesThatAreRefused() external {
        bytes32 root = rootOf(0, 2);
        vm.startPrank(buyer);
        vm.expectRevert(abi.encodeWithSelector(ITickets.WrongValue.selector, 0.019 ether, 0.02 ether));
        tickets.buy{value: 0.019 ether}(0, 1, 2, root);
        vm.expectRevert(abi.encodeWithSelector(ITickets.WrongEpoch.selector, 1, 0));
        tickets.buy{value: 0.02 ether}(1, 1, 2, root);
        vm.expectRevert(abi.encodeWithSelector(ITickets.UnknownDenomination.selector, 3));
        tickets.buy{value: 0.02 ether}(0, 3, 2, root);
        vm.expectRevert(abi.encodeWithSelector(ITickets.InvalidCount.selector, 257));
        tickets.buy{value: 2.57 ether}(0, 1, 257, root);
        tickets.buy{value: 0.02 ether}(0, 1, 2, root);
        vm.expectPartialRevert(ITickets.AlreadyBought.selector);
        tickets.buy{value: 0.02 ether}(0, 1, 2, root);
        vm.roll(1000 + EPOCH);
        vm.expectRevert(abi.encodeWithSelector(ITickets.NoKeys.selector, 1));
        tickets.buy{value: 0.02 ether}(1, 1, 2, root);
        vm.stopPrank();
    }

    function test_aFeeAboveThePrice() external {
        buy(0, 0, 0, 2);
        Spending memory made = spending(0, 0, 0, 2, 0.0011 ether);
        refused(0, 0, made, abi.encodeWithSelector(ITickets.FeeAboveWorth.selector, 0.0011 ether, 0.001 ether));
    }

    /// @dev What tickets sign does not name the others of their payment: a fee for all of them was taken for each.
    function test_aPayeeThatSplitsAPaymentTakesNoMoreOfIt() external {
        buy(0, 1, 0, 8);
        spend(0, 1, spending(0, 1, 0, 4, 0.0025 ether));
        (uint256 whole, address other) = (payee.balance, makeAddr("greedy"));
        for (uint256 i = 4; i < 8; ++i) {
            spend(0, 1, spendingTo(other, tabKey, 0, 1, i, 1, 0.0025 ether));
        }
        assertEq(whole, 0.01 ether);
        assertEq(other.balance, whole);
        assertEq(bank.tabOf(keccak256(abi.encode(tickets.payerOf(tabKey), other, tabKey))).balance, 0.03 ether);
    }

    /// @dev Of two tickets that pay all they have as a fee, one is spent elsewhere before the call is mined.
    function test_aTicketThatIsGoneSpoilsNobodysCall() external {
        buy(0, 1, 0, 3);
        TicketKey[] memory keys = new TicketKey[](1);
        Spending[] memory all = new Spending[](2);
        (keys[0], all[0]) = (keyOf(0, 1), spending(0, 1, 0, 2, 0.01 ether));
        all[1] = spendingTo(payee, makeAddr("other key"), 0, 1, 2, 1, 0);
        spend(0, 1, spendingTo(makeAddr("accomplice"), tabKey, 0, 1, 0, 1, 0));
        tickets.spend(keys, all);
        assertEq(payee.balance, 0.01 ether);
        assertEq(address(bank).balance, 0.02 ether);
    }

    /// @dev Who was shown a name buys a ticket of it, and has that refunded before its owner comes.
    function test_aRefundOfTheSameNameTakesNobodysAway() external {
        Purchase memory victims = buy(0, 1, 0, 1);
        Purchase memory another = buy(0, 1, 0, 2);
        vm.roll(1000 + 2 * EPOCH);
        refund(another, lost(0, 2, 0));
        uint256 before = buyer.balance;
        refund(victims, lost(0, 1, 0));
        assertEq(buyer.balance, before + 0.01 ether);
        assertEq(tickets.outstanding(0, 1), 1);
    }

    function added(bytes memory left, bytes memory right) private view returns (bytes memory sum) {
        bool done;
        (done, sum) = address(0x0b).staticcall(bytes.concat(left, right));
        require(done, "no sum");
    }

    /// @dev Whoever sees a call on its way may send it with so little gas that a tab seems to take nothing.
    function test_ACallThatIsStarvedOfGasSpendsNoTicket() external {
        buy(0, 1, 0, 1);
        bank.weigh(400_000);
        bytes memory sent = sentFor(0, 1, spending(0, 1, 0, 1, 0));
        address payer = tickets.payerOf(tabKey);
        bool spent;
        for (uint256 gas_ = 500_000; !spent; gas_ += 1_000) {
            (spent,) = address(tickets).call{gas: gas_}(sent);
        }
        assertEq(payer.balance, 0);
        assertEq(bank.tabOf(keccak256(abi.encode(payer, payee, tabKey))).balance, 0.01 ether);
    }
}
