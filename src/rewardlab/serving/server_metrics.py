"""What a server counts, as Prometheus reads it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rewardlab.core.trial import Failure
from rewardlab.serving.dynamic_batching import ScoredBatch

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(eq=False)
class ServerMetrics:
    """Requests, batches and answers, in a registry of their own."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        registry = self.registry
        labels = ("route", "status")
        self.requests = Counter("rewardlab_requests", "requests by route and status", labels, registry=registry)
        self.latency = Histogram(
            "rewardlab_request_seconds", "seconds from a request to its answer", buckets=_SECONDS, registry=registry
        )
        self.batches = Histogram(
            "rewardlab_batch_clips", "clips that were scored together", buckets=_SIZES, registry=registry
        )
        self.model_seconds = Counter("rewardlab_model_seconds", "seconds that the model took", registry=registry)
        self.answers = Counter("rewardlab_answers", "answers by outcome", ("outcome",), registry=registry)

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Show a number that is read whenever it is asked for."""
        Gauge(name, meaning, registry=self.registry).set_function(read)

    def observe_batch(self, batch: ScoredBatch) -> None:
        """Count a batch and its answers."""
        self.batches.observe(len(batch.answers))
        self.model_seconds.inc(batch.seconds)
        for answer in batch.answers:
            self.answers.labels("failed" if isinstance(answer, Failure) else "scored").inc()

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request by its route, never by its path: those are without end."""
        self.requests.labels(route, str(status)).inc()
        self.latency.observe(seconds)

    def text(self) -> bytes:
        """Return everything in the format of Prometheus."""
        return generate_latest(self.registry)
