"""Another room, another table, another arm: parts of the scene are found by their motion and given a new look."""

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode
from rewardlab.perturb.domain.instruction_guards import require_no_colour
from rewardlab.perturb.domain.masks import (
    Mask,
    apart,
    background,
    grown,
    hull_of,
    motion,
    moved,
    scaled_to,
    size_of,
    small,
    table_region,
)
from rewardlab.perturb.domain.surface_texture import surface

_HALO = 0.12  # heights around all motion that stay as they are: what the robot works with lies there
_THINGS = 0.12  # heights that things on the table may stand out above its far edge
_LEAST_TABLE = 0.15  # share of the picture
_LEAST_AREA = 0.05  # share of the picture
_ARM_TINT = 18.0  # distance in Lab a and b from the arm's usual tint
_SAME_COLOUR = 10.0  # Lab distance within which two pixels show the same thing
_PAINTS = ((20, 0.15), (60, 0.3), (120, 0.45), (180, 0.6))


@on_episode(
    "frames",
    Spec("domain", "opacity", (0.25, 0.5, 0.75, 1.0), "COLOSSEUM background", "per_clip", "keeps_if"),
)
def background_replace(episode: Episode, opacity: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The robot works in another room: all that is off the table and well away from its motion is replaced."""
    frames = episode.frames
    tiny = small(frames)
    still = background(tiny)
    ever = motion(moved(tiny, still))
    table = hull_of(table_region(still))
    if table.mean() < _LEAST_TABLE:
        raise NotApplicable("no table is found, so the background cannot be told from what the robot works on")
    far = (1 - grown(ever, _HALO)) & (1 - _with_things(table))
    _require_area(float(far.mean()), "background")
    soft = cv2.GaussianBlur(scaled_to(far, frames), (0, 0), 5 * frames.shape[1] / 256)
    new = surface(size_of(frames), rng)
    return _painted(episode, frames, [(opacity * soft, new)] * len(frames))


@on_episode(
    "frames",
    Spec("domain", "opacity", (0.25, 0.5, 0.75, 1.0), "COLOSSEUM table", "per_clip", "keeps_if"),
)
def table_texture(episode: Episode, opacity: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The table has another top; what lies on it, what moves over it and the shadows stay."""
    frames = episode.frames
    tiny = small(frames)
    still = background(tiny)
    gone = moved(tiny, still)
    motion(gone)
    table = table_region(still)
    _require_area(float(table.mean()), "table")
    bare = [table & ~grown(now.astype(np.uint8), 0.008).astype(bool) for now in gone]
    light = float(np.median(cv2.cvtColor(still, cv2.COLOR_RGB2GRAY)[table]))
    new = surface(size_of(frames), rng)
    looks = [(opacity * _soft(mask, frames), _shaded(new, frame, light)) for mask, frame in zip(bare, frames)]
    return _painted(episode, frames, looks)


@on_episode(
    "frames",
    Spec("domain", "hue turn in degrees and paint", _PAINTS, "COLOSSEUM colours", "per_clip", "keeps_if"),
)
def robot_recolour(episode: Episode, paint: tuple[float, float], rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The arm has another colour: what moves and is large or reaches in from the edge is painted over."""
    require_no_colour(episode.instruction)
    degrees, strength = paint
    tint = rng.uniform(0, 180)
    frames = episode.frames
    tiny = small(frames)
    still = background(tiny)
    gone = moved(tiny, still)
    motion(gone)
    arms = _one_colour([_arm(now) for now in gone], tiny, still)
    if max(float(arm.mean()) for arm in arms) < 0.005:
        raise NotApplicable("nothing that moves is large enough or reaches in from the edge, so no arm is found")
    looks = [(_soft(arm, frames), _repainted(frame, degrees, strength, tint)) for arm, frame in zip(arms, frames)]
    return _painted(episode, frames, looks)


def _require_area(area: float, what: str) -> None:
    if area < _LEAST_AREA:
        raise NotApplicable(f"the {what} is {area:.1%} of the picture, but {_LEAST_AREA:.0%} are needed")


def _with_things(table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the table with room for what stands on it: more upwards than to the sides."""
    up, side = max(1, round(_THINGS * len(table))), max(1, round(0.03 * len(table)))
    return np.asarray(cv2.dilate(table, np.ones((side + 1 + up, 2 * side + 1), np.uint8), anchor=(side, side)))


def _soft(mask: NDArray[np.bool_], frames: Frames) -> Mask:
    return np.asarray(cv2.GaussianBlur(scaled_to(mask, frames), (0, 0), frames.shape[1] / 256))


def _painted(episode: Episode, frames: Frames, looks: list[tuple[Mask, Frames]]) -> PerturbedEpisode:
    """Return the episode with a new look laid over each frame where its mask is."""
    result = np.empty_like(frames)
    for target, frame, (mask, new) in zip(result, frames, looks):
        target[:] = np.round(frame + mask[..., None] * (new.astype(np.float32) - frame))
    return PerturbedEpisode(with_frames(episode, result), "same")


def _shaded(new: Frames, frame: Frames, light: float) -> Frames:
    """Return the new surface under the light and shadow of the frame."""
    shade = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY).astype(np.float32) / max(light, 1.0)
    return np.asarray(np.clip(new * np.clip(shade, 0.2, 1.6)[..., None], 0, 255))


def _arm(gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Keep the moving parts that are large or touch the edge of the picture: an arm is, an object is not."""
    closed = cv2.morphologyEx(gone.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((7, 7), np.uint8))
    _, labels, facts, _ = cv2.connectedComponentsWithStats(closed)
    edge = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    reaches = np.zeros(len(facts), bool)
    reaches[edge] = True
    area = facts[:, cv2.CC_STAT_AREA] / gone.size
    reaches = (reaches & (area > 0.003)) | (area > 0.015)
    reaches[0] = False
    return np.asarray(reaches[labels])


def _one_colour(arms: list[NDArray[np.bool_]], frames: Frames, still: Frames) -> list[NDArray[np.bool_]]:
    """Keep what has the usual tint of the arm, without the object it holds, its shadow and the table it uncovers."""
    looks = [_lab(frame) for frame in frames]
    empty, table = _lab(still), table_region(still)
    seen = np.concatenate([look[arm] for look, arm in zip(looks, arms)])
    if not len(seen):
        return arms
    usual = np.median(seen[:, 1:], axis=0)
    top = np.median(empty[table], axis=0) if table.any() else np.full(3, np.inf, np.float32)
    kept = []
    for look, arm in zip(looks, arms):
        now, before = look[arm], empty[arm]
        own = apart(now[:, 1:], usual) < _ARM_TINT
        bare = apart(now, top) < _SAME_COLOUR
        shade = now[:, 0] / np.maximum(before[:, 0], 1)
        shadow = (apart(now[:, 1:], before[:, 1:]) < _SAME_COLOUR) & (shade > 0.5) & (shade < 1)
        mask = np.zeros(arm.shape, np.uint8)
        mask[arm] = own & ~bare & ~shadow
        kept.append(cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)) > 0)
    return kept


def _lab(picture: Frames) -> NDArray[np.float32]:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2LAB), np.float32)


def _repainted(frame: Frames, degrees: float, strength: float, tint: float) -> Frames:
    """Turn the hue, and lay a coat of paint over it so that grey arms change as well."""
    hsv = cv2.cvtColor(frame, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(np.int32) + round(degrees / 2)) % 180
    turned = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB).astype(np.float32)
    hsv[..., 0], hsv[..., 1] = round(tint) % 180, 255
    hsv[..., 2] = np.maximum(hsv[..., 2], 90)  # paint is visible on black, too
    return np.asarray(turned + strength * (cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) - turned))
