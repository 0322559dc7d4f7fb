// What a receipt proves, computed here: the same rules as troth.protocol.market.receipt, in the same order. A test holds
// the two together: on receipts that hold, and on every single change of one.

import { sha256 } from "./vendor/hashes/sha2.js";
import { keccak_256 as keccak } from "./vendor/hashes/sha3.js";
import { ecdsa, weierstrass } from "./vendor/curves/abstract/weierstrass.js";

export const SIZE_LIMIT = 1 << 20;
const ITEMS_LIMIT = 1 << 16;
const MILLION = 1_000_000n;
const PER = 1_000_000_000n;
const [ACCEPT, REJECT, CANNOT_TELL] = [1n, 2n, 3n];
export const OPINIONS = { 1: "accept", 2: "reject", 3: "cannot_tell" };

/** SEC 2, section 2.4.1. */
const Secp256k1 = weierstrass({
  p: 0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2fn,
  n: 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n,
  h: 1n,
  a: 0n,
  b: 7n,
  Gx: 0x79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798n,
  Gy: 0x483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8n,
});
/** SEC 2, section 2.4.2. */
const P256 = weierstrass({
  p: 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffffn,
  n: 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n,
  h: 1n,
  a: 0xffffffff00000001000000000000000000000000fffffffffffffffffffffffcn,
  b: 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn,
  Gx: 0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296n,
  Gy: 0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5n,
});
const { Signature } = ecdsa(Secp256k1, sha256);
const CURVE_ORDER = Secp256k1.Fn.ORDER;
const P256_ORDER = P256.Fn.ORDER;

export class InvalidReceipt extends Error {}

function require(holds, what) {
  if (!holds) throw new InvalidReceipt(what);
}

// ------------------------------------------------------------------------------------------------- bytes and words

export const ascii = (text) => new TextEncoder().encode(text);
export const hex = (bytes) => "0x" + Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
export const join = (...parts) => {
  const whole = new Uint8Array(parts.reduce((sum, one) => sum + one.length, 0));
  parts.reduce((at, one) => (whole.set(one, at), at + one.length), 0);
  return whole;
};

export function unhex(text) {
  require(typeof text === "string" && /^0x([0-9a-f]{2})*$/.test(text), "Bytes are 0x and lower-case digits.");
  const bytes = new Uint8Array((text.length - 2) / 2);
  for (let at = 0; at < bytes.length; at++) bytes[at] = parseInt(text.slice(2 + 2 * at, 4 + 2 * at), 16);
  return bytes;
}

export const number = (bytes) => (bytes.length ? BigInt(hex(bytes)) : 0n);

export function word(value) {
  const digits = value.toString(16);
  require(value >= 0n && digits.length <= 64, "A word holds 0 to 2^256 - 1.");
  return unhex("0x" + digits.padStart(64, "0"));
}

const same = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);
export const tag = (text) => keccak(ascii(text));

export function checksummed(bytes) {
  const digits = hex(bytes).slice(2);
  const hash = hex(keccak(ascii(digits))).slice(2);
  return "0x" + [...digits].map((one, at) => (parseInt(hash[at], 16) >= 8 ? one.toUpperCase() : one)).join("");
}

function addressBytes(text) {
  require(typeof text === "string" && /^0x[0-9a-fA-F]{40}$/.test(text), "An address is 0x and 40 digits.");
  const bytes = unhex(text.toLowerCase());
  require(checksummed(bytes) === text, `The address ${text} fails its checksum.`);
  return bytes;
}

// ------------------------------------------------------------------------------- types, as the protocol's dataclasses

const fields = (text) => text.split(",").map((one) => one.trim().split(" ").reverse());
const TYPES = {
  ModelDescriptor: fields(
    "string architecture, uint16 layers, uint32 hidden_size, uint32 vocabulary, uint8 dtype, bytes32 weights_root",
  ),
  ExecutionClass: fields(
    "bytes32 model, string name, uint8 dtype, bool exact, uint8 mantissa_bits, uint16 steps, uint16 theta, " +
      "uint8 tiles, uint8 candidates, uint8 verifiers, uint8 reviewers, uint96 check_price, uint96 fee_cap, " +
      "uint32 least_check_rate, uint16 honest_share, uint96 penalty, uint96 seat, uint16 seat_cap, " +
      "uint32 state_cut, uint32 margin_cut, uint32 second_cut, uint16 pool_limit, uint32 pool_window, " +
      "bytes32 calibration",
  ),
  Tab: fields("address payer, address payee, address key"),
  Order: fields(
    "bytes32 tab, uint64 sequence, bytes32 execution_class, bytes32 request_hash, bytes32 ends, " +
      "uint64 prompt_price, uint64 cached_price, uint64 written_price, uint16 node_share, uint96 max_fee, " +
      "uint32 check_rate, uint64 deadline, uint64 reference_block, bytes32 draw_hash, bytes32 tiles_hash, " +
      "bytes32 reply_key",
  ),
  Admission: fields("bytes32 order, bytes32 nodes, uint64 block_number"),
  Result: fields(
    "bytes32 order, uint8 segment, bytes32 input_head, bytes32 output_head, uint32 prompt, uint32 cached, " +
      "uint32 written, bytes32 trace_commitment, bytes32 output_hash",
  ),
  Draw: fields("bytes32 order, bytes32 results, bytes32 beta, uint64 block_number"),
  TraceCommitment: fields("bytes32 order, uint8 segment, bytes32 result, bytes32 commitment"),
  Verdict: fields("bytes32 order, uint8 segment, bytes32 result, bytes32 commitment, uint8 opinion, bool locks"),
};

const record = (...named) => ({ named });
const list = (of) => ({ list: of });
const optional = (of) => ({ optional: of });
const signed = (type) => record(["message", { type }], ["signature", "bytes"]);
const RECEIPT = record(
  ["version", "number"],
  ["chain_id", "number"],
  ["bank", "address"],
  ["model", { type: "ModelDescriptor" }],
  ["execution_class", { type: "ExecutionClass" }],
  ["tab", { type: "Tab" }],
  ["vrf_x", "number"],
  ["vrf_y", "number"],
  ["order", signed("Order")],
  ["admission", signed("Admission")],
  ["nodes", list("address")],
  ["infer_proof", "bytes"],
  ["results", list(signed("Result"))],
  ["draw", signed("Draw")],
  ["draw_proof", "bytes"],
  ["secret", optional("bytes32")],
  [
    "checks",
    list(
      record(
        ["drawn", list("address")],
        ["commitments", list(signed("TraceCommitment"))],
        ["verdicts", list(signed("Verdict"))],
        ["silent", list("address")],
      ),
    ),
  ],
);

// -------------------------------------------------------------------------------------------------- canonical JSON

/** A receipt from its bytes; InvalidReceipt unless they are the canonical form of one. */
export function decode(bytes) {
  require(bytes.length <= SIZE_LIMIT, `A receipt has at most ${SIZE_LIMIT} bytes.`);
  let text, raw;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    raw = JSON.parse(text);
  } catch {
    throw new InvalidReceipt("This is no receipt: it is no JSON.");
  }
  const made = readAs(RECEIPT, raw);
  require(canonical(raw) === text, "The receipt is not in its canonical form.");
  return made;
}

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const keys = Object.keys(value).sort();
    return `{${keys.map((key) => `${quoted(key)}:${canonical(value[key])}`).join(",")}}`;
  }
  return typeof value === "string" ? quoted(value) : String(value);
}

const quoted = (text) =>
  JSON.stringify(text).replace(/[\u007f-\uffff]/g, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0"));

function readAs(kind, value) {
  if (typeof kind === "string") return readScalar(kind, value);
  if (kind.type) kind = record(...TYPES[kind.type]);
  if (kind.optional) return value === null ? null : readAs(kind.optional, value);
  if (kind.list) {
    require(Array.isArray(value) && value.length <= ITEMS_LIMIT, "A list belongs here.");
    return value.map((one) => readAs(kind.list, one));
  }
  require(value !== null && typeof value === "object" && !Array.isArray(value), "An object belongs here.");
  const wanted = kind.named.map(([name]) => name);
  require(
    Object.keys(value).length === wanted.length && wanted.every((name) => Object.hasOwn(value, name)),
    `The fields are ${wanted.join(", ")}.`,
  );
  return Object.fromEntries(kind.named.map(([name, of]) => [name, readAs(of, value[name])]));
}

function readScalar(kind, value) {
  if (kind === "bool") {
    require(typeof value === "boolean", "true or false belongs here.");
    return value;
  }
  require(typeof value === "string", "Numbers, bytes and text are strings here.");
  if (kind === "string") return value;
  if (kind === "address") return (addressBytes(value), value);
  if (kind === "bytes") return unhex(value);
  if (kind === "bytes32") {
    const bytes = unhex(value);
    require(bytes.length === 32, "A hash has 32 bytes.");
    return bytes;
  }
  require(/^(0|[1-9][0-9]{0,77})$/.test(value), "A number is up to 78 decimal digits.");
  return BigInt(value);
}

// ------------------------------------------------------------------------------------------- hashes and signatures

function fieldWord(kind, value) {
  if (kind === "bytes32") return value;
  if (kind === "address") return join(new Uint8Array(12), addressBytes(value));
  if (kind === "bool") return word(value ? 1n : 0n);
  require(value < 1n << BigInt(kind.slice(4)), `${value} is no ${kind}.`);
  return word(value);
}

/** keccak256(abi.encode(struct)). */
export function stateHash(type, value) {
  const heads = [];
  const tails = [];
  let offset = BigInt(32 * TYPES[type].length);
  for (const [name, kind] of TYPES[type]) {
    if (kind !== "string") {
      heads.push(fieldWord(kind, value[name]));
      continue;
    }
    require(value[name].isWellFormed?.() ?? true, "Text is valid Unicode.");
    const text = ascii(value[name]);
    const tail = join(word(BigInt(text.length)), text, new Uint8Array((32 - (text.length % 32)) % 32));
    heads.push(word(offset));
    tails.push(tail);
    offset += BigInt(tail.length);
  }
  return keccak(join(...(tails.length ? [word(32n)] : []), ...heads, ...tails));
}

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** hashStruct of EIP-712. */
export function structHash(type, value) {
  const members = TYPES[type].map(([name, kind]) => `${kind} ${camel(name)}`).join(",");
  return keccak(join(tag(`${type}(${members})`), ...TYPES[type].map(([name, kind]) => fieldWord(kind, value[name]))));
}

const DOMAIN_TYPE = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";

export function domainSeparator(chainId, bank) {
  return keccak(join(tag(DOMAIN_TYPE), tag("Troth"), tag("2"), word(chainId), fieldWord("address", bank)));
}

export const digest = (type, value, domain) => keccak(join(new Uint8Array([0x19, 0x01]), domain, structHash(type, value)));

/** The account that signed a digest; only signatures that the contracts take. */
export function recover(hash, signature) {
  require(signature.length === 65, "A signature has 65 bytes.");
  const [r, s, v] = [number(signature.slice(0, 32)), number(signature.slice(32, 64)), signature[64]];
  require(v === 27 || v === 28, "The last byte of a signature is 27 or 28.");
  require(0n < s && s <= CURVE_ORDER / 2n, "s lies in the lower half of the curve's order.");
  require(0n < r && r < CURVE_ORDER, "r lies between 1 and the curve's order.");
  try {
    const key = new Signature(r, s, v - 27).recoverPublicKey(hash).toBytes(false);
    return checksummed(keccak(key.slice(1)).slice(12));
  } catch {
    throw new InvalidReceipt("No public key fits a signature.");
  }
}

function requireSigner(type, one, domain, expected, whose) {
  const signer = recover(digest(type, one.message, domain), one.signature);
  require(signer === expected, `${whose} was signed by ${signer}, not by ${expected}.`);
  return one.message;
}

// ------------------------------------------------------------------------------------------- ECVRF-P256-SHA256-TAI

/** The output of a proof (RFC 9381, section 5.3); InvalidReceipt if it does not hold. */
export function verifyProof(x, y, alpha, proof, what) {
  try {
    const key = P256.fromAffine({ x, y });
    key.assertValidity();
    require(proof.length === 81, "A VRF proof has 81 bytes.");
    const gamma = P256.fromBytes(proof.slice(0, 33));
    const [challenge, scalar] = [number(proof.slice(33, 49)), number(proof.slice(49))];
    require(scalar < P256_ORDER, "The scalar of a proof is below the group's order.");
    const hashed = encodeToCurve(key, alpha);
    const u = P256.BASE.multiplyUnsafe(scalar).subtract(key.multiplyUnsafe(challenge));
    const v = hashed.multiplyUnsafe(scalar).subtract(gamma.multiplyUnsafe(challenge));
    require(!u.is0() && !v.is0(), "A proof with the nonce 0 is refused.");
    const points = [key, hashed, gamma, u, v].map((point) => point.toBytes(true));
    const expected = sha256(join(new Uint8Array([1, 2]), ...points, new Uint8Array([0]))).slice(0, 16);
    require(same(expected, proof.slice(33, 49)), "The challenge differs.");
    return sha256(join(new Uint8Array([1, 3]), proof.slice(0, 33), new Uint8Array([0])));
  } catch (error) {
    throw new InvalidReceipt(`${what} does not hold: ${error.message}`);
  }
}

/** Try and increment (RFC 9381, section 5.4.1.1). */
function encodeToCurve(key, alpha) {
  const start = join(new Uint8Array([1, 1]), key.toBytes(true), alpha);
  for (let counter = 0; counter < 256; counter++) {
    const found = sha256(join(start, new Uint8Array([counter, 0])));
    try {
      return P256.fromBytes(join(new Uint8Array([2]), found));
    } catch {
      continue; // No point has this abscissa: the next counter.
    }
  }
  throw new InvalidReceipt("The input hashes to no point.");
}

// ------------------------------------------------------------------------------------------------ what it proves

/** Layers of each segment, [first, end). */
export function segmentsOf(order, layers) {
  let length = order.ends.length;
  while (length && order.ends[length - 1] === 0) length--;
  const ends = Array.from(order.ends.slice(0, length));
  require(length && BigInt(ends[length - 1]) === layers, "The order's segments end at another layer.");
  const spans = ends.map((end, at) => [at ? ends[at - 1] : 0, end]);
  require(
    spans.every(([first, end]) => first < end && end <= 255),
    "The order's segments do not rise.",
  );
  return spans;
}

const positions = (result) => result.prompt + result.cached + result.written;
const up = (value, divisor) => (value + divisor - 1n) / divisor;
const least = (...values) => values.reduce((one, other) => (one < other ? one : other));

function feeOf(order, definition, segments, last) {
  const checks = positions(last) * definition.check_price * definition.verifiers * BigInt(segments) * order.check_rate;
  const work =
    order.prompt_price * last.prompt + order.cached_price * last.cached + order.written_price * last.written;
  return least(up(work * MILLION + checks, PER * MILLION), order.max_fee, definition.fee_cap);
}

/** What a most of the drawn seats say. */
function majority(drawn, opinions) {
  for (const opinion of [REJECT, ACCEPT]) {
    if (2 * drawn.filter((node) => opinions.get(node) === opinion).length > drawn.length) return opinion;
  }
  return CANNOT_TELL;
}

/**
 * What a receipt proves by itself; throws InvalidReceipt where it breaks a rule. `told` is called with each step that
 * held.
 */
export function verify(receipt, told = () => {}) {
  const view = identified(receipt);
  const { domain, spans, orderId } = view;
  const order = receipt.order.message;
  told("Class and model are those that the order names, and its tab key signed it.");
  requireAdmission(receipt, view);
  told("The scheduler signed its admission of this order with these nodes.");
  const results = requireResults(receipt, view);
  told(`${results.length === 1 ? "The node" : "Each node"} signed its result, and results meet.`);
  const key = [receipt.vrf_x, receipt.vrf_y];
  const infer = verifyProof(...key, keccak(join(tag("troth/market/infer/1"), orderId)), receipt.infer_proof, "The proof of who infers");
  told("The scheduler's proof of who infers holds.");
  const beta = requireDraw(receipt, view, results);
  told("The lottery's proof holds, and the scheduler signed its output over these results.");
  const drawn = receipt.secret !== null && isDrawn(order, receipt.secret, beta);
  if (receipt.secret !== null) told(`The secret is the order's, and ${drawn ? "hits" : "does not hit"}.`);
  const opinions = drawn && receipt.checks.length ? allOpinions(receipt, results, view) : [];
  if (opinions.length) told("Every seat that the check names committed before it spoke, and signed its verdict.");
  const unproven = ["the VRF key is the scheduler's", "the tab's deposits covered it"];
  if (opinions.length && receipt.checks.some((check) => check.silent.length))
    unproven.push("a summons proved nodes silent");
  unproven.push("nodes and verifiers were drawn");
  const fee = feeOf(order, receipt.execution_class, results.length, results.at(-1));
  return { orderId, fee, drawn, opinions, unproven, spans, results, beta, infer, domain };
}

function identified(receipt) {
  require(receipt.version === 1n, "Only version 1 is known: verify it with a newer program.");
  const [model, definition, order] = [receipt.model, receipt.execution_class, receipt.order.message];
  const executionClass = stateHash("ExecutionClass", definition);
  require(same(definition.model, stateHash("ModelDescriptor", model)), "The class is of another model.");
  const domain = domainSeparator(receipt.chain_id, receipt.bank);
  const orderId = digest("Order", order, domain);
  require(
    same(order.execution_class, executionClass) && same(order.tab, stateHash("Tab", receipt.tab)),
    "The order is for another class or tab.",
  );
  let signer = "";
  try {
    signer = recover(orderId, receipt.order.signature);
  } catch {
    signer = "nobody";
  }
  require(signer === receipt.tab.key, "The tab key did not sign the order.");
  return { domain, orderId, executionClass, spans: segmentsOf(order, model.layers) };
}

function requireAdmission(receipt, view) {
  const admitted = requireSigner("Admission", receipt.admission, view.domain, receipt.tab.payee, "The admission");
  const named = keccak(join(...receipt.nodes.map((node) => fieldWord("address", node))));
  require(same(admitted.order, view.orderId) && same(admitted.nodes, named), "The admission is of other nodes.");
}

function requireResults(receipt, view) {
  require(
    receipt.results.length === receipt.nodes.length && receipt.nodes.length === view.spans.length,
    "There is one result for each segment.",
  );
  const results = receipt.results.map((one, at) =>
    requireSigner("Result", one, view.domain, receipt.nodes[at], `The result of segment ${at}`),
  );
  results.forEach((result, at) => {
    require(same(result.order, view.orderId) && result.segment === BigInt(at), "A result is for another place.");
    const names = result.output_hash.some((byte) => byte !== 0);
    require(names === (at === results.length - 1), "Only the last segment names the answer.");
    require(positions(result) >= 2n, "An answer has a prompt and a token.");
  });
  require(same(results[0].input_head, receipt.order.message.request_hash), "The first segment read another request.");
  results.slice(1).forEach((after, at) => {
    const before = results[at];
    require(same(after.input_head, before.output_head), `Segment ${at + 1} read other rows than segment ${at} gave.`);
    require(
      after.prompt + after.cached === before.prompt + before.cached && after.written === before.written,
      `Segment ${at + 1} counts other positions than segment ${at}.`,
    );
  });
  return results;
}

function requireDraw(receipt, view, results) {
  const named = requireSigner("Draw", receipt.draw, view.domain, receipt.tab.payee, "The draw");
  const hashed = keccak(join(...results.map((result) => structHash("Result", result))));
  require(same(named.order, view.orderId) && same(named.results, hashed), "The scheduler drew over other results.");
  const alpha = keccak(join(tag("troth/market/draw/1"), view.orderId));
  const beta = verifyProof(receipt.vrf_x, receipt.vrf_y, alpha, receipt.draw_proof, "The lottery's proof");
  require(same(beta, named.beta), "Beta is not the output of the proof.");
  return beta;
}

const BUCKET = ((1n << 256n) - 1n) / MILLION;

function isDrawn(order, secret, beta) {
  require(same(keccak(secret), order.draw_hash), "This is not the first secret of the order.");
  return order.check_rate >= MILLION || number(keccak(join(secret, beta))) / BUCKET < order.check_rate;
}

function allOpinions(receipt, results, view) {
  require(receipt.checks.length === results.length, "Each segment of a checked answer has a check.");
  return receipt.checks.map((check, at) => opinionOf(check, results[at], receipt, view));
}

function opinionOf(check, result, receipt, view) {
  const seats = receipt.execution_class.verifiers;
  require(BigInt(check.drawn.length) === seats, `${seats} seats check a segment of this class.`);
  const bySigner = (type, all) =>
    new Map(all.map((one) => [recover(digest(type, one.message, view.domain), one.signature), one.message]));
  const verdicts = bySigner("Verdict", check.verdicts);
  const commitments = bySigner("TraceCommitment", check.commitments);
  const hashed = structHash("Result", result);
  const about = (said) =>
    same(said.order, result.order) && said.segment === result.segment && same(said.result, hashed);
  const opinions = new Map();
  for (const [verifier, verdict] of verdicts) {
    require(check.drawn.includes(verifier), `The verdict is of ${verifier}, which was not drawn.`);
    require(about(verdict), "A verdict is over another result.");
    const hidden = commitments.get(verifier);
    require(
      hidden !== undefined && about(hidden) && same(hidden.commitment, verdict.commitment),
      "A verdict names another commitment.",
    );
    require([ACCEPT, REJECT, CANNOT_TELL].includes(verdict.opinion), "A verifier accepts, rejects or cannot tell.");
    opinions.set(verifier, verdict.opinion);
  }
  return majority(check.drawn, opinions);
}

// -------------------------------------------------------------------------------------------------------- by the chain

const selector = (signature) => keccak(ascii(signature)).slice(0, 4);
const DRAW =
  "draw((bytes32,uint8,uint8,uint64,bytes32,uint16,bool,bool,address[],(uint64,uint64,uint64),bytes))";

/** `Lens.draw` of a request, as calldata. */
export function drawCall(request) {
  const account = (one) => fieldWord("address", one);
  const excluded = [word(BigInt(request.excluded.length)), ...request.excluded.map(account)];
  const numbers = [request.first, request.end, request.block];
  return join(
    selector(DRAW),
    word(32n),
    request.executionClass,
    ...numbers.map((one) => word(BigInt(one))),
    request.seed,
    word(request.count),
    word(request.seasoned ? 1n : 0n),
    word(request.seasoned ? 0n : 1n),
    word(BigInt(13 * 32)),
    ...request.bound.map((one) => word(one)),
    word(BigInt((13 + excluded.length) * 32)),
    ...excluded,
    word(0n),
  );
}

function addressesOf(answer) {
  const at = Number(number(answer.slice(0, 32)));
  const count = Number(number(answer.slice(at, at + 32)));
  require(count <= 1_000 && answer.length >= at + 32 * (count + 1), "The chain node's answer is malformed.");
  return Array.from({ length: count }, (_, one) => {
    const start = at + 32 * (one + 1);
    return checksummed(answer.slice(start + 12, start + 32));
  });
}

const segmentSeed = (chance, segment) => keccak(join(chance, word(BigInt(segment))));

function boundOf(order, width, layers) {
  const share = least(order.node_share, 10_000n) * BigInt(width);
  return [order.prompt_price, order.cached_price, order.written_price].map((one) => (one * share) / (10_000n * layers));
}

/**
 * What only the chain can say: that deployment, VRF key and drawn parties are those of the receipt. `call(to, data)`
 * asks a chain node; `places` are the addresses of registry and lens, which the lens itself confirms.
 */
export async function verifyByChain(receipt, proven, places, chainId, call, told = () => {}) {
  require(chainId === receipt.chain_id, `The chain node is on chain ${chainId}, the receipt on ${receipt.chain_id}.`);
  const contracts = await call(places.lens, selector("contracts()"));
  const part = (at) => checksummed(contracts.slice(32 * at + 12, 32 * at + 32));
  require(part(0) === receipt.bank && part(1) === places.registry, "The chain has another deployment there.");
  told("The deployment is the receipt's.");
  const keyCall = join(selector("vrfKeyOf(address)"), fieldWord("address", receipt.tab.payee));
  const key = await call(places.registry, keyCall);
  require(
    number(key.slice(0, 32)) === receipt.vrf_x && number(key.slice(32, 64)) === receipt.vrf_y,
    "The VRF key is not that of the scheduler.",
  );
  told("The VRF key is the scheduler's.");
  await requireNodesDrawn(receipt, proven, places, call);
  told("Every node was drawn at the order's block.");
  if (!proven.opinions.length) return;
  await requireVerifiersDrawn(receipt, proven, places, call);
  told("Every verifier was drawn.");
}

function requestOf(receipt, span, seed) {
  const order = receipt.order.message;
  const [first, end] = span;
  return { executionClass: order.execution_class, first, end, block: order.reference_block, seed };
}

async function requireNodesDrawn(receipt, proven, places, call) {
  const order = receipt.order.message;
  for (const [segment, span] of proven.spans.entries()) {
    const bound = boundOf(order, span[1] - span[0], receipt.model.layers);
    const more = { count: receipt.execution_class.candidates, seasoned: false, excluded: [], bound };
    const request = { ...requestOf(receipt, span, segmentSeed(proven.infer, segment)), ...more };
    const drawn = addressesOf(await call(places.lens, drawCall(request)));
    require(drawn.includes(receipt.nodes[segment]), `The node of segment ${segment} was not drawn.`);
  }
}

async function ownerOf(account, places, call) {
  const profile = await call(places.lens, join(selector("profileOf(address)"), fieldWord("address", account)));
  return checksummed(profile.slice(32 * 2 + 12, 32 * 3));
}

async function requireVerifiersDrawn(receipt, proven, places, call) {
  const served = await Promise.all(receipt.nodes.map((node) => ownerOf(node, places, call)));
  const results = keccak(join(...proven.results.map((result) => structHash("Result", result))));
  const seed = keccak(join(tag("troth/market/check/1"), proven.orderId, receipt.secret, proven.beta, results));
  for (const [segment, span] of proven.spans.entries()) {
    const check = receipt.checks[segment];
    const silent = await Promise.all(check.silent.map((node) => ownerOf(node, places, call)));
    const more = {
      count: receipt.execution_class.verifiers,
      seasoned: true,
      excluded: [...new Set([...served, ...silent])],
      bound: [0n, 0n, 0n],
    };
    const request = { ...requestOf(receipt, span, segmentSeed(seed, segment)), ...more };
    const drawn = addressesOf(await call(places.lens, drawCall(request)));
    require(drawn.join() === check.drawn.join(), `Other verifiers were drawn for segment ${segment}.`);
  }
}
