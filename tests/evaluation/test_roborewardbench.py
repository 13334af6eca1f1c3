"""The published table reproduces its own overall column."""

import pytest

from rewardlab.evaluation.roborewardbench import PublishedRow, published_rows


def test_there_are_22_models_on_23_subsets() -> None:
    rows = published_rows()
    assert len(rows) == 22 and all(len(row.subsets) == 23 for row in rows)
    assert rows[0].model == "RoboReward 8B"


@pytest.mark.parametrize("row", published_rows(), ids=lambda row: row.model)
def test_the_mean_over_subsets_is_the_printed_overall_error_to_three_decimals(row: PublishedRow) -> None:
    assert f"{row.macro_mae():.3f}" == f"{row.overall:.3f}"
