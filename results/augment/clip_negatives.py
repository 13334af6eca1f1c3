"""Do the factory's negatives help a model that sees the clip? `python clip_negatives.py MADE JUDGED PAIR WORK`.

MADE is the folder `validate` of `rewardlab data augment`, JUDGED a dataset of rollouts of every quality
with other seeds, PAIR a folder with all-MiniLM-L6-v2 beside an image encoder, such as `backbones/tinyvit` of a run of
`rewardlab train objective`; only its sentence encoder is used. Frames are encoded by the frozen encoder of `pocket`.
A head learns five levels by cross-entropy, from successes alone (another task's words are a level 1) or from what the
factory made as well, in equally many steps of equally many rows. Tasks of fold 0 are not trained on. What was encoded
and trained is kept in WORK; the numbers are written to WORK/clip_negatives.json.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from compare_training import Floats, Judged, by_quality, by_task, interval
from numpy.typing import NDArray
from torch import Tensor, nn

from rewardlab.core.seeding import rng_for
from rewardlab.data import open_dataset
from rewardlab.data.video import VideoFile
from rewardlab.models.projected_pair import ProjectedPair, load_projected_pair
from rewardlab.rl.rewards import open_encoder
from rewardlab.worlds.metaworld.tasks import unseen_tasks

FRAMES, COMPONENTS = 8, 256
STEPS, BATCH, RATE, SEEDS = 800, 64, 1e-3, 3
DROPOUT, HOLD = 0.5, 0.7
HEADS = {"8 frames": (tuple(range(FRAMES)), 256), "first and last": ((0, FRAMES - 1), 128)}  # frames seen, width
# Of a batch, the share of clips and of counterfactual commands; of the rest every second row gets another task's words.
WITHOUT, WITH = "without negatives", "with negatives"
ARMS = {WITHOUT: (0.0, 0.0), WITH: (0.25, 0.25), "with clips alone": (0.5, 0.0), "with commands alone": (0.0, 0.5)}
SIDE_ARMS = (WITHOUT, WITH)  # of the second head
Row = dict


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the head sees them: (rows, frames, components), (rows, words), and what is true of them."""

    frames: Tensor
    words: Tensor
    level: NDArray[np.int64]
    task: NDArray[np.str_]
    stage: NDArray[np.str_]


class Head(nn.Module):
    """From some frames, what changed from the first to the last, and the instruction, which gates them, to levels."""

    def __init__(self, seen: Sequence[int], width: int, components: int, words: int) -> None:
        super().__init__()
        self.seen, parts = list(seen), len(seen) + 1
        self.image = nn.Linear(components, width)
        self.text = nn.Sequential(nn.LayerNorm(words), nn.Linear(words, width))
        self.gate, self.drop = nn.Linear(width, parts * width), nn.Dropout(DROPOUT)
        self.mlp = nn.Sequential(
            *(nn.Linear((parts + 1) * width, width), nn.SiLU(), nn.Dropout(DROPOUT)),
            *(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 5)),
        )

    def forward(self, frames: Tensor, words: Tensor) -> Tensor:
        """Return the logits of the levels."""
        images = self.image(self.drop(frames[:, self.seen]))
        text = self.text(self.drop(words))
        parts = torch.cat([images, images[:, -1:] - images[:, :1]], 1).flatten(1)
        return self.mlp(torch.cat([nn.functional.silu(parts * (1 + self.gate(text))), text], 1))


def encode_rows(folder: Path, rows: list[Row], pair: ProjectedPair, path: Path) -> dict[str, NDArray]:
    """Return the frames of every row, (rows, frames, numbers), and its words; from the file where that is there.

    A clip's frames are those of the video that it was cut from: its own file was encoded twice, which no judged video
    was, and nothing shall be learned from that.
    """
    if not path.exists():
        encoder, frames = open_encoder(), []
        for row in rows:
            about = row.get("provenance", {})
            video = VideoFile(folder / about.get("source_episode", row["file_name"]).partition("#")[0])
            shown = len(row["progress"]) if about.get("stage") == "clip" else video.count
            picked = np.linspace(0, shown - 1, FRAMES).round().astype(np.int64)
            (tokens,) = encoder.encode_frames([video.read(picked)])
            frames.append(tokens.reshape(FRAMES, -1).astype(np.float16))
        texts = [row["task"] for row in rows]
        words = np.concatenate([pair.sentence_vectors(texts[at : at + 64]).numpy() for at in range(0, len(texts), 64)])
        np.savez(path, frames=np.stack(frames), words=words)
    with np.load(path) as known:
        return dict(known)


def principal_components(frames: NDArray) -> Callable[[NDArray], NDArray[np.float32]]:
    """Return what takes frames to their components among these, the larger ones made smaller by a square root."""
    flat = torch.from_numpy(frames.reshape(-1, frames.shape[-1]).astype(np.float32))
    centre = flat.mean(0)
    torch.manual_seed(0)
    _, size, axes = torch.svd_lowrank(flat - centre, COMPONENTS, niter=4)
    deviation = size / len(flat) ** 0.5
    axes = axes / (deviation * deviation.mean()).sqrt()
    return lambda some: ((torch.from_numpy(some.astype(np.float32)) - centre) @ axes).numpy()


def read_rows(folder: Path) -> list[Row]:
    """Return the rows of a dataset."""
    return [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]


def as_rows(encoded: dict[str, NDArray], rows: list[Row], project: Callable[[NDArray], NDArray[np.float32]]) -> Rows:
    """Return rows as the head sees them."""
    return Rows(
        torch.from_numpy(project(encoded["frames"])),
        torch.from_numpy(encoded["words"]),
        np.array([row["reward"] for row in rows], np.int64),
        np.array([row["task_id"] for row in rows]),
        np.array([row.get("provenance", {}).get("stage", "source") for row in rows]),
    )


def train(rows: Rows, name: str, arm: str, seed: int, path: Path) -> Head:
    """Return a head that was trained on the rows of an arm, from the file where that is there."""
    rng = rng_for(seed, "clip negatives", arm)
    torch.manual_seed(int(rng_for(seed, "head").integers(2**31)))
    head = Head(*HEADS[name], rows.frames.shape[-1], rows.words.shape[-1])
    if path.exists():
        head.load_state_dict(torch.load(path, weights_only=True))
        return head.eval()
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for _ in range(STEPS):
        videos, texts, level = draw_batch(rows, ARMS[arm], rng)
        logits = head(held(rows.frames[videos], rng), rows.words[texts])
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, torch.from_numpy(level - 1)).backward()
        optimizer.step()
        schedule.step()
    torch.save(head.state_dict(), path)
    print(f"trained {path.name}", file=sys.stderr, flush=True)
    return head.eval()


def held(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Return clips that run faster and then stand still at their end, each for another share of the time."""
    still = rng.uniform(0, HOLD, len(frames))[:, None]
    last = FRAMES - 1
    place = np.minimum(last, np.round(np.arange(FRAMES)[None] / (1 - still))).astype(np.int64)
    return frames[torch.arange(len(frames))[:, None], torch.from_numpy(place)]


def draw_batch(
    rows: Rows, shares: tuple[float, float], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return whose frames, whose words and which level each row of a batch has."""
    clips, commands = (int(BATCH * share) for share in shares)
    won = np.flatnonzero(np.isin(rows.stage, ("source", "rewrite")))
    parts = (("clip", clips), ("counterfactual", commands))
    chosen = [rng.choice(np.flatnonzero(rows.stage == stage), count) for stage, count in parts if count]
    videos = np.concatenate([*chosen, rng.choice(won, BATCH - clips - commands)])
    texts, level = videos.copy(), rows.level[videos]
    for place in range(BATCH - (BATCH - clips - commands) // 2, BATCH):
        texts[place] = rng.choice(won[rows.task[won] != rows.task[videos[place]]])
        level[place] = 1
    return videos, texts, level


def rewards_of(head: Head, rows: Rows) -> Floats:
    """Return the expected level of every row."""
    with torch.no_grad():
        probs = torch.softmax(head(rows.frames, rows.words).double(), 1).numpy()
    return probs @ np.arange(1, 6)


def judge(rewards: dict[str, Floats], judged: Judged, tasks: list[str]) -> dict[str, object]:
    """Return the success AUC of every model on some tasks, and its difference to the one without negatives."""
    scores = {name: by_task(each, judged, tasks) for name, each in rewards.items()}
    pairs = {name: f"{name.partition(': ')[0]}: {WITHOUT}" for name in scores if ": with " in name}
    return {
        "tasks": len(tasks),
        "success_auc": {name: interval(each) for name, each in scores.items()},
        "differences": {name: interval(scores[name] - scores[other]) for name, other in pairs.items()},
        "by_quality": {name: by_quality(each, judged, tasks) for name, each in rewards.items()},
        "by_task": {
            name: dict(zip(tasks, each.mean(0).round(3).tolist(), strict=True)) for name, each in scores.items()
        },
    }


def main() -> None:
    """Encode, train, judge and write the numbers."""
    made_folder, judged_folder, pair_folder, work = (Path(word) for word in sys.argv[1:5])
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    pair = load_projected_pair(pair_folder, "cpu", torch.float32)
    made = read_rows(made_folder)
    encoded = encode_rows(made_folder, made, pair, work / "made.npz")
    kept = [place for place, row in enumerate(made) if row["task_id"] not in unseen_tasks(0)]
    made, encoded = [made[place] for place in kept], {name: each[kept] for name, each in encoded.items()}
    won = [place for place, row in enumerate(made) if row["provenance"]["stage"] in ("source", "rewrite")]
    project = principal_components(encoded["frames"][won])
    training = as_rows(encoded, made, project)
    heads: dict[str, list[Head]] = {}
    for name in HEADS:
        for arm in ARMS if name == "8 frames" else SIDE_ARMS:
            key = f"{name}: {arm}"
            files = [work / f"{key.replace(': ', '-').replace(' ', '_')}-{seed}.pt" for seed in range(SEEDS)]
            heads[key] = [train(training, name, arm, seed, file) for seed, file in enumerate(files)]
    asked = read_rows(judged_folder)
    rows = as_rows(encode_rows(judged_folder, asked, pair, work / "judged.npz"), asked, project)
    judged = Judged(open_dataset(str(judged_folder)).episodes, asked)
    rewards = {key: np.stack([rewards_of(head, rows) for head in each]) for key, each in heads.items()}
    rewards |= {"clock": judged.frames[None], "constant": np.zeros((1, len(asked)))}
    stages = {stage: int((training.stage == stage).sum()) for stage in np.unique(training.stage)}
    found: dict[str, object] = {"trained_on": stages, "episodes": len(asked), "successes": int(judged.success.sum())}
    for name, seen in (("seen tasks", True), ("unseen tasks", False)):
        tasks = judged.tasks(frozenset(training.task), seen=seen)
        if tasks:
            found[name] = judge(rewards, judged, tasks)
    (work / "clip_negatives.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name in ("seen tasks", "unseen tasks"):
        part = found.get(name, {})
        print(name, json.dumps({key: part.get(key) for key in ("tasks", "success_auc", "differences")}, indent=1))


if __name__ == "__main__":
    main()
