"""From datasets to examples: counterfactual, clipped, perturbed, captioned.

A label is kept only where the rule of a perturbation states it: a success under an instruction that it did not follow,
a success cut off where per-frame progress says how far it had come.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.seeding import digest, pick, rng_for
from rewardlab.core.terminal import counted
from rewardlab.core.trial import SEVERITIES
from rewardlab.data import open_dataset
from rewardlab.data.reading import draw_episodes
from rewardlab.data.roboreward import captioned_videos
from rewardlab.data.sources import IF_DEMONSTRATIONS
from rewardlab.data.task_split import split_by_task, task_and_video
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.perturbations import PERTURBATIONS
from rewardlab.perturbations.contract import Perturbation
from rewardlab.training.holdout import draw_split
from rewardlab.training.vlm import (
    CAPTIONED,
    CLIPPED,
    COUNTERFACTUAL,
    MIXTURES,
    ORIGINAL,
    PERTURBED,
    REPEATED,
    VlmSettings,
)

# From an example and the number of an epoch to the episode with the frames that the model is shown.
ShowFrames = Callable[["Example", int], Episode]


@dataclass(frozen=True, eq=False)
class Example:
    """An episode, not sampled yet, under an instruction; `level` is what it deserves, `source` why that is known.

    Where there is a caption, it is the answer, to another question, and the level is not known.
    """

    episode: Episode
    level: int
    source: str
    caption: str = ""

    @property
    def answer(self) -> int | str:
        return self.caption or self.level

    @property
    def clip_key(self) -> str:
        """Identify the stream of frames: examples that differ in their words alone share it."""
        clip = self.episode.clip
        return digest(clip.source.digest, clip.order.tobytes(), clip.positions.tobytes(), clip.fps)


def show_as_is(example: Example, _epoch: int) -> Episode:
    """Return the episode of an example whose frames are sampled already."""
    return example.episode


def clips_of(examples: Sequence[Example]) -> list[list[int]]:
    """Return the places of the examples that share a clip, clip by clip in the order of their first."""
    groups: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        groups.setdefault(example.clip_key, []).append(place)
    return list(groups.values())


_COUNTERFACTUALS = ("task_swap", "relation_flip", "negation", "added_requirement")
_MADE_BY = {"counterfactual": COUNTERFACTUAL, "clip": CLIPPED}  # stages of `data augment` that make negatives
_PERTURBED_TRIES = 8  # perturbations drawn for a copy until one applies; else it stays as it is
_POOL = 500  # instructions that a clip may be shown under instead of its own
_SUCCESS = LEVELS[-1]


@dataclass(frozen=True)
class EpisodeSplit:
    """Episodes to train on and to validate by; `rule` says how they were parted, `notes` what was left out."""

    train: tuple[Episode, ...]
    validation: tuple[Episode, ...]
    rule: str
    notes: tuple[str, ...]
    captions: Mapping[str, str] = field(default_factory=dict)  # by the clip, where these are learned


def split_episodes(settings: VlmSettings) -> EpisodeSplit:
    """Read the data, and hold out whole tasks unless other data is named for validation."""
    notes: list[str] = []
    captions: dict[str, str] = {}

    def read(name: str) -> tuple[Episode, ...]:
        if not settings.captions:
            return _read(name, settings, notes)
        described = dict(captioned_videos(Path(name)))
        if not described:
            raise DataError(f"no episode of {name} with a caption can be used; run `rewardlab data check {name}`")
        episodes = draw_episodes(tuple(described), settings.limit, 0)
        captions.update({episode.clip.source.digest: described[episode] for episode in episodes})
        return episodes

    episodes = tuple(episode for name in settings.data for episode in read(name))
    if settings.validation:
        others = read(settings.validation)
        return EpisodeSplit(episodes, others, f"all of {settings.validation}", tuple(notes), captions)
    rule = ""

    def draw(tasks: dict[str, int]) -> dict[str, bool]:
        nonlocal rule
        if len(tasks) < 2:
            raise DataError(
                f"all {len(episodes)} labelled episodes are of one task, {next(iter(tasks))!r}, or of tasks that share "
                "videos, so that none can be held out; name data to validate by with --validation"
            )
        count = min(len(tasks) - 1, max(1, round(settings.holdout * len(tasks))))
        rule = f"{count} of {len(tasks)} tasks, held out whole"
        chosen = set(rng_for(0, "validation tasks").choice(list(tasks), count, replace=False).tolist())
        return {task: task in chosen for task in tasks}

    held = split_by_task([task_and_video(episode) for episode in episodes], draw)
    train, validation = (tuple(e for e, out in zip(episodes, held, strict=True) if out == is_out) for is_out in (0, 1))
    return EpisodeSplit(train, validation, rule, tuple(notes), captions)


def _read(name: str, settings: VlmSettings, notes: list[str]) -> tuple[Episode, ...]:
    """Return the episodes of a dataset whose level is known, up to a number of them, and note what is left out."""
    contents = open_dataset(name, demonstrations=settings.demonstrations)
    labelled = [
        replace(episode, label=replace(episode.label, level=_SUCCESS))
        if episode.label.level is None and episode.label.success
        else episode
        for episode in draw_episodes(contents.episodes, settings.limit, 0)
    ]
    known = tuple(episode for episode in labelled if episode.label.level is not None)
    if contents.problems:
        left = counted(len(contents.problems), "problem")
        notes.append(f"{name}: {left}, left out; `rewardlab data check {name}` lists them")
    if len(known) < len(labelled):
        notes.append(f"{name}: {len(labelled) - len(known)} episodes have no level from 1 to 5 and are left out")
    if not known:
        raise DataError(
            f"no episode of {name} has a level from 1 to 5, nor is one a success; there is nothing to learn; "
            f"{IF_DEMONSTRATIONS}"
        )
    return known


def captioned_examples(episodes: Sequence[Episode], captions: Mapping[str, str]) -> tuple[Example, ...]:
    """Return the examples of episodes whose captions are learned."""
    return tuple(Example(each, 0, CAPTIONED, captions[each.clip.source.digest]) for each in episodes)


def mixture_examples(episodes: Sequence[Episode], mixture: str, seed: int) -> tuple[Example, ...]:
    """Return the examples of a mixture, episode by episode, copies after the rest."""
    parts, found = MIXTURES[mixture], list[Example]()
    episodes = [episode for episode in episodes if _MADE_BY.get(episode.provenance.stage, ORIGINAL) in parts]
    if not episodes:
        raise DataError(f"mixture {mixture} holds no example: `data augment` made every row; add the successes it had")
    # Instructions that others may be shown under, each once, a drawn few of very many.
    each = list({episode.instruction: episode for episode in episodes}.values())
    drawn = rng_for(seed, "instruction pool").permutation(len(each))[:_POOL]
    pool = tuple(each[place] for place in sorted(drawn))
    for episode in episodes:
        level = episode.label.level
        assert level is not None
        found.append(Example(episode, level, _MADE_BY.get(episode.provenance.stage, ORIGINAL)))
        if COUNTERFACTUAL in parts:
            found += _counterfactuals(episode, pool, seed)
        if CLIPPED in parts and level == _SUCCESS and episode.label.progress is not None:
            # Cut off early, at each of four places where its progress says that it was no success yet.
            cut = _relabelled(episode, ("truncate_end",), (), seed)
            found += [Example(e, e.label.level, CLIPPED) for e in cut if e.label.level not in (None, _SUCCESS)]
    copy = next((part for part in (PERTURBED, REPEATED) if part in parts), None)
    return tuple(found + [replace(example, source=copy) for example in found if copy])


def _counterfactuals(episode: Episode, pool: Sequence[Episode], seed: int) -> list[Example]:
    """Return a success under other instructions, one for each level below success that a rule can state."""
    ladder: dict[int, list[Episode]] = {}
    if episode.label.level == _SUCCESS:
        for changed in _relabelled(episode, _COUNTERFACTUALS, pool, seed):
            ladder.setdefault(changed.label.level or _SUCCESS, []).append(changed)
    rng = rng_for(seed, "counterfactual", episode.clip.source.digest, episode.instruction)
    return [Example(pick(ladder[level], rng), level, COUNTERFACTUAL) for level in sorted(ladder) if level < _SUCCESS]


def _relabelled(episode: Episode, names: Sequence[str], pool: Sequence[Episode], seed: int) -> Iterator[Episode]:
    """Yield the episode under each perturbation and severity whose rule states another label."""
    for name in names:
        for severity in SEVERITIES[1:]:
            try:
                changed = PERTURBATIONS[name](episode, severity, seed, pool)
            except NotApplicable:
                continue
            if changed.expect == "relabel" and changed.episode.label.level is not None:
                yield changed.episode


@dataclass(frozen=True)
class FrameSampling:
    """Shows the frames that scoring would show; perturbed copies are drawn anew in every epoch."""

    frames: str
    seed: int

    def __call__(self, example: Example, epoch: int) -> Episode:
        """Return the episode as the model is shown it, decoded when its frames are read."""
        policy = frame_policy(self.frames)
        if example.source != PERTURBED:
            return sample_frames(example.episode, policy)
        key = digest(example.clip_key, example.episode.instruction)
        rng = rng_for(self.seed, "perturbed copy", epoch, key)
        for _ in range(_PERTURBED_TRIES):
            perturbation, severity = pick(training_perturbations(), rng), pick(SEVERITIES[1:], rng)
            own_seed = int(rng.integers(2**31))
            try:
                if perturbation.stage == "sampled":
                    return perturbation(sample_frames(example.episode, policy), severity, own_seed).episode
                return sample_frames(perturbation(example.episode, severity, own_seed).episode, policy)
            except NotApplicable:
                continue
        return sample_frames(example.episode, policy)


@cache
def training_perturbations() -> tuple[Perturbation, ...]:
    """Return the perturbations of the training split that keep the label and need no other episode."""
    every = (PERTURBATIONS[name] for name in draw_split().train_perturbations)
    return tuple(p for p in every if p.label in ("keeps", "keeps_if") and not p.uses_dataset)


def validation_examples(split: EpisodeSplit) -> tuple[Example, ...]:
    """Return the validation examples of every mixture: held-out episodes with all negatives, never perturbed."""
    return mixture_examples(split.validation, "full", seed=0)
