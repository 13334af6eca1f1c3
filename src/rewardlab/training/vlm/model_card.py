"""The model card of a training: data, recipe, steps, errors beside a constant's, and the command."""

from collections import Counter
from dataclasses import dataclass, replace

from rewardlab.core.command_settings import as_command
from rewardlab.core.version import __version__
from rewardlab.training.training_state import Progress
from rewardlab.training.vlm.plan import VlmTraining
from rewardlab.training.vlm.training_loop import TrainingData
from rewardlab.training.vlm.validation import ValidationErrors

_MEASURES = {"mae": "mean absolute error of the level", "loss": "cross-entropy of the caption, per token"}


@dataclass(frozen=True)
class ModelCard:
    """What a reader must know of a model that was trained."""

    training: VlmTraining
    data: TrainingData
    progress: Progress
    errors: ValidationErrors
    constant: tuple[float, float] | None  # the level that sees nothing, and its error; none for captions

    def text(self, model: str) -> str:
        """Return the card, in Markdown, of the model with this string."""
        plan = self.training.plan
        return f"""# {self.training.out.name}: {self._title(model)}

- **Data**: {", ".join(plan.data)}; {self._examples()}.
- **Validation**: {len(self.data.validation)} examples ({self.data.rule}), by which the checkpoint was chosen.
- **Recipe** `{plan.recipe}`: {self._recipe()}; frames `{plan.frames}`, seed {self.training.seed}.
- **Steps**: {self.progress.step}; kept is the checkpoint of step {self.progress.best_step}.

| validation examples | {_MEASURES[self.errors.measure]} |
|---|---|
{self._rows()}

Trained with

    {self._command()}

Nothing is known of robots, cameras and tasks unlike those of the data: measure before you trust it.
"""

    def _title(self, model: str) -> str:
        made = f"{self.training.plan.model}, trained with rewardlab {__version__}"
        if self.training.plan.captions:
            return f"""a vision-language model whose projector has learned captions

{made} to describe clips; the next stage teaches it levels: `rewardlab train vlm {model.removeprefix("hf:")} DATA`."""
        return f"""a reward model that answers 1 to 5

{made} to answer the RoboReward prompt. Use it as `{model}`."""

    def _examples(self) -> str:
        examples = self.data.examples
        if self.training.plan.captions:
            return f"{len(examples)} clips with a caption"
        sources = Counter(example.source for example in examples).items()
        levels = sorted(Counter(example.level for example in examples).items())
        by_source = ", ".join(f"{count} {source}" for source, count in sources)
        by_level = ", ".join(f"{count} of level {level}" for level, count in levels)
        return f"mixture `{self.training.mixture}`: {by_source} examples ({by_level})"

    def _recipe(self) -> str:
        plan, numbers = self.training.plan, self.training.plan.numbers
        adapters = f"LoRA of rank {plan.lora} in the language layers and fusion"
        in_full = "the fusion alone" if plan.captions else "fusion and language layers"
        trained = adapters if plan.lora else in_full
        return (
            f"vision tower frozen, {trained} trained; {numbers.epochs} epochs, learning rate {numbers.rate:g} with a "
            f"warm-up of {numbers.warm_up} and a cosine decay, weight decay {numbers.weight_decay}, gradients clipped "
            f"at {numbers.max_norm}, {numbers.batch} examples a step"
        )

    def _rows(self) -> str:
        rows = [f"| {name} | {value:.3f} |" for name, value in self.errors.by_source.items()]
        if self.constant is not None:
            level, error = self.constant
            rows.append(f"| all, by the constant {level:g} that sees nothing | {error:.3f} |")
        return "\n".join(rows)

    def _command(self) -> str:
        training = self.training
        plan = replace(training.plan, mixture=(training.mixture,), seeds=(training.seed,), out=training.out)
        return as_command("train-vlm", plan).replace("train-vlm", "train vlm", 1)
