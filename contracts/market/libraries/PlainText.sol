// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Text that is announced in events
/// @notice Everybody decodes events: a byte that is no character would stop all of them.
library PlainText {
    error TextNotPlain(uint256 length);
    error EndpointNotHttps(string endpoint);

    /// @notice Bytes of the longest text.
    uint256 internal constant MAXIMUM_TEXT = 255;
    bytes8 private constant SCHEME = "https://";

    /// @notice Refuses more than 255 bytes, and any that is not printable ASCII.
    function requirePlain(string calldata text) internal pure {
        bytes calldata characters = bytes(text);
        bool plain = characters.length <= MAXIMUM_TEXT;
        for (uint256 i = 0; plain && i < characters.length; ++i) {
            plain = characters[i] >= 0x20 && characters[i] < 0x7f;
        }
        if (!plain) revert TextNotPlain(characters.length);
    }

    /// @notice Refuses an endpoint without TLS.
    function requireHttps(string calldata endpoint) internal pure {
        bytes calldata text = bytes(endpoint);
        if (text.length <= 8 || bytes8(text[:8]) != SCHEME) revert EndpointNotHttps(endpoint);
        requirePlain(endpoint);
    }
}
