"""The order of examples; batches from decoded clips or from cached tower features.

A step's examples are drawn at random; only within the step are they sorted by length and parted into forward passes,
so that little is padded and no step is all long clips or all short ones.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rewardlab.core.seeding import rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.core.terminal import ProgressBar
from rewardlab.training.vlm.examples import Example, ShowFrames, clips_of
from rewardlab.training.vlm.inputs import AnswerInputs, Sample, Tensors, pad_left
from rewardlab.training.vlm.network import UNLEARNED, AnswerNetwork, Batch

Item = TypeVar("Item")
_PREFETCH = 4  # forward passes that each worker prepares ahead


@dataclass(frozen=True)
class Pass:
    """One forward pass of one process: places of examples, the epoch, and what each counts for in its step."""

    epoch: int
    places: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class BatchOrder:
    """The order of a whole training: the same for the same settings, wherever it starts and whatever works on it."""

    lengths: tuple[tuple[int, int], ...]  # of each example: frames of its stream, characters of its instruction
    batch: int
    micro: int
    epochs: int
    seed: int
    rank: int = 0
    world: int = 1

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.lengths) / self.batch)

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def step(self, number: int) -> list[Pass]:
        """Return the forward passes of this process in a step, equally many in every process."""
        epoch, within = divmod(number, self.steps_per_epoch)
        drawn = rng_for(self.seed, "epoch", epoch).permutation(len(self.lengths))
        places = [int(place) for place in drawn[within * self.batch : (within + 1) * self.batch]]
        places.sort(key=lambda place: (self.lengths[place], place))
        rows = math.ceil(len(places) / self.world)  # of each process; where there are too few, one counts for nothing
        mine = places[self.rank :: self.world]
        shares = [self.world / len(places)] * len(mine) + [0.0] * (rows - len(mine))
        mine += places[:1] * (rows - len(mine))
        cuts = range(0, rows, self.micro)
        return [Pass(epoch, tuple(mine[i : i + self.micro]), tuple(shares[i : i + self.micro])) for i in cuts]


def example_lengths(examples: Sequence[Example]) -> tuple[tuple[int, int], ...]:
    """Return by what the examples of a step are sorted."""
    return tuple((len(example.episode.clip), len(example.episode.instruction)) for example in examples)


def collate(samples: Sequence[Sample], one: Pass, padding: dict[str, int]) -> list[Batch]:
    """Return samples as tensors; those whose pictures cannot stand in one tensor are batches of their own."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for row, sample in enumerate(samples):
        groups.setdefault(tuple((name, value.shape[1:]) for name, value in sample.pictures.items()), []).append(row)
    batches = []
    for rows in groups.values():
        same = [samples[row] for row in rows]
        part = Pass(one.epoch, tuple(one.places[row] for row in rows), tuple(one.weights[row] for row in rows))
        batch = token_batch([sample.tokens for sample in same], [sample.labels for sample in same], part, padding)
        pictures = {name: torch.cat([sample.pictures[name] for sample in same]) for name in same[0].pictures}
        batches.append(replace(batch, pictures=pictures))
    return batches


def token_batch(rows: Sequence[Tensors], labels: Sequence[Tensor], one: Pass, padding: dict[str, int]) -> Batch:
    """Return rows of tokens, padded on the left, as a batch that shows nothing yet."""
    names = [name for name in rows[0] if name != "attention_mask"]
    tokens = {name: pad_left([row[name] for row in rows], padding.get(name, 0)) for name in names}
    mask = pad_left([torch.ones(len(row["input_ids"]), dtype=torch.long) for row in rows], 0)
    return Batch(tokens, mask, {}, None, pad_left(labels, UNLEARNED), torch.tensor(one.weights), one.places)


class DecodedPasses(Dataset[list[Batch]]):
    """Makes the batches of each forward pass from decoded frames, in whatever process asks for it."""

    def __init__(
        self, inputs: AnswerInputs, examples: Sequence[Example], show: ShowFrames, passes: Sequence[Pass]
    ) -> None:
        self.inputs, self.examples, self.show, self.passes = inputs, examples, show, passes

    def __len__(self) -> int:
        return len(self.passes)

    def __getitem__(self, number: int) -> list[Batch]:
        one = self.passes[number]
        examples = [self.examples[place] for place in one.places]
        samples = [self.inputs.sample(self.show(each, one.epoch), each.answer) for each in examples]
        return collate(samples, one, self.inputs.padding)


def load_ahead(dataset: "Dataset[Item]", workers: int) -> Iterator[Item]:
    """Yield every item in its order, prepared ahead by so many processes."""
    ahead = _PREFETCH if workers else None
    yield from DataLoader(dataset, batch_size=None, num_workers=workers, prefetch_factor=ahead)


# What the frozen tower makes of every clip, computed once, with the tokens of every example, in one file.
#
# It is safetensors, which holds tensors and no code; a training that resumes reads it and decodes nothing.

_GIB = 2**30
_VALUES_AT_ONCE = 2**24  # of all pictures in one pass through the tower
_DEVICE_SHARE = 0.25  # of the free memory of a GPU that features may take; else they stay in main memory


NumberedGroup = tuple[int, list[Sample]]  # a clip's number, and the samples of all examples that show it


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """Features of every clip and tokens of every example, ready to be put together."""

    features: Tensor  # (rows of all clips, ...)
    clip_starts: tuple[int, ...]  # where the rows of each clip begin, and the end
    clip_of: tuple[int, ...]  # the clip of each example
    tokens: tuple[dict[str, Tensor], ...]  # of each example
    labels: Tensor  # (examples, reply)
    padding: dict[str, int]

    def batch(self, one: Pass) -> Batch:
        clips = [self.clip_of[place] for place in one.places]
        features = torch.cat([self.features[self.clip_starts[c] : self.clip_starts[c + 1]] for c in clips])
        tokens, labels = [self.tokens[place] for place in one.places], [self.labels[place] for place in one.places]
        return replace(token_batch(tokens, labels, one, self.padding), features=features)


class Clips(Dataset[list[Sample]]):
    """Decodes each clip once for all examples that show it."""

    def __init__(self, inputs: AnswerInputs, examples: Sequence[Example], show: ShowFrames) -> None:
        self.inputs, self.examples, self.show, self.groups = inputs, examples, show, clips_of(examples)

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, number: int) -> list[Sample]:
        """Return the samples of all examples of a clip, of which only the first holds pictures."""
        group = [self.examples[place] for place in self.groups[number]]
        asked = [(example.episode.instruction, example.answer) for example in group]
        return self.inputs.samples(self.show(group[0], 0), asked)


def clip_features(
    network: AnswerNetwork, clips: Clips, path: Path, *, cache_gb: float, workers: int, view: ProgressBar
) -> FeatureStore | None:
    """Return the features of all clips, from the file if it is there; None where they cannot be kept."""
    pictures, padding = clips[0][0].pictures, clips.inputs.padding
    if not network.can_fuse(pictures):
        view.say("features of the vision tower are not kept: this model fuses them in its own way")
        return None
    with torch.no_grad():
        size = network.encode(pictures).nbytes * len(clips)
    if size > cache_gb * _GIB:
        view.say(f"features of the vision tower are not kept: they are about {size / _GIB:.1f} GiB, see --cache-gb")
        return None
    if path.exists():
        return read_store(path, padding)
    store = _encode(network, clips, workers, view)
    if store is None:
        view.say("features of the vision tower are not kept: clips of different sizes have tokens of different kinds")
        return None
    write_store(store, path)
    return store


def _encode(network: AnswerNetwork, clips: Clips, workers: int, view: ProgressBar) -> FeatureStore | None:
    samples: dict[int, Sample] = {}
    features: list[Tensor] = []
    loaded: Iterator[list[Sample]] = load_ahead(clips, workers)
    for some in _in_passes((number, [_own(sample) for sample in group]) for number, group in enumerate(loaded)):
        pictures = [group[0].pictures for _, group in some]
        with torch.no_grad():
            whole = network.encode({name: torch.cat([clip[name] for clip in pictures]) for name in pictures[0]}).cpu()
        features += whole.chunk(len(some))
        if features[-1].shape[1:] != features[0].shape[1:]:
            return None
        for number, group in some:
            samples |= {
                place: replace(sample, pictures={}) for place, sample in zip(clips.groups[number], group, strict=True)
            }
        view.step(len(features))
    clip_of = {place: clip for clip, group in enumerate(clips.groups) for place in group}
    ordered = [samples[place] for place in range(len(samples))]
    return FeatureStore(
        torch.cat(features),
        _starts(features),
        tuple(clip_of[place] for place in range(len(samples))),
        tuple(sample.tokens for sample in ordered),
        pad_left([sample.labels for sample in ordered], UNLEARNED),
        clips.inputs.padding,
    )


def _own(sample: Sample) -> Sample:
    """Return a copy of a sample: what a worker sends is shared memory, each piece of it an open file."""
    tokens, pictures = (
        {name: value.clone() for name, value in part.items()} for part in (sample.tokens, sample.pictures)
    )
    return Sample(tokens, pictures, sample.labels.clone())


def _in_passes(groups: Iterable[NumberedGroup]) -> Iterator[list[NumberedGroup]]:
    """Yield clips whose pictures go through the tower together: as many as fill it, of the same shapes."""
    for _, same in groupby(groups, lambda group: [(n, value.shape) for n, value in group[1][0].pictures.items()]):
        some: list[NumberedGroup] = []
        for group in same:
            some.append(group)
            if len(some) * sum(value.numel() for value in group[1][0].pictures.values()) >= _VALUES_AT_ONCE:
                yield some
                some = []
        if some:
            yield some


def _starts(rows: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple([0, *torch.tensor([len(row) for row in rows]).cumsum(0).tolist()])


def write_store(store: FeatureStore, path: Path) -> None:
    """Write the store in one step."""
    from safetensors.torch import save_file

    whole = {
        "features": store.features,
        "labels": store.labels,
        "clip_starts": torch.tensor(store.clip_starts),
        "clip_of": torch.tensor(store.clip_of),
        "token_starts": torch.tensor(_starts([each["input_ids"] for each in store.tokens])),
    }
    names = store.tokens[0]
    whole |= {f"tokens.{name}": torch.cat([each[name] for each in store.tokens]) for name in names}
    with atomic_write(path) as partial:
        save_file({name: value.contiguous() for name, value in whole.items()}, partial)


def read_store(path: Path, padding: dict[str, int]) -> FeatureStore:
    """Read a store that was written whole."""
    from safetensors.torch import load_file

    whole = load_file(path)
    starts = whole["token_starts"].tolist()
    columns = {name.removeprefix("tokens."): value for name, value in whole.items() if name.startswith("tokens.")}
    rows = tuple({name: value[a:b] for name, value in columns.items()} for a, b in pairwise(starts))
    clip_starts, clip_of = (tuple(whole[name].tolist()) for name in ("clip_starts", "clip_of"))
    return FeatureStore(whole["features"], clip_starts, clip_of, rows, whole["labels"], padding)


def on_device(store: FeatureStore, device: str) -> FeatureStore:
    """Return the store with its features on a GPU that has ample room for them."""
    if device == "cpu" or store.features.nbytes > _DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
        return store
    return replace(store, features=store.features.to(device))
