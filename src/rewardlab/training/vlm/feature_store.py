"""What the frozen tower makes of every clip, computed once, with the tokens of every example, in one file.

It is safetensors, which holds numbers and no code; a training that resumes reads it and decodes nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rewardlab.core.run import atomic_write
from rewardlab.training.live_view import LiveView
from rewardlab.training.vlm.answer_inputs import AnswerInputs, Sample, Tensors, pad_left
from rewardlab.training.vlm.answer_network import UNLEARNED, AnswerNetwork, Batch
from rewardlab.training.vlm.batches import Pass, load_ahead, token_batch
from rewardlab.training.vlm.example import Example, ShowFrames, clips_of

_GIB = 2**30
_NUMBERS_AT_ONCE = 2**24  # of all pictures in one pass through the tower
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
        """Return the batch of a forward pass."""
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


@dataclass(frozen=True)
class CacheLimits:
    """How much memory features may take, and how many processes decode the clips."""

    gib: float
    workers: int


def clip_features(
    network: AnswerNetwork, clips: Clips, path: Path, limits: CacheLimits, view: LiveView
) -> FeatureStore | None:
    """Return the features of all clips, from the file if it is there; None where this model has no place for them."""
    pictures, padding = clips[0][0].pictures, clips.inputs.padding
    if not network.can_fuse(pictures):
        view.say("features of the vision tower are not kept: this model fuses them in its own way")
        return None
    with torch.no_grad():
        size = network.encode(pictures).nbytes * len(clips)
    if size > limits.gib * _GIB:
        view.say(f"features of the vision tower are not kept: they are about {size / _GIB:.1f} GiB, see --cache-gb")
        return None
    if path.exists():
        return read_store(path, padding)
    store = _encode(network, clips, limits.workers, view)
    if store is None:
        view.say("features of the vision tower are not kept: clips of different sizes have tokens of different kinds")
        return None
    write_store(store, path)
    return store


def _encode(network: AnswerNetwork, clips: Clips, workers: int, view: LiveView) -> FeatureStore | None:
    samples: dict[int, Sample] = {}
    features: list[Tensor] = []
    loaded: Iterator[list[Sample]] = load_ahead(clips, workers)
    for some in _in_passes((number, [_own(sample) for sample in group]) for number, group in enumerate(loaded)):
        features += _encoded(network, [group[0].pictures for _, group in some])
        if features[-1].shape[1:] != features[0].shape[1:]:
            return None
        for number, group in some:
            samples |= {place: replace(sample, pictures={}) for place, sample in zip(clips.groups[number], group)}
        view.step(len(features))
    return _store(features, [samples[place] for place in range(len(samples))], clips)


def _own(sample: Sample) -> Sample:
    """Return a copy of a sample: what a worker sends is shared memory, each piece of it an open file."""
    tokens, pictures = (
        {name: value.clone() for name, value in part.items()} for part in (sample.tokens, sample.pictures)
    )
    return Sample(tokens, pictures, sample.labels.clone())


def _in_passes(groups: Iterable[NumberedGroup]) -> Iterator[list[NumberedGroup]]:
    """Yield clips whose pictures go through the tower together: as many as fill it, of the same shapes."""
    for _, same in groupby(groups, lambda group: _shapes(group[1][0].pictures)):
        some: list[NumberedGroup] = []
        for group in same:
            some.append(group)
            if len(some) * _numbers(some[0][1][0].pictures) >= _NUMBERS_AT_ONCE:
                yield some
                some = []
        if some:
            yield some


def _shapes(pictures: Tensors) -> list[tuple[str, torch.Size]]:
    return [(name, value.shape) for name, value in pictures.items()]


def _numbers(pictures: Tensors) -> int:
    return sum(value.numel() for value in pictures.values())


@torch.no_grad()
def _encoded(network: AnswerNetwork, clips: Sequence[Tensors]) -> list[Tensor]:
    """Return the features of clips of the same shapes, in main memory."""
    whole = network.encode({name: torch.cat([clip[name] for clip in clips]) for name in clips[0]}).cpu()
    return list(whole.chunk(len(clips)))


def _store(features: list[Tensor], samples: list[Sample], clips: Clips) -> FeatureStore:
    clip_of = {place: clip for clip, group in enumerate(clips.groups) for place in group}
    return FeatureStore(
        torch.cat(features),
        _starts(features),
        tuple(clip_of[place] for place in range(len(samples))),
        tuple(sample.tokens for sample in samples),
        pad_left([sample.labels for sample in samples], UNLEARNED),
        clips.inputs.padding,
    )


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
