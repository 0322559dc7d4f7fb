"""Prompts of challenges: seeded, in six languages, of users' lengths, each written once.

Templates ask what people ask; names, occupations, places and dates come from the corpora that Faker ships. Lengths are
those of ShareGPT's prompts (Kwon et al., SOSP 2023, figure 11): a question by itself, or one with notes before or
after it, as long as was drawn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from troth.committee.errors import MemberConfigurationInvalid

if TYPE_CHECKING:
    from faker import Faker

MEAN_TOKENS, SPREAD, TOKEN_CHARACTERS = 161.31, 1.0, 4.2
"""Of prompts: mean, the standard deviation of the logarithm, and characters of a token."""
LONGEST = 8_600
"""Characters."""
TRIES, DRAWN = 200, 6
"""Prompts that are written until one is new; questions of which a short one is chosen."""

LANGUAGES = {"en_US": 60, "es_ES": 10, "de_DE": 10, "fr_FR": 8, "pt_BR": 8, "pl_PL": 4}
"""How often each language is written, in a hundred."""

QUESTIONS = {
    "en_US": (
        "What does {a_job} earn in {country}, roughly, and what decides it?",
        "How do I become {a_job} if I am {age} already?",
        "Write a short email to {name}: the meeting in {month} moves to day {day}, and I need the numbers before.",
        "Explain to a child what {a_job} does all day.",
        "I have {day} days for {country} in {month}. What should I not miss?",
        "my {job} friend {name} turns {age}, ideas for a present under {number} dollars?",
        "Give me {small} names for a small company that paints houses {color}. One word each.",
        "Compare life as {a_job} in {country} and in {country2}, in a table.",
        "Write the first paragraph of a story that begins with {a_job} and an old suitcase.",
        "Is {number} a lot of money for a month in {country}?",
        "python: how do I sort a list of dicts by 'age', then by 'name', when 'name' may be missing? {number} rows",
        "What happened in {country} in {year}? Only what you are sure of.",
        "I want to cook for {small} people, one is vegetarian, and we all loved {country}. Suggest a menu.",
        "Rewrite this so that {name} does not take it badly: your part was late again, please hurry.",
        "Which questions should I ask in an interview for {job}?",
        "capitals of {country} and {country2}?",
        "a {color} gift for {name} under {number}",
        "names like {name} and {name2}",
        "What is a good word for someone like {name} who always agrees with {name2} and never helps?",
        "vegetarian food, {country} or {country2}?",
        "My neighbour {name} plays the drums at night. How do I ask for quiet without starting a fight?",
        "Explain {topic} to {name}, who is {age} and has never heard of it.",
        "Explain {topic} in one sentence, then in five, then say what people usually get wrong about it.",
        "What is the difference between {topic} and {topic2}?",
        "Write a dialogue between {a_job} and a customer about {topic}. Keep it funny and end with a surprise.",
        "You are {a_job}. A friend asks you about {topic} at dinner. Answer in your own words, without lists.",
        "Is it worth learning about {topic} today? Argue for both sides and then decide.",
        "Summarise what matters about {topic} for a busy reader, and say which part of it is still disputed.",
        "Translate into {language}: I would like to know more about {topic}, could you help me with that?",
        "Correct the grammar, change nothing else: me and {name} was talking about {topic} yesterday, it were fun.",
        "Outline a talk about {topic} for an audience that would rather be at lunch.",
        "SQL: customers who ordered in {month} {year}, never again. customers(id, name), orders(id, cid, day)",
    ),
    "de_DE": (
        "Hauptstadt von {country}, und von {country2}?",
        "Erkläre mir in zwei Sätzen, was man unter dem Wort Zinseszins versteht, so wie {name} es erzählen würde.",
        "Warum ist der Himmel über {city} abends manchmal rot?",
        "Schreib {name} einen netten Satz zum Geburtstag, nicht zu förmlich und bitte ohne Reim.",
        "Was verdient man in diesem Beruf: {job} in {city}?",
        "Schreib bitte eine kurze Mail an {name}: Der Termin im {month} fällt aus, neuer Vorschlag ist der {day}.",
        "Wie erkläre ich meinem Sohn, was man in diesem Beruf macht: {job}?",
        "Ich bin {day} Tage in {city}. Was lohnt sich, wenn es regnet?",
        "Nenn mir {small} Gründe, mit {age} noch eine Ausbildung anzufangen.",
        "Erzähl eine kleine Geschichte über {name} aus {city}, die {number} Euro findet.",
        "Welche Unterlagen brauche ich für einen Umzug von {city} nach {country}?",
    ),
    "fr_FR": (
        "capitales : {country}, {country2} ?",
        "Explique simplement pourquoi les feuilles changent de couleur, comme si tu parlais à {name}.",
        "Rédige une courte lettre de remerciement à {name} pour son aide pendant le déménagement à {city}.",
        "En quoi consiste au quotidien ce métier : {job} ?",
        "Écris un message poli à {name} pour repousser notre rendez-vous au {day} du mois.",
        "Je passe {day} jours près de {city}, que voir avec des enfants ?",
        "Donne-moi {small} idées de cadeaux pour {name}, qui a {age} ans et aime le bleu.",
        "Quelle est la différence entre vivre en {country} et en {country2} ?",
        "Commence une histoire où {name} trouve {number} lettres dans un grenier.",
    ),
    "es_ES": (
        "¿capital de {country} y de {country2}?",
        "Explícame con un ejemplo sencillo por qué suben los precios cuando hay poca oferta en {country}.",
        "Escribe un mensaje amable a {name} para disculparme por haber olvidado nuestra cita en {city}.",
        "¿Cómo es un día normal de alguien que trabaja así: {job}?",
        "Escribe un correo corto a {name}: la reunión de {month} pasa al día {day}.",
        "Tengo {day} días en {city}, ¿qué me recomiendas ver?",
        "Dame {small} recetas fáciles para {number} personas y explica la primera.",
        "¿Qué diferencia hay entre vivir en {country} y en {country2}?",
        "Escribe un poema breve sobre {name}, que nació en {city} en {year}.",
    ),
    "pt_BR": (
        "capital: {country}, {country2}?",
        "Explique com palavras simples por que o céu é azul, como se falasse com {name}.",
        "Escreva um convite curto para {name} vir a {city} conhecer a casa nova.",
        "Como é o dia a dia desta profissão: {job}?",
        "Escreva uma mensagem para {name} dizendo que chego no dia {day} de {month}.",
        "Quero viajar por {day} dias para {country}. Faça um roteiro simples.",
        "Me dê {small} dicas para guardar {number} reais por mês.",
        "Conte uma história curta sobre {name}, que mora em {city}.",
        "Qual a diferença entre morar em {country} e em {country2}?",
    ),
    "pl_PL": (
        "stolica: {country}, {country2}?",
        "Wyjaśnij prostymi słowami, dlaczego niebo jest niebieskie. Pyta {name}.",
        "Ile zarabia się w tym zawodzie: {job}?",
        "Napisz krótki mail do {name}: spotkanie przenosimy na {day} dzień miesiąca.",
        "Mam {day} dni i jadę do: {city}. Co warto zobaczyć?",
        "Podaj {small} pomysłów na prezent dla osoby, która ma {age} lat i mieszka tu: {city}.",
        "Napisz początek opowiadania, w którym {name} znajduje {number} złotych.",
    ),
}
NOTES = {
    "en_US": (
        "{name} has worked as {a_job} since {year} and moved to {country} last {month}.",
        "The offer from {company} is {number} a month, with {day} days off.",
        "On {month} {day} we agreed with {name2} that the {color} version is the final one.",
        "In {country2} the same thing cost us {number}, and it took {small} weeks.",
        "{name2} says no, because in {month} there is nobody who could look after it.",
        "As far as I know {company} has done this for years, but the contract ends soon.",
        "We tried to explain it with an example about {topic}, which made things worse rather than better.",
        "It is not about the money, it is about being asked before others decide something like that.",
        "Somebody in the group said that {topic} has nothing to do with it, and nobody knew what to answer.",
        "The text should be easy to read, with short sentences, and it should not sound like advertising.",
        "I have already looked at what others wrote about {topic}, and most of it repeats the same two ideas.",
        "Please keep what I wrote about {topic} and {topic2} as it is, only the order may change.",
        "At the beginning everybody was enthusiastic, later on fewer and fewer people came, which is a pity.",
    ),
    "de_DE": (
        "Es geht dabei nicht ums Geld, sondern darum, dass man vorher gefragt wird.",
        "Der Text soll leicht zu lesen sein und nicht nach Werbung klingen.",
        "{name} arbeitet seit {year} dort und ist im {month} nach {city} gezogen.",
        "Das Angebot von {company} liegt bei {number} im Monat, dazu {day} Tage Urlaub.",
        "{name2} ist dagegen, weil im {month} niemand Zeit hat.",
        "In {country} hat dasselbe {number} gekostet und {small} Wochen gedauert.",
    ),
    "fr_FR": (
        "Ce n'est pas une question d'argent, on aurait simplement aimé être prévenus avant.",
        "Le texte doit rester simple et ne pas ressembler à de la publicité.",
        "{name} travaille depuis {year} et vient d'arriver à {city}.",
        "L'offre de {company} est de {number} par mois, avec {day} jours de congé.",
        "{name2} n'est pas d'accord, car personne n'est là à cette période.",
    ),
    "es_ES": (
        "No es por el dinero, sino porque nadie nos preguntó antes de decidirlo.",
        "El texto tiene que ser fácil de leer y no sonar a publicidad.",
        "{name} trabaja allí desde {year} y en {month} se mudó a {city}.",
        "La oferta de {company} es de {number} al mes, con {day} días libres.",
        "{name2} no quiere, porque en {month} no hay nadie que lo haga.",
    ),
    "pt_BR": (
        "Não é pelo dinheiro, é que ninguém perguntou nada antes de decidir.",
        "O texto deve ser fácil de ler e não parecer propaganda.",
        "{name} trabalha lá desde {year} e em {month} foi morar em {city}.",
        "A proposta da {company} é de {number} por mês, com {day} dias de folga.",
        "{name2} não concorda, porque em {month} ninguém pode.",
    ),
    "pl_PL": (
        "Nie chodzi o pieniądze, tylko o to, że nikt nas wcześniej nie zapytał.",
        "Tekst ma być łatwy do czytania i nie brzmieć jak reklama.",
        "{name} pracuje tam od roku {year}, a teraz przenosi się do: {city}.",
        "Oferta firmy {company} to {number} miesięcznie i {day} dni urlopu.",
        "{name2} się nie zgadza, bo nikt nie ma czasu.",
    ),
}


TOPICS = (
    "compound interest", "black holes", "sourdough bread", "the French revolution", "inflation", "photosynthesis",
    "electric bicycles", "chess openings", "the water cycle", "jet lag", "recursion", "impressionism", "vaccines",
    "train timetables", "mountain weather", "urban gardening", "renting a flat", "public libraries", "coral reefs",
    "binary search", "stage fright", "solar panels", "old maps", "migraine", "fermented vegetables", "copyright",
    "sleep", "double-entry bookkeeping", "bird migration", "tax classes", "knitting patterns", "volcanoes",
    "open source licences", "minimal pairs", "noise cancelling", "school uniforms", "heat pumps", "opera",
)  # fmt: skip
TONGUES = ("French", "German", "Spanish", "Italian", "Polish", "Dutch", "Portuguese", "Swedish", "Turkish")


def prompts_of(seed: bytes, count: int, is_new: Callable[[str], bool], longest: int = LONGEST) -> tuple[str, ...]:
    """``count`` different prompts from a secret seed, of those that ``is_new`` says were never written.

    Notes are added up to ``longest`` characters at most; a question alone may be longer.

    Whoever does not know the seed cannot guess them; the same seed and the same version of the corpora write the same.
    Raises MemberConfigurationInvalid where the corpora are not installed.
    """
    chooser, found = random.Random(seed), dict[str, None]()  # noqa: S311 - seeded with 32 secret bytes
    corpora = {language: _corpus(language) for language in LANGUAGES}
    for corpus in corpora.values():
        corpus.seed_instance(chooser.getrandbits(64))
    for _ in range(count):
        text = next(text for text in _written(chooser, corpora, longest) if text not in found and is_new(text))
        found[text] = None
    return tuple(found)


def _written(chooser: random.Random, corpora: dict[str, Faker], longest: int) -> Iterator[str]:
    for _ in range(TRIES):
        yield _one(chooser, corpora, longest)
    raise MemberConfigurationInvalid(f"No new prompt came of {TRIES}", None, "Install newer corpora: faker.")


def _one(chooser: random.Random, corpora: dict[str, Faker], longest: int) -> str:
    language = chooser.choices(list(LANGUAGES), list(LANGUAGES.values()))[0]
    corpus = corpora[language]
    wanted = min(longest, chooser.lognormvariate(math.log(MEAN_TOKENS) - SPREAD**2 / 2, SPREAD) * TOKEN_CHARACTERS)
    drawn = [_filled(chooser, corpus, chooser.choice(QUESTIONS[language])) for _ in range(DRAWN)]
    # Of a few, the one that fits a short wish best; a longer wish takes any.
    question = min(drawn, key=lambda text: abs(len(text) - wanted)) if wanted < len(drawn[0]) else drawn[0]
    notes, left = list[str](), wanted - len(question)
    while left > 0:
        note = _filled(chooser, corpus, chooser.choice(NOTES[language]))
        # As often a little too long as a little too short.
        if len(note) > 2 * left:
            break
        notes.append(note)
        left -= len(note) + 1
    if not notes:
        return question
    told = chooser.choices((" ", "\n"), (4, 1))[0].join(notes)
    orders = (f"{told}\n\n{question}", f"{question} {told}", f"{told} {question}")
    return chooser.choices(orders, (1, 3, 1))[0]


def _filled(chooser: random.Random, corpus: Faker, template: str) -> str:
    first, second, job = corpus.country(), corpus.country(), _occupation(corpus.job())
    topic, topic2 = chooser.sample(TOPICS, 2)
    return template.format(
        topic=topic,
        topic2=topic2,
        language=chooser.choice(TONGUES),
        job=job,
        a_job=f"an {job}" if job[0] in "aeiou" else f"a {job}",
        city=corpus.city(),
        country=first,
        country2=second,
        name=corpus.first_name(),
        name2=corpus.first_name(),
        company=corpus.company(),
        color=corpus.safe_color_name(),
        month=corpus.month_name(),
        day=chooser.randint(2, 28),
        age=chooser.randint(19, 71),
        small=chooser.randint(3, 9),
        number=chooser.choice((chooser.randint(11, 99), 50 * chooser.randint(3, 80), chooser.randint(101, 9999))),
        year=chooser.randint(1954, 2024),
    )


def _occupation(listed: str) -> str:
    """As one says it: registers list "Engineer, civil"."""
    parts = listed.split(", ")
    return f"{parts[1]} {parts[0]}".lower() if len(parts) == 2 and len(parts[1].split()) == 1 else parts[0].lower()


@cache
def _corpus(language: str) -> Faker:
    try:
        from faker import Faker
    except ImportError as error:
        what = "Prompts are written from corpora that are not installed"
        remedy = "Install Troth again with its extra: pip install 'WHEEL[committee]'."
        raise MemberConfigurationInvalid(what, error.name, remedy) from error
    return Faker(language)
