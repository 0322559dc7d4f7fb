// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim, ClaimState, Movement, PotKind, Tab, TabState, Voucher} from "../../../market/interfaces/MarketTypes.sol";
import {BankTest} from "./BankTest.sol";

/// @title Payers, payees and contracts that do what they may in any order; every argument is bounded to something that
///        is there
contract BankActors is BankTest {
    uint256 private constant TABS = 4;
    bytes32 private constant CASE = keccak256("case");

    Tab[TABS] private _tabs;
    address[4] private _people;
    mapping(bytes32 tab => uint96) public authorised;
    mapping(bytes32 tab => ClaimState) private _states;
    mapping(bytes32 tab => uint96[]) private _leaves;
    bytes32[] private _objectedTabs;
    ClaimState[] private _objectedStates;
    uint64[] private _objectedNumbers;
    uint256 public paidIn;
    uint256 public paidOut;
    mapping(bytes4 call => uint256) public count;

    function setUp() public override {
        super.setUp();
        _people = [payer, payee, stranger, makeAddr("other")];
        fund(_people[3], 1000 ether);
        for (uint256 i = 0; i < TABS; ++i) {
            _tabs[i] = Tab(_people[i & 1 == 0 ? 0 : 2], _people[i < 2 ? 1 : 3], key);
        }
    }

    modifier counted() {
        _;
        ++count[msg.sig];
    }

    function pick(uint256 seed) private {
        tab = _tabs[seed % TABS];
        id = keccak256(abi.encode(tab));
        (payer, payee) = (tab.payer, tab.payee);
    }

    // ---- money in and out

    function openOne(uint256 seed, uint96 amount) public counted {
        pick(seed);
        if (bank.tabOf(id).known) return;
        amount = uint96(bound(amount, 1, 5 ether));
        bytes memory agreed = consent();
        vm.prank(payer);
        bank.openTab{value: amount}(payee, key, amount, agreed);
        paidIn += amount;
    }

    function topUpOne(uint256 seed, uint96 amount) public counted {
        pick(seed);
        TabState memory found = bank.tabOf(id);
        if (!found.known || found.closesAt != 0) return;
        amount = uint96(bound(amount, 1, 5 ether));
        vm.prank(payer);
        bank.topUp{value: amount}(id, amount);
        paidIn += amount;
    }

    function collectOne(uint96 amount, uint256 kind) public counted {
        amount = uint96(bound(amount, 1, 5 ether));
        kind %= 3;
        PotKind pot = kind == 0 ? PotKind.Stake : kind == 1 ? PotKind.Bond : PotKind.Credit;
        collect(pot, kind == 1 ? CASE : account_(stranger), amount);
        paidIn += amount;
    }

    function withdrawOne(uint256 seed) public counted {
        address account = _people[seed % 4];
        uint96 amount = creditOf(account);
        if (amount == 0) return;
        bank.withdraw(account);
        paidOut += amount;
    }

    function moveSome(uint96 amount, uint256 path) public counted {
        PotKind[5] memory kinds = [PotKind.Credit, PotKind.Stake, PotKind.Locked, PotKind.Bond, PotKind.Burnt];
        (PotKind from, PotKind to) = (kinds[path % 4], kinds[(path >> 8) % 5]);
        bytes32 fromId = from == PotKind.Bond ? CASE : account_(stranger);
        bytes32 toId = to == PotKind.Bond ? CASE : to == PotKind.Burnt ? bytes32(0) : account_(stranger);
        moveOne(from, fromId, to, toId, uint96(bound(amount, 0, bank.balanceOf(from, fromId))));
    }

    // ---- tabs

    function redeemOne(uint256 seed, uint96 spent) public counted {
        pick(seed);
        TabState memory found = bank.tabOf(id);
        spent = uint96(bound(spent, found.redeemed, uint256(found.redeemed) + 3 ether));
        if (!found.known || spent == found.redeemed || found.balance == 0) return;
        show(spent);
        redeem(spent);
    }

    function show(uint96 owed) private {
        if (owed > authorised[id]) authorised[id] = owed;
    }

    function closeOne(uint256 seed) public counted {
        pick(seed);
        TabState memory found = bank.tabOf(id);
        if (found.known && found.closesAt == 0) close();
    }

    function finishOne(uint256 seed) public counted {
        pick(seed);
        TabState memory found = bank.tabOf(id);
        (bytes32 claimId,) = bank.claimOf(id);
        if (!found.known || found.closesAt == 0 || found.closesAt > vm.getBlockNumber() || claimId != 0) return;
        bank.finishClosing(tab);
        paidOut += found.balance;
    }

    // ---- claims

    function claimOne(uint256 seed, uint96[4] calldata sums) public counted {
        pick(seed);
        TabState memory found = bank.tabOf(id);
        (bytes32 claimId,) = bank.claimOf(id);
        bool over = found.closesAt != 0 && found.closesAt <= vm.getBlockNumber();
        if (!found.known || claimId != 0 || over) return;
        delete _leaves[id];
        for (uint256 i = 0; i < 4; ++i) {
            _leaves[id].push(uint96(bound(sums[i], i == 0 ? 1 : 0, 1 ether)));
        }
        Claim memory claim = claimOf(6, _leaves[id]);
        Voucher memory voucher = voucherOf(found.redeemed, found.redeemed + claim.total, 5);
        show(voucher.authorised);
        _states[id] = file(claim, voucher);
    }

    function objectOne(uint256 seed, uint64 sequence, bool withValue) public counted {
        pick(seed);
        ClaimState memory state = _states[id];
        (bytes32 claimId,) = bank.claimOf(id);
        if (claimId == 0 || vm.getBlockNumber() + ANSWER_WINDOW >= state.settlesAt) return;
        sequence = uint64(bound(sequence, 6, 9));
        (, uint40 deadline) = bank.objectionOf(claimId, sequence);
        if (deadline != 0) return;
        TabState memory found = bank.tabOf(id);
        uint256 owed = state.owed > found.redeemed ? state.owed - found.redeemed : 0;
        uint96 given = withValue || found.balance < owed + answerGas() ? answerGas() : 0;
        vm.prank(payer);
        bank.object{value: given}(tab, state, sequence);
        paidIn += given;
        _objectedTabs.push(id);
        _objectedStates.push(state);
        _objectedNumbers.push(sequence);
    }

    function answerOne(uint256 seed, uint64 sequence) public counted {
        pick(seed);
        ClaimState memory state = _states[id];
        (bytes32 claimId,) = bank.claimOf(id);
        sequence = uint64(bound(sequence, 6, 9));
        (, uint40 deadline) = bank.objectionOf(claimId, sequence);
        if (claimId == 0 || deadline < vm.getBlockNumber()) return;
        for (uint256 i = 0; i < 4; ++i) {
            evidence.setWorth(6 + uint64(i), _leaves[id][i]);
        }
        answer(state, _leaves[id], sequence);
    }

    /// @dev Any objection there ever was: of a claim under way, or of one that was struck before.
    function strikeOne(uint256 index) public counted {
        if (_objectedTabs.length == 0) return;
        index %= _objectedTabs.length;
        for (uint256 i = 0; i < TABS; ++i) {
            pick(i);
            if (id == _objectedTabs[index]) break;
        }
        ClaimState memory state = _objectedStates[index];
        (bytes32 claimId,) = bank.claimOf(id);
        (, uint40 deadline) = bank.objectionOf(claimIdOf(state), _objectedNumbers[index]);
        if (deadline == 0 || (claimId == claimIdOf(state) && deadline >= vm.getBlockNumber())) return;
        bank.strike(tab, state, _objectedNumbers[index]);
    }

    function settleOne(uint256 seed) public counted {
        pick(seed);
        ClaimState memory state = _states[id];
        (bytes32 claimId, uint16 objections) = bank.claimOf(id);
        if (claimId == 0 || objections != 0 || vm.getBlockNumber() < state.settlesAt) return;
        bank.settle(tab, state);
        (uint96 short,) = bank.shortOf(id);
        if (seed % 3 == 0) evidence.forgive(bank, id, short);
    }

    function wait(uint256 blocks) public counted {
        pass(bound(blocks, 1, CLAIM_DELAY / 2));
    }

    // ---- what holds

    function pots() public view returns (uint256 sum) {
        for (uint256 i = 0; i < 4; ++i) {
            sum += creditOf(_people[i]) + bank.balanceOf(PotKind.Tab, keccak256(abi.encode(_tabs[i])));
        }
        bytes32 operator = account_(stranger);
        sum += bank.balanceOf(PotKind.Stake, operator) + bank.balanceOf(PotKind.Locked, operator);
        sum += bank.balanceOf(PotKind.Bond, CASE) + burnt();
        for (uint256 i = 0; i < _objectedTabs.length; ++i) {
            bool again = false;
            for (uint256 j = 0; j < i; ++j) {
                again = again || same(i, j);
            }
            (uint96 deposit,) = bank.objectionOf(claimIdOf(_objectedStates[i]), _objectedNumbers[i]);
            if (!again) sum += deposit;
        }
    }

    /// @dev A number that was answered can be asked again.
    function same(uint256 i, uint256 j) private view returns (bool) {
        return _objectedNumbers[i] == _objectedNumbers[j]
            && claimIdOf(_objectedStates[i]) == claimIdOf(_objectedStates[j]);
    }

    function burnt() public view returns (uint96) {
        return bank.balanceOf(PotKind.Burnt, 0);
    }

    function inBank() public view returns (uint256) {
        return held();
    }

    function overdrawn() public view returns (uint256 tabs) {
        for (uint256 i = 0; i < TABS; ++i) {
            bytes32 one = keccak256(abi.encode(_tabs[i]));
            if (bank.tabOf(one).redeemed > authorised[one]) ++tabs;
        }
    }

    /// @dev Everybody ends what there is; only what was burnt may be left.
    function end() external {
        for (uint256 i = 0; i < TABS; ++i) {
            closeOne(i);
        }
        pass(CLOSE_DELAY + CLAIM_DELAY);
        for (uint256 i = 0; i < _objectedTabs.length; ++i) {
            strikeOne(i);
        }
        for (uint256 i = 0; i < TABS; ++i) {
            settleOne(i);
            finishOne(i);
        }
        bytes32 operator = account_(stranger);
        moveOne(PotKind.Locked, operator, PotKind.Credit, operator, bank.balanceOf(PotKind.Locked, operator));
        moveOne(PotKind.Stake, operator, PotKind.Credit, operator, bank.balanceOf(PotKind.Stake, operator));
        moveOne(PotKind.Bond, CASE, PotKind.Credit, operator, bank.balanceOf(PotKind.Bond, CASE));
        for (uint256 i = 0; i < 4; ++i) {
            withdrawOne(i);
        }
    }
}
