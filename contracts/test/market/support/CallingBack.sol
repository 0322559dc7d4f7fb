// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice A call that is to be made.
struct Planned {
    address target;
    uint256 value;
    bytes data;
}

/// @title A party that is a contract: whenever it is paid, or a token moves, it makes the next calls that were planned
/// @notice What such a call is answered does not matter to it, as long as there is gas.
contract CallingBack {
    /// @dev Calls that one payment brings.
    uint256 private constant AT_ONCE = 3;

    Planned[] private _planned;
    uint256 private _next;
    /// @notice Calls of `act` that were not refused.
    mapping(bytes4 selector => uint256) public done;
    /// @notice Calls that were made while it was called, and not refused.
    mapping(bytes4 selector => uint256) public made;

    /// @notice Plans these, and makes a call.
    function act(Planned calldata call_, Planned[] calldata planned) external {
        delete _planned;
        _next = 0;
        for (uint256 i = 0; i < planned.length; ++i) {
            _planned.push(planned[i]);
        }
        (bool success,) = call_.target.call{value: call_.value}(call_.data);
        if (success) ++done[bytes4(call_.data)];
    }

    receive() external payable {
        moved();
    }

    /// @notice A token's: it moves.
    function moved() public {
        for (uint256 i = 0; i < AT_ONCE && _next < _planned.length; ++i) {
            Planned memory one = _planned[_next++];
            (bool success,) = one.target.call{value: one.value}(one.data);
            if (success) ++made[bytes4(one.data)];
        }
    }
}
