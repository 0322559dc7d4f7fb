// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {LowLevelCall} from "@openzeppelin/contracts/utils/LowLevelCall.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {ILeaves} from "./interfaces/ILeaves.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {
    Claim,
    ClaimState,
    LeafKind,
    Movement,
    Parameters,
    PotKind,
    Tab,
    TabState,
    Voucher,
    Work
} from "./interfaces/MarketTypes.sol";
import {Messages} from "./libraries/Messages.sol";
import {Purse, Purses} from "./libraries/Purses.sol";
import {SumTree} from "./libraries/SumTree.sol";

/// @title All money: stake, tabs, bonds, credit
/// @notice See IBank. Money is in pots. `_move` alone moves it between them (what vouchers take out of tabs, and each
///         payment of a case out of its bond, is added to the payee's credit where it is taken); `_take` and `_send` are the only doors, and nothing of claims can run while
///         a token does.
contract Bank is IBank, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;
    using Purses for uint256;

    /// @notice The largest sum that settled claims of a tab showed, where one was not covered.
    struct Shown {
        uint96 owed;
        uint40 blockNumber;
    }

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
    /// @dev Open objections of a claim: as many as an honest payee can answer within the window, whatever it costs the
    /// payer.
    uint256 private constant MAXIMUM_OBJECTIONS = 32;
    uint256 private constant WINDOW = 255;
    /// @dev Of a movement in `moveMany`: two kinds, account, amount.
    uint256 private constant MOVEMENT_BYTES = 33;
    /// @dev Kinds of a movement from a bond (PotKind.Bond) to an account's credit (PotKind.Credit).
    uint256 private constant PAYMENT = 0x40;
    bytes32 private constant OBJECTION = keccak256("troth/market/objection/1");
    /// @dev Half of secp256k1's order: the other s of a signature is refused.
    uint256 private constant HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;
    /// @dev The lowest bits of a claim's word count its open objections; the rest is its id.
    uint256 private constant COUNTER = type(uint16).max;

    address public immutable ASSET;
    address private immutable REGISTRY;
    address private immutable COURT;
    address private immutable SUMMONS;
    address private immutable EVIDENCE;
    address private immutable LEAVES;
    uint256 private immutable CLAIM_DELAY;
    uint256 private immutable ANSWER_WINDOW;
    uint256 private immutable CLOSE_DELAY;
    uint256 private immutable GAS_PRICE;
    uint256 private immutable CHAIN;
    bytes32 private immutable DOMAIN;

    mapping(bytes32 account => Purse) private _credits;
    mapping(bytes32 operator => Purse) private _stakes;
    mapping(bytes32 tab => Purse) private _tabs;
    mapping(bytes32 id => Purse) private _bonds;
    Purse private _burnt;
    mapping(bytes32 tab => uint256 word) private _claims;
    mapping(bytes32 tab => Shown) private _shown;

    constructor() {
        Parameters memory chosen = IDeployment(msg.sender).parameters();
        Contracts memory parts = IDeployment(msg.sender).contracts();
        (ASSET, GAS_PRICE) = (chosen.asset, chosen.gasPrice);
        (CLAIM_DELAY, ANSWER_WINDOW, CLOSE_DELAY) = (chosen.claimDelay, chosen.answerWindow, chosen.closeDelay);
        (REGISTRY, COURT) = (parts.registry, parts.court);
        (SUMMONS, EVIDENCE, LEAVES) = (parts.summons, parts.evidence, parts.leaves);
        CHAIN = block.chainid;
        DOMAIN = Messages.separator(address(this));
    }

    // ------------------------------------------------------------------------------------------------------ movements

    /// @inheritdoc IBank
    function move(bytes32 subject, Movement[] calldata movements) external {
        if (msg.sender != EVIDENCE) _requireCollector();
        for (uint256 i = 0; i < movements.length; ++i) {
            Movement calldata movement = movements[i];
            if (movement.amount == 0) continue;
            _requirePot(movement.fromKind, movement.fromId);
            _requirePot(movement.toKind, movement.toId);
            _announce(subject, movement);
        }
    }

    /// @inheritdoc IBank
    function moveMany(bytes32 subject, bytes calldata movements) external {
        if (msg.sender != COURT) revert NotAuthorised(msg.sender);
        if (movements.length % MOVEMENT_BYTES != 0) revert InvalidMovements(movements.length);
        Purse storage bond = _bonds[subject];
        // Most are payments out of the bond, which is read and written once for all of a row.
        uint256 held = bond.word;
        (uint256 at, uint256 end) = _boundsOf(movements);
        unchecked {
            for (; at < end; at += MOVEMENT_BYTES) {
                (at, held) = _pay(at, end, held);
                if (at == end) break;
                (uint256 kinds, uint256 account, uint256 amount) = _movementAt(at);
                if (kinds == PAYMENT && account != 0) {
                    uint256 balance = held.balance();
                    if (balance < amount) {
                        revert InsufficientPot(PotKind.Bond, subject, uint96(balance), uint96(amount));
                    }
                    revert AmountTooLarge(_credits[bytes32(account)].word.balance() + amount);
                }
                bond.word = held;
                (PotKind from, PotKind to) = (PotKind(kinds >> 4), PotKind(kinds & 0xf));
                _move(from, _potOf(from, subject, account), to, _potOf(to, subject, account), uint96(amount));
                held = bond.word;
            }
        }
        bond.word = held;
        emit MovedMany(subject, movements);
    }

    /// @inheritdoc IBank
    function collect(bytes32 subject, address from, PotKind kind, bytes32 id, uint96 amount)
        external
        payable
        returns (uint96 received)
    {
        _requireCollector();
        _requirePot(kind, id);
        received = _take(from, amount);
        emit Collected(subject, from, kind, id, received, _add(kind, id, received));
    }

    /// @inheritdoc IBank
    function credit(address account, uint96 amount) external payable {
        if (account == address(0)) revert ZeroAddress();
        bytes32 id = _id(account);
        uint96 received = _take(msg.sender, amount);
        emit Collected(id, msg.sender, PotKind.Credit, id, received, _add(PotKind.Credit, id, received));
    }

    /// @inheritdoc IBank
    function withdraw(address account) external {
        Purse storage purse = _credits[_id(account)];
        uint96 amount = uint96(purse.word.balance());
        if (amount == 0) revert NothingToWithdraw(account);
        purse.word = Purses.KNOWN;
        address payout = IRegistry(REGISTRY).payoutOf(account);
        emit Withdrawn(account, payout, amount);
        if (!_send(payout, amount)) revert TransferFailed(payout, amount);
    }

    // ----------------------------------------------------------------------------------------------------------- tabs

    /// @inheritdoc IBank
    function openTab(address payee, address key, uint96 amount, bytes calldata consent)
        external
        payable
        returns (bytes32 tab)
    {
        tab = _open(payee, key, amount, consent);
    }

    /// @inheritdoc IBank
    function openTabInCoin(address payee, address key, bytes32 r, bytes32 vs) external payable returns (bytes32 tab) {
        if (msg.value == 0) revert ZeroAmount();
        if (ASSET != address(0)) revert WrongValue(msg.value, 0);
        Purse storage purse;
        uint256 word;
        (tab, purse, word) = _requireNew(payee, key);
        if (!_recovers(key, _consentDigest(payee), (uint256(vs) >> 255) + 27, r, vs << 1 >> 1)) {
            revert InvalidTabConsent(key, tab);
        }
        _begin(tab, purse, word, payee, key, _narrow(msg.value));
    }

    /// @inheritdoc IBank
    function openTabWithPermit(
        address payee,
        address key,
        uint96 amount,
        bytes calldata consent,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external returns (bytes32 tab) {
        // Somebody may have used the permit already; then the allowance is there, and if it is not, the transfer says
        // so.
        if (ASSET != address(0)) {
            // solhint-disable-next-line no-empty-blocks
            try IERC20Permit(ASSET).permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
        }
        tab = _open(payee, key, amount, consent);
    }

    /// @inheritdoc IBank
    function topUp(bytes32 tab, uint96 amount) external payable {
        Purse storage purse = _requireOpen(tab);
        uint96 received = _take(msg.sender, amount);
        emit TabToppedUp(tab, received, _put(purse, received));
    }

    /// @inheritdoc IBank
    function redeem(Tab calldata tab, Voucher calldata voucher, bytes calldata signature)
        external
        returns (uint96)
    {
        uint256 paid = _redeem(domainSeparator(), tab, voucher, signature);
        if (paid == 0) {
            uint256 word = _requireKnown(voucher.tab).word;
            revert NothingToRedeem(voucher.tab, voucher.spent, uint96(word.second()));
        }
        _put(_credits[_id(tab.payee)], paid);
        return uint96(paid);
    }

    /// @inheritdoc IBank
    function redeemMany(Tab[] calldata tabs, Voucher[] calldata vouchers, bytes[] calldata signatures)
        external
        returns (uint96)
    {
        if (tabs.length != vouchers.length || tabs.length != signatures.length) {
            revert LengthsDiffer(tabs.length, vouchers.length, signatures.length);
        }
        bytes32 domain = domainSeparator();
        bytes32 payee;
        uint256 paid;
        uint256 sum;
        for (uint256 i = 0; i < tabs.length; ++i) {
            Tab calldata tab = _at(tabs, i);
            uint256 part = _redeem(domain, tab, _at(vouchers, i), _at(signatures, i));
            if (_payeeOf(tab) != payee) {
                if (sum != 0) _put(_credits[payee], sum);
                (payee, sum) = (_payeeOf(tab), 0);
            }
            // Far more sums of 96 bits fit than a block holds.
            unchecked {
                sum += part;
                paid += part;
            }
        }
        if (sum != 0) _put(_credits[payee], sum);
        return _narrow(paid);
    }

    /// @inheritdoc IBank
    function close(Tab calldata tab) external {
        bytes32 id = _tabId(tab);
        if (msg.sender != tab.payer) revert NotPayer(id, msg.sender);
        Purse storage purse = _requireOpen(id);
        uint256 closesAt = block.number + CLOSE_DELAY;
        purse.word = purse.word.withDue(closesAt);
        emit TabClosing(id, uint40(closesAt));
    }

    /// @inheritdoc IBank
    function finishClosing(Tab calldata tab) external {
        bytes32 id = _tabId(tab);
        Purse storage purse = _requireKnown(id);
        uint256 word = purse.word;
        uint40 closesAt = uint40(word.due());
        if (closesAt == 0) revert TabNotClosing(id);
        if (block.number < closesAt) revert TabStillClosing(id, closesAt, block.number);
        if (_claims[id] != 0) revert ClaimUnderWay(id);
        purse.word = Purses.asSecond(word.second());
        uint96 rest = uint96(word.balance());
        if (rest != 0 && !_send(tab.payer, rest)) {
            // It stays here until the payer can be paid, and nobody else waits for that.
            _add(PotKind.Tab, id, rest);
            _announce(id, Movement(PotKind.Tab, id, PotKind.Credit, _id(tab.payer), rest));
            rest = 0;
        }
        emit TabClosed(id, rest);
    }

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
        uint96 back = uint96(Math.min(Math.min(_gasFee(CLAIM_GAS), paid), free));
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

    // ---------------------------------------------------------------------------------------------------------- reads

    /// @inheritdoc IBank
    function domainSeparator() public view returns (bytes32) {
        // A fork that changes the chain's number gets a domain of its own.
        return block.chainid == CHAIN ? DOMAIN : Messages.separator(address(this));
    }

    /// @inheritdoc IBank
    function tabOf(bytes32 tab) external view returns (TabState memory) {
        uint256 word = _tabs[tab].word;
        return TabState(uint96(word.balance()), uint96(word.second()), uint40(word.due()), word.known());
    }

    /// @inheritdoc IBank
    function balanceOf(PotKind kind, bytes32 id) external view returns (uint96) {
        uint256 word = _purse(kind, id).word;
        return uint96(kind == PotKind.Locked ? word.second() : word.balance());
    }

    /// @inheritdoc IBank
    function stakeOf(address operator) external view returns (uint96 stake, uint96 locked) {
        uint256 word = _stakes[_id(operator)].word;
        return (uint96(word.balance()), uint96(word.second()));
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

    /// @inheritdoc IBank
    function shortOf(bytes32 tab) public view returns (uint96 short, uint40 blockNumber) {
        Shown memory shown = _shown[tab];
        return (uint96(Math.saturatingSub(shown.owed, _tabs[tab].word.second())), shown.blockNumber);
    }

    // ---------------------------------------------------------------------------------------------------- tabs' inside

    function _open(address payee, address key, uint96 amount, bytes calldata consent) private returns (bytes32 tab) {
        Purse storage purse;
        uint256 word;
        (tab, purse, word) = _requireNew(payee, key);
        if (!_isAgreed(key, _consentDigest(payee), consent)) revert InvalidTabConsent(key, tab);
        uint256 received = _take(msg.sender, amount);
        if (ASSET != address(0)) word = purse.word; // a token may have let others act
        _begin(tab, purse, word, payee, key, received);
    }

    /// @dev The word of a tab that is not open: what was redeemed of it in an earlier life.
    function _requireNew(address payee, address key)
        private
        view
        returns (bytes32 tab, Purse storage purse, uint256 word)
    {
        if (payee == address(0)) revert ZeroAddress();
        tab = _hash(_id(msg.sender), _id(payee), _id(key));
        purse = _tabs[tab];
        word = purse.word;
        if (word.known()) {
            if (word.due() == 0) revert TabAlreadyOpen(tab);
            revert TabIsClosing(tab, uint40(word.due()));
        }
    }

    function _consentDigest(address payee) private view returns (bytes32) {
        return _digest(domainSeparator(), _hash(Messages.TAB_CONSENT_TYPE, _id(msg.sender), _id(payee)));
    }

    /// @dev A closed tab's balance is zero.
    function _begin(bytes32 tab, Purse storage purse, uint256 word, address payee, address key, uint256 received)
        private
    {
        unchecked {
            purse.word = word + received + Purses.KNOWN;
        }
        emit TabOpened(tab, msg.sender, payee, key, uint96(received));
    }

    /// @dev Takes out of the tab what the voucher pays; the caller adds it to the payee's credit. Where there is
    /// nothing to pay nobody looks at the signature.
    function _redeem(bytes32 domain, Tab calldata tab, Voucher calldata voucher, bytes calldata signature)
        private
        returns (uint256 paid)
    {
        bytes32 id = _tabId(tab);
        paid = _pay(id, _requireWord(id, voucher));
        // After the effects, as a key that is a contract is asked; a refusal undoes them.
        if (paid != 0 && !_isSigned(domain, _keyOf(tab), _voucherHash(voucher), signature)) _refuse(tab, voucher);
    }

    /// @dev Takes out of the tab what is owed above what was redeemed, or as much of it as there is; the caller adds it
    /// to the payee's credit. A closed tab holds nothing.
    function _pay(bytes32 id, uint256 owed) private returns (uint256 paid) {
        Purse storage purse = _tabs[id];
        uint256 word = purse.word;
        uint256 redeemed = word.second();
        if (owed <= redeemed) return 0;
        unchecked {
            paid = owed - redeemed;
            uint256 balance = word.balance();
            if (paid > balance) paid = balance;
            if (paid == 0) return 0;
            // `redeemed` stays at most `owed`, so that both fields hold.
            purse.word = word - paid + Purses.asSecond(paid);
        }
        emit TabRedeemed(id, uint96(paid));
    }

    function _requireKnown(bytes32 id) private view returns (Purse storage purse) {
        purse = _tabs[id];
        if (!purse.word.known()) revert UnknownTab(id);
    }

    function _requireOpen(bytes32 id) private view returns (Purse storage purse) {
        purse = _tabs[id];
        uint256 word = purse.word;
        if (!word.known()) revert UnknownTab(id);
        if (word.due() != 0) revert TabIsClosing(id, uint40(word.due()));
    }

    /// @return spent what the voucher, which is one of this tab, says is payable at once
    function _requireWord(bytes32 id, Voucher calldata voucher) private pure returns (uint256 spent) {
        if (voucher.tab != id) revert ForeignVoucher(id, voucher.tab);
        uint256 authorised;
        assembly ("memory-safe") {
            spent := calldataload(add(voucher, 0x20))
            authorised := calldataload(add(voucher, 0x40))
        }
        if (spent > authorised) revert SpentAboveAuthorised(voucher.spent, voucher.authorised);
        if (authorised >> 96 != 0) revert AmountTooLarge(authorised);
    }

    function _refuse(Tab calldata tab, Voucher calldata voucher) private pure {
        revert InvalidVoucher(tab.key, _voucherHash(voucher));
    }

    function _isSigned(bytes32 domain, address key, bytes32 structHash, bytes calldata signature)
        private
        view
        returns (bool)
    {
        return _isAgreed(key, _digest(domain, structHash), signature);
    }

    function _digest(bytes32 domain, bytes32 structHash) private pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, shl(240, 0x1901))
            mstore(add(free, 0x02), domain)
            mstore(add(free, 0x22), structHash)
            digest := keccak256(free, 0x42)
        }
    }

    /// @dev An account's own signature counts whether it has code or not (and most have none, which then costs nothing
    /// to find out); a contract is asked by EIP-1271. As ECDSA.tryRecover does: 65 bytes, s of the lower half only.
    function _isAgreed(address key, bytes32 digest, bytes calldata signature) private view returns (bool valid) {
        assembly ("memory-safe") {
            if eq(signature.length, 65) {
                let free := mload(0x40)
                mstore(free, digest)
                mstore(add(free, 0x20), byte(0, calldataload(add(signature.offset, 0x40))))
                calldatacopy(add(free, 0x40), signature.offset, 0x40)
                if iszero(gt(mload(add(free, 0x60)), HALF_ORDER)) {
                    // The precompile returns nothing where nobody signed.
                    pop(staticcall(gas(), 1, free, 0x80, 0, 0x20))
                    valid := and(eq(returndatasize(), 0x20), eq(mload(0), key))
                }
            }
        }
        if (!valid) valid = SignatureChecker.isValidERC1271SignatureNowCalldata(key, digest, signature);
    }

    /// @dev The same for a signature of 64 bytes: s of the lower half only.
    function _recovers(address key, bytes32 digest, uint256 v, bytes32 r, bytes32 s) private view returns (bool valid) {
        if (uint256(s) > HALF_ORDER) return false;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, digest)
            mstore(add(free, 0x20), v)
            mstore(add(free, 0x40), r)
            mstore(add(free, 0x60), s)
            // The precompile returns nothing where nobody signed.
            pop(staticcall(gas(), 1, free, 0x80, 0, 0x20))
            valid := and(eq(returndatasize(), 0x20), eq(mload(0), key))
        }
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

    /// @dev What so much gas is paid back with: the deployment's price, for the coin at most the block's.
    function _gasFee(uint256 gas_) private view returns (uint96) {
        uint256 price = GAS_PRICE;
        if (ASSET == address(0)) price = Math.min(price, block.basefee * GAS_UNIT);
        return uint96(gas_ * price / GAS_UNIT);
    }

    // -------------------------------------------------------------------------------------------------- pots and doors

    function _announce(bytes32 subject, Movement memory movement) private {
        (PotKind fromKind, bytes32 fromId) = (movement.fromKind, movement.fromId);
        (PotKind toKind, bytes32 toId) = (movement.toKind, movement.toId);
        (uint96 fromBalance, uint96 toBalance) = _move(fromKind, fromId, toKind, toId, movement.amount);
        emit Moved(subject, fromKind, fromId, toKind, toId, movement.amount, fromBalance, toBalance);
    }

    /// @dev The only code that changes two pots: what one loses the other gains.
    function _move(PotKind fromKind, bytes32 fromId, PotKind toKind, bytes32 toId, uint96 amount)
        private
        returns (uint96 fromBalance, uint96 toBalance)
    {
        Purse storage purse = _purse(fromKind, fromId);
        uint256 word = purse.word;
        bool second = fromKind == PotKind.Locked;
        // Nobody spends what is burnt.
        uint256 balance = fromKind == PotKind.Burnt ? 0 : second ? word.second() : word.balance();
        if (balance < amount) revert InsufficientPot(fromKind, fromId, uint96(balance), amount);
        purse.word = word - (second ? Purses.asSecond(amount) : amount);
        fromBalance = uint96(balance - amount);
        toBalance = _add(toKind, toId, amount);
    }

    function _add(PotKind kind, bytes32 id, uint256 amount) private returns (uint96 balance) {
        Purse storage purse = _purse(kind, id);
        if (kind != PotKind.Locked) return _put(purse, amount);
        uint256 word = purse.word;
        balance = _narrow(word.second() + amount);
        purse.word = word + Purses.asSecond(amount);
    }

    function _put(Purse storage purse, uint256 amount) private returns (uint96 balance) {
        uint256 word = purse.word;
        unchecked {
            balance = _narrow(word.balance() + amount);
            purse.word = word + amount;
        }
    }

    function _purse(PotKind kind, bytes32 id) private view returns (Purse storage) {
        if (kind == PotKind.Tab) return _tabs[id];
        if (kind == PotKind.Credit) return _credits[id];
        if (kind == PotKind.Bond) return _bonds[id];
        return kind == PotKind.Burnt ? _burnt : _stakes[id];
    }

    /// @dev The door in. What arrived counts.
    function _take(address from, uint96 amount) private returns (uint96 received) {
        if (amount == 0) revert ZeroAmount();
        if (ASSET != address(0)) return _takeToken(from, amount);
        if (msg.value != amount) revert WrongValue(msg.value, amount);
        return amount;
    }

    function _takeToken(address from, uint96 amount) private nonReentrant returns (uint96 received) {
        if (msg.value != 0) revert WrongValue(msg.value, 0);
        IERC20 token = IERC20(ASSET);
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(from, address(this), amount);
        received = _narrow(Math.saturatingSub(token.balanceOf(address(this)), before));
        if (received == 0) revert ZeroAmount();
    }

    /// @dev The door out; false if the receiver cannot be paid.
    function _send(address to, uint96 amount) private nonReentrant returns (bool sent) {
        if (ASSET == address(0)) return LowLevelCall.callNoReturn(to, amount, "");
        IERC20 token = IERC20(ASSET);
        uint256 before = token.balanceOf(address(this));
        sent = token.trySafeTransfer(to, amount);
        uint256 taken = Math.saturatingSub(before, token.balanceOf(address(this)));
        if (taken > (sent ? amount : 0)) revert TokenTookMore(taken, amount);
    }

    function _requireCollector() private view {
        if (msg.sender != REGISTRY && msg.sender != COURT && msg.sender != SUMMONS) revert NotAuthorised(msg.sender);
    }

    /// @dev Tabs are nobody's but their parties', and an account's pot must be an account's, or its money is lost.
    function _requirePot(PotKind kind, bytes32 id) private pure {
        bool account = kind == PotKind.Credit || kind == PotKind.Stake || kind == PotKind.Locked;
        bool known = account ? id != 0 && uint256(id) >> 160 == 0 : kind == PotKind.Bond || id == 0;
        if (kind == PotKind.Tab || !known) revert InvalidPot(kind, id);
    }

    /// @dev Makes payments out of a bond to credits, as long as nothing but payments follow, the bond suffices, and the
    ///      credit has room.
    /// @param held the bond's word
    /// @return where the first movement is that was not made, or the end
    function _pay(uint256 at, uint256 end, uint256 held) private returns (uint256, uint256) {
        assembly ("memory-safe") {
            mstore(0x20, _credits.slot)
            for { } lt(at, end) { at := add(at, MOVEMENT_BYTES) } {
                let rest := calldataload(add(at, 1))
                let account := shr(96, rest)
                let amount := and(rest, 0xffffffffffffffffffffffff)
                let payment := and(eq(byte(0, calldataload(at)), PAYMENT), iszero(iszero(account)))
                if or(iszero(payment), lt(and(held, 0xffffffffffffffffffffffff), amount)) { break }
                mstore(0, account)
                let slot := keccak256(0, 0x40)
                let word := sload(slot)
                if shr(96, add(and(word, 0xffffffffffffffffffffffff), amount)) { break }
                held := sub(held, amount)
                sstore(slot, add(word, amount))
            }
        }
        return (at, held);
    }

    /// @dev Where in the calldata movements begin and end.
    function _boundsOf(bytes calldata movements) private pure returns (uint256 begin, uint256 end) {
        assembly ("memory-safe") {
            begin := movements.offset
            end := add(begin, movements.length)
        }
    }

    function _movementAt(uint256 at) private pure returns (uint256 kinds, uint256 account, uint256 amount) {
        assembly ("memory-safe") {
            kinds := byte(0, calldataload(at))
            let rest := calldataload(add(at, 1))
            account := shr(96, rest)
            amount := and(rest, 0xffffffffffffffffffffffff)
        }
    }

    /// @dev Which pot of this kind a case's movement means.
    function _potOf(PotKind kind, bytes32 subject, uint256 account) private pure returns (bytes32 id) {
        if (kind == PotKind.Bond) return subject;
        id = kind == PotKind.Burnt ? bytes32(0) : bytes32(account);
        _requirePot(kind, id);
    }

    function _narrow(uint256 amount) private pure returns (uint96) {
        if (amount > type(uint96).max) revert AmountTooLarge(amount);
        return uint96(amount);
    }

    function _id(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    // ---- call data without copies and checks, which cost a third of a redemption

    // An element is in bounds, for the lengths of its arrays are equal; a wrong offset of a signature finds other bytes,
    // and no signature.

    function _at(Tab[] calldata tabs, uint256 i) private pure returns (Tab calldata tab) {
        assembly ("memory-safe") {
            tab := add(tabs.offset, mul(i, 0x60))
        }
    }

    function _at(Voucher[] calldata vouchers, uint256 i) private pure returns (Voucher calldata voucher) {
        assembly ("memory-safe") {
            voucher := add(vouchers.offset, mul(i, 0xc0))
        }
    }

    function _at(bytes[] calldata signatures, uint256 i) private pure returns (bytes calldata signature) {
        assembly ("memory-safe") {
            let at := add(signatures.offset, calldataload(add(signatures.offset, shl(5, i))))
            signature.offset := add(at, 0x20)
            signature.length := calldataload(at)
        }
    }

    /// @dev Only where a tab has paid: its id was made of addresses that have nothing in their upper bits.
    function _payeeOf(Tab calldata tab) private pure returns (bytes32 payee) {
        assembly ("memory-safe") {
            payee := calldataload(add(tab, 0x20))
        }
    }

    /// @dev As `_payeeOf`.
    function _keyOf(Tab calldata tab) private pure returns (address key) {
        assembly ("memory-safe") {
            key := calldataload(add(tab, 0x40))
        }
    }

    function _tabId(Tab calldata tab) private pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, tab, 0x60)
            hash := keccak256(free, 0x60)
        }
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

    function _voucherHash(Voucher calldata voucher) private pure returns (bytes32 hash) {
        bytes32 typeHash = Messages.VOUCHER_TYPE;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, typeHash)
            calldatacopy(add(free, 0x20), voucher, 0xc0)
            hash := keccak256(free, 0xe0)
        }
    }

    function _hash(bytes32 a, bytes32 b, bytes32 c) private pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, a)
            mstore(add(free, 0x20), b)
            mstore(add(free, 0x40), c)
            hash := keccak256(free, 0x60)
        }
    }
}
