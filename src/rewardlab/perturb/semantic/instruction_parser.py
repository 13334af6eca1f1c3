"""A small parser of robot imperatives: verb, thing, and the places it goes to or comes from."""

import re
from collections.abc import Sequence
from dataclasses import replace

from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.semantic.lexicon import KNOWN_WORDS, NOUNS, VERBS
from rewardlab.perturb.semantic.sentence import PRONOUNS, Clause, Command, Place, Thing

ARTICLES = {"the", "a", "an", "this", "that", "some", "all", "both", "each", "every", "my", "your", "its", "their"}
DIRECTIONS = (
    "from left to right", "from right to left", "from top to bottom", "from bottom to top", "from front to back",
    "from the left to the right", "from the right to the left", "to the left", "to the right", "from above",
    "from below", "upside down", "counterclockwise", "clockwise", "upright", "upwards", "downwards", "forward",
    "backward", "in half", "up", "down", "left", "right",
)  # fmt: skip
# Relations that say where a thing is; the others say where it goes, where it comes from, or with what.
STATIC = {
    "in", "on", "at", "inside", "outside", "under", "underneath", "below", "above", "over", "behind", "beside", "near",
    "next to", "on top of", "in front of", "to the left of", "to the right of",
}  # fmt: skip
_MOVING = {
    *("into", "onto", "to", "towards", "toward", "from", "out of", "off", "with", "using", "through"),
    *("around", "against", "across", "along"),
}
_RELATIONS = (*sorted(STATIC | _MOVING | {"of"}, key=lambda name: -name.count(" ")),)
_DESTINATIONS = {"into", "onto", "to", "towards", "toward", *DIRECTIONS}
_JOINTS = ((",", "and", "then"), (",", "then"), (",", "and"), ("and", "then"), ("and",), ("then",), (",",))
_NO_PART_OF_A_NAME = {
    *("and", "or", "then", "that", "which", "who", "is", "are", "be", "has", "not", "never", "without", "while"),
    *("until", "if", "when", "by", "for", "as", "so", "but", "except", "again", "twice", "once", "please", "between"),
    *("do", "don't", "very", "there", "here", "you", "i", "he", "she", "they", "we", "than", "also", "before"),
    *("after", "away", "together", "apart", "back", ",", *PRONOUNS),
}
_SMALL = KNOWN_WORDS | ARTICLES | PRONOUNS | {word for name in (*_RELATIONS, *DIRECTIONS) for word in name.split()}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9'’-]*")
_LONGEST_NAME = 5
_LONGEST_COMMAND = 60


def parse(text: str) -> Command:
    """Read an imperative; drops the cell where the sentence is of another build."""
    body = " ".join(text.split())
    bare = body.rstrip(".!")
    words = re.findall(r"[^\s,]+|,", bare)
    if len(words) > _LONGEST_COMMAND:
        raise NotApplicable(f"cannot parse {_short(text)}: it has {len(words)} words, more than {_LONGEST_COMMAND}")
    odd = next((word for word in words if word != "," and not _PLAIN.fullmatch(word)), None)
    if odd or not words:
        raise NotApplicable(f"cannot parse {_short(text)}: {_short(odd or '')} is not a plain word")
    clauses, joints = _read_clauses([words[0].lower(), *map(_small, words[1:])], text)
    return Command(tuple(clauses), tuple(joints), body[0].isupper(), body[len(bare) :])


def _small(word: str) -> str:
    """Return a word that we know in small letters; names keep their capitals."""
    return word.lower() if word.lower() in _SMALL else word


def reworded(command: Command, text: str, problem: str, beyond: str = "") -> str:
    """Return the new sentence; drops the cell where it says no more than the old one, or than a weaker change."""
    if text in (command.text, beyond):
        raise NotApplicable(f"cannot be reworded: {problem}")
    return command.write(text)


def _read_clauses(words: list[str], text: str) -> tuple[list[Clause], list[str]]:
    clauses: list[Clause] = []
    joints: list[str] = []
    while True:
        verb = _match(words, tuple(VERBS))
        if not verb:
            raise NotApplicable(f"cannot parse {_short(text)}: it does not start with a verb of the robot lexicon")
        words = words[verb.count(" ") + 1 :]
        end, joint = _find_joint(words)
        clauses.append(_read_clause(verb, words[:end]))
        if not joint:
            return clauses, joints
        joints.append(" ".join(("", *joint, "")).replace(" ,", ","))
        words = words[end + len(joint) :]


def _find_joint(words: list[str]) -> tuple[int, tuple[str, ...]]:
    for place in range(1, len(words)):
        for joint in _JOINTS:
            end = place + len(joint)
            if tuple(word.lower() for word in words[place:end]) == joint and _match(words[end:], tuple(VERBS)):
                return place, joint
    return len(words), ()


def _match(words: list[str], names: Sequence[str]) -> str:
    """Return the longest of these names that the words start with, or nothing."""
    start = [word.lower() for word in words[:6]]
    found = [name for name in names if start[: name.count(" ") + 1] == name.split(" ")]
    return max(found, key=len, default="")


def _read_clause(verb: str, words: list[str]) -> Clause:
    pieces = _split_at_relations(words)
    named = [(relation, _read_thing(name) if name else None) for relation, name in pieces]
    thing = named[0][1]
    if thing is None:
        raise NotApplicable(f"cannot parse: {verb!r} has no object")
    clause = Clause(verb, thing)
    # A verb that puts a thing somewhere takes one static place as its destination; other static places describe.
    settled = VERBS[verb].result != "somewhere" or any(relation in _DESTINATIONS for relation, _ in named)
    for relation, name in named[1:]:
        describes = relation == "of" or (settled and relation in STATIC)
        clause = _describe(clause, Place(relation, name)) if describes else _extend(clause, Place(relation, name))
        settled = settled or relation in STATIC
    return clause


def _extend(clause: Clause, place: Place) -> Clause:
    return replace(clause, places=(*clause.places, place))


def _describe(clause: Clause, place: Place) -> Clause:
    """Attach a place to the thing named just before it."""
    if not clause.places:
        return replace(clause, thing=_with_tail(clause.thing, place))
    last = clause.places[-1]
    if last.thing is None:
        raise NotApplicable(f"cannot parse: {place.text!r} describes no thing")
    return replace(clause, places=(*clause.places[:-1], Place(last.relation, _with_tail(last.thing, place))))


def _with_tail(thing: Thing, place: Place) -> Thing:
    return replace(thing, tail=(*thing.tail, place))


def _split_at_relations(words: list[str]) -> list[tuple[str, list[str]]]:
    """Cut into ("", object words), (relation, words), ..."""
    pieces: list[tuple[str, list[str]]] = [("", [])]
    place = 0
    while place < len(words):
        relation = _relation_at(words, place)
        if relation:
            pieces.append((relation, []))
            place += relation.count(" ") + 1
        elif pieces[-1][0] in DIRECTIONS:
            raise NotApplicable(f"cannot parse: {_short(words[place])} after {pieces[-1][0]!r}")
        else:
            pieces[-1][1].append(words[place])
            place += 1
    return pieces


def _relation_at(words: list[str], place: int) -> str:
    direction = _match(words[place:], DIRECTIONS)
    relation = _match(words[place:], _RELATIONS)
    if direction and len(direction) > len(relation):
        after = place + direction.count(" ") + 1
        ends = after == len(words) or _match(words[after:], (*_RELATIONS, *DIRECTIONS))
        if place > 0 and words[place - 1].lower() not in ARTICLES | set(_RELATIONS) and ends:
            return direction
    return relation


def _read_thing(words: list[str]) -> Thing:
    article = words[0].lower() if words[0].lower() in ARTICLES else ""
    rest = words[1:] if article else words
    lowered = [word.lower() for word in rest]
    if len(rest) == 1 and lowered[0] in PRONOUNS:
        return Thing("", (), lowered[0])
    bad = any(word in _NO_PART_OF_A_NAME | ARTICLES or _is_adverb(word) for word in lowered)
    measured = any(word[0].isdigit() for word in rest[1:])
    if not rest or bad or measured or len(rest) > _LONGEST_NAME:
        raise NotApplicable(f"cannot parse: {_short(' '.join(words))} does not name one thing")
    size = next((n for n in (3, 2) if " ".join(lowered[-n:]) in NOUNS), 1)
    return Thing(article, tuple(rest[:-size]), " ".join(rest[-size:]))


def _is_adverb(word: str) -> bool:
    return word.endswith("ly") and word not in {"jelly", "fly", "butterfly", "curly", "smelly", "belly"}


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
