"""What is trained on beside Meta-World (tabletop rollouts, real demonstrations, nonsense), and the batch of a step."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, show_only
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.data import open_dataset
from rewardlab.evaluation.engines.ordered_map import map_items
from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.inference import CLIP_FRAMES, load_word_pieces, resize_frames
from rewardlab.perturbations.domain.mirror import mirrored_words
from rewardlab.training.pocket import NOT_DONE, PocketSettings, Training
from rewardlab.training.pocket.nonsense import TRAINED_KINDS, nonsense_clip, random_letters
from rewardlab.training.pocket.rendering import Floats, Ints, RolloutTable, levels_of, new_pixels
from rewardlab.training.pocket.rollouts import draw_by_share
from rewardlab.training.pocket.sampling import SampledClip, between, sample_clip
from rewardlab.worlds.metaworld.instructions import CAPTION_WORDS
from rewardlab.worlds.metaworld.tasks import FOLDS
from rewardlab.worlds.tabletop.catalog import EVERYTHING, seen_vocabulary, unseen_vocabulary
from rewardlab.worlds.tabletop.recording import TrainingClip, training_clips

# How many of the videos of a step are of each source.
SHARES = {"metaworld": 0.55, "tabletop": 0.33, "demonstrations": 0.08, "nonsense": 0.04}
_TEXTS = 3  # of a tabletop rollout or demonstration; others have one, nonsense has two
_STILL = 0.04  # fraction of clips in which nothing moves, so that nothing gets done
_MIRRORED = 0.5  # fraction of the clips of these sources that are shown in a mirror
_MIRRORED_SOURCES = ("tabletop", "demonstrations")

# Tabletop: rollouts with the progress of twelve instructions each.

_SHARD = 25  # rollouts that one worker makes at a time
_OTHERS = 11  # instructions beside a rollout's own
_CHECKED_SEEDS = 1 << 40  # seeds from here on are for validation
_MOST_TRIES = 400  # rollouts drawn until one is of kinds or verbs that were never seen


@dataclass(frozen=True, eq=False)
class TabletopRollout:
    """The instructions of a rollout, its own first, and their progress; `related` says which are hard to tell apart."""

    texts: tuple[str, ...]
    progress: Floats  # (texts, frames)
    places: Floats  # (texts, frames, 2): of the thing that is asked for, in the picture from -1 to 1
    hand: Floats  # (frames, 2)
    related: NDArray[np.bool_]  # (texts,): about the same thing, or by the same verb
    unseen: str = ""  # what the fold never saw in it: kind, verb or both


@dataclass(frozen=True, eq=False)
class Tabletop:
    """The rollouts of a training; the last ones are for validation."""

    rollouts: tuple[TabletopRollout, ...]
    training: Ints
    checks: Ints


def make_tabletop(settings: PocketSettings, fold: int | None, path: Path) -> Tabletop:
    """Make and render the rollouts of a fold into a new file of pixels, uint8 (rollouts, 16, H, W, 3)."""
    trained, checked = settings.tabletop, max(1, settings.tabletop // 25)
    rows = trained + checked
    new_pixels(path, rows, CLIP_FRAMES, settings.size)
    parts = [range(first, min(first + _SHARD, rows)) for first in range(0, rows, _SHARD)]
    found = map_items(partial(_tabletop_shard, settings, fold, path), parts, settings.workers)
    rollouts = tuple(rollout for part in found for rollout in part)
    return Tabletop(rollouts, np.arange(trained), np.arange(trained, rows))


def _tabletop_shard(settings: PocketSettings, fold: int | None, path: Path, rows: range) -> list[TabletopRollout]:
    pixels = np.load(path, mmap_mode="r+")
    made = []
    for row in rows:
        checked = row >= settings.tabletop
        rng = rng_for(settings.seed, "tabletop", -1 if fold is None else fold, row)
        seed, unseen = int(rng.integers(_CHECKED_SEEDS)), ""
        if checked:
            seed, unseen = _seed_of_unseen(seed + _CHECKED_SEEDS, fold, row % 3)
        vocabulary = EVERYTHING if checked or fold is None else seen_vocabulary(fold)
        (clip,) = training_clips([seed], size=settings.size, frames=CLIP_FRAMES, others=_OTHERS, vocabulary=vocabulary)
        pixels[row] = clip.frames
        own = clip.asked[0].goal
        related = [asked.goal.thing == own.thing or asked.goal.verb == own.verb for asked in clip.asked]
        texts, progress = (asked.text for asked in clip.asked), np.stack([asked.progress for asked in clip.asked])
        camera, states = clip.rollout.scene.camera, clip.rollout.states
        places = np.stack([camera.seen_at(states.place[:, asked.goal.thing]) for asked in clip.asked])
        hand = camera.seen_at(states.hand).astype(np.float32)
        made.append(TabletopRollout(tuple(texts), progress, places.astype(np.float32), hand, np.array(related), unseen))
    return made


def _seed_of_unseen(seed: int, fold: int | None, which: int) -> tuple[int, str]:
    """Return a seed whose rollout is about a kind, a verb, or both, that the fold never sees, and which of these."""
    if fold is None:
        return seed, ""
    wanted, unseen = ("kind", "verb", "both")[which], unseen_vocabulary(fold)

    def strange(clip: TrainingClip) -> str:
        goal = clip.asked[0].goal
        kind, verb = clip.rollout.scene.things[goal.thing].kind in unseen.kinds, goal.verb in unseen.verbs
        return "both" if kind and verb else "kind" * kind + "verb" * verb

    tried = range(seed, seed + _MOST_TRIES)
    for at, clip in zip(tried, training_clips(tried, others=0, render=False), strict=True):
        if strange(clip) == wanted:
            return at, wanted
    return seed, ""


def _tabletop_clips(table: Tabletop, rng: Generator) -> list[SampledClip]:
    row = int(table.training[int(rng.integers(len(table.training)))])
    rollout = table.rollouts[row]
    frames = between(0, CLIP_FRAMES - 1 if rng.random() < 0.6 else int(rng.integers(3, CLIP_FRAMES)), CLIP_FRAMES, rng)
    if rng.random() < 0.07:
        frames = frames[::-1]
    elif rng.random() < _STILL:
        frames = np.zeros_like(frames)
    done = rollout.progress[1:].max(axis=1) > 0.3
    weight = np.where(done, 3.0, np.where(rollout.related[1:], 2.0, 1.0))
    others = (
        rng.permutation(len(weight))
        if len(weight) < _TEXTS
        else rng.choice(len(weight), _TEXTS - 1, replace=False, p=weight / weight.sum())
    )
    asked = [0, *(1 + others)]
    asked += [0] * (_TEXTS - len(asked))
    return [
        replace(
            labelled(row, frames, rollout.texts[at], rollout.progress[at, frames]),
            places=np.concatenate([rollout.places[at, frames], rollout.hand[frames]], axis=1),
        )
        for at in asked
    ]


def labelled(row: int, frames: Ints, text: str, progress: Floats) -> SampledClip:
    """Return a clip whose progress is known in every frame."""
    return SampledClip(row, frames, text, progress, levels_of(progress))


# Demonstrations: of a clip that shows its task being done only this is known: the first frame is not done, the last
# is, and nothing of what other clips are asked for has been done.

DEMONSTRATION_FRAMES = 32  # that are kept of each
_PLAYED = {"whole": 0.55, "first part": 0.2, "backwards": 0.2, "still": 0.05}
_BARELY_BEGUN = 0.12  # of a demonstration: up to here it is at level 1
_NOT_YET = 0.5  # up to here it is not done
_SAME_SUBSET = 0.5  # of the instructions of others: of the same subset
_STOP_WORDS = frozenset(
    ("the", "a", "an", "it", "on", "in", "to", "of", "from", "and", "into", "onto", "with", "at", "is", "that", "side")
)


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """The instructions of the demonstrations and which of them train; the others' subsets are held out."""

    texts: tuple[str, ...]
    subsets: NDArray[np.str_]
    training: Ints
    checks: Ints

    @cached_property
    def words(self) -> tuple[frozenset[str], ...]:
        """Return the words of each instruction that say what is to be done, and to what."""
        plain = (text.lower().replace(".", " ").replace(",", " ").split() for text in self.texts)
        return tuple(frozenset(word for word in words if word not in _STOP_WORDS) for words in plain)


def load_demonstrations(settings: PocketSettings, fold: int | None, path: Path) -> Demonstrations:
    """Read the successes of a dataset into a new file of pixels, uint8 (clips, 32, H, W, 3).

    A fold holds out every fifth subset.
    """
    contents = open_dataset(settings.demonstrations, demonstrations=True)
    episodes = [episode for episode in contents.episodes if episode.label.success]
    if not episodes:
        raise DataError(f"{settings.demonstrations} must have episodes whose success is true, got none")
    pixels = new_pixels(path, len(episodes), DEMONSTRATION_FRAMES, settings.size)
    for row, frames in enumerate(map_items(partial(_read, settings.size), episodes, settings.workers)):
        pixels[row] = frames
    subsets = np.array([episode.provenance.subset for episode in episodes])
    held_out = sorted(set(subsets.tolist()))[fold::FOLDS] if fold is not None else []
    checks = np.isin(subsets, held_out)
    texts = tuple(episode.instruction for episode in episodes)
    return Demonstrations(texts, subsets, np.flatnonzero(~checks), np.flatnonzero(checks))


def _read(size: int, episode: Episode) -> NDArray[np.uint8]:
    shown = np.linspace(0, len(episode.clip) - 1, DEMONSTRATION_FRAMES).round().astype(np.int64)
    return resize_frames(list(show_only(episode, shown).frames), size)


def _demonstration_clips(table: Demonstrations, rng: Generator) -> list[SampledClip]:
    row = int(table.training[int(rng.integers(len(table.training)))])
    played, last = draw_by_share(_PLAYED, rng), DEMONSTRATION_FRAMES - 1
    end = int(rng.integers(last // 8, last // 2)) if played == "first part" else last
    start = int(rng.integers(last // 6)) if played == "whole" and rng.random() < 0.5 else 0
    frames = between(start, end, CLIP_FRAMES, rng)
    if played == "still":
        frames = np.zeros_like(frames)
    if played == "backwards":
        frames = frames[::-1]
    clips = [known_of_demonstration(row, frames, table.texts[row])]
    nothing = np.zeros(CLIP_FRAMES, np.float32)
    for _ in range(_TEXTS - 1):
        clips.append(labelled(row, frames, other_instruction(table, row, table.training, rng), nothing))
    return clips


def known_of_demonstration(row: int, frames: Ints, text: str) -> SampledClip:
    """Return a demonstration under its own instruction with the little that is known of its frames."""
    at = frames / (DEMONSTRATION_FRAMES - 1)
    done = (at == 1) & (at[0] < 1)  # played backwards, the end comes first, and nobody has done anything
    level = np.where(at <= _BARELY_BEGUN, 1, np.where(at <= _NOT_YET, NOT_DONE, np.where(done, 5, 0)))
    progress = np.where(at <= _BARELY_BEGUN, 0.0, np.where(done, 1.0, np.nan)).astype(np.float32)
    return SampledClip(row, frames, text, progress, level.astype(np.int64))


def other_instruction(table: Demonstrations, row: int, rows: Ints, rng: Generator) -> str:
    """Return the instruction of another demonstration that asks for something else, now and then for a similar one.

    Half of them are of the same subset, so that a scene alone does not tell which words belong to it.
    """
    words, verb, wish = table.words, table.texts[row].lower().split()[:1], rng.random()
    alike = table.subsets[rows] == table.subsets[row]
    if rng.random() < _SAME_SUBSET and alike.any():
        rows = rows[alike]
    text = ""
    for _ in range(60):
        other = int(rows[int(rng.integers(len(rows)))])
        shared, least = words[row] & words[other], min(len(words[row]), len(words[other]))
        if len(shared) > 0.5 * max(1, least):
            continue
        text = table.texts[other]
        if wish < 0.35 and text.lower().split()[:1] != verb:
            continue
        if 0.35 <= wish < 0.6 and not shared:
            continue
        break
    return text or random_letters(rng)


# Nonsense: clips that are no attempt at anything, and instructions that ask for nothing.

_EACH_KIND = 60  # clips
_OF_OTHERS = ("still", "letters")  # kinds that are made of clips of other sources


def make_nonsense(settings: PocketSettings, path: Path) -> Ints:
    """Draw clips of the kinds that are trained on into a new file of pixels, and return their rows."""
    drawn = [kind for kind in TRAINED_KINDS if kind not in _OF_OTHERS for _ in range(_EACH_KIND)]
    pixels = new_pixels(path, len(drawn), CLIP_FRAMES, settings.size)
    for row, kind in enumerate(drawn):
        pixels[row] = nonsense_clip(kind, rng_for(settings.seed, "nonsense", row), CLIP_FRAMES, settings.size)
    return np.arange(len(drawn))


# Batches: drawn by step from all sources, ahead of time where there are worker processes.

_PREFETCH = 48  # batches that are drawn while the device is busy
_LOADER_WORKERS = 12  # processes that draw them
_LETTERS, _FROZEN = 0.2, 0.2  # fractions of the nonsense: a clip under random letters; one frame of it, repeated


@dataclass(frozen=True, eq=False)
class Sources:
    """What a training draws from; a source that is not there is None or empty."""

    metaworld: RolloutTable
    tabletop: Tabletop | None = None
    demonstrations: Demonstrations | None = None
    nonsense: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def shares(self) -> dict[str, float]:
        there = {"metaworld": True, "tabletop": self.tabletop, "demonstrations": self.demonstrations}
        return {name: share for name, share in SHARES.items() if (there | {"nonsense": len(self.nonsense)})[name]}


@dataclass(frozen=True, eq=False)
class Batch:
    """The videos of one step and the texts about them with their labels; nan and 0 are unknown."""

    source: NDArray[np.object_]  # (V,)
    row: Ints  # (V,): rollouts of the source
    frames: Ints  # (V, 16): frames of the rollout
    mirrored: NDArray[np.bool_]  # (V,): left is right
    video: Ints  # (B,): which video each text is about
    piece_ids: Ints  # (B, 48): word pieces of the text, -1 for none
    progress: Floats  # (B, 16)
    level: Ints  # (B, 16), or NOT_DONE
    displacements: Floats  # (B, 16, 7): of object and gripper since the first frame, and the distance between them
    places: Floats  # (B, 16, 4): of the asked thing and the hand in the picture, from -1 to 1
    caption: Floats  # (B, words): which words describe what happened
    matches_task: NDArray[np.bool_]  # (B,): the text asks for what is done or begun, whatever words it uses for it


def training_batches(settings: PocketSettings, training: Training, sources: Sources, start: int) -> Iterator[Batch]:
    """Yield the batch of every step from `start` on; other processes draw them ahead where there are any."""
    work, workers = partial(_draw_step, settings, training, sources), min(settings.workers, _LOADER_WORKERS)
    yield from map_items(work, range(start, settings.steps), workers, ahead=_PREFETCH)


def _draw_step(settings: PocketSettings, training: Training, sources: Sources, step: int) -> Batch:
    return draw_batch(settings, sources, rng_for(settings.seed, "batch", training.name, step), robust=training.robust)


def draw_batch(settings: PocketSettings, sources: Sources, rng: Generator, *, robust: bool = True) -> Batch:
    """Draw a batch; it depends on the generator alone. A robust network also sees scenes in a mirror."""
    shares = sources.shares
    counts = {name: round(settings.batch_size * share / sum(shares.values())) for name, share in shares.items()}
    counts["metaworld"] += settings.batch_size - sum(counts.values())
    names = [name for name, count in counts.items() for _ in range(count)]
    groups = [_draw(settings, sources, name, rng) for name in names]
    if robust:
        groups = [(name, _in_a_mirror(clips, rng) if name in _MIRRORED_SOURCES else clips) for name, clips in groups]
    return make_batch(sources.metaworld, groups)


def _in_a_mirror(clips: list[SampledClip], rng: Generator) -> list[SampledClip]:
    """Return the clips of one video, half of the time in a mirror, unless the words of one have none."""
    if rng.random() >= _MIRRORED:
        return clips
    try:
        texts = [mirrored_words(clip.text) for clip in clips]
    except NotApplicable:
        return clips
    aside = np.array([-1, 1, -1, 1], np.float32)
    return [
        replace(clip, text=text, mirrored=True, places=None if clip.places is None else clip.places * aside)
        for clip, text in zip(clips, texts, strict=True)
    ]


def _draw(settings: PocketSettings, sources: Sources, name: str, rng: Generator) -> tuple[str, list[SampledClip]]:
    """Return a video of a source under its texts; nonsense may be a video of another source."""
    if name == "tabletop" and sources.tabletop:
        return name, _tabletop_clips(sources.tabletop, rng)
    if name == "demonstrations" and sources.demonstrations:
        return name, _demonstration_clips(sources.demonstrations, rng)
    if name == "nonsense":
        return _nonsense_clips(settings, sources, rng)
    return name, [sample_clip(sources.metaworld, rng, inverse="inverse-instructions" not in settings.ablate)]


def _nonsense_clips(settings: PocketSettings, sources: Sources, rng: Generator) -> tuple[str, list[SampledClip]]:
    """Return a clip of nothing under two instructions, or a clip of another source frozen or under random letters."""
    real = [name for name in sources.shares if name != "nonsense"]
    name, shown = _draw(settings, sources, pick(real, rng), rng)
    _, others = _draw(settings, sources, pick(real, rng), rng)
    row, frames, texts = shown[0].row, shown[0].frames, [shown[0].text, others[0].text]
    fate = rng.random()
    if fate < _LETTERS:
        texts = [random_letters(rng) for _ in texts]
    elif fate < _LETTERS + _FROZEN:
        frames = np.full_like(frames, pick(frames.tolist(), rng))
    else:
        name, row, frames = "nonsense", pick(sources.nonsense.tolist(), rng), np.arange(CLIP_FRAMES)
    nothing = np.zeros(CLIP_FRAMES, np.float32)
    return name, [labelled(row, frames, text, nothing) for text in texts]


def make_batch(table: RolloutTable, groups: list[tuple[str, list[SampledClip]]]) -> Batch:
    """Return videos of a source, each with the clips that show it under one text, as the arrays of a batch."""
    clips = [clip for _, group in groups for clip in group]
    source = np.array([name for name, group in groups for _ in group], dtype=object)
    moved = [
        _displacements(table, clip) if name == "metaworld" else None for name, clip in zip(source, clips, strict=True)
    ]
    unknown, nowhere = (np.full((CLIP_FRAMES, width), np.nan, np.float32) for width in (7, 4))
    return Batch(
        source=np.array([name for name, _ in groups], dtype=object),
        row=np.array([group[0].row for _, group in groups]),
        frames=np.stack([group[0].frames for _, group in groups]),
        mirrored=np.array([group[0].mirrored for _, group in groups]),
        video=np.repeat(np.arange(len(groups)), [len(group) for _, group in groups]),
        piece_ids=np.stack([_piece_ids(clip.text) for clip in clips]),
        progress=np.stack([clip.progress for clip in clips]),
        level=np.stack([clip.level for clip in clips]),
        displacements=np.stack([unknown if each is None else each for each in moved]),
        places=np.stack([nowhere if clip.places is None else clip.places for clip in clips]),
        caption=np.stack([_caption_words(clip.caption) for clip in clips]),
        matches_task=np.array([clip.matches_task for clip in clips]),
    )


def _displacements(table: RolloutTable, clip: SampledClip) -> Floats | None:
    """Return how gripper and object have moved; None of a perturbed clip, whose frames may be any."""
    if table.scenes[clip.row].kind == "view":
        return None
    gripper, thing = table.gripper_pos[clip.row, clip.frames], table.object_pos[clip.row, clip.frames]
    distance = np.linalg.norm(gripper - thing, axis=1, keepdims=True)
    moved: Floats = np.concatenate([thing - thing[:1], gripper - gripper[:1], distance], axis=1)
    return moved


@lru_cache(maxsize=200_000)
def _piece_ids(text: str) -> Ints:
    return load_word_pieces(WORD_VECTORS).piece_ids(text)


def _caption_words(text: str) -> Floats:
    """Return which words a caption has; nan where there is no caption."""
    if not text:
        return np.full(len(CAPTION_WORDS), np.nan, np.float32)
    words = set(text.replace(",", "").split())
    return np.array([word in words for word in CAPTION_WORDS], np.float32)
