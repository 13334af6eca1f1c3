"""Learning: draw lessons, take steps, check on rollouts never learned from; it can be stopped and gone on with."""

import json
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn

from rewardlab.core.run import writing
from rewardlab.core.seeding import rng_for
from rewardlab.models.pocket import WORDS
from rewardlab.models.pocket.wordpiece import load_words
from rewardlab.train.pocket.batches import Facts, Lesson, lessons, whole_clips, without_texts
from rewardlab.train.pocket.holdout import recorded_split
from rewardlab.train.pocket.network import LEVELS, SHAPES, Pocket
from rewardlab.train.pocket.onnx_export import export
from rewardlab.train.pocket.plan import PocketPlan
from rewardlab.train.pocket.rendered_clips import render_all
from rewardlab.train.pocket.rollouts import load_rollouts, shards_of, simulate_all
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.objects import OTHER_OBJECTS

_TELL_EVERY = 100  # steps
_EMA, _FOLLOW_EVERY = 0.99, 4  # share of the slow weights that is kept, every so many steps
_WARM_UP, _DECAY = 0.05, 0.05
_ANOTHER_TASK = OTHER_OBJECTS["coffee-button"][0]  # asks for a task that stays unseen, and is never seen done
_WAYS_COUNT = 0.2  # how much the ways count in the loss
_SHIFT = 4  # pixels by which a batch is moved at most
# What is done to words in training, so that an instruction is more than a name for a known scene:
_SILENCE = 0.6  # the largest share of words left out of a text
_BLUR = 0.3  # noise on the vectors, so that a word stands for its neighbours too
_UNTOLD = 0.15  # share of clips under their own instruction that must be judged without it
_RENAMED = 0.4  # share of such clips in whose text some or all words become any others
_HEARD = 0.7  # share of these others that are words of other instructions


@dataclass(frozen=True, eq=False)
class Store:
    """Everything that lessons need, on the device that learns."""

    facts: Facts
    pixels: dict[str, Tensor]
    words: Tensor  # (pieces + 1, width); the last row stands for no piece
    heard: Tensor  # the numbers of the pieces that instructions are made of


def train_pocket(plan: PocketPlan) -> None:
    """Simulate, film and train every variant of the plan; what is already there is not made again."""
    plan.out.mkdir(parents=True, exist_ok=True)
    recorded_split(plan)  # before the workers ask for it
    started = time.monotonic()
    simulate_all(plan)
    print(f"{time.monotonic() - started:.0f} s: rollouts are there", flush=True)
    store = make_store(plan, robust=any(name != "pocket-plain" for name in plan.variants))
    print(f"{time.monotonic() - started:.0f} s: pictures are there", flush=True)
    for variant in plan.variants:
        learn(plan, variant, store)
        export(plan, variant, plan.out)
        print(f"{time.monotonic() - started:.0f} s: {variant} is trained", flush=True)


def make_store(plan: PocketPlan, *, robust: bool) -> Store:
    """Film everything and put it on the device, one kind of picture after the other."""
    pixels: dict[str, Tensor] = {}
    views: list[Any] = []
    for kind in ("plain0", *(("view", "world") if robust else ()), "plain1"):
        frames, found = render_all(plan, kind, plan.out)
        pixels[kind] = _uploaded(frames, plan.device)
        views = found or views
        if kind != "plain0":  # views are made of it
            (plan.out / f"{kind}.npy").unlink()
    (plan.out / "plain0.npy").unlink()
    words = load_words(WORDS)
    table = torch.cat([torch.from_numpy(words.vectors), torch.zeros(1, words.vectors.shape[1])])
    facts = make_facts(plan, views)
    texts = {text for row in facts.training for text in facts.texts[row]}
    heard = np.unique([words.ids(text) for text in texts])
    return Store(facts, pixels, table.to(plan.device), torch.from_numpy(heard[heard >= 0]).to(plan.device))


def _uploaded(frames: NDArray[np.uint8], device: str) -> Tensor:
    held = torch.empty(frames.shape, dtype=torch.uint8, device=device)
    for start in range(0, len(frames), 1024):
        held[start : start + 1024] = torch.from_numpy(np.array(frames[start : start + 1024])).to(device)
    return held


def make_facts(plan: PocketPlan, views: list[Any]) -> Facts:
    """Read what is known about every rollout."""
    shards = [shard for shard in shards_of(plan) for _ in range(shard.count)]
    rollouts = [r for shard in shards_of(plan) for r in load_rollouts(plan.out / "rollouts" / shard.name)]
    unheard = {
        text for task, lists in phrasings().items() if task not in plan.split("train") for text in lists["train"]
    }
    every = Facts(
        tasks=tuple(shard.task for shard in shards),
        progress=np.array([[reading.progress for reading in r.trajectory.readings] for r in rollouts], np.float32),
        gripper_pos=np.array([r.trajectory.gripper_pos for r in rollouts], np.float32),
        object_pos=np.array([r.trajectory.object_pos for r in rollouts], np.float32),
        texts=tuple(r.texts for r in rollouts),
        others=tuple(r.others for r in rollouts),
        views=tuple(views),
        training=np.array([i for i, shard in enumerate(shards) if shard.part != "check"]),
    )
    return without_texts(every, unheard | {_ANOTHER_TASK})


def learn(plan: PocketPlan, variant: str, store: Store) -> None:
    """Train one variant from its last checkpoint on, and write its weights and what it says of the checks."""
    torch.manual_seed(plan.seed)
    torch.backends.cudnn.deterministic = True
    model, slow = (_fresh(plan, variant) for _ in range(2))
    slow.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(_groups(model), lr=plan.rate, betas=(0.9, 0.98), weight_decay=_DECAY)
    start = _resume(plan, variant, model, slow, optimizer)
    for step, lesson in enumerate(lessons(plan, variant, store.facts, start), start=start):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * _pace(step / plan.steps_of(variant))
        rng = rng_for(plan.seed, "step", variant, step)
        torch.manual_seed(int(rng.integers(2**31)))
        loss = _step(store, model, optimizer, lesson, rng)
        if step % _FOLLOW_EVERY == 0:
            _follow(slow, model, min(_EMA, (1 + step) / (10 + step)))
        if (step + 1) % _TELL_EVERY == 0:
            print(f"{variant} step {step + 1} loss {float(loss):.4f}", flush=True)
        if (step + 1) % plan.check_every == 0 or step + 1 == plan.steps_of(variant):
            _note(plan, variant, store, {"step": step + 1, "loss": float(loss)}, check(plan, store, slow))
            _save(plan, variant, step + 1, model, slow, optimizer)
    with writing(plan.out / f"{variant}.pt") as partial:
        torch.save({key: value.cpu() for key, value in slow.state_dict().items()}, partial)


def _fresh(plan: PocketPlan, variant: str) -> Pocket:
    torch.manual_seed(plan.seed + 1)
    model = Pocket(replace(SHAPES[variant], size=plan.size))
    model.to(plan.device)
    if plan.device != "cpu":
        model.to(memory_format=torch.channels_last)
    return model


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    """Return the weights, of which matrices decay and all else does not."""
    parts = {flat: [p for p in model.parameters() if (p.ndim < 2) == flat] for flat in (False, True)}
    return [{"params": parts[False]}, {"params": parts[True], "weight_decay": 0.0}]


def _pace(share: float) -> float:
    """Return the learning rate as a share of the highest: a short way up, a cosine down."""
    return min(share / _WARM_UP, 1.0) * 0.5 * (1 + float(np.cos(np.pi * share)))


def _step(
    store: Store, model: Pocket, optimizer: torch.optim.Optimizer, lesson: Lesson, rng: np.random.Generator
) -> Tensor:
    device = store.words.device
    model.train()
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
        progress, levels, ways = model(_frames(store, lesson, rng), *_words(store, lesson, rng))
    loss = loss_of(progress.float(), levels.float(), _there(lesson.progress, store), _there(lesson.level, store))
    loss = loss + _WAYS_COUNT * way_loss(ways.float(), _there(lesson.ways, store))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def loss_of(progress: Tensor, levels: Tensor, true_progress: Tensor, true_level: Tensor) -> Tensor:
    """Return cross-entropy and distance of level and success, mostly at the end, and cross-entropy of progress."""
    known = (true_level > 0).float()
    place = torch.arange(known.shape[1], device=known.device)
    last = (place == (known * place).argmax(1, keepdim=True)).float() * known
    weight = 0.5 * known / known.sum(1, keepdim=True).clamp(min=1) + 0.5 * last
    target = (true_level - 1).clamp(min=0)
    entropy = nn.functional.cross_entropy(levels.transpose(1, 2), target, reduction="none", label_smoothing=0.02)
    mean = (levels.softmax(-1) * torch.arange(1.0, 6.0, device=levels.device)).sum(-1)
    distance = (mean - true_level).abs()
    success = nn.functional.binary_cross_entropy_with_logits(
        levels[..., -1] - levels[..., :-1].logsumexp(-1), (true_level == LEVELS).float(), reduction="none"
    )
    seen = torch.isfinite(true_progress).float()
    soft = nn.functional.binary_cross_entropy_with_logits(progress, true_progress.nan_to_num(0.0), reduction="none")
    far = (soft * seen).sum() / seen.sum().clamp(min=1)
    return ((entropy + 0.3 * distance + 0.3 * success) * weight).sum() / weight.sum().clamp(min=1) + 0.5 * far


def way_loss(ways: Tensor, true_ways: Tensor) -> Tensor:
    """Return how far off the ways are, in tenths of a metre; what is seen to move is seen so in every scene."""
    seen = torch.isfinite(true_ways).float()
    off = nn.functional.smooth_l1_loss(ways, true_ways.nan_to_num(0.0) * 10, reduction="none")
    return (off * seen).sum() / seen.sum().clamp(min=1)


def _frames(store: Store, lesson: Lesson, rng: np.random.Generator | None) -> Tensor:
    """Gather the pixels of a lesson; in training the whole batch is moved by some pixels."""
    side = next(iter(store.pixels.values())).shape[2]
    device = store.words.device
    frames = torch.empty((len(lesson.row), lesson.order.shape[1], side, side, 3), dtype=torch.uint8, device=device)
    for kind in dict.fromkeys(lesson.source.tolist()):
        mine = np.flatnonzero(lesson.source == kind)
        rows, order = _there(lesson.row[mine], store), _there(lesson.order[mine], store)
        frames[_there(mine, store)] = store.pixels[kind][rows[:, None], order]
    if rng is None:
        return frames
    down, right = (int(move) for move in rng.integers(-_SHIFT, _SHIFT + 1, 2))
    index = torch.arange(side, device=device)
    return frames[:, :, (index + down).clamp(0, side - 1)][:, :, :, (index + right).clamp(0, side - 1)]


def _there(values: NDArray[Any], store: Store) -> Tensor:
    """Bring numbers to the device without waiting for it."""
    held = torch.from_numpy(values)
    return held if store.words.device.type == "cpu" else held.pin_memory().to(store.words.device, non_blocking=True)


def _words(store: Store, lesson: Lesson, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
    """Return the vectors of the words and which of them are there; in training some are left out."""
    ids = _there(lesson.text, store)
    known = (ids >= 0).float()
    if rng is None:
        return store.words[ids], known  # -1 takes the last row, which is zero
    own = _there(lesson.own, store)[:, None]
    chance = torch.rand((3, *ids.shape), device=ids.device)
    fate, share, silence = torch.rand((3, len(ids), 1), device=ids.device)
    renamed = own & (fate >= 1 - _RENAMED) & (chance[0] < 1.2 * share) & (ids >= 0)
    strange = torch.randint(len(store.words) - 1, ids.shape, device=ids.device)
    heard = store.heard[torch.randint(len(store.heard), ids.shape, device=ids.device)]
    ids = torch.where(renamed, torch.where(chance[1] < _HEARD, heard, strange), ids)
    known = known * (chance[2] >= _SILENCE * silence) * ~(own & (fate < _UNTOLD))
    vectors = store.words[ids]
    return (vectors + _BLUR * torch.randn_like(vectors)) * known[..., None], known


@torch.no_grad()
def _follow(slow: nn.Module, model: nn.Module, keep: float) -> None:
    for old, new in zip(slow.state_dict().values(), model.state_dict().values()):
        if old.dtype.is_floating_point:
            old.lerp_(new, 1 - keep)
        else:
            old.copy_(new)


def check(plan: PocketPlan, store: Store, model: Pocket) -> dict[str, NDArray[np.float32]]:
    """Return what the model says at the end of every rollout that it does not learn from, and the truth."""
    rows = np.setdiff1d(np.arange(len(store.facts.tasks)), store.facts.training)
    logits = asked(store, model, whole_clips(store.facts, rows), plan.batch)
    return {"rows": rows, "logits": logits, "level": store.facts.levels[rows, -1]}


@torch.no_grad()
def asked(store: Store, model: Pocket, lesson: Lesson, batch: int) -> NDArray[np.float32]:
    """Return the logits of the level at the end of every clip, as the lesson shows and asks it."""
    model.eval()
    parts = []
    for some in np.array_split(np.arange(len(lesson.row)), max(1, len(lesson.row) // batch)):
        part = Lesson(**{name: values[some] for name, values in vars(lesson).items()})
        _, levels, _ = model(_frames(store, part, None), *_words(store, part, None))
        parts.append(levels[:, -1].float().cpu().numpy())
    return np.concatenate(parts)


def median_levels(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the level that the models answer with: the median of its probabilities."""
    return np.asarray(1 + (softmax(logits, axis=1).cumsum(1) < 0.5).sum(1))


def scores_of(plan: PocketPlan, store: Store, said: dict[str, NDArray[np.float32]]) -> dict[str, float]:
    """Return the error per level, averaged over tasks, on seen and on unseen tasks, and the accuracy of success."""
    guess = median_levels(said["logits"])
    tasks = np.array([store.facts.tasks[int(row)] for row in said["rows"]])
    wrong, right = np.abs(guess - said["level"]), (guess == 5) == (said["level"] == 5)
    scores = {}
    for name, members in (("seen", plan.split("train")), ("unseen", plan.split("val"))):
        groups = [wrong[tasks == task] for task in members if (tasks == task).any()]
        scores[f"{name} mae"] = float(np.mean([group.mean() for group in groups])) if groups else float("nan")
        mine = np.isin(tasks, members)
        scores[f"{name} success"] = float(right[mine].mean()) if mine.any() else float("nan")
    return scores


def _note(
    plan: PocketPlan, variant: str, store: Store, row: dict[str, float], said: dict[str, NDArray[np.float32]]
) -> None:
    """Write down what the model says of the checks, and add a line to its curve."""
    np.savez_compressed(plan.out / f"{variant}-checks.npz", allow_pickle=False, **said)
    row |= scores_of(plan, store, said)
    print(f"{variant} " + ", ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True)
    with (plan.out / f"{variant}-curve.jsonl").open("a") as handle:
        handle.write(json.dumps(row) + "\n")


def _save(
    plan: PocketPlan, variant: str, step: int, model: nn.Module, slow: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    state = {"step": step, "model": model.state_dict(), "slow": slow.state_dict(), "optimizer": optimizer.state_dict()}
    with writing(plan.out / f"{variant}.checkpoint") as partial:
        torch.save(state, partial)


def _resume(plan: PocketPlan, variant: str, model: nn.Module, slow: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    path = plan.out / f"{variant}.checkpoint"
    if not path.exists():
        return 0
    state = torch.load(path, map_location=plan.device, weights_only=True)
    model.load_state_dict(state["model"])
    slow.load_state_dict(state["slow"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
