"""Each objective is its formula: equal to a slow reference in loops, finite on degenerate batches, able to overfit."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs rewardlab[train]")

from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for
from rewardlab.training.objectives.contract import DRAWS, ClipBatch
from rewardlab.training.objectives.losses import OBJECTIVES, name_objective

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def unit(values: np.ndarray) -> np.ndarray:
    return np.asarray(values / np.linalg.norm(values, axis=-1, keepdims=True))


def make_batch(
    name: str = "batch",
    success: tuple[bool, ...] = (True, False, True, True, False, True),
    frames: int = 6,
    width: int = 5,
) -> ClipBatch:
    rng, clips = rng_for(0, name), len(success)
    progress = np.sort(rng.uniform(0, 0.99, (clips, frames)), axis=1)
    progress[np.array(success, bool), -1] = 1.0
    level = 1 + sum((progress >= start).astype(int) for start in (0.1, 0.4, 0.7, 1.0))
    return ClipBatch(
        torch.from_numpy(unit(rng.normal(size=(clips, frames, width)))),
        torch.from_numpy(unit(rng.normal(size=(clips, width)))),
        torch.from_numpy(progress),
        torch.from_numpy(level),
        torch.tensor(success, dtype=torch.bool),
        torch.arange(clips) // 2,
        torch.tensor(success, dtype=torch.bool),
        torch.from_numpy(rng.uniform(size=(clips, DRAWS))),
    )


class Loops:
    """The formulas with plain numbers, one clip after the other."""

    def __init__(self, batch: ClipBatch) -> None:
        self.images, self.texts = batch.images.numpy(), batch.texts.numpy()
        self.progress, self.level = batch.progress.numpy(), batch.level.numpy()
        self.success, self.task, self.draws = batch.success.numpy(), batch.task.numpy(), batch.draws.numpy()
        self.done = batch.done.numpy()
        self.clips, self.frames = self.images.shape[:2]
        self.won = [b for b in range(self.clips) if self.success[b]]
        self.last = self.frames - 1

    def cos(self, text: int, clip: int, frame: int) -> float:
        return float(self.texts[text] @ self.images[clip, frame])

    def value(self, text: int, clip: int, frame: int) -> float:
        return (1 + self.cos(text, clip, frame)) / 2

    def align(self, temperature: float, extra: tuple[int, ...] = ()) -> float:
        losses = []
        for a in self.won:
            own = math.exp(self.cos(a, a, self.last) / temperature)
            others = [b for b in self.won if self.task[b] != self.task[a]]
            texts = own + sum(math.exp(self.cos(a, b, self.last) / temperature) for b in (*others, *extra))
            ends = own + sum(math.exp(self.cos(b, a, self.last) / temperature) for b in others)
            losses.append(-math.log(own / texts) / 2 - math.log(own / ends) / 2)
        return float(np.mean(losses))

    def infonce(self) -> float:
        return self.align(0.07)

    def triplet(self, semi_hard: bool = False) -> float:
        across, in_time = [], []
        for a in self.won:
            positive = self.cos(a, a, self.last)
            found = [
                self.cos(a, b, self.last) for b in range(self.clips) if self.task[b] != self.task[a] or not self.done[b]
            ]
            if semi_hard and found:
                below = [s for s in found if s < positive]
                found = [max(below) if below else min(found)]
            across += [np.mean([max(0.0, 0.2 + s - positive) for s in found])] if found else []
            later = 1 + int(self.draws[a, 0] * self.last)
            earlier = int(self.draws[a, 1] * later)
            in_time.append(max(0.0, 0.2 + self.cos(a, a, earlier) - self.cos(a, a, later)))
        return float((np.mean(across) if across else 0.0) + np.mean(in_time))

    def vlc(self) -> float:
        failed = tuple(b for b in range(self.clips) if not self.done[b])
        falls = [max(0.0, self.cos(a, a, t) - self.cos(a, a, t + 1)) for a in self.won for t in range(self.last)]
        return self.align(0.07, failed) + 33 * float(np.mean(falls))

    def three(self, clip: int) -> tuple[int, int, int]:
        u = self.draws[clip]
        first = int(u[0] * (self.frames - 2))
        middle = first + 1 + int(u[1] * (self.frames - first - 2))
        return first, middle, middle + 1 + int(u[2] * (self.frames - middle - 1))

    def near(self, a: np.ndarray, b: np.ndarray) -> float:
        return -float(np.linalg.norm(a - b))

    def time_contrast(self) -> float:
        losses, n = [], len(self.won)
        for place, a in enumerate(self.won):
            i, j, k = self.three(a)
            e0, e1, e2 = (self.images[a, t] for t in (i, j, k))
            others = [self.won[(place + shift) % n] for shift in range(1, min(3, n - 1) + 1)]
            s01, s02, s12 = math.exp(self.near(e0, e1)), math.exp(self.near(e0, e2)), math.exp(self.near(e1, e2))
            neg2 = sum(math.exp(self.near(e2, self.images[b, self.three(b)[2]])) for b in others)
            neg0 = sum(math.exp(self.near(e0, self.images[b, self.three(b)[0]])) for b in others)
            losses.append((-math.log(s12 / (s02 + s12 + neg2)) - math.log(s01 / (s01 + s02 + neg0))) / 2)
        return float(np.mean(losses))

    def tcn(self) -> float:
        return self.time_contrast() + self.align(1.0)

    def r3m(self) -> float:
        losses, n = [], len(self.won)
        for place, a in enumerate(self.won):
            i, j, k = self.three(a)
            for which, (later, before) in enumerate(((self.last, 0), (j, i), (k, j))):
                positive = math.exp(self.cos(a, a, later) / 0.1)
                below = positive + math.exp(self.cos(a, a, before) / 0.1)
                for b in (self.won[(place + shift) % n] for shift in range(1, min(3, n - 1) + 1)):
                    theirs = (self.last, self.three(b)[1], self.three(b)[2])[which]
                    below += 0 if self.task[b] == self.task[a] else math.exp(self.cos(a, b, theirs) / 0.1)
                losses.append(-math.log(positive / below))
        return self.time_contrast() + float(np.mean(losses))

    def dual(self, values: list[list[float]], gamma: float) -> float:
        terms = []
        for row in values:
            for t, value in enumerate(row):
                reward, following = (0.0, row[t]) if t == self.last else (-1.0, row[t + 1])
                terms.append(math.exp(-(reward + gamma * following - value)))
        return (1 - gamma) * -float(np.mean([row[0] for row in values])) + math.log(1e-8 + float(np.mean(terms)))

    def vip(self) -> float:
        return self.dual(
            [[self.near(self.images[a, t], self.texts[a]) for t in range(self.frames)] for a in self.won], 0.98
        )

    def liv(self) -> float:
        total, n, gamma = self.align(1.0), len(self.won), 0.98
        for goals in (self.images[:, -1], self.texts):
            total += self.dual([[float(o @ goals[a]) / (1 - gamma) for o in self.images[a]] for a in self.won], gamma)
            terms = []
            for shift in range(1, min(3, n - 1) + 1):
                for place, a in enumerate(self.won):
                    row = [float(o @ goals[a]) / (1 - gamma) for o in self.images[self.won[(place + shift) % n]]]
                    pairs = zip(row, [*row[1:], row[-1]], strict=True)
                    terms += [math.exp(-(-1 + gamma * following - value)) for value, following in pairs]
            total += math.log(1e-8 + float(np.mean(terms))) if terms else 0.0
        return total

    def rewind(self) -> float:
        matched, mismatched = [], []
        for a in self.won:
            turn = int(self.draws[a, 1] * self.last) + 1 if self.draws[a, 0] < 0.8 else self.frames
            for place in range(self.frames):
                shown = place if place <= turn else max(0, 2 * turn - place)
                matched.append((self.value(a, a, shown) - shown / self.last) ** 2)
            others = [b for b in self.won if self.task[b] != self.task[a]]
            if others:
                b = others[int(self.draws[a, 2] * len(others))]
                mismatched += [self.value(b, a, t) ** 2 for t in range(self.frames)]
        return float(np.mean(matched)) + (float(np.mean(mismatched)) if mismatched else 0.0)

    def entropy(self, value: float, centres: list[float], width: float, target: int) -> float:
        weights = [math.exp(-(((value - c) / width) ** 2) / 2) for c in centres]
        return -math.log(weights[target] / sum(weights))

    def labelled(self) -> list[tuple[int, int]]:
        return [(b, t) for b in range(self.clips) for t in range(self.frames) if np.isfinite(self.progress[b, t])]

    def progress_bins(self) -> float:
        centres = [(k + 0.5) / 10 for k in range(10)]
        targets = [(b, t, min(9, int(self.progress[b, t] * 10))) for b, t in self.labelled()]
        return float(np.mean([self.entropy(self.value(b, b, t), centres, 0.1, target) for b, t, target in targets]))

    def classification(self) -> float:
        centres = [k / 4 for k in range(5)]
        targets = [(b, t, int(self.level[b, t]) - 1) for b, t in self.labelled()]
        return float(np.mean([self.entropy(self.value(b, b, t), centres, 0.2, target) for b, t, target in targets]))

    def ordinal(self) -> float:
        losses = []
        for b, t in self.labelled():
            for k in range(1, 5):
                above = 1 / (1 + math.exp(-(self.value(b, b, t) - (k - 0.5) / 4) / 0.1))
                losses.append(-math.log(above if self.level[b, t] > k else 1 - above))
        return float(np.mean(losses))

    def bradley_terry(self) -> float:
        def prefer(better: float, worse: float) -> float:
            return math.log1p(math.exp(-(better - worse) / 0.1))

        within, across = [], []
        for a in range(self.clips):
            for t in range(self.frames):
                for u in range(self.frames):
                    if self.progress[a, t] - self.progress[a, u] >= 0.1:
                        within.append(prefer(self.cos(a, a, t), self.cos(a, a, u)))
            for b in range(self.clips):
                if self.task[a] == self.task[b] and self.progress[a, -1] - self.progress[b, -1] >= 0.1:
                    across.append(prefer(self.cos(a, a, self.last), self.cos(a, b, self.last)))
        return (float(np.mean(within)) if within else 0.0) + (float(np.mean(across)) if across else 0.0)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("success", [(True, False, True, True, False, True), (True, True, False), (True,)], ids=len)
def test_a_loss_is_its_formula(name: str, success: tuple[bool, ...]) -> None:
    batch = make_batch(name, success)
    slow: Callable[[], float] = vars(Loops)[name].__get__(Loops(batch))
    assert float(OBJECTIVES[name].loss(batch)) == pytest.approx(slow(), rel=1e-5)


@pytest.mark.parametrize("name", ["triplet", "vlc"])
def test_a_clip_that_shows_its_task_done_is_no_failure_of_it(name: str) -> None:
    batch = make_batch()
    counterfactual = replace(batch, done=torch.tensor([True, True, True, True, False, True]))
    loss = name_objective(name).loss(counterfactual)
    assert float(loss) == pytest.approx(getattr(Loops(counterfactual), name)(), rel=1e-6)
    assert float(loss) != pytest.approx(float(name_objective(name).loss(batch)), rel=1e-3)


def test_options_change_what_the_formula_says() -> None:
    batch = make_batch()
    slow = Loops(batch)
    assert float(name_objective("triplet?semi_hard=yes").loss(batch)) == pytest.approx(slow.triplet(semi_hard=True))
    assert float(name_objective("tcn?alignment=0").loss(batch)) == pytest.approx(slow.time_contrast())
    goal = [[slow.near(o, slow.images[a, -1]) for o in slow.images[a]] for a in slow.won]
    assert float(name_objective("vip?goal=image").loss(batch)) == pytest.approx(slow.dual(goal, 0.98), rel=1e-5)
    assert float(name_objective("infonce?temperature=0.5").loss(batch)) == pytest.approx(slow.align(0.5))


def hard_unknown(batch: ClipBatch) -> ClipBatch:
    unknown = torch.zeros_like(batch.level)
    return replace(batch, progress=torch.full_like(batch.progress, torch.nan), level=unknown)


DEGENERATE: dict[str, Callable[[], ClipBatch]] = {
    "no success": lambda: make_batch(success=(False, False)),
    "one success": lambda: make_batch(success=(True,)),
    "one frame": lambda: make_batch(success=(True, False, True), frames=1),
    "two frames": lambda: make_batch(success=(True, False, True), frames=2),
    "one task": lambda: replace(make_batch(), task=torch.zeros(6, dtype=torch.long)),
    "nothing known": lambda: hard_unknown(make_batch(success=(False, False, False))),
    "all frames the same": lambda: replace(make_batch(), images=make_batch().images[:1, :1].expand(6, 6, -1).clone()),
    "every frame is its text": lambda: replace(
        make_batch(), images=make_batch().texts[:, None].expand(-1, 6, -1).clone()
    ),
    "no clip": lambda: make_batch(success=()),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_degenerate_batches_have_finite_losses_and_gradients(name: str, case: str) -> None:
    made = DEGENERATE[case]()
    images, texts = made.images.clone().requires_grad_(), made.texts.clone().requires_grad_()
    loss = OBJECTIVES[name].loss(replace(made, images=images, texts=texts))
    loss.backward()
    assert loss.ndim == 0 and torch.isfinite(loss)
    for part in (images, texts):
        assert part.grad is None or torch.isfinite(part.grad).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_overfits_eight_clips(name: str) -> None:
    success = (True, True, False, True, False, True, True, False)
    batch = replace(make_batch("eight", success, frames=5, width=16), task=torch.arange(8) % 4)
    images, texts = (part.clone().float().requires_grad_() for part in (batch.images, batch.texts))
    optimizer = torch.optim.Adam([images, texts], lr=0.05)

    def embedded() -> ClipBatch:
        return replace(
            batch,
            images=torch.nn.functional.normalize(images, dim=-1),
            texts=torch.nn.functional.normalize(texts, dim=-1),
            draws=batch.draws,
        )

    first = float(OBJECTIVES[name].loss(embedded()).detach())
    for _ in range(120):
        optimizer.zero_grad()
        loss = OBJECTIVES[name].loss(embedded())
        loss.backward()
        optimizer.step()
    fitted = embedded()
    last = float(loss.detach())
    won = fitted.success
    assert last < first - 0.25 * abs(first) or last < 0.05
    if name == "tcn":  # without words it orders frames, and its InfoNCE finds the clips
        assert (
            (fitted.texts @ fitted.images[won, -1].T)[won].argmax(1) == torch.arange(int(won.sum()))
        ).float().mean() > 0.5
        return
    rises = fitted.similarity[won, -1] - fitted.similarity[won, 0]
    assert (rises > 0).float().mean() >= 0.8, rises


def test_a_function_outside_the_package_is_an_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_losses.py").write_text(
        "def squared(batch, weight: float = 1.0):\n    return weight * (1 - batch.similarity[:, -1]).square().mean()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = name_objective("my_losses:squared?weight=2")
    batch = make_batch()
    assert float(mine.loss(batch)) == pytest.approx(2 * float((1 - batch.similarity[:, -1]).square().mean()))
    assert mine.entry.name == "squared" and len(mine.code) == 64 and not name_objective("triplet").code
    sys.modules.pop("my_losses")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tripplet", "did you mean triplet"),
        ("triplet?margn=1", "takes no option 'margn'; did you mean margin"),
        ("triplet?margin=much", "option margin must be a number, got 'much'"),
        ("vip?goal=sound", "text or image, got 'sound'"),
        ("math:pi", "must be a function of a batch"),
        ("sys:maxsize", "must be a function of a batch"),  # built in: it has no file
        ("no_such_module:loss", "cannot import 'no_such_module'"),
    ],
)
def test_what_is_no_objective_is_said_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        name_objective(text).loss(make_batch())


def test_the_page_lists_every_objective_with_what_is_tuned() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "train-objective.md").read_text()
    for name, entry in OBJECTIVES.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"`{entry.option}`" in row.split("|")[-2]
