"""The model card of a training: data, recipe, steps, errors beside a constant's, and the command."""

from collections import Counter
from dataclasses import dataclass, replace

from rewardlab.core.command_settings import as_command
from rewardlab.core.version import __version__
from rewardlab.training.vlm.plan import VlmTraining
from rewardlab.training.vlm.training_loop import TrainingData
from rewardlab.training.vlm.training_state import Progress
from rewardlab.training.vlm.validation import LevelErrors


@dataclass(frozen=True)
class ModelCard:
    """What a reader must know of a model that was trained."""

    training: VlmTraining
    data: TrainingData
    progress: Progress
    errors: LevelErrors
    constant: tuple[float, float]  # the level that sees nothing, and its error

    def text(self, model: str) -> str:
        """Return the card, in Markdown, of the model with this string."""
        plan = self.training.plan
        return f"""# {self.training.out.name}: a reward model that answers 1 to 5

{plan.model}, fine-tuned with rewardlab {__version__} to answer the RoboReward prompt. Use it as `{model}`.

- **Data**: {", ".join(plan.data)}; {self._examples()}.
- **Validation**: {len(self.data.validation)} examples ({self.data.rule}), by which the checkpoint was chosen.
- **Recipe** `{plan.recipe}`: {self._recipe()}; frames `{plan.frames}`, seed {self.training.seed}.
- **Steps**: {self.progress.step}; kept is the checkpoint of step {self.progress.best_step}.

| validation examples | mean absolute error of the level |
|---|---|
{self._rows()}

Trained with

    {self._command()}

Nothing is known of robots, cameras and tasks unlike those of the data: measure before you trust it.
"""

    def _examples(self) -> str:
        examples = self.data.examples
        sources = Counter(example.source for example in examples).items()
        levels = sorted(Counter(example.level for example in examples).items())
        by_source = ", ".join(f"{count} {source}" for source, count in sources)
        by_level = ", ".join(f"{count} of level {level}" for level, count in levels)
        return f"mixture `{self.training.mixture}`: {by_source} examples ({by_level})"

    def _recipe(self) -> str:
        plan, numbers = self.training.plan, self.training.plan.numbers
        trained = (
            f"LoRA of rank {plan.lora} in the language layers and fusion" if plan.lora else "fusion and language layers"
        )
        return (
            f"vision tower frozen, {trained} trained; {numbers.epochs} epochs, learning rate {numbers.rate:g} with a "
            f"warm-up of {numbers.warm_up} and a cosine decay, weight decay {numbers.weight_decay}, gradients clipped "
            f"at {numbers.max_norm}, {numbers.batch} examples a step"
        )

    def _rows(self) -> str:
        level, error = self.constant
        rows = [f"| {name} | {value:.3f} |" for name, value in self.errors.mae.items()]
        return "\n".join([*rows, f"| all, by the constant {level:g} that sees nothing | {error:.3f} |"])

    def _command(self) -> str:
        training = self.training
        plan = replace(training.plan, mixture=(training.mixture,), seeds=(training.seed,), out=training.out)
        return as_command("train-vlm", plan).replace("train-vlm", "train vlm", 1)
