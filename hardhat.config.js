import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

/** The WASM build of solc that npm installs: there is no compiler to download (docs/adr/0002-hardhat.md). */
const soljson = require.resolve("solc/soljson.js");

export default {
  solidity: {
    compilers: [
      {
        version: "0.8.37",
        path: soljson,
        settings: {
          evmVersion: "osaka",
          viaIR: true,
          optimizer: { enabled: true, runs: 200 },
          metadata: { bytecodeHash: "none" },
        },
      },
    ],
  },
  paths: { sources: "./contracts", tests: { solidity: "./contracts/test" } },
  test: {
    solidity: {
      profiles: {
        default: { fuzz: { runs: 64 }, invariant: { runs: 16, depth: 40 } },
      },
    },
  },
};
