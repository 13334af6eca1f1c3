"""Judge what was trained with and without negatives: `python compare_training.py JUDGED TRAINED OUT.json [DEVICE]`.

TRAINED holds folders of `rewardlab train objective`, as negatives.py makes them. A model sees the last frame of a
rollout and its instruction; its reward is their cosine, as in `contrastive:`. The success AUC is that of the successes
and failures of one task, averaged over tasks; intervals are from drawing tasks and seeds again, alike for all models.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rewardlab.core.episode import show_only
from rewardlab.core.seeding import rng_for
from rewardlab.data import open_dataset
from rewardlab.models.projected_pair import PROJECTIONS, load_projected_pair
from rewardlab.training.objectives.clips import listed_files, read_shards

DRAWS = 10_000
Floats = NDArray[np.float64]
_AT_ONCE = 256


def rewards_of(folders: list[Path], episodes: list, device: str) -> Floats:
    """Return the reward of the last frame of every episode by every model, (models, episodes)."""
    from safetensors.torch import load_file

    pair = load_projected_pair(folders[0], device, torch.float32)
    frames = [show_only(episode, np.array([len(episode.clip) - 1])).clip.read()[0] for episode in episodes]
    places = range(0, len(frames), _AT_ONCE)
    images = torch.cat([pair.image_tokens(frames[start : start + _AT_ONCE]) for start in places])
    texts = pair.sentence_vectors([episode.instruction for episode in episodes])
    found = []
    for folder in folders:
        pair.projections.load_state_dict(load_file(folder / PROJECTIONS))
        with torch.no_grad():
            cosine = torch.cosine_similarity(pair.projections.images(images), pair.projections.texts(texts))
        found.append(cosine.double().cpu().numpy())
    return np.stack(found)


def auc(rewards: Floats, success: NDArray[np.bool_]) -> float:
    """Return the chance that a success has more than a failure; ties are half right."""
    gaps = rewards[success][:, None] - rewards[~success][None]
    return float((gaps > 0).mean() + (gaps == 0).mean() / 2)


def by_task(rewards: Floats, judged: "Judged", tasks: list[str]) -> Floats:
    """Return the success AUC of each task by each model, (models, tasks)."""
    rows = [judged.task == task for task in tasks]
    return np.array([[auc(each[row], judged.success[row]) for row in rows] for each in rewards])


class Judged:
    """What is known of the judged rollouts."""

    def __init__(self, episodes: list, rows: list[dict]) -> None:
        self.task = np.array([episode.provenance.task for episode in episodes])
        self.success = np.array([bool(episode.label.success) for episode in episodes])
        self.frames = np.array([float(len(episode.clip)) for episode in episodes])
        self.quality = np.array([row["quality"] for row in rows])

    def tasks(self, trained: frozenset[str], *, seen: bool) -> list[str]:
        """Return the tasks that have both successes and failures, and were trained on or not."""
        won = {task: self.success[self.task == task] for task in sorted(set(self.task))}
        return [task for task, each in won.items() if (task in trained) == seen and 0 < each.sum() < len(each)]


def interval(values: Floats) -> list[float]:
    """Return the mean over (seeds, tasks) with its 95 % interval, both drawn again."""
    seeds, tasks = values.shape
    rng = rng_for(0, "tasks and seeds")
    by_seed, by_task = rng.integers(seeds, size=(DRAWS, seeds)), rng.integers(tasks, size=(DRAWS, tasks))
    means = np.array([values[np.ix_(some, others)].mean() for some, others in zip(by_seed, by_task, strict=True)])
    low, high = np.percentile(means, (2.5, 97.5))
    return [round(float(number), 3) for number in (values.mean(), low, high)]


def trained_tasks(trained: Path) -> frozenset[str]:
    """Return the tasks that all trainings saw."""
    tables = [read_shards(listed_files(folder / "clips") or []) for folder in sorted(trained.iterdir())]
    seen = [{clip.task for clip in table.clips if clip.seen} for table in tables]
    return frozenset(set.intersection(*seen))


def models_of(trained: Path) -> dict[str, list[Path]]:
    """Return the folders of the seeds by the name of each model, and of the backbone before any objective."""
    found = {"aligned backbone": [trained / "both" / "backbones" / "tinyvit"]}
    for folder in sorted(trained.glob("*/trainings/*/*")):
        objective = folder.name.removeprefix("without_negatives-").rpartition("-")[0]
        found[f"{objective} on {folder.parts[-4]}"] = sorted(folder.glob("seed*"))
    return found


def compared(scores: Mapping[str, Floats]) -> dict[str, list[float]]:
    """Return the difference of each model with negatives to the one without, seed by seed."""
    with_them = {name: name.partition("_")[0] for name in scores if "_with " in name or "_by_" in name}
    return {
        f"{name} - {family}_without": interval(scores[name] - scores[f"{family}_without on both"])
        for name, family in with_them.items()
    }


def by_quality(rewards: Floats, judged: Judged, tasks: list[str]) -> dict[str, float | None]:
    """Return the success AUC against the failures of each quality, over tasks and seeds."""
    found: dict[str, float | None] = {}
    for quality in sorted(set(judged.quality)):
        values = []
        for task in tasks:
            rows = (judged.task == task) & (judged.success | (judged.quality == quality))
            if 0 < judged.success[rows].sum() < rows.sum():
                values.append(np.mean([auc(each[rows], judged.success[rows]) for each in rewards]))
        found[quality] = round(float(np.mean(values)), 3) if values else None
    return found


def main() -> None:
    """Judge with every model and write the numbers."""
    folder, trained, out = (Path(word) for word in sys.argv[1:4])
    device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
    episodes = open_dataset(str(folder)).episodes
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    judged, models, seen = Judged(episodes, rows), models_of(trained), trained_tasks(trained)
    flat = rewards_of([path for paths in models.values() for path in paths], episodes, device)
    ends = np.cumsum([len(paths) for paths in models.values()])[:-1]
    rewards = dict(zip(models, np.split(flat, ends), strict=True))
    rewards |= {"clock": judged.frames[None], "constant": np.zeros((1, len(episodes)))}
    found: dict[str, object] = {"episodes": len(episodes), "successes": int(judged.success.sum())}
    for name, is_seen in (("seen tasks", True), ("unseen tasks", False)):
        tasks = judged.tasks(seen, seen=is_seen)
        if not tasks:
            continue
        scores = {model: by_task(each, judged, tasks) for model, each in rewards.items()}
        found[name] = {
            "tasks": len(tasks),
            "success_auc": {model: interval(each) for model, each in scores.items()},
            "differences": compared(scores),
            "by_quality": {model: by_quality(each, judged, tasks) for model, each in rewards.items()},
            "by_task": {
                m: dict(zip(tasks, each.mean(axis=0).round(3).tolist(), strict=True)) for m, each in scores.items()
            },
        }
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name in ("seen tasks", "unseen tasks"):
        print(json.dumps({key: found.get(name, {}).get(key) for key in ("success_auc", "differences")}, indent=1))


if __name__ == "__main__":
    main()
