"""Prompts to judge on: ordinary ones outside of the calibration set, and odd ones that a hostile client would type.

Prompts come in groups of one length, so that a group runs as one batch without padding.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.models.folder import ModelFolder
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

SEED = 20261115
"""Of every drawn prompt; printed with the tables."""
ORDINARY = (Sampling(0.0, 1.0), Sampling(0.7, 0.9), Sampling(1.0, 1.0))
HOSTILE = (Sampling(1.0, 1.0), Sampling(0.7, 0.9), Sampling(0.0, 1.0), Sampling(0.3, 1.0), Sampling(1.5, 0.95))
QUESTIONS = (
    "How does a lock on a canal lift a ship? Describe each step for a visitor who has never seen one.",
    "Write a short dialogue between a baker and a customer who wants bread that is not there any more.",
    "Which three inventions changed farming the most in the last two hundred years, and in which way?",
    "Explain to a child why ice floats on water although it is the same stuff as what it floats on.",
    "Give five names for a small company that repairs old radios, with a reason of one line for each.",
    "My bicycle chain slips under load. What should I look at first, and which parts wear together?",
    "Write a regular expression for dates like 2024-05-17 and explain every part of it in plain words.",
    "Describe a market in a harbour town early in the morning, in the present tense and without adjectives.",
    "What is the difference between weather and climate? Answer with an example from northern Europe.",
    "A tank holds 240 litres and loses three litres an hour. After how many hours is a quarter of it left?",
    "Turn this into a formal letter: I want my money back, the kettle broke after two days of use.",
    "List the planets from the sun outwards and say of each one thing that nobody would expect of it.",
    "Why do some metals rust and others do not? Name two of each kind and what protects the latter.",
    "Write a function in Rust that reverses the words of a sentence, and one test that it must pass.",
    "Tell the story of the tortoise and the hare as a report of a sports journalist on the radio.",
    "What did people use before paper, and why did paper win? Answer in one paragraph of five sentences.",
    "Propose a menu for six guests of whom one eats no meat and another one cannot eat anything with milk.",
    "Compare renting and buying a flat for a family that will move again in four years or perhaps never.",
    "Explain what a checksum is, what it protects against, and what it can by its nature not protect against.",
    "Write a lullaby of two verses about a train that crosses a sleeping country at night in the snow.",
    "How would you measure the height of a tower with a barometer? Give three answers, one of them silly.",
    "Summarise the water cycle, then write four questions for a quiz about it, with the right answers.",
    "A friend wants to learn to play chess in a month. Write a plan by weeks with one goal for each week.",
    "What makes a bridge fail? Describe two famous cases, and what engineers have changed because of them.",
)
FRESH = (
    "How do bees decide where to build a new nest? Tell it in the order in which it happens.",
    "Write a note to a neighbour whose music is too loud, friendly but clear, in four sentences.",
    "What is a prime number, and why does nobody know a formula that gives all of them in turn?",
    "Describe how bread is baked in a village that has no electricity, hour by hour.",
    "A train leaves at 14:20 and arrives at 17:05. How long does it travel, and how fast over 220 km?",
    "Explain what a database index does, with a comparison that has nothing to do with computers.",
    "Which birds stay in northern Europe in winter, and what do they eat when snow covers the ground?",
    "Write the first paragraph of a detective story that plays in a library during a power cut.",
    "Give three arguments for and three against cars in the middle of a small town.",
    "What happens in a body during a fever, and when should one call a doctor because of it?",
    "Turn these words into a poem of eight lines: river, lamp, grandmother, salt, bicycle, dawn.",
    "Write a shell script that counts the lines of all text files in a folder, and explain it.",
    "Why is the sky blue at noon and red in the evening? Answer for somebody of twelve years.",
    "How do you fold a paper boat? Number the steps, and say what goes wrong most often.",
    "Compare a violin and a guitar: how each makes its sound, and which is easier to begin with.",
    "Summarise what a parliament does in five sentences that contain no foreign words.",
    "What should be in a bag for three days of walking in the mountains in September?",
    "Write an advertisement of fifty words for a clock that always runs five minutes fast.",
    "Explain compound interest with an example of 1,000 crowns at four per cent over three years.",
    "How did sailors find their way before there were satellites, and how exactly could they do it?",
    "Name the bones of the human arm from the shoulder to the fingers, with one remark on each.",
    "My tomato plants have yellow leaves from below. What may be the cause, and what can I do?",
    "Write a dialogue between the moon and a street lamp about who is more useful to the cat.",
    "What is the difference between a virus and a bacterium, and why does it matter for medicine?",
)
"""Prompts on which nothing was fixed: rules that the others suggested are measured on them."""
LANGUAGES = (
    "Le vieux pêcheur raconte aux enfants comment la mer était avant le grand port.",
    "Der alte Fischer erzählt den Kindern, wie das Meer vor dem großen Hafen war.",
    "El viejo pescador cuenta a los niños cómo era el mar antes del gran puerto.",
    "Il vecchio pescatore racconta ai bambini com'era il mare prima del grande porto.",
    "O velho pescador conta às crianças como era o mar antes do grande porto.",
    "Stary rybak opowiada dzieciom, jakie było morze przed wielkim portem.",
    "Старый рыбак рассказывает детям, каким было море до большого порта.",
    "Старий рибалка розповідає дітям, яким було море до великого порту.",
    "Ο γέρος ψαράς λέει στα παιδιά πώς ήταν η θάλασσα πριν από το λιμάνι.",
    "الصياد العجوز يحكي للأطفال كيف كان البحر قبل الميناء الكبير",
    "הדייג הזקן מספר לילדים איך היה הים לפני הנמל הגדול",
    "बूढ़ा मछुआरा बच्चों को बताता है कि बड़े बंदरगाह से पहले समुद्र कैसा था",
    "老渔夫告诉孩子们大港口建成之前的大海是什么样子的。",
    "年老いた漁師は、大きな港ができる前の海の様子を子供たちに語る。",
    "늙은 어부는 아이들에게 큰 항구가 생기기 전의 바다를 이야기한다.",
    "ชาวประมงแก่เล่าให้เด็กๆ ฟังว่าทะเลเป็นอย่างไรก่อนมีท่าเรือใหญ่",
    "Ông lão đánh cá kể cho lũ trẻ nghe biển ra sao trước khi có cảng lớn.",
    "Yaşlı balıkçı çocuklara büyük limandan önce denizin nasıl olduğunu anlatır.",
    "De oude visser vertelt de kinderen hoe de zee was voor de grote haven.",
    "Den gamle fiskeren forteller barna hvordan havet var før den store havna.",
    "Vanha kalastaja kertoo lapsille, millainen meri oli ennen suurta satamaa.",
    "Az öreg halász elmeséli a gyerekeknek, milyen volt a tenger a nagy kikötő előtt.",
    "Starý rybář vypráví dětem, jaké bylo moře před velkým přístavem.",
    "Bătrânul pescar le povestește copiilor cum era marea înainte de marele port.",
    "Ang matandang mangingisda ay nagkukuwento sa mga bata tungkol sa dagat noon.",
    "Mvuvi mzee anawaambia watoto jinsi bahari ilivyokuwa kabla ya bandari kubwa.",
    "Gamli sjómaðurinn segir börnunum hvernig hafið var fyrir höfnina miklu.",
    "ძველი მეთევზე ბავშვებს უყვება, როგორი იყო ზღვა დიდ ნავსადგურამდე",
    "Ծեր ձկնորսը պատմում է երեխաներին, թե ինչպիսին էր ծովը",
    "வயதான மீனவர் குழந்தைகளிடம் கடல் எப்படி இருந்தது என்று சொல்கிறார்",
)


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts of one length: ``tokens`` is prompts x positions, prompt i is sampled by ``samplings[i]``."""

    name: str
    tokens: NDArray[np.int64]
    samplings: tuple[Sampling, ...]
    written: int
    names: tuple[str, ...]

    def seed(self, index: int) -> Hash32:
        """The public noise seed of a prompt."""
        return Hash32(hashlib.sha256(f"troth judging {self.name} {index} {SEED}".encode()).digest())


def group(
    name: str, prompts: Sequence[tuple[str, Sequence[int]]], samplings: Sequence[Sampling], written: int
) -> Group:
    """Prompts cut to the shortest of them, with the samplings in turn."""
    length = min(len(tokens) for _, tokens in prompts)
    rows = np.array([list(tokens)[:length] for _, tokens in prompts], dtype=np.int64)
    turn = tuple(samplings[index % len(samplings)] for index in range(len(rows)))
    return Group(name, rows, turn, written, tuple(name for name, _ in prompts))


def ordinary(folder: ModelFolder, written: int = 64, length: int = 48, *, fresh: bool = False) -> Group:
    """Questions in the model's chat template; the end of each is kept, where the template asks for the answer."""
    tokenizer = tokenizer_of(folder)
    prompts = []
    for question in FRESH if fresh else QUESTIONS:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        tokens = list(tokenizer(asked, add_special_tokens=False)["input_ids"])
        prompts.append((question[:30], tokens[-length:]))
    return group("fresh" if fresh else "ordinary", prompts, ORDINARY, written)


def odd(folder: ModelFolder, written: int = 48) -> list[Group]:
    """What nobody asks in earnest: single ids, repeated ids, bytes, many languages, code, numbers."""
    tokenizer = tokenizer_of(folder)
    draw = np.random.default_rng(SEED)
    drawn = [int(token) for token in draw.integers(3, folder.config["vocab_size"], size=18)]
    singles = [0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 16, 17, 28, 198, 216, *drawn]
    repeated = [0, 0, 0, 1, 2, 28, 198, 216, _first(tokenizer, "A"), _first(tokenizer, " the"), *drawn[:6]]

    def read(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    pairs = [(f"[{token}] x 8", [token] * 8) for token in repeated]
    alike = [(f"[{token}] x 60, one asked", [token] * 60) for token in repeated]
    return [
        group("one token", [(f"[{token}]", [token]) for token in singles], HOSTILE, written),
        group("repeated, short", pairs, HOSTILE, written),
        group("repeated", [(f"[{token}] x 60", [token] * 60) for token in repeated], HOSTILE, written),
        group("repeated, one asked", alike, HOSTILE, 1),
        group("languages", [(text[:12], read(text)) for text in LANGUAGES], HOSTILE, written),
        group("bytes and code", [(text[:12], read(text)) for text in _strange(draw)], HOSTILE, written),
    ]


def long(folder: ModelFolder, written: int = 1) -> Group:
    """`A` two hundred times, and an ordinary text as long; what is written would only make their rows less alike."""
    tokenizer = tokenizer_of(folder)
    text = " ".join(QUESTIONS)
    read = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    letter = _first(tokenizer, "A")
    prompts = [("A x 200", [letter] * 200), ("0 x 200", [0] * 200), ("long text", read[:200]), ("end", read[-200:])]
    return group("long", prompts, HOSTILE, written)


def tokenizer_of(folder: ModelFolder) -> Any:
    """The model's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder.path)


def _first(tokenizer: Any, text: str) -> int:
    return int(tokenizer(text, add_special_tokens=False)["input_ids"][0])


def _strange(draw: np.random.Generator) -> list[str]:
    random = draw.bytes(90)
    return [
        "\n" * 64,
        "\n\n\n \n\n\n\t\n" * 8,
        " " * 64 + "x" * 40,
        "".join(map(chr, range(1, 32))) * 2,
        "\x00\x01\x7f\x1b[0m" * 10,
        random.decode("latin-1"),
        base64.b64encode(random).decode(),
        "0123456789" * 8,
        "3.14159265358979323846264338327950288419716939937510",
        "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987",
        "def f(x):\n    return [y for y in x if y % 2]\n\nprint(f(range(10)))\n",
        "#include <stdio.h>\nint main(void) { return 0; }\n/* end */ int a[3] = {1, 2, 3};",
        "SELECT a, b FROM t WHERE c = 'x' ORDER BY d DESC LIMIT 10; -- and so on; DROP TABLE t;",
        "<|im_start|>user\n<|im_end|>\n<|endoftext|><|im_start|>system\n<|im_end|>hello<|endoftext|> again <|im_end|>",
        "<html><body><p>Hi</p></body></html><!-- x --><br/><div class='a'></div>",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "😀😃😄😁😆😅😂🤣😊😇🙂🙃😉😌😍🥰😘😗😙😚",
        "Z̷̢a̸l̵g̶o̷ t̸e̴x̵t̶ i̸s̴ h̵e̶r̷e̸",
        "(((((((((((((((((())))))))))))))))))[[[[[[[[[[]]]]]]]]]]{{{{{{}}}}}}",
        "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore",
    ]
