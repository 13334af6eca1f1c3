"""The catalog of metrics: trials in, one number out; nan where there is nothing to measure."""

from collections.abc import Callable

from rewardlab.core.catalog import Catalog, load_object
from rewardlab.core.errors import PlanError
from rewardlab.metrics import abstention, accuracy, calibration, progress, rank_correlation, stages
from rewardlab.metrics.contract import Display, Metric

_OWN: dict[str, Metric] = {
    m.name: m
    for m in (
        *(accuracy.macro_mae, accuracy.micro_mae, accuracy.exact_accuracy, accuracy.within_one_accuracy),
        *(accuracy.success_accuracy, rank_correlation.kendall_tau_b, rank_correlation.kendall_tau_b_ceiling),
        *(rank_correlation.kendall_tau_a, rank_correlation.kendall_tau_b_within_task),
        *(rank_correlation.preference_accuracy, accuracy.expectation_kept, accuracy.flip_rate, accuracy.level_shift),
        *(accuracy.signed_shift, accuracy.balanced_success_accuracy, accuracy.false_success_of_failures),
        *(accuracy.missed_success_rate, accuracy.near_miss_auc, *accuracy.FALSE_SUCCESS_BY_LEVEL),
        *(accuracy.success_auc_within_subset, accuracy.success_auc),
        *(accuracy.success_precision_at_5_fpr, accuracy.success_recall_at_5_fpr, accuracy.instruction_grounding),
        *(accuracy.false_success_rate, accuracy.over_reward_on_failure),
        *(progress.early_fire_rate, progress.early_level_5_rate, progress.value_order_correlation),
        *(progress.value_order_correlation_on_failures, progress.order_sensitivity),
        *(progress.static_video_order_correlation, progress.progress_correlation, progress.progress_tau_b),
        *(progress.midway_shift, progress.midway_jump),
        *(progress.progress_tau_b_ceiling, calibration.ranked_probability_score, calibration.brier_score),
        *(calibration.ordinal_ece, calibration.top_label_ece),
        *(stages.stage_success_accuracy, stages.stage_success_auc, stages.stage_order),
        *(abstention.abstention_recall, abstention.false_abstention_rate),
        *(stages.stage_separation, stages.falls_when_undone),
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
