// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../interfaces/ICourt.sol";
import {CaseState} from "../interfaces/Proceedings.sol";
import {Messages} from "./Messages.sol";
import {Signatures} from "./Signatures.sol";

/// @title What reviewers commit to, in calls of their own or by signatures that somebody brings
library ReviewCommitments {
    /// @notice All of them are there, each signed by its reviewer.
    /// @param domain of the deployment's messages
    /// @param caseId and round: of which hearing
    function requireSigned(
        bytes32 domain,
        bytes32 caseId,
        uint8 round,
        address[] memory reviewers,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) internal view {
        uint256 count = commitments.length;
        if (signatures.length != Signatures.BYTES * count) {
            revert ICourt.WrongCount(signatures.length, Signatures.BYTES * count);
        }
        uint256 word = _word(domain, Messages.hearing(caseId, round));
        (uint256 place, address signer) = _signedUpTo(word, reviewers, commitments, signatures);
        if (place == count) return;
        if (commitments[place] == 0) revert ICourt.ZeroCommitment(caseId);
        revert ICourt.WrongSigner(place, signer, reviewers[place]);
    }

    /// @notice Own posts stand whatever is given; what is given is its reviewer's by its signature. A signature whose
    ///         reviewer has posted meanwhile is passed over, so that no post in the last moment spoils the call.
    /// @param marks bit i: reviewer i has posted
    /// @param posts what they posted
    function united(
        bytes32 domain,
        bytes32 hearing,
        address[] calldata reviewers,
        uint256 marks,
        mapping(address reviewer => bytes32) storage posts,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) internal view returns (bytes32[] memory all) {
        uint256 word = _word(domain, hearing);
        uint256 position = _position(signatures);
        uint256 end = position + signatures.length;
        all = commitments;
        unchecked {
            for (uint256 i = 0; i < all.length; ++i) {
                // There are as many reviewers as commitments, and the state is the Court's own.
                (address reviewer, bytes32 commitment) = (_at(reviewers, i), all[i]);
                if (commitment != 0) position += Signatures.BYTES;
                if (marks >> i & 1 != 0) {
                    all[i] = posts[reviewer];
                } else if (commitment != 0) {
                    address signer = Signatures.signerAt(_digest(word, commitment), position - Signatures.BYTES);
                    if (signer != reviewer) {
                        if (position > end) break;
                        revert ICourt.WrongSigner(i, signer, reviewer);
                    }
                }
            }
            if (position != end) revert ICourt.WrongCount(signatures.length, position + signatures.length - end);
        }
    }

    /// @notice All seats, or after three quarters of the window more than half: with fewer there is no proper cluster.
    function requireEnough(CaseState calldata given, bytes32[] memory commitments, uint256 window) internal view {
        bytes calldata seats = given.seats;
        uint256 all = 0;
        uint256 committed = 0;
        unchecked {
            for (uint256 i = 0; i < commitments.length; ++i) {
                // Of a state that is the Court's own.
                uint256 count = _seatsAt(seats, i);
                all += count;
                if (commitments[i] != 0) committed += count;
            }
        }
        if (committed == all) return;
        if (2 * committed <= all) revert ICourt.TooFewCommitments(committed, all);
        uint256 firstBlock = given.phaseBlock + window * 3 / 4 + 1;
        if (block.number < firstBlock) revert ICourt.TooEarly(block.number, firstBlock);
    }

    /// @dev The first place whose commitment is zero or signed by somebody else than its reviewer, and by whom; their
    ///      number if there is none. There are as many of each. As Signatures.signerAt and `_digest` for each of them.
    /// @param word where a ReviewCommitment is made
    function _signedUpTo(
        uint256 word,
        address[] memory reviewers,
        bytes32[] calldata commitments,
        bytes calldata signatures
    ) private view returns (uint256 place, address signer) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            let position := signatures.offset
            for { } lt(place, commitments.length) { place := add(place, 1) } {
                let commitment := calldataload(add(commitments.offset, shl(5, place)))
                if iszero(commitment) { break }
                mstore(add(word, 0x40), commitment)
                mstore(add(word, 0x82), keccak256(word, 0x60))
                mstore(free, keccak256(add(word, 0x60), 0x42))
                mstore(add(free, 0x20), byte(0, calldataload(add(position, 0x40))))
                calldatacopy(add(free, 0x40), position, 0x40)
                mstore(0, 0)
                // The other s of a signature is refused; of an invalid one the precompile says nothing: nobody's.
                if lt(mload(add(free, 0x60)), 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a1) {
                    pop(staticcall(gas(), 1, free, 0x80, 0, 0x20))
                }
                signer := mload(0)
                if iszero(eq(signer, mload(add(reviewers, shl(5, add(place, 1)))))) { break }
                position := add(position, 65)
            }
        }
    }

    /// @dev Room for what a reviewer signs: where a ReviewCommitment without its commitment is in memory, and behind it
    ///      what Messages.digest hashes.
    function _word(bytes32 domain, bytes32 hearing) private pure returns (uint256 word) {
        bytes32 typeHash = Messages.REVIEW_COMMITMENT_TYPE;
        assembly ("memory-safe") {
            word := mload(0x40)
            mstore(0x40, add(word, 0xc0))
            mstore(word, typeHash)
            mstore(add(word, 0x20), hearing)
            mstore(add(word, 0x60), shl(240, 0x1901))
            mstore(add(word, 0x62), domain)
        }
    }

    /// @dev Messages.digest of the ReviewCommitment in `word` with this commitment.
    function _digest(uint256 word, bytes32 commitment) private pure returns (bytes32 digest) {
        assembly ("memory-safe") {
            mstore(add(word, 0x40), commitment)
            mstore(add(word, 0x82), keccak256(word, 0x60))
            digest := keccak256(add(word, 0x60), 0x42)
        }
    }

    function _seatsAt(bytes calldata seats, uint256 i) private pure returns (uint256 count) {
        assembly ("memory-safe") {
            count := byte(0, calldataload(add(seats.offset, i)))
        }
    }

    function _at(address[] calldata accounts, uint256 i) private pure returns (address account) {
        assembly ("memory-safe") {
            account := calldataload(add(accounts.offset, shl(5, i)))
        }
    }

    function _position(bytes calldata data) private pure returns (uint256 position) {
        assembly ("memory-safe") {
            position := data.offset
        }
    }
}
