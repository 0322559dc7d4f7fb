// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Clusters} from "../libraries/Clusters.sol";
import {Comparing} from "./Comparing.sol";
import {Finding, IJudgement} from "./interfaces/IJudgement.sol";
import {PotKind, Rules} from "./interfaces/MarketTypes.sol";
import {CaseKind, CasePhase, CaseState, Fault, NodeReveal, Outcome} from "./interfaces/Proceedings.sol";
import {Opinion} from "./interfaces/Signed.sol";
import {CaseGas} from "./libraries/CaseGas.sol";
import {ClassRules} from "./libraries/ClassRules.sol";
import {HandedOn} from "./libraries/HandedOn.sol";
import {Ledger} from "./libraries/Ledger.sol";
import {Marks} from "./libraries/Marks.sol";
import {Prices} from "./libraries/Prices.sol";

/// @title What the reviewers of a case show, what follows, and who pays whom (VeriLLM, Appendix E)
/// @dev Stateless, and without any right: the Court asks it and acts.
contract Judgement is Comparing {
    using Ledger for Ledger.Draft;

    // ------------------------------------------------------------------------------------------------------- judging

    /// @inheritdoc IJudgement
    function decide(bytes32 caseId, CaseState calldata state, NodeReveal calldata node, bytes calldata reveals)
        external
        view
        returns (Finding memory finding, bytes memory transfers)
    {
        Hearing memory hearing;
        _hear(hearing, caseId, state);
        return _decide(caseId, state, hearing, node, reveals);
    }

    /// @inheritdoc IJudgement
    function conclude(
        bytes32 caseId,
        CaseState calldata state,
        bytes calldata header,
        NodeReveal calldata node,
        bytes calldata reveals
    ) external view returns (Finding memory finding, bytes memory transfers) {
        Hearing memory hearing;
        bytes32 seed = _hearWhole(hearing, caseId, state, header);
        (finding, transfers) = _decide(caseId, state, hearing, node, reveals);
        finding.seed = seed;
    }

    function _decide(
        bytes32 caseId,
        CaseState calldata state,
        Hearing memory hearing,
        NodeReveal calldata node,
        bytes calldata reveals
    ) private view returns (Finding memory finding, bytes memory transfers) {
        Shown memory shown = _show(hearing, state, node, reveals);
        Comparison memory comparison = _compare(hearing, state, shown);
        if (comparison.outcome == Outcome.None) {
            uint256 spent = CaseGas.deciding(_decisionOf(hearing, state, comparison));
            return _leaveUndecided(caseId, state, hearing.rules, comparison.silent, HandedOn.caller(), spent);
        }
        return _settle(caseId, state, hearing, comparison);
    }

    // --------------------------------------------------------------------------------------------------------- money

    /// @inheritdoc IJudgement
    function expire(bytes32 caseId, CaseState calldata state)
        external
        view
        returns (Finding memory finding, bytes memory transfers)
    {
        Rules memory rules;
        ClassRules.read(rules, REGISTRY, state.executionClass);
        if (_isShowing(state.phase, rules)) revert WrongPhase(state.phase);
        uint256 silent = 0;
        if (state.phase == CasePhase.Drawn) {
            _requireAfter(state.phaseBlock + COMMIT_WINDOW);
            silent = ~HandedOn.word() & ((1 << state.reviewers.length) - 1);
        } else {
            _requireAfter(state.phaseBlock + LOOKAHEAD + DRAW_WINDOW);
            if (state.phase == CasePhase.Opened) return _lapse(caseId, state, rules);
            bytes32[] calldata commitments = state.commitments;
            for (uint256 i = 0; i < commitments.length; ++i) {
                if (commitments[i] == 0) silent |= 1 << i;
            }
        }
        return _leaveUndecided(caseId, state, rules, silent, address(0), 0);
    }

    /// @dev Nobody carried the case on: the bond is lost.
    function _lapse(bytes32 caseId, CaseState calldata state, Rules memory rules)
        private
        view
        returns (Finding memory finding, bytes memory transfers)
    {
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        draft.burnRest();
        _unlock(draft, state, state.locked, rules.penalty, PotKind.Stake);
        finding.outcome = Outcome.Lapsed;
        transfers = draft.toCall();
    }

    /// @dev No proper cluster. The gas of the round is paid, and silence; after the second round the leaf falls.
    function _leaveUndecided(
        bytes32 caseId,
        CaseState calldata state,
        Rules memory rules,
        uint256 silent,
        address decider,
        uint256 spent
    ) private view returns (Finding memory finding, bytes memory transfers) {
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        _payGas(draft, state, decider, spent, 0);
        _fineReviewers(draft, state, silent);
        if (state.round % 2 != 0) {
            finding.outcome = Outcome.Undecided;
            draft.pay(state.opener, draft.left, 0);
            _unlock(draft, state, state.locked, rules.penalty, PotKind.Stake);
        }
        finding.left = uint96(draft.left);
        transfers = draft.toCall();
    }

    /// @dev In this order: the client, the reviewers, gas, the opener, nobody.
    function _settle(
        bytes32 caseId,
        CaseState calldata state,
        Hearing memory hearing,
        Comparison memory comparison
    ) private view returns (Finding memory finding, bytes memory transfers) {
        Rules memory rules = hearing.rules;
        finding.outcome = comparison.outcome;
        finding.cluster = comparison.cluster;
        finding.score = comparison.score;
        finding.spread = comparison.spread;
        _convict(finding, state, rules, comparison.pooled);
        Ledger.Draft memory draft = Ledger.start(caseId, state.bond, _room(state));
        bool convicts = finding.convict != address(0);
        CaseGas.Decision memory done = _decisionOf(hearing, state, comparison);
        (done.convicts, done.restores) = (convicts, state.suspends);
        uint256 taken;
        if (convicts) (taken, done.evicts) = _takePenalty(draft, state, finding, rules);
        if (comparison.paid) _payReviewers(draft, state, comparison.cluster);
        uint256 since = draft.count;
        _payGas(draft, state, HandedOn.caller(), CaseGas.deciding(done), since);
        if (convicts) _payOpener(draft, state, since, finding.fault == Fault.Pooled ? 0 : taken);
        else if (finding.outcome == Outcome.Refunded) draft.pay(state.opener, draft.left, since);
        draft.burnRest();
        bool upheld = finding.outcome == Outcome.Upheld;
        // A convict's own lock is used up; what else is locked is another case's, and must not leave with this one.
        uint256 locked = finding.convict == state.node ? 0 : state.locked;
        _unlock(draft, state, locked, rules.penalty, upheld ? PotKind.Burnt : PotKind.Stake);
        if (upheld) _fineVerifiers(draft, state, Opinion.Reject);
        if (finding.outcome == Outcome.Convicted) _fineVerifiers(draft, state, Opinion.Accept);
        _fineReviewers(draft, state, comparison.silent | comparison.wrong);
        transfers = draft.toCall();
    }

    /// @dev Whom an outcome convicts, if anybody. One between the cuts is counted against the node's owner; when
    ///      there are more of them than honest noise gives, it convicts, and counting begins anew.
    function _convict(Finding memory finding, CaseState calldata state, Rules memory rules, bool pooled) private view {
        Outcome outcome = finding.outcome;
        finding.fault = Fault.NothingShown;
        if (outcome == Outcome.SchedulerMissing) {
            finding.convict = state.scheduler;
        } else if (outcome == Outcome.NodeMissing) {
            finding.convict = state.node;
        } else if (outcome == Outcome.Convicted) {
            finding.convict = state.node;
            finding.fault = Fault.FalseResult;
        } else if (pooled) {
            finding.poolOwner = REGISTRY.ownerOf(state.node);
            (finding.poolCount, finding.poolSince) = COURT.pooledOf(finding.poolOwner, state.executionClass);
            if (finding.poolCount == 0 || block.number > uint256(finding.poolSince) + rules.poolWindow) {
                finding.poolSince = uint40(block.number);
                finding.poolCount = 0;
            }
            if (++finding.poolCount <= rules.poolLimit) return;
            finding.convict = state.node;
            finding.fault = Fault.Pooled;
        }
    }

    /// @dev Takes L: what is locked, for this case or another, then free stake. A lock only keeps stake from leaving; were it one
    ///      case's own, friends could lock everything by sham cases before the true one. The client's refund comes first and out of
    ///      L alone, so that no opener pays for a convict without stake; a leaf that fell already is not refunded.
    /// @return taken what is there of L
    /// @return evicts whether a node loses its last seat by it
    function _takePenalty(
        Ledger.Draft memory draft,
        CaseState calldata state,
        Finding memory finding,
        Rules memory rules
    ) private view returns (uint256 taken, bool evicts) {
        (address convict, uint256 penalty) = (finding.convict, rules.penalty);
        (uint256 stake, uint256 locked) = BANK.stakeOf(convict);
        taken = locked < penalty ? locked : penalty;
        draft.take(PotKind.Locked, convict, taken);
        uint256 rest = penalty - taken < stake ? penalty - taken : stake;
        draft.take(PotKind.Stake, convict, rest);
        taken += rest;
        evicts = convict == state.node && stake + locked >= rules.seat && stake + locked - taken < rules.seat;
        if (finding.fault == Fault.Pooled || HandedOn.word() & Marks.VOIDED != 0) return (taken, evicts);
        draft.pay(state.client, state.fee < taken ? state.fee : taken);
    }

    function _payReviewers(Ledger.Draft memory draft, CaseState calldata state, uint256 cluster) private pure {
        draft.payMany(_position(state.reviewers), state.seats, cluster, Prices.REWARD_UNITS * state.unit);
    }

    /// @dev Gas of this round, to those who paid it.
    /// @param spent by the decider
    function _payGas(
        Ledger.Draft memory draft,
        CaseState calldata state,
        address decider,
        uint256 spent,
        uint256 since
    ) private view {
        uint256 price = _gasPrice();
        uint256 reviewers = state.reviewers.length;
        if (state.drawer != address(0)) {
            draft.pay(state.drawer, CaseGas.worth(CaseGas.drawing(reviewers), price), since);
        }
        if (state.committer != address(0)) {
            draft.pay(state.committer, CaseGas.worth(_committing(state, reviewers), price), since);
        }
        if (state.seeder != address(0)) draft.pay(state.seeder, CaseGas.worth(CaseGas.seeding(reviewers), price), since);
        if (decider != address(0)) draft.pay(decider, CaseGas.worth(spent, price), since);
    }

    /// @dev Where nobody drew, the commitments were ended in the call that did.
    function _committing(CaseState calldata state, uint256 reviewers) private pure returns (uint256) {
        if (state.drawer == address(0)) return CaseGas.convening(reviewers);
        uint256 posted = HandedOn.word() & ((1 << reviewers) - 1);
        bytes32[] calldata commitments = state.commitments;
        uint256 signed_ = 0;
        for (uint256 i = 0; i < reviewers; ++i) {
            if (commitments[i] != 0 && posted >> i & 1 == 0) ++signed_;
        }
        return CaseGas.committing(reviewers, Clusters.count(posted), signed_);
    }

    /// @dev Of what the gas of deciding depends on, what was shown.
    function _decisionOf(Hearing memory hearing, CaseState calldata state, Comparison memory comparison)
        private
        pure
        returns (CaseGas.Decision memory done)
    {
        done.shown = state.reviewers.length - Clusters.count(comparison.silent);
        done.paid = comparison.paid ? Clusters.count(comparison.cluster) : 0;
        uint256 openings = Clusters.count(comparison.telling) + (comparison.node ? 1 : 0);
        (done.tiles, done.depth) = (hearing.sample.places.length * openings, hearing.sample.depth);
        done.proves = hearing.whole;
    }

    /// @dev Bond, gas and reward, a tenth of what was taken or of the bond; a full pool, which prompts may have filled, pays
    ///      none, and who convicts itself with little stake gets little. Anyone can bring a rejection, and so can anyone who
    ///      sees it on its way: then half of the reward is the rejecters', whose work it is.
    function _payOpener(Ledger.Draft memory draft, CaseState calldata state, uint256 since, uint256 taken) private view {
        uint256 reward = taken == 0 ? 0 : (taken > state.bond ? taken : state.bond) / 10;
        uint256 shared = state.kind == CaseKind.Rejection && _isStranger(state) ? reward / 2 : 0;
        uint256 back = state.bond + CaseGas.worth(CaseGas.opening(state.kind == CaseKind.Doubt, state.suspends), _gasPrice());
        draft.pay(state.opener, back + reward - shared, since);
        if (shared == 0) return;
        address[] calldata verifiers = state.verifiers;
        bytes calldata opinions = state.opinions;
        uint256 rejecting = 0;
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) == uint8(Opinion.Reject)) ++rejecting;
        }
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) == uint8(Opinion.Reject)) draft.pay(verifiers[v], shared / rejecting, since);
        }
    }

    /// @dev Whether a rejection was brought by somebody else than the client or a rejecter.
    function _isStranger(CaseState calldata state) private pure returns (bool) {
        if (state.opener == state.client) return false;
        address[] calldata verifiers = state.verifiers;
        for (uint256 v = 0; v < verifiers.length; ++v) {
            if (verifiers[v] == state.opener && uint8(state.opinions[v]) == uint8(Opinion.Reject)) return false;
        }
        return true;
    }

    /// @dev What is still locked of the node is free again; the rejecters' locks go back, or are lost. A conviction may have
    ///      taken some of it in the meantime.
    function _unlock(
        Ledger.Draft memory draft,
        CaseState calldata state,
        uint256 locked,
        uint256 penalty,
        PotKind rejecters
    ) private view {
        if (locked != 0) _free(draft, state.node, PotKind.Stake, locked);
        if (!state.suspends) return;
        address[] memory verifiers = state.verifiers;
        bytes calldata opinions = state.opinions;
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) != uint8(Opinion.Reject) || Ledger.seatsFrom(verifiers, v) == 0) continue;
            _free(draft, verifiers[v], rejecters, penalty);
        }
    }

    /// @dev At most what is locked.
    function _free(Ledger.Draft memory draft, address operator, PotKind to, uint256 amount) private view {
        uint256 locked = BANK.balanceOf(PotKind.Locked, Ledger.id(operator));
        draft.shift(PotKind.Locked, to, operator, amount < locked ? amount : locked);
    }

    /// @dev Verifiers of the check whose opinion fell.
    function _fineVerifiers(Ledger.Draft memory draft, CaseState calldata state, Opinion fallen) private view {
        address[] memory verifiers = state.verifiers;
        bytes calldata opinions = state.opinions;
        for (uint256 v = 0; v < opinions.length; ++v) {
            if (uint8(opinions[v]) != uint8(fallen)) continue;
            _fine(draft, state.unit, verifiers[v], Ledger.seatsFrom(verifiers, v));
        }
    }

    function _fineReviewers(Ledger.Draft memory draft, CaseState calldata state, uint256 fined) private view {
        for (; fined != 0; fined &= fined - 1) {
            uint256 i = _lowest(fined);
            _fine(draft, state.unit, state.reviewers[i], _seatsOf(state.seats, i));
        }
    }

    function _fine(Ledger.Draft memory draft, uint256 unit, address operator, uint256 seats) private view {
        if (seats == 0) return;
        uint256 stake = BANK.balanceOf(PotKind.Stake, Ledger.id(operator));
        uint256 fine = Prices.PENALTY_UNITS * unit * seats;
        draft.shift(PotKind.Stake, PotKind.Burnt, operator, fine < stake ? fine : stake);
    }

    /// @dev Gas is paid back at the block's price, at most at the ceiling; of a token the ceiling is all that is known.
    function _gasPrice() private view returns (uint256) {
        if (!IS_COIN) return GAS_PRICE;
        uint256 price = block.basefee * 1e9;
        return price < GAS_PRICE ? price : GAS_PRICE;
    }

    /// @dev Most movements of an outcome: penalty (two), refund, gas (four), opener, rest, the node's lock, one for
    ///      each reviewer, and three for each verifier.
    function _room(CaseState calldata state) private pure returns (uint256) {
        return 10 + state.reviewers.length + 3 * state.verifiers.length;
    }
}
