// A set-up FOR TESTS ALONE: its secret numbers follow from a constant of this file, so that anybody can make false
// proofs under its keys. docs/explanation/ceremony.md has a real one.
//
//   node test_setup.mjs COLUMNS FOLDER
//
// compiles sizes/beaten_COLUMNS.circom and writes proving.zkey, beaten.wasm and key.json into FOLDER; key.json says
// `"test": true`. The same files come out each time. Who knows the secrets needs no powers of tau: each point of the key
// is a number times the generator (Groth 2016, section 3.2; the layout is that of snarkjs 0.7).

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import * as snarkjs from "snarkjs";

const HOME = dirname(fileURLToPath(import.meta.url));
const SECRET = "troth: from a test set-up, no secret";
const ORDER = 0x30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001n;
// Of the multiplicative group: 5 generates it, and 2^28 divides ORDER - 1.
const [GENERATOR, TWOS] = [5n, 28n];
const WINDOW = 12;

// ------------------------------------------------------------------------------------------------------------ numbers

const reduced = (value) => ((value % ORDER) + ORDER) % ORDER;

function power(base, exponent) {
    let result = 1n;
    for (let square = reduced(base); exponent > 0n; exponent >>= 1n, square = (square * square) % ORDER) {
        if (exponent & 1n) result = (result * square) % ORDER;
    }
    return result;
}

const inverse = (value) => power(value, ORDER - 2n);
const rootOfUnity = (bits) => power(power(GENERATOR, (ORDER - 1n) >> TWOS), 1n << (TWOS - BigInt(bits)));
const secret = (name) => reduced(BigInt("0x" + createHash("sha512").update(`${SECRET}/${name}`).digest("hex")));

/** Lagrange's polynomials over 2^bits roots of unity at a point. */
function lagrange(point, bits) {
    const [size, root] = [1 << bits, rootOfUnity(bits)];
    const [roots, products] = [new Array(size), new Array(size)];
    let [at, product] = [1n, 1n];
    for (let i = 0; i < size; i++) {
        roots[i] = at;
        products[i] = product;
        product = (product * reduced(point - at)) % ORDER;
        at = (at * root) % ORDER;
    }
    const scale = (reduced(power(point, BigInt(size)) - 1n) * inverse(BigInt(size))) % ORDER;
    // All differences are inverted with one division.
    let rest = inverse(product);
    const values = new Array(size);
    for (let i = size - 1; i >= 0; i--) {
        values[i] = (((scale * roots[i]) % ORDER) * ((rest * products[i]) % ORDER)) % ORDER;
        rest = (rest * reduced(point - roots[i])) % ORDER;
    }
    return values;
}

// ------------------------------------------------------------------------------------------------------- the circuit

/** A circuit as its compiler wrote it: rows of pairs of a wire and a factor, by three matrices. */
function readCircuit(data) {
    const sections = new Map();
    for (let at = 12; at < data.length; ) {
        const size = Number(data.readBigUInt64LE(at + 4));
        sections.set(data.readUInt32LE(at), data.subarray(at + 12, at + 12 + size));
        at += 12 + size;
    }
    const header = sections.get(1).subarray(4 + 32);
    const [wires, outputs, inputs] = [0, 4, 8].map((at) => header.readUInt32LE(at));
    const count = header.readUInt32LE(24);
    const [body, rows] = [sections.get(2), []];
    let at = 0;
    for (let i = 0; i < count; i++) {
        rows.push([0, 1, 2].map(() => {
            const size = body.readUInt32LE(at);
            const pairs = [];
            for (let k = 0; k < size; k++) {
                const place = at + 4 + 36 * k;
                pairs.push([body.readUInt32LE(place), number(body.subarray(place + 4, place + 36))]);
            }
            at += 4 + 36 * size;
            return pairs;
        }));
    }
    return { wires, shown: outputs + inputs, rows };
}

const number = (bytes) => BigInt("0x" + Buffer.from(bytes).reverse().toString("hex"));
const word = (value, size = 32) => Buffer.from(value.toString(16).padStart(2 * size, "0"), "hex").reverse();

// --------------------------------------------------------------------------------------------------------------- points

/** Multiples of a group's generator, affine, as keys hold them. */
function multiplier(group) {
    const windows = [];
    let base = group.g;
    for (let bit = 0; bit < 254; bit += WINDOW) {
        const table = [group.zero];
        for (let i = 1; i < 1 << WINDOW; i++) table.push(group.add(table[i - 1], base));
        windows.push(table);
        base = group.add(table[table.length - 1], base);
    }
    const mask = BigInt((1 << WINDOW) - 1);
    return async (scalars) => {
        const points = new Uint8Array(scalars.length * group.F.n8 * 3);
        for (let i = 0; i < scalars.length; i++) {
            let sum = group.zero;
            for (let rest = scalars[i], k = 0; rest > 0n; rest >>= BigInt(WINDOW), k++) {
                const digit = Number(rest & mask);
                if (digit) sum = group.add(sum, windows[k][digit]);
            }
            points.set(sum, i * group.F.n8 * 3);
        }
        return Buffer.from(await group.batchToAffine(points));
    };
}

// ------------------------------------------------------------------------------------------------------------------ key

async function provingKey(circuit, curve) {
    const { wires, shown, rows } = circuit;
    const bits = Math.floor(Math.log2(rows.length + shown)) + 1;
    const [tau, alpha, beta, delta] = ["tau", "alpha", "beta", "delta"].map(secret);
    const basis = lagrange(tau, bits);
    const sums = [0, 1, 2].map(() => new Array(wires).fill(0n));
    const factors = [];
    const note = (matrix, row, wire, factor) => {
        sums[matrix][wire] = (sums[matrix][wire] + factor * basis[row]) % ORDER;
        if (matrix < 2) factors.push([matrix, row, wire, factor]);
    };
    rows.forEach((row, i) => row.forEach((pairs, matrix) => pairs.forEach((pair) => note(matrix, i, ...pair))));
    for (let wire = 0; wire <= shown; wire++) note(0, rows.length + wire, wire, 1n);
    const whole = sums[0].map((u, i) => reduced(beta * u + alpha * sums[1][i] + sums[2][i]));
    const perDelta = inverse(delta);
    const quotients = lagrange(tau, bits + 1).filter((_, i) => i % 2 === 1).map((one) => (one * perDelta) % ORDER);

    const [first, second] = [multiplier(curve.G1), multiplier(curve.G2)];
    const prime = 0x30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47n;
    const head = Buffer.alloc(12);
    [wires, shown, 1 << bits].forEach((value, i) => head.writeUInt32LE(value, 4 * i));
    const size = Buffer.from([32, 0, 0, 0]);
    const sections = [
        [1, Buffer.from([1, 0, 0, 0])],
        [2, Buffer.concat([
            size, word(prime), size, word(ORDER), head, await first([alpha, beta]), await second([beta, 1n]),
            await first([delta]), await second([delta]),
        ])],
        [3, await first(whole.slice(0, shown + 1))],
        [4, factorsSection(factors)],
        [5, await first(sums[0])],
        [6, await first(sums[1])],
        [7, await second(sums[1])],
        [8, await first(whole.slice(shown + 1).map((one) => (one * perDelta) % ORDER))],
        [9, await first(quotients)],
        [10, Buffer.alloc(64 + 4)],
    ];
    const parts = [Buffer.from("zkey"), Buffer.from([1, 0, 0, 0, sections.length, 0, 0, 0])];
    for (const [id, data] of sections) {
        const named = Buffer.alloc(12);
        named.writeUInt32LE(id, 0);
        named.writeBigUInt64LE(BigInt(data.length), 4);
        parts.push(named, data);
    }
    return Buffer.concat(parts);
}

/** Factors of the first two matrices, times 2^512. */
function factorsSection(factors) {
    const data = Buffer.alloc(4 + 44 * factors.length);
    data.writeUInt32LE(factors.length, 0);
    factors.forEach(([matrix, row, wire, factor], i) => {
        [matrix, row, wire].forEach((value, k) => data.writeUInt32LE(value, 4 + 44 * i + 4 * k));
        word((factor * (1n << 512n)) % ORDER).copy(data, 4 + 44 * i + 12);
    });
    return data;
}

// ---------------------------------------------------------------------------------------------------------------- program

function compile(columns, folder) {
    const name = `beaten_${columns}`;
    // The compiler sees its working directory alone.
    const made = `.made-${process.pid}`;
    mkdirSync(join(HOME, made), { recursive: true });
    try {
        const compiler = join("node_modules", "circom2", "cli.js");
        const options = [join("sizes", `${name}.circom`), "--r1cs", "--wasm", "--O2", "-o", made];
        execFileSync(process.execPath, [compiler, ...options], { cwd: HOME, stdio: ["ignore", "ignore", "inherit"] });
        copyFileSync(join(HOME, made, `${name}_js`, `${name}.wasm`), join(folder, "beaten.wasm"));
        return readCircuit(readFileSync(join(HOME, made, `${name}.r1cs`)));
    } finally {
        rmSync(join(HOME, made), { recursive: true, force: true });
    }
}

async function main(columns, given) {
    if (!/^\d+$/.test(columns ?? "") || !given) {
        console.error("usage: node test_setup.mjs COLUMNS FOLDER");
        process.exit(2);
    }
    const folder = resolve(given);
    console.error(`TEST SET-UP for rows of ${columns}: whoever reads this program can forge proofs under its key.`);
    mkdirSync(folder, { recursive: true });
    const circuit = compile(columns, folder);
    const curve = await snarkjs.curves.getCurveFromName("bn128", { singleThread: true });
    const proving = join(folder, "proving.zkey");
    writeFileSync(proving, await provingKey(circuit, curve));
    const digest = (file) => createHash("sha256").update(readFileSync(join(folder, file))).digest("hex");
    const key = {
        test: true,
        columns: Number(columns),
        levels: Number(/Beaten\(\d+, (\d+)\)/.exec(readFileSync(join(HOME, "sizes", `beaten_${columns}.circom`), "utf8"))[1]),
        constraints: circuit.rows.length,
        proving: digest("proving.zkey"),
        program: digest("beaten.wasm"),
        verification: await snarkjs.zKey.exportVerificationKey(proving),
    };
    writeFileSync(join(folder, "key.json"), JSON.stringify(key, null, 1) + "\n");
    console.log(JSON.stringify({ columns: key.columns, constraints: key.constraints }));
    process.exit(0);
}

await main(...process.argv.slice(2));
