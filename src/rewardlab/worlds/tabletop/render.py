"""Rendering: one model in each process holds every mesh, the arms and a stock of empty geoms; a scene fills them.

Nothing is compiled for a scene, and nothing but its textures is sent to the graphics card.
"""

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Frames, Indices
from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.physics import load_module
from rewardlab.worlds.offscreen import backend, in_rendering_thread, make_current
from rewardlab.worlds.tabletop.arms import ROOTS, Piece, arm_joints, arm_spec, made_arm
from rewardlab.worlds.tabletop.catalog import PAINTS, Part, Triple
from rewardlab.worlds.tabletop.goals import States, joint_motion, rotation_z
from rewardlab.worlds.tabletop.meshes import meshes
from rewardlab.worlds.tabletop.scene import FLOOR, THING_TEXTURES, Scene, Surface, Thing

Floats = NDArray[np.float64]

MAX_SIDE = 512  # pixels of the largest frame
_BUFFER = 1024  # pixels of a side that can be drawn before they are read
_STOCK = 288  # geoms that a scene may have
_LAMPS = 3
_SHADOWS = 1024  # pixels of a shadow map
_PRIMITIVES = {"sphere": 2, "capsule": 3, "ellipsoid": 4, "cylinder": 5, "box": 6}  # MuJoCo's numbers
_MESH, _SEEN, _HIDDEN = 7, 1, 5
_SURFACES = ("table", "floor", "wall")
_TEXELS = {**dict.fromkeys(_SURFACES, 128), **{f"thing{number}": 48 for number in range(THING_TEXTURES)}}
_AWAY = np.array([0.0, 0.0, -50.0])  # where that is which cannot be seen now
_POURING = 1.0  # radians that a vessel leans when it pours


@dataclass(frozen=True, eq=False)
class Shapes:
    """Geoms of a scene: their looks, and their poses in every shown state."""

    kind: NDArray[np.int64]  # (geoms,)
    mesh: NDArray[np.int64]
    size: Floats  # (geoms, 3)
    rgb: Floats
    material: NDArray[np.int64]  # -1 for none
    place: Floats  # (T, geoms, 3)
    turn: Floats  # (T, geoms, 3, 3)


class Stage:
    """The model of a process with its graphics memory; scenes are drawn on it one after the other."""

    def __init__(self) -> None:
        self.mujoco = mujoco = load_module("mujoco")
        self.model: Any = _stage_spec(mujoco).compile()
        model, quality = self.model, self.model.vis.quality
        quality.shadowsize, quality.offsamples = _SHADOWS, 4 if backend() == "egl" else 0
        model.vis.global_.offwidth = model.vis.global_.offheight = _BUFFER
        model.mat_reflectance[:], model.stat.extent, model.stat.center[:] = 0, 1.2, 0
        model.vis.map.znear, model.vis.map.zfar = 0.02, 12.0
        self.stock = np.flatnonzero(model.geom_bodyid == model.body("stock").id)
        self.arms = {make: _geoms_of(model, f"{make}/{root}") for make, root in ROOTS.items()}
        self.arm_rgb = {make: model.geom_rgba[geoms].copy() for make, geoms in self.arms.items()}
        self.joints = {
            make: np.array(
                [model.joint(j).qposadr[0] for j in range(model.njnt) if model.joint(j).name.startswith(make)]
            )
            for make in ROOTS
        }
        turns = [np.empty(9) for _ in range(model.nmesh)]
        for turn, quaternion in zip(turns, model.mesh_quat, strict=True):
            mujoco.mju_quat2Mat(turn, quaternion)
        self.mesh_turn = np.stack(turns).reshape(-1, 3, 3)
        self.data = mujoco.MjData(model)
        make_current()
        self.context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        self.scene = mujoco.MjvScene(model, _STOCK + 80)
        self.option = mujoco.MjvOption()
        self.option.sitegroup[:] = 0  # an arm marks its tip with a site

    def draw(self, scene: Scene, states: States, steps: Indices, size: int, *, tiled: bool) -> Frames:
        """Return frames of these steps; many are drawn side by side before they are read where `tiled`."""
        make_current()
        self.mujoco.mjr_setBuffer(self.mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        shapes, joints = self._set(scene, states, steps), None
        if scene.arm.make in ROOTS:
            joints = arm_joints(scene.arm, states.at(steps))[0]
        place, turn = self._poses(shapes)
        camera, thick = self._camera(scene), self._thickness(scene)
        per_side = min(_BUFFER // size, int(np.ceil(np.sqrt(len(steps))))) if tiled else 1
        frames = np.empty((len(steps), size, size, 3), np.uint8)
        geoms = self.stock[: place.shape[1]]
        for start in range(0, len(steps), per_side**2):
            some = range(start, min(start + per_side**2, len(steps)))
            for number, step in enumerate(some):
                if joints is not None:
                    self.data.qpos[self.joints[scene.arm.make]] = joints[step]
                self.mujoco.mj_kinematics(self.model, self.data)
                self.mujoco.mj_camlight(self.model, self.data)
                if thick is not None:
                    self.data.geom_xmat[self.arms[scene.arm.make]] *= thick
                self.data.geom_xpos[geoms], self.data.geom_xmat[geoms] = place[step], turn[step]
                self.mujoco.mjv_updateScene(self.model, self.data, self.option, None, camera, 7, self.scene)
                corner = self.mujoco.MjrRect(size * (number % per_side), size * (number // per_side), size, size)
                self.mujoco.mjr_render(corner, self.scene, self.context)
            rows = -(-len(some) // per_side)
            pixels = np.empty((size * rows, size * per_side, 3), np.uint8)
            whole = self.mujoco.MjrRect(0, 0, size * per_side, size * rows)
            self.mujoco.mjr_readPixels(pixels, None, whole, self.context)
            tiles = pixels.reshape(rows, size, per_side, size, 3).swapaxes(1, 2).reshape(-1, size, size, 3)
            frames[start : start + len(some)] = tiles[: len(some), ::-1]
        return frames

    def _set(self, scene: Scene, states: States, steps: Indices) -> Shapes:
        """Give the stock the looks of a scene; return its shapes in these steps."""
        model = self.model
        shapes = _joined([*_room_shapes(scene, len(steps)), *_thing_shapes(scene, states.at(steps)),
                          *_arm_shapes(scene, states, steps), *_marker_shapes(scene, len(steps))])  # fmt: skip
        count = len(shapes.kind)
        used, rest = self.stock[:count], self.stock[count:]
        model.geom_group[rest], model.geom_group[used] = _HIDDEN, _SEEN
        model.geom_type[used], model.geom_dataid[used] = shapes.kind, shapes.mesh
        model.geom_size[used] = np.where(shapes.kind[:, None] == _MESH, 1.0, shapes.size)
        model.geom_rgba[used, :3], model.geom_matid[used] = shapes.rgb, shapes.material
        for make, geoms in self.arms.items():
            model.geom_group[geoms] = _SEEN if make == scene.arm.make else _HIDDEN
        if scene.arm.make in ROOTS:
            self._set_arm(scene)
        self._set_lamps(scene)
        for name, surface in zip(_SURFACES, (scene.room.table, scene.room.floor, scene.room.wall), strict=True):
            self._upload(name, _surface_texture(surface, _TEXELS[name]))
            model.mat_texrepeat[model.material(name).id] = surface.repeat
        for number in {thing.texture for thing in scene.things if thing.texture >= 0}:
            name = f"thing{number}"
            face = noise_texture(scene.textures[number], _TEXELS[name])
            self._upload(name, np.concatenate([face] * 6))
        return shapes

    def _set_arm(self, scene: Scene) -> None:
        arm, root = scene.arm, self.model.body(f"{scene.arm.make}/{ROOTS[scene.arm.make]}").id
        self.model.body_pos[root] = arm.base
        self.model.body_quat[root] = (np.cos(arm.yaw / 2), 0, 0, np.sin(arm.yaw / 2))
        rgb = self.arm_rgb[arm.make].copy()
        rgb[:, :3] += arm.paint[3] * (np.array(arm.paint[:3]) - rgb[:, :3])
        self.model.geom_rgba[self.arms[arm.make]] = rgb

    def _set_lamps(self, scene: Scene) -> None:
        model = self.model
        model.light_active[:] = 0
        whole = np.sum([lamp.light for lamp in scene.lamps], axis=0)
        model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = scene.room.ambient * whole, 0.2 * whole
        model.vis.headlight.specular[:] = 0
        for number, lamp in enumerate(scene.lamps[:_LAMPS]):
            place = np.array(lamp.place)
            model.light_active[number], model.light_castshadow[number] = 1, lamp.shadow
            model.light_pos[number], model.light_dir[number] = place, -place / np.linalg.norm(place)
            model.light_diffuse[number] = lamp.light
            model.light_specular[number] = 0.3 * np.array(lamp.light)

    def _poses(self, shapes: Shapes) -> tuple[Floats, Floats]:
        """Return places and matrices of the geoms; those of meshes hold their scale, and MuJoCo's own turn of them."""
        turn, place = shapes.turn.copy(), shapes.place.copy()
        mesh = np.flatnonzero(shapes.kind == _MESH)
        numbers = shapes.mesh[mesh]
        scaled = turn[:, mesh] * shapes.size[mesh][:, None, :]
        place[:, mesh] += np.einsum("tgij,gj->tgi", scaled, self.model.mesh_pos[numbers])
        turn[:, mesh] = scaled @ self.mesh_turn[numbers]
        return place, turn.reshape(*turn.shape[:2], 9)

    def _thickness(self, scene: Scene) -> Floats | None:
        """Return factors of the matrices of the arm's geoms that make its links thicker; the fingers stay."""
        if scene.arm.make not in ROOTS or scene.arm.thickness == 1:
            return None
        factors = []
        for geom in self.arms[scene.arm.make]:
            scale = np.ones(3)
            link = self.model.body(self.model.geom_bodyid[geom]).name
            if self.model.geom_type[geom] == _MESH and not any(word in link for word in ("finger", "pad", "claw")):
                first, count = (
                    x[self.model.geom_dataid[geom]] for x in (self.model.mesh_vertadr, self.model.mesh_vertnum)
                )
                scale[:] = scene.arm.thickness
                scale[np.ptp(self.model.mesh_vert[first : first + count], axis=0).argmax()] = 1
            factors.append(np.tile(scale, 3))
        return np.stack(factors)

    def _camera(self, scene: Scene) -> Any:
        camera, view = self.mujoco.MjvCamera(), scene.camera
        camera.type = self.mujoco.mjtCamera.mjCAMERA_FREE
        camera.lookat[:] = view.target
        camera.azimuth, camera.elevation, camera.distance = view.azimuth, view.elevation, view.distance
        self.model.vis.global_.fovy = view.fov
        return camera

    def _upload(self, name: str, pixels: NDArray[np.uint8]) -> None:
        texture = self.model.texture(name)
        start = int(texture.adr.item())
        self.model.tex_data[start : start + pixels.size] = pixels.ravel()
        self.mujoco.mjr_uploadTexture(self.model, self.context, texture.id)


@in_rendering_thread
def render_states(scene: Scene, states: States, steps: Indices, size: int, *, tiled: bool = False) -> Frames:
    """Return the frames of these steps of a rollout, uint8 (steps, size, size, 3).

    With `tiled` single pixels depend on the place of a frame in the buffer, so that a replay is not bit-exact.
    """
    return _stage(os.getpid()).draw(scene, states, np.asarray(steps), size, tiled=tiled)


@lru_cache(maxsize=1)
def _stage(_process: int) -> Stage:
    """Return the stage of this process; the number is the key of the cache, for a fork has no graphics memory."""
    return Stage()


def _stage_spec(mujoco: Any) -> Any:
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6
    for name, (vertices, triangles) in meshes().items():
        spec.add_mesh(
            name=name, uservert=vertices.astype(np.float32).ravel(), userface=triangles.ravel(),
            inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
        )  # fmt: skip
    flat = mujoco.mjtBuiltin.mjBUILTIN_FLAT
    for name, side in _TEXELS.items():
        plain = name in _SURFACES
        kind = mujoco.mjtTexture.mjTEXTURE_2D if plain else mujoco.mjtTexture.mjTEXTURE_CUBE
        spec.add_texture(name=name, type=kind, width=side, height=side if plain else 6 * side, builtin=flat)
        material = spec.add_material(name=name, texuniform=plain, specular=0.2, shininess=0.3)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    gradient, sky = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, mujoco.mjtTexture.mjTEXTURE_SKYBOX
    colours = {"rgb1": (0.75, 0.78, 0.8), "rgb2": (0.35, 0.36, 0.38)}
    spec.add_texture(name="sky", type=sky, width=32, height=192, builtin=gradient, **colours)
    for material in ("shiny", "dull"):
        spec.add_material(name=material, specular=0.6 if material == "shiny" else 0.05, shininess=0.6)
    stock = spec.worldbody.add_body(name="stock")
    for _ in range(_STOCK):
        stock.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=(0.01, 0.01, 0.01), group=_HIDDEN, contype=0, conaffinity=0)
    for _ in range(_LAMPS):
        spec.worldbody.add_light(pos=(0, 0, 2), dir=(0, 0, -1), directional=True)
    for make in ROOTS:
        spec.attach(arm_spec(make, seen=True), prefix=f"{make}/", frame=spec.worldbody.add_frame())
    return spec


def _geoms_of(model: Any, root: str) -> NDArray[np.intp]:
    return np.flatnonzero(model.body_rootid[model.geom_bodyid] == model.body(root).id)


# Shapes of the things, the room and a made arm.


@cache
def _mesh_numbers() -> dict[str, int]:
    return {name: number for number, name in enumerate(meshes())}  # in the order in which the stage has them


@cache
def _material_numbers() -> dict[str, int]:
    return {name: number for number, name in enumerate((*_TEXELS, "shiny", "dull"))}


def _shapes(looks: list[tuple[str, Triple, Triple, str]], place: Floats, turn: Floats) -> Shapes:
    """Return shapes from their shape, size, paint and material, at these poses."""
    kinds = [_PRIMITIVES.get(shape, _MESH) for shape, *_ in looks]
    numbers = [_mesh_numbers().get(shape, -1) for shape, *_ in looks]
    materials = [_material_numbers().get(material, -1) for *_, material in looks]
    sizes, paints = (np.array([look[column] for look in looks]) for column in (1, 2))
    return Shapes(np.array(kinds), np.array(numbers), sizes, paints, np.array(materials), place, turn)


def _joined(many: list[Shapes]) -> Shapes:
    fixed = [
        np.concatenate([vars(each)[name] for each in many]) for name in ("kind", "mesh", "size", "rgb", "material")
    ]
    moving = [np.concatenate([vars(each)[name] for each in many], axis=1) for name in ("place", "turn")]
    return Shapes(*fixed, *moving)


@lru_cache(maxsize=4096)
def _part_turn(turn: Triple) -> Floats:
    x, y, z = np.radians(turn)
    about_x = np.array([[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]])
    about_y = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    return np.asarray(rotation_z(z) @ about_y @ about_x)


def _paint(thing: Thing, paint: str) -> Triple:
    main = np.array(thing.rgb)
    shades = {"dark": 0.6 * main, "light": 0.45 * main + 0.5, "inside": 0.4 * main, "lamp": 0.55 * main}
    r, g, b = shades.get(paint, thing.second if paint == "second" else PAINTS.get(paint, thing.rgb))
    return float(r), float(g), float(b)


def _thing_shapes(scene: Scene, states: States) -> list[Shapes]:
    made = []
    for number, thing in enumerate(scene.things):
        made.append(_parts(thing, states.place[:, number], states.pose[:, number], states.value[:, number]))
    for thing in scene.clutter:
        count = len(states)
        place, turn = np.array([*thing.place, 0.0]), rotation_z(thing.yaw)
        still = np.broadcast_to(place, (count, 3)), np.broadcast_to(turn, (count, 3, 3))
        made.append(_parts(thing, still[0], still[1], np.zeros(count)))
    return made


def _parts(thing: Thing, place: Floats, pose: Floats, value: Floats) -> Shapes:
    """Return the shapes of a thing in every state: those that follow its joint, and what a vessel holds."""
    parts, lit = list(thing.type.parts), [part for part in thing.type.parts if part.paint == "lamp"]
    parts += [Part(p.shape, _grown(p.size), p.at, p.turn, "lit", p.moving) for p in lit]
    if thing.type.fill:
        parts += [
            Part("cylinder", (thing.type.fill[0], 0.002, 0), paint="contents"),
            Part("cylinder", (0.006, 0.1, 0), paint="stream"),
        ]
    local = np.array([part.at for part in parts]) * thing.size
    turns = np.stack([_part_turn(part.turn) for part in parts])
    count = len(place)
    where, how = (
        np.broadcast_to(local, (count, *local.shape)).copy(),
        np.broadcast_to(turns, (count, *turns.shape)).copy(),
    )
    moving = [number for number, part in enumerate(parts) if part.moving]
    if moving and thing.type.joint:
        turn, shift = joint_motion(thing, value)
        where[:, moving] = np.einsum("tij,pj->tpi", turn, local[moving]) + shift[:, None]
        how[:, moving] = turn[:, None] @ turns[moving]
    if thing.type.fill:
        where[:, -2, 2] = thing.size * (thing.type.fill[1] + value * (thing.type.fill[2] - thing.type.fill[1]))
    where = np.einsum("tij,tpj->tpi", pose, where) + place[:, None]
    how = pose[:, None] @ how
    for number, part in enumerate(parts):
        unseen = (part.paint == "lit" and value < 0.9) | (part.paint == "contents" and value < 0.04)
        where[np.broadcast_to(unseen, count), number] = _AWAY
    looks = [_look(thing, part) for part in parts]
    if thing.type.fill:
        where[:, -1], how[:, -1], length = _stream(thing, place, pose, value)
        looks[-1] = ("cylinder", (0.006, length, 0.0), thing.second, "dull")
    return _shapes(looks, where, how)


def _look(thing: Thing, part: Part) -> tuple[str, Triple, Triple, str]:
    x, y, z = (thing.size * length for length in part.size)
    paint = thing.second if part.paint in ("contents", "stream") else _paint(thing, part.paint)
    if part.paint == "lit":
        r, g, b = np.clip(0.5 + 0.8 * np.array(thing.rgb), 0, 1)
        paint = float(r), float(g), float(b)
    material = f"thing{thing.texture}" if thing.texture >= 0 and part.paint == "main" else "dull"
    return part.shape, (x, y, z), paint, "shiny" if part.paint == "steel" else material


def _grown(size: Triple) -> Triple:
    return size[0] * 1.03, size[1] * 1.03, size[2] * 1.03


def _stream(thing: Thing, place: Floats, pose: Floats, value: Floats) -> tuple[Floats, Floats, float]:
    """Return place, rotation and half length of what pours out of a vessel; away where nothing does."""
    up = pose[..., 2]
    pours = (np.arccos(np.clip(up[:, 2], -1, 1)) > _POURING) & (value > 0.13)
    lean = up * [1, 1, 0] / np.maximum(np.linalg.norm(up[:, :2], axis=1, keepdims=True), 1e-6)
    lip = place + up * (thing.size * thing.type.height) + lean * 0.004 - [0, 0, 0.6 * thing.radius]
    half = 0.5 * max(float(lip[pours, 2].mean()) - 0.02, 0.02) if pours.any() else 0.05
    middle = np.where(pours[:, None], lip - [0, 0, half], _AWAY)
    return middle, np.broadcast_to(np.eye(3), pose.shape), half


def _room_shapes(scene: Scene, count: int) -> list[Shapes]:
    room, thick = scene.room, 0.03
    half = max(room.half)
    top: Triple = (half, thick / 2, 0.0) if room.round else (*room.half, thick / 2)
    looks = [
        ("cylinder" if room.round else "box", top, room.table.rgb, "table"),
        ("box", (6.0, 6.0, 0.01), room.floor.rgb, "floor"),
    ]
    places, turns = [np.array([0, 0, -thick / 2]), np.array([0, 0, FLOOR - 0.01])], [np.eye(3), np.eye(3)]
    for x in (-0.8, 0.8):
        for y in (-0.8, 0.8):
            looks.append(("box", (0.025, 0.025, (-FLOOR - thick) / 2), PAINTS["ink"], "dull"))
            reach = (half / 1.5, half / 1.5) if room.round else room.half
            places.append(np.array([x * reach[0], y * reach[1], (FLOOR - thick) / 2]))
            turns.append(np.eye(3))
    for angle in room.walls:
        looks.append(("box", (0.02, 6.0, 1.6), room.wall.rgb, "wall"))
        places.append(rotation_z(np.radians(angle)) @ [2.6, 0, FLOOR + 1.6])
        turns.append(rotation_z(np.radians(angle)))
    for middle, sizes, rgb in room.furniture:
        looks.append(("box", sizes, rgb, "dull"))
        places.append(np.array(middle))
        turns.append(rotation_z(middle[0] * 9))
    return [_shapes(looks, *(np.broadcast_to(np.stack(x), (count, len(looks), *x[0].shape)) for x in (places, turns)))]


def _arm_shapes(scene: Scene, states: States, steps: Indices) -> list[Shapes]:
    if scene.arm.make in ROOTS:
        return []
    pieces: list[Piece] = made_arm(scene.arm, states)
    looks = [(piece.shape, piece.size, piece.rgb, "shiny") for piece in pieces]
    place, turn = (np.stack([vars(piece)[name][steps] for piece in pieces], axis=1) for name in ("place", "turn"))
    return [_shapes(looks, place, turn)]


def _marker_shapes(scene: Scene, count: int) -> list[Shapes]:
    if not scene.markers:
        return []
    looks = [("sphere", (0.02, 0.02, 0.02), (0.9, 0.1, 0.1), "dull")] * len(scene.markers)
    places, turns = np.array(scene.markers), np.broadcast_to(np.eye(3), (len(looks), 3, 3))
    return [_shapes(looks, *(np.broadcast_to(x, (count, *x.shape)) for x in (places, turns)))]


# Textures made of noise.


def _surface_texture(surface: Surface, side: int) -> NDArray[np.uint8]:
    """Return the texture of a surface, of which another one may cover a part."""
    own = noise_texture(surface.seed, side)
    if not surface.cover:
        return own
    other = noise_texture(surface.other, side).astype(np.float64)
    return np.asarray((1 - surface.cover) * own + surface.cover * other, np.uint8)


@lru_cache(maxsize=64)
def noise_texture(seed: int, side: int) -> NDArray[np.uint8]:
    """Return a square texture that fits itself at its edges: plain, grain, wood, marble, tiles, checks or cloth."""
    rng = rng_for(seed, "texture")
    style = str(rng.choice(["plain", "plain", "grain", "wood", "marble", "tiles", "checks", "cloth", "spots"]))
    y, x = np.mgrid[:side, :side] / side
    cloud = np.sum([_octave(rng, side, 2**k) / 1.8**k for k in (1, 2, 3, 4)], axis=0)
    cloud = (cloud - cloud.min()) / np.ptp(cloud)
    count = int(rng.integers(2, 9))
    fields = {
        "plain": 0.12 * cloud,
        "grain": 0.35 * rng.random((side, side)) + 0.15 * cloud,
        "wood": 0.5 + 0.5 * np.sin(2 * np.pi * (count * y + 1.6 * cloud)) * (0.6 + 0.4 * _octave(rng, side, 16)),
        "marble": np.abs(np.sin(np.pi * (count * (x + y) + 3 * cloud))) ** 0.5,
        "tiles": ((x * count % 1 < 0.06) | (y * count % 1 < 0.06)).astype(np.float64) + 0.15 * cloud,
        "checks": ((np.floor(x * count) + np.floor(y * count)) % 2) * 0.9 + 0.1 * cloud,
        "cloth": 0.5 + 0.25 * (np.sin(2 * np.pi * 24 * x) + np.sin(2 * np.pi * 24 * y)) + 0.2 * cloud,
        "spots": (cloud > 0.62).astype(np.float64),
    }
    first = rng.uniform(150, 255) * (1 + rng.normal(0, 0.12, 3))
    second = first * rng.uniform(0.3, 0.9) * (1 + rng.normal(0, 0.1, 3))
    mixed = first + np.clip(fields[style], 0, 1)[..., None] * (second - first) + rng.normal(0, 3, (side, side, 1))
    return np.asarray(np.clip(mixed, 0, 255), np.uint8)


def _octave(rng: np.random.Generator, side: int, cells: int) -> Floats:
    """Return smooth noise of so many cells on a side."""
    coarse = rng.random((cells, cells))
    coarse = np.pad(coarse, ((0, 1), (0, 1)), mode="wrap")
    at = np.arange(side) * cells / side
    low, part = at.astype(np.int64), at % 1
    part = part * part * (3 - 2 * part)
    rows = coarse[low] * (1 - part)[:, None] + coarse[low + 1] * part[:, None]
    return np.asarray(rows[:, low] * (1 - part) + rows[:, low + 1] * part)
