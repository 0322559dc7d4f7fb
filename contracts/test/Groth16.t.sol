// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Groth16} from "../imprints/Groth16.sol";

/// @notice Makes the check of a proof callable.
contract Groth16Harness {
    function holds(bytes memory key, uint256[8] calldata proof, uint256[4] memory inputs) external view returns (bool) {
        return Groth16.holds(key, proof, inputs);
    }
}

/// @notice A proof that snarkjs made under the key of circuits/test_setup.mjs, and what is not one.
contract Groth16Test {
    uint256 private constant PRIME = 0x30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47;

    /// @dev A precompile that refuses a point takes all the gas it was given.
    uint256 private constant CALL_GAS = 1_000_000;

    Groth16Harness private _harness;
    bytes private _key;
    uint256[8] private _proof;
    uint256[4] private _inputs;

    function setUp() public {
        _harness = new Groth16Harness();
        uint256[24] memory words;
        words[0] = 0xdb32e704083723cb8e09c5c3961d4b14df25b3913f8f44ea8bed169c02680da;
        words[1] = 0x2c5cde28aa9328afe2a32ccc0ce61aec39167d20898b4416a32f8f733606ec1c;
        words[2] = 0xd7121f3adfab05e99207ddbac2f47f4688b4a21552923fa31403f94321dade0;
        words[3] = 0xfb6e939a5082455e83744faf10c76f9fc57bb3731c15eeb8acab7161895ef15;
        words[4] = 0x3032566766ecabd6ec7eecd0b6cde52a7228465aa75998359851724bcb08e5dc;
        words[5] = 0x2cbf71c9a3cd5fc82df40f978ef310465449d5be9be5bd97b2355751476f9b2e;
        words[6] = 0x198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2;
        words[7] = 0x1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed;
        words[8] = 0x90689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b;
        words[9] = 0x12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa;
        words[10] = 0x2284f0d4981f554242e3ee32a7fc10bc6b1df72f16916a7d828d58e33752844b;
        words[11] = 0x8b2a1754be5542e1ed0887e5f0113409179b1acf9454681751d98746abd6999;
        words[12] = 0x20373469d53a0452484936cb36af8f807bc3a896900dc6f093cabeb585b9dba;
        words[13] = 0x173973692e852b5382ef54134ba990ca0bb995ca4eaa359221b1926b23f4780a;
        words[14] = 0x4433b56d051734e792e7c426dd2a8066f6c41d61e666d9c9b65434fc72d3bcf;
        words[15] = 0x300d13a78d91dff8590f1aeb8684608d5e1e64d30f07fc0d3912689f9f07bbc7;
        words[16] = 0x4f02ac7bdbff5dca485ffaab6569eabdb2f8b975aa31761ae6a9b0976082194;
        words[17] = 0x294da7b846129861c118b913431baf6cef005a0f4d8e19d1204901e89654a923;
        words[18] = 0x270b25f1f2b4c55da2a0dc20e09c9df48ee4ede4902b133c241749145aad74ae;
        words[19] = 0x158f4f5798909c869f00ac87660f7fdb2bf8bbeca2774278bb5b76489718d907;
        words[20] = 0x1726fc5d8015bd39ebfd2eb270c54b932b2438f442e037748f55822ba75f49d7;
        words[21] = 0x29c5aac86c7ae33e831c14b01c2f3f0f05f0920a9c0654bd21fa4a3834fe2b99;
        words[22] = 0x5b6daefd5cefa406b7d9fbfaa665e02ae6b9fd16a82f9d5c0ef253950a0a691;
        words[23] = 0x204654f7a32be40cf1a98f1f4ba296e78dfa3e460325607a4d9c8aaf089b2507;
        _key = abi.encodePacked(words);
        _proof[0] = 0x1bbaba9ec0c741512ef7377f012eaa45160c941db40353c034ca9ee20fa751da;
        _proof[1] = 0x27f91a7a569340b4711061e04ee3d83caf560dc826caefb9fe055cdc32f912bd;
        _proof[2] = 0x1055824bde7d29ff29d6e99c329aedce1715e045a5be46c15d41822a0235c565;
        _proof[3] = 0x120e23238bbd59d64d074e3e8f3202d96a5ffe98ba00df8284da2310b6706c5c;
        _proof[4] = 0x23693db46f0fcebe64ab33c818d27d72f9da803156cca3cb84646f64e65a2894;
        _proof[5] = 0x1bc83c9cd03bda98b09a03c831e9a5b9857fd2509bd9fd6cfc91ae85d258c814;
        _proof[6] = 0x95f18d7a218ed7769af3011c16577c2cf61fd7130ec97d5d3ea97717042c565;
        _proof[7] = 0x2882822343796dcc60aa8aaa9c3784aedc41d822d36364a6f9630f96e2c99609;
        _inputs[0] = 0x11c3f587e5d9928ba93281a6562c381e1c6fbdd0ad7ff66dfcbf36c80df176e7;
        _inputs[1] = 0x204a52b40f050f401727b1b0f800f01f6506cd72d26ead76b6e0929a80b8785c;
        _inputs[2] = 0x200000001800000000000000000000;
        _inputs[3] = 0x3039;
    }

    function test_AProofHolds() public view {
        require(_harness.holds(_key, _proof, _inputs), "it does not hold");
    }

    function test_EachInputCounts() public view {
        for (uint256 i = 0; i < 4; ++i) {
            uint256[4] memory inputs = _inputs;
            inputs[i] = (inputs[i] + 1) % Groth16.ORDER;
            require(!_harness.holds{gas: CALL_GAS}(_key, _proof, inputs), "another input holds");
        }
    }

    function test_AnInputHasOneName() public {
        for (uint256 i = 0; i < 4; ++i) {
            uint256[4] memory inputs = _inputs;
            inputs[i] += Groth16.ORDER;
            try _harness.holds(_key, _proof, inputs) returns (bool) {
                revert("a second name was taken");
            } catch (bytes memory reason) {
                require(
                    keccak256(reason)
                        == keccak256(abi.encodeWithSelector(Groth16.InputTooLarge.selector, i, inputs[i])),
                    "another error"
                );
            }
        }
    }

    function test_EachPointCounts() public view {
        for (uint256 i = 0; i < 8; ++i) {
            uint256[8] memory proof = _proof;
            proof[i] = addmod(proof[i], 1, PRIME);
            require(!_harness.holds{gas: CALL_GAS}(_key, proof, _inputs), "a point outside of the curve holds");
            proof[i] = 0;
            require(!_harness.holds{gas: CALL_GAS}(_key, proof, _inputs), "half a point holds");
        }
    }

    function test_CoordinatesHaveOneName() public view {
        for (uint256 i = 0; i < 8; ++i) {
            uint256[8] memory proof = _proof;
            if (proof[i] > type(uint256).max - PRIME) continue;
            proof[i] += PRIME;
            require(!_harness.holds{gas: CALL_GAS}(_key, proof, _inputs), "a second name of a coordinate holds");
        }
    }

    function test_TheSameProofInAnotherFormHolds() public view {
        uint256[8] memory proof = _proof;
        proof[1] = PRIME - proof[1];
        proof[4] = PRIME - proof[4];
        proof[5] = PRIME - proof[5];
        require(_harness.holds(_key, proof, _inputs), "its other form does not hold");
    }

    function test_ZerosProveNothing() public view {
        uint256[8] memory proof;
        require(!_harness.holds{gas: CALL_GAS}(_key, proof, _inputs), "zeros hold");
        uint256[4] memory inputs;
        require(!_harness.holds{gas: CALL_GAS}(_key, proof, inputs), "zeros hold for zeros");
    }

    function test_AnotherKeyDoesNotCheckIt() public view {
        bytes memory key = _key;
        // gamma for delta
        for (uint256 i = 0; i < 4; ++i) {
            (uint256 gamma, uint256 delta) = (6 + i, 10 + i);
            assembly ("memory-safe") {
                let one := add(add(key, 0x20), shl(5, gamma))
                let other := add(add(key, 0x20), shl(5, delta))
                let kept := mload(one)
                mstore(one, mload(other))
                mstore(other, kept)
            }
        }
        require(!_harness.holds{gas: CALL_GAS}(key, _proof, _inputs), "another key checks it");
    }
}
