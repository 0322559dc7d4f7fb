// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CheckLeaf} from "../../../market/interfaces/ILeaves.sol";
import {Claim, ClaimState, Tab, Voucher} from "../../../market/interfaces/MarketTypes.sol";
import {NodeReveal} from "../../../market/interfaces/Proceedings.sol";
import {Opinion, Promise, Verdict, Work} from "../../../market/interfaces/Signed.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {AttackStage} from "./AttackStage.sol";
import {SumTrees} from "./SumTrees.sol";

/// @title Vouchers, claims and promises, for whoever attacks them
abstract contract AttackMoney is AttackStage {
    function voucherOf(Tab memory tab, uint96 spent, uint96 authorised, uint64 sequence)
        internal
        pure
        returns (Voucher memory)
    {
        return Voucher(Messages.tabId(tab), spent, authorised, sequence, 0, 0);
    }

    function oneLeaf(uint64 number, uint96 amount) internal pure returns (Claim memory) {
        uint96[] memory amounts = new uint96[](1);
        amounts[0] = amount;
        return SumTrees.claim(number, amounts);
    }

    /// @dev Files a claim and says what its state is.
    function claim(Tab memory tab, Voucher memory voucher, uint256 key, Claim memory claimed, address claimer)
        internal
        returns (ClaimState memory)
    {
        uint40 settlesAt = uint40(vm.getBlockNumber() + parameters().claimDelay);
        bytes memory signature = sign(key, Messages.hash(voucher));
        vm.prank(claimer);
        bank.claim(tab, voucher, signature, claimed);
        return ClaimState(claimed, voucher, voucher.spent + claimed.total, settlesAt, claimer);
    }

    function nodeTab(address node) internal view returns (Tab memory) {
        return Tab({payer: ownerOf(scheduler), payee: node, key: scheduler});
    }

    function wealth(address account) internal view returns (uint256) {
        return account.balance + creditOf(account);
    }

    function checkLeaf(Served memory made, Opinion opinion, bytes32 own)
        internal
        view
        returns (Tab memory tab, bytes memory leaf)
    {
        return checkLeaf(made, opinion, own, traceRoot(0));
    }

    /// @dev A promise of a check by the first drawn verifier, with what it shows: its own trace, and the judged one.
    function checkLeaf(Served memory made, Opinion opinion, bytes32 own, bytes32 judged)
        internal
        view
        returns (Tab memory tab, bytes memory leaf)
    {
        address verifier = made.seats[0];
        tab = nodeTab(verifier);
        Promise memory promised = Promise({
            tab: Messages.tabId(tab),
            sequence: 1,
            order: made.id,
            segment: 0,
            work: uint8(Work.Check),
            referenceBlock: made.order.order.referenceBlock,
            promptAsk: 0,
            cachedAsk: 0,
            writtenAsk: 0,
            price: 1 ether
        });
        Verdict memory verdict = verdictOf(made, opinion);
        verdict.commitment = keccak256(abi.encode(made.id, uint8(0), verifier, own, bytes32("salt")));
        CheckLeaf memory check;
        (check.verdict, check.signature) = (verdict, signAs(verifier, Messages.hash(verdict)));
        (check.draw, check.drawSignature) = (made.draw, made.drawSignature);
        check.results = new bytes32[](1);
        check.results[0] = Messages.hash(made.results[0]);
        (check.result, check.resultSignature) = (made.results[0], made.signatures[0]);
        (check.own, check.judged) = (shown(own, "salt"), shown(judged, traceSalt(0)));
        leaf = abi.encode(promised, sign(SCHEDULER_KEY, Messages.hash(promised)), check);
    }

    function shown(bytes32 root, bytes32 salt) internal pure returns (NodeReveal memory trace) {
        (trace.root, trace.salt) = (root, salt);
    }
}
