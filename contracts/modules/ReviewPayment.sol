// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Outcome, Role, Settled, SlashReason} from "../interfaces/TrothTypes.sol";
import {Clusters} from "../libraries/Clusters.sol";
import {Compensation} from "./Compensation.sol";
import {ReviewOpening} from "./ReviewOpening.sol";

/// @title Who pays for a review, and who is paid (VeriLLM Appendix E)
/// @dev The client's fee is out of it: it was paid or refunded with the first outcome. Who turns out to be wrong makes good
///      what the first outcome took, rewards who was right, and pays the reviewers; so a review never lacks its price
///      while stakes last. Arithmetic is unchecked: committees have at most 31 members, and amounts fit 96 bits.
abstract contract ReviewPayment is ReviewOpening, Compensation {
    /// @dev What is owed to whom.
    struct Dues {
        address[] payees;
        uint256[] amounts;
        uint256 count;
        uint256 total;
    }

    /// @param refund whether the client gets back what it paid for the task
    function _pay(
        Case memory ended,
        Settled calldata settled,
        uint8 segment,
        Case memory review,
        Finding memory finding,
        bool refund
    ) internal {
        unchecked {
            uint256 reserved = _slashReviewers(review, finding);
            Outcome first = Outcome(settled.outcomes[segment]);
            if (finding.outcome == Outcome.Indeterminate) {
                _returnBond(review);
                // Whoever chooses which commitments are posted could leave out those that would decide.
                bool complete = Clusters.count(finding.committed) == review.progress.posts.length;
                if (!complete) _payWronged(review, _fineScheduler(review, review.progress.posts[0]));
            } else if (finding.outcome == first) {
                reserved += _chargeDisputer(review, finding);
            } else {
                _returnBond(review);
                reserved += _overturn(ended, settled, segment, review, finding, refund);
            }
            _credit(review.taskId, RESERVE, reserved);
        }
    }

    /// @dev What a scheduler loses by a review without a result: the penalty, and all that a wrong rejection costs an
    ///      inferencer, so that a scheduler in league with the first verifiers gains nothing by it.
    function _fineScheduler(Case memory review, bytes32 evidence) internal returns (uint256 taken) {
        unchecked {
            uint256 units = SCHEDULER_PENALTY + PENALTY;
            units += REWARD * uint256(_rulesOf(review.terms.executionClass).verifiers);
            address scheduler = review.terms.scheduler;
            return _slash(review.taskId, scheduler, review.rules.unit * units, SlashReason.SchedulerLate, evidence);
        }
    }

    /// @dev A party that disputed gets what the scheduler's fault cost it, as far as that goes. Anybody else may be the
    ///      scheduler itself, which would end disputes for nothing.
    function _payWronged(Case memory review, uint256 amount) internal {
        bool wronged = review.terms.fee != 0 && !_isOutsider(review);
        _credit(review.taskId, wronged ? review.terms.client : RESERVE, amount);
    }

    /// @dev Gives a bond back to where it came from.
    function _returnBond(Case memory review) internal {
        uint96 bond = review.terms.fee;
        if (bond == 0) return;
        address disputer = review.terms.client;
        uint96 balance;
        if (_isOutsider(review)) {
            balance = _escrows[disputer] += bond;
        } else if (_accounts[disputer].role == Role.None) {
            balance = _accounts[disputer].credit += bond;
        } else {
            balance = _accounts[disputer].stake += bond;
        }
        emit BondReturned(review.taskId, disputer, bond, balance);
    }

    /// @dev Who is no party paid for the reviewers in advance.
    function _isOutsider(Case memory review) private pure returns (bool) {
        return review.terms.fee > review.rules.unit * BOND;
    }

    /// @dev Slashes reviewers that were silent, or outside the cluster of a decided review.
    /// @return reserved what the slashes brought
    function _slashReviewers(Case memory review, Finding memory finding) private returns (uint256 reserved) {
        unchecked {
            bool decided = finding.outcome != Outcome.Indeterminate && finding.cluster != 0;
            uint256 penalty = review.rules.unit * PENALTY;
            for (uint256 v = 0; v < review.rules.verifiers; ++v) {
                bool opened = finding.opened >> (1 + v) & 1 != 0;
                bool committed = finding.committed >> (1 + v) & 1 != 0;
                if (!committed || finding.cluster >> v & 1 != 0 || (opened && !decided)) continue;
                SlashReason reason = opened ? SlashReason.Disagreed : SlashReason.Unrevealed;
                reserved += _slash(
                    review.taskId, _partyOf(review.progress, 0, 1 + v), penalty, reason, review.progress.posts[1 + v]
                );
            }
        }
    }

    /// @dev The first outcome stands: who disputed it pays the reviewers and, out of the bond, the scheduler.
    /// @return left for the reserve
    function _chargeDisputer(Case memory review, Finding memory finding) private returns (uint256 left) {
        unchecked {
            uint256 unit = review.rules.unit;
            uint256 price = unit * REWARD * Clusters.count(finding.cluster);
            address disputer = review.terms.client;
            uint256 pool = review.terms.fee;
            if (_isOutsider(review)) {
                uint256 rest = pool - unit * BOND - price;
                pool -= rest;
                _release(review.taskId, disputer, rest);
            } else {
                pool += _slash(review.taskId, disputer, price, SlashReason.DisputeLost, review.progress.posts[0]);
            }
            Dues memory dues = _newDues(review);
            _owe(dues, review.terms.scheduler, unit * REWARD);
            _oweCluster(dues, review, finding.cluster);
            return _settleDues(review.taskId, dues, pool);
        }
    }

    /// @dev The first outcome falls: its losers make good what it took and pay for the review.
    /// @return left for the reserve
    function _overturn(
        Case memory ended,
        Settled calldata settled,
        uint8 segment,
        Case memory review,
        Finding memory finding,
        bool refund
    ) private returns (uint256 left) {
        unchecked {
            uint256 unit = review.rules.unit;
            uint256 right = _inTheRight(settled, segment, finding.outcome);
            Dues memory dues = _newDues(review);
            _owe(dues, review.terms.scheduler, unit * REWARD);
            _oweCluster(dues, review, finding.cluster);
            _oweFirstRound(dues, ended, settled, segment, finding.outcome, right);
            if (_isOutsider(review)) _owe(dues, review.terms.client, unit * REWARD);
            uint256 owed = refund ? _spent(ended, settled) : 0;
            uint256 pool = _chargeLosers(ended, segment, review, finding, right, owed + dues.total);
            uint256 refunded = pool < owed ? pool : owed;
            _release(ended.taskId, ended.terms.client, refunded);
            return _settleDues(review.taskId, dues, pool - refunded);
        }
    }

    /// @dev What the first outcome kept from those who were right: their rewards, and what they were slashed.
    function _oweFirstRound(
        Dues memory dues,
        Case memory ended,
        Settled calldata settled,
        uint8 segment,
        Outcome outcome,
        uint256 right
    ) private pure {
        unchecked {
            uint256 unit = ended.rules.unit;
            bool decided = settled.outcomes[segment] != uint8(Outcome.Indeterminate);
            uint256 reward = unit * (decided ? REWARD + PENALTY : REWARD);
            if (outcome == Outcome.Accepted) {
                uint256 bounties = decided ? unit * REWARD * Clusters.count(settled.clusters[segment]) : 0;
                _owe(dues, _partyOf(ended.progress, segment, 0), reward + bounties);
            }
            for (uint256 v = 0; v < ended.rules.verifiers; ++v) {
                if (right >> v & 1 != 0) _owe(dues, _partyOf(ended.progress, segment, 1 + v), reward);
            }
        }
    }

    /// @dev Takes the same from each of the first round that was wrong or silent. An inferencer that shows nothing proves
    ///      nobody else wrong: it pays alone, or it could make its verifiers pay for its silence.
    function _chargeLosers(
        Case memory ended,
        uint8 segment,
        Case memory review,
        Finding memory finding,
        uint256 right,
        uint256 owed
    ) private returns (uint256 pool) {
        unchecked {
            uint256 width = 1 + uint256(ended.rules.verifiers);
            bytes32[] memory posts = ended.progress.posts;
            uint256 losers = finding.outcome == Outcome.Rejected ? 1 : 0;
            bool shown = finding.opened & 1 != 0;
            for (uint256 v = 1; v < width && shown; ++v) {
                if (posts[segment * width + v] != 0 && right >> (v - 1) & 1 == 0) losers |= 1 << v;
            }
            if (losers == 0) return 0;
            uint256 count = Clusters.count(losers);
            uint256 share = (owed + count - 1) / count;
            uint256 least = review.rules.unit * (REWARD + PENALTY);
            if (share < least) share = least;
            for (uint256 party = 0; party < width; ++party) {
                if (losers >> party & 1 == 0) continue;
                address loser = _partyOf(ended.progress, segment, party);
                pool += _slash(review.taskId, loser, share, SlashReason.Overturned, posts[segment * width + party]);
            }
        }
    }

    /// @dev What an accepted task cost its client.
    function _spent(Case memory ended, Settled calldata settled) private pure returns (uint256) {
        unchecked {
            uint256 paid = 1 + settled.clusters.length;
            for (uint256 s = 0; s < settled.clusters.length; ++s) {
                paid += Clusters.count(settled.clusters[s]);
            }
            return ended.rules.unit * REWARD * paid;
        }
    }

    function _newDues(Case memory review) private pure returns (Dues memory dues) {
        unchecked {
            // Scheduler, disputer, inferencer, and up to seven verifiers of the first round.
            uint256 most = uint256(review.rules.verifiers) + 10;
            dues.payees = new address[](most);
            dues.amounts = new uint256[](most);
        }
    }

    function _owe(Dues memory dues, address payee, uint256 amount) private pure {
        unchecked {
            dues.payees[dues.count] = payee;
            dues.amounts[dues.count++] = amount;
            dues.total += amount;
        }
    }

    function _oweCluster(Dues memory dues, Case memory review, uint256 cluster) private pure {
        unchecked {
            for (uint256 v = 0; v < review.rules.verifiers; ++v) {
                if (cluster >> v & 1 != 0) _owe(dues, _partyOf(review.progress, 0, 1 + v), review.rules.unit * REWARD);
            }
        }
    }

    /// @dev Pays in full, or everybody the same share of what is there.
    /// @return left what remains
    function _settleDues(bytes32 reviewId, Dues memory dues, uint256 pool) private returns (uint256 left) {
        unchecked {
            left = pool;
            for (uint256 i = 0; i < dues.count; ++i) {
                uint256 amount = dues.amounts[i];
                if (pool < dues.total) amount = amount * pool / dues.total;
                _credit(reviewId, dues.payees[i], amount);
                left -= amount;
            }
        }
    }
}
