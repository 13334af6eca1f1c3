"""The page of a comparison of objectives shows every row, says what is sure, and escapes what comes from outside."""

from dataclasses import replace
from pathlib import Path

import pytest

from rewardlab.core.errors import RunError
from rewardlab.evaluation.frame_rewards import MEASURES
from rewardlab.evaluation.objective_comparison import (
    FILE,
    Comparison,
    LearningCurve,
    ObjectiveCell,
    ObjectiveContrast,
    ObjectiveEntry,
    RewardTrace,
    read_comparison,
    write_comparison,
)
from rewardlab.studies.objectives import findings, render_objective_page, write_objective_page

NAMES = ("triplet", "vip", "<script>alert(1)</script>")
VALUES = {"triplet": 0.7, "vip": 0.8, NAMES[2]: 0.6, "length baseline": 0.5}


def contrast(name: str, difference: float, p: float) -> ObjectiveContrast:
    return ObjectiveContrast("dino", name, "triplet", "seen tasks", "across", difference, -0.2, 0.2, p, p)


def made() -> Comparison:
    cells = [
        ObjectiveCell("dino", name, "seen tasks", measure, value, value - 0.1, value + 0.1, low, high, (value,), 10, 4)
        for name, value in VALUES.items()
        for measure in MEASURES
        for low, high in [(None, None) if name == "length baseline" else (1, 2)]
    ]
    cells[0] = replace(cells[0], value=None, low=None, high=None)
    trace = RewardTrace(
        *("dino", "clip-1", "open <b>the</b> drawer", "seen tasks", True),
        progress=(0.0, None, 1.0),
        rewards={name: (0.1, 0.2, 0.3) for name in NAMES},
        stills="javascript:alert(1)",
    )
    return Comparison(
        command="rewardlab train objective",
        facts=("10 clips.",),
        against="triplet",
        objectives=tuple(ObjectiveEntry(name, f"loss of {name}", "success", {"dino": "rate 0.1"}) for name in NAMES),
        controls=("length baseline",),
        groups={"seen tasks": 4},
        cells=tuple(cells),
        contrasts=(contrast("vip", 0.1, 0.01), contrast(NAMES[2], -0.1, 0.02)),
        curves=(LearningCurve("dino", "vip", 0, (1, 2), (0.5, 0.6)),),
        traces=(trace,),
        seconds={"train": 12.0},
    )


def test_the_page_shows_every_objective_and_escapes_its_name(tmp_path: Path) -> None:
    write_comparison(tmp_path, made())
    assert read_comparison(tmp_path) == made()
    html = write_objective_page(tmp_path).read_text()
    assert html.count("<td>vip</td>") >= 2 and "<script>alert" not in html and "open <b>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html and "javascript:alert" not in html
    assert html.count('aria-label="reward of ') == len(NAMES) and 'aria-label="validation agreement of vip' in html
    assert "0.800" in html and "[0.70, 0.90] #1-2" in html and "12 s in all" in html


def test_findings_say_who_is_first_and_what_is_sure() -> None:
    first, sure, _ = findings(made())
    assert "vip is first by across (0.80, rank 1 to 2)" in first and "is first by mae (0.60" in first
    assert sure == "dino, seen tasks: by across, triplet surely beats 1 of 2 others and is surely beaten by vip."


def test_findings_say_where_a_blind_control_is_better_than_all() -> None:
    blind = tuple(
        replace(cell, value=0.9 if cell.measure == "across" else 0.95)
        if cell.objective == "length baseline" and cell.measure in ("across", "voc")
        else cell
        for cell in made().cells
    )
    *_, last = findings(replace(made(), cells=blind))
    assert last == "dino, seen tasks: length baseline, a control, is better than every objective by across, mae."


def test_one_objective_alone_is_shown_without_tests() -> None:
    alone = replace(made(), contrasts=(), objectives=made().objectives[:1])
    assert "nothing is tested" in render_objective_page(alone)


@pytest.mark.parametrize(
    ("content", "says"), [("{}", "has no "), ("[", "is no comparison"), (None, "holds no comparison; run")]
)
def test_a_folder_without_a_comparison_is_one_sentence(content: str | None, says: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    with pytest.raises(RunError, match=says):
        write_objective_page(tmp_path)
