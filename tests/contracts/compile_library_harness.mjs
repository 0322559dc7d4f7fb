// Compiles one harness contract alone, with the project's own settings, and prints its ABI and bytecode as JSON.
// Usage: node compile_library_harness.mjs REPOSITORY contracts/test/NAME.sol
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const root = process.argv[2];
const require = createRequire(join(root, "package.json"));
const solc = require("solc");
const config = (await import(pathToFileURL(join(root, "hardhat.config.js")))).default;

const harness = process.argv[3];
const name = basename(harness, ".sol");
const sources = { [harness]: { content: readFileSync(join(root, harness), "utf8") } };

/** Our own sources and those of npm packages, which solc asks for by their import path. */
const dependency = (path) => {
  const place = [join(root, path), join(root, "node_modules", path)].find((candidate) => existsSync(candidate));
  return place ? { contents: readFileSync(place, "utf8") } : { error: `there is no ${path}` };
};

const output = JSON.parse(
  solc.compile(
    JSON.stringify({
      language: "Solidity",
      sources,
      settings: {
        ...(config.solidity.overrides[harness] ?? config.solidity.compilers[0]).settings,
        outputSelection: { [harness]: { [name]: ["abi", "evm.bytecode.object"] } },
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
const { abi, evm } = output.contracts[harness][name];
console.log(JSON.stringify({ abi, bytecode: evm.bytecode.object }));
