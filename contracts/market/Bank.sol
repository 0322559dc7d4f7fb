// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {Tabs} from "./Tabs.sol";
import {IBank} from "./interfaces/IBank.sol";
import {ILeaves} from "./interfaces/ILeaves.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {Claim, ClaimState, LeafKind, Movement, PotKind, Tab, Voucher} from "./interfaces/MarketTypes.sol";
import {Work} from "./interfaces/Signed.sol";
import {Purse, Purses} from "./libraries/Purses.sol";
import {SumTree} from "./libraries/SumTree.sol";

/// @title All money: stake, tabs, bonds, credit, and claims on tabs
/// @notice See IBank. What a payee is owed and was not acknowledged is claimed here, objected to, answered and settled.
contract Bank is Tabs {
    using Purses for uint256;

    /// @dev Gas that a claim with its settlement, and an answer with an order, a promise of a check or of inference, and
    /// that a place is empty are paid back: below the least they cost (BankGas.t.sol, AnswerGas.t.sol), so that nobody
    /// profits.
    uint256 private constant CLAIM_GAS = 100_000;

    uint256 private constant ORDER_GAS = 130_000;
    uint256 private constant CHECK_GAS = 115_000;
    uint256 private constant PROMISE_GAS = 98_000;
    uint256 private constant EMPTY_GAS = 48_000;

    /// @dev Gas of an objection and a strike, less the deposit: a claim that was struck cost its payer so much.
    uint256 private constant STRUCK_GAS = 90_000;

    uint256 private constant GAS_UNIT = 1e9;

    /// @dev What a claim is paid back for gas in a token: at most one in this many of what it brought.
    uint256 private constant TOKEN_SHARE = 10;

    /// @dev Open objections of a claim: as many as an honest payee can answer within the window, whatever it costs the
    /// payer.
    uint256 private constant MAXIMUM_OBJECTIONS = 32;

    uint256 private constant WINDOW = 255;
    bytes32 private constant OBJECTION = keccak256("troth/market/objection/1");

    // --------------------------------------------------------------------------------------------------------- claims

    /// @inheritdoc IBank
    function claim(Tab calldata tab, Voucher calldata voucher, bytes calldata signature, Claim calldata claim_)
        external
        nonReentrantView
    {
        bytes32 id = _tabId(tab);
        if (msg.sender != tab.payee && msg.sender != IRegistry(REGISTRY).ownerOf(tab.payee)) {
            revert NotPayee(id, msg.sender);
        }
        uint256 word = _requireKnown(id).word;
        uint256 closesAt = word.due();
        if (closesAt != 0 && block.number >= closesAt) revert TabIsClosing(id, uint40(closesAt));
        if (_claims[id] != 0) revert ClaimUnderWay(id);
        _requireWord(id, voucher);
        _requireNumbers(voucher, claim_);
        uint256 owed = uint256(voucher.spent) + claim_.total;
        if (owed > voucher.authorised) revert ClaimAboveAuthorised(owed, voucher.authorised);
        if (owed <= word.second()) revert NothingToRedeem(id, uint96(owed), uint96(word.second()));
        if (!_isSigned(domainSeparator(), tab.key, _voucherHash(voucher), signature)) _refuse(tab, voucher);
        _file(id, ClaimState(claim_, voucher, uint96(owed), uint40(block.number + CLAIM_DELAY), msg.sender));
    }

    /// @inheritdoc IBank
    function object(Tab calldata tab, ClaimState calldata state, uint64 sequence) external payable nonReentrantView {
        (bytes32 id, bytes32 claimId, uint256 count) = _requireClaim(tab, state);
        if (msg.sender != tab.payer && msg.sender != tab.key) revert NotPayer(id, msg.sender);
        uint256 deadline = block.number + ANSWER_WINDOW;
        if (deadline >= state.settlesAt) revert TooLateToObject(state.settlesAt, block.number);
        uint64 first = state.claim.first;
        if (sequence < first || (sequence - first) >> SumTree.depthOf(first, state.claim.last) != 0) {
            revert NotClaimed(sequence);
        }
        if (count == MAXIMUM_OBJECTIONS) revert TooManyObjections(claimId, uint16(count));
        bytes32 objectionId = _objectionId(claimId, sequence);
        Purse storage objection = _bonds[objectionId];
        if (objection.word != 0) revert AlreadyObjected(claimId, sequence);
        objection.word = uint256(0).withDue(deadline);
        _claims[id] = uint256(claimId) | (count + 1);
        uint96 deposit = _reserve(id, claimId, objectionId, state.owed);
        emit Objected(id, claimId, sequence, msg.sender, deposit, uint40(deadline));
    }

    /// @inheritdoc IBank
    function answer(
        Tab calldata tab,
        ClaimState calldata state,
        uint64 sequence,
        LeafKind kind,
        uint96 amount,
        bytes32[] calldata siblings,
        uint96[] calldata sums,
        bytes calldata leaf
    ) external nonReentrantView {
        (bytes32 id, bytes32 claimId, uint256 count) = _requireClaim(tab, state);
        bytes32 objectionId = _objectionId(claimId, sequence);
        uint40 deadline = uint40(_bonds[objectionId].word.due());
        if (deadline == 0) revert NoObjection(claimId, sequence);
        if (block.number > deadline) revert AnswerTooLate(deadline, block.number);
        _requirePlace(state.claim, sequence, amount, siblings, sums);
        if (amount != 0) _requireWorth(tab, kind, sequence, amount, leaf);
        _claims[id] = uint256(claimId) | (count - 1);
        uint256 used = amount == 0 ? EMPTY_GAS : kind == LeafKind.Order ? ORDER_GAS : _promiseGas(leaf);
        if (used != ORDER_GAS) {
            uint256 rest = _bonds[objectionId].word.balance() * (ORDER_GAS - used) / ORDER_GAS;
            if (rest != 0) _announce(claimId, Movement(PotKind.Bond, objectionId, PotKind.Tab, id, uint96(rest)));
        }
        _release(claimId, objectionId, PotKind.Credit, _id(msg.sender));
        emit ObjectionAnswered(id, claimId, sequence, amount);
    }

    /// @inheritdoc IBank
    function strike(Tab calldata tab, ClaimState calldata state, uint64 sequence) external nonReentrantView {
        bytes32 id = _tabId(tab);
        if (state.voucher.tab != id) revert ForeignVoucher(id, state.voucher.tab);
        bytes32 claimId = _idOf(state);
        bytes32 objectionId = _objectionId(claimId, sequence);
        uint40 deadline = uint40(_bonds[objectionId].word.due());
        if (deadline == 0) revert NoObjection(claimId, sequence);
        // A claim with open objections ends only by being struck: if it is gone, what is left is to return the deposit.
        if (_claims[id] & ~COUNTER == uint256(claimId)) {
            if (block.number <= deadline) revert AnswerStillPossible(deadline, block.number);
            delete _claims[id];
            emit ClaimStruck(id, claimId, sequence);
            _charge(id, state.voucher.authorised);
        }
        if (_tabs[id].word.known()) _release(claimId, objectionId, PotKind.Tab, id);
        else _release(claimId, objectionId, PotKind.Credit, _id(tab.payer));
    }

    /// @inheritdoc IBank
    function settle(Tab calldata tab, ClaimState calldata state) external nonReentrantView {
        (bytes32 id, bytes32 claimId, uint256 count) = _requireClaim(tab, state);
        if (count != 0) revert ObjectionsOpen(claimId, uint16(count));
        if (block.number < state.settlesAt) revert ClaimNotDue(state.settlesAt, block.number);
        delete _claims[id];
        uint96 paid = uint96(_pay(id, state.owed));
        if (paid != 0) _add(PotKind.Credit, _id(tab.payee), paid);
        uint256 word = _tabs[id].word;
        uint96 short = uint96(Math.saturatingSub(state.owed, word.second()));
        if (short != 0) {
            _shown[id] = Shown(uint96(Math.max(_shown[id].owed, state.owed)), uint40(block.number));
        }
        // Not above what the claim brought: many small claims cannot drain a tab. And only what no word of the payer's says
        // is owed: its promises stay covered.
        uint256 promised = Math.saturatingSub(state.voucher.authorised, word.second());
        uint256 free = Math.saturatingSub(word.balance(), promised);
        uint96 back = uint96(Math.min(Math.min(_gasFee(CLAIM_GAS), _mostBack(paid)), free));
        if (back != 0) _announce(claimId, Movement(PotKind.Tab, id, PotKind.Credit, _id(state.claimer), back));
        emit ClaimSettled(id, claimId, state.owed, paid, short);
    }

    /// @inheritdoc IBank
    function forgive(bytes32 tab, uint96 amount) external {
        if (msg.sender != EVIDENCE) revert NotAuthorised(msg.sender);
        (uint96 short,) = shortOf(tab);
        if (amount > short) revert AmountTooLarge(amount);
        uint256 word = _tabs[tab].word + Purses.asSecond(amount);
        _tabs[tab].word = word;
        emit TabForgiven(tab, amount, uint96(word.second()));
    }

    /// @inheritdoc IBank
    function claimOf(bytes32 tab) external view returns (bytes32 claimId, uint16 objections) {
        uint256 word = _claims[tab];
        return (bytes32(word & ~COUNTER), uint16(word));
    }

    /// @inheritdoc IBank
    function objectionOf(bytes32 claimId, uint64 sequence) external view returns (uint96 deposit, uint40 deadline) {
        uint256 word = _bonds[_objectionId(claimId, sequence)].word;
        return (uint96(word.balance()), uint40(word.due()));
    }

    // -------------------------------------------------------------------------------------------------- claims' inside

    function _file(bytes32 id, ClaimState memory state) private {
        bytes32 claimId = bytes32(uint256(keccak256(abi.encode(state))) & ~COUNTER);
        _claims[id] = uint256(claimId);
        emit Claimed(id, claimId, state);
    }

    /// @dev All numbers are authorised by the voucher and, unless the claim leaves them out, not acknowledged by it.
    function _requireNumbers(Voucher calldata voucher, Claim calldata claim_) private pure {
        (uint64 first, uint64 last, uint64 through) = (claim_.first, claim_.last, voucher.acknowledgedThrough);
        bool valid = first != 0 && first <= last && last <= voucher.sequence && claim_.total != 0
            && uint256(last) - first >> SumTree.MAXIMUM_DEPTH == 0;
        if (valid && through >= first) {
            uint256 distance = through - first;
            valid = distance <= WINDOW;
            if (valid) {
                // Bit i of all three: number first + i.
                uint256 open = _reversed(voucher.exceptions) >> (WINDOW - distance);
                uint256 range = type(uint256).max >> (WINDOW - Math.min(distance, last - first));
                valid = range & ~open & ~claim_.exceptions == 0;
            }
        }
        if (!valid) revert InvalidClaim(first, last, claim_.total);
    }

    /// @dev Bit i becomes bit 255 - i: halves are swapped, then halves of halves, down to neighbours.
    function _reversed(uint256 bits) private pure returns (uint256) {
        uint256 mask = type(uint256).max;
        for (uint256 width = 128; width != 0; width >>= 1) {
            mask ^= mask << width;
            bits = bits >> width & mask | bits << width & ~mask;
        }
        return bits;
    }

    /// @return id of the tab
    /// @return claimId of the claim under way, whose state this is
    /// @return count of open objections
    function _requireClaim(Tab calldata tab, ClaimState calldata state)
        private
        view
        returns (bytes32 id, bytes32 claimId, uint256 count)
    {
        id = _tabId(tab);
        claimId = _idOf(state);
        uint256 word = _claims[id];
        if (word & ~COUNTER != uint256(claimId)) revert ClaimMismatch(id, bytes32(word & ~COUNTER), claimId);
        count = word & COUNTER;
    }

    /// @dev Takes the deposit from what the tab holds beyond what is claimed: an objection must not be paid with the
    /// payee's money. Who has no such money in the tab, or gives value, pays it itself.
    function _reserve(bytes32 id, bytes32 claimId, bytes32 objectionId, uint96 owed) private returns (uint96 deposit) {
        deposit = _gasFee(ORDER_GAS);
        if (msg.value == 0) {
            uint256 word = _tabs[id].word;
            if (word.balance() >= Math.saturatingSub(owed, word.second()) + deposit) {
                if (deposit != 0) {
                    _announce(claimId, Movement(PotKind.Tab, id, PotKind.Bond, objectionId, deposit));
                }
                return deposit;
            }
        }
        if (ASSET == address(0) && msg.value > deposit) deposit = _narrow(msg.value);
        deposit = _take(msg.sender, deposit);
        _add(PotKind.Bond, objectionId, deposit);
        emit Collected(claimId, msg.sender, PotKind.Bond, objectionId, deposit, deposit);
    }

    /// @dev Of a leaf that was found worth something: it begins with its promise, whose fifth word says for what work.
    function _promiseGas(bytes calldata leaf) private pure returns (uint256) {
        return uint256(bytes32(leaf[0x80:])) == uint256(Work.Check) ? CHECK_GAS : PROMISE_GAS;
    }

    /// @dev What a struck claim cost its payer counts as redeemed, up to what was ever authorised: else a payee would
    /// have its payer object and strike again and again, at more than the claims cost itself.
    function _charge(bytes32 id, uint256 authorised) private {
        uint256 word = _tabs[id].word;
        uint96 fee = uint96(Math.min(_gasFee(STRUCK_GAS), Math.saturatingSub(authorised, word.second())));
        if (fee == 0) return;
        _tabs[id].word = word + Purses.asSecond(fee);
        emit TabForgiven(id, fee, uint96(word.second() + fee));
    }

    /// @dev Ends an objection; its deposit goes to a pot.
    function _release(bytes32 claimId, bytes32 objectionId, PotKind kind, bytes32 id) private {
        Purse storage objection = _bonds[objectionId];
        uint96 deposit = uint96(objection.word.balance());
        objection.word = deposit;
        if (deposit != 0) _announce(claimId, Movement(PotKind.Bond, objectionId, kind, id, deposit));
    }

    function _requirePlace(
        Claim calldata claim_,
        uint64 sequence,
        uint96 amount,
        bytes32[] calldata siblings,
        uint96[] calldata sums
    ) private pure {
        (uint64 first, uint64 last) = (claim_.first, claim_.last);
        uint256 index = sequence - first;
        // What is beyond the last number or left out must be an empty place: a tree could hide money there.
        if (amount != 0 && (sequence > last || (index <= WINDOW && claim_.exceptions >> index & 1 == 1))) {
            revert NotClaimed(sequence);
        }
        uint256 depth = SumTree.depthOf(first, last);
        bytes32 leaf = SumTree.leafHash(sequence, amount);
        (bytes32 root, uint96 sum) = SumTree.climb(leaf, amount, index, depth, siblings, sums);
        bytes32 shown = SumTree.claimRoot(root, sum, first, last);
        if (shown != claim_.root || sum != claim_.total) revert WrongPath(claim_.root, shown);
    }

    function _requireWorth(Tab calldata tab, LeafKind kind, uint64 sequence, uint96 amount, bytes calldata leaf)
        private
        view
    {
        uint96 worth = ILeaves(LEAVES).leafWorth(tab, kind, sequence, leaf);
        if (worth < amount) revert LeafWorthLess(sequence, worth, amount);
    }

    function _objectionId(bytes32 claimId, uint64 sequence) private pure returns (bytes32) {
        return _hash(OBJECTION, claimId, bytes32(uint256(sequence)));
    }

    /// @dev Of what a claim brought, the most that comes on top of it. Nobody knows here what gas costs in a token: where it
    /// costs less than the deployment's price says, a payee would double its pay by many small claims.
    function _mostBack(uint256 paid) private view returns (uint256) {
        return ASSET == address(0) ? paid : paid / TOKEN_SHARE;
    }

    /// @dev What so much gas is paid back with: the deployment's price, for the coin at most the block's.
    function _gasFee(uint256 gas_) private view returns (uint96) {
        uint256 price = GAS_PRICE;
        if (ASSET == address(0)) price = Math.min(price, block.basefee * GAS_UNIT);
        return uint96(gas_ * price / GAS_UNIT);
    }

    /// @dev Of a claim, as `_file` gives it.
    function _idOf(ClaimState calldata state) private pure returns (bytes32) {
        bytes32 hash;
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, state, 0x1c0)
            hash := keccak256(free, 0x1c0)
        }
        return bytes32(uint256(hash) & ~COUNTER);
    }
}
