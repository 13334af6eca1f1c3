"""One canonical wording of an instruction: what it asks for stays, how it is said does not.

Rules undo slips of spelling, case and spaces, courtesies, sentences that ask for nothing, other sentence forms,
synonyms, and the languages of the tables. A text that negates or forbids keeps its
words: only its spelling is corrected.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain

from rewardlab.core.instructions.lexicon import (
    ADJECTIVE_SYNONYMS,
    COLOUR_CONTRASTS,
    COUNTERFACTUAL_OBJECTS,
    KNOWN_WORDS,
    NOUNS,
    PREPOSITION_SYNONYMS,
    VERBS,
)
from rewardlab.core.instructions.parser import (
    DETERMINERS,
    DIRECTIONS,
    PRONOUNS,
    STATIC_PREPOSITIONS,
    fix_articles,
    gerund,
    is_plural,
    participle,
    words_of,
)
from rewardlab.core.instructions.spelling import (
    DIGITS,
    LOOKALIKES,
    NEIGHBOURING_KEYS,
    SPELLED_NUMBER,
    SPELLINGS,
    digits_of,
    words_of_number,
)
from rewardlab.core.instructions.translation import to_english


def normalise(text: str, is_word: Callable[[str], bool] = lambda _: False) -> str:
    """Return the instruction in its canonical wording, in lower case and without a full stop.

    `is_word` knows words beside those of the lexicon: what it knows is never taken for a slip of spelling.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).split())
    foreign = to_english(plain)
    goal = _goal_alone(foreign or _spelled(plain.lower(), is_word))
    reworded = _as_command(goal)
    if reworded == goal and _FORBIDS.search(goal):
        return _with_numbers(goal)
    return fix_articles(_with_synonyms(_with_numbers(reworded)))


# Spelling. A word that nobody knows is the only known word that one slip, or two in a long word, turns into it.

_OTHER_WORDS = frozenset(
    """
    about again against all also and are around away back bar be because before below between bin bottom but by can
    cage center closer cm coffee corner cylinder direction do does done down dunk each edge end fetch first forward from
    front fully further gently get go goes gripper half has hook hoop if into is it its just keep kick knock latch leave
    let little lock machine make middle mm must near net never next nozzle off once one only onto or other out outside
    over panel past piece please plug point position quarter reach ring robot safe second shelve should side sideways
    slip slowly so soccer socket spin spout stand start straight swing than that then there thermos these third this
    those through to together top toward towards two under unplug until up upon upright use using wall way when where
    while with within without wood wooden you your
    candies dryer plushy stopper
    """.split()  # noqa: SIM905  a list of words reads best as a text
)
_GRAMMAR = frozenset({"the", "a", "an", "and", "then", "it", "of", "to", "from", "into", "onto", "in", "on", "with"})
_ARCHAIC = {"thee"}  # a word, but here a slip
_QUANTITY = re.compile(r"\d+(?:st|nd|rd|th|cm|mm|m|g|kg|ml)?")
_WORD = re.compile(r"[^\W_]+(?:['’][a-z]+)?")
_LONG = 5  # letters of a word in which two slips may be undone
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@cache
def _vocabulary() -> frozenset[str]:
    """Return the words of instructions, into which slips are corrected."""
    names = chain(
        *((verb, *VERBS[verb].synonyms, gerund(verb), participle(verb)) for verb in VERBS),
        *chain(*COUNTERFACTUAL_OBJECTS.values()),
        STATIC_PREPOSITIONS,
        DIRECTIONS,
        ADJECTIVE_SYNONYMS.values(),
        PREPOSITION_SYNONYMS.values(),
    )
    words = {word for name in names for word in re.findall(r"[a-z]+", name)}
    nouns = {word for name in NOUNS for word in name.split()}
    return KNOWN_WORDS | _OTHER_WORDS | DETERMINERS | PRONOUNS | words | {f"{noun}s" for noun in nouns}


def _spelled(text: str, is_word: Callable[[str], bool]) -> str:
    def correct(found: re.Match[str]) -> str:
        word = found[0].partition("'")[0]
        known = word in _vocabulary() or (is_word(word) and word not in _ARCHAIC)
        if known or _QUANTITY.fullmatch(word) or not word.isascii():
            return found[0]
        return (_correction(word) or word) + found[0][len(word) :]

    return _WORD.sub(correct, text)


@cache
def _correction(word: str) -> str:
    """Return the word of the vocabulary that was meant; empty where none or several may have been."""
    one_slip = set(_before_slip(word))
    found = one_slip & _vocabulary()
    if not found and len(word) >= _LONG:
        found = {meant for before in one_slip for meant in _before_slip(before) if meant in _vocabulary()}
    if len(found) > 1:  # words of grammar are by far the most frequent
        found &= _GRAMMAR
    return found.pop() if len(found) == 1 else ""


def _before_slip(word: str) -> Iterator[str]:
    """Yield what may have become this word by a neighbouring key, a swap, a doubled or lost letter, or a misreading."""
    for place, letter in enumerate(word):
        before, after = word[:place], word[place + 1 :]
        yield from (before + key + after for key in NEIGHBOURING_KEYS.get(letter, ""))
        if after[:1] not in ("", letter):
            yield before + after[0] + letter + after[1:]
        if after[:1] == letter:
            yield before + after
        yield from (before + lost + word[place:] for lost in _ALPHABET)
        for shape, meant in _misread():
            if word.startswith(shape, place):
                yield before + meant + word[place + len(shape) :]


@cache
def _misread() -> tuple[tuple[str, str], ...]:
    return tuple({(shape.lower(), meant.lower()) for meant, shapes in LOOKALIKES.items() for shape in shapes})


# What stands around the goal: courtesies, sentences that ask for nothing, leaked file names.

_COURTESY = re.compile(
    r"(?:please|pls|plz|kindly|okay|ok|hey|hi|hello|hello there|dear robot|robot)\b[,:]? "
    r"|if you (?:do not|don't) mind,? |when you have a (?:moment|minute),? |if it is not too much trouble,? "
    r"|(?:could|can|would|will) you (?!mind )|i (?:would like|want|need|'d like) (?:you|the robot) to |i'd like you to "
    r"|you (?:should|must|need to|have to) |(?:make|be) sure to |remember to |go ahead and |your task is to "
    r"|(?:do not|don't) (?:fail|forget) to "
)
_THANKS = re.compile(r",? (?:please|pls|plz|thanks|thank you(?: so much| very much)?|for me)$")
_CHATTER = re.compile(
    r"^(?:hello|hi|hey|good (?:morning|afternoon|evening)|thank|many thanks|thanks|take your time|there is no hurry"
    r"|you are a great help|i really appreciate)\b"
)
_DICTATES = re.compile(r"\banswer ?: ?\d|\bscore is \d|\bthe rubric\b|\bthe evaluation\b")
_LEAKED_FILE = re.compile(r"(?: \S+\.(?:mp4|avi|webm|mkv|mov|npy|png|jpe?g))+$")
_LEAKED_SETTINGS = re.compile(r"(?<! in)(?<! the)(?<! a)(?<! of) view(?: \d+)*(?: initstate(?: \d+)?)?$")
_SENTENCE_END = re.compile(r"(?<=[.!?。]) +")
_FORBIDS = re.compile(r"\b(?:not|no|never|n't|don't|avoid|except|without|unless|neither|nor|nothing)\b")
_ASKS = frozenset(
    """
    not no never except only unless if must should need needs until without instead but mean means want goal make ensure
    sure then also first before after both all avoid careful carefully leave keep one ones
    """.split()  # noqa: SIM905
)


def _goal_alone(text: str) -> str:
    """Return the text without what asks for nothing; all of it where no sentence asks for anything."""
    bare = _LEAKED_SETTINGS.sub("", _LEAKED_FILE.sub("", text))
    sentences = [sentence for sentence in _SENTENCE_END.split(bare) if not _DICTATES.search(sentence)] or [bare]
    asking = [sentence for sentence in sentences if not _CHATTER.match(sentence)] or sentences
    spoken = [_without_courtesies(sentence) for sentence in asking]
    commands = [sentence for sentence in spoken if _starts_with_verb(sentence)]
    kept = spoken
    if commands or len(spoken) > 1:
        said = _content_words(" ".join(commands or spoken[:1]))
        kept = [
            sentence
            for place, sentence in enumerate(spoken)
            if sentence in commands or (not commands and place == 0) or not _is_aside(sentence, said)
        ]
    return " ".join(kept) if len(kept) > 1 else kept[0].rstrip(".!? ")


def _is_aside(sentence: str, said: set[str]) -> bool:
    """Tell whether a sentence demands nothing and speaks of nothing that the goal names."""
    words = words_of(sentence)
    return not words & (_ASKS | COLOUR_CONTRASTS.keys()) and not _content_words(sentence) & said


def _content_words(text: str) -> set[str]:
    return {word for word in words_of(text) if len(word) > 3 and word not in ("robot", "that", "with", "from", "into")}


def _without_courtesies(sentence: str) -> str:
    while found := _COURTESY.match(sentence):
        sentence = sentence[found.end() :]
    ending = sentence[len(sentence.rstrip(".!?")) :]
    return _THANKS.sub("", sentence.rstrip(".!?")) + ending


# Sentence forms: requests, the passive, the state to be reached, another order of words.


@cache
def _verbs() -> dict[str, str]:
    """Return every verb phrase by itself and by its synonyms; one verb of each class stands for it."""
    classes = _one_of_each_class({verb: VERBS[verb].synonyms for verb in VERBS}, _OTHER_SENSE)
    return classes | {verb: classes[other] for verb, other in _NEARLY_SYNONYMS.items()}


_NEARLY_SYNONYMS = {"get": "take", "pull out": "take out"}  # they replace each other in most sentences
_OTHER_SENSE = {"tip", "draw", "fit", "pass", "clean", "cover", "opening", "tap", "block"}  # words of several meanings


def _one_of_each_class(synonyms: Mapping[str, Collection[str]], other_sense: Collection[str]) -> dict[str, str]:
    """Return a canonical name for every name: of names that are synonyms of each other, the first.

    A synonym that has no entry of its own stands for the entries that list it, where they are of one class.
    """
    canonical = {name: name for name in synonyms}
    for name in synonyms:
        for other in synonyms[name]:
            if other in canonical and name in synonyms[other] and other not in other_sense:
                first, second = canonical[name], canonical[other]
                canonical = {each: first if of in (first, second) else of for each, of in canonical.items()}
    listed: dict[str, set[str]] = {}
    for name in synonyms:
        for other in synonyms[name]:
            listed.setdefault(other, set()).add(canonical[name])
    alone = {name: heads.pop() for name, heads in listed.items() if name not in canonical and len(heads) == 1}
    return canonical | {name: head for name, head in alone.items() if name not in other_sense}


def _any_of(names: Iterable[str]) -> str:
    return "(?:" + "|".join(map(re.escape, sorted(set(names), key=len, reverse=True))) + ")"


_JOIN = r",? and then |,? then |,? and |, "
_PLACE = _any_of(
    {
        *(*STATIC_PREPOSITIONS, *PREPOSITION_SYNONYMS.values(), *DIRECTIONS),
        *("into", "onto", "to", "towards", "toward", "from", "out of", "off", "with", "using", "through", "around"),
    }
)
_BY_THE_END = re.compile(r"(?:by the end|make it so that|the goal is that|make sure that|ensure that),? (?P<state>.+)")
_SHOULD_BE = re.compile(
    r"(?P<thing>(?:the|a|an) .+?) (?:should|must|ought to|needs to|has to|have to) be (?P<state>.+)"
)
_MOVED = {
    "further to the left than before": "to the left",
    "further to the right than before": "to the right",
    "on the right instead of on the left": "from left to right",
    "on the left instead of on the right": "from right to left",
}


@cache
def _forms() -> dict[str, dict[str, str]]:
    """Return verb phrases by their gerund and by their participle."""
    names = (*VERBS, *(name for verb in VERBS.values() for name in verb.synonyms))
    return {"gerund": {gerund(name): name for name in names}, "participle": {participle(name): name for name in names}}


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """Compile a pattern in which VERB, GERUND, PARTICIPLE and PLACE stand for all of them."""
    words = {
        "VERB": _forms()["participle"].values(),
        "GERUND": _forms()["gerund"],
        "PARTICIPLE": _forms()["participle"],
    }
    for name, names in words.items():
        template = template.replace(f"<{name}>", rf"(?P<{name.lower()}>{_any_of(names)})\b")
    return re.compile(template.replace("<PLACE>", rf"{_PLACE}\b"))


def _starts_with_verb(text: str) -> bool:
    return _pattern("<VERB>").match(text) is not None


def _as_command(goal: str) -> str:
    """Return the goal as an imperative; as it is where it has no form that is known."""
    for reword in (_from_request, _from_passive, _from_state, _from_cleft, _from_object_first, _from_place_first):
        if found := reword(goal):
            return found
    return goal


def _clauses(text: str, reword: Callable[[str, str], str]) -> str:
    """Return the clauses reworded one by one, each with the object of the one before; empty where one cannot be."""
    parts = re.split(f"({_JOIN})", text)
    written = reword(parts[0], "")
    for join, part in zip(parts[1::2], parts[2::2], strict=True):
        clause = reword(part, written) if written else ""
        written = f"{written}{join}{clause}" if clause else ""
    return written


def _from_request(goal: str) -> str:
    found = re.fullmatch(r"(?:would you mind|do you mind) (.+)", goal)

    def imperative(part: str, _before: str) -> str:
        doing = _pattern(r"<GERUND>(?P<rest>.*)").fullmatch(part)
        return _forms()["gerund"][doing["gerund"]] + doing["rest"] if doing else ""

    return _clauses(found[1], imperative) if found else ""


def _from_passive(goal: str) -> str:
    def imperative(part: str, before: str) -> str:
        found = _pattern(
            r"(?:(?P<object>.+) (?:should|must|ought to|needs to|has to|have to) be )?<PARTICIPLE>(?P<rest>.*)"
        ).fullmatch(part)
        if not found or not (found["object"] or before):
            return ""
        verb = _forms()["participle"][found["participle"]]
        return _act(verb, found["object"] or _pronoun(before), found["rest"])

    return _clauses(goal, imperative) if re.search(r" (?:should|must|ought to|needs to) be ", goal) else ""


def _act(verb: str, thing: str, rest: str) -> str:
    """Return a clause: "pick up the cup", but "pick it up"."""
    stem, _, particle = verb.rpartition(" ")
    if thing in PRONOUNS and stem and particle in {"up", "down", "out", "on", "off", "over"}:
        return f"{stem} {thing} {particle}{rest}"
    return f"{verb} {thing}{rest}"


def _pronoun(before: str) -> str:
    """Return the pronoun for the object of the clauses before: them where its name is a plural."""
    found = _pattern(r"<VERB> (?P<object>.+?)(?: <PLACE>.*)?").fullmatch(before)
    return "them" if found and is_plural(found["object"]) else "it"


def _from_state(goal: str) -> str:
    found, wanted = _BY_THE_END.fullmatch(goal), _SHOULD_BE.fullmatch(goal)
    if wanted:
        return _act_for_state(f"{wanted['thing']} is {wanted['state']}")
    if not found:
        return ""
    parts = [_act_for_state(part) for part in re.split(" and (?=the |a |an )", found["state"])]
    return " and ".join(parts) if all(parts) else ""


def _act_for_state(state: str) -> str:
    """Return what must be done so that the object is in this state; empty where no verb is known to lead there."""
    held = re.fullmatch(r"the robot is holding (?P<thing>.+?)(?: taken (?P<where>.+))?", state)
    if held:
        return f"pick up {held['thing']}" + (f" {held['where']}" if held["where"] else "")
    done = _pattern(r"(?P<thing>.+?) (?:has|have) been <PARTICIPLE>(?P<rest>.*)").fullmatch(state)
    if done:
        return _act(_forms()["participle"][done["participle"]], done["thing"], done["rest"])
    for verb in (verb for verb in VERBS if VERBS[verb].state):
        for one, many in (("is", "are"), ("has", "have")):
            for form in (one, many):
                ending = " " + VERBS[verb].state.format(**{"is": form, "has": form})
                if state.endswith(ending) and _verbs()[verb] == verb:
                    return f"{verb} {state.removesuffix(ending)}"
    placed = re.fullmatch(r"(?P<thing>.+?) (?:is|are) (?P<where>.+)", state)
    if not placed:
        return ""
    thing, where = placed["thing"], placed["where"]
    if where in _MOVED:
        return f"move {thing} {_MOVED[where]}"
    if gone := re.fullmatch(r"no longer (?:in|on|at) (.+)", where):
        return f"remove {thing} from {gone[1]}"
    if where in ("upright", "upside down"):
        return f"turn {thing} {where}"
    if at := re.fullmatch(r"at (.+)", where):
        return f"move {thing} to {at[1]}"
    return f"put {thing} {where}" if re.match(_any_of(STATIC_PREPOSITIONS) + r"\b", where) else ""


def _from_cleft(goal: str) -> str:
    found = _pattern(r"it is (?P<thing>.+?) that you should (?P<acts>.+)").fullmatch(goal)
    return _with_object(found["thing"], found["acts"], r"<VERB>(?P<where> .+)?") if found else ""


def _from_object_first(goal: str) -> str:
    found = re.fullmatch(r"(?P<thing>[^,]+), (?P<acts>.+) you must", goal)
    return _with_object(found["thing"], found["acts"], r"(?:(?P<where><PLACE>.*) )?<VERB>") if found else ""


def _with_object(thing: str, acts: str, form: str) -> str:
    """Return acts that do not name their object with it, and with a pronoun from the second on."""

    def imperative(part: str, before: str) -> str:
        found = _pattern(form).fullmatch(part)
        where = f" {found['where'].strip()}" if found and found["where"] else ""
        pronoun = "them" if is_plural(thing) else "it"
        return _act(found["verb"], pronoun if before else thing, where) if found else ""

    return _clauses(acts, imperative)


def _from_place_first(goal: str) -> str:
    form = rf"(?P<before>.+(?:{_JOIN}))?(?P<where><PLACE>[^,]*), (?P<act><VERB> [^,]+)"
    found = _pattern(form).fullmatch(goal)
    return f"{found['before'] or ''}{found['act']} {found['where']}" if found else ""


# Words of one meaning.


def _with_numbers(text: str) -> str:
    """Return the text with numbers in digits, ordinals in words, and one spelling of words that have two."""
    ordinals = DIGITS.sub(lambda found: (found["suffix"] and words_of_number(found)) or found[0], text)
    written = re.sub(r"\b(\w+) \(\1\)", r"\1", ordinals)  # second (2nd)
    counted = SPELLED_NUMBER.sub(lambda found: found[0] if found["ordinal"] else digits_of(found), written)
    decimals = re.sub(r"(?<![\w.,])(\d+),(\d{1,2})(?![\w]|[.,]\d)", r"\1.\2", re.sub(r"\b(\d+) \(\1\)", r"\1", counted))
    american = {british: word for word, british in SPELLINGS.items() if word in ("gray", "color", "center")}
    return re.sub(rf"\b{_any_of(american)}\b", lambda found: american[found[0]], decimals)


@cache
def _nouns() -> dict[str, str]:
    return _one_of_each_class({noun: NOUNS[noun].synonyms for noun in NOUNS}, _OTHER_SENSE - {"tap"})


@cache
def _other_words() -> dict[str, str]:
    """Return adjectives and prepositions by their synonyms."""
    adjectives = {word: name for name, word in ADJECTIVE_SYNONYMS.items() if name not in ("large", "grey")}
    coloured = {f"{colour}-colored": colour for colour in COLOUR_CONTRASTS} | {"grey-coloured": "gray"}
    prepositions = {word: name for name, word in PREPOSITION_SYNONYMS.items() if name not in ("onto", "into")}
    return adjectives | coloured | prepositions | {"into": "in", "onto": "on", "upon": "on"}


def _with_synonyms(text: str) -> str:
    """Return the text with one word for words of one meaning: verbs where a clause begins, nouns elsewhere."""
    start = _pattern(rf"(?P<join>^|{_JOIN})<VERB>(?= )")
    verbs = start.sub(lambda found: found["join"] + _verbs().get(found["verb"], found["verb"]), text)
    changed = {name: head for name, head in _nouns().items() if name != head}
    noun = re.compile(rf"(?<=[a-z] ){_any_of(changed)}\b(?!-)(?! (?:the|a|an|it|them)\b)")
    nouns = noun.sub(lambda found: changed[found[0]], verbs)
    return re.sub(rf"(?<![\w-]){_any_of(_other_words())}(?![\w-])", lambda found: _other_words()[found[0]], nouns)
