// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {console} from "@uniswap/v4-core/lib/forge-std/src/console.sol";
import {IBank} from "../../market/interfaces/IBank.sol";
import {Claim, ClaimState, LeafKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {GoodToken} from "./support/BankMocks.sol";
import {BankTest} from "./support/BankTest.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title What calls cost, the transaction's own gas included; preparations are earlier transactions
abstract contract BankGasTest is BankTest {
    uint256 private constant TRANSACTION = 21_000;
    uint256 private constant NON_ZERO_BYTE = 16;
    uint256 private constant ZERO_BYTE = 4;
    uint256 private constant COLD_ACCOUNT = 2600;
    uint256 private constant CALL_VALUE = 6700;

    /// @dev Makes a call as a transaction of its own would: a test begins with everything cold, a transaction with its
    /// receiver warm. Refunds are not counted.
    function transact(string memory name, address sender, uint256 sent, bytes memory data)
        internal
        returns (uint256 used)
    {
        used = TRANSACTION;
        for (uint256 i = 0; i < data.length; ++i) {
            used += data[i] == 0 ? ZERO_BYTE : NON_ZERO_BYTE;
        }
        address target = address(bank);
        vm.prank(sender);
        uint256 before = gasleft();
        (bool success, bytes memory reason) = target.call{value: sent}(data);
        used += before - gasleft() - COLD_ACCOUNT;
        if (sent != 0) used -= CALL_VALUE;
        require(success, string(reason));
        console.log(name, used);
    }

    function leaves() internal pure returns (uint96[] memory amounts) {
        amounts = new uint96[](1000);
        for (uint256 i = 0; i < 1000; ++i) {
            amounts[i] = 0.001 ether;
        }
    }

    function largeVoucher() internal view returns (Voucher memory voucher) {
        voucher = voucherOf(1 ether, 5 ether, 99);
        voucher.sequence = 1099;
    }
}

contract BankGasCoinTest is BankGasTest {
    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        redeem(0.1 ether);
    }

    function test_GasOfTabs() public {
        bytes memory agreed = signed(KEY, consentHash(stranger, payee));
        uint256 used = transact(
            "openTab coin", stranger, 1 ether, abi.encodeCall(IBank.openTab, (payee, key, 1 ether, agreed))
        );
        // This takes contracts as keys, too; for the reach see the next one.
        assertLe(used, 53_600);
        used = transact("topUp", stranger, 1 ether, abi.encodeCall(IBank.topUp, (id, 1 ether)));
        assertLe(used, 30_000);
    }

    function test_GasOfATabInTheCoin() public {
        (bytes32 r, bytes32 vs) = compact(signed(OTHER_KEY, consentHash(stranger, payee)));
        bytes memory data = abi.encodeCall(IBank.openTabInCoin, (payee, vm.addr(OTHER_KEY), r, vs));
        // To reach: 52,000, as a transaction of its own (scripts/bench gas); a call in a test takes some 600 more.
        assertLe(transact("openTabInCoin", stranger, 1 ether, data), 52_600);
    }

    function test_GasOfOneRedemption() public {
        Voucher memory voucher = voucherOf(1 ether, 1.1 ether, 1000);
        assertLe(transact("redeem", stranger, 0, abi.encodeCall(IBank.redeem, (tab, voucher, sign(voucher)))), 48_000);
    }

    function test_GasOfClosing() public {
        assertLe(transact("close", payer, 0, abi.encodeCall(IBank.close, (tab))), 30_000);
    }

    function test_GasOfAClaim() public {
        Voucher memory voucher = largeVoucher();
        bytes memory data = abi.encodeCall(IBank.claim, (tab, voucher, sign(voucher), SumTrees.claim(100, leaves())));
        assertLe(transact("claim", payee, 0, data), 75_000);
    }
}

contract BankGasManyTest is BankGasTest {
    uint256 private constant TABS = 32;

    Tab[] private tabs;
    Voucher[] private vouchers;
    bytes[] private signatures;

    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        redeem(0.1 ether);
        for (uint256 i = 0; i < TABS; ++i) {
            add(uint256(keccak256(abi.encode(i))));
        }
    }

    function add(uint256 secret) private {
        Tab memory one = Tab(vm.addr(secret), payee, vm.addr(secret + 1));
        vm.deal(one.payer, 1 ether);
        bytes memory agreed = signed(secret + 1, consentHash(one.payer, payee));
        vm.prank(one.payer);
        Voucher memory voucher = voucherOf(0.01 ether, 0.012 ether, 300);
        voucher.tab = bank.openTab{value: 1 ether}(payee, one.key, 1 ether, agreed);
        tabs.push(one);
        vouchers.push(voucher);
        signatures.push(signed(secret + 1, voucherHash(voucher)));
    }

    function test_GasOfManyRedemptions() public {
        uint256 used =
            transact("redeemMany 32", stranger, 0, abi.encodeCall(IBank.redeemMany, (tabs, vouchers, signatures)));
        console.log("a tab", used / TABS);
        assertLe(used / TABS, 16_000);
    }
}

contract BankGasClosedTest is BankGasTest {
    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        redeem(0.1 ether);
        close();
        pass(CLOSE_DELAY);
    }

    function test_GasOfFinishing() public {
        assertLe(transact("finishClosing", stranger, 0, abi.encodeCall(IBank.finishClosing, (tab))), 42_200);
    }
}

contract BankGasClaimTest is BankGasTest {
    ClaimState private state;

    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        redeem(0.1 ether);
        state = file(SumTrees.claim(100, leaves()), largeVoucher());
    }

    function test_GasOfAnObjection() public {
        assertLe(transact("object", payer, 0, abi.encodeCall(IBank.object, (tab, state, 777))), 70_000);
    }

    function test_GasOfAnObjectionWithValue() public {
        bytes memory data = abi.encodeCall(IBank.object, (tab, state, 777));
        assertLe(transact("object with value", payer, 1 ether, data), 70_000);
    }

    function test_GasOfSettlement() public {
        pass(CLAIM_DELAY);
        uint256 used = transact("settle", payee, 0, abi.encodeCall(IBank.settle, (tab, state)));
        // With the claim itself, and less the refund of its slot, above what is paid back.
        assertGt(used + 60_000 - 4800, 100_000);
    }
}

contract BankGasObjectionTest is BankGasTest {
    uint256 private constant CLEARED = 4800;

    ClaimState private state;
    ClaimState private empty;
    Tab private small;

    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        redeem(0.1 ether);
        state = file(claimOf(100, leaves()), largeVoucher());
        object(state, 777);
        small = Tab(stranger, payee, key);
        (tab, id) = (small, keccak256(abi.encode(small)));
        bytes memory agreed = signed(KEY, consentHash(stranger, payee));
        vm.prank(stranger);
        bank.openTab{value: DEPOSIT}(payee, key, DEPOSIT, agreed);
        uint96[] memory one = new uint96[](2);
        one[0] = 1;
        empty = file(SumTrees.claim(100, one), largeVoucher());
        vm.prank(key);
        bank.object(tab, empty, 101);
        (tab, id) = (Tab(payer, payee, key), keccak256(abi.encode(Tab(payer, payee, key))));
    }

    function test_GasOfAnAnswer() public {
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(100, leaves(), 677);
        bytes memory leaf = abi.encode(uint64(777));
        bytes memory data =
            abi.encodeCall(IBank.answer, (tab, state, 777, LeafKind.Order, 0.001 ether, siblings, sums, leaf));
        assertGt(transact("answer without evidence", payee, 0, data), 70_000 + CLEARED);
    }

    /// @dev The cheapest answer costs more than it is paid back, the refund of a cleared slot deducted.
    function test_NobodyProfitsFromAnswers() public {
        (bytes32[] memory none, uint96[] memory sums) = (new bytes32[](1), new uint96[](1));
        (none[0], sums[0]) = (keccak256(abi.encodePacked(hex"00", uint64(100), uint96(1))), 1);
        bytes memory data = abi.encodeCall(IBank.answer, (small, empty, 101, LeafKind.Order, 0, none, sums, ""));
        assertGt(transact("answer of an empty place", payee, 0, data), 48_000 + CLEARED);
    }

    function test_GasOfAStrike() public {
        pass(ANSWER_WINDOW + 1);
        transact("strike", payer, 0, abi.encodeCall(IBank.strike, (tab, state, 777)));
    }
}

contract BankGasTokenTest is BankGasTest {
    GoodToken private token = new GoodToken();

    function setUp() public override {
        super.setUp();
        open(DEPOSIT);
        redeem(0.1 ether);
    }

    function asset() internal view override returns (address) {
        return address(token);
    }

    function fund(address account, uint256 amount) internal override {
        token.mint(account, amount);
        vm.prank(account);
        token.approve(address(bank), 100 ether);
    }

    function test_GasOfATab() public {
        bytes memory agreed = signed(KEY, consentHash(stranger, payee));
        uint256 used =
            transact("openTab token", stranger, 0, abi.encodeCall(IBank.openTab, (payee, key, 1 ether, agreed)));
        assertLe(used, 90_000);
    }
}
