// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {LowLevelCall} from "@openzeppelin/contracts/utils/LowLevelCall.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {LibBit} from "solady/src/utils/LibBit.sol";
import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IEvidence} from "./interfaces/IEvidence.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {
    Claim,
    ClaimState,
    LeafKind,
    Movement,
    Parameters,
    PotKind,
    Tab,
    TabConsent,
    TabState,
    Voucher
} from "./interfaces/MarketTypes.sol";
import {Messages} from "./libraries/Messages.sol";
import {SumTree} from "./libraries/SumTree.sol";

/// @title All money: stake, tabs, bonds, credit
/// @notice See IBank. Money is in pots; `_move` alone moves it between them, `_take` and `_send` are the only doors.
contract Bank is IBank, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    /// @notice One storage slot of money. What is beside the balance depends on the kind of pot.
    /// @param second Stake: what is locked of an operator; Tab: what was redeemed, ever
    /// @param dueBlock Tab: `closesAt`; Bond of an objection: until when it is answered
    /// @param known Tab: open or closing; Credit: was used, and stays non-zero so that the next payment is cheap
    struct Purse {
        uint96 balance;
        uint96 second;
        uint40 dueBlock;
        bool known;
    }

    /// @notice The largest sum that settled claims of a tab showed, where one was not covered.
    struct Shown {
        uint96 owed;
        uint40 blockNumber;
    }

    /// @dev Gas that a claim and its settlement, and an answer, are paid back: below what they cost, so that nobody profits.
    uint256 private constant CLAIM_GAS = 100_000;
    uint256 private constant ANSWER_GAS = 80_000;
    uint256 private constant GAS_UNIT = 1e9;
    /// @dev Open objections of a claim: as many as an honest payee can answer within the window, whatever it costs the payer.
    uint256 private constant MAXIMUM_OBJECTIONS = 32;
    uint256 private constant WINDOW = 255;
    /// @dev The lowest bits of a claim's word count its open objections; the rest is its id.
    uint256 private constant COUNTER = type(uint16).max;

    address public immutable ASSET;
    address private immutable REGISTRY;
    address private immutable COURT;
    address private immutable SUMMONS;
    address private immutable EVIDENCE;
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
        (SUMMONS, EVIDENCE) = (parts.summons, parts.evidence);
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
    function collect(bytes32 subject, address from, PotKind kind, bytes32 id, uint96 amount)
        external
        payable
        nonReentrant
        returns (uint96 received)
    {
        _requireCollector();
        _requirePot(kind, id);
        received = _take(from, amount);
        emit Collected(subject, from, kind, id, received, _add(kind, id, received));
    }

    /// @inheritdoc IBank
    function credit(address account, uint96 amount) external payable nonReentrant {
        if (account == address(0)) revert ZeroAddress();
        bytes32 id = _id(account);
        uint96 received = _take(msg.sender, amount);
        emit Collected(id, msg.sender, PotKind.Credit, id, received, _add(PotKind.Credit, id, received));
    }

    /// @inheritdoc IBank
    function withdraw(address account) external nonReentrant {
        Purse storage purse = _credits[_id(account)];
        uint96 amount = purse.balance;
        if (amount == 0) revert NothingToWithdraw(account);
        address payout = IRegistry(REGISTRY).payoutOf(account);
        (purse.balance, purse.known) = (0, true);
        emit Withdrawn(account, payout, amount);
        if (!_send(payout, amount)) revert TransferFailed(payout, amount);
    }

    // ----------------------------------------------------------------------------------------------------------- tabs

    /// @inheritdoc IBank
    function openTab(address payee, address key, uint96 amount, bytes calldata consent)
        external
        payable
        nonReentrant
        returns (bytes32 tab)
    {
        tab = _open(payee, key, amount, consent);
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
    ) external nonReentrant returns (bytes32 tab) {
        // Somebody may have used the permit already; then the allowance is there, and if it is not, the transfer says so.
        if (ASSET != address(0)) {
            try IERC20Permit(ASSET).permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
        }
        tab = _open(payee, key, amount, consent);
    }

    /// @inheritdoc IBank
    function topUp(bytes32 tab, uint96 amount) external payable nonReentrant {
        _requireOpen(tab);
        uint96 received = _take(msg.sender, amount);
        emit TabToppedUp(tab, received, _add(PotKind.Tab, tab, received));
    }

    /// @inheritdoc IBank
    function redeem(Tab calldata tab, Voucher calldata voucher, bytes calldata signature)
        external
        returns (uint96 paid)
    {
        paid = _redeem(tab, voucher, signature);
        if (paid == 0) {
            Purse storage purse = _requireKnown(voucher.tab);
            revert NothingToRedeem(voucher.tab, voucher.spent, purse.second);
        }
    }

    /// @inheritdoc IBank
    function redeemMany(Tab[] calldata tabs, Voucher[] calldata vouchers, bytes[] calldata signatures)
        external
        returns (uint96 paid)
    {
        if (tabs.length != vouchers.length || tabs.length != signatures.length) {
            revert LengthsDiffer(tabs.length, vouchers.length, signatures.length);
        }
        for (uint256 i = 0; i < tabs.length; ++i) {
            paid += _redeem(tabs[i], vouchers[i], signatures[i]);
        }
    }

    /// @inheritdoc IBank
    function close(Tab calldata tab) external {
        bytes32 id = Messages.tabId(tab);
        if (msg.sender != tab.payer) revert NotPayer(id, msg.sender);
        uint40 closesAt = uint40(block.number + CLOSE_DELAY);
        _requireOpen(id).dueBlock = closesAt;
        emit TabClosing(id, closesAt);
    }

    /// @inheritdoc IBank
    function finishClosing(Tab calldata tab) external nonReentrant {
        bytes32 id = Messages.tabId(tab);
        Purse storage purse = _requireKnown(id);
        uint40 closesAt = purse.dueBlock;
        if (closesAt == 0) revert TabNotClosing(id);
        if (block.number < closesAt) revert TabStillClosing(id, closesAt, block.number);
        if (_claims[id] != 0) revert ClaimUnderWay(id);
        uint96 rest = purse.balance;
        (purse.balance, purse.dueBlock, purse.known) = (0, 0, false);
        if (rest != 0 && !_send(tab.payer, rest)) {
            // Nobody but the payer waits for it: it stays here until the payer can be paid.
            purse.balance = rest;
            _announce(id, Movement(PotKind.Tab, id, PotKind.Credit, _id(tab.payer), rest));
            rest = 0;
        }
        emit TabClosed(id, rest);
    }

    // --------------------------------------------------------------------------------------------------------- claims

    /// @inheritdoc IBank
    function claim(Tab calldata tab, Voucher calldata voucher, bytes calldata signature, Claim calldata claim_)
        external
        nonReentrant
    {
        bytes32 id = Messages.tabId(tab);
        if (msg.sender != tab.payee && msg.sender != IRegistry(REGISTRY).ownerOf(tab.payee)) {
            revert NotPayee(id, msg.sender);
        }
        Purse storage purse = _requireKnown(id);
        uint40 closesAt = purse.dueBlock;
        if (closesAt != 0 && block.number >= closesAt) revert TabIsClosing(id, closesAt);
        if (_claims[id] != 0) revert ClaimUnderWay(id);
        _requireWord(id, voucher);
        _requireNumbers(voucher, claim_);
        uint256 owed = uint256(voucher.spent) + claim_.total;
        if (owed > voucher.authorised) revert ClaimAboveAuthorised(owed, voucher.authorised);
        if (owed <= purse.second) revert NothingToRedeem(id, uint96(owed), purse.second);
        _requireVoucher(tab.key, voucher, signature);
        _file(id, ClaimState(claim_, voucher, uint96(owed), uint40(block.number + CLAIM_DELAY), msg.sender));
    }

    /// @inheritdoc IBank
    function object(Tab calldata tab, ClaimState calldata state, uint64 sequence) external payable nonReentrant {
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
        if (objection.dueBlock != 0) revert AlreadyObjected(claimId, sequence);
        objection.dueBlock = uint40(deadline);
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
    ) external nonReentrant {
        (bytes32 id, bytes32 claimId, uint256 count) = _requireClaim(tab, state);
        bytes32 objectionId = _objectionId(claimId, sequence);
        uint40 deadline = _bonds[objectionId].dueBlock;
        if (deadline == 0) revert NoObjection(claimId, sequence);
        if (block.number > deadline) revert AnswerTooLate(deadline, block.number);
        _requirePlace(state.claim, sequence, amount, siblings, sums);
        if (amount != 0) _requireWorth(tab, kind, sequence, amount, leaf);
        _claims[id] = uint256(claimId) | (count - 1);
        _release(claimId, objectionId, PotKind.Credit, _id(msg.sender));
        emit ObjectionAnswered(id, claimId, sequence, amount);
    }

    /// @inheritdoc IBank
    function strike(Tab calldata tab, ClaimState calldata state, uint64 sequence) external nonReentrant {
        bytes32 id = Messages.tabId(tab);
        if (state.voucher.tab != id) revert ForeignVoucher(id, state.voucher.tab);
        bytes32 claimId = _claimId(state);
        bytes32 objectionId = _objectionId(claimId, sequence);
        uint40 deadline = _bonds[objectionId].dueBlock;
        if (deadline == 0) revert NoObjection(claimId, sequence);
        // A claim with open objections ends only by being struck: if it is gone, what is left is to return the deposit.
        if (_claims[id] & ~COUNTER == uint256(claimId)) {
            if (block.number <= deadline) revert AnswerStillPossible(deadline, block.number);
            delete _claims[id];
            emit ClaimStruck(id, claimId, sequence);
        }
        if (_tabs[id].known) _release(claimId, objectionId, PotKind.Tab, id);
        else _release(claimId, objectionId, PotKind.Credit, _id(tab.payer));
    }

    /// @inheritdoc IBank
    function settle(Tab calldata tab, ClaimState calldata state) external nonReentrant {
        (bytes32 id, bytes32 claimId, uint256 count) = _requireClaim(tab, state);
        if (count != 0) revert ObjectionsOpen(claimId, uint16(count));
        if (block.number < state.settlesAt) revert ClaimNotDue(state.settlesAt, block.number);
        delete _claims[id];
        Purse storage purse = _tabs[id];
        uint96 paid = _due(purse, state.owed);
        if (paid != 0) _pay(id, tab.payee, state.owed, paid);
        uint96 short = uint96(Math.saturatingSub(state.owed, purse.second));
        if (short != 0) {
            _shown[id] = Shown(uint96(Math.max(_shown[id].owed, state.owed)), uint40(block.number));
        }
        // Not above what the claim brought: many small claims cannot drain a tab.
        uint96 gas_ = uint96(Math.min(Math.min(_gasFee(CLAIM_GAS), paid), purse.balance));
        if (gas_ != 0) _announce(claimId, Movement(PotKind.Tab, id, PotKind.Credit, _id(state.claimer), gas_));
        emit ClaimSettled(id, claimId, state.owed, paid, short);
    }

    /// @inheritdoc IBank
    function forgive(bytes32 tab, uint96 amount) external {
        if (msg.sender != EVIDENCE) revert NotAuthorised(msg.sender);
        (uint96 short,) = shortOf(tab);
        if (amount > short) revert AmountTooLarge(amount);
        Purse storage purse = _tabs[tab];
        purse.second += amount;
        emit TabForgiven(tab, amount, purse.second);
    }

    // ---------------------------------------------------------------------------------------------------------- reads

    /// @inheritdoc IBank
    function domainSeparator() public view returns (bytes32) {
        // A fork that changes the chain's number gets a domain of its own.
        return block.chainid == CHAIN ? DOMAIN : Messages.separator(address(this));
    }

    /// @inheritdoc IBank
    function tabOf(bytes32 tab) external view returns (TabState memory) {
        Purse memory purse = _tabs[tab];
        return TabState(purse.balance, purse.second, purse.dueBlock, purse.known);
    }

    /// @inheritdoc IBank
    function balanceOf(PotKind kind, bytes32 id) external view returns (uint96) {
        Purse storage purse = _purse(kind, id);
        return kind == PotKind.Locked ? purse.second : purse.balance;
    }

    /// @inheritdoc IBank
    function stakeOf(address operator) external view returns (uint96 stake, uint96 locked) {
        Purse storage purse = _stakes[_id(operator)];
        return (purse.balance, purse.second);
    }

    /// @inheritdoc IBank
    function claimOf(bytes32 tab) external view returns (bytes32 claimId, uint16 objections) {
        uint256 word = _claims[tab];
        return (bytes32(word & ~COUNTER), uint16(word));
    }

    /// @inheritdoc IBank
    function objectionOf(bytes32 claimId, uint64 sequence) external view returns (uint96 deposit, uint40 deadline) {
        Purse storage objection = _bonds[_objectionId(claimId, sequence)];
        return (objection.balance, objection.dueBlock);
    }

    /// @inheritdoc IBank
    function shortOf(bytes32 tab) public view returns (uint96 short, uint40 blockNumber) {
        Shown memory shown = _shown[tab];
        return (uint96(Math.saturatingSub(shown.owed, _tabs[tab].second)), shown.blockNumber);
    }

    // ------------------------------------------------------------------------------------------------------- tabs' inside

    function _open(address payee, address key, uint96 amount, bytes calldata consent) private returns (bytes32 tab) {
        if (payee == address(0)) revert ZeroAddress();
        tab = Messages.tabId(Tab(msg.sender, payee, key));
        Purse storage purse = _tabs[tab];
        if (purse.known) {
            if (purse.dueBlock == 0) revert TabAlreadyOpen(tab);
            revert TabIsClosing(tab, purse.dueBlock);
        }
        if (!_isSigned(key, Messages.hash(TabConsent(msg.sender, payee)), consent)) revert InvalidTabConsent(key, tab);
        uint96 received = _take(msg.sender, amount);
        uint96 redeemed = purse.second;
        _tabs[tab] = Purse(received, redeemed, 0, true);
        emit TabOpened(tab, msg.sender, payee, key, received, redeemed);
    }

    /// @dev Pays nothing, and does not look at the signature, where there is nothing to pay.
    function _redeem(Tab calldata tab, Voucher calldata voucher, bytes calldata signature)
        private
        returns (uint96 paid)
    {
        bytes32 id = Messages.tabId(tab);
        _requireWord(id, voucher);
        paid = _due(_tabs[id], voucher.spent);
        if (paid == 0) return 0;
        _requireVoucher(tab.key, voucher, signature);
        _pay(id, tab.payee, voucher.spent, paid);
    }

    /// @dev What is owed above what was redeemed, or as much of it as there is. A closed tab holds nothing.
    function _due(Purse storage purse, uint96 owed) private view returns (uint96) {
        (uint96 balance, uint96 redeemed) = (purse.balance, purse.second);
        return owed <= redeemed ? 0 : uint96(Math.min(owed - redeemed, balance));
    }

    function _pay(bytes32 id, address payee, uint96 owed, uint96 paid) private {
        Purse storage purse = _tabs[id];
        uint96 redeemed = purse.second + paid;
        purse.second = redeemed;
        (uint96 balance,) = _move(PotKind.Tab, id, PotKind.Credit, _id(payee), paid);
        emit TabRedeemed(id, owed, paid, balance, redeemed);
    }

    function _requireKnown(bytes32 id) private view returns (Purse storage purse) {
        purse = _tabs[id];
        if (!purse.known) revert UnknownTab(id);
    }

    function _requireOpen(bytes32 id) private view returns (Purse storage purse) {
        purse = _requireKnown(id);
        if (purse.dueBlock != 0) revert TabIsClosing(id, purse.dueBlock);
    }

    function _requireWord(bytes32 id, Voucher calldata voucher) private pure {
        if (voucher.tab != id) revert ForeignVoucher(id, voucher.tab);
        if (voucher.spent > voucher.authorised) revert SpentAboveAuthorised(voucher.spent, voucher.authorised);
    }

    function _requireVoucher(address key, Voucher calldata voucher, bytes calldata signature) private view {
        bytes32 structHash = Messages.hash(voucher);
        if (!_isSigned(key, structHash, signature)) revert InvalidVoucher(key, structHash);
    }

    /// @dev An account's own signature counts whether it has code or not (and most have none, which then costs nothing to
    /// find out); a contract is asked by EIP-1271.
    function _isSigned(address key, bytes32 structHash, bytes calldata signature) private view returns (bool) {
        bytes32 digest = Messages.digest(domainSeparator(), structHash);
        (address recovered, ECDSA.RecoverError problem,) = ECDSA.tryRecoverCalldata(digest, signature);
        if (problem == ECDSA.RecoverError.NoError && recovered == key) return true;
        return SignatureChecker.isValidERC1271SignatureNowCalldata(key, digest, signature);
    }

    // ----------------------------------------------------------------------------------------------------- claims' inside

    function _file(bytes32 id, ClaimState memory state) private {
        bytes32 claimId = _claimId(state);
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
                uint256 open = LibBit.reverseBits(voucher.exceptions) >> (WINDOW - distance);
                uint256 range = type(uint256).max >> (WINDOW - Math.min(distance, last - first));
                valid = range & ~open & ~claim_.exceptions == 0;
            }
        }
        if (!valid) revert InvalidClaim(first, last, claim_.total);
    }

    /// @return id of the tab
    /// @return claimId of the claim under way, whose state this is
    /// @return count of open objections
    function _requireClaim(Tab calldata tab, ClaimState calldata state)
        private
        view
        returns (bytes32 id, bytes32 claimId, uint256 count)
    {
        id = Messages.tabId(tab);
        claimId = _claimId(state);
        uint256 word = _claims[id];
        if (word & ~COUNTER != uint256(claimId)) revert ClaimMismatch(id, bytes32(word & ~COUNTER), claimId);
        count = word & COUNTER;
    }

    /// @dev Takes the deposit from what the tab holds beyond what is claimed: an objection must not be paid with the payee's
    /// money. Who has no such money in the tab, or gives value, pays it itself.
    function _reserve(bytes32 id, bytes32 claimId, bytes32 objectionId, uint96 owed) private returns (uint96 deposit) {
        deposit = _gasFee(ANSWER_GAS);
        Purse storage purse = _tabs[id];
        if (msg.value == 0) {
            uint256 claimed = Math.saturatingSub(owed, purse.second);
            if (purse.balance >= claimed + deposit) {
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

    /// @dev Ends an objection; its deposit goes to a pot.
    function _release(bytes32 claimId, bytes32 objectionId, PotKind kind, bytes32 id) private {
        Purse storage objection = _bonds[objectionId];
        objection.dueBlock = 0;
        uint96 deposit = objection.balance;
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
        uint96 worth = IEvidence(EVIDENCE).leafWorth(tab, kind, sequence, leaf);
        if (worth < amount) revert LeafWorthLess(sequence, worth, amount);
    }

    function _claimId(ClaimState memory state) private pure returns (bytes32) {
        return bytes32(uint256(keccak256(abi.encode(state))) & ~COUNTER);
    }

    function _objectionId(bytes32 claimId, uint64 sequence) private pure returns (bytes32) {
        return keccak256(abi.encode(claimId, sequence));
    }

    /// @dev What so much gas is paid back with: the deployment's price, for the coin at most the block's.
    function _gasFee(uint256 gas_) private view returns (uint96) {
        uint256 price = GAS_PRICE;
        if (ASSET == address(0)) price = Math.min(price, block.basefee * GAS_UNIT);
        return uint96(gas_ * price / GAS_UNIT);
    }

    // ---------------------------------------------------------------------------------------------------- pots and doors

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
        bool second = fromKind == PotKind.Locked;
        fromBalance = fromKind == PotKind.Burnt ? 0 : second ? purse.second : purse.balance;
        if (fromBalance < amount) revert InsufficientPot(fromKind, fromId, fromBalance, amount);
        fromBalance -= amount;
        if (second) purse.second = fromBalance;
        else purse.balance = fromBalance;
        toBalance = _add(toKind, toId, amount);
    }

    function _add(PotKind kind, bytes32 id, uint96 amount) private returns (uint96 balance) {
        Purse storage purse = _purse(kind, id);
        bool second = kind == PotKind.Locked;
        balance = _narrow(uint256(second ? purse.second : purse.balance) + amount);
        if (second) purse.second = balance;
        else purse.balance = balance;
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
        uint256 expected = ASSET == address(0) ? amount : 0;
        if (msg.value != expected) revert WrongValue(msg.value, expected);
        if (ASSET == address(0)) return amount;
        IERC20 token = IERC20(ASSET);
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(from, address(this), amount);
        received = _narrow(Math.saturatingSub(token.balanceOf(address(this)), before));
        if (received == 0) revert ZeroAmount();
    }

    /// @dev The door out; false if the receiver cannot be paid.
    function _send(address to, uint96 amount) private returns (bool sent) {
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

    function _narrow(uint256 amount) private pure returns (uint96) {
        if (amount > type(uint96).max) revert AmountTooLarge(amount);
        return uint96(amount);
    }

    function _id(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}
