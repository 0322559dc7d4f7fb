// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {IBank} from "../market/interfaces/IBank.sol";
import {Signatures} from "../market/libraries/Signatures.sol";
import {ICommittee} from "../overlay/ICommittee.sol";
import {ITicketPayer} from "./ITicketPayer.sol";
import {ITickets, LostTicket, Purchase, Spending, Ticket, TicketKey, TicketRules} from "./ITickets.sol";
import {TicketCurve} from "./TicketCurve.sol";
import {TicketPayer} from "./TicketPayer.sol";

/// @title Tickets: money in, tabs out, and nothing that joins the two
contract Tickets is ITickets, EIP712, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;
    using TicketCurve for TicketCurve.Sum;

    uint256 private constant MAXIMUM_DENOMINATIONS = 16;
    uint256 private constant MAXIMUM_COUNT = 256;
    uint256 private constant SIGNATURE_BYTES = 96;
    /// @dev A tab that takes nothing leaves one in this many parts of the gas: fifteen calls within one another leave less
    ///      where they run out of it.
    uint256 private constant LEAST_LEFT = 4;

    bytes32 private constant KEYS_TYPE = keccak256("TicketKeys(uint64 epoch,bytes32 keys,bytes32 dealing)");
    bytes32 private constant SPENDING_TYPE = keccak256("TicketSpending(address payee,address tabKey,uint96 fee)");

    ICommittee private immutable COMMITTEE;
    IBank private immutable BANK;
    address private immutable ASSET;
    address private immutable PAYER;
    uint64 private immutable EPOCH_BLOCKS;
    /// @inheritdoc ITickets
    // Readers call it by this name, as they do with the other contracts.
    // solhint-disable-next-line immutable-vars-naming
    uint256 public immutable startBlock;

    uint96[] private _prices;
    mapping(uint64 epoch => bytes32[] keys) private _keys;
    /// @inheritdoc ITickets
    mapping(uint64 epoch => bytes32) public dealingOf;
    mapping(bytes32 purchase => bool) private _purchases;
    mapping(uint64 epoch => mapping(uint8 denomination => uint256 count)) private _outstanding;
    mapping(address ticket => bool) private _spent;
    /// @inheritdoc ITickets
    mapping(bytes32 purchase => uint256 bits) public refunded;

    /// @dev What a call of `spend` has gathered: terms of all signatures; names, and how many, by their key.
    struct Batch {
        bytes32 seed;
        uint256 count;
        uint256[] counts;
        TicketCurve.Sum signatures;
        TicketCurve.Sum[] names;
    }

    constructor(ICommittee committee_, IBank bank_, TicketRules memory chosen) EIP712("Troth", "1") {
        if (address(committee_).code.length == 0) revert NotAContract(address(committee_));
        if (address(bank_).code.length == 0) revert NotAContract(address(bank_));
        uint256 count = chosen.prices.length;
        bool sound = chosen.epochBlocks != 0 && count != 0 && count <= MAXIMUM_DENOMINATIONS;
        for (uint256 i = 0; sound && i < count; ++i) {
            sound = chosen.prices[i] > (i == 0 ? 0 : chosen.prices[i - 1]);
        }
        if (!sound) revert InvalidRules(chosen.epochBlocks, count);
        (COMMITTEE, BANK, ASSET, startBlock) = (committee_, bank_, bank_.ASSET(), block.number);
        (EPOCH_BLOCKS, _prices) = (chosen.epochBlocks, chosen.prices);
        PAYER = address(new TicketPayer(bank_));
        emit TicketsDeployed(address(committee_), address(bank_), chosen, block.number);
    }

    // ---- members

    /// @inheritdoc ITickets
    function registerKeys(uint64 epoch, bytes32 dealing, bytes[] calldata keys, bytes[] calldata signatures) external {
        uint64 current = epochNow();
        if (epoch < current) revert WrongEpoch(epoch, current);
        if (_keys[epoch].length != 0) revert AlreadyRegistered(epoch);
        if (keys.length != _prices.length) revert WrongKeyCount(keys.length, _prices.length);
        bytes memory joined;
        for (uint256 i = 0; i < keys.length; ++i) {
            if (!TicketCurve.isKey(keys[i])) revert InvalidKey(epoch, uint8(i));
            _keys[epoch].push(keccak256(keys[i]));
            joined = bytes.concat(joined, keys[i]);
        }
        _requireMembers(keccak256(abi.encode(KEYS_TYPE, epoch, keccak256(joined), dealing)), signatures);
        dealingOf[epoch] = dealing;
        emit KeysRegistered(epoch, dealing, keys);
    }

    // ---- buyers

    /// @inheritdoc ITickets
    function buy(uint64 epoch, uint8 denomination, uint16 count, bytes32 root)
        external
        payable
        nonReentrant
        returns (bytes32 purchase)
    {
        uint64 current = epochNow();
        if (epoch != current) revert WrongEpoch(epoch, current);
        if (_keys[epoch].length == 0) revert NoKeys(epoch);
        if (denomination >= _prices.length) revert UnknownDenomination(denomination);
        if (count == 0 || count > MAXIMUM_COUNT) revert InvalidCount(count);
        Purchase memory terms = Purchase(msg.sender, epoch, denomination, count, root);
        purchase = keccak256(abi.encode(terms));
        // Points that were signed are not signed again for more money.
        if (_purchases[purchase]) revert AlreadyBought(purchase);
        _purchases[purchase] = true;
        _outstanding[epoch][denomination] += count;
        uint256 paid = uint256(_prices[denomination]) * count;
        emit TicketsBought(purchase, terms, paid);
        _take(paid);
    }

    /// @inheritdoc ITickets
    function refund(Purchase calldata purchase, LostTicket[] calldata tickets) external nonReentrant {
        bytes32 id = keccak256(abi.encode(purchase));
        if (!_purchases[id]) revert UnknownPurchase(id);
        uint64 current = epochNow();
        if (current <= purchase.epoch + 1) revert NotLostYet(purchase.epoch, current);
        uint96 price = _prices[purchase.denomination];
        // By place and not by name: whoever was shown a name could buy a ticket of it, and have that refunded first.
        uint256 bits = refunded[id];
        for (uint256 i = 0; i < tickets.length; ++i) {
            LostTicket calldata lost = tickets[i];
            _requireInside(id, purchase, lost);
            if (_spent[lost.ticket]) revert AlreadySpent(lost.ticket);
            uint256 bit = 1 << lost.index;
            if (bits & bit != 0) revert AlreadyRefunded(id, lost.index);
            bits |= bit;
            emit TicketRefunded(id, lost.ticket, lost.index, price);
        }
        refunded[id] = bits;
        _takeOff(purchase.epoch, purchase.denomination, tickets.length);
        _send(purchase.buyer, uint256(price) * tickets.length);
    }

    // ---- payees

    /// @inheritdoc ITickets
    function spend(TicketKey[] calldata keys, Spending[] calldata spendings) external nonReentrant {
        Batch memory batch = _newBatch(keys, spendings);
        uint96[] memory worths = new uint96[](spendings.length);
        uint96[] memory fees = new uint96[](spendings.length);
        for (uint256 i = 0; i < spendings.length; ++i) {
            (worths[i], fees[i]) = _gather(batch, keys, spendings[i]);
        }
        if (batch.count != 0) {
            bytes[] memory points = new bytes[](keys.length);
            for (uint256 i = 0; i < keys.length; ++i) {
                points[i] = keys[i].key;
                _takeOff(keys[i].epoch, keys[i].denomination, batch.counts[i]);
            }
            if (!TicketCurve.isSigned(batch.signatures, batch.names, points)) revert InvalidTickets(batch.count);
        }
        for (uint256 i = 0; i < spendings.length; ++i) {
            if (worths[i] != 0) _pay(spendings[i], worths[i], fees[i]);
        }
    }

    // ---- reads

    /// @inheritdoc ITickets
    function committee() external view returns (address) {
        return address(COMMITTEE);
    }

    /// @inheritdoc ITickets
    function bank() external view returns (address) {
        return address(BANK);
    }

    /// @inheritdoc ITickets
    function rules() external view returns (TicketRules memory) {
        return TicketRules(EPOCH_BLOCKS, _prices);
    }

    /// @inheritdoc ITickets
    function epochNow() public view returns (uint64) {
        return uint64((block.number - startBlock) / EPOCH_BLOCKS);
    }

    /// @inheritdoc ITickets
    function keysOf(uint64 epoch) external view returns (bytes32[] memory) {
        return _keys[epoch];
    }

    /// @inheritdoc ITickets
    function isPurchase(bytes32 purchase) external view returns (bool) {
        return _purchases[purchase];
    }

    /// @inheritdoc ITickets
    function outstanding(uint64 epoch, uint8 denomination) external view returns (uint256) {
        return _outstanding[epoch][denomination];
    }

    /// @inheritdoc ITickets
    function spent(address[] calldata tickets) external view returns (uint256 bits) {
        if (tickets.length > MAXIMUM_COUNT) revert InvalidCount(tickets.length);
        for (uint256 i = 0; i < tickets.length; ++i) {
            if (_spent[tickets[i]]) bits |= 1 << i;
        }
    }

    /// @inheritdoc ITickets
    function payerOf(address tabKey) public view returns (address) {
        return Clones.predictDeterministicAddressWithImmutableArgs(PAYER, abi.encode(tabKey), 0);
    }

    /// @inheritdoc ITickets
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    // ---- inside

    function _newBatch(TicketKey[] calldata keys, Spending[] calldata spendings)
        private
        view
        returns (Batch memory batch)
    {
        // Signatures that cancel each other in a sum do not in one whose coefficients follow from all of them.
        batch.seed = keccak256(msg.data);
        uint64 current = epochNow();
        uint256[] memory counts = new uint256[](keys.length);
        uint256 count;
        for (uint256 i = 0; i < spendings.length; ++i) {
            Ticket[] calldata tickets = spendings[i].tickets;
            count += tickets.length;
            for (uint256 k = 0; k < tickets.length; ++k) {
                if (tickets[k].key >= keys.length) revert UnknownKey(tickets[k].key);
                ++counts[tickets[k].key];
            }
        }
        batch.counts = new uint256[](keys.length);
        batch.signatures = TicketCurve.sumOf(count);
        batch.names = new TicketCurve.Sum[](keys.length);
        for (uint256 i = 0; i < keys.length; ++i) {
            TicketKey calldata key = keys[i];
            if (key.epoch > current || current > key.epoch + 1) revert TicketExpired(key.epoch, current);
            bytes32[] storage known = _keys[key.epoch];
            if (key.denomination >= known.length || keccak256(key.key) != known[key.denomination]) {
                revert InvalidKey(key.epoch, key.denomination);
            }
            batch.names[i] = TicketCurve.sumOf(counts[i]);
        }
    }

    /// @dev Marks a spending's tickets as spent and adds them to the batch; what they are worth, and fees of it.
    function _gather(Batch memory batch, TicketKey[] calldata keys, Spending calldata spending)
        private
        returns (uint96 worth, uint96 fees)
    {
        address payer = payerOf(spending.tabKey);
        bytes32 digest = _hashTypedDataV4(
            keccak256(abi.encode(SPENDING_TYPE, spending.payee, spending.tabKey, spending.fee))
        );
        for (uint256 i = 0; i < spending.tickets.length; ++i) {
            Ticket calldata ticket = spending.tickets[i];
            if (ticket.signature.length != SIGNATURE_BYTES) {
                revert MalformedTicket(ticket.signature.length, ticket.spending.length);
            }
            address name = Signatures.signerOf(digest, ticket.spending);
            if (name == address(0)) revert NobodySigned(ticket.spending);
            if (_spent[name]) {
                emit TicketPassedOver(name, payer);
                continue;
            }
            _spent[name] = true;
            TicketKey calldata key = keys[ticket.key];
            uint256 coefficient = uint128(uint256(keccak256(abi.encode(batch.seed, batch.count++))));
            batch.signatures.addSignature(ticket.signature, coefficient);
            batch.names[ticket.key].addName(name, coefficient);
            ++batch.counts[ticket.key];
            uint96 price = _prices[key.denomination];
            // Of each ticket: were it one fee for all of them, it would be taken for each by as many calls.
            if (spending.fee > price) revert FeeAboveWorth(spending.fee, price);
            worth += price;
            fees += spending.fee;
            emit TicketSpent(name, payer, key.epoch, key.denomination);
        }
    }

    /// @dev Fees to the payee, the rest into the tab; if the tab does not take it, to its payer all the same.
    function _pay(Spending calldata spending, uint96 worth, uint96 fees) private {
        uint96 amount = worth - fees;
        address payer = payerOf(spending.tabKey);
        if (payer.code.length == 0) {
            Clones.cloneDeterministicWithImmutableArgs(PAYER, abi.encode(spending.tabKey), 0);
        }
        _send(spending.payee, fees);
        _send(payer, amount);
        bool opened;
        if (amount != 0) {
            uint256 given = gasleft();
            try ITicketPayer(payer).fill(spending.payee, amount, spending.consent) {
                opened = true;
            } catch {
                // Each call within keeps one in 64 parts of what it had: enough to go on as if the tab had said no.
                if (gasleft() < given / LEAST_LEFT) revert Starved(gasleft(), given);
            }
        }
        emit SpendingPaid(payer, spending.payee, spending.tabKey, amount, fees, opened);
    }

    function _takeOff(uint64 epoch, uint8 denomination, uint256 count) private {
        uint256 left = _outstanding[epoch][denomination];
        if (count > left) revert MoreSpentThanSold(epoch, denomination);
        _outstanding[epoch][denomination] = left - count;
    }

    function _requireInside(bytes32 id, Purchase calldata purchase, LostTicket calldata lost) private view {
        bytes memory point = TicketCurve.blinded(lost.ticket, lost.blinding);
        bytes32 leaf = keccak256(bytes.concat(keccak256(abi.encodePacked(lost.index, point))));
        // Zero is every name's point, times zero: it would be a ticket for anybody.
        bool inside = lost.index < purchase.count && keccak256(point) != keccak256(new bytes(TicketCurve.G1_BYTES))
            && MerkleProof.verifyCalldata(lost.proof, purchase.root, leaf);
        if (!inside) revert NotInPurchase(id, lost.ticket, lost.index);
    }

    /// @dev Reverts unless more than 2/3 of the members signed. Ascending signers: nobody counts twice.
    function _requireMembers(bytes32 structHash, bytes[] calldata signatures) private view {
        uint256 needed = COMMITTEE.threshold();
        if (signatures.length < needed) revert TooFewSignatures(signatures.length, needed);
        bytes32 digest = _hashTypedDataV4(structHash);
        address previous = address(0);
        for (uint256 i = 0; i < signatures.length; ++i) {
            address signer = Signatures.signerOf(digest, signatures[i]);
            if (!COMMITTEE.isMember(signer)) revert NotAMember(signer);
            if (signer <= previous) revert SignersOutOfOrder(previous, signer);
            previous = signer;
        }
    }

    function _take(uint256 amount) private {
        if (ASSET == address(0)) {
            if (msg.value != amount) revert WrongValue(msg.value, amount);
            return;
        }
        if (msg.value != 0) revert WrongValue(msg.value, 0);
        uint256 before = IERC20(ASSET).balanceOf(address(this));
        IERC20(ASSET).safeTransferFrom(msg.sender, address(this), amount);
        uint256 received = IERC20(ASSET).balanceOf(address(this)) - before;
        if (received < amount) revert TokenGaveLess(received, amount);
    }

    /// @dev What a token takes on top would be taken of what other tickets are worth.
    function _send(address to, uint256 amount) private {
        if (amount == 0) return;
        if (ASSET == address(0)) {
            Address.sendValue(payable(to), amount);
            return;
        }
        IERC20 token = IERC20(ASSET);
        uint256 before = token.balanceOf(address(this));
        token.safeTransfer(to, amount);
        uint256 taken = Math.saturatingSub(before, token.balanceOf(address(this)));
        if (taken > amount) revert IBank.TokenTookMore(taken, uint96(amount));
    }
}
