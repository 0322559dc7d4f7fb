// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    CommitSubmission,
    Opening,
    Outcome,
    Phase,
    Progress,
    Task,
    VrfProof
} from "../../interfaces/TrothTypes.sol";
import {InvariantActors} from "./InvariantActors.sol";

/// @title Random steps of tasks, whose parties are honest, wrong, rejecting or silent
abstract contract InvariantHandler is InvariantActors {
    uint256 private constant PARTIES = 5;

    function openTask(uint256 seed, uint256 conduct) external step {
        client = clients[seed % clients.length];
        bytes32 class = seed / 4 % 2 == 0 ? tolerant : exact;
        bytes32 ends = seed / 8 % 2 == 0 ? WHOLE : HALVES;
        if (!_groupsAreLarge(class, ends)) return;
        Play memory play = newPlay(class, ends);
        _behave(play, conduct);
        bytes memory signature = signed(keys[client], orderHash(play.order));
        if (seed / 16 % 2 == 0) {
            if (!send(scheduler, 0, abi.encodeCall(troth.open, (play.order, signature)))) return;
            play.task.progress.phase = Phase.Opened;
            play.task.progress.phaseBlock = uint40(vm.getBlockNumber());
        } else {
            VrfProof[] memory proofs;
            (proofs, play.task.progress.parties) = assignment(play);
            CommitSubmission memory made = submission(play, uint8(seed / 32 % 2));
            bytes memory data = abi.encodeCall(troth.openAndCommit, (play.order, signature, proofs, made));
            if (!send(scheduler, 0, data)) return;
            noteCommitted(play, made);
        }
        liveFees += play.task.terms.fee;
        plays.push();
        phases.push();
        outcomes.push();
        settleds.push();
        missing.push();
        save(plays.length - 1, play);
    }

    function assign(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Opened, Phase.Opened);
        if (!found) return;
        (VrfProof[] memory proofs, address[] memory parties) = assignment(play);
        if (!send(funder, 0, abi.encodeCall(troth.assign, (play.id, play.task, proofs)))) return;
        play.task.progress.parties = parties;
        play.task.progress.phase = Phase.Assigned;
        save(index, play);
    }

    function commit(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Opened, Phase.Assigned);
        if (!found) return;
        Task memory before = abi.decode(abi.encode(play.task), (Task));
        VrfProof[] memory proofs = new VrfProof[](0);
        if (before.progress.phase == Phase.Opened) (proofs, play.task.progress.parties) = assignment(play);
        CommitSubmission memory made = submission(play, uint8(seed % 2));
        if (!send(funder, 0, abi.encodeCall(troth.commit, (play.id, before, proofs, made)))) return;
        noteCommitted(play, made);
        save(index, play);
    }

    /// @dev One party of an assigned task posts for itself.
    function post(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Assigned, Phase.Assigned);
        if (!found) return;
        Progress memory given = abi.decode(abi.encode(play.task.progress), (Progress));
        if (given.posts.length == 0) play.task.progress.posts = new bytes32[](play.conducts.length);
        uint256 place = seed % play.conducts.length;
        for (uint256 i = 0; i < play.conducts.length && play.task.progress.posts[place] != 0; ++i) {
            place = (place + 1) % play.conducts.length;
        }
        // A verifier follows its inferencer.
        uint256 root = place - place % play.width;
        if (play.task.progress.posts[root] == 0) place = root;
        if (!play.conducts[place].commits) return;
        bool posted = place % play.width == 0
            ? _postInference(play, given, uint8(place / play.width), seed / 16 % 2)
            : _postVerification(play, given, place);
        if (!posted) return;
        if (_missing(play.task.progress.posts) == 0) _enterCommitted(play);
        save(index, play);
    }

    function seal(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Assigned, Phase.Assigned);
        if (!found || !send(funder, 0, abi.encodeCall(troth.seal, (play.id, play.task)))) return;
        _enterCommitted(play);
        save(index, play);
    }

    function sample(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Committed, Phase.Committed);
        if (!found) return;
        (VrfProof memory proof, bytes32 drawn) = sampleProof(play);
        if (!send(play.order.scheduler, 0, abi.encodeCall(troth.sample, (play.id, play.task, proof)))) return;
        play.task.progress.phase = Phase.Sampled;
        play.task.progress.phaseBlock = uint40(vm.getBlockNumber());
        play.task.progress.seed = drawn;
        save(index, play);
    }

    function reveal(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Committed, Phase.Sampled);
        if (!found) return;
        Progress memory progress = play.task.progress;
        uint256 place = seed % play.conducts.length;
        if (progress.posts[place] == 0 || !play.conducts[place].opens) return;
        (uint8 segment, uint8 party) = (uint8(place / play.width), uint8(place % play.width));
        Opening memory opening = openingOf(play, segment, party, progress.seed);
        if (!send(funder, 0, abi.encodeCall(troth.reveal, (play.id, play.task, segment, party, opening)))) return;
        if (progress.revealed.length == 0) progress.revealed = new bytes32[](play.conducts.length);
        progress.revealed[place] = keccak256(abi.encode(opening.root, opening.verdict, keccak256(opening.tiles)));
        save(index, play);
    }

    function settle(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Committed, Phase.Sampled);
        if (!found) return;
        VrfProof memory proof;
        bytes32 drawn = play.task.progress.seed;
        bool samples = play.task.progress.phase == Phase.Committed && play.task.terms.executionClass == tolerant;
        if (samples) (proof, drawn) = sampleProof(play);
        bytes memory data = abi.encodeCall(troth.settle, (play.id, play.task, proof, openingsOf(play, drawn)));
        if (!send(funder, 0, data)) return;
        if (samples) {
            play.task.progress.phase = Phase.Sampled;
            play.task.progress.phaseBlock = uint40(vm.getBlockNumber());
            play.task.progress.seed = drawn;
        }
        finish(index, play);
    }

    function abort(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Opened, Phase.Committed);
        if (!found || seed % 3 != 0) return;
        if (send(play.order.scheduler, 0, abi.encodeCall(troth.abort, (play.id, play.task)))) finish(index, play);
    }

    function close(uint256 seed) external step {
        (bool found, uint256 index, Play memory play) = _find(seed, Phase.Opened, Phase.Sampled);
        if (found && send(funder, 0, abi.encodeCall(troth.close, (play.id, play.task)))) finish(index, play);
    }

    /// @dev Tries every call on a finished task, and its order again; none may be accepted.
    function replay(uint256 seed) external step {
        if (plays.length == 0) return;
        uint256 index = seed % plays.length;
        Play memory play = abi.decode(plays[index], (Play));
        bytes memory signature = signed(keys[play.task.terms.client], orderHash(play.order));
        address by = play.order.scheduler;
        _mustFail(by, abi.encodeCall(troth.open, (play.order, signature)));
        if (outcomes[index] == Outcome.None) return;
        VrfProof memory proof;
        _mustFail(by, abi.encodeCall(troth.abort, (play.id, play.task)));
        _mustFail(by, abi.encodeCall(troth.close, (play.id, play.task)));
        _mustFail(by, abi.encodeCall(troth.seal, (play.id, play.task)));
        Opening[] memory openings = openingsOf(play, play.task.progress.seed);
        _mustFail(by, abi.encodeCall(troth.settle, (play.id, play.task, proof, openings)));
    }

    function _mustFail(address from, bytes memory data) private {
        if (send(from, 0, data)) ++backwardSteps;
    }

    /// @dev Half of the tasks are honest throughout; in the others each party rolls its own die.
    function _behave(Play memory play, uint256 seed) private pure {
        if (seed % 2 == 0) return;
        for (uint256 i = 0; i < play.conducts.length; ++i) {
            bool infers = i % play.width == 0;
            uint256 die = uint256(keccak256(abi.encode(seed, i))) % 8;
            if (die == 0) play.conducts[i].data = FALSE_DATA;
            else if (die == 1) play.conducts[i].opens = false;
            else if (die == 2 && !infers) play.conducts[i].commits = false;
            // A verifier tells the truth about a wrong inferencer, and sometimes lies about a right one.
            bool wrong = play.conducts[i - i % play.width].data == FALSE_DATA;
            if (!infers && (wrong || die == 3)) play.conducts[i].verdict = false;
        }
    }

    function _groupsAreLarge(bytes32 class, bytes32 ends) private view returns (bool) {
        bool halves = ends == HALVES;
        uint256 firstGroup = _members(troth.groupId(class, 0, halves ? 2 : 4));
        return firstGroup >= PARTIES && (!halves || _members(troth.groupId(class, 2, 4)) >= PARTIES);
    }

    function _members(bytes32 group) private view returns (uint256 count) {
        uint256 past = vm.getBlockNumber() - 1;
        uint256 size = troth.groupSizeAt(group, past);
        for (uint256 slot = 0; slot < size; ++slot) {
            if (troth.memberAt(group, slot, past) != address(0)) ++count;
        }
    }

    /// @dev A live task in one of the phases, from a random place on.
    function _find(uint256 seed, Phase from, Phase to)
        private
        view
        returns (bool found, uint256 index, Play memory play)
    {
        uint256 count = plays.length;
        for (uint256 i = 0; i < count; ++i) {
            index = (seed % count + i) % count;
            if (outcomes[index] != Outcome.None || phases[index] < from || phases[index] > to) continue;
            return (true, index, abi.decode(plays[index], (Play)));
        }
    }

    function _postInference(Play memory play, Progress memory given, uint8 segment, uint256 candidate)
        private
        returns (bool posted)
    {
        Progress memory progress = play.task.progress;
        uint256 first = segment * PARTIES;
        address by = progress.parties[first + candidate];
        bytes32 root = rootOf(play, segment, 0);
        posted = send(by, 0, _inferenceCall(play, given, segment, root));
        progress.attempt = 1;
        progress.positions = POSITIONS;
        if (segment + 1 == progress.segments) progress.outputHash = OUTPUT;
        progress.posts[segment * play.width] = root;
        (progress.parties[first], progress.parties[first + candidate]) = (by, progress.parties[first]);
    }

    function _inferenceCall(Play memory play, Progress memory given, uint8 segment, bytes32 root)
        private
        view
        returns (bytes memory)
    {
        bytes32 output = segment + 1 == play.task.progress.segments ? OUTPUT : bytes32(0);
        bytes32 terms = keccak256(abi.encode(play.task.terms));
        return abi.encodeCall(troth.commitInference, (play.id, terms, given, segment, 1, POSITIONS, root, output));
    }

    function _postVerification(Play memory play, Progress memory given, uint256 place) private returns (bool posted) {
        (uint256 segment, uint256 party) = (place / play.width, place % play.width);
        bytes32 commitment = commitmentOf(play, segment, party);
        bytes32 terms = keccak256(abi.encode(play.task.terms));
        posted = send(
            partyOf(play, segment, party),
            0,
            abi.encodeCall(troth.commitVerification, (play.id, terms, given, uint8(segment), commitment))
        );
        play.task.progress.posts[place] = commitment;
    }

    /// @dev Who has not posted by now is out.
    function _enterCommitted(Play memory play) private view {
        play.task.progress.phase = Phase.Committed;
        play.task.progress.phaseBlock = uint40(vm.getBlockNumber());
        for (uint256 i = 0; i < play.conducts.length; ++i) {
            play.conducts[i].commits = play.task.progress.posts[i] != 0;
        }
    }

    function _missing(bytes32[] memory posts) private pure returns (uint256 count) {
        for (uint256 i = 0; i < posts.length; ++i) {
            if (posts[i] == 0) ++count;
        }
    }
}
