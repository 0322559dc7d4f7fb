// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {Pots} from "./Pots.sol";
import {IBank} from "./interfaces/IBank.sol";
import {PotKind, Tab, TabState, Voucher} from "./interfaces/MarketTypes.sol";
import {Messages} from "./libraries/Messages.sol";
import {Purse, Purses} from "./libraries/Purses.sol";

/// @title Tabs: money of a payer for one payee, paid out by vouchers
abstract contract Tabs is Pots {
    using Purses for uint256;

    /// @notice The largest sum that settled claims of a tab showed, where one was not covered.
    struct Shown {
        uint96 owed;
        uint40 blockNumber;
    }

    /// @dev Half of secp256k1's order: the other s of a signature is refused.
    uint256 private constant HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    /// @dev The lowest bits of a claim's word count its open objections; the rest is its id.
    uint256 internal constant COUNTER = type(uint16).max;

    mapping(bytes32 tab => uint256 word) internal _claims;
    mapping(bytes32 tab => Shown) internal _shown;

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
        // Before the payer is called, who may open the tab again: events are folded in their order.
        emit TabClosed(id, rest);
        if (rest != 0 && !_send(tab.payer, rest)) {
            // It comes back, and stays here until the payer can be paid; nobody else waits for that.
            bytes32 account = _id(tab.payer);
            emit Collected(id, tab.payer, PotKind.Credit, account, rest, _put(_credits[account], rest));
        }
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
    function _pay(bytes32 id, uint256 owed) internal returns (uint256 paid) {
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

    function _requireKnown(bytes32 id) internal view returns (Purse storage purse) {
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
    function _requireWord(bytes32 id, Voucher calldata voucher) internal pure returns (uint256 spent) {
        if (voucher.tab != id) revert ForeignVoucher(id, voucher.tab);
        uint256 authorised;
        assembly ("memory-safe") {
            spent := calldataload(add(voucher, 0x20))
            authorised := calldataload(add(voucher, 0x40))
        }
        if (spent > authorised) revert SpentAboveAuthorised(voucher.spent, voucher.authorised);
        if (authorised >> 96 != 0) revert AmountTooLarge(authorised);
    }

    function _refuse(Tab calldata tab, Voucher calldata voucher) internal pure {
        revert InvalidVoucher(tab.key, _voucherHash(voucher));
    }

    function _isSigned(bytes32 domain, address key, bytes32 structHash, bytes calldata signature)
        internal
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

    function _tabId(Tab calldata tab) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, tab, 0x60)
            hash := keccak256(free, 0x60)
        }
    }

    function _voucherHash(Voucher calldata voucher) internal pure returns (bytes32 hash) {
        bytes32 typeHash = Messages.VOUCHER_TYPE;
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, typeHash)
            calldatacopy(add(free, 0x20), voucher, 0xc0)
            hash := keccak256(free, 0xe0)
        }
    }

    function _hash(bytes32 a, bytes32 b, bytes32 c) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, a)
            mstore(add(free, 0x20), b)
            mstore(add(free, 0x40), c)
            hash := keccak256(free, 0x60)
        }
    }
}
