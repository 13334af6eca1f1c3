"""The catalog of perturbations. Adding one is one function in a family file and its name in a list here."""

from dataclasses import replace

from rewardlab.core.catalog import Catalog, find, load_object
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import CLEAN
from rewardlab.perturbations.composition import compose, random_member
from rewardlab.perturbations.contract import Perturbation
from rewardlab.perturbations.domain.distractors import distractor_objects
from rewardlab.perturbations.domain.mirror import mirror
from rewardlab.perturbations.domain.scene_appearance import background_replace, robot_recolour, table_texture
from rewardlab.perturbations.semantic.added_text import (
    completion_claim,
    irrelevant_detail,
    metadata_leak,
    polite_filler,
    prompt_injection,
)
from rewardlab.perturbations.semantic.goal_changes import added_requirement, ambiguous_reference, negation, task_swap
from rewardlab.perturbations.semantic.paraphrase import paraphrase, synonym, word_order
from rewardlab.perturbations.semantic.spelling import case_spacing, char_edit, number_form, ocr_confusion, typo_keyboard
from rewardlab.perturbations.semantic.swaps import colour_swap, object_swap, relation_flip
from rewardlab.perturbations.semantic.translation import language
from rewardlab.perturbations.temporal.frame_corruption import (
    bit_error,
    black_frames,
    frame_blend,
    packet_loss,
    splice_foreign,
)
from rewardlab.perturbations.temporal.frame_sequence import (
    crop_start,
    drop_random,
    drop_uniform,
    freeze_middle,
    global_shuffle,
    hold_last,
    jitter_index,
    latency,
    local_shuffle,
    loop_twice,
    reverse,
    slow_down,
    speed_up,
    stutter,
    time_warp,
    truncate_end,
)
from rewardlab.perturbations.visual.blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur
from rewardlab.perturbations.visual.camera import camera_move, elastic, lens_barrel, lens_crop, tilt
from rewardlab.perturbations.visual.lighting import (
    brightness_up,
    contrast_down,
    desaturate,
    exposure_flicker,
    hard_shadow,
    light_cool,
    light_gradient,
    light_temperature,
    oversaturate,
)
from rewardlab.perturbations.visual.noise import (
    fixed_pattern_noise,
    gaussian_noise,
    impulse_noise,
    low_light,
    shot_noise,
    speckle_noise,
)
from rewardlab.perturbations.visual.occlusion import occlusion_patch, success_overlay
from rewardlab.perturbations.visual.sensor_and_codec import (
    aspect_squeeze,
    codec,
    codec_h265,
    jpeg,
    pixelate,
    resample,
    resolution,
    sensor_swap,
)
from rewardlab.perturbations.visual.weather import fog, frost, snow, spatter
from rewardlab.perturbations.world import WORLD_PERTURBATIONS

# A small spread of the catalogue, two of each category: what `stress` applies unless told otherwise.
QUICK = (
    "gaussian_noise",
    "low_light",
    "paraphrase",
    "task_swap",
    "drop_uniform",
    "truncate_end",
    "table_texture",
    "distractor_objects",
)
# Corruptions of the pixels, the same wherever the camera stands:
CORRUPTIONS = (
    gaussian_noise,
    shot_noise,
    impulse_noise,
    speckle_noise,
    fixed_pattern_noise,
    gaussian_blur,
    defocus_blur,
    motion_blur,
    zoom_blur,
    glass_blur,
    brightness_up,
    low_light,
    exposure_flicker,
    contrast_down,
    desaturate,
    oversaturate,
    jpeg,
    pixelate,
    resample,
    elastic,
    tilt,
    spatter,
    frost,
    fog,
    snow,
    occlusion_patch,
)
VISUAL = (
    *CORRUPTIONS,
    camera_move,
    lens_crop,
    lens_barrel,
    light_temperature,
    light_cool,
    light_gradient,
    hard_shadow,
    sensor_swap,
    resolution,
    aspect_squeeze,
    codec,
    codec_h265,
    success_overlay,
    *(p for p in WORLD_PERTURBATIONS if p.category == "visual"),
)

SEMANTIC = (
    typo_keyboard,
    char_edit,
    ocr_confusion,
    case_spacing,
    number_form,
    polite_filler,
    irrelevant_detail,
    synonym,
    paraphrase,
    word_order,
    language,
    ambiguous_reference,
    colour_swap,
    object_swap,
    relation_flip,
    negation,
    added_requirement,
    task_swap,
    completion_claim,
    metadata_leak,
    prompt_injection,
)

TEMPORAL = (
    drop_uniform,
    drop_random,
    freeze_middle,
    stutter,
    hold_last,
    speed_up,
    slow_down,
    time_warp,
    jitter_index,
    local_shuffle,
    global_shuffle,
    reverse,
    loop_twice,
    truncate_end,
    crop_start,
    latency,
    black_frames,
    frame_blend,
    splice_foreign,
    packet_loss,
    bit_error,
)

DOMAIN = (
    background_replace,
    table_texture,
    robot_recolour,
    distractor_objects,
    mirror,
    *(p for p in WORLD_PERTURBATIONS if p.category == "domain"),
)
FAMILIES = {"visual": VISUAL, "semantic": SEMANTIC, "temporal": TEMPORAL, "domain": DOMAIN}


def choose_perturbations(names: tuple[str, ...], *, worlds: bool = True) -> tuple[Perturbation, ...]:
    """Return those meant by names, categories, `quick`, `all`, `none`, `a+b` or `random:CATEGORY`, each once.

    Without `worlds`, for data that no simulator can render again, `all` and categories leave out changed worlds.
    """
    chosen: dict[str, Perturbation] = {}
    for name in dict.fromkeys(names):
        for perturbation in _meant(name, worlds):
            if perturbation.name == CLEAN or chosen.get(perturbation.name, perturbation) != perturbation:
                raise PlanError(f"two perturbations are called {perturbation.name!r}; rename yours")
            chosen[perturbation.name] = perturbation
    return tuple(chosen.values())


def is_in_catalogue(name: str) -> bool:
    """Tell whether a name stands for entries of the catalogue alone, so that choosing it imports no other code."""
    head, _, category = name.partition(":")
    return all(":" not in part for part in name.split("+")) or (head == "random" and category in FAMILIES)


def _meant(name: str, worlds: bool) -> tuple[Perturbation, ...]:
    if name == "none":
        return ()
    if name == "quick":
        return tuple(PERTURBATIONS[member] for member in QUICK)
    if name == "all":
        return tuple(p for family in FAMILIES for p in _family(family, worlds))
    if name in FAMILIES:
        return _family(name, worlds)
    head, _, category = name.partition(":")
    if head == "random":
        return (random_member(category, _family(category, worlds)),)
    parts = [_single(part) for part in name.split("+")]
    if len(parts) > 2:
        raise PlanError(f"a composition has two parts, a+b; got {len(parts)} in {name!r}")
    return (compose(*parts),) if len(parts) == 2 else (parts[0],)


def _family(category: str, worlds: bool) -> tuple[Perturbation, ...]:
    return tuple(p for p in find(FAMILIES, category, "category") if worlds or not p.uses_world)


def _single(name: str) -> Perturbation:
    """Return an entry of the catalogue, or the perturbation outside the package at `package.module:name`."""
    if ":" not in name:
        return find(PERTURBATIONS, name, "perturbation or category")
    return _load(name)


def _load(path: str) -> Perturbation:
    found, code = load_object(path)
    if not isinstance(found, Perturbation):
        raise PlanError(
            f"{path} must be a Perturbation, made with on_frames, on_order or on_instruction, got {found!r}"
        )
    return replace(found, content=code)


PERTURBATIONS = Catalog(
    {p.name: p for p in (*VISUAL, *SEMANTIC, *TEMPORAL, *DOMAIN)}, "perturbations", lambda name, path: _load(path)
)
