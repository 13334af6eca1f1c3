"""The Franka Panda as a MuJoCo spec: its joints with their limits, its gripper, and what is seen of it."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.worlds.metaworld.physics import load_module

Triple = tuple[float, float, float]

TIP_SITE = "tip"  # between the ends of the fingers
JOINTS, FINGERS = 7, 2
MOST_OPEN = 0.08  # metres between the fingers
_BASE = (0.0, 0.1, 0.15)  # metres: behind the table, where a search over places found most of the rollouts in reach
_FACING = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # the x axis of the arm is the y axis of Meta-World
_TO_FLOOR = 0.53  # metres: half of the pillar that carries the base
_PAINTS = {"light": (0.93, 0.94, 0.95, 1.0), "dark": (0.22, 0.22, 0.23, 1.0)}
_SEEN = 1  # the group of geoms that are drawn


@dataclass(frozen=True)
class Link:
    """A link that turns about its z axis: where it sits in its parent, turned by quarters about x, and its limits."""

    name: str
    position: Triple
    quarter: int
    limits: tuple[float, float]  # radians


# From the Denavit-Hartenberg parameters and joint limits that Franka publishes.
# fmt: off
LINKS = (
    Link("link1", (0.0, 0.0, 0.333), 0, (-2.8973, 2.8973)),
    Link("link2", (0.0, 0.0, 0.0), -1, (-1.7628, 1.7628)),
    Link("link3", (0.0, -0.316, 0.0), 1, (-2.8973, 2.8973)),
    Link("link4", (0.0825, 0.0, 0.0), 1, (-3.0718, -0.0698)),
    Link("link5", (-0.0825, 0.384, 0.0), -1, (-2.8973, 2.8973)),
    Link("link6", (0.0, 0.0, 0.0), 1, (-0.0175, 3.7525)),
    Link("link7", (0.088, 0.0, 0.0), 1, (-2.8973, 2.8973)),
)
# fmt: on
_FLANGE, _TIP, _FINGER = (0.0, 0.0, 0.107), (0.0, 0.0, 0.11), (0.0, 0.0, 0.0584)


def panda_spec(*, seen: bool) -> Any:
    """Return the arm where it stands beside Meta-World's table; without what is seen of it, it is quick to compile."""
    spec = load_module("mujoco").MjSpec()
    spec.compiler.degree = False
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6  # MuJoCo wants a mass, though nothing is simulated
    shapes = _meshes() if seen else {}
    for name, (vertices, triangles) in shapes.items():
        spec.add_mesh(name=name, uservert=vertices.ravel(), userface=triangles.ravel())
    body = _add_body(spec.worldbody, "link0", _BASE, _FACING)
    if seen:
        _add_pillar(body)
    for link in LINKS:
        _show(body, body.name, shapes)
        body = _add_link(body, link)
    _show(body, body.name, shapes)
    _add_gripper(body, shapes)
    return spec


def _add_link(parent: Any, link: Link) -> Any:
    half = link.quarter * np.pi / 4
    body = _add_body(parent, link.name, link.position, (np.cos(half), np.sin(half), 0.0, 0.0))
    body.add_joint(name=f"{link.name}_joint", axis=(0, 0, 1), range=link.limits, limited=True)
    return body


def _add_gripper(flange: Any, shapes: dict[str, Any]) -> None:
    slide = load_module("mujoco").mjtJoint.mjJNT_SLIDE
    eighth = np.pi / 8
    hand = _add_body(flange, "hand", _FLANGE, (np.cos(eighth), 0.0, 0.0, -np.sin(eighth)))
    hand.add_site(name=TIP_SITE, pos=_TIP)
    _show(hand, "hand", shapes)
    for side, turned in (("left", (1.0, 0.0, 0.0, 0.0)), ("right", (0.0, 0.0, 0.0, 1.0))):
        finger = _add_body(hand, f"{side}_finger", _FINGER, turned)
        finger.add_joint(name=f"{side}_slide", type=slide, axis=(0, 1, 0), range=(0, MOST_OPEN / 2), limited=True)
        _show(finger, "finger", shapes)


def _add_body(parent: Any, name: str, position: Triple, rotation: tuple[float, float, float, float]) -> Any:
    return parent.add_body(name=name, pos=position, quat=rotation)


def _add_pillar(base: Any) -> None:
    cylinder = load_module("mujoco").mjtGeom.mjGEOM_CYLINDER
    place, size = (-0.04, 0.0, -_TO_FLOOR), (0.12, _TO_FLOOR, 0.0)
    base.add_geom(type=cylinder, pos=place, size=size, rgba=_PAINTS["dark"], group=_SEEN, contype=0, conaffinity=0)


def _show(body: Any, link: str, shapes: dict[str, Any]) -> None:
    mesh = load_module("mujoco").mjtGeom.mjGEOM_MESH
    for shade, paint in _PAINTS.items():
        if (name := f"{link}/{shade}") in shapes:
            body.add_geom(type=mesh, meshname=name, rgba=paint, group=_SEEN, contype=0, conaffinity=0)


@cache
def _meshes() -> dict[str, tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Return vertices and triangles by link and shade."""
    with (files(__package__) / "panda" / "meshes.npz").open("rb") as file, np.load(file) as arrays:
        names = sorted({name.rpartition("/")[0] for name in arrays})
        return {name: (arrays[f"{name}/vertices"], arrays[f"{name}/triangles"].astype(np.int32)) for name in names}
