"""Write docs/develop/architecture.md and its picture from the code's own imports.

python docs/make_architecture.py        (needs the extras dev and figures)
"""

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import grimp
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from rewardlab.reporting.figures import save_figure

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE = ROOT / "src" / "rewardlab"
HEAD = """# Architecture

The packages and who imports whom, drawn from the code.

Written by `python docs/make_architecture.py` from the imports of the code; do not edit. What the packages are for is in
[design.md](design.md); [tour.md](tour.md) follows one trial and one model string through them.

![packages of rewardlab, and who imports whom](architecture.svg)

Each box imports only from boxes below it, and boxes of one row never in a circle. Thicker lines stand for more imports.
"""


@dataclass(frozen=True)
class Package:
    """A package or module right below rewardlab: its layer (0 is the top), what it says it is, and how large it is."""

    name: str
    layer: int
    summary: str
    modules: tuple[str, ...]


def layers() -> list[list[str]]:
    """Return the layers that import-linter checks, from the top down."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return [[name.strip(" ()") for name in re.split("[|:]", row)] for row in config["layers"]]


def packages() -> list[Package]:
    """Return every package with its modules."""
    return [_package(name, number) for number, row in enumerate(layers()) for name in row]


def _package(name: str, layer: int) -> Package:
    folder = SOURCE / name
    paths = sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{name}.py"]
    front = folder / "__init__.py" if folder.is_dir() else paths[0]
    modules = tuple(str(path.relative_to(SOURCE)) for path in paths)
    return Package(name, layer, summary_of(front), modules)


def summary_of(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def imports() -> dict[tuple[str, str], int]:
    """Return how many imports of modules go from one package to another."""
    graph = grimp.build_graph("rewardlab", cache_dir=None)
    found: dict[tuple[str, str], int] = {}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            pair = tuple(name.split(".")[1] for name in (importer, imported) if "." in name)
            if len(pair) == 2 and pair[0] != pair[1] and "__main__" not in pair:
                found[pair[0], pair[1]] = found.get((pair[0], pair[1]), 0) + 1
    return found


def page() -> str:
    """Return the page: what each package is for, how large it is, and which others it imports."""
    edges, lines = imports(), [HEAD, "| package | what it is | files | imports |", "|---|---|---|---|"]
    for package in packages():
        targets = sorted(((n, target) for (source, target), n in edges.items() if source == package.name), reverse=True)
        named = ", ".join(f"{target} {count}" for count, target in targets)
        lines.append(f"| `{package.name}` | {package.summary} | {len(package.modules)} | {named} |")
    return "\n".join(lines) + "\n"


def picture() -> Figure:
    """Return the layers as rows of boxes, with a line for every package that another imports."""
    figure = Figure(figsize=(11, 8.5))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    rows = layers()
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    places = {
        name: ((place + 0.5) / len(row), len(rows) - 1 - number)
        for number, row in enumerate(rows)
        for place, name in enumerate(row)
    }
    for (source, target), count in sorted(imports().items()):
        if source in places and target in places:
            axes.add_patch(_arrow(places[source], places[target], count))
    for package in packages():
        x, y = places[package.name]
        axes.add_patch(FancyBboxPatch((x - 0.075, y - 0.2), 0.15, 0.4, boxstyle="round,pad=0.004,rounding_size=0.012",
                                      facecolor="#eef3f8", edgecolor="#30506e", mutation_aspect=5))  # fmt: skip
        axes.text(x, y + 0.05, package.name, ha="center", va="center", fontsize=11, fontweight="bold")
        size = f"{len(package.modules)} module{'s' * (len(package.modules) > 1)}"
        axes.text(x, y - 0.1, size, ha="center", va="center", fontsize=8, color="#59626d")
    return figure


def _arrow(start: tuple[float, float], end: tuple[float, float], count: int) -> FancyArrowPatch:
    return FancyArrowPatch(
        (start[0], start[1] - 0.2),
        (end[0], end[1] + 0.2),
        arrowstyle="-|>",
        mutation_scale=8,
        linewidth=0.5 + min(count, 60) / 20,
        color="#7b93a8",
        alpha=0.55,
        connectionstyle="arc3,rad=0.04",
    )


def main() -> None:
    """Write the page and the picture."""
    (DOCS / "develop" / "architecture.md").write_text(page())
    save_figure(picture(), DOCS / "develop" / "architecture.svg")


if __name__ == "__main__":
    main()
