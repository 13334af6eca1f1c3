"""Arms that follow a hand: a Panda and a Sawyer by inverse kinematics, and made ones of two links by geometry."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.distractors import scene_path
from rewardlab.worlds.metaworld.other_arm import JOINTS, TIP_SITE, panda_spec
from rewardlab.worlds.metaworld.physics import load_module
from rewardlab.worlds.tabletop.catalog import COLOURS, Triple
from rewardlab.worlds.tabletop.goals import States, rotation_z
from rewardlab.worlds.tabletop.scene import FLOOR, Arm

Floats = NDArray[np.float64]

ROOTS = {"panda": "link0", "sawyer": "base"}  # the body that an arm hangs on
_ITERATIONS = 30
_DAMPING = 2e-3
_TURN_WEIGHT = 0.25  # metres that an error of one radian counts as
_MOST_STEP = 0.35  # radians of a joint in one iteration
_HOMING = 0.05  # share of the way home that free joints go in one iteration
_REACH = 0.012  # metres that a hand may be off
_LEAN = 0.2  # radians that a hand may be off
_CHECKED = 24  # states of a rollout that are tried
_HOMES = {
    "panda": (0.0, -0.3, 0.0, -2.2, 0.0, 1.9, 0.785),
    "sawyer": (0.32, -0.576, -0.977, 1.642, 0.943, 1.044, 0.722),
}
_SAWYER_SHOULDER = 2.27  # radians: the limit that its maker states; Meta-World's model stops at -0.5
_SAWYER_OPEN, _SAWYER_TIP = 0.088, (0.037, 0.0, 0.0)  # metres: between its pads at rest, and along its hand


@dataclass(frozen=True, eq=False)
class Chain:
    """Joints that turn about their z axes: where each sits in the one before, the tip in the last, and the limits."""

    place: Floats  # (joints, 3)
    turn: Floats  # (joints, 3, 3)
    tip: Floats  # (3,)
    tip_turn: Floats  # (3, 3): columns are across the opening, along it, and where the hand points
    low: Floats
    high: Floats
    home: Floats


def arm_spec(make: str, *, seen: bool) -> Any:
    """Return the arm alone as MuJoCo reads it; without what is seen of it, it is quick to compile."""
    if make == "panda":
        return panda_spec(seen=seen)
    spec = load_module("mujoco").MjSpec.from_file(scene_path("reach"))
    for body in list(spec.worldbody.bodies):
        if body.name != ROOTS[make]:
            spec.detach_body(body)
    world = spec.worldbody
    hidden = [g for g in spec.geoms if g.parent is not world and (not seen or g.group != 1 or g.rgba[3] == 0)]
    for part in (*hidden, *world.geoms, *world.lights, *spec.cameras, *spec.sites):
        part.delete()
    for geom in spec.geoms:
        geom.material = ""
    used = {geom.meshname for geom in spec.geoms}
    unused = [mesh for mesh in spec.meshes if mesh.name not in used]
    for asset in (*unused, *spec.materials, *spec.textures):
        asset.delete()
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6
    return spec


@cache
def chain(make: str) -> Chain:
    """Return the joints of an arm, read from its model at rest."""
    mujoco = load_module("mujoco")
    spec = arm_spec(make, seen=False)
    spec.body(ROOTS[make]).pos, spec.body(ROOTS[make]).quat = (0, 0, 0), (1, 0, 0, 0)
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:] = 0
    mujoco.mj_kinematics(model, data)
    bodies = model.jnt_bodyid[:JOINTS]
    places = np.concatenate([np.zeros((1, 3)), data.xpos[bodies]])
    turns = np.concatenate([np.eye(3)[None], data.xmat[bodies].reshape(-1, 3, 3)])
    before = turns[:-1].swapaxes(1, 2)
    if make == "panda":
        tip, turn = data.site(TIP_SITE).xpos, data.site(TIP_SITE).xmat.reshape(3, 3)
    else:
        points, along, _ = data.body("hand").xmat.reshape(3, 3).T
        tip = data.body("hand").xpos + data.body("hand").xmat.reshape(3, 3) @ _SAWYER_TIP
        turn = np.stack([np.cross(along, points), along, points], axis=1)
    last, (low, high) = turns[-1].T, model.jnt_range[:JOINTS].T.copy()
    if make == "sawyer":
        high[1] = _SAWYER_SHOULDER
    return Chain(
        np.einsum("jab,jb->ja", before, np.diff(places, axis=0)),
        before @ turns[1:],
        last @ (tip - places[-1]),
        last @ turn,
        low,
        high,
        np.array(_HOMES[make]),
    )


def arm_joints(arm: Arm, states: States) -> tuple[Floats, Floats, Floats]:
    """Return joints and fingers (T, 9) that bring the hand to every state, and the error left: metres and radians."""
    links = chain(arm.make)
    base = rotation_z(arm.yaw)
    joints, off, lean = _solve(links, (states.hand - arm.base) @ base, base.T @ states.turn)
    if arm.make == "panda":
        fingers = np.repeat(states.opening[:, None] / 2, 2, axis=1)
    else:
        slide = (_SAWYER_OPEN - states.opening) / 2
        fingers = np.stack([slide, -slide], axis=1)
    return np.hstack([joints, fingers]), off, lean


def within_reach(arm: Arm, states: States) -> bool:
    """Tell whether an arm can follow a rollout; a made one always can."""
    if arm.make == "made":
        return True
    shown = np.unique(np.linspace(0, len(states) - 1, _CHECKED).round().astype(np.int64))
    _, off, lean = arm_joints(arm, states.at(shown))
    return bool(off.max() <= _REACH and lean.max() <= _LEAN)


def _forward(links: Chain, joints: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return places (T, joints, 3) and axes (T, joints, 3) of all joints, and place and rotation of the tip."""
    place, turn = np.zeros((len(joints), 3)), np.broadcast_to(np.eye(3), (len(joints), 3, 3))
    places, axes = [], []
    cosine, sine = np.cos(joints), np.sin(joints)
    for number in range(joints.shape[1]):
        place = place + turn @ links.place[number]
        turn = turn @ links.turn[number]
        places.append(place)
        axes.append(turn[..., 2])
        c, s = cosine[:, number, None], sine[:, number, None]
        x, y, z = turn[..., 0], turn[..., 1], turn[..., 2]
        turn = np.stack([c * x + s * y, c * y - s * x, z], axis=-1)
    return np.stack(places, 1), np.stack(axes, 1), place + turn @ links.tip, turn @ links.tip_turn


def _solve(links: Chain, place: Floats, turn: Floats) -> tuple[Floats, Floats, Floats]:
    """Return joints for every pose by damped least squares, all at once and each from home, and the errors left."""
    joints = np.repeat(links.home[None], len(place), axis=0)
    weight, damping = np.repeat([1.0, _TURN_WEIGHT], 3), _DAMPING * np.eye(6)
    joints[:, 0] = np.clip(joints[:, 0] + np.arctan2(place[:, 1], place[:, 0]), links.low[0], links.high[0])
    home = joints.copy()
    for _ in range(_ITERATIONS):
        places, axes, tip, tip_turn = _forward(links, joints)
        error = np.concatenate([place - tip, _rotation_vector(turn @ tip_turn.swapaxes(1, 2))], axis=1)
        if max(np.abs(error[:, :3]).max(), 0.1 * np.abs(error[:, 3:]).max()) < 1e-3:
            break
        moves = np.cross(axes, tip[:, None] - places)
        jacobian = np.concatenate([moves, axes], axis=2).swapaxes(1, 2) * weight[:, None]
        inverse = jacobian.swapaxes(1, 2) @ np.linalg.inv(jacobian @ jacobian.swapaxes(1, 2) + damping)
        homing = _HOMING * (home - joints)
        wanted = error * weight - np.einsum("tij,tj->ti", jacobian, homing)
        step = np.einsum("tij,tj->ti", inverse, wanted) + homing
        most = np.abs(step).max(axis=1, keepdims=True)
        joints = np.clip(joints + step * np.minimum(1, _MOST_STEP / np.maximum(most, 1e-9)), links.low, links.high)
    _, _, tip, tip_turn = _forward(links, joints)
    lean = np.linalg.norm(_rotation_vector(turn @ tip_turn.swapaxes(1, 2)), axis=1)
    return joints, np.linalg.norm(place - tip, axis=1), lean


def _rotation_vector(turn: Floats) -> Floats:
    """Return axis times angle of rotations, (T, 3)."""
    angle = np.arccos(np.clip((np.trace(turn, axis1=1, axis2=2) - 1) / 2, -1, 1))
    axis = np.stack([turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], 1)
    return np.asarray(axis * (angle / np.maximum(2 * np.sin(angle), 1e-3))[:, None])


# Made arms: a foot, two links with round or square joints, a palm and two fingers.


@dataclass(frozen=True, eq=False)
class Piece:
    """One shape of a made arm with its paint, and its pose in every state."""

    shape: str
    size: Triple
    rgb: Triple
    place: Floats  # (T, 3)
    turn: Floats  # (T, 3, 3)


def made_arm(arm: Arm, states: States) -> list[Piece]:
    """Return the pieces of an arm whose links are as long as this rollout needs."""
    rng = rng_for(arm.seed, "arm")
    first, second, dark = arm.paint[:3], COLOURS[str(rng.choice(list(COLOURS)))], (0.12, 0.12, 0.13)
    second = first if rng.random() < 0.4 else second
    thick = float(rng.uniform(0.028, 0.06)) * arm.thickness
    limb = str(rng.choice(["capsule", "cylinder", "box"]))
    hand_length, palm = (
        float(rng.uniform(0.1, 0.16)),
        (float(rng.uniform(0.018, 0.032)), float(rng.uniform(0.05, 0.075))),
    )
    shoulder = np.array(arm.base) + rng.uniform(0.18, 0.42) * np.array([0.0, 0.0, 1.0])
    wrist = states.hand - hand_length * states.turn[..., 2]
    across = np.linalg.norm(wrist - shoulder, axis=1)
    total = max(float(across.max()) * 1.03, float(rng.uniform(0.75, 1.0)))
    upper = total * float(rng.uniform(0.45, 0.58))
    fore = total - upper
    across = np.clip(across, abs(upper - fore) + 0.02, None)
    along = (wrist - shoulder) / np.linalg.norm(wrist - shoulder, axis=1, keepdims=True)
    up = np.array([0.0, 0.0, 1.0]) - along * along[:, 2:]
    up /= np.maximum(np.linalg.norm(up, axis=1, keepdims=True), 1e-6)
    ahead = (upper**2 - fore**2 + across**2) / (2 * across)
    elbow = shoulder + along * ahead[:, None] + up * np.sqrt(np.maximum(upper**2 - ahead**2, 0))[:, None]
    still, foot = np.broadcast_to(np.eye(3), (len(states), 3, 3)), np.array(arm.base)
    wide = thick * float(rng.uniform(1.2, 1.7))

    def standing(shape: str, size: Triple, rgb: Triple, place: Floats) -> Piece:
        return Piece(shape, size, rgb, np.broadcast_to(place, (len(states), 3)), still)

    def limb_between(start: Floats, end: Floats, radius: float, rgb: Triple) -> Piece:
        start = np.broadcast_to(start, end.shape)
        half = float(np.linalg.norm(end - start, axis=1).mean()) / 2
        size = (radius, radius, half) if limb == "box" else (radius, half, half)
        return Piece(limb, size, rgb, (start + end) / 2, _pointing(end - start))

    column = (foot[2] + FLOOR) / 2 if rng.random() < 0.3 else (foot[2] + shoulder[2]) / 2
    height = float(shoulder[2] - column) if column > 0 else float((shoulder[2] - FLOOR) / 2)
    column = float(shoulder[2]) - height
    ball = "sphere" if limb != "box" else "box"
    pieces = [
        standing("cylinder", (wide * 1.3, height, height), dark, np.array([*foot[:2], column])),
        standing("cylinder", (wide * 1.8, 0.02, 0.02), dark, np.array([*foot[:2], foot[2] + 0.02])),
        standing("sphere", (wide,) * 3, second, shoulder),
        limb_between(shoulder, elbow, thick, first),
        Piece(ball, (wide * 0.9,) * 3, second, elbow, _pointing(wrist - elbow)),
        limb_between(elbow, wrist, thick * 0.8, first),
        Piece("sphere", (thick,) * 3, second, wrist, still),
    ]
    return [*pieces, *_hand_pieces(states, hand_length, palm, thick, first, dark)]


def _hand_pieces(
    states: States, length: float, palm: tuple[float, float], thick: float, rgb: Triple, dark: Triple
) -> list[Piece]:
    finger = 0.055
    points, along = states.turn[..., 2], states.turn[..., 1]
    middle = (length - finger) / 2
    pieces = [
        Piece("cylinder", (thick * 0.6, middle, middle), dark, states.hand - points * (finger + middle), states.turn),
        Piece("box", (palm[0], palm[1], 0.018), rgb, states.hand - points * (finger + 0.012), states.turn),
    ]
    for side in (-1, 1):
        place = states.hand + along * (side * (states.opening / 2 + 0.006))[:, None] - points * (finger / 2 - 0.008)
        pieces.append(Piece("box", (0.011, 0.006, finger / 2), dark, place, states.turn))
    return pieces


def _pointing(way: Floats) -> Floats:
    """Return rotations whose z axis points along a way, (T, 3, 3)."""
    z = way / np.linalg.norm(way, axis=1, keepdims=True)
    helper = np.where(np.abs(z[:, 2:]) > 0.95, np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    x = np.cross(helper, z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=-1)
