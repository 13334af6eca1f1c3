"""Make the small meshes of the Panda that rewardlab ships, from the large ones in robosuite's wheel; run once.

pip download --no-deps robosuite==1.5.2 && unzip robosuite-1.5.2-py3-none-any.whl -d robosuite-wheel
pip install fast-simplification==0.2.0
python results/worlds/make_panda_meshes.py robosuite-wheel src/rewardlab/worlds/metaworld/panda/meshes.npz
"""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import fast_simplification
import numpy as np
from numpy.typing import NDArray

Mesh = tuple[NDArray[np.float32], NDArray[np.int32]]  # vertices (V, 3) in metres, triangles (F, 3)

TRIANGLES = {"light": 900, "dark": 220}  # of each link and colour
LIGHT = 0.6  # mean of red, green and blue from which a part counts as light


def main(wheel: Path, out: Path) -> None:
    """Write vertices and triangles of every link, its light and its dark parts apart."""
    assets = wheel / "robosuite/models/assets"
    arrays: dict[str, NDArray[np.generic]] = {}
    parts = {**arm_parts(assets / "robots/panda"), **gripper_parts(assets / "grippers/meshes/panda_gripper")}
    for (link, shade), meshes in parts.items():
        vertices, triangles = simplified(welded(meshes), TRIANGLES[shade])
        arrays[f"{link}/{shade}/vertices"] = vertices.astype(np.float32)
        arrays[f"{link}/{shade}/triangles"] = triangles.astype(np.uint16)
        print(f"{link:8} {shade:6} {len(triangles):5} triangles")
    np.savez_compressed(out, **arrays)


def arm_parts(folder: Path) -> dict[tuple[str, str], list[Mesh]]:
    """Return the visual meshes of the links by link and shade, as robot.xml colours them."""
    root = ET.parse(folder / "robot.xml").getroot()
    files = {mesh.get("name"): mesh.get("file") for mesh in root.iter("mesh")}
    colours = {material.get("name"): material.get("rgba", "") for material in root.iter("material")}
    parts: dict[tuple[str, str], list[Mesh]] = {}
    for body in root.iter("body"):
        for geom in body.findall("geom"):
            if material := geom.get("material"):
                key = (str(body.get("name")), shade_of(colours[material].split()[:3]))
                parts.setdefault(key, []).append(read_obj(folder / str(files[geom.get("mesh")])))
    return parts


def gripper_parts(folder: Path) -> dict[tuple[str, str], list[Mesh]]:
    """Return the hand and one finger; their files do not say which triangle has which colour."""
    return {
        ("hand", "light"): [read_obj(folder / "hand_vis.obj")],
        ("finger", "dark"): [read_obj(folder / "finger_vis.obj")],
    }


def shade_of(rgb: list[str]) -> str:
    return "light" if np.mean([float(part) for part in rgb]) > LIGHT else "dark"


def read_obj(path: Path) -> Mesh:
    """Return the triangles of an OBJ file."""
    text = path.read_text(encoding="utf-8")
    vertices = [line.split()[1:4] for line in text.splitlines() if line.startswith("v ")]
    corners = [re.findall(r" (\d+)", line) for line in text.splitlines() if line.startswith("f ")]
    fans = [(face[0], face[i], face[i + 1]) for face in corners for i in range(1, len(face) - 1)]
    return np.array(vertices, np.float32), np.array(fans, np.int32) - 1


def welded(meshes: list[Mesh]) -> Mesh:
    """Return meshes as one, in which corners at the same place are one vertex."""
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in meshes)])
    points = np.concatenate([vertices for vertices, _ in meshes]).round(5)
    triangles = np.concatenate([faces + start for (_, faces), start in zip(meshes, starts[:-1], strict=True)])
    unique, index = np.unique(points, axis=0, return_inverse=True)
    joined = index.reshape(-1)[triangles]
    whole = (joined[:, 0] != joined[:, 1]) & (joined[:, 1] != joined[:, 2]) & (joined[:, 0] != joined[:, 2])
    return unique, joined[whole].astype(np.int32)


def simplified(mesh: Mesh, most: int) -> Mesh:
    vertices, triangles = mesh
    if len(triangles) <= most:
        return mesh
    points, faces = fast_simplification.simplify(vertices, triangles, target_count=most)
    return points, faces


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
