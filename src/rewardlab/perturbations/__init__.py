"""The catalog of perturbations. Adding one is one function in a family file and its name in a list here."""

from dataclasses import replace

from rewardlab.core.catalog import Catalog, find, load_object
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import CLEAN, MIDWAY
from rewardlab.perturbations.composition import compose, from_middle, random_member
from rewardlab.perturbations.contract import Perturbation
from rewardlab.perturbations.domain import distractors, mirror, scene_appearance
from rewardlab.perturbations.semantic import added_text, goal_changes, paraphrase, spelling, swaps
from rewardlab.perturbations.temporal import frame_corruption, frame_sequence
from rewardlab.perturbations.visual import blur, camera, lighting, noise, occlusion, sensor_and_codec, weather
from rewardlab.perturbations.world import WORLD_PERTURBATIONS

# A small spread of the catalogue, two of each category: what `stress` applies unless told otherwise.
QUICK = (
    *("gaussian_noise", "low_light", "paraphrase", "task_swap"),
    *("drop_uniform", "truncate_end", "table_texture", "distractor_objects"),
)
# Corruptions of the pixels, the same wherever the camera stands:
CORRUPTIONS = (
    *(noise.gaussian_noise, noise.shot_noise, noise.impulse_noise, noise.speckle_noise, noise.fixed_pattern_noise),
    *(blur.gaussian_blur, blur.defocus_blur, blur.motion_blur, blur.zoom_blur, blur.glass_blur),
    *(lighting.brightness_up, noise.low_light, lighting.exposure_flicker, lighting.contrast_down),
    *(lighting.desaturate, lighting.oversaturate),
    *(sensor_and_codec.jpeg, sensor_and_codec.pixelate, sensor_and_codec.resample, camera.elastic, camera.tilt),
    *(weather.spatter, weather.frost, weather.fog, weather.snow, occlusion.occlusion_patch),
)
VISUAL = (
    *CORRUPTIONS,
    *(camera.camera_move, camera.lens_crop, camera.lens_barrel),
    *(lighting.light_temperature, lighting.light_cool, lighting.light_gradient, lighting.hard_shadow),
    *(sensor_and_codec.sensor_swap, sensor_and_codec.resolution, sensor_and_codec.aspect_squeeze),
    *(sensor_and_codec.codec, sensor_and_codec.codec_h265, occlusion.success_overlay),
    *(p for p in WORLD_PERTURBATIONS if p.category == "visual"),
)
SEMANTIC = (
    *(spelling.typo_keyboard, spelling.char_edit, spelling.ocr_confusion, spelling.case_spacing, spelling.number_form),
    *(added_text.polite_filler, added_text.irrelevant_detail),
    *(paraphrase.synonym, paraphrase.paraphrase, paraphrase.word_order, paraphrase.language),
    *(goal_changes.ambiguous_reference, swaps.colour_swap, swaps.object_swap, swaps.relation_flip),
    *(goal_changes.negation, goal_changes.added_requirement, goal_changes.task_swap),
    goal_changes.instruction_swap,
    *(added_text.completion_claim, added_text.metadata_leak, added_text.prompt_injection),
)
TEMPORAL = (
    *(frame_sequence.drop_uniform, frame_sequence.drop_random, frame_sequence.freeze_middle, frame_sequence.stutter),
    *(frame_sequence.hold_last, frame_sequence.speed_up, frame_sequence.slow_down, frame_sequence.time_warp),
    *(frame_sequence.jitter_index, frame_sequence.local_shuffle, frame_sequence.global_shuffle),
    *(frame_sequence.reverse, frame_sequence.loop_twice, frame_sequence.truncate_end, frame_sequence.crop_start),
    *(frame_sequence.latency, frame_corruption.black_frames, frame_corruption.frame_blend),
    *(frame_corruption.splice_foreign, frame_corruption.packet_loss, frame_corruption.bit_error),
)
DOMAIN = (
    *(scene_appearance.background_replace, scene_appearance.table_texture, scene_appearance.robot_recolour),
    *(distractors.distractor_objects, mirror.mirror),
    *(p for p in WORLD_PERTURBATIONS if p.category == "domain"),
)
# In no family, because no level is right there: for models that may answer that they cannot tell.
BY_NAME = (frame_corruption.covered_end,)
FAMILIES = {"visual": VISUAL, "semantic": SEMANTIC, "temporal": TEMPORAL, "domain": DOMAIN}


def choose_perturbations(names: tuple[str, ...], *, worlds: bool = True) -> tuple[Perturbation, ...]:
    """Return those meant by names, categories, `quick`, `all`, `none`, `a+b`, `midway:NAME` or
    `random:CATEGORY`, each once.

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
    return all(":" not in part.removeprefix(MIDWAY) for part in name.split("+")) or (
        head == "random" and category in FAMILIES
    )


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
    parts = [_part(part) for part in name.split("+")]
    if len(parts) > 2:
        raise PlanError(f"a composition has two parts, a+b; got {len(parts)} in {name!r}")
    return (compose(*parts),) if len(parts) == 2 else (parts[0],)


def _family(category: str, worlds: bool) -> tuple[Perturbation, ...]:
    return tuple(p for p in find(FAMILIES, category, "category") if worlds or not p.uses_world)


def _part(name: str) -> Perturbation:
    if name.startswith(MIDWAY):
        return from_middle(_part(name.removeprefix(MIDWAY)))
    return _load(name) if ":" in name else find(PERTURBATIONS, name, "perturbation or category", FAMILIES)


def _load(path: str) -> Perturbation:
    """Return the perturbation outside the package at `package.module:name`."""
    found, code = load_object(path)
    if not isinstance(found, Perturbation):
        raise PlanError(
            f"{path} must be a Perturbation, made with on_frames, on_order or on_instruction, got {found!r}"
        )
    return replace(found, content=code)


PERTURBATIONS = Catalog(
    {p.name: p for p in (*VISUAL, *SEMANTIC, *TEMPORAL, *DOMAIN, *BY_NAME)},
    "perturbations",
    lambda _name, path: _load(path),
)
