"""What holds for every entry of the catalogue; a new entry is tested the day it lands."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import get_args

import cv2
import numpy as np
import pytest

from rewardlab.core.episode import Episode, Frames, Label, Provenance, episode_from_frames
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.seeding import digest, pick, rng_for
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.perturbations import BY_NAME, FAMILIES, PERTURBATIONS, choose_perturbations
from rewardlab.perturbations.contract import LabelEffect, Perturbation, PerturbedEpisode
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from rewardlab.testing import check_perturbation
from tests.perturbations import attempt

# What a clip shows, and what the robot is told: together every entry of the catalogue applies to one of them.
REAL_CLIPS = (
    ("robometer_page/", "put the 2 red cups on the blue plate", "kitchen"),
    ("robometer_page/", "open the drawer", "kitchen"),
    ("robometer_page/", "move the orange cup from left to right", "workshop"),
    ("bridge_v2/9be3d357ea", "press the third button two times", "workshop"),
)
SIMULATED_CLIP = ("metaworld/button-press-0004", "Push in the button.")


def small_clips() -> tuple[Episode, ...]:
    """Real clips, eight frames of 64 px each, of several tasks and subsets."""
    episodes = list(open_dataset("sample").episodes)
    clips = []
    for prefix, instruction, subset in REAL_CLIPS:
        episode = next(e for e in episodes if e.id.startswith(prefix))
        episodes.remove(episode)
        frames = sample_frames(episode, frame_policy("uniform:8")).frames
        small = np.stack([cv2.resize(frame, (80, 64), interpolation=cv2.INTER_AREA) for frame in frames])
        clip = episode_from_frames(small, instruction, label=Label(5, True, tuple(np.linspace(0, 1, 8))))
        clips.append(replace(clip, provenance=Provenance(subset, instruction)))
    return tuple(clips)


def simulated_clip() -> Episode:
    """Two frames of a recorded rollout whose world shows its goal marker."""
    prefix, instruction = SIMULATED_CLIP
    episode = next(e for e in open_dataset("sample-sim").episodes if e.id.startswith(prefix))
    world = {**(episode.sim_state or {}), "marker": True}
    return replace(sample_frames(episode, frame_policy("uniform:2")), instruction=instruction, sim_state=world)


CLIPS = small_clips()
NEAR = ("open the window", "close the drawer", "put the 2 red cups in the sink")  # close to instructions of the kitchen
DATASET = (*CLIPS, *(replace(CLIPS[3], instruction=text, provenance=Provenance("kitchen", text)) for text in NEAR))
SIMULATED = simulated_clip()


def clips_for(entry: Perturbation) -> tuple[Episode, ...]:
    """Return the clips on which an entry is tested; a rendered world needs a recorded rollout."""
    return (SIMULATED,) if entry in WORLD_PERTURBATIONS else CLIPS


def applied(p: Perturbation, episode: Episode, severity: int, seed: int = 3) -> PerturbedEpisode | None:
    change = attempt(p, episode, severity, seed, DATASET)
    return None if isinstance(change, str) else change


def outcome(change: PerturbedEpisode | None) -> str:
    if change is None:
        return "dropped"
    episode = change.episode
    return digest(
        episode.instruction, episode.clip.order.tobytes(), episode.frames.tobytes(), repr(episode.label), change.expect
    )


def all_outcomes() -> str:
    """Identify the output of every entry on one clip, for comparison between processes."""
    return digest(*(outcome(applied(p, CLIPS[0], s)) for p in PERTURBATIONS.values() for s in (1, 4)))


def test_the_catalogue_is_as_large_as_promised_and_names_are_unique() -> None:
    counts = Counter(p.category for p in PERTURBATIONS.values())
    assert counts["visual"] >= 22 and counts["semantic"] >= 19 and counts["temporal"] >= 18 and counts["domain"] >= 12
    assert len(PERTURBATIONS) == sum(len(family) for family in FAMILIES.values()) + len(BY_NAME)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_every_entry_applies_at_every_severity_and_keeps_the_contract(name: str) -> None:
    entry, changed = PERTURBATIONS[name], []
    for severity in (1, 2, 3, 4):
        changes = [(clip, applied(entry, clip, severity)) for clip in clips_for(entry)]
        changed = [clip for clip, change in changes if change]
        assert changed, f"every clip is dropped at severity {severity}"
        for clip, change in changes:
            if change:
                keeps_what_is_known(clip, change)
    check_perturbation(entry, changed[:2])


def keeps_what_is_known(clip: Episode, change: PerturbedEpisode) -> None:
    """The label is kept, changed or forgotten as the expectation says."""
    truth = change.episode.label
    if change.expect == "same":
        assert (truth.level, truth.success) == (clip.label.level, clip.label.success)
    elif change.expect == "relabel":
        assert truth.level is not None and truth.success == (truth.level == 5)
    elif change.expect in ("lower", "reversed"):
        assert truth.level is None or truth.level <= (clip.label.level or 5)
    if truth.progress is not None:
        assert len(truth.progress) == len(change.episode.clip)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_every_entry_is_described_in_one_sentence_with_a_parameter_per_severity(name: str) -> None:
    entry = PERTURBATIONS[name]
    assert entry.summary.endswith(".") and len(entry.summary) < 200
    assert len(entry.table) == 4 and entry.parameter and entry.based_on
    assert entry.label in get_args(LabelEffect)


@pytest.mark.slow
def test_another_process_makes_the_same_bytes() -> None:
    code = "from tests.perturbations.test_catalogue import all_outcomes; print(all_outcomes())"
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == all_outcomes()


def uses_chance(entry: Perturbation, clip: Episode) -> bool:
    """Tell whether an entry draws from its generator, by looking at the generator afterwards."""
    rng = rng_for(0, "probe")
    before = repr(rng.bit_generator.state)
    try:
        entry.apply(clip, entry.table[3], rng, DATASET)
    except NotApplicable:
        return False
    return repr(rng.bit_generator.state) != before


@pytest.mark.slow
@pytest.mark.parametrize("name", PERTURBATIONS)
def test_chance_is_drawn_anew_for_another_episode_and_another_seed(name: str) -> None:
    """An entry that draws at all gives one clip another result under another seed, on at least one clip."""
    entry = PERTURBATIONS[name]
    drawing = [clip for clip in clips_for(entry) if uses_chance(entry, clip)]
    results = [
        {outcome(applied(entry, clip, severity, seed)) for seed in range(6)} for clip in drawing for severity in (1, 4)
    ]
    assert not drawing or max(map(len, results)) > 1


def test_a_pair_applies_both_in_order_and_is_its_own_category() -> None:
    (both,) = choose_perturbations(("gaussian_noise+polite_filler",))
    change = both(CLIPS[0], 2, 3, CLIPS)
    assert change.expect == "same" and both.category == "pair"
    assert not np.array_equal(change.episode.frames, CLIPS[0].frames)
    assert change.episode.instruction != CLIPS[0].instruction
    check_perturbation(both, CLIPS[:2])


def test_a_pair_with_a_change_of_label_takes_its_label() -> None:
    (both,) = choose_perturbations(("truncate_end+gaussian_noise",))
    alone = PERTURBATIONS["truncate_end"](CLIPS[0], 3, 3).episode.label
    change = both(CLIPS[0], 3, 3)
    assert (change.expect, change.episode.label) == ("relabel", alone)
    unknown = replace(CLIPS[0], label=Label(5, True))
    assert both(unknown, 3, 3).expect == "lower"


@pytest.mark.parametrize(
    ("names", "truth", "expect"),
    [
        ("reverse+reverse", Label(5, True), "undefined"),
        ("global_shuffle+reverse", Label(5, True), "undefined"),
        ("reverse+local_shuffle", Label(5, True), "undefined"),
        ("reverse+polite_filler", Label(5, True), "reversed"),
        ("polite_filler+reverse", Label(5, True), "reversed"),
        ("negation+truncate_end", Label(1, False), "undefined"),
        ("truncate_end+polite_filler", Label(5, True), "lower"),
        ("truncate_end+polite_filler", Label(2, False), "undefined"),
    ],
)
def test_directions_compose_or_are_undefined(names: str, truth: Label, expect: str) -> None:
    (both,) = choose_perturbations((names,))
    clip = episode_from_frames(np.repeat(CLIPS[0].frames, 4, axis=0), "open the drawer", label=truth)
    assert both(clip, 4 if "reverse" in names else 2, 3, CLIPS).expect == expect


def test_a_random_draw_is_one_member_and_differs_between_episodes() -> None:
    (drawn,) = choose_perturbations(("random:visual",))
    frames = CLIPS[0].frames
    names = {drawn.member_for(episode_from_frames(frames, f"task {i}"), 0).name for i in range(40)}
    assert len(names) > 10
    assert names <= {p.name for p in FAMILIES["visual"]}
    assert "the same at every severity" in drawn.summary
    cells = [(clip, severity) for clip in CLIPS for severity in (1, 2, 3, 4)]
    outcomes = [outcome(applied(drawn, *cell)) for cell in cells]
    assert outcomes == [outcome(applied(drawn.member_for(cell[0], 3), *cell)) for cell in cells]
    assert len(set(outcomes)) > len(CLIPS)


@pytest.mark.parametrize("category", ["visual", "domain"])
def test_a_random_draw_needs_a_simulator_only_where_one_recorded_the_clip(category: str) -> None:
    (drawn,) = choose_perturbations((f"random:{category}",))
    assert [p for p in drawn.members if p.uses_world] == [p for p in WORLD_PERTURBATIONS if p.category == category]
    drawn_again = 0
    for i in range(60):
        clip = episode_from_frames(CLIPS[0].frames, f"task {i}")
        first = pick(drawn.members, rng_for(0, drawn.name, clip.clip.source.digest, clip.instruction))
        member = drawn.member_for(clip, 0)
        assert drawn.member_for(replace(clip, sim_state=SIMULATED.sim_state), 0) is first
        assert not member.uses_world and (first.uses_world or member is first)
        drawn_again += member is not first
    assert drawn_again > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [("a+b+c", "no perturbation"), ("jpeg+jpeg+jpeg", "two parts"), ("random:x", "category"), ("random:", "category")],
)
def test_a_composition_that_makes_no_sense_is_refused(name: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        choose_perturbations((name,))


@pytest.mark.parametrize("severity", [-1, 5, 1.5, "2"])
def test_a_severity_outside_the_scale_is_refused(severity: int) -> None:
    with pytest.raises(PlanError, match="severity must be"):
        PERTURBATIONS["jpeg"](CLIPS[0], severity, 0)


def odd_frames() -> dict[str, Frames]:
    base = CLIPS[0].frames
    return {
        "one frame": base[:1],
        "two frames": base[:2],
        "tiny": np.stack([cv2.resize(f, (4, 4)) for f in base]),
        "odd size": base[:, :63, :79],
        "black": np.zeros_like(base),
        "grey": np.repeat(base.mean(axis=-1, keepdims=True).astype(np.uint8), 3, axis=-1),
        "static": np.repeat(base[:1], 8, axis=0),
        "wide": base[:, :6],
        "thin": base[:2, :, :5],
        "one pixel": base[:3, :1, :1],
        "full size": np.stack([cv2.resize(f, (640, 480)) for f in base[:2]]),
    }


ODD = odd_frames()


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_odd_clips_work_or_are_dropped_with_a_reason(name: str) -> None:
    for kind, frames in ODD.items():
        episode = episode_from_frames(frames, CLIPS[0].instruction, label=Label(5, True))
        for severity in (1, 4):
            change = attempt(PERTURBATIONS[name], episode, severity, 3, DATASET)
            if isinstance(change, str):
                assert len(change) > 20, kind
                continue
            changed = change.episode.frames
            assert changed.dtype == np.uint8 and changed.shape[1:] == frames.shape[1:] and len(changed) > 0, kind


ODD_TEXTS = (
    "👍 открой ящик 👍",
    "افتح الدرج",
    "xyzzy plugh",
    "go",
    "put " * 3000 + "it down",
    "  Fold,  the (towel)!  ",
)


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: text[:12])
@pytest.mark.parametrize("name", [p.name for p in PERTURBATIONS.values() if "instruction" in p.channel])
def test_odd_instructions_work_or_are_dropped_with_a_reason(name: str, text: str) -> None:
    episode = replace(CLIPS[0], instruction=text)
    for severity in (1, 2, 3, 4):
        change = applied(PERTURBATIONS[name], episode, severity)
        assert change is None or change.episode.instruction.strip()


def test_undefined_and_dropped_cells_never_enter_an_accuracy() -> None:
    from rewardlab.core.trial_table import TrialTable, to_arrow
    from rewardlab.metrics import METRICS
    from rewardlab.metrics.contract import eligible
    from tests.core.test_run import trial

    rows = [
        trial("a"),
        replace(trial("b"), expectation="undefined"),
        replace(trial("c"), expectation="lower"),
        replace(trial("d"), status="dropped", level=None),
    ]
    table = TrialTable(to_arrow(rows))
    for name in ("macro_mae", "exact_accuracy", "success_accuracy", "kendall_tau_b"):
        assert eligible(table, METRICS[name].eligibility).tolist() == [True, False, False, False]
