// Writes key.json beside proving.zkey and beaten.wasm, the outcome of a ceremony (docs/explanation/ceremony.md).
//
//   node describe_key.mjs COLUMNS FOLDER

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as snarkjs from "snarkjs";

const HOME = dirname(fileURLToPath(import.meta.url));
const [columns, folder] = process.argv.slice(2);
if (!/^\d+$/.test(columns ?? "") || !folder) {
    console.error("usage: node describe_key.mjs COLUMNS FOLDER");
    process.exit(2);
}
const circuit = readFileSync(join(HOME, "sizes", `beaten_${columns}.circom`), "utf8");
const digest = (file) => createHash("sha256").update(readFileSync(join(folder, file))).digest("hex");
const key = {
    test: false,
    columns: Number(columns),
    levels: Number(/Beaten\(\d+, (\d+)\)/.exec(circuit)[1]),
    proving: digest("proving.zkey"),
    program: digest("beaten.wasm"),
    verification: await snarkjs.zKey.exportVerificationKey(join(folder, "proving.zkey")),
};
writeFileSync(join(folder, "key.json"), JSON.stringify(key, null, 1) + "\n");
process.exit(0);
