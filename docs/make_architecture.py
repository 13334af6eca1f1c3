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

Each box imports only from boxes below it, and boxes of one row never in a circle.
"""


@dataclass(frozen=True)
class Package:
    """A package or module right below rewardlab, and the first line of its docstring."""

    name: str
    summary: str


def layers() -> list[list[str]]:
    """Return the layers that import-linter checks, from the top down."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return [[name.strip(" ()") for name in re.split("[|:]", row)] for row in config["layers"]]


def packages() -> list[Package]:
    """Return every package, from the top layer down."""
    names = [name for row in layers() for name in row]
    return [Package(name, summary_of(_front(SOURCE / name))) for name in names]


def _front(folder: Path) -> Path:
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def summary_of(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def imports() -> set[tuple[str, str]]:
    """Return the pairs of packages of which the first imports from the second."""
    graph = grimp.build_graph("rewardlab", cache_dir=None)
    found = set()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            pair = tuple(name.split(".")[1] for name in (importer, imported) if "." in name)
            if len(pair) == 2 and pair[0] != pair[1] and "__main__" not in pair:
                found.add((pair[0], pair[1]))
    return found


def page() -> str:
    """Return the page: what each package is for, and which others it imports."""
    edges, lines = imports(), [HEAD, "| package | what it is | imports |", "|---|---|---|"]
    for package in packages():
        named = ", ".join(f"`{other.name}`" for other in packages() if (package.name, other.name) in edges)
        lines.append(f"| `{package.name}` | {package.summary} | {named} |")
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
    for source, target in sorted(imports()):
        if source in places and target in places:
            axes.add_patch(_arrow(places[source], places[target]))
    for name, (x, y) in places.items():
        axes.add_patch(FancyBboxPatch((x - 0.075, y - 0.2), 0.15, 0.4, boxstyle="round,pad=0.004,rounding_size=0.012",
                                      facecolor="#eef3f8", edgecolor="#30506e", mutation_aspect=5))  # fmt: skip
        axes.text(x, y, name, ha="center", va="center", fontsize=11, fontweight="bold")
    return figure


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> FancyArrowPatch:
    return FancyArrowPatch(
        (start[0], start[1] - 0.2),
        (end[0], end[1] + 0.2),
        arrowstyle="-|>",
        mutation_scale=8,
        linewidth=1,
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
