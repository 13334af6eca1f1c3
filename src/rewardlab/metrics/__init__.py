"""The catalog of metrics: trials in, one number out; nan where there is nothing to measure."""

from rewardlab.metrics.contract import Metric
from rewardlab.metrics.error import exact_accuracy, macro_mae, micro_mae, success_accuracy, within_one_accuracy
from rewardlab.metrics.expectation import expectation_kept
from rewardlab.metrics.rank import kendall_tau_b

METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        *(macro_mae, micro_mae, exact_accuracy, within_one_accuracy, success_accuracy),
        *(kendall_tau_b, expectation_kept),
    )
}
