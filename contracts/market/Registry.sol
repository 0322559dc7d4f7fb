// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {Groups} from "./Groups.sol";
import {IBank} from "./interfaces/IBank.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {
    Ask,
    Consent,
    NodeRegistration,
    PotKind,
    Role,
    Rules,
    SchedulerRegistration,
    Segment
} from "./interfaces/MarketTypes.sol";
import {Fault} from "./interfaces/Proceedings.sol";
import {Messages} from "./libraries/Messages.sol";
import {PlainText} from "./libraries/PlainText.sol";
import {Signatures} from "./libraries/Signatures.sol";

/// @title Registration, asks, slices and discipline of operators
/// @dev Calls that take stake collect it before they read or write anything of their own, so that a token which calls
///      back meets a state that is whole.
contract Registry is Groups {
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
        uint256 received = _collect(operator, amount);
        Party storage party = _known(operator);
        if (party.exitBlock != 0) revert AlreadyExiting(operator, party.exitBlock);
        Standing memory standing = _standings[operator];
        // Nothing is owed for what a node served that has no penalty left to lose: no gift makes it worth something again.
        uint256 penalty = uint96(_words[_classes[standing.class]]);
        _requireStake(_stakeOf(operator) - received, penalty);
        if (msg.sender != party.owner && msg.sender != operator) return;
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
}
