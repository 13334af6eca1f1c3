"""Paper figures: nothing is cut off, the same figure is the same file, and without matplotlib one sentence says so."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib import import_module
from math import nan
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from rewardlab.reporting.figures import (
    COLUMN,
    PAGE,
    STYLE,
    draw_severity_curves,
    fix_layout,
    frame,
    new_panels,
    save_figure,
    series_styles,
    severity_axis,
)
from rewardlab.reporting.report import write_figures
from rewardlab.reporting.svg_charts import Axes, Line, SeverityCurves, line_chart

NAMES = ("mine", "a model with a rather long name", "constant", "$HOME $PATH", "hf:" + "very/" * 30, "f", "g", "h")


@rc_context(STYLE)
def some_figure(width: float, panels: int = 1, names: tuple[str, ...] = NAMES) -> Figure:
    figure, all_axes = new_panels(width, 2.0, panels)
    styles = series_styles(names)
    for axes in all_axes:
        for number, (name, style) in enumerate(styles.items()):
            axes.plot(range(5), [number] * 5, color=style.colour, label=name)
        severity_axis(axes, range(5))
    all_axes[0].set_ylabel("success accuracy")
    keys = [style.key(name) for name, style in styles.items()]
    notes = ["What is to be said. " * 12, "rewardlab stress mine data --out " + "runs/" * 30]
    return frame(figure, "A title that needs more than one line in a narrow column of a paper", keys, notes)


@rc_context(STYLE)
def drawn_texts(figure: Figure) -> list[Text]:
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


@pytest.mark.parametrize(("width", "panels"), [(COLUMN, 1), (PAGE, 4), (PAGE, 1)])
def test_every_word_lies_inside_the_figure_and_the_frame_does_not_cover_the_panels(width: float, panels: int) -> None:
    figure = fix_layout(some_figure(width, panels))
    for text in drawn_texts(figure):
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, text.get_text()
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1, text.get_text()
    title, notes = figure.texts
    legend, axes = figure.legends[0].get_window_extent(), figure.axes[0].get_tightbbox()
    assert axes is not None
    assert title.get_window_extent().y0 >= legend.y1 > legend.y0 >= axes.y1
    assert axes.y0 >= notes.get_window_extent().y1


def test_the_layout_is_that_of_the_ticks_that_are_drawn() -> None:
    with rc_context(STYLE):
        figure, (axes, *_) = new_panels(PAGE, 2.2, 4)
        axes.plot([0, 1], [0.697, 1.0])
        axes.set_ylabel("accuracy")
        frame(figure, "title", [], [])
    fix_layout(figure)
    drawn_texts(figure)
    assert axes.yaxis.label.get_window_extent().x0 > figure.bbox.x0 + 3


def test_models_differ_in_colour_and_in_marker() -> None:
    styles = list(series_styles(f"model {number}" for number in range(40)).values())
    assert len({style.colour for style in styles[:6]}) == len({style.marker for style in styles[:6]}) == 6
    assert len(set(styles)) == 40


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_same_figure_is_the_same_file(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        save_figure(some_figure(COLUMN), tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == [suffix, suffix]


def test_names_stay_text_in_an_svg_and_are_no_formulas(tmp_path: Path) -> None:
    names = ("mine", "$HOME $PATH", "a < b & c")
    save_figure(some_figure(PAGE, names=names), tmp_path / "figure.svg")
    text = "".join(ElementTree.parse(tmp_path / "figure.svg").getroot().itertext())
    assert all(name in text for name in names)


CURVES = SeverityCurves(
    (
        Line("mine", (0, 1, 2), (0.9, float("nan"), 0.7), (0.8, float("nan"), 0.6), (1.0, float("nan"), 0.8)),
        Line("constant", (0, 1, 2), (0.5, 0.5, 0.5), (0.4, 0.4, 0.4), (0.6, 0.6, 0.6), 1, control=True),
    ),
    "success_accuracy",
    "Success accuracy",
    "visual",
    (0.0, 1.0),
    0.7,
)


def test_a_report_figure_shows_its_numbers_and_breaks_where_one_is_missing() -> None:
    (axes,) = draw_severity_curves(CURVES).axes
    drawn = {line.get_label(): line for line in axes.lines}
    assert np.asarray(drawn["mine"].get_ydata()).tolist() == pytest.approx([0.9, float("nan"), 0.7], nan_ok=True)
    assert np.asarray(drawn["constant"].get_ydata()).tolist() == [0.5, 0.5, 0.5]
    assert (drawn["mine"].get_linestyle(), drawn["constant"].get_linestyle()) == ("-", "--")
    assert len(axes.collections) == 1  # the interval of the judged model, none for the control
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("severity", "Success accuracy")
    assert [np.asarray(line.get_ydata()).tolist() for line in axes.lines if line.get_linestyle() == ":"] == [[0.7, 0.7]]


def test_the_style_is_in_one_place_and_changes_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STYLE, "axes.labelsize", 14)
    (axes,) = draw_severity_curves(CURVES).axes
    assert axes.yaxis.label.get_fontsize() == 14


def test_a_missing_part_of_our_own_is_no_missing_matplotlib(tmp_path: Path) -> None:
    def draw() -> dict[str, Figure]:
        return {"figure": import_module("rewardlab.no_such_module").figure}

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        write_figures(tmp_path, draw)


WITHOUT = """
import sys
from pathlib import Path

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from rewardlab.studies.perturbation_paper.commands import study_montecarlo, study_perturbation

folder = Path(sys.argv[1])
run = study_montecarlo(episodes=8, severities=(0, 4), out=folder / "run").run
study_perturbation(run, folder / "study")
assert not any(name.partition(".")[0] == "matplotlib" for name in sys.modules)
"""


@pytest.mark.slow
def test_without_matplotlib_everything_but_the_figures_is_written_and_one_sentence_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folders = (tmp_path / "run", tmp_path / "study")
    assert done.stderr.splitlines() == [
        f"no figures in {folder}: they need matplotlib, pip install 'rewardlab[figures]'" for folder in folders
    ]
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert {"run/table1.csv", "run/report.html", "run/report/numbers.csv", "study/claims.md"} <= names
    assert not [name for name in names if name.endswith((".svg", ".png"))]


@pytest.mark.parametrize("y", [(nan, 0.5, 1), (nan, nan, 1), (nan, 0.5, nan), (0.5, nan, 1), (nan, nan, nan)])
def test_a_line_with_missing_values_is_a_valid_path_wherever_they_are(y: tuple[float, ...]) -> None:
    line = Line("mine", (0, 1, 2), y, low=y, high=y)
    paths = re.findall(r' d="([^"]*)"', line_chart([line], Axes(right=2), "a chart"))
    number = r"-?\d+(\.\d+)? -?\d+(\.\d+)?"
    assert paths and all(re.fullmatch(rf"(M{number}(L{number})*Z?)+", path) for path in paths), paths
