"""Paper figures on disk: drawn where matplotlib is installed, left out with one sentence where it is not."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")


def write_figures(folder: Path, draw: Callable[[], Mapping[str, "Figure"]]) -> list[Path]:
    """Save what `draw` returns by file name, as SVG and as PNG, and return the paths.

    `draw` imports what it draws with. Where that is not installed nothing is written, and stderr says so.
    """
    try:
        from rewardlab.analysis.figure_style import fix_layout, save_figure

        figures = {name: fix_layout(figure) for name, figure in draw().items()}
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        print(f"no figures in {folder}: they need matplotlib, pip install 'rewardlab[figures]'", file=sys.stderr)
        return []
    paths = [folder / f"{name}{suffix}" for name in figures for suffix in SUFFIXES]
    for path in paths:
        save_figure(figures[path.stem], path)
    return paths
