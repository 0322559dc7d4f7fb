// Compiles the library harness alone, with the project's own settings, and prints its ABI and bytecode as JSON.
// Usage: node compile_library_harness.mjs REPOSITORY
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const root = process.argv[2];
const require = createRequire(join(root, "package.json"));
const solc = require("solc");
const config = (await import(pathToFileURL(join(root, "hardhat.config.js")))).default;

const names = readdirSync(join(root, "contracts/libraries")).map((name) => `contracts/libraries/${name}`);
const harness = "contracts/test/LibraryHarness.sol";
const sources = {};
for (const name of [...names, harness]) sources[name] = { content: readFileSync(join(root, name), "utf8") };

/** Sources of npm packages, which solc asks for by their import path. */
const dependency = (path) => {
  try {
    return { contents: readFileSync(join(root, "node_modules", path), "utf8") };
  } catch (error) {
    return { error: `${path}: ${error.message}` };
  }
};

const output = JSON.parse(
  solc.compile(
    JSON.stringify({
      language: "Solidity",
      sources,
      settings: {
        ...config.solidity.compilers[0].settings,
        outputSelection: { [harness]: { LibraryHarness: ["abi", "evm.bytecode.object"] } },
      },
    }),
    { import: dependency },
  ),
);
const errors = (output.errors ?? []).filter((error) => error.severity === "error");
if (errors.length > 0) {
  console.error(errors.map((error) => error.formattedMessage).join("\n"));
  process.exit(1);
}
const { abi, evm } = output.contracts[harness].LibraryHarness;
console.log(JSON.stringify({ abi, bytecode: evm.bytecode.object }));
