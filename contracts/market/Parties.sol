// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {IWeights} from "./interfaces/IWeights.sol";
import {Ask, Entry, Parameters, PotKind, Role, Rules} from "./interfaces/MarketTypes.sol";
import {Entries} from "./libraries/Entries.sol";
import {History} from "./libraries/History.sol";

/// @title Who is registered: owners, stakes, standing, and what anybody may read of it
/// @dev Blocks are kept in 32 bits. State and reads of the Registry; nothing here changes a party.
abstract contract Parties is IRegistry {
    using History for History.Word;

    /// @param keptUntil first block in which the slice may change again
    /// @param first first layer that a node hosts, and the one after its last
    struct Party {
        address owner;
        Role role;
        uint32 exitBlock;
        uint32 keptUntil;
        uint8 first;
        uint8 end;
    }

    /// @dev What a conviction touches, in one slot.
    /// @param class number of a node's class
    /// @param one segment and place in its group: first << 40 | end << 32 | place; zero: none
    /// @param voidFrom earliest and latest reference block whose leaves are void
    /// @param seatsBefore seats that a suspension took away
    struct Standing {
        uint32 class;
        uint48 one;
        uint48 two;
        uint32 convictions;
        uint32 voidFrom;
        uint32 voidUntil;
        bool suspended;
        uint16 seatsBefore;
    }

    struct Suspension {
        bytes32 caseId;
        uint40 blockNumber;
    }

    struct VrfKey {
        uint256 x;
        uint256 y;
    }


    uint256 internal constant SEAT_SHIFT = 96;
    uint256 internal constant CAP_SHIFT = 192;
    uint256 internal constant NUMBER_SHIFT = 208;
    uint256 internal constant LAYERS_SHIFT = 240;
    uint256 internal constant BASIS_POINTS = 10_000;
    uint256 internal constant RULES_BYTES = 20 * 32;

    IBank internal immutable BANK;
    address internal immutable COURT;
    address internal immutable SUMMONS;
    address internal immutable EVIDENCE;
    address internal immutable CLASSES;
    IWeights internal immutable WEIGHTS;
    uint256 internal immutable LAG;
    uint256 internal immutable UNBONDING;
    uint256 internal immutable SEASONING;
    uint256 internal immutable REFERENCE_AGE;
    uint256 internal immutable SUSPENSION_PAUSE;
    uint256 internal immutable SCHEDULER_STAKE;

    mapping(bytes32 executionClass => Rules) internal _rules;
    /// @dev What registrations, draws, summons and convictions read of a class, in one slot. From the lowest bit:
    ///      penalty 96 bits; seat 96; seat cap 16; number of the class, from 1, 32; layers 8; verifiers 8.
    mapping(bytes32 executionClass => uint256) internal _words;
    mapping(uint256 number => bytes32 executionClass) internal _classes;
    uint32 internal _classCount;
    mapping(address operator => Party) internal _parties;
    mapping(address operator => Standing) internal _standings;
    mapping(address operator => Suspension) internal _suspensions;
    mapping(address operator => address) internal _payouts;
    mapping(address scheduler => VrfKey) internal _vrfKeys;
    mapping(bytes32 group => History.Word) internal _sizes;
    mapping(bytes32 group => mapping(uint256 place => History.Word)) internal _entries;
    mapping(bytes32 group => mapping(address operator => History.Word)) internal _asks;

    constructor() {
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        Contracts memory parts = IDeployment(msg.sender).contracts();
        BANK = IBank(parts.bank);
        COURT = parts.court;
        SUMMONS = parts.summons;
        EVIDENCE = parts.evidence;
        CLASSES = parts.classes;
        WEIGHTS = IWeights(parameters.weights);
        LAG = parameters.lag;
        UNBONDING = parameters.unbonding;
        SEASONING = parameters.seasoning;
        REFERENCE_AGE = parameters.referenceAge;
        SUSPENSION_PAUSE = parameters.suspensionPause;
        SCHEDULER_STAKE = parameters.schedulerStake;
    }

    // ---- stake

    /// @dev The Bank credits what arrives, which may be less than the amount.
    function _collect(address operator, uint96 amount) internal returns (uint256 received) {
        bytes32 id = _pot(operator);
        return BANK.collect{value: msg.value}(id, msg.sender, PotKind.Stake, id, amount);
    }

    function _coveredOf(address operator, Standing memory standing)
        internal
        view
        returns (bytes32 class, uint256 seats)
    {
        class = _classes[standing.class];
        seats = _seats(_words[class], _stakeOf(operator));
    }

    function _seats(uint256 word, uint256 stake) internal pure returns (uint256) {
        return Math.min(uint16(word >> CAP_SHIFT), stake / _seatIn(word));
    }

    function _seatIn(uint256 word) internal pure returns (uint256) {
        return uint96(word >> SEAT_SHIFT);
    }

    /// @dev Locks are part of the stake until a case takes them.
    function _stakeOf(address operator) internal view returns (uint256) {
        (uint256 stake, uint256 locked) = BANK.stakeOf(operator);
        unchecked {
            // Two sums of 96 bits.
            return stake + locked;
        }
    }

    function _pot(address operator) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(operator)));
    }

    // ---- checks

    function _requireCaller(address allowed) internal view {
        if (msg.sender != allowed) revert NotAuthorised(msg.sender);
    }

    function _requireStake(uint256 stake, uint256 least) internal pure {
        if (stake < least) revert StakeTooLow(stake, least);
    }

    function _known(address operator) internal view returns (Party storage party) {
        party = _parties[operator];
        if (party.role == Role.None) revert UnknownOperator(operator);
    }

    function _wordOf(bytes32 executionClass) internal view returns (uint256 word) {
        word = _words[executionClass];
        if (word == 0) revert UnknownClass(executionClass);
    }

    /// @dev A call of an owner or an operator for a party that has not left.
    function _requireActive(address operator) internal view returns (Party storage party) {
        party = _known(operator);
        if (msg.sender != party.owner && msg.sender != operator) revert NotOwnerOrOperator(operator, msg.sender);
        if (party.exitBlock != 0) revert AlreadyExiting(operator, party.exitBlock);
    }

    // ---- reads

    /// @inheritdoc IRegistry
    function groupId(bytes32 executionClass, uint8 first, uint8 end) public pure returns (bytes32 group) {
        // keccak256(abi.encode(executionClass, first, end))
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, executionClass)
            mstore(add(free, 0x20), and(first, 0xff))
            mstore(add(free, 0x40), and(end, 0xff))
            group := keccak256(free, 0x60)
        }
    }

    /// @inheritdoc IRegistry
    function rulesOf(bytes32 executionClass) external view returns (Rules memory) {
        Rules storage rules = _rules[executionClass];
        // No class does without verifiers (Classes).
        if (rules.verifiers == 0) revert UnknownClass(executionClass);
        // abi.encode(rules): the fields of a slot stand in it from the lowest bits on.
        assembly ("memory-safe") {
            // Two sums of 96 bits, and what follows them.
            function put(to, word, mask) -> at {
                mstore(to, and(word, 0xffffffffffffffffffffffff))
                mstore(add(to, 0x20), and(shr(96, word), 0xffffffffffffffffffffffff))
                mstore(add(to, 0x40), and(shr(192, word), mask))
                at := add(to, 0x60)
            }
            let data := mload(0x40)
            let word := sload(rules.slot)
            let at := put(data, word, 0xffff)
            mstore(at, and(shr(208, word), 0xff))
            mstore(add(at, 0x20), and(shr(216, word), 0xff))
            mstore(add(at, 0x40), and(shr(224, word), 0xff))
            mstore(add(at, 0x60), and(shr(232, word), 0xff))
            mstore(add(at, 0x80), and(shr(240, word), 0xff))
            mstore(add(at, 0xa0), shr(248, word))
            word := sload(add(rules.slot, 1))
            at := put(add(at, 0xc0), word, 0xffffffff)
            mstore(at, and(shr(224, word), 0xffff))
            mstore(add(at, 0x20), shr(240, word))
            word := sload(add(rules.slot, 2))
            mstore(add(at, 0x40), and(word, 0xffffffff))
            mstore(add(at, 0x60), and(shr(32, word), 0xffff))
            mstore(add(at, 0x80), and(shr(48, word), 0xffffffff))
            mstore(add(at, 0xa0), and(shr(80, word), 0xffffffff))
            mstore(add(at, 0xc0), and(shr(112, word), 0xffff))
            mstore(add(at, 0xe0), and(shr(128, word), 0xff))
            return(data, RULES_BYTES)
        }
    }

    /// @inheritdoc IRegistry
    function bondOf(address operator) external view returns (Role role, uint40 exitBlock, uint96 penalty) {
        Party storage party = _parties[operator];
        penalty = uint96(_words[_classes[_standings[operator].class]]);
        return (party.role, party.exitBlock, penalty);
    }

    /// @inheritdoc IRegistry
    function committeeOf(bytes32 executionClass) external view returns (bool exact, uint8 verifiers, uint8 reviewers) {
        Rules storage rules = _rules[executionClass];
        (exact, verifiers, reviewers) = (rules.exact, rules.verifiers, rules.reviewers);
        if (verifiers == 0) revert UnknownClass(executionClass);
    }

    /// @inheritdoc IRegistry
    function roleOf(address operator) external view returns (Role role, address owner, uint40 exitBlock) {
        Party storage party = _parties[operator];
        return (party.role, party.owner, party.exitBlock);
    }

    /// @inheritdoc IRegistry
    function ownerOf(address operator) external view returns (address) {
        return _parties[operator].owner;
    }

    /// @inheritdoc IRegistry
    function payoutOf(address account) public view returns (address payout) {
        payout = _payouts[account];
        if (payout == address(0)) payout = _parties[account].owner;
        if (payout == address(0)) payout = account;
    }

    /// @inheritdoc IRegistry
    function classOf(address operator) external view returns (bytes32) {
        return _classes[_standings[operator].class];
    }

    /// @inheritdoc IRegistry
    function vrfKeyOf(address scheduler) external view returns (uint256 x, uint256 y) {
        VrfKey storage key = _vrfKeys[scheduler];
        return (key.x, key.y);
    }

    /// @inheritdoc IRegistry
    function sizeAt(bytes32 group, uint256 blockNumber) public view returns (uint256) {
        (uint256 word,) = _sizes[group].walk(blockNumber);
        return History.sizeIn(word, blockNumber);
    }

    /// @inheritdoc IRegistry
    function entryAt(bytes32 group, uint256 place, uint256 blockNumber) external view returns (Entry memory) {
        uint256 word;
        if (place < sizeAt(group, blockNumber)) (word,) = _entries[group][place].walk(blockNumber);
        return Entries.unpack(word);
    }

    /// @inheritdoc IRegistry
    function askAt(bytes32 group, address operator, uint256 blockNumber) external view returns (Ask memory) {
        (uint256 word,) = _asks[group][operator].walk(blockNumber);
        return Entries.unpackAsk(word);
    }

    /// @inheritdoc IRegistry
    function sliceOf(address operator) external view returns (uint8 first, uint8 end, uint48 one, uint48 two) {
        Party storage party = _parties[operator];
        Standing storage standing = _standings[operator];
        return (party.first, party.end, standing.one, standing.two);
    }

    /// @inheritdoc IRegistry
    function suspensionOf(address operator) external view returns (bytes32 caseId, uint40 blockNumber) {
        Suspension storage suspension = _suspensions[operator];
        return (suspension.caseId, suspension.blockNumber);
    }

    /// @inheritdoc IRegistry
    function convictionCount(address operator) external view returns (uint256) {
        return _standings[operator].convictions;
    }

    /// @inheritdoc IRegistry
    function isVoidByAny(address operator, uint64 referenceBlock) external view returns (bool) {
        Standing storage standing = _standings[operator];
        return standing.convictions != 0 && referenceBlock >= standing.voidFrom && referenceBlock <= standing.voidUntil;
    }
}
