// The receipt's page: a file is dropped or chosen, checked here, and told. A chain node is asked only on demand.

import { InvalidReceipt, OPINIONS, SIZE_LIMIT, decode, hex, unhex, verify, verifyByChain } from "./receipt.js";

const ANSWER_SECONDS = 20;
const ANSWER_LIMIT = 1 << 20;
const at = (id) => document.getElementById(id);
let held = null;
// Counts the files that were given: what is still said of an earlier one is not shown beside a later one.
let turn = 0;

function item(list, text, state = "good") {
  const made = document.createElement("li");
  made.className = state;
  made.textContent = text;
  list.append(made);
}

function fact(name, value) {
  const row = document.createElement("div");
  const [term, said] = [document.createElement("dt"), document.createElement("dd")];
  term.textContent = name;
  said.textContent = value;
  said.className = "wrap";
  row.append(term, said);
  at("facts").append(row);
}

function begin() {
  held = null;
  turn += 1;
  for (const id of ["steps", "facts", "unproven"]) at(id).replaceChildren();
  at("chain-verdict").textContent = "";
  at("verdict").hidden = false;
  at("ask").disabled = true;
}

function conclude(state, title, text) {
  at("verdict").className = `card ${state}`;
  at("verdict-title").textContent = title;
  at("verdict-text").textContent = text;
}

async function check(file) {
  begin();
  const own = turn;
  if (file.size > SIZE_LIMIT) {
    conclude("bad", "This is no receipt", `A receipt has at most ${SIZE_LIMIT} bytes.`);
    return;
  }
  try {
    const content = new Uint8Array(await file.arrayBuffer());
    if (own !== turn) return;
    const receipt = decode(content);
    const proven = verify(receipt, (words) => item(at("steps"), words));
    show(receipt, proven);
    held = { receipt, proven };
    at("ask").disabled = !document.body.dataset.lens;
  } catch (error) {
    if (!(error instanceof InvalidReceipt)) throw error;
    item(at("steps"), error.message, "bad");
    conclude("bad", "The receipt does not hold", error.message);
  }
}

function show(receipt, proven) {
  const opinions = proven.opinions.map((one) => OPINIONS[one]);
  fact("Order", hex(proven.orderId));
  fact("Scheduler", receipt.tab.payee);
  const family = receipt.model.architecture.replace(/0x[0-9a-f]{5,}/g, (found) => `${found.slice(0, 6)}…`);
  fact("Model", `${family}, ${receipt.execution_class.name}`);
  receipt.nodes.forEach((node, segment) => {
    const [first, end] = proven.spans[segment];
    fact(`Layers ${first}–${end - 1}`, `${node}${opinions[segment] ? `: ${opinions[segment].replace("_", " ")}` : ""}`);
  });
  fact("Fee", `${proven.fee} of the asset's smallest unit`);
  fact("Lottery", receipt.secret === null ? "the secret was not shown" : proven.drawn ? "drawn" : "not drawn");
  for (const words of proven.unproven) item(at("unproven"), `That ${words}.`, "late");
  if (opinions.includes("reject")) conclude("bad", "Its check rejects the answer", "Bring it to the court: troth case.");
  else if (opinions.length && opinions.every((one) => one === "accept"))
    conclude("good", "It holds, and was checked", "Every signature and proof in it is right, and verifiers accepted.");
  else conclude("good", "It holds", "Every signature and proof in it is right. It shows no check that accepted.");
}

async function ask(url, method, params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const signal = AbortSignal.timeout(ANSWER_SECONDS * 1000);
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(url, { method: "POST", body, headers, signal, credentials: "omit" });
  const text = await answer.text();
  if (!answer.ok || text.length > ANSWER_LIMIT) throw new InvalidReceipt(`The chain node answers ${answer.status}.`);
  const said = JSON.parse(text);
  if (typeof said.result !== "string") throw new InvalidReceipt(said.error?.message ?? "The chain node gives no answer.");
  return said.result;
}

async function askChain(event) {
  event.preventDefault();
  const url = at("rpc").value;
  const said = at("chain-verdict");
  const [own, { receipt, proven }] = [turn, held];
  const step = (words, state) => own === turn && item(at("steps"), words, state);
  said.textContent = "Asking …";
  try {
    const places = { lens: document.body.dataset.lens, registry: document.body.dataset.registry };
    const chainId = BigInt(await ask(url, "eth_chainId", []));
    const call = async (to, data) => unhex(await ask(url, "eth_call", [{ to, data: hex(data) }, "latest"]));
    await verifyByChain(receipt, proven, places, chainId, call, step);
    if (own !== turn) return;
    said.textContent = "The chain says the same.";
    at("unproven").replaceChildren();
    item(at("unproven"), "That the tab's deposits covered it.", "late");
  } catch (error) {
    if (own !== turn) return;
    const why = error instanceof InvalidReceipt ? error.message : `The chain node cannot be asked: ${error.message}`;
    said.textContent = why;
    step(why, "bad");
  }
}

const drop = at("drop");
for (const name of ["dragenter", "dragover"]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
}
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  if (event.dataTransfer.files.length) check(event.dataTransfer.files[0]);
});
const chosen = () => at("file").files.length && check(at("file").files[0]);
at("file").addEventListener("change", chosen);
// A file that was chosen before this script ran, or that the browser kept over a reload.
chosen();
at("chain").addEventListener("submit", askChain);
// The command below asks the chain node that is named here. What is no address of this machine is not taken over: the
// command is copied into a shell.
const named = () => at("rpc").checkValidity() && (at("rpc-named").textContent = at("rpc").value);
at("rpc").addEventListener("input", named);
named();
