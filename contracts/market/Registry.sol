// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {IWeights} from "./interfaces/IWeights.sol";
import {
    Ask,
    Consent,
    DrawRequest,
    Entry,
    Fault,
    NodeRegistration,
    Parameters,
    PotKind,
    Role,
    Rules,
    SchedulerRegistration,
    Segment
} from "./interfaces/MarketTypes.sol";
import {Entries} from "./libraries/Entries.sol";
import {History} from "./libraries/History.sol";
import {Messages} from "./libraries/Messages.sol";
import {PlainText} from "./libraries/PlainText.sol";
import {Signatures} from "./libraries/Signatures.sol";

/// @title Parties, asks, slices, groups and seats
/// @dev Blocks are kept in 32 bits. A group is a compact array of entries, each place of it with its history; who
///      leaves is replaced by the last. Calls that take stake collect it before they read or write anything of their
///      own, so that a token which calls back meets a state that is whole.
contract Registry is IRegistry {
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

    /// @dev What all tries of a draw have in common.
    /// @param next number of the next try; at `end` there are no more
    /// @param scale what the lower half of a chance is taken by
    /// @param seasoning blocks, or none
    /// @param tags bit t: an excluded owner has the tag t
    /// @param plain neither weights nor asks count
    struct Tries {
        uint256 next;
        bytes32 seed;
        uint256 end;
        uint256 size;
        uint256 blockNumber;
        uint256 scale;
        uint256 seasoning;
        uint256 tags;
        bool plain;
    }

    uint256 private constant SEAT_SHIFT = 96;
    uint256 private constant CAP_SHIFT = 192;
    uint256 private constant NUMBER_SHIFT = 208;
    uint256 private constant LAYERS_SHIFT = 240;
    uint256 private constant BASIS_POINTS = 10_000;
    /// @dev A try is accepted with the stake's share of honest seats over the cap at least, and no cap is above 32
    ///      (Classes): so many tries suffice for any group.
    uint256 private constant FIRST_TRIES = 256;
    uint256 private constant TRIES_PER_SEAT = 128;
    uint256 private constant RULES_BYTES = 20 * 32;

    IBank private immutable BANK;
    address private immutable COURT;
    address private immutable SUMMONS;
    address private immutable EVIDENCE;
    address private immutable CLASSES;
    IWeights private immutable WEIGHTS;
    uint256 private immutable LAG;
    uint256 private immutable UNBONDING;
    uint256 private immutable SEASONING;
    uint256 private immutable REFERENCE_AGE;
    uint256 private immutable SUSPENSION_PAUSE;
    uint256 private immutable SCHEDULER_STAKE;

    mapping(bytes32 executionClass => Rules) private _rules;
    /// @dev What registrations, draws, summons and convictions read of a class, in one slot. From the lowest bit:
    ///      penalty 96 bits; seat 96; seat cap 16; number of the class, from 1, 32; layers 8; verifiers 8.
    mapping(bytes32 executionClass => uint256) private _words;
    mapping(uint256 number => bytes32 executionClass) private _classes;
    uint32 private _classCount;
    mapping(address operator => Party) private _parties;
    mapping(address operator => Standing) private _standings;
    mapping(address operator => Suspension) private _suspensions;
    mapping(address operator => address) private _payouts;
    mapping(address scheduler => VrfKey) private _vrfKeys;
    mapping(bytes32 group => History.Word) private _sizes;
    mapping(bytes32 group => mapping(uint256 place => History.Word)) private _entries;
    mapping(bytes32 group => mapping(address operator => History.Word)) private _asks;

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

    // ---- classes

    /// @inheritdoc IRegistry
    function admitClass(bytes32 executionClass, Rules calldata rules) external {
        _requireCaller(CLASSES);
        if (_words[executionClass] != 0) revert ClassKnown(executionClass);
        uint32 number = ++_classCount;
        _classes[number] = executionClass;
        _rules[executionClass] = rules;
        // No class has more layers than eight bits hold (Classes).
        _words[executionClass] = uint256(rules.penalty) | uint256(rules.seat) << SEAT_SHIFT
            | uint256(rules.seatCap) << CAP_SHIFT | uint256(number) << NUMBER_SHIFT
            | uint256(rules.layers) << LAYERS_SHIFT;
    }

    // ---- registration and standing

    /// @inheritdoc IRegistry
    function registerNode(NodeRegistration calldata registration, bytes calldata consent) external payable {
        address operator = registration.operator;
        bytes32 class = registration.executionClass;
        string calldata endpoint = registration.endpoint;
        (uint8 first, uint8 end) = (registration.first, registration.end);
        uint256 stake = _collect(operator, registration.stake);
        uint256 word = _wordOf(class);
        _requireStake(stake, _seatIn(word));
        _requireSlice(word, first, end);
        address payout = _admit(operator, Role.Node, registration.payout, endpoint, consent);
        _setSlice(operator, first, end);
        emit NodeRegistered(
            operator,
            msg.sender,
            class,
            payout,
            first,
            end,
            endpoint,
            registration.tlsKeyHash
        );
        Standing memory standing;
        standing.class = uint32(word >> NUMBER_SHIFT);
        uint48[2] memory kept;
        _host(
            operator,
            class,
            standing,
            kept,
            registration.segments,
            registration.asks,
            _seats(word, stake)
        );
        _standings[operator] = standing;
    }

    /// @inheritdoc IRegistry
    function registerScheduler(SchedulerRegistration calldata registration, bytes calldata consent) external payable {
        address operator = registration.operator;
        string calldata endpoint = registration.endpoint;
        (uint256 vrfX, uint256 vrfY) = (registration.vrfX, registration.vrfY);
        uint256 stake = _collect(operator, registration.stake);
        _requireStake(stake, SCHEDULER_STAKE);
        if (!EcVrf.isOnCurve(vrfX, vrfY)) {
            revert InvalidVrfKey(vrfX, vrfY);
        }
        address payout = _admit(operator, Role.Scheduler, registration.payout, endpoint, consent);
        _vrfKeys[operator] = VrfKey({x: vrfX, y: vrfY});
        emit SchedulerRegistered(
            operator,
            msg.sender,
            payout,
            vrfX,
            vrfY,
            endpoint,
            registration.tlsKeyHash
        );
    }

    function _admit(
        address operator,
        Role role,
        address payout,
        string calldata endpoint,
        bytes calldata consent
    ) private returns (address) {
        if (_parties[operator].role != Role.None) revert OperatorKnown(operator);
        PlainText.requireHttps(endpoint);
        bytes32 structHash = Messages.hash(Consent({owner: msg.sender, operator: operator}));
        address signer = Signatures.signerOf(Messages.digest(Messages.separator(address(BANK)), structHash), consent);
        if (signer == address(0) || signer != operator) revert InvalidConsent(operator, signer);
        Party storage party = _parties[operator];
        (party.owner, party.role) = (msg.sender, role);
        if (payout == address(0) || payout == msg.sender) return msg.sender;
        _payouts[operator] = payout;
        return payout;
    }

    /// @inheritdoc IRegistry
    function setAsk(address operator, uint8 first, uint8 end, Ask calldata ask) external {
        _requireActive(operator);
        Standing memory standing = _standings[operator];
        uint48 membership = _find(_memberships(standing), first, end);
        if (membership == 0) revert NotInSegment(operator, first, end);
        _ask(operator, _classes[standing.class], membership, ask);
    }

    /// @inheritdoc IRegistry
    function changeSlice(address operator, uint8 first, uint8 end, Segment[] calldata segments, Ask[] calldata asks)
        external
    {
        _requireActive(operator);
        Party storage party = _parties[operator];
        if (party.role != Role.Node) revert WrongRole(operator, party.role);
        if (block.number < party.keptUntil) revert SliceChangedLately(party.keptUntil, block.number);
        Standing memory standing = _standings[operator];
        bytes32 class = _classes[standing.class];
        uint256 word = _words[class];
        uint256 stake = _stakeOf(operator);
        _requireStake(stake, _seatIn(word));
        uint256 seats = _seats(word, stake);
        unchecked {
            party.keptUntil = uint32(block.number + REFERENCE_AGE);
        }
        _requireSlice(word, first, end);
        _setSlice(operator, first, end);
        emit SliceChanged(operator, first, end);
        uint48[2] memory kept = _leaveOthers(operator, class, standing, segments);
        _reseat(class, standing, seats);
        _host(operator, class, standing, kept, segments, asks, seats);
        _standings[operator] = standing;
    }

    /// @inheritdoc IRegistry
    function setEndpoint(address operator, string calldata endpoint, bytes32 tlsKeyHash) external {
        _requireActive(operator);
        PlainText.requireHttps(endpoint);
        emit EndpointChanged(operator, endpoint, tlsKeyHash);
    }

    /// @inheritdoc IRegistry
    function setPayout(address operator, address payout) external {
        Party storage party = _known(operator);
        if (msg.sender != party.owner) revert NotOwner(operator, msg.sender);
        if (payout == address(0)) revert ZeroAddress();
        emit PayoutChanged(operator, payoutOf(operator), payout);
        _payouts[operator] = payout;
    }

    /// @inheritdoc IRegistry
    function topUp(address operator, uint96 amount) external payable {
        _collect(operator, amount);
        Party storage party = _known(operator);
        if (party.exitBlock != 0) revert AlreadyExiting(operator, party.exitBlock);
        if (msg.sender != party.owner && msg.sender != operator) return;
        Standing memory standing = _standings[operator];
        if (standing.one | standing.two == 0) return;
        (bytes32 class, uint256 covered) = _coveredOf(operator, standing);
        _reseat(class, standing, covered);
    }

    /// @inheritdoc IRegistry
    function deregister(address operator) external {
        Party storage party = _requireActive(operator);
        unchecked {
            party.exitBlock = uint32(block.number + UNBONDING);
        }
        emit Deregistered(operator, party.exitBlock);
        Standing memory standing = _standings[operator];
        _leaveAll(operator, _classes[standing.class], standing);
        _standings[operator] = standing;
    }

    /// @inheritdoc IRegistry
    function withdrawStake(address operator) external {
        Party storage party = _known(operator);
        if (party.exitBlock == 0) revert NotExiting(operator);
        if (block.number <= party.exitBlock) revert StillUnbonding(party.exitBlock, block.number);
        (uint96 amount, uint96 locked) = BANK.stakeOf(operator);
        if (locked != 0) revert StakeLocked(operator, locked);
        bytes32 id = _pot(operator);
        emit StakeWithdrawn(operator, amount);
        _release(id, amount);
    }

    /// @dev BANK.move(id, [Movement(PotKind.Stake, id, PotKind.Credit, id, amount)]), written by hand: the compiler's way
    ///      to encode an array of structs is 200 bytes of code.
    function _release(bytes32 id, uint256 amount) private {
        (address bank, bytes4 selector) = (address(BANK), IBank.move.selector);
        uint256 stake = uint256(PotKind.Stake);
        uint256 credit = uint256(PotKind.Credit);
        assembly ("memory-safe") {
            let call_ := mload(0x40)
            mstore(call_, selector)
            mstore(add(call_, 0x04), id)
            mstore(add(call_, 0x24), 0x40)
            mstore(add(call_, 0x44), 1)
            mstore(add(call_, 0x64), stake)
            mstore(add(call_, 0x84), id)
            mstore(add(call_, 0xa4), credit)
            mstore(add(call_, 0xc4), id)
            mstore(add(call_, 0xe4), amount)
            if iszero(call(gas(), bank, 0, call_, 0x104, 0, 0)) {
                returndatacopy(call_, 0, returndatasize())
                revert(call_, returndatasize())
            }
        }
    }

    /// @inheritdoc IRegistry
    function evict(address operator) external {
        _known(operator);
        Standing memory standing = _standings[operator];
        if (!_shrink(operator, standing)) revert NothingToEvict(operator);
        _standings[operator] = standing;
    }

    // ---- what the other contracts do to parties

    /// @inheritdoc IRegistry
    function suspend(address operator, bytes32 caseId) external returns (bool suspended) {
        _requireCaller(COURT);
        _known(operator);
        Standing memory standing = _standings[operator];
        Suspension storage suspension = _suspensions[operator];
        uint256 last = suspension.blockNumber;
        if (standing.suspended || (last != 0 && block.number < last + SUSPENSION_PAUSE)) return false;
        suspension.caseId = caseId;
        suspension.blockNumber = uint40(block.number);
        emit Suspended(operator, caseId);
        uint256 seats = _currentSeats(standing);
        standing.suspended = true;
        standing.seatsBefore = uint16(seats);
        _reseat(_classes[standing.class], standing, seats);
        _standings[operator] = standing;
        return true;
    }

    /// @inheritdoc IRegistry
    function restore(address operator, bytes32 caseId) external {
        _requireCaller(COURT);
        Standing memory standing = _standings[operator];
        if (!standing.suspended || _suspensions[operator].caseId != caseId) return;
        _suspensions[operator].caseId = 0;
        emit Restored(operator, caseId);
        standing.suspended = false;
        if (standing.one | standing.two != 0) {
            (bytes32 class, uint256 covered) = _coveredOf(operator, standing);
            _reseatOrEvict(operator, class, standing, covered);
        }
        standing.seatsBefore = 0;
        _standings[operator] = standing;
    }

    /// @inheritdoc IRegistry
    function convict(address operator, Fault fault, bytes32 subject, uint64 offenceBlock) external {
        if (msg.sender != SUMMONS && msg.sender != EVIDENCE) _requireCaller(COURT);
        _known(operator);
        Standing memory standing = _standings[operator];
        standing.voidUntil = uint32(block.number);
        _void(operator, standing, fault, subject, offenceBlock);
        _shrink(operator, standing);
        _standings[operator] = standing;
    }

    /// @inheritdoc IRegistry
    function date(address operator, Fault fault, bytes32 subject, uint64 offenceBlock) external {
        _requireCaller(EVIDENCE);
        Standing memory standing = _standings[operator];
        _void(operator, standing, fault, subject, offenceBlock);
        _standings[operator] = standing;
    }

    /// @dev Voids from the lag before an offence to where the standing says.
    function _void(address operator, Standing memory standing, Fault fault, bytes32 subject, uint256 offence) private {
        // An offence in the future would void nothing.
        offence = Math.min(offence, standing.voidUntil);
        uint256 index = standing.convictions;
        uint256 voidFrom = 0;
        unchecked {
            if (offence > LAG) voidFrom = offence - LAG;
            standing.convictions = uint32(index + 1);
        }
        if (index == 0 || voidFrom < standing.voidFrom) standing.voidFrom = uint32(voidFrom);
        emit Convicted(operator, fault, subject, uint64(voidFrom), standing.voidUntil, index);
    }

    // ---- draws

    /// @inheritdoc IRegistry
    function draw(DrawRequest calldata request) external view returns (address[] memory drawn) {
        drawn = _draw(request, History.given(request.hints));
        // abi.encode(drawn), with its offset where nothing is needed any more.
        assembly ("memory-safe") {
            let start := sub(drawn, 0x20)
            mstore(start, 0x20)
            return(start, shl(5, add(mload(drawn), 2)))
        }
    }

    /// @inheritdoc IRegistry
    function search(DrawRequest calldata request) external view returns (address[] memory drawn, bytes memory hints) {
        History.Hints memory found = History.search(1 + 2 * _tries(request.count));
        drawn = _draw(request, found);
        hints = History.found(found);
    }

    function _draw(DrawRequest calldata request, History.Hints memory hints)
        private
        view
        returns (address[] memory drawn)
    {
        uint256 blockNumber = request.blockNumber;
        if (blockNumber >= block.number) revert BlockNotPast(blockNumber, block.number);
        uint256 scale = uint16(_wordOf(request.executionClass) >> CAP_SHIFT) * BASIS_POINTS;
        bytes32 group = groupId(request.executionClass, request.first, request.end);
        uint256 size = History.sizeIn(_sizes[group].valueAt(blockNumber, hints), blockNumber);
        if (size == 0) revert GroupEmpty(group, blockNumber);
        uint256 count = request.count;
        drawn = new address[](count);
        Tries memory tries;
        (tries.seed, tries.end) = (request.seed, _tries(count));
        (tries.size, tries.blockNumber, tries.scale) = (size, blockNumber, scale);
        tries.seasoning = request.seasoned ? SEASONING : 0;
        tries.tags = _tagsOf(request.excluded);
        tries.plain = !request.distinct && address(WEIGHTS) == address(0);
        mapping(uint256 place => History.Word) storage entries = _entries[group];
        for (uint256 found = 0;;) {
            bool unusual;
            (found, unusual) = _rush(tries, entries, drawn, found);
            if (found == count) break;
            if (!unusual) revert DrawExhausted(group, found, count);
            uint256 h = _chance(request.seed, tries.next - 1);
            uint256 word = entries[(h >> 128) % size].valueAt(blockNumber, hints);
            uint256 seats = Entries.seatsIn(word, request.seasoned, blockNumber, SEASONING);
            if (seats == 0) continue;
            address operator = Entries.operatorIn(word);
            unchecked {
                // Sixteen bits by fourteen.
                if (uint128(h) % scale >= seats * _weight(operator, blockNumber)) continue;
            }
            if (tries.tags >> Entries.tagIn(word) & 1 != 0 && _isExcluded(operator, request.excluded)) continue;
            if (request.distinct) {
                if (_isAmong(operator, drawn, found)) continue;
                uint256 ask = _asks[group][operator].valueAt(blockNumber, hints);
                if (!Entries.isWithin(ask, request.bound)) continue;
            }
            assembly ("memory-safe") {
                // Below `count`, for which there is room.
                found := add(found, 1)
                mstore(add(drawn, shl(5, found)), operator)
            }
        }
    }

    /// @dev Tries one after the other, as far as nothing needs a closer look: whether an owner is excluded whose tag is,
    ///      an entry that is newer than the block, weights, asks. Which try that is, the caller does again as a whole.
    /// @param found seats so far; there is room for all
    /// @return found with those that were added
    /// @return unusual whether the last try needs a closer look; else all are found or no try is left
    function _rush(
        Tries memory tries,
        mapping(uint256 place => History.Word) storage entries,
        address[] memory drawn,
        uint256 found
    ) private view returns (uint256, bool unusual) {
        assembly ("memory-safe") {
            let i := mload(tries)
            // keccak256(abi.encode(seed, i)), and behind it the slot of a place.
            let words := mload(0x40)
            mstore(words, mload(add(tries, 0x20)))
            mstore(add(words, 0x60), entries.slot)
            let blockNumber := mload(add(tries, 0x80))
            let to := add(drawn, shl(5, add(found, 1)))
            for { let end := add(drawn, shl(5, add(mload(drawn), 1))) } lt(to, end) { } {
                if eq(i, mload(add(tries, 0x40))) { break }
                mstore(add(words, 0x20), i)
                i := add(i, 1)
                let h := keccak256(words, 0x40)
                mstore(add(words, 0x40), mod(shr(128, h), mload(add(tries, 0x60))))
                let word := sload(keccak256(add(words, 0x40), 0x40))
                unusual := or(iszero(mload(add(tries, 0x100))), gt(and(word, 0xffffffff), blockNumber))
                if unusual { break }
                let seats := and(shr(80, word), 0xff)
                if gt(add(and(shr(32, word), 0xffffffff), mload(add(tries, 0xc0))), blockNumber) {
                    let settled := and(shr(64, word), 0xffff)
                    if lt(settled, seats) { seats := settled }
                }
                h := mod(and(h, 0xffffffffffffffffffffffffffffffff), mload(add(tries, 0xa0)))
                if iszero(lt(h, mul(seats, BASIS_POINTS))) { continue }
                unusual := and(shr(and(shr(88, word), 0xff), mload(add(tries, 0xe0))), 1)
                if unusual { break }
                mstore(to, shr(96, word))
                to := add(to, 0x20)
            }
            mstore(tries, i)
            found := sub(shr(5, sub(to, drawn)), 1)
        }
        return (found, unusual);
    }

    /// @dev keccak256(abi.encode(seed, i)).
    function _chance(bytes32 seed, uint256 i) private pure returns (uint256 h) {
        assembly ("memory-safe") {
            mstore(0, seed)
            mstore(0x20, i)
            h := keccak256(0, 0x40)
        }
    }

    /// @dev Bit t: one of these owners has the tag t.
    function _tagsOf(address[] calldata owners) private pure returns (uint256 tags) {
        assembly ("memory-safe") {
            let at := owners.offset
            for { let end := add(at, shl(5, owners.length)) } lt(at, end) { at := add(at, 0x20) } {
                tags := or(tags, shl(and(calldataload(at), 0xff), 1))
            }
        }
    }

    function _tries(uint256 count) private pure returns (uint256) {
        return FIRST_TRIES + TRIES_PER_SEAT * count;
    }

    function _weight(address operator, uint256 blockNumber) private view returns (uint256) {
        if (address(WEIGHTS) == address(0)) return BASIS_POINTS;
        return Math.min(BASIS_POINTS, WEIGHTS.weightAt(operator, blockNumber));
    }

    function _isAmong(address operator, address[] memory drawn, uint256 count) private pure returns (bool found) {
        assembly ("memory-safe") {
            for { } count { count := sub(count, 1) } {
                found := or(found, eq(mload(add(drawn, shl(5, count))), operator))
            }
        }
    }

    function _isExcluded(address operator, address[] calldata excluded) private view returns (bool found) {
        address owner = _parties[operator].owner;
        assembly ("memory-safe") {
            let at := excluded.offset
            for { let end := add(at, shl(5, excluded.length)) } lt(at, end) { at := add(at, 0x20) } {
                found := or(found, eq(calldataload(at), owner))
            }
        }
    }

    // ---- groups

    function _setSlice(address operator, uint8 first, uint8 end) private {
        Party storage party = _parties[operator];
        (party.first, party.end) = (first, end);
    }

    function _requireSlice(uint256 word, uint8 first, uint8 end) private pure {
        uint8 layers = uint8(word >> LAYERS_SHIFT);
        if (first >= end || end > layers) revert InvalidSlice(first, end, layers);
    }

    /// @dev Puts a node into the groups of one or two segments, unless it is there, and sets its asks.
    function _host(
        address operator,
        bytes32 class,
        Standing memory standing,
        uint48[2] memory kept,
        Segment[] calldata segments,
        Ask[] calldata asks,
        uint256 seats
    ) private {
        uint256 count = segments.length;
        if (count == 0 || count > 2 || count != asks.length) revert InvalidSegmentCount(count, asks.length);
        if (count == 2 && segments[0].first == segments[1].first && segments[0].end == segments[1].end) {
            revert SegmentTwice(segments[0].first, segments[0].end);
        }
        if (standing.suspended) seats = 0;
        uint48[2] memory places;
        for (uint256 i = 0; i < count; ++i) {
            places[i] = _enter(operator, class, kept, segments[i], seats);
            _ask(operator, class, places[i], asks[i]);
        }
        (standing.one, standing.two) = (places[0], places[1]);
    }

    function _enter(
        address operator,
        bytes32 class,
        uint48[2] memory kept,
        Segment calldata segment,
        uint256 seats
    ) private returns (uint48 membership) {
        (uint8 first, uint8 end) = (segment.first, segment.end);
        Party storage party = _parties[operator];
        if (first >= end || first < party.first || end > party.end) {
            revert SegmentOutsideSlice(first, end, party.first, party.end);
        }
        membership = _find(kept, first, end);
        if (membership == 0) {
            uint256 place = _join(groupId(class, first, end), operator, seats);
            membership = uint48(uint256(first) << 40 | uint256(end) << 32 | place);
        }
    }

    function _ask(address operator, bytes32 class, uint48 membership, Ask calldata ask) private {
        (bytes32 group,) = _locate(class, membership);
        _asks[group][operator].put(Entries.packAsk(ask, block.number));
        emit AskChanged(operator, uint8(membership >> 40), uint8(membership >> 32), ask);
    }

    function _join(bytes32 group, address operator, uint256 seats) private returns (uint256 place) {
        History.Word storage sizes = _sizes[group];
        place = sizes.latestSize();
        sizes.putSize(place + 1);
        Entry memory entry =
            Entry({operator: operator, fromBlock: 0, since: uint32(block.number), seats: uint16(seats), settled: 0});
        _put(group, place, entry, Entries.tagOf(_parties[operator].owner), place + 1);
    }

    /// @dev Swap and pop: the last takes the place. What stands beyond the end stays, for the blocks before.
    function _leave(address operator, bytes32 class, uint48 membership) private {
        (bytes32 group, uint256 place) = _locate(class, membership);
        History.Word storage sizes = _sizes[group];
        uint256 last;
        unchecked {
            // It is there itself.
            last = sizes.latestSize() - 1;
        }
        sizes.putSize(last);
        if (place == last) {
            Entry memory nobody;
            return _announce(group, place, nobody, last);
        }
        uint256 word = _entries[group][last].latest;
        Entry memory moved = Entries.unpack(word);
        assert(moved.operator != operator);
        // It lies at `place` from now on, as the membership says of who leaves.
        Standing storage standing = _standings[moved.operator];
        if (standing.one >> 32 == membership >> 32) standing.one = membership;
        else standing.two = membership;
        _put(group, place, moved, Entries.tagIn(word), last);
    }

    function _announce(bytes32 group, uint256 place, Entry memory entry, uint256 size) private {
        emit EntryChanged(group, uint32(place), entry, uint32(size));
    }

    function _leaveAll(address operator, bytes32 class, Standing memory standing) private {
        if (standing.one != 0) _leave(operator, class, standing.one);
        if (standing.two != 0) _leave(operator, class, standing.two);
        (standing.one, standing.two) = (0, 0);
    }

    function _reseatOrEvict(address operator, bytes32 class, Standing memory standing, uint256 covered) private {
        if (covered != 0) return _reseat(class, standing, covered);
        emit Evicted(operator);
        _leaveAll(operator, class, standing);
    }

    /// @dev Leaves the groups of no segment among `segments`; a node stays where it is in the others, so that its
    ///      seats there do not season again.
    function _leaveOthers(address operator, bytes32 class, Standing memory standing, Segment[] calldata segments)
        private
        returns (uint48[2] memory kept)
    {
        kept = _memberships(standing);
        for (uint256 i = 0; i < 2; ++i) {
            uint48 membership = kept[i];
            if (membership == 0) continue;
            bool stays = false;
            for (uint256 j = 0; j < segments.length; ++j) {
                uint256 segment = uint256(segments[j].first) << 8 | segments[j].end;
                if (membership >> 32 == segment) stays = true;
            }
            if (stays) continue;
            _leave(operator, class, membership);
            kept[i] = 0;
        }
        (standing.one, standing.two) = (kept[0], kept[1]);
    }

    /// @dev Takes away what the stake no longer covers.
    /// @return changed whether there was anything to take
    function _shrink(address operator, Standing memory standing) private returns (bool changed) {
        if (standing.one | standing.two == 0) return false;
        (bytes32 class, uint256 covered) = _coveredOf(operator, standing);
        uint256 seats = standing.suspended ? standing.seatsBefore : _currentSeats(standing);
        if (covered != 0 && covered >= seats) return false;
        _reseatOrEvict(operator, class, standing, covered);
        if (standing.suspended) standing.seatsBefore = uint16(covered);
        return true;
    }

    /// @dev The same seats in each group of a node; none while it is suspended. After a suspension (`seatsBefore`
    ///      stands, and `suspended` does not) first the seats of before as they had seasoned; what is above begins to
    ///      season.
    function _reseat(bytes32 class, Standing memory standing, uint256 seats) private {
        if (standing.suspended) seats = 0;
        uint256 before = standing.suspended ? 0 : standing.seatsBefore;
        _reseatIn(class, standing.one, seats, before);
        _reseatIn(class, standing.two, seats, before);
    }

    function _reseatIn(bytes32 class, uint48 membership, uint256 seats, uint256 before) private {
        if (membership == 0) return;
        (bytes32 group, uint256 place) = _locate(class, membership);
        uint256 word = _entries[group][place].latest;
        Entry memory entry = Entries.unpack(word);
        if (before != 0) entry.seats = uint16(Math.min(before, seats));
        else if (entry.seats == seats) return;
        Entries.setSeats(entry, seats, block.number, SEASONING);
        _put(group, place, entry, Entries.tagIn(word), _sizes[group].latestSize());
    }

    function _locate(bytes32 class, uint48 membership) private pure returns (bytes32 group, uint256 place) {
        group = groupId(class, uint8(membership >> 40), uint8(membership >> 32));
        place = uint32(membership);
    }

    /// @param tag of the entry's owner
    function _put(bytes32 group, uint256 place, Entry memory entry, uint256 tag, uint256 size) private {
        entry.fromBlock = uint32(block.number);
        _entries[group][place].put(Entries.tagged(Entries.pack(entry), tag));
        _announce(group, place, entry, size);
    }

    function _memberships(Standing memory standing) private pure returns (uint48[2] memory) {
        return [standing.one, standing.two];
    }

    function _find(uint48[2] memory memberships, uint8 first, uint8 end) private pure returns (uint48) {
        uint256 segment = uint256(first) << 8 | end;
        if (memberships[0] >> 32 == segment) return memberships[0];
        return memberships[1] >> 32 == segment ? memberships[1] : 0;
    }

    function _currentSeats(Standing memory standing) private view returns (uint256) {
        uint48 membership = standing.one != 0 ? standing.one : standing.two;
        if (membership == 0) return 0;
        (bytes32 group, uint256 place) = _locate(_classes[standing.class], membership);
        return Entries.seatsIn(_entries[group][place].latest, false, 0, 0);
    }

    // ---- stake

    /// @dev The Bank credits what arrives, which may be less than the amount.
    function _collect(address operator, uint96 amount) private returns (uint256 received) {
        bytes32 id = _pot(operator);
        return BANK.collect{value: msg.value}(id, msg.sender, PotKind.Stake, id, amount);
    }

    function _coveredOf(address operator, Standing memory standing)
        private
        view
        returns (bytes32 class, uint256 seats)
    {
        class = _classes[standing.class];
        seats = _seats(_words[class], _stakeOf(operator));
    }

    function _seats(uint256 word, uint256 stake) private pure returns (uint256) {
        return Math.min(uint16(word >> CAP_SHIFT), stake / _seatIn(word));
    }

    function _seatIn(uint256 word) private pure returns (uint256) {
        return uint96(word >> SEAT_SHIFT);
    }

    /// @dev Locks are part of the stake until a case takes them.
    function _stakeOf(address operator) private view returns (uint256) {
        (uint256 stake, uint256 locked) = BANK.stakeOf(operator);
        unchecked {
            // Two sums of 96 bits.
            return stake + locked;
        }
    }

    function _pot(address operator) private pure returns (bytes32) {
        return bytes32(uint256(uint160(operator)));
    }

    // ---- checks

    function _requireCaller(address allowed) private view {
        if (msg.sender != allowed) revert NotAuthorised(msg.sender);
    }

    function _requireStake(uint256 stake, uint256 least) private pure {
        if (stake < least) revert StakeTooLow(stake, least);
    }

    function _known(address operator) private view returns (Party storage party) {
        party = _parties[operator];
        if (party.role == Role.None) revert UnknownOperator(operator);
    }

    function _wordOf(bytes32 executionClass) private view returns (uint256 word) {
        word = _words[executionClass];
        if (word == 0) revert UnknownClass(executionClass);
    }

    /// @dev A call of an owner or an operator for a party that has not left.
    function _requireActive(address operator) private view returns (Party storage party) {
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
