// Connects a wallet (EIP-1193, found by EIP-6963), shows the plan in words, has it sent, and waits for the chain.

const at = (id) => document.getElementById(id);
const wallets = new Map();
let account = "";
let plan = null;
let provider = null;

function say(text, bad = false) {
  at("said").textContent = text;
  at("said").className = bad ? "bad" : "";
}

async function ask(path, body) {
  const answer = await fetch(path, { method: "POST", body });
  const said = await answer.json();
  if (said.error) throw new Error(`${said.error}: ${said.value}. ${said.remedy}`);
  return said;
}

function offer(name, found) {
  if (wallets.has(found)) return;
  const line = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `Connect ${name}`;
  button.addEventListener("click", () => attempt(() => connect(found)));
  line.append(button);
  at("wallets").append(line);
  wallets.set(found, button);
  say("Connect the wallet that is to pay.");
}

async function attempt(work) {
  try {
    await work();
  } catch (error) {
    say(error.code === 4001 ? "You declined it in the wallet. Nothing was sent." : error.message, true);
    at("send").disabled = false;
  }
}

async function connect(found) {
  provider = found;
  say("Waiting for the wallet …");
  [account] = await provider.request({ method: "eth_requestAccounts" });
  say(`Preparing for ${account} …`);
  plan = await ask("plan", account);
  await chooseChain(plan.chain_id);
  show();
}

async function chooseChain(wanted) {
  const named = `0x${wanted.toString(16)}`;
  const is = async () => BigInt(await provider.request({ method: "eth_chainId" })) === BigInt(wanted);
  if (await is()) return;
  await provider.request({ method: "wallet_switchEthereumChain", params: [{ chainId: named }] });
  if (!(await is())) throw new Error(`The wallet is on another chain: choose chain ${wanted}.`);
}

function show() {
  at("calls").replaceChildren(
    ...plan.calls.map((call) => {
      const line = document.createElement("li");
      const to = document.createElement("code");
      to.textContent = call.to;
      line.append(`${call.function}, with ${plan.shown[plan.calls.indexOf(call)]}, to `, to);
      return line;
    }),
  );
  at("plan").hidden = false;
  say(plan.refused ? `The chain would refuse it now: ${plan.refused}` : `Paid by ${account}.`, Boolean(plan.refused));
}

async function send() {
  at("send").disabled = true;
  for (const [number, call] of plan.calls.entries()) {
    say(`Confirm ${call.function} in the wallet …`);
    const params = [{ from: account, to: call.to, value: `0x${BigInt(call.value).toString(16)}`, data: call.data }];
    const sent = await provider.request({ method: "eth_sendTransaction", params });
    say(`Sent ${sent}; waiting for a block …`);
    if (number < plan.calls.length - 1) await mined(sent);
  }
  await taken();
}

const rest = (seconds) => new Promise((wake) => setTimeout(wake, 1000 * seconds));

async function mined(transaction) {
  for (;;) {
    const receipt = await provider.request({ method: "eth_getTransactionReceipt", params: [transaction] });
    if (receipt && BigInt(receipt.status) === 1n) return;
    if (receipt) throw new Error("The chain refused the transaction.");
    await rest(1);
  }
}

async function taken() {
  while (!(await ask("state", "")).done) await rest(1);
  at("plan").hidden = true;
  at("wallets").replaceChildren();
  say("Done. You can close this page; the command goes on in your terminal.");
}

addEventListener("eip6963:announceProvider", ({ detail }) => offer(detail.info.name, detail.provider));
dispatchEvent(new Event("eip6963:requestProvider"));
at("send").addEventListener("click", () => attempt(send));
const wish = await (await fetch("wish")).json();
at("title").textContent = wish.title;
await rest(0.3);
if (!wallets.size && globalThis.ethereum) offer("your wallet", globalThis.ethereum);
if (!wallets.size) say("No wallet was found in this browser. Install one, or run the command without --web: it prints the calls for any wallet.", true);
