// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {EcVrf} from "../libraries/EcVrf.sol";
import {HarnessTest} from "./support/HarnessTest.sol";

/// @dev Of LibraryHarness.
interface IEcVrf {
    function vrfOverBytes(uint256 x, uint256 y, bytes memory alpha, bytes calldata proof, uint256[] calldata hints)
        external
        view
        returns (bytes32);
    function isOnCurve(uint256 x, uint256 y) external pure returns (bool);
}

/// @notice The three P-256 vectors of RFC 9381, Appendix B.1; attacks are in tests/contracts, which can forge proofs.
contract EcVrfTest is HarnessTest {
    struct Vector {
        uint256 x;
        uint256 y;
        bytes alpha;
        bytes proof;
        bytes32 beta;
        uint256[] hints;
    }

    IEcVrf private harness;

    function setUp() public {
        harness = IEcVrf(deployed("LibraryHarness.sol:LibraryHarness"));
    }

    function example10() private pure returns (Vector memory vector) {
        vector.x = 0x60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6;
        vector.y = 0x7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299;
        vector.alpha = "sample";
        vector.proof =
            hex"035b5c726e8c0e2c488a107c600578ee75cb702343c153cb1eb8dec77f4b5071b4" // Γ
            hex"a53f0a46f018bc2c56e58d383f2305e0" // c
            hex"975972c26feea0eb122fe7893c15af376b33edf7de17c6ea056d4d82de6bc02f"; // s
        vector.beta = 0xa3ad7b0ef73d8fc6655053ea22f9bede8c743f08bbed3d38821f0e16474b505e;
        vector.hints = new uint256[](12);
        vector.hints[0] = 0x9e27f77f80aba2e90631240103e1433ecf5dfda0097d6a2e1b9b9f40c9fe1918;
        vector.hints[1] = 0xc6767996cb57fe9534b222ac4cb20f07783851389b02736ac55197dcb4232fcb;
        vector.hints[2] = 0xbb6a034f67643c6183c10f8b41dc4babf88bff154b674e377d90bde009c21672;
        vector.hints[3] = 0x2a7499f21f72fdc3900f7c8df4ab089dbd88a576892dea3d75fb2439443ca3d0;
        vector.hints[4] = 0x893ebee7af9a0faa6da810da8a91f9d50e1dc071240c9706726820ff919e8394;
        vector.hints[5] = 0x8f275f90054bba3aa31ff27f8816bb5dc8fc72ba4b4990d20530b789a719cfc8;
        vector.hints[6] = 0x60b0e521b38645d8f91d774dbb2e4d9c30ffda6f40a23c20b197eb0726c48eec;
        vector.hints[7] = 0x59ba66446bfb5738e9f40505436a9d8b45f3724bb40f46680a15c57489576c9d;
        vector.hints[8] = 0x960856ad27940f44a71320314928ceba3802e4a1c06b2b81489d120b0cbe288a;
        vector.hints[9] = 0x7a9eb6039a97f42e13a5389863f49d3093cac30ba43903a4c753dfcd5ee98d80;
        vector.hints[10] = 0x317a73315211d5d1b6ed38351c404709c64e098c11c57b48084e6584dc468f43;
        vector.hints[11] = 0x6c4323e9413da7a9f38f9953ac43ef8cfc6c94aa05daa6e7a38e36bd86b853fa;
    }

    function example11() private pure returns (Vector memory vector) {
        vector.x = 0x60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6;
        vector.y = 0x7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299;
        vector.alpha = "test";
        vector.proof =
            hex"034dac60aba508ba0c01aa9be80377ebd7562c4a52d74722e0abae7dc3080ddb56" // Γ
            hex"c19e067b15a8a8174905b13617804534" // c
            hex"214f935b94c2287f797e393eb0816969d864f37625b443f30f1a5a33f2b3c854"; // s
        vector.beta = 0xa284f94ceec2ff4b3794629da7cbafa49121972671b466cab4ce170aa365f26d;
        vector.hints = new uint256[](14);
        vector.hints[0] = 0x1c50c23dd220d70331f7a0ca8e4751c45b7de2e5d0e943295657d8e6c955e9a0;
        vector.hints[1] = 0xa45006c106e20a84e6e2ebfd119444f3329680c7278352250e4f5ef0d1ac0c39;
        vector.hints[2] = 0x2779a2cafcb65414c4a04a4b4d2adf4c50395f57995e89e6de823250d91bc48e;
        vector.hints[3] = 0x3b29c03053119d97934a9e4f4d22cc0a587bdb984a7751be14189b6394f600a0;
        vector.hints[4] = 0x3b4a14731672e82339f03b45ff6b5b13dee7ada38c9bf1d6f8f61e2ce5921119;
        vector.hints[5] = 0xceecc0f3013d99ca97a16225430e02b3768d67ef6a71dec08afec7c7a3582f19;
        vector.hints[6] = 0x57394279e0f51b4bf8b723a020c335771910af40847ba4cad7534afa6ff2505e;
        vector.hints[7] = 0x3ec72bcbeeda2c63bad9acf3e177c1b5bc71b64c1db386a9b3116b4aad58a699;
        vector.hints[8] = 0xc6382866d3c629fe07a04129bbf84e72dd09ac692a40a21e47237da95b1dc0f1;
        vector.hints[9] = 0x585a2ddec7a7002d107b1c67e0a4265607c077f69de4884a37d2c76c7660c006;
        vector.hints[10] = 0x4340ca832f0540ca65f91d8258cb2cd8aec8f3cce6d8d0c89cba66f9bf35be9f;
        vector.hints[11] = 0xe5e6bd3c76c52baa386d4c8bf81af460aab3be108c99663420c75cc1a05270c8;
        vector.hints[12] = 0xedecf842d004eecd0c400c88d0072b35a2cfb3cf886f352882228f6d0f5bc318;
        vector.hints[13] = 0x86010200f1fb38be218ca45c366f3acb13e29b4500d31ab2963be1501ed0a398;
    }

    function example12() private pure returns (Vector memory vector) {
        vector.x = 0x596375e6ce57e0f20294fc46bdfcfd19a39f8161b58695b3ec5b3d16427c274d;
        vector.y = 0x42754dfd25c56f939a79f2b204876b3a3ab1ceb2e4ff571abf4fbf36326c8b27;
        vector.alpha = "Example using ECDSA key from Appendix L.4.2 of ANSI.X9-62-2005";
        vector.proof =
            hex"03d03398bf53aa23831d7d1b2937e005fb0062cbefa06796579f2a1fc7e7b8c667" // Γ
            hex"d091c00b0f5c3619d10ecea44363b5a5" // c
            hex"99cadc5b2957e223fec62e81f7b4825fc799a771a3d7334b9186bdbee87316b1"; // s
        vector.beta = 0x90871e06da5caa39a3c61578ebb844de8635e27ac0b13e829997d0d95dd98c19;
        vector.hints = new uint256[](12);
        vector.hints[0] = 0x6720f1dcc9b38595b07a6dae0c6b491c813f67ace71b638a0bdb11e414a9b028;
        vector.hints[1] = 0x9bb2b113410f5bb8912287c7902985fd31ccd2473b671e6c20038c9b56285925;
        vector.hints[2] = 0x0f465cd0ec74d2e23af0abde4c07e866ae4e5138bded5dd1196b8843f380db84;
        vector.hints[3] = 0x18f86978b8c684b5fd45b64c8a3266423679e7364498386a0f3587390c450f68;
        vector.hints[4] = 0x6cb6f811428fc4904370b86c488f60c280fa5b496d2f34ff8772f60ed24b2d1d;
        vector.hints[5] = 0x86211819c9c89490e027dad0ba296403bedd4a7d5ff9a73418f6dcd632bdeddf;
        vector.hints[6] = 0x90e63f4c3f6ecec07b654c8851c98bdd41685020d4cb7491eaeb694b24bd95f2;
        vector.hints[7] = 0x9240a55d49e90a077d056c961dadb8eac8d155196f7ce69fae5af22b487082aa;
        vector.hints[8] = 0xd83af2c9691f302e10ded69b07a047c1848854f75e671e2da1f0f6420cfb1d01;
        vector.hints[9] = 0xa0f64b06f7a547291f45027976b728982f1117612ea34268845228ebb8438528;
        vector.hints[10] = 0x4dfd6da10eb5e999d2156679cae60f18b8c9116ff0a296e8bc189943ac109cce;
        vector.hints[11] = 0x1ce1e140bc6a484951e843e2cb61994ae13c83577c992602b1971d818f64d9fc;
    }

    function testVerifiesExample10OfTheRfc() public view {
        Vector memory vector = example10();
        assertEq(harness.vrfOverBytes(vector.x, vector.y, vector.alpha, vector.proof, vector.hints), vector.beta);
    }

    function testVerifiesExample11OfTheRfc() public view {
        Vector memory vector = example11();
        assertEq(harness.vrfOverBytes(vector.x, vector.y, vector.alpha, vector.proof, vector.hints), vector.beta);
    }

    function testVerifiesExample12OfTheRfc() public view {
        Vector memory vector = example12();
        assertEq(harness.vrfOverBytes(vector.x, vector.y, vector.alpha, vector.proof, vector.hints), vector.beta);
    }

    function testRefusesAnotherInput(bytes32 alpha) public {
        Vector memory vector = example10();
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        harness.vrfOverBytes(vector.x, vector.y, abi.encode(alpha), vector.proof, vector.hints);
    }

    function testRefusesAnotherKey() public {
        Vector memory vector = example10();
        Vector memory other = example12();
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        harness.vrfOverBytes(other.x, other.y, vector.alpha, vector.proof, vector.hints);
    }

    function testRefusesAFlippedBitOfTheProof(uint256 bit) public {
        Vector memory vector = example12();
        bit = bound(bit, 0, 81 * 8 - 1);
        vector.proof[bit / 8] ^= bytes1(uint8(1 << (bit % 8)));
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        harness.vrfOverBytes(vector.x, vector.y, vector.alpha, vector.proof, vector.hints);
    }

    function testRefusesAFlippedBitOfAHint(uint256 place, uint8 bit) public {
        Vector memory vector = example11();
        vector.hints[bound(place, 0, vector.hints.length - 1)] ^= 1 << bit;
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        harness.vrfOverBytes(vector.x, vector.y, vector.alpha, vector.proof, vector.hints);
    }

    function testRefusesWrongLengths() public {
        Vector memory vector = example10();
        vm.expectRevert(abi.encodeWithSelector(EcVrf.InvalidProof.selector, 1));
        harness.vrfOverBytes(vector.x, vector.y, vector.alpha, abi.encodePacked(vector.proof, hex"00"), vector.hints);
        vm.expectRevert(abi.encodeWithSelector(EcVrf.InvalidProof.selector, 1));
        harness.vrfOverBytes(vector.x, vector.y, vector.alpha, vector.proof, new uint256[](10));
        vm.expectRevert(abi.encodeWithSelector(EcVrf.InvalidProof.selector, 1));
        harness.vrfOverBytes(vector.x, vector.y, vector.alpha, vector.proof, new uint256[](11 + 256));
    }

    function testKnowsPointsOfTheCurve() public view {
        Vector memory vector = example10();
        assertTrue(harness.isOnCurve(vector.x, vector.y));
        assertFalse(harness.isOnCurve(vector.x, vector.y ^ 1));
        assertFalse(harness.isOnCurve(0, 0));
    }
}
