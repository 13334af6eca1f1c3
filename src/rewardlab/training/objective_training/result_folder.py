"""The result of a training: a folder for `contrastive:` with a calibration and a model card."""

from rewardlab.core.run import atomic_write
from rewardlab.core.version import __version__
from rewardlab.models.backends.level_map import LevelMap
from rewardlab.training.objective_training.backbone_parts import read_upstreams
from rewardlab.training.objective_training.plan import ObjectivePlan
from rewardlab.training.objective_training.training_loop import Fitted, TrainingJob, Workbench

LEVELS, CARD = "levels.json", "README.md"


def model_string(job: TrainingJob) -> str:
    """Return the string by which the trained pair is named, with its calibration."""
    return f"contrastive:{job.folder}?levels={job.folder / LEVELS}"


def write_result(job: TrainingJob, bench: Workbench, plan: ObjectivePlan, found: Fitted) -> None:
    """Write the pair as it is now, and its card."""
    bench.pair.write(job.folder)
    with atomic_write(job.folder / CARD) as partial:
        partial.write_text(_card(job, plan, found, read_upstreams(bench.pair.folder)), encoding="utf-8")


def write_levels(job: TrainingJob, level_map: LevelMap) -> None:
    """Write the map from similarity to level beside the pair."""
    level_map.write(job.folder / LEVELS)


def _card(job: TrainingJob, plan: ObjectivePlan, found: Fitted, upstreams: str) -> str:
    entry, options = job.objective.entry, ", ".join(f"{k} {v}" for k, v in job.objective.options.items())
    return f"""# A contrastive reward model, trained with {job.objective.text}

Trained with rewardlab {__version__}. The reward of a frame is its similarity to the instruction. Use it as
`contrastive:FOLDER?levels=FOLDER/{LEVELS}`; without the levels its answers are an order and no more.

- **Objective**: {entry.summary} {f"Options: {options}." if options else ""}
- **Backbone**: {upstreams}. Whoever passes the folder on is bound by these licences.
- **Data**: {", ".join(plan.data)}, seed {plan.seed}; whole tasks are kept from the training.
- **Training**: {job.steps} steps of {job.batch} clips, learning rate {job.numbers.rate:g}, seed {job.seed}.
- **Kept**: the checkpoint of step {found.step}, with a validation agreement of {found.agreement:.3f} (share of pairs
  of frames in the order of their true progress, within and across clips of tasks that were trained on).

Nothing is known of robots, cameras and tasks unlike those of the data: measure before you trust it.
"""
