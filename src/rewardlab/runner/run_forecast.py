"""What a run will ask, told before it begins, and what it will take as far as earlier answers of it tell."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.trial import TrialTable
from rewardlab.models.backends.ledger import Spent, spent_by_model
from rewardlab.runner.cell_planning import conditions
from rewardlab.runner.cell_scoring import ScoringContext

FORECAST_COLUMNS = ("id", "status", "model", "seconds")  # of the trials that it is made of
_LATER = "told after the first answers"


@dataclass(frozen=True)
class RunForecast:
    """The cells of a run, those open per model, and what they take; `seconds` is None where nothing is known."""

    episodes: int
    conditions: int
    open_cells: dict[str, int]
    servers: tuple[str, ...]  # models that ask another machine, perhaps for money
    seconds: float | None
    spent: Spent

    @property
    def cells(self) -> int:
        """Return how many cells the whole run has."""
        return self.episodes * self.conditions * len(self.open_cells)

    @property
    def sentence(self) -> str:
        """Return all of it in one line."""
        size = f"{self.episodes:,} episodes x {self.conditions:,} conditions x {len(self.open_cells)} models"
        left = sum(self.open_cells.values())
        finished = f", {self.cells - left:,} of them finished" if left < self.cells else ""
        time = _LATER if self.seconds is None else format_seconds(self.seconds)
        return "; ".join([f"{self.cells:,} cells ({size}){finished}", *self._server_parts(), f"time: {time}"])

    def _server_parts(self) -> list[str]:
        requests = {name: self.open_cells[name] for name in self.servers if self.open_cells[name]}
        asked = [f"{name}: {count:,} requests or more to a server" for name, count in requests.items()]
        return [*asked, f"tokens and cost: {self._price(sum(requests.values()))}"] if asked else []

    def _price(self, requests: int) -> str:
        if not self.spent.replies:
            return _LATER
        tokens = (self.spent.input_tokens + self.spent.output_tokens) / self.spent.replies * requests
        cost = f"{self.spent.cost / self.spent.priced * requests:.4g}" if self.spent.priced else "unknown"
        return f"about {tokens:,.0f} tokens, cost {cost}"


def forecast(
    folder: Path, trials: TrialTable | None, context: ScoringContext, severities: tuple[int, ...], workers: int
) -> RunForecast:
    """Return what is still to be asked in a run folder that holds these trials; None where there are none yet."""
    shown = len(conditions(context, severities))
    each = len(context.dataset) * shown
    finished = {name: 0 if trials is None else int(trials.matches("model", name).sum()) for name in context.models}
    open_cells = {name: each - finished[name] for name in context.models}
    servers = tuple(name for name, model in context.models.items() if model.server)
    seconds = None if trials is None else _seconds(trials, open_cells, workers)
    return RunForecast(len(context.dataset), shown, open_cells, servers, seconds, _sum(spent_by_model(folder)))


def format_seconds(seconds: float) -> str:
    """Return a duration as people say it."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds:.0f} s"


def _seconds(trials: TrialTable, open_cells: dict[str, int], workers: int) -> float | None:
    """Return the time that the models take for what is open, by their answers so far; decoding comes on top."""
    total = 0.0
    for name, cells in open_cells.items():
        mine = trials.where(trials.matches("model", name) & ~trials.matches("status", "dropped"))
        if cells and not len(mine):
            return None
        total += cells * float(mine.number("seconds").mean()) if cells else 0.0
    return total / workers


def _sum(by_model: dict[str, Spent]) -> Spent:
    every = by_model.values()
    return Spent(
        replies=sum(spent.replies for spent in every),
        priced=sum(spent.priced for spent in every),
        input_tokens=sum(spent.input_tokens for spent in every),
        output_tokens=sum(spent.output_tokens for spent in every),
        cost=sum(spent.cost for spent in every),
    )
