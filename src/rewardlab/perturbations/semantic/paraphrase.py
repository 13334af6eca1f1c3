"""The same goal in other words: synonyms, sentence forms, goal state, another language, word order."""

from dataclasses import replace
from functools import partial

from numpy.random import Generator

from rewardlab.core.episode import Episode
from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.lexicon import (
    ADJECTIVE_SYNONYMS,
    BROAD_HYPERNYMS,
    DESCRIPTIVE_ADJECTIVES,
    NOUNS,
    PREPOSITION_SYNONYMS,
    VERBS,
)
from rewardlab.core.instructions.parser import (
    DIRECTIONS,
    PRONOUNS,
    STATIC_PREPOSITIONS,
    Clause,
    Command,
    NounPhrase,
    PrepPhrase,
    definite,
    gerund,
    is_plural,
    locative_of,
    map_clause_noun_phrases,
    parse,
    participle,
    write_if_changed,
)
from rewardlab.core.instructions.translation import translate
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, on_episode, on_instruction, with_unknown_label

_MOVED = {
    "to the left": "further to the left than before",
    "to the right": "further to the right than before",
    "left": "further to the left than before",
    "right": "further to the right than before",
    "from left to right": "on the right instead of on the left",
    "from right to left": "on the left instead of on the right",
    "from the left to the right": "on the right instead of on the left",
    "from the right to the left": "on the left instead of on the right",
}
_POSES = {"upright", "upside down"}
_SIDES = {"left", "right", "side", "end", "corner", "front", "back", "top", "middle", "center"}
_SOURCES = {"from", "out of", "off"}


def describe_goal(command: Command) -> str:
    """Return the end state that a command asks for: "put the pear in the bowl" gives "the pear is in the bowl"."""
    clauses = command.clauses
    # Picking up is only the way to the second clause: what is held is then let go.
    first, last = clauses[0], clauses[-1]
    fetched = VERBS[first.verb].result == "held" and last.object.noun in PRONOUNS
    if len(clauses) == 2 and fetched and all(phrase.preposition in _SOURCES for phrase in first.prep_phrases):
        return _state(replace(last, object=first.object))
    return " and ".join(_state(clause) for clause in clauses)


def _state(clause: Clause) -> str:
    noun_phrase = definite(clause.object)
    is_ = "are" if is_plural(noun_phrase.noun) else "is"
    has = "have" if is_plural(noun_phrase.noun) else "has"
    rule = VERBS[clause.verb]
    last = clause.prep_phrases[-1] if clause.prep_phrases else None
    if rule.state and not last:
        return f"{noun_phrase.text} {rule.state.format(**{'is': is_, 'has': has})}"
    if rule.result == "held" and all(phrase.preposition in _SOURCES for phrase in clause.prep_phrases):
        return f"the robot is holding {noun_phrase.text}" + (f" taken {_where(clause)}" if last else "")
    whole = all(phrase.object for phrase in clause.prep_phrases[:-1])  # nothing like "slightly" is lost
    end = _final_location(clause, last) if last and whole else ""
    if end:
        return f"{noun_phrase.text} {is_} {end}"
    return " ".join(filter(None, [noun_phrase.text, has, "been", participle(clause.verb), _where(clause)]))


def _where(clause: Clause) -> str:
    phrases = (replace(p, object=definite(p.object)) if p.object else p for p in clause.prep_phrases)
    return " ".join(phrase.text for phrase in phrases)


def _final_location(clause: Clause, last: PrepPhrase) -> str:
    """Return where the object is at the end, or nothing where the verb leaves no trace in space."""
    result, preposition = VERBS[clause.verb].result, last.preposition
    if preposition in _POSES:
        return preposition
    if last.object is None:
        return _MOVED.get(preposition, "") if result == "somewhere" else ""
    name = definite(last.object).text
    if result == "gone" and preposition in _SOURCES:
        return f"no longer {locative_of(last.object)} {name}"
    if result == "given" and preposition == "to":
        return f"{'in' if locative_of(last.object) == 'in' else 'with'} {name}"
    if result != "somewhere":
        return ""
    if preposition == "to":
        return f"{locative_of(last.object)} {name}"
    inner = {"into": "in", "onto": "on"}.get(preposition, preposition)
    return f"{inner} {name}" if inner in STATIC_PREPOSITIONS else ""


_reworded = partial(on_instruction, "semantic", randomness="per_clip")


@_reworded(
    parameter="what is renamed",
    table=("verb", "verb and object", "all content words", "verb, and things by their kind"),
    based_on="EDA, CheckList, closed robot lexicon",
    label="keeps_if",
    version=2,
)
def synonym(text: str, what: str, rng: Generator) -> str:
    """Words are replaced by synonyms, at last objects by the kind they belong to."""
    command, draw = parse(text), float(rng.random())
    verbs = command.map_clauses(lambda clause: replace(clause, verb=_other_verb(clause.verb, draw)))
    if what == "verb":
        return write_if_changed(command, verbs.text, "one of its verbs needs a synonym")
    if what == "verb and object":
        renamed = verbs.map_clauses(lambda clause: replace(clause, object=_other_noun(clause.object, draw)))
        return write_if_changed(command, renamed.text, "its object needs a synonym", weaker=verbs.text)
    if what == "all content words":
        rename = partial(
            map_clause_noun_phrases, change=partial(_other_words, draw=draw), preposition=_other_preposition
        )
        renamed = verbs.map_clauses(rename)
        return write_if_changed(command, renamed.text, "a further word needs a synonym", weaker=verbs.text)
    return write_if_changed(command, _by_hypernym(verbs).text, "an object needs a known kind", weaker=verbs.text)


def _pick(options: tuple[str, ...], draw: float, otherwise: str) -> str:
    return options[int(draw * len(options))] if options else otherwise


def _other_verb(verb: str, draw: float) -> str:
    return _pick(VERBS[verb].synonyms, draw, verb)


def _other_noun(noun_phrase: NounPhrase, draw: float) -> NounPhrase:
    known = NOUNS.get(noun_phrase.noun) if _is_described(noun_phrase) else None
    return replace(noun_phrase, noun=_pick(known.synonyms, draw, noun_phrase.noun)) if known else noun_phrase


def _is_described(noun_phrase: NounPhrase) -> bool:
    """Tell whether the words before a noun describe it; else they may be a part of its name, as in "mug cup"."""
    words = {word.lower() for adjective in noun_phrase.adjectives for word in adjective.split()}
    return words - {"and"} <= DESCRIPTIVE_ADJECTIVES


def _other_words(noun_phrase: NounPhrase, draw: float) -> NounPhrase:
    adjectives = tuple(ADJECTIVE_SYNONYMS.get(word, word) for word in noun_phrase.adjectives)
    return replace(_other_noun(noun_phrase, draw), adjectives=adjectives)


def _other_preposition(phrase: PrepPhrase) -> str:
    if phrase.object and phrase.object.noun in _SIDES:
        return phrase.preposition
    # Something "in the plate" lies on it, so it is not inside.
    if phrase.preposition in {"in", "into"} and phrase.object and locative_of(phrase.object) != "in":
        return phrase.preposition
    return PREPOSITION_SYNONYMS.get(phrase.preposition, phrase.preposition) if phrase.object else phrase.preposition


def _by_hypernym(command: Command) -> Command:
    named: list[tuple[str, tuple[str, ...]]] = []

    def rename(noun_phrase: NounPhrase) -> NounPhrase:
        known = NOUNS.get(noun_phrase.noun) if _is_described(noun_phrase) else None
        renamed = replace(noun_phrase, noun=known.hypernym) if known and known.hypernym else noun_phrase
        if renamed.noun not in PRONOUNS:
            named.append((renamed.noun, renamed.adjectives))
        return renamed

    renamed_command = command.map_noun_phrases(rename)
    for noun, adjectives in named:
        twins = [others for name, others in named if name == noun]
        shared = len(twins) > 1 or noun in BROAD_HYPERNYMS
        if shared and (not adjectives or twins.count(adjectives) > 1):
            raise NotApplicable(f"{noun!r} would name more than one object: an adjective is needed that tells it apart")
    return renamed_command


@_reworded(
    parameter="how the goal is told",
    table=("other words", "passive", "indirect request", "goal state"),
    based_on="LIBERO-PRO, LIBERO-plus",
    version=2,
)
def paraphrase(text: str, style: str, rng: Generator) -> str:
    """The goal is worded differently: other words, passive, an indirect request, the state to be reached."""
    command, draw = parse(text), float(rng.random())
    if style == "other words":
        other = command.map_clauses(lambda clause: _reword(clause, draw))
        return write_if_changed(command, other.text, "its verb or its preposition needs a synonym")
    if style == "passive":
        return command.write(_passive(command, _pick(("should be", "must be", "ought to be"), draw, "")))
    if style == "indirect request":
        return _request(command, draw)
    opening = _pick(("by the end, {}", "make it so that {}", "the goal is that {}"), draw, "")
    return command.write(opening.format(describe_goal(command)))


def _reword(clause: Clause, draw: float) -> Clause:
    kept = map_clause_noun_phrases(clause, lambda noun_phrase: noun_phrase, _other_preposition)
    # The object keeps its own description; only where it goes is reworded.
    return replace(clause, verb=_other_verb(clause.verb, draw), prep_phrases=kept.prep_phrases)


def _passive(command: Command, must: str) -> str:
    first, *others = command.clauses
    parts = [f"{definite(first.object).text} {must} {participle(first.verb)}{first.where}"]
    for clause in others:
        subject = "" if clause.object.noun in PRONOUNS else f"{definite(clause.object).text} {must} "
        parts.append(f"{subject}{participle(clause.verb)}{clause.where}")
    return command.join(parts)


def _request(command: Command, draw: float) -> str:
    doing = command.join([clause.with_verb_form(gerund(clause.verb)) for clause in command.clauses])
    asked = _pick(
        (f"could you {command.text}?", f"would you mind {doing}?", f"I would like you to {command.text}"), draw, ""
    )
    return replace(command, ending="" if asked.endswith("?") else command.ending).write(asked)


@_reworded(
    parameter="languages to choose from",
    table=(("es", "de"), ("zh", "ja"), ("en+es", "en+de"), ("sw",)),
    based_on="NL-Aug mixed_language",
    version=2,
)
def language(text: str, languages: tuple[str, ...], rng: Generator) -> str:
    """The instruction is given in another language, or with the nouns in another one."""
    command, draw = parse(text), float(rng.random())
    written = {code: translate(command, code) for code in languages}
    return written[languages[int(draw * len(languages))]]


# Semantic perturbations of the order of words and clauses.


@on_episode(
    "semantic",
    channel="instruction",
    parameter="order of the words",
    table=("place first", "cleft", "object first", "shuffled"),
    based_on="NL-Aug yoda and shuffle",
    randomness="per_clip",
    version=2,
)
def word_order(episode: Episode, order: str, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The same words come in another order; shuffled words need not mean the same any more."""
    if order == "shuffled":
        shuffled = replace(episode, instruction=_shuffle(episode.instruction, rng))
        return with_unknown_label(shuffled, "undefined")
    command = parse(episode.instruction)
    text = _place_first(command) if order == "place first" else _object_first(command, cleft=order == "cleft")
    return PerturbedEpisode(replace(episode, instruction=command.write(text)), "same")


def _shuffle(text: str, rng: Generator) -> str:
    words = text.split()
    if len({word.lower() for word in words}) < 3:
        raise NotApplicable("at least three different words are needed to shuffle")
    for _ in range(8):
        shuffled = [words[int(i)] for i in rng.permutation(len(words))]
        if shuffled != words:
            return " ".join(shuffled)
    return " ".join(words[1:] + words[:1])


def _place_first(command: Command) -> str:
    *before, last = command.clauses
    if not last.prep_phrases or any(map(_is_manner, last.prep_phrases)):
        raise NotApplicable("it needs a location or a direction that can come first")
    parts = [clause.text for clause in before]
    return command.join([*parts, f"{last.where.strip()}, {replace(last, prep_phrases=()).text}"])


def _object_first(command: Command, *, cleft: bool) -> str:
    if any(clause.object.noun not in PRONOUNS for clause in command.clauses[1:]):
        raise NotApplicable("it needs a single object, which can then come first")
    first = definite(command.clauses[0].object).text
    if cleft:
        return f"it is {first} that you should {command.join([f'{c.verb}{c.where}' for c in command.clauses])}"
    return f"{first}, {command.join([_verb_last(clause) for clause in command.clauses])} you must"


def _verb_last(clause: Clause) -> str:
    where = [phrase.text for phrase in clause.prep_phrases if not _is_manner(phrase)]
    manner = [phrase.text for phrase in clause.prep_phrases if _is_manner(phrase)]
    return " ".join([*where, clause.verb, *manner])


def _is_manner(phrase: PrepPhrase) -> bool:
    """Tell whether a phrase says how something is done, and not where: "slightly", "open", "until it is closed"."""
    where_or_why = phrase.preposition in DIRECTIONS or phrase.preposition.startswith("to ")
    return phrase.object is None and not where_or_why and not phrase.preposition[0].isdigit()
