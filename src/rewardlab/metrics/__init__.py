"""The catalog of metrics: trials in, one number out; nan where there is nothing to measure."""

from collections.abc import Callable

from rewardlab.core.catalog import Catalog, load_object
from rewardlab.core.errors import PlanError
from rewardlab.metrics.accuracy import (
    FALSE_SUCCESS_BY_LEVEL,
    balanced_success_accuracy,
    exact_accuracy,
    expectation_kept,
    false_success_of_failures,
    false_success_rate,
    flip_rate,
    level_shift,
    macro_mae,
    micro_mae,
    missed_success_rate,
    near_miss_auc,
    over_reward_on_failure,
    signed_shift,
    success_accuracy,
    within_one_accuracy,
)
from rewardlab.metrics.calibration import brier_score, ordinal_ece, ranked_probability_score, top_label_ece
from rewardlab.metrics.contract import Display, Metric
from rewardlab.metrics.progress import (
    early_fire_rate,
    early_level_5_rate,
    order_sensitivity,
    progress_correlation,
    progress_tau_b,
    progress_tau_b_ceiling,
    static_video_order_correlation,
    value_order_correlation,
    value_order_correlation_on_failures,
)
from rewardlab.metrics.rank_correlation import (
    kendall_tau_a,
    kendall_tau_b,
    kendall_tau_b_ceiling,
    kendall_tau_b_within_task,
    preference_accuracy,
)

_OWN: dict[str, Metric] = {
    m.name: m
    for m in (
        *(macro_mae, micro_mae, exact_accuracy, within_one_accuracy, success_accuracy),
        *(kendall_tau_b, kendall_tau_b_ceiling, kendall_tau_a, kendall_tau_b_within_task, preference_accuracy),
        *(expectation_kept, flip_rate, level_shift, signed_shift),
        *(balanced_success_accuracy, false_success_of_failures, missed_success_rate, near_miss_auc),
        *FALSE_SUCCESS_BY_LEVEL,
        *(false_success_rate, over_reward_on_failure, early_fire_rate, early_level_5_rate),
        *(value_order_correlation, value_order_correlation_on_failures, order_sensitivity),
        *(static_video_order_correlation, progress_correlation, progress_tau_b, progress_tau_b_ceiling),
        *(ranked_probability_score, brier_score, ordinal_ece, top_label_ece),
    )
}


def _registered(name: str, path: str) -> Metric:
    """Return a metric that another package registers, under its own name."""
    found, _ = load_object(path)
    if not isinstance(found, Metric) or found.name != name:
        raise PlanError(f"{path} must be a metric called {name}, made with rewardlab.metrics.contract, got {found!r}")
    return found


METRICS = Catalog(_OWN, "metrics", _registered)


def metrics_shown(where: Callable[[Display], bool]) -> list[Metric]:
    """Return the metrics that declare to be shown there, in the order of the catalog."""
    return [metric for metric in METRICS.values() if where(metric.display)]
