"""One model: step, validation, forecast of time and memory."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewardlab.core.episode import LEVELS
from rewardlab.core.errors import ModelError
from rewardlab.core.seeding import rng_for
from rewardlab.core.terminal import ProgressBar
from rewardlab.core.trial import Failure
from rewardlab.models.backends.fused_ops import fuse_norms
from rewardlab.models.vlm import choice_softmax
from rewardlab.training.loop import TRAINED, WORK, Progress, Step, files_in
from rewardlab.training.loop import fit as run_loop
from rewardlab.training.optimizer import MasterAdamW, OptimizerConfig, learning_rate
from rewardlab.training.processes import Processes
from rewardlab.training.vlm import PERTURBED, Recipe, VlmSettings, VlmTraining
from rewardlab.training.vlm.base_model import BaseModel, Named, load_base
from rewardlab.training.vlm.batches import (
    BatchOrder,
    Clips,
    DecodedPasses,
    FeatureStore,
    Pass,
    clip_features,
    example_lengths,
    load_ahead,
    on_device,
)
from rewardlab.training.vlm.examples import Example, ShowFrames
from rewardlab.training.vlm.network import (
    Batch,
    answer_loss,
    answer_losses,
    set_training,
    trained_parts,
    training_dtype,
)

OVERALL = "all"


@dataclass(frozen=True)
class ValidationErrors:
    """Mean errors by the source of the label, and over all examples."""

    measure: str  # mae of predicted labels, loss on captions
    by_source: dict[str, float]

    @property
    def overall(self) -> float:
        return self.by_source[OVERALL]


def predicted_label(probabilities: Sequence[float]) -> float:
    """Return the most probable level, by which the checkpoint is chosen and which `bench` takes in HELM's reading."""
    return float(LEVELS[int(np.argmax(probabilities))])


def _validated_label(logits: list[float]) -> float:
    probs = choice_softmax(logits)
    if isinstance(probs, Failure):
        raise ModelError(f"validation stopped: {probs.reason}; try a lower --lr")
    return predicted_label(probs)


def label_errors(examples: Sequence[Example], labels: Sequence[float]) -> ValidationErrors:
    """Return the mean absolute error of predicted labels over all examples and for each source of theirs."""
    errors = np.abs(np.array([example.level for example in examples]) - np.array(labels))
    sources = np.array([example.source for example in examples])
    by_source = {str(source): float(errors[sources == source].mean()) for source in dict.fromkeys(sources.tolist())}
    return ValidationErrors("mae", {OVERALL: float(errors.mean()), **by_source})


def caption_errors(losses: Sequence[float]) -> ValidationErrors:
    """Return the mean loss on captions, which stands for all examples."""
    return ValidationErrors("loss", {OVERALL: float(np.mean(losses))})


def constant_error(training: Sequence[Example], validation: Sequence[Example]) -> tuple[float, float]:
    """Return the best constant level, the median of the training examples, and its error."""
    level = float(np.median([example.level for example in training]))
    return level, float(np.mean([abs(example.level - level) for example in validation]))


_LOG_EVERY = 10  # steps; only then does the processor wait for the GPU
_VALIDATIONS = 10  # in a training, unless --eval-every says otherwise


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Training and validation examples, and how frames are shown; `rule` says how the two were split."""

    examples: tuple[Example, ...]
    validation: tuple[Example, ...]
    show: ShowFrames
    rule: str


def fit(training: VlmTraining, named: Named, data: TrainingData, processes: Processes) -> Progress:
    """Train one model from its last checkpoint on; the best weights are then in its working folder."""
    settings, device = training.settings, processes.device
    base = load_base(named, trained_parts(settings), device, training_dtype(settings, device))
    _require_context(base, data)
    trainer = make_trainer(training, base, data, processes)
    with ProgressBar("training", trainer.order.steps, 0, quiet=not processes.first) as view:
        return run_loop(
            trainer,
            files_in(training.out, tensorboard=True),
            steps=trainer.order.steps,
            eval_every=eval_interval(settings, trainer.order.steps),
            processes=processes,
            show=partial(_show, view),
            log_every=_LOG_EVERY,
        )


def _show(view: ProgressBar, progress: Progress, row: Mapping[str, float]) -> None:
    view.step(progress.step, f"loss {row['loss']:.3f}, {row['clips_per_s']:.1f} clips/s" if row else "")
    for measure in ("mae", "loss"):
        error = row.get(f"validation_{measure}_{OVERALL}")
        if error is not None:
            best = " (best so far)" if progress.best_step == progress.step else ""
            view.say(f"step {progress.step}: validation {measure} {error:.3f}{best}")


def _require_context(base: BaseModel, data: TrainingData) -> None:
    """Say that a clip is too long for the model before it is trained, and not when it is scored afterwards."""
    context = base.model.config.get_text_config().to_dict().get("max_position_embeddings") or 2**31
    examples = (*data.examples, *data.validation)
    lengths = example_lengths(examples)
    for kind in range(2):  # the most frames, and the longest instruction
        example = examples[max(range(len(examples)), key=[length[kind] for length in lengths].__getitem__)]
        tokens = len(base.inputs.sample(data.show(example, 0), example.answer).tokens["input_ids"])
        if tokens > context:
            size = f"frames and text of episode {example.episode.id!r} are {tokens:,} tokens"
            raise ModelError(f"{size}, and the model reads {context:,} at most; use fewer, as with --frames uniform:4")


def _features(training: VlmTraining, base: BaseModel, data: TrainingData, processes: Processes) -> FeatureStore | None:
    """Return the features of all clips where they stay as they are and can be kept."""
    settings = training.settings
    if not settings.cache_gb or any(example.source == PERTURBED for example in data.examples):
        return None
    clips = Clips(base.inputs, (*data.examples, *data.validation), data.show)
    path, quiet = training.out / WORK / "features.safetensors", not processes.first
    with processes.one_after_the_first(), ProgressBar("encoding clips", len(clips), 0, quiet=quiet) as view:
        store = clip_features(
            base.network.eval(), clips, path, cache_gb=settings.cache_gb, workers=settings.workers, view=view
        )
    return None if store is None else on_device(store, processes.device)


@dataclass(frozen=True, eq=False)
class Trainer:
    """One model as the loop trains it."""

    training: VlmTraining
    data: TrainingData
    base: BaseModel
    processes: Processes
    network: Any  # as the processes share it
    optimizer: MasterAdamW
    config: OptimizerConfig
    order: BatchOrder
    store: FeatureStore | None

    def batches(self, start: int) -> Iterator[list[Batch]]:
        if self.store is not None:
            for step in range(start, self.order.steps):
                yield [self.store.batch(one) for one in self.order.step(step)]
            return
        planned = [self.order.step(step) for step in range(start, self.order.steps)]
        passes = self._decoded(self.data.examples, [one for step in planned for one in step])
        for some in planned:
            yield [batch for _ in some for batch in next(passes)]

    def step(self, number: int, batch: Sequence[Batch]) -> Step:
        """Take one optimizer step on all passes together."""
        processes = self.processes
        torch.manual_seed(int(rng_for(self.training.seed, "step", number, processes.rank).integers(2**31)))
        set_training(self.base.model)
        total = torch.zeros((), device=processes.device)
        for turn, one in enumerate(batch, 1):
            moved = one.to(processes.device)
            # Gradients that are collected after each pass must be exchanged in that pass.
            exchange = turn == len(batch) or self.optimizer.apart
            with processes.accumulating(self.network, last=exchange):
                loss = answer_loss(self.network(moved), moved)
                loss.backward()
            self.optimizer.collect()
            total += loss.detach()
        lr = learning_rate(number, self.order.steps, self.config)
        self.optimizer.step(lr)
        counts = {"clips": sum(len(one.places) for one in batch), "tokens": sum(one.mask.numel() for one in batch)}
        return Step({"loss": total}, lr, counts)

    def validate(self) -> tuple[float, dict[str, float]]:
        """Return the error over all validation examples, and the errors by source; every process takes its part."""
        data, settings, processes = self.data, self.training.settings, self.processes
        values = torch.zeros(len(data.validation), dtype=torch.float64)
        self.network.eval()
        for place, value in self._answers():
            values[place] = value
        whole = processes.sum(values.to(processes.device)).tolist()
        found = caption_errors(whole) if settings.captions else label_errors(data.validation, whole)
        return found.overall, {f"validation_{found.measure}_{name}": error for name, error in found.by_source.items()}

    def state(self) -> dict[str, Any]:
        return {TRAINED: self.optimizer.trained(), "moments": self.optimizer.moments()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.optimizer.restore(state[TRAINED], state["moments"])

    @torch.no_grad()
    def _answers(self) -> Iterator[tuple[int, float]]:
        """Yield the places of this process's part of the validation examples, with predicted label or caption loss.

        Every process has equally many forward passes; where examples are too few, one counts for nothing.
        """
        settings, processes, examples = self.training.settings, self.processes, self.data.validation
        first = len(self.data.examples) if self.store is not None else 0
        rows, micro = math.ceil(len(examples) / processes.world), self.order.micro
        places = [first + i for i in range(len(examples))][processes.rank :: processes.world]
        weights = [1.0] * len(places) + [0.0] * (rows - len(places))
        places += [first] * (rows - len(places))
        cuts = [slice(i, i + micro) for i in range(0, rows, micro)]
        passes = [Pass(0, tuple(places[cut]), tuple(weights[cut])) for cut in cuts]
        if self.store is not None:
            batches: Iterable[Batch] = map(self.store.batch, passes)
        else:
            batches = chain.from_iterable(self._decoded(examples, passes))
        for batch in batches:
            moved = batch.to(processes.device)
            logits = self.network(moved)
            if settings.captions:
                answers = answer_losses(logits, moved).tolist()
            else:
                choices = logits[:, -2, list(self.base.inputs.reply.choices)].float()
                answers = [_validated_label(row) for row in choices.tolist()]
            for place, answer, weight in zip(batch.places, answers, batch.weights.tolist(), strict=True):
                if weight:
                    yield place - first, answer

    def _decoded(self, examples: Sequence[Example], passes: Sequence[Pass]) -> Iterator[list[Batch]]:
        dataset = DecodedPasses(self.base.inputs, examples, self.data.show, passes)
        return load_ahead(dataset, self.training.settings.workers)


def make_trainer(training: VlmTraining, base: BaseModel, data: TrainingData, processes: Processes) -> Trainer:
    """Return what the training works with; features of the frozen tower are made here where they can be kept."""
    settings, recipe = training.settings, training.settings.hyperparameters
    if settings.gradient_checkpointing:  # transformers 5.23 gave it another name
        kind = "activation" if hasattr(base.model, "activation_checkpointing_enable") else "gradient"
        enable = getattr(base.model, f"{kind}_checkpointing_enable")
        enable(**{f"{kind}_checkpointing_kwargs": {"use_reentrant": False}})
    if processes.device != "cpu":
        fuse_norms(base.model)
    if settings.compile:
        for layer in base.model.get_decoder().layers:
            layer.compile(dynamic=True)  # one program for all layers and lengths
    store = _features(training, base, data, processes)
    network = processes.share(base.network, base.model.get_decoder().layers)
    config = optimizer_config(recipe)
    optimizer = MasterAdamW(network, config, processes.device)
    lengths, ranks = example_lengths(data.examples), (processes.rank, processes.world)
    # Pictures of several sizes part a pass; a pass of one example stays whole, so that processes have equally many.
    micro = 1 if processes.world > 1 and store is None else settings.micro_batch_size
    order = BatchOrder(lengths, recipe.batch_size, micro, recipe.epochs, training.seed, *ranks)
    return Trainer(training, data, base, processes, network, optimizer, config, order, store)


def optimizer_config(recipe: Recipe) -> OptimizerConfig:
    """Return what the optimizer needs of a recipe."""
    return OptimizerConfig(recipe.lr, recipe.warmup, recipe.weight_decay)


def eval_interval(settings: VlmSettings, steps: int) -> int:
    """Return the steps between validations."""
    return settings.eval_every or math.ceil(steps / _VALIDATIONS)


# What a training would take: parameters, memory and time, from a forward and backward pass that are measured.

_MB = 1e6
_FLOAT32 = 4  # bytes
_MEASURED = 2  # passes, of which the last counts: the first also compiles and fills caches
_FORWARD_SHARE = 1 / 3  # of a training pass, which validation takes


def estimate(training: VlmTraining, named: Named, data: TrainingData, processes: Processes) -> list[str]:
    """Load the model, measure one forward pass and its backward pass, and tell in sentences what a training takes."""
    settings = replace(training.settings, cache_gb=0.0, workers=0)
    base = load_base(named, trained_parts(settings), processes.device, training_dtype(settings, processes.device))
    trainer = make_trainer(replace(training, settings=settings), base, data, processes)
    seconds, activations = _measure(trainer)  # of one example, decoded already, vision tower included
    parameters = list(base.model.parameters())
    trained, optimizer = sum(p.numel() for p in parameters if p.requires_grad), trainer.optimizer
    # Float32 copies of what computes in bfloat16.
    masters = sum(p.nbytes for p in optimizer.masters.values()) if optimizer.apart else 0
    parts = {
        "weights": sum(p.nbytes for p in parameters) + masters,
        "gradients": trained * _FLOAT32 + masters // 2,
        "optimizer": 2 * trained * _FLOAT32,
        "activations": activations,
    }
    told = ", ".join(f"{name} {size / _MB:,.0f}" for name, size in parts.items())
    steps, epochs = trainer.order.steps, settings.hyperparameters.epochs
    checks = math.ceil(steps / eval_interval(settings, steps))
    passes = len(data.examples) * epochs + len(data.validation) * checks * _FORWARD_SHARE
    return [
        f"{len(data.examples):,} examples, {len(data.validation):,} to validate by, {epochs} epochs: {steps:,} steps",
        f"{trained / _MB:,.1f} of {sum(p.numel() for p in parameters) / _MB:,.1f} million parameters are trained",
        f"memory: about {sum(parts.values()) / _MB:,.0f} MB ({told})",
        f"time: about {passes * seconds / 60:,.1f} minutes on {processes.device}, {seconds:.3g} s an example",
    ]


def _measure(trainer: Trainer) -> tuple[float, int]:
    """Return the seconds of one example, and the bytes that one forward pass keeps for its backward pass."""
    batch = next(trainer.batches(0))[0].to(trainer.processes.device)
    set_training(trainer.base.model)
    kept: dict[int, int] = {}

    def keep(value: Tensor) -> Tensor:
        if not isinstance(value, torch.nn.Parameter):
            kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    seconds = 0.0
    for _ in range(_MEASURED):
        started = time.perf_counter()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            loss = answer_loss(trainer.network(batch), batch)
        loss.backward()
        float(loss.detach())  # waits for a GPU
        seconds = time.perf_counter() - started
    return seconds / len(batch.places), sum(kept.values())
