import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { join } from "node:path";

import { overrideTask } from "hardhat/config";

const require = createRequire(import.meta.url);

const root = import.meta.dirname;

/** The WASM build of solc that npm installs: there is no compiler to download (docs/adr/0002-hardhat.md). */
const soljson = require.resolve("solc/soljson.js");

const compiler = (settings) => ({
  version: "0.8.37",
  path: soljson,
  settings: { evmVersion: "osaka", metadata: { bytecodeHash: "none" }, ...settings },
});

const optimized = compiler({ viaIR: true, optimizer: { enabled: true, runs: 200 } });

/**
 * What weighs proofs runs loops over masks of a whole word. With fewer runs the compiler computes each of them anew wherever
 * it is used, which takes more gas and less code.
 */
const fast = compiler({ viaIR: true, optimizer: { enabled: true, runs: 1_000_000 } });

/**
 * Tests that deploy the contracts from their artifacts (contracts/test/market/support/MarketStage.sol) only drive them: what
 * the compiler makes of such a test matters to nobody, and the old code generator without its optimizer takes a fraction of
 * the time. "Stack too deep" means that a function of the test has too many variables: split it.
 */
const quick = compiler({ viaIR: false, optimizer: { enabled: false } });

const files = readdirSync(join(root, "contracts"), { recursive: true })
  .filter((file) => file.endsWith(".sol"))
  .map((file) => `contracts/${file}`);

/**
 * What is deployed, compiled apart from the tests that compile parts of it into themselves: what the optimizer makes of a
 * contract depends on what is compiled beside it, so that a changed test would change the contract's bytes. What is deployed
 * beside a market is compiled folder by folder: it leaves the market's bytes as they are, and the market its.
 */
const aloneFolders = ["disputes", "organisations", "reputation", "tickets"];
const aloneFiles = aloneFolders.map((folder) => files.filter((file) => file.startsWith(`contracts/${folder}/`)));
const fastFiles = files.filter(
  (file) => file.startsWith("contracts/imprints/") || /\/(Proofs|ExactNumbers|ProofLibraryHarness)\.sol$/.test(file),
);
const deployedFiles = files.filter(
  (file) => !file.startsWith("contracts/test/") && ![...aloneFiles.flat(), ...fastFiles].includes(file),
);

/**
 * The benchmark's token is measured, and so is what harnesses and the libraries' own tests compile into themselves. Such a
 * test costs the compiler seven seconds: one that can ask a harness or a contract from its artifact is compiled quickly.
 */
const quickPlaces = /^contracts\/test\/((Agreement|Committee|EcVrf|RingSignature)\.t\.sol|(support|market|organisations|reputation|tickets)\/)/;
const quickFiles = files
  .filter((file) => quickPlaces.test(file))
  .filter((file) => !file.endsWith("/BenchmarkToken.sol"));

/**
 * Hardhat compiles files together whose settings are one object, but resolves each override to an object of its own; and
 * it leaves one core idle, which on a machine of two would put the jobs one after the other.
 */
const jobsAtOnce = {
  id: "jobs-at-once",
  hookHandlers: {
    solidity: async () => ({
      default: async () => ({
        build: async (context, files, options, next) =>
          next(context, files, { ...options, concurrency: availableParallelism() }),
      }),
    }),
    config: async () => ({
      default: async () => ({
        resolveUserConfig: async (userConfig, resolveVariable, next) => {
          const config = await next(userConfig, resolveVariable);
          for (const { overrides } of Object.values(config.solidity.profiles)) {
            for (const group of [deployedFiles, ...aloneFiles, fastFiles, quickFiles]) {
              for (const file of group) overrides[file] = overrides[group[0]];
            }
          }
          return config;
        },
      }),
    }),
  },
};

/**
 * Tests deploy contracts from their artifacts (`vm.getCode`). `hardhat test solidity FILE` alone builds what that file
 * imports, which is their interfaces: a contract that was changed would be tested as it was built last. So all contracts
 * are built before.
 */
const builtBefore = overrideTask(["test", "solidity"])
  .setAction(async () => ({
    default: async (args, hre, runSuper) => {
      if (args.noCompile !== true && args.testFiles.length > 0) {
        await hre.tasks.getTask("build").run({ noTests: true, quiet: true });
      }
      return runSuper(args);
    },
  }))
  .build();

/** Without it the fuzz tests try the same values in every run; `make fuzz` gives a random one and prints it. */
const seed = process.env.TROTH_FUZZ_SEED ? { seed: process.env.TROTH_FUZZ_SEED } : {};
if (seed.seed) console.log(`TROTH_FUZZ_SEED=${seed.seed}`);

export default {
  plugins: [jobsAtOnce],
  tasks: [builtBefore],
  solidity: {
    compilers: [optimized],
    overrides: Object.fromEntries([
      ...[...deployedFiles, ...aloneFiles.flat()].map((file) => [file, optimized]),
      ...fastFiles.map((file) => [file, fast]),
      ...quickFiles.map((file) => [file, quick]),
    ]),
  },
  paths: { sources: "./contracts", tests: { solidity: "./contracts/test" } },
  test: {
    solidity: {
      profiles: {
        default: { fuzz: { runs: 64, ...seed }, invariant: { runs: 16, depth: 40 } },
      },
    },
  },
};
