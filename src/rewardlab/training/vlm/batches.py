"""Batches: which examples stand behind each step, and how samples become tensors.

A step's examples are drawn at random; only within the step are they sorted by length and parted into forward passes,
so that little is padded and no step is all long clips or all short ones.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rewardlab.core.seeding import rng_for
from rewardlab.training.vlm.answer_inputs import AnswerInputs, Sample, Tensors, pad_left
from rewardlab.training.vlm.answer_network import UNLEARNED, Batch
from rewardlab.training.vlm.example import Example, ShowFrames

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
    """The order of a whole training: the same for the same numbers, wherever it starts and whatever works on it."""

    lengths: tuple[tuple[int, int], ...]  # of each example: frames of its stream, characters of its instruction
    batch: int
    micro: int
    epochs: int
    seed: int
    rank: int = 0
    world: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Return how many steps see every example once."""
        return math.ceil(len(self.lengths) / self.batch)

    @property
    def steps(self) -> int:
        """Return how many steps the training has."""
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
    return [_batch([samples[row] for row in rows], _part(one, rows), padding) for rows in groups.values()]


def _part(one: Pass, rows: Sequence[int]) -> Pass:
    return Pass(one.epoch, tuple(one.places[row] for row in rows), tuple(one.weights[row] for row in rows))


def _batch(samples: Sequence[Sample], one: Pass, padding: dict[str, int]) -> Batch:
    batch = token_batch([sample.tokens for sample in samples], [sample.labels for sample in samples], one, padding)
    return replace(batch, pictures={n: torch.cat([s.pictures[n] for s in samples]) for n in samples[0].pictures})


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
        """Return the batches of a forward pass."""
        one = self.passes[number]
        examples = [self.examples[place] for place in one.places]
        samples = [self.inputs.sample(self.show(each, one.epoch), each.answer) for each in examples]
        return collate(samples, one, self.inputs.padding)


def load_ahead(dataset: "Dataset[Item]", workers: int) -> Iterator[Item]:
    """Yield every item in its order, prepared ahead by so many processes."""
    ahead = {"prefetch_factor": _PREFETCH} if workers else {}
    yield from DataLoader(dataset, batch_size=None, num_workers=workers, **ahead)
