// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {IBank} from "../../../market/interfaces/IBank.sol";
import {Contracts} from "../../../market/interfaces/IDeployment.sol";
import {
    Claim,
    ClaimState,
    LeafKind,
    Movement,
    Parameters,
    PotKind,
    Tab,
    TabState,
    Voucher
} from "../../../market/interfaces/MarketTypes.sol";
import {MockEvidence, MockRegistry} from "./BankMocks.sol";
import {SumTrees} from "./SumTrees.sol";

/// @title A Bank with mock neighbours, a payer, its tab key and a payee; the test is the factory
/// @notice What is signed is spelled out here once more, so that a change of the contracts' types is found.
abstract contract BankTest is Test {
    uint32 internal constant CLAIM_DELAY = 100;
    uint32 internal constant ANSWER_WINDOW = 20;
    uint32 internal constant CLOSE_DELAY = 300;
    uint256 internal constant BASE_FEE = 2 gwei;
    uint96 internal constant GAS_PRICE = 5 gwei * 1e9;
    uint96 internal constant DEPOSIT = 10 ether;
    uint256 internal constant KEY = 0x7ab0;
    uint256 internal constant OTHER_KEY = 0x7ab1;
    bytes32 internal constant SUBJECT = keccak256("subject");
    /// @dev Gas that an answer with an order, and a struck claim, are worth.
    uint256 internal constant ANSWER_GAS = 130_000;
    uint256 internal constant CHECK_GAS = 115_000;
    uint256 internal constant PROMISE_GAS = 98_000;
    uint256 internal constant STRUCK_GAS = 90_000;

    IBank internal bank;
    MockRegistry internal registry = new MockRegistry();
    MockEvidence internal evidence = new MockEvidence();
    address internal court = makeAddr("court");
    address internal summons = makeAddr("summons");
    address internal payer = makeAddr("payer");
    address internal payee = makeAddr("payee");
    address internal stranger = makeAddr("stranger");
    address internal key = vm.addr(KEY);
    Tab internal tab;
    bytes32 internal id;

    function setUp() public virtual {
        vm.roll(1000);
        vm.fee(BASE_FEE);
        bank = deploy();
        tab = Tab(payer, payee, key);
        id = keccak256(abi.encode(tab));
        fund(payer, 1000 ether);
        fund(stranger, 1000 ether);
        vm.deal(court, 1000 ether);
    }

    // ---- the factory

    function asset() internal view virtual returns (address) {
        return address(0);
    }

    function parameters() external view returns (Parameters memory chosen) {
        chosen.asset = asset();
        (chosen.claimDelay, chosen.answerWindow, chosen.closeDelay) = (CLAIM_DELAY, ANSWER_WINDOW, CLOSE_DELAY);
        chosen.gasPrice = GAS_PRICE;
    }

    function contracts() external view returns (Contracts memory parts) {
        (parts.registry, parts.evidence, parts.leaves) = (address(registry), address(evidence), address(evidence));
        (parts.court, parts.summons) = (court, summons);
    }

    /// @dev From the artifact: what is deployed, not what the tests' quick compiler makes of it.
    function deploy() internal returns (IBank deployed) {
        bytes memory creation = vm.getCode("Bank.sol:Bank");
        assembly ("memory-safe") {
            deployed := create(0, add(creation, 0x20), mload(creation))
        }
        require(address(deployed) != address(0), "deployment failed");
    }

    // ---- money

    function fund(address account, uint256 amount) internal virtual {
        vm.deal(account, amount);
    }

    /// @dev The value of a call that brings `amount`.
    function value(uint256 amount) internal view returns (uint256) {
        return asset() == address(0) ? amount : 0;
    }

    function held() internal view virtual returns (uint256) {
        return address(bank).balance;
    }

    function creditOf(address account) internal view returns (uint96) {
        return bank.balanceOf(PotKind.Credit, account_(account));
    }

    function tabBalance() internal view returns (uint96) {
        return bank.tabOf(id).balance;
    }

    function redeemed() internal view returns (uint96) {
        return bank.tabOf(id).redeemed;
    }

    function account_(address account) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    function answerGas() internal pure returns (uint96) {
        return uint96(ANSWER_GAS * BASE_FEE);
    }

    function claimGas() internal pure returns (uint96) {
        return uint96(100_000 * BASE_FEE);
    }

    // ---- what is signed

    function signed(uint256 secret, bytes32 structHash) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(secret, digestOf(structHash));
        return abi.encodePacked(r, s, v);
    }

    /// @dev A signature as EIP-2098 writes it.
    function compact(bytes memory signature) internal pure returns (bytes32 r, bytes32 vs) {
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            vs := mload(add(signature, 0x40))
        }
        if (signature[64] == 0x1c) vs |= bytes32(uint256(1) << 255);
    }

    function digestOf(bytes32 structHash) internal view returns (bytes32) {
        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("Troth"),
                keccak256("2"),
                block.chainid,
                address(bank)
            )
        );
        return keccak256(abi.encodePacked(hex"1901", domain, structHash));
    }

    function consentHash(address payer_, address payee_) internal pure returns (bytes32) {
        return keccak256(abi.encode(keccak256("TabConsent(address payer,address payee)"), payer_, payee_));
    }

    function voucherHash(Voucher memory voucher) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256(
                    "Voucher(bytes32 tab,uint96 spent,uint96 authorised,uint64 sequence,uint64 acknowledgedThrough,uint256 exceptions)"
                ),
                voucher.tab,
                voucher.spent,
                voucher.authorised,
                voucher.sequence,
                voucher.acknowledgedThrough,
                voucher.exceptions
            )
        );
    }

    function consent() internal view returns (bytes memory) {
        return signed(KEY, consentHash(payer, payee));
    }

    function sign(Voucher memory voucher) internal view returns (bytes memory) {
        return signed(KEY, voucherHash(voucher));
    }

    /// @dev Numbers up to `acknowledged` are paid by `spent`; up to twenty are authorised.
    function voucherOf(uint96 spent, uint96 authorised, uint64 acknowledged) internal view returns (Voucher memory) {
        return Voucher({
            tab: id,
            spent: spent,
            authorised: authorised,
            sequence: 20,
            acknowledgedThrough: acknowledged,
            exceptions: 0
        });
    }

    function voucherOf(uint96 spent) internal view returns (Voucher memory) {
        return voucherOf(spent, spent, 20);
    }

    // ---- steps

    function open(uint96 amount) internal {
        bytes memory agreed = consent();
        vm.prank(payer);
        assertEq(bank.openTab{value: value(amount)}(payee, key, amount, agreed), id, "id of the tab");
    }

    function redeem(uint96 spent) internal returns (uint96) {
        Voucher memory voucher = voucherOf(spent);
        return bank.redeem(tab, voucher, sign(voucher));
    }

    function close() internal {
        vm.prank(payer);
        bank.close(tab);
    }

    function pass(uint256 blocks) internal {
        vm.roll(vm.getBlockNumber() + blocks);
    }

    function collect(PotKind kind, bytes32 pot, uint96 amount) internal {
        vm.prank(court);
        bank.collect{value: value(amount)}(SUBJECT, stranger, kind, pot, amount);
    }

    function moveOne(PotKind fromKind, bytes32 fromId, PotKind toKind, bytes32 toId, uint96 amount) internal {
        Movement[] memory movements = new Movement[](1);
        movements[0] = Movement(fromKind, fromId, toKind, toId, amount);
        vm.prank(court);
        bank.move(SUBJECT, movements);
    }

    // ---- claims

    /// @dev A claim of the leaves from `first` on; leaf i is worth what it says.
    function claimOf(uint64 first, uint96[] memory amounts) internal returns (Claim memory claim) {
        for (uint256 i = 0; i < amounts.length; ++i) {
            evidence.setWorth(first + uint64(i), amounts[i]);
        }
        return SumTrees.claim(first, amounts);
    }

    function stateOf(Claim memory claim, Voucher memory voucher) internal view returns (ClaimState memory) {
        uint96 owed;
        unchecked {
            owed = voucher.spent + claim.total; // some tests claim too much
        }
        return ClaimState({
            claim: claim,
            voucher: voucher,
            owed: owed,
            settlesAt: uint40(vm.getBlockNumber() + CLAIM_DELAY),
            claimer: payee
        });
    }

    function claimIdOf(ClaimState memory state) internal pure returns (bytes32) {
        return bytes32(uint256(keccak256(abi.encode(state))) >> 16 << 16);
    }

    function file(Claim memory claim, Voucher memory voucher) internal returns (ClaimState memory state) {
        state = stateOf(claim, voucher);
        bytes memory signature = sign(voucher);
        vm.prank(payee);
        bank.claim(tab, voucher, signature, claim);
    }

    /// @dev A call that may revert as a whole.
    function fileOutside(Claim memory claim, Voucher memory voucher) external {
        file(claim, voucher);
    }

    function refusesClaim(Claim memory claim, Voucher memory voucher, bytes memory reason) internal {
        vm.expectRevert(reason);
        this.fileOutside(claim, voucher);
    }

    function object(ClaimState memory state, uint64 sequence) internal {
        vm.prank(payer);
        bank.object(tab, state, sequence);
    }

    function answer(ClaimState memory state, uint96[] memory amounts, uint64 sequence) internal {
        uint256 index = sequence - state.claim.first;
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(state.claim.first, amounts, index);
        uint96 amount = index < amounts.length ? amounts[index] : 0;
        vm.prank(payee);
        bank.answer(tab, state, sequence, LeafKind.Order, amount, siblings, sums, abi.encode(sequence));
    }

    function four(uint96 a, uint96 b, uint96 c, uint96 d) internal pure returns (uint96[] memory amounts) {
        amounts = new uint96[](4);
        (amounts[0], amounts[1], amounts[2], amounts[3]) = (a, b, c, d);
    }

    function equal(TabState memory found, uint96 balance, uint96 redeemed_, uint40 closesAt, bool known) internal pure {
        assertEq(found.balance, balance, "balance");
        assertEq(found.redeemed, redeemed_, "redeemed");
        assertEq(found.closesAt, closesAt, "closesAt");
        assertEq(found.known, known, "known");
    }
}
