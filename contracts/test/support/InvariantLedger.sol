// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {ITrothMoney} from "../../interfaces/ITrothMoney.sol";
import {Account as Standing, Outcome, Phase, SlashReason, Task} from "../../interfaces/TrothTypes.sol";
import {TaskTest} from "./TaskTest.sol";

/// @title Books kept beside the contract, from what goes in, what comes out and which slashes are announced
/// @dev No book is read from the contract's own sums: a mistake there shows up as a difference.
abstract contract InvariantLedger is TaskTest {
    uint256 internal constant MOST_UNITS_REJECTED = 2 + 6 * 3;
    uint256 internal constant MOST_UNITS_LATE = 8 * 2;

    address internal reporter = makeAddr("reporter");
    address internal funder = makeAddr("funder");
    address[] internal operators;
    address[] internal clients;

    /// @notice Tasks ever opened, as abi.encode(Play), with where each stands.
    bytes[] internal plays;
    Phase[] internal phases;
    Outcome[] internal outcomes;

    mapping(address operator => uint256) internal stakes;
    mapping(address operator => uint256) internal exitBlocks;
    mapping(address client => uint256) internal deposited;
    mapping(bytes32 taskId => mapping(bytes32 state => bool)) private _seen;
    mapping(Outcome outcome => uint256) public finished;
    mapping(SlashReason reason => uint256) public slashes;

    /// @notice Wei that went into the contract.
    uint256 public paidIn;
    /// @notice Fees of the tasks that are not finished.
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
        liveFees -= play.task.terms.fee;
    }

    function stateOf(Task memory task) internal pure returns (bytes32) {
        return keccak256(abi.encode(keccak256(abi.encode(task.terms)), task.progress)) & ~bytes32(uint256(0xffff));
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
        return UNIT * (reason == SlashReason.SchedulerLate ? MOST_UNITS_LATE : 2);
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
            bytes32 expected = outcomes[i] == Outcome.None ? stateOf(play.task) : bytes32(uint256(outcomes[i]));
            if (troth.taskState(play.id) != expected) ++count;
        }
    }

    function _ofAccount(address account) private view returns (uint256) {
        Standing memory found = troth.accountOf(account);
        return uint256(found.stake) + found.credit;
    }
}
