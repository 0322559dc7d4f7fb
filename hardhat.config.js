import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { join } from "node:path";

const require = createRequire(import.meta.url);

const root = import.meta.dirname;

/** The WASM build of solc that npm installs: there is no compiler to download (docs/adr/0002-hardhat.md). */
const soljson = require.resolve("solc/soljson.js");

const compiler = (settings) => ({
  version: "0.8.37",
  path: soljson,
  settings: { evmVersion: "osaka", metadata: { bytecodeHash: "none" }, ...settings },
});

/** What is deployed, and the tests that compile parts of it into themselves. */
const deployed = compiler({ viaIR: true, optimizer: { enabled: true, runs: 200 } });

/**
 * Tests that deploy the contracts from their artifacts (contracts/test/support/TrothTest.sol) only drive them: what the
 * compiler makes of such a test matters to nobody, and the old code generator without its optimizer takes a fraction of
 * the time. "Stack too deep" means that a function of the test has too many variables: split it.
 */
const quick = compiler({ viaIR: false, optimizer: { enabled: false } });

/**
 * The files of contracts/test whose code is no part of what is deployed: all of the market's, and of the others those whose
 * imports say so.
 */
const quickFiles = readdirSync(join(root, "contracts/test"), { recursive: true })
  .filter((file) => file.endsWith(".sol"))
  .map((file) => `contracts/test/${file}`)
  // The benchmark's token is measured.
  .filter((file) => !file.endsWith("/BenchmarkToken.sol"))
  .filter((file) => /\/(support|market)\//.test(file) || onlyDrivesContracts(file));

function onlyDrivesContracts(file) {
  const source = readFileSync(join(root, file), "utf8");
  const imported = [...source.matchAll(/from "(\.[^"]*)"/g)].map(([, path]) => path);
  const stands = imported.some((path) => /^\.\/support\/\w+Test\.sol$/.test(path));
  // With a stage, a library is imported for its errors; without one, it is what the test tests.
  const harmless = stands ? /^\.\/|^\.\.\/(interfaces|libraries)\// : /^\.\/|^\.\.\/interfaces\//;
  return imported.every((path) => harmless.test(path));
}

/**
 * The market's contracts, compiled apart from the others: what the optimizer makes of a contract depends on what is compiled
 * beside it, so that a changed comment of one would change the other's bytes.
 */
const marketFiles = readdirSync(join(root, "contracts"), { recursive: true })
  .filter((file) => file.endsWith(".sol") && /^market\/|^test\/(Market|market\/)/.test(file))
  .map((file) => `contracts/${file}`)
  .filter((file) => !quickFiles.includes(file));

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
            const shared = { market: overrides[marketFiles[0]], quick: overrides[quickFiles[0]] };
            for (const file of Object.keys(overrides)) {
              overrides[file] = marketFiles.includes(file) ? shared.market : shared.quick;
            }
          }
          return config;
        },
      }),
    }),
  },
};

/** Without it the fuzz tests try the same values in every run; `make fuzz` gives a random one and prints it. */
const seed = process.env.TROTH_FUZZ_SEED ? { seed: process.env.TROTH_FUZZ_SEED } : {};
if (seed.seed) console.log(`TROTH_FUZZ_SEED=${seed.seed}`);

export default {
  plugins: [jobsAtOnce],
  solidity: {
    compilers: [deployed],
    overrides: Object.fromEntries([
      ...marketFiles.map((file) => [file, deployed]),
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
