"""The published RoboRewardBench table: what 22 models score per subset, to be shown beside our own numbers.

Source: table 10 of "RoboReward: General-Purpose Vision-Language Reward Models for Robotics" (Lee, Wagenmaker,
Pertsch et al.): group-wise mean absolute error on levels 1 to 5, lower is better, as printed there.
"""

import csv
from dataclasses import dataclass
from importlib.resources import files

EPISODES = 2_831  # of the human-verified test split, the benchmark itself
TABLE = "roborewardbench_table10.csv"

SUBSETS = {  # the 23 subsets as the dataset names them, and as the published table does; RoboArena counts as one
    "austin_sirius_dataset_converted_externally_to_rlds": "austin_sirius",
    "berkeley_autolab_ur5": "berkeley_autolab_ur5",
    "berkeley_fanuc_manipulation": "berkeley_fanuc",
    "berkeley_mvp_converted_externally_to_rlds": "berkeley_mvp",
    "berkeley_rpt_converted_externally_to_rlds": "berkeley_rpt",
    "bridge": "berkeley_bridge",
    "cmu_play_fusion": "cmu_play_fusion",
    "dlr_edan_shared_control_converted_externally_to_rlds": "dlr_wheelchair",
    "droid": "droid",
    "fractal20220817_data": "rt1_robot_action",
    "iamlab_cmu_pickup_insert_converted_externally_to_rlds": "cmu_franka_pick_insert",
    "jaco_play": "usc_jaco_play",
    "kaist_nonprehensile_converted_externally_to_rlds": "kaist_nonprehensile",
    "roboturk": "roboturk",
    "stanford_hydra_dataset_converted_externally_to_rlds": "stanford_hydra",
    "taco_play": "freiburg_franka_play",
    "tokyo_u_lsmo_converted_externally_to_rlds": "lsmo",
    "ucsd_kitchen_dataset_converted_externally_to_rlds": "ucsd_kitchen",
    "ucsd_pick_and_place_dataset_converted_externally_to_rlds": "ucsd_pick_place",
    "utokyo_pr2_tabletop_manipulation_converted_externally_to_rlds": "tokyo_pr2_tabletop",
    "utokyo_xarm_bimanual_converted_externally_to_rlds": "utokyo_xarm_bimanual",
    "viola": "austin_viola",
    "robo_arena": "robo_arena",
}


@dataclass(frozen=True)
class PublishedRow:
    """One model of the published table: its overall error as printed, and its error on each subset."""

    model: str
    overall: float
    subsets: dict[str, float]

    def macro_mae(self) -> float:
        """Return the mean over subsets, which the printed overall error is to three decimals."""
        return sum(self.subsets.values()) / len(self.subsets)


def published_rows() -> list[PublishedRow]:
    """Return the published table, best model first."""
    text = files("rewardlab.analysis").joinpath(TABLE).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return [
        PublishedRow(
            row["model"],
            float(row["overall"]),
            {name: float(value) for name, value in row.items() if name not in ("model", "overall")},
        )
        for row in rows
    ]
