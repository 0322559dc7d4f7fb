// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {ITrothMoney} from "../../interfaces/ITrothMoney.sol";
import {ITrothDisputes} from "../../interfaces/ITrothDisputes.sol";
import {ITrothSettlement} from "../../interfaces/ITrothSettlement.sol";
import {
    Account as Standing,
    Outcome,
    Phase,
    Role,
    Settled,
    SlashReason,
    Task
} from "../../interfaces/TrothTypes.sol";
import {DisputeTest} from "./DisputeTest.sol";

/// @title Books kept beside the contract, from what goes in, what comes out and which slashes are announced
/// @dev No book is read from the contract's own sums: a mistake there shows up as a difference.
abstract contract InvariantLedger is DisputeTest {
    uint256 internal constant MOST_UNITS_REJECTED = 2 + 6 * 3;
    uint256 internal constant MOST_UNITS_LATE = 8 + 2 + 6 * 3;
    /// @dev One loser for the fee of two segments, a committee of each round, the scheduler and an outsider.
    uint256 internal constant MOST_UNITS_OVERTURNED = 6 * 9 + 8 * 3 + 6 * 5 + 6 + 6 + 20;
    uint256 internal constant MOST_UNITS_LOST = 6 * 5;

    address internal reporter = makeAddr("reporter");
    address internal funder = makeAddr("funder");
    address[] internal operators;
    address[] internal clients;

    /// @notice Tasks ever opened, as abi.encode(Play), with where each stands.
    bytes[] internal plays;
    Phase[] internal phases;
    Outcome[] internal outcomes;
    /// @notice What a settled task keeps, as abi.encode(Settled), and how many of its segments are not accepted.
    bytes[] internal settleds;
    uint256[] internal missing;

    mapping(address operator => uint256) internal stakes;
    mapping(address operator => uint256) internal exitBlocks;
    mapping(address client => uint256) internal deposited;
    mapping(bytes32 taskId => mapping(bytes32 state => bool)) private _seen;
    Settled private _settled;
    mapping(Outcome outcome => uint256) public finished;
    mapping(SlashReason reason => uint256) public slashes;

    /// @notice Wei that went into the contract.
    uint256 public paidIn;
    /// @notice Fees of the tasks, and bonds of the reviews, that are not finished.
    uint256 public liveFees;
    /// @notice Stakes paid out before their time.
    uint256 public earlyWithdrawals;
    /// @notice Slashes above the stake, above what the rules allow, or after the exit block.
    uint256 public wrongSlashes;
    /// @notice Steps of tasks to an earlier phase, to a state they had before, or out of a finished state.
    uint256 public backwardSteps;

    /// @dev Calls the contract with fresh wei, and books what happened if the call succeeds.
    function send(address from, uint256 value, bytes memory data) internal returns (bool success) {
        vm.deal(from, from.balance + value);
        vm.recordLogs();
        vm.prank(from);
        (success,) = address(troth).call{value: value}(data);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        if (!success) {
            vm.deal(from, from.balance - value);
            return false;
        }
        paidIn += value;
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] == ITrothMoney.Slashed.selector) _bookSlash(logs[i]);
            else if (logs[i].topics[0] == ITrothDisputes.BondReturned.selector) _bookBond(logs[i]);
            else if (logs[i].topics[0] == ITrothSettlement.TaskSettled.selector) _bookSettled(logs[i]);
        }
    }

    /// @dev Books a new state of a task; its phase must not be earlier, and the state must be a new one.
    function save(uint256 index, Play memory play) internal {
        bytes32 state = stateOf(play.task);
        if (play.task.progress.phase < phases[index] || outcomes[index] != Outcome.None) ++backwardSteps;
        if (_seen[play.id][state]) ++backwardSteps;
        _seen[play.id][state] = true;
        phases[index] = play.task.progress.phase;
        plays[index] = abi.encode(play);
    }

    /// @dev Books the end of a task.
    function finish(uint256 index, Play memory play) internal {
        if (outcomes[index] != Outcome.None) ++backwardSteps;
        Outcome outcome = troth.outcomeOf(play.id);
        outcomes[index] = outcome;
        ++finished[outcome];
        if (outcome <= Outcome.Indeterminate) {
            settleds[index] = abi.encode(_settled);
            for (uint256 s = 0; s < _settled.outcomes.length; ++s) {
                if (_settled.outcomes[s] != uint8(Outcome.Accepted)) ++missing[index];
            }
            plays[index] = abi.encode(play);
        }
        liveFees -= play.task.terms.fee;
    }

    function stateOf(Task memory task) internal pure returns (bytes32) {
        return keccak256(abi.encode(keccak256(abi.encode(task.terms)), task.progress)) & ~bytes32(uint256(0xffff));
    }

    function _bookSettled(Vm.Log memory log) private {
        (, _settled.outcomes, _settled.verdicts, _settled.clusters, _settled.valid) =
            abi.decode(log.data, (uint8, uint8[], uint8[], uint8[], uint8[]));
        _settled.settledBlock = uint40(vm.getBlockNumber());
    }

    /// @dev A party's bond goes back to its stake, if it still has one.
    function _bookBond(Vm.Log memory log) private {
        address disputer = address(uint160(uint256(log.topics[2])));
        (uint256 amount,) = abi.decode(log.data, (uint256, uint256));
        if (amount == BOND && troth.accountOf(disputer).role != Role.None) stakes[disputer] += amount;
    }

    function _bookSlash(Vm.Log memory log) private {
        address operator = address(uint160(uint256(log.topics[2])));
        (uint256 amount, uint256 left, SlashReason reason,) =
            abi.decode(log.data, (uint256, uint256, SlashReason, bytes32));
        uint256 stake = stakes[operator];
        bool released = exitBlocks[operator] != 0 && vm.getBlockNumber() > exitBlocks[operator];
        if (amount > stake || left + amount != stake || amount > _mostOf(reason) || (released && amount != 0)) {
            ++wrongSlashes;
        }
        if (amount != 0) ++slashes[reason];
        stakes[operator] = stake - Math.min(stake, amount);
    }

    function _mostOf(SlashReason reason) private pure returns (uint256) {
        if (reason == SlashReason.Equivocated) return type(uint256).max;
        if (reason == SlashReason.Rejected) return UNIT * MOST_UNITS_REJECTED;
        if (reason == SlashReason.Overturned) return UNIT * MOST_UNITS_OVERTURNED;
        if (reason == SlashReason.DisputeLost) return UNIT * MOST_UNITS_LOST;
        return UNIT * (reason == SlashReason.SchedulerLate ? MOST_UNITS_LATE : 2);
    }

    /// @notice Tasks ever opened.
    function tasks() external view returns (uint256) {
        return plays.length;
    }

    /// @notice Wei in the contract.
    function held() external view returns (uint256) {
        return address(troth).balance;
    }

    /// @notice What the contract owes: stakes, credits, escrows, and the fees of live tasks.
    function owed() external view returns (uint256 sum) {
        sum = liveFees + _ofAccount(reserve) + _ofAccount(reporter);
        for (uint256 i = 0; i < operators.length; ++i) {
            sum += _ofAccount(operators[i]);
        }
        for (uint256 i = 0; i < clients.length; ++i) {
            sum += _ofAccount(clients[i]) + troth.escrowOf(clients[i]);
        }
    }

    /// @notice Wei that left the contract.
    function paidOut() external view returns (uint256 sum) {
        sum = payout.balance + reserve.balance + reporter.balance;
        for (uint256 i = 0; i < clients.length; ++i) {
            sum += clients[i].balance;
        }
    }

    /// @notice Clients that got or hold more than was ever deposited for them.
    function enrichedClients() external view returns (uint256 count) {
        for (uint256 i = 0; i < clients.length; ++i) {
            if (clients[i].balance + troth.escrowOf(clients[i]) > deposited[clients[i]]) ++count;
        }
    }

    /// @notice Operators whose stake is not what the deposits and the announced slashes leave.
    function wrongStakes() external view returns (uint256 count) {
        for (uint256 i = 0; i < operators.length; ++i) {
            if (troth.accountOf(operators[i]).stake != stakes[operators[i]]) ++count;
        }
    }

    /// @notice Tasks whose slot is neither the state they were last taken to nor the outcome they had.
    function wrongTasks() external view returns (uint256 count) {
        for (uint256 i = 0; i < plays.length; ++i) {
            Play memory play = abi.decode(plays[i], (Play));
            if (troth.taskState(play.id) != _slotOf(i, play)) ++count;
        }
    }

    function _slotOf(uint256 index, Play memory play) private view returns (bytes32) {
        if (outcomes[index] == Outcome.None) return stateOf(play.task);
        if (settleds[index].length == 0) return bytes32(uint256(outcomes[index]));
        bytes32 kept = keccak256(abi.encode(stateOf(play.task), keccak256(settleds[index])));
        return kept & ~bytes32(uint256(0xffff)) | bytes32(missing[index] << 8 | uint256(outcomes[index]));
    }

    function _ofAccount(address account) private view returns (uint256) {
        Standing memory found = troth.accountOf(account);
        return uint256(found.stake) + found.credit;
    }
}
