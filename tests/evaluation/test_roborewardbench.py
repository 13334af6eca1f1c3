"""The published table reproduces its own overall column, and what the paper tells of winners and ranks."""

import pytest

from rewardlab.evaluation.roborewardbench import PublishedRow, published_rows, rank_swings, subset_winners


def test_there_are_22_models_on_23_subsets() -> None:
    rows = published_rows()
    assert len(rows) == 22 and all(len(row.subsets) == 23 for row in rows)
    assert rows[0].model == "RoboReward 8B"


@pytest.mark.parametrize("row", published_rows(), ids=lambda row: row.model)
def test_the_mean_over_subsets_is_the_printed_overall_error_to_three_decimals(row: PublishedRow) -> None:
    assert f"{row.macro_mae():.3f}" == f"{row.overall:.3f}"


PUBLISHED = {row.model: row.subsets for row in published_rows()}


def test_winners_of_subsets_are_those_that_the_paper_names() -> None:
    winners = subset_winners(PUBLISHED)
    assert winners["berkeley_rpt"] == ("Gemini 3 Pro (Preview)",) and winners["stanford_hydra"] == ("Gemini 2.5 Pro",)
    assert winners["robo_arena"] == ("RoboReward 8B",)
    assert PUBLISHED["Gemini 3 Pro (Preview)"]["berkeley_rpt"] == 0.395
    assert PUBLISHED["Gemini 2.5 Pro"]["stanford_hydra"] == 0.495


def test_the_best_model_over_all_subsets_is_not_the_best_on_each() -> None:
    swings = {swing.model: swing for swing in rank_swings(PUBLISHED)}
    assert [swing.rank for swing in swings.values()] == list(range(1, 23))
    assert swings["RoboReward 8B"].best.rank == 1 < swings["RoboReward 8B"].worst.rank
    assert swings["Gemini Robotics-ER 1.5"].rank == 11  # "ranking 11th out of 22 models"
    hydra = sorted(subsets["stanford_hydra"] for subsets in PUBLISHED.values())
    assert 1 + hydra.index(PUBLISHED["RoboReward 8B"]["stanford_hydra"]) == 8  # "0.890, rank 8/22"


def test_models_that_tie_share_a_rank_and_a_win() -> None:
    errors = {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.0, "y": 1.0}, "c": {"x": 3.0}}
    assert subset_winners(errors) == {"x": ("a", "b"), "y": ("b",)}
    first, second, last = rank_swings(errors)
    assert (first.model, second.model, last.model) == ("b", "a", "c")
    assert (second.best.rank, second.worst.rank, second.worst.subset) == (1, 2, "y")
    assert last.best == last.worst and last.worst.rank == 3
