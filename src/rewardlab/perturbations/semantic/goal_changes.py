"""Negated, extended, vague, or another task."""

from dataclasses import replace
from functools import partial

from numpy.random import Generator

from rewardlab.core.episode import Episode, Label
from rewardlab.core.errors import NotApplicable
from rewardlab.core.instructions.comparison import FUNCTION_WORDS, in_common, surely_differ
from rewardlab.core.instructions.parser import (
    Clause,
    Command,
    NounPhrase,
    PrepPhrase,
    gerund,
    parse,
    words_of,
    write_if_changed,
)
from rewardlab.perturbations.contract import (
    Episodes,
    PerturbedEpisode,
    expect_lower,
    is_known_success,
    on_episode,
    relabel_as_undone,
    require_known_success,
    with_unknown_label,
)

_SMALL_OBJECTS = ("a paper clip", "a coin", "a rubber band", "a postage stamp")
_BIG_STEPS = ("fill a bucket with sand", "hang a scarf on a hook", "set up a chess board", "wrap a present in paper")
_NONSENSE = (
    "glorp the wug under the snarf",
    "paint the silence with seven loud triangles",
    "unwonder the mimsy borogoves",
)
_changed_goal = partial(on_episode, "semantic", channel="instruction", label="changes", expect="relabel")


@_changed_goal(
    parameter="how it is negated",
    table=("explicit", "embedded", "double", "exception"),
    based_on="CheckList negation, NL-Aug negate_strengthen",
)
def negation(episode: Episode, style: str, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The goal is negated, so what reached it now fails and doing nothing succeeds; negated twice, it is the goal."""
    command = parse(episode.instruction)
    if style == "explicit" and " until " in command.text:
        raise NotApplicable("'do not ... until' asks to wait: an instruction without 'until' can be negated")
    doing = command.join([clause.with_verb_form(gerund(clause.verb)) for clause in command.clauses])
    texts = {
        "explicit": f"do not {command.text}",
        "embedded": f"be careful to avoid {doing}",
        "double": f"do not fail to {command.text}",
        "exception": f"you may do anything except {command.text}",
    }
    negated = replace(episode, instruction=command.write(texts[style]))
    if style == "double":
        return PerturbedEpisode(negated, "same")
    if is_known_success(episode.label):
        return PerturbedEpisode(replace(negated, label=Label(1, False)), "relabel")
    if episode.label.level == 1 and not episode.label.success:
        return PerturbedEpisode(replace(negated, label=Label(5, True)), "relabel")
    raise NotApplicable("it needs a clip of which the label says that nothing or all of the task was done")


@_changed_goal(
    parameter="small and big steps added",
    table=((1, 0), (2, 0), (0, 1), (0, 2)),
    based_on="RoboReward near misses",
    randomness="per_clip",
)
def added_requirement(
    episode: Episode, counts: tuple[int, int], rng: Generator, _dataset: Episodes
) -> PerturbedEpisode:
    """Something more is asked for that nobody did."""
    small, big = counts
    objects = _unsaid(_SMALL_OBJECTS, episode, rng)[:small]
    steps = _unsaid(_BIG_STEPS, episode, rng)[:big]
    body = episode.instruction.strip()
    bare = body.rstrip(".!")
    if not bare:
        raise NotApplicable("it needs an instruction to add to")
    more = f"then {' and '.join(steps)}" if steps else f"and leave {' and '.join(objects)} beside the robot"
    text = f"{bare}, {more}{body[len(bare) :]}"
    level = _NEAR_MISS.get(counts)
    if episode.label.level == 5 and is_known_success(episode.label) and level:
        return PerturbedEpisode(replace(episode, instruction=text, label=Label(level, False)), "relabel")
    return expect_lower(episode, text)


# The rubric: level 4 misses a single minor requirement, level 3 more than one requirement or a major one.
# Two big steps may be worth less than 3, so only the direction is known.
_NEAR_MISS = {(1, 0): 4, (2, 0): 3, (0, 1): 3}


def _unsaid(extras: tuple[str, ...], episode: Episode, rng: Generator) -> list[str]:
    """Return the extras in a drawn order, those that share a word with the instruction last."""
    said = words_of(episode.instruction) - FUNCTION_WORDS
    drawn = [extras[int(i)] for i in rng.permutation(len(extras))]
    return sorted(drawn, key=lambda extra: bool(said & words_of(extra)))


@_changed_goal(
    parameter="pool of other tasks",
    table=("same subset", "whole dataset", "other subset", "nonsense"),
    based_on="Robometer confusion matrix",
    randomness="per_clip",
    uses_dataset=True,
    version=2,
)
def task_swap(episode: Episode, pool: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The instruction is that of another task, of which the video shows nothing."""
    draw = float(rng.random())
    if pool == "nonsense":
        text = _NONSENSE[int(draw * len(_NONSENSE))]
        return with_unknown_label(replace(episode, instruction=text), "undefined")
    if pool == "same subset":
        require_known_success(episode)
    others = sorted({other.instruction for other in dataset if _may_swap_with(other, episode, pool)})
    start = int(draw * len(others))
    # Walking on from a drawn place asks only a few of many thousand episodes.
    chosen = next((text for text in others[start:] + others[:start] if surely_differ(text, episode.instruction)), None)
    if chosen is None:
        raise NotApplicable(
            f"no clearly different task in the {pool}: it needs one with other objects, known to the lexicon"
        )
    return relabel_as_undone(episode, chosen)


@on_episode(
    "semantic",
    channel="instruction",
    parameter="what both instructions have in common",
    table=("no object", "verb", "object", "verb and object"),
    based_on="contrast sets, Robometer confusion matrix",
    randomness="per_clip",
    label="changes",
    expect="lower",
    uses_dataset=True,
    version=2,
)
def instruction_swap(episode: Episode, common: str, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The instruction is another one of the same source, closer to its own at each severity."""
    require_known_success(episode)
    own = episode.instruction
    if common != "no object":
        parse(own)  # says what it cannot parse
    others = sorted({other.instruction for other in dataset if _may_swap_with(other, episode, "same subset")})
    drawn = (others[place] for place in rng.permutation(len(others)))
    chosen = next((text for text in drawn if in_common(own, text, common)), None)
    if chosen is None:
        raise NotApplicable(f"its source needs another instruction that has {common} in common with it")
    return expect_lower(episode, chosen)


def _may_swap_with(other: Episode, episode: Episode, pool: str) -> bool:
    """Tell whether the instruction of another episode may be asked of this one.

    One video may come with several instructions, and a failure may have done another task of its own scene.
    """
    if other.clip.source.digest == episode.clip.source.digest:
        return False
    if episode.provenance.task and other.provenance.task == episode.provenance.task:
        return False
    near = other.provenance.subset == episode.provenance.subset
    if pool == "same subset":
        return near
    return not near or (pool == "whole dataset" and is_known_success(episode.label))


# A semantic perturbation that leaves out what tells objects and locations apart.


@on_episode(
    "semantic",
    channel="instruction",
    parameter="what is left unsaid",
    table=("adjectives", "adjectives and places", "names of things", "everything"),
    based_on="CheckList, COLOSSEUM distractors",
    label="unknown",
    expect="undefined",
    version=2,
)
def ambiguous_reference(episode: Episode, unsaid: str, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The instruction no longer says which object or where; the answer should become less sure."""
    text = "do it" if unsaid == "everything" else _say_less(parse(episode.instruction), unsaid)
    if text.lower() == episode.instruction.strip().lower():
        raise NotApplicable(f"it needs something to leave out, and {text!r} already leaves everything open")
    return with_unknown_label(replace(episode, instruction=text), "undefined")


def _say_less(command: Command, unsaid: str) -> str:
    plain = command.map_noun_phrases(lambda noun_phrase: replace(noun_phrase, adjectives=()))
    if unsaid == "adjectives":
        return write_if_changed(command, plain.text, "it needs an adjective that can be left out")
    if unsaid == "adjectives and places":
        bare = plain.map_clauses(lambda clause: Clause(clause.verb, replace(clause.object, modifiers=())))
        return write_if_changed(command, bare.text, "it needs a location that can be left out", weaker=plain.text)
    it = NounPhrase("", (), "it")
    vague = command.map_clauses(lambda clause: Clause(clause.verb, it, _vague_phrases(clause.prep_phrases)))
    return write_if_changed(command, vague.text, "it needs the name of an object")


def _vague_phrases(phrases: tuple[PrepPhrase, ...]) -> tuple[PrepPhrase, ...]:
    words = {"from": "from there", "out of": "from there", "off": "from there", "with": "with that"}
    there = "there" if len(phrases) == 1 else "to there"
    return tuple(PrepPhrase(words.get(phrase.preposition, there)) if phrase.object else phrase for phrase in phrases)
