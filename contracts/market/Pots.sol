// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {LowLevelCall} from "@openzeppelin/contracts/utils/LowLevelCall.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {Movement, Parameters, PotKind} from "./interfaces/MarketTypes.sol";
import {Messages} from "./libraries/Messages.sol";
import {Purse, Purses} from "./libraries/Purses.sol";

/// @title The pots that hold all money, and the only doors to them
/// @dev `_move` alone moves money between pots (what vouchers take out of tabs, and each payment of a case out of its
///      bond, is added to the payee's credit where it is taken); `_take` and `_send` are the only doors, and nothing of
///      claims can run while a token does.
abstract contract Pots is IBank, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;
    using Purses for uint256;

    /// @dev Of a movement in `moveMany`: two kinds, account, amount.
    uint256 private constant MOVEMENT_BYTES = 33;

    /// @dev Kinds of a movement from a bond (PotKind.Bond) to an account's credit (PotKind.Credit).
    uint256 private constant PAYMENT = 0x40;

    address public immutable ASSET;
    address internal immutable REGISTRY;
    address private immutable COURT;
    address private immutable SUMMONS;
    address internal immutable EVIDENCE;
    address internal immutable LEAVES;
    uint256 internal immutable CLAIM_DELAY;
    uint256 internal immutable ANSWER_WINDOW;
    uint256 internal immutable CLOSE_DELAY;
    uint256 internal immutable GAS_PRICE;
    uint256 internal immutable CHAIN;
    bytes32 internal immutable DOMAIN;
    mapping(bytes32 account => Purse) internal _credits;
    mapping(bytes32 operator => Purse) private _stakes;
    mapping(bytes32 tab => Purse) internal _tabs;
    mapping(bytes32 id => Purse) internal _bonds;
    Purse private _burnt;

    constructor() {
        Parameters memory chosen = IDeployment(msg.sender).parameters();
        Contracts memory parts = IDeployment(msg.sender).contracts();
        (ASSET, GAS_PRICE) = (chosen.asset, chosen.gasPrice);
        (CLAIM_DELAY, ANSWER_WINDOW, CLOSE_DELAY) = (chosen.claimDelay, chosen.answerWindow, chosen.closeDelay);
        (REGISTRY, COURT) = (parts.registry, parts.court);
        (SUMMONS, EVIDENCE, LEAVES) = (parts.summons, parts.evidence, parts.leaves);
        CHAIN = block.chainid;
        DOMAIN = Messages.separator(address(this));
        // The first conviction of a deployment pays as little for what it burns as each later one.
        _burnt.word = Purses.KNOWN;
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

    // -------------------------------------------------------------------------------------------------- pots and doors

    function _announce(bytes32 subject, Movement memory movement) internal {
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

    function _add(PotKind kind, bytes32 id, uint256 amount) internal returns (uint96 balance) {
        Purse storage purse = _purse(kind, id);
        if (kind != PotKind.Locked) return _put(purse, amount);
        uint256 word = purse.word;
        balance = _narrow(word.second() + amount);
        purse.word = word + Purses.asSecond(amount);
    }

    function _put(Purse storage purse, uint256 amount) internal returns (uint96 balance) {
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
    function _take(address from, uint96 amount) internal returns (uint96 received) {
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
    function _send(address to, uint96 amount) internal nonReentrant returns (bool sent) {
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
    function _pay(uint256 at, uint256 end, uint256 held) internal returns (uint256, uint256) {
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

    function _narrow(uint256 amount) internal pure returns (uint96) {
        if (amount > type(uint96).max) revert AmountTooLarge(amount);
        return uint96(amount);
    }

    function _id(address account) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}
