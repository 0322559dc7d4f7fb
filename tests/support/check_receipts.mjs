// Reads a JSON list of receipts as text on standard input, and writes what the page's own module says of each.

import { readFileSync } from "node:fs";
import { decode, hex, unhex, verify, verifyProof, verifyByChain, InvalidReceipt, OPINIONS } from "../../explorer/troth/explorer/static/receipt.js";

function judged(text) {
  try {
    const receipt = decode(new TextEncoder().encode(text));
    const proven = verify(receipt);
    const opinions = proven.opinions.map((one) => OPINIONS[one]);
    return { fee: String(proven.fee), drawn: proven.drawn, opinions, unproven: proven.unproven, order: hex(proven.orderId) };
  } catch (error) {
    return { error: error.message, known: error instanceof InvalidReceipt };
  }
}

function proof({ key, alpha, proof }) {
  try {
    return hex(verifyProof(BigInt(key[0]), BigInt(key[1]), unhex(alpha), unhex(proof), "It"));
  } catch (error) {
    return null;
  }
}

async function byChain({ receipt, places, chainId, answers }) {
  const held = decode(new TextEncoder().encode(receipt));
  const asked = [];
  const call = async (to, data) => {
    asked.push([to, hex(data)]);
    const found = answers[`${to} ${hex(data)}`];
    if (!found) throw new InvalidReceipt(`not answered: ${to} ${hex(data)}`);
    return unhex(found);
  };
  try {
    await verifyByChain(held, verify(held), places, BigInt(chainId), call);
    return { holds: true, asked };
  } catch (error) {
    return { holds: false, error: error.message, asked };
  }
}

const said = JSON.parse(readFileSync(0, "utf8"));
const made = {
  receipts: (said.receipts ?? []).map(judged),
  proofs: (said.proofs ?? []).map(proof),
  chain: await Promise.all((said.chain ?? []).map(byChain)),
};
process.stdout.write(JSON.stringify(made));
