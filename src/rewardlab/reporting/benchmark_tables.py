"""A benchmark as tables and sentences: the headline, the error per subset, and duplicates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rewardlab.core.errors import RunError
from rewardlab.core.records import TRIALS_DIGEST, record_from_json, record_to_json
from rewardlab.core.run import Run
from rewardlab.core.summary import PIXEL_CONTROLS, in_control_order
from rewardlab.core.terminal import safe_markup
from rewardlab.core.trial_table import trials_digest
from rewardlab.data.duplicates import Duplicate, episodes_to_leave_out
from rewardlab.evaluation.bench import (
    BENCH,
    CAUSES,
    COPIES,
    AnswerCounts,
    BenchmarkCauses,
    BenchmarkErrors,
    CauseErrors,
    ErrorEstimate,
    HelmLevels,
    ModelErrors,
    ProtocolErrors,
    benchmark_causes,
    benchmark_errors,
    benchmark_preferences,
    errors_without,
)
from rewardlab.evaluation.display import format_number, names_of_run
from rewardlab.evaluation.preferences import PREFERENCES, BenchmarkPreferences, PreferenceMeasures, PreferenceShare
from rewardlab.evaluation.roborewardbench import SUBSETS, RankSwing, SubsetRank, rank_swings, subset_winners
from rewardlab.evaluation.summary import refuse_other_results

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PROTOCOL = (
    "RoboRewardBench protocol: clean episodes; MAE is the mean over subsets, micro MAE the mean over episodes. "
    "HELM: the number it reads in the raw text; an unreadable text counts as an error of 4, a missing one is asked and "
    "not scored. Its predictions are whole levels: where a model answers with expectations, its most probable level "
    "counts, marked (mode); an expectation without probabilities has no HELM score. "
    "Strict: the level as rewardlab reads it, unreadable answers are not scored and lower the coverage."
)

CONSTANT = "most common cause"  # the baseline of causes
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class FoundDuplicates:
    """What duplicates.json holds; `mae` is by model and way of reading, with and without the copies."""

    episodes: int
    training_episodes: int | None
    not_decoded: tuple[str, ...]
    copies: tuple[Duplicate, ...]
    mae: dict[str, dict[str, dict[str, float | None]]]


@dataclass(frozen=True)
class OrderedPairs:
    """How a model orders pairs of clips, by its scores or asked about both at once: one line of the table."""

    model: str
    evaluated: bool
    way: str
    measures: PreferenceMeasures

    @property
    def numbers(self) -> dict[str, str]:
        """Return the columns of the table as text; a dash where there is no number."""
        found = self.measures
        shares = {"levels": found.levels, "people": found.people, "no circle": found.transitive}
        texts = {heading: error_text(share) for heading, share in shares.items()}
        first = format_number(found.first_preferred)
        return texts | {"both orders alike": error_text(found.consistent), "first preferred": first}


@dataclass(frozen=True)
class BenchmarkReport:
    """What a bench run found: errors per model and, where looked for, copies among the videos."""

    evaluated: tuple[str, ...]
    errors: BenchmarkErrors
    copies: dict[str, Any] | None
    preferences: BenchmarkPreferences | None
    causes: BenchmarkCauses | None = None
    names: dict[str, str] = field(default_factory=dict)

    def shown(self, model: str) -> str:
        """Return the short name of a model."""
        return self.names.get(model, model)

    @property
    def models(self) -> dict[str, ModelErrors]:
        """Return the errors of each model, evaluated ones first, then the controls of the protocol in their order."""
        found = self.errors.models
        controls = [name for name in in_control_order(found) if name not in PIXEL_CONTROLS]
        return {name: found[name] for name in dict.fromkeys([*self.evaluated, *controls])}

    @property
    def named_causes(self) -> dict[str, CauseErrors]:
        """Return how well each model tells why rollouts failed, and what the best constant answer gets; maybe none."""
        found = self.causes
        return {} if found is None else {self.shown(n): m for n, m in found.models.items()} | {CONSTANT: found.constant}

    @property
    def caption(self) -> str:
        """Return the choices that the numbers depend on."""
        known = len(SUBSETS) - len(self.errors.missing_subsets)
        others = len(self.errors.subsets) - known
        more = f" and {others} more" if others else ""
        shown = f"frames {self.errors.frames}, first and last always shown"
        return f"{shown}; {known} of the {len(SUBSETS)} subsets of RoboRewardBench{more}"

    @property
    def breakdowns(self) -> dict[str, tuple[str, ...]]:
        """Return the embodiments and the perspectives of the episodes; a field of `ProtocolErrors` has their errors."""
        first = [model.strict for model in self.errors.models.values()][:1]
        found = {kind: tuple(vars(errors)[kind]) for errors in first for kind in ("embodiments", "perspectives")}
        return {kind: names for kind, names in found.items() if names}

    @property
    def comparable(self) -> dict[str, dict[str, float]]:
        """Return the error of each evaluated model per subset: HELM's where it scores all of them, else the strict one.

        Subsets that not every one of them answered are left out.
        """
        models = {name: self.models[name] for name in self.evaluated}
        helm = {name: model.helm for name, model in models.items() if model.helm is not None}
        read = helm if len(helm) == len(models) else {name: model.strict for name, model in models.items()}
        known = {name: _known_errors(errors) for name, errors in read.items()}
        shared = [subset for subset in self.errors.subsets if all(subset in own for own in known.values())]
        return {name: {subset: own[subset] for subset in shared} for name, own in known.items()}

    @property
    def winners(self) -> dict[str, tuple[str, ...]]:
        """Return the models with the lowest error on each subset, where several are evaluated."""
        return subset_winners(self.comparable) if len(self.evaluated) > 1 else {}

    @property
    def swings(self) -> list[RankSwing]:
        """Return how far ranks move from subset to subset, where several models and subsets are evaluated."""
        errors = self.comparable
        several = len(errors) > 1 and any(len(own) > 1 for own in errors.values())
        return rank_swings(errors) if several else []

    @property
    def orders(self) -> list[OrderedPairs]:
        """Return how each model orders pairs of clips, answers behind scores: evaluated ones, then the controls."""
        found = self.preferences.models if self.preferences is not None else {}
        rows = []
        for name in (*self.models, *(each for each in found if each not in self.models)):
            if name in found:
                rows.append(OrderedPairs(self.shown(name), name in self.evaluated, "scores", found[name].scores))
                if (asked := found[name].asked) is not None:
                    rows.append(OrderedPairs(self.shown(name), name in self.evaluated, "asked", asked))
        return rows

    @property
    def orders_caption(self) -> str:
        """Return what the pairs are, and how to read the columns."""
        assert self.preferences is not None
        levels = sum(pair.preferred != "tie" for pair in self.preferences.level_pairs)
        people = sum(pair.preferred != "tie" for pair in self.preferences.pairs)
        stated = f", and {people} of which a person preferred one" if people else ""
        return (
            f"Two clips of one instruction, the better one preferred: {levels} pairs of different true levels{stated}. "
            "By scores, the higher expected level is preferred; asked, the mean of both orders. A tie counts half"
        )

    @property
    def sentences(self) -> list[str]:
        """Return the sentences below the tables; first which models HELM cannot score, or scores by their mode."""
        special = {name: m.helm_levels for name, m in self.models.items() if m.helm_levels in _WHY}
        said = [f"{self.shown(name)} {_WHY[levels]}" for name, levels in special.items()]
        return [*said, *_unscored(self), *_agreements(self), *_duplicates(self)]


def load_benchmark(run: Run) -> BenchmarkReport | None:
    """Return what a bench run found, computed from its trials; None for any other run, an error where files differ."""
    content = run.stored(BENCH)
    if content is None:
        return None
    trials = trials_digest(run.trials())
    stored, of_trials = _stored(run, BENCH, BenchmarkErrors.from_json, content)
    # A model that has no text in the file is one whose text is a note of ours; only the runner can tell those apart.
    without_text = [name for name, model in stored.models.items() if not model.counts.texts]
    errors = benchmark_errors(run, without_text)
    if of_trials == trials:
        refuse_other_results(run, BENCH, stored.to_json(), errors.to_json())
    evaluated = tuple(name for name in run.record.evaluated if name in errors.models)
    names = names_of_run(run.record, errors.models)
    copies, preferences = _load_duplicates(run, without_text, trials), _load_preferences(run, trials)
    return BenchmarkReport(evaluated, errors, copies, preferences, _load_causes(run, trials), names)


def _load_causes(run: Run, trials: str) -> BenchmarkCauses | None:
    """Return how well models tell why rollouts failed, as the trials give it; None where none was asked."""
    content = run.stored(CAUSES)
    if content is None:
        return None
    stored, of_trials = _stored(run, CAUSES, partial(record_from_json, BenchmarkCauses), content)
    found = benchmark_causes(run)
    if of_trials == trials:
        refuse_other_results(run, CAUSES, record_to_json(stored), record_to_json(found))
    return found


def _load_preferences(run: Run, trials: str) -> BenchmarkPreferences | None:
    """Return the agreement with people's preferences that the trials give, None where the data states none."""
    content = run.stored(PREFERENCES)
    if content is None:
        return None
    stored, of_trials = _stored(run, PREFERENCES, partial(record_from_json, BenchmarkPreferences), content)
    found = benchmark_preferences(run, stored.pairs, stored.level_pairs, stored.answers)
    if of_trials == trials:
        refuse_other_results(run, PREFERENCES, record_to_json(stored), record_to_json(found))
    return found


def _load_duplicates(run: Run, without_text: list[str], trials: str) -> dict[str, Any] | None:
    """Return the copies among the videos, None where none were looked for, with the errors that the trials give."""
    content = run.stored(COPIES)
    if content is None:
        return None
    found, of_trials = _stored(run, COPIES, _duplicates_from_json, content)
    mae = errors_without(run, without_text, episodes_to_leave_out(found["copies"]))
    if of_trials == trials:
        refuse_other_results(run, COPIES, found["mae"], mae)
    return found | {"mae": mae}


def _stored(run: Run, name: str, read: Callable[[object], Kind], content: dict[str, Any]) -> tuple[Kind, object]:
    """Return what a file of a bench run holds, and the digest of the trials that it was made of."""
    digest = content.pop(TRIALS_DIGEST, None)
    try:
        return read(content), digest
    except ValueError as error:
        raise RunError(
            f"{run.folder / name} is not a benchmark of this version: {error}; run the same `rewardlab bench` again"
        ) from error


def _duplicates_from_json(content: object) -> dict[str, Any]:
    found: dict[str, Any] = record_to_json(record_from_json(FoundDuplicates, content))
    if len(found["copies"]) > 2 * found["episodes"]:  # each once among the tested and once among the training videos
        raise ValueError(f"{len(found['copies'])} copies among {found['episodes']} episodes")
    return found


def print_benchmark(benchmark: BenchmarkReport, console: "Console") -> None:
    """Print the headline of all models, the subsets of the evaluated ones, and the duplicates."""
    console.print(_headline(benchmark))
    console.print(_parts(benchmark, "subsets", benchmark.errors.subsets))
    for kind, names in benchmark.breakdowns.items():
        console.print(_parts(benchmark, kind, names))
    if benchmark.named_causes:
        console.print(_causes(benchmark))
    if benchmark.swings:
        console.print(_swings(benchmark))
    if benchmark.orders:
        console.print(_orders(benchmark))
    for sentence in benchmark.sentences:
        console.print(sentence, highlight=False, markup=False)


def error_text(error: ErrorEstimate | PreferenceShare | None) -> str:
    """Return one number with its interval; a dash where there is none."""
    if error is None:
        return "-"
    ends = "" if error.low is None else f" {error.low:.2f}..{error.high:.2f}"
    return f"{format_number(error.value, 3)}{ends}"


def unread_text(counts: AnswerCounts, unread: int) -> str:
    """Return how many of a model's texts could not be read; a dash where it gave none."""
    return f"{unread}/{counts.texts}" if counts.texts else "-"


def short_name(subset: str) -> str:
    """Return what the published table calls a subset."""
    return SUBSETS.get(subset, subset or "(none)")


_WHY: dict[HelmLevels, str] = {
    "other format": "does not answer in HELM's format, so only the strict scoring applies to it.",
    "expectation": "answers with expectations, not with whole levels, so HELM cannot score it.",
    "mode": "answers with expectations: for HELM its most probable level counts, marked (mode).",
}


def helm_mark(model: ModelErrors) -> str:
    """Return what stands beside a HELM score that is not of what the model wrote."""
    return " (mode)" if model.helm_levels == "mode" else ""


def _unscored(benchmark: BenchmarkReport) -> list[str]:
    """Return for which evaluated models a subset is missing from the strict mean."""
    every, said = benchmark.errors.subsets, []
    for name in benchmark.evaluated:
        strict = benchmark.models[name].strict
        empty = [short_name(subset) for subset in every if _value(strict, "subsets", subset) == "-"]
        if 0 < len(empty) < len(every):
            said.append(
                f"{benchmark.shown(name)}: no answer was scored strictly in {', '.join(empty)}, so its strict MAE is "
                f"the mean over {len(every) - len(empty)} of {len(every)} subsets."
            )
    return said


def _agreements(benchmark: BenchmarkReport) -> list[str]:
    """Return how often each model orders two rollouts as a person did."""
    found = benchmark.preferences
    if found is None or not found.pairs:
        return []
    said = []
    for name in benchmark.models:
        agreement = found.agreement[name]
        short = "" if agreement.scored == agreement.asked else f" ({agreement.scored} scored)"
        said.append(f"{benchmark.shown(name)} {error_text(agreement)}{short}")
    ties = sum(pair.preferred == "tie" for pair in found.pairs)
    pairs = f"{len(found.pairs) - ties} pairs of rollouts, {ties} tie{'s' * (ties != 1)} left out"
    return [f"agreement with people's preferences ({pairs}; equal levels count half): {'; '.join(said)}."]


def _duplicates(benchmark: BenchmarkReport) -> list[str]:
    """Return how many videos are duplicates, which fraction that is, and how they change the error."""
    found = benchmark.copies
    if found is None:
        return []
    out, copies, total = episodes_to_leave_out(found["copies"]), found["copies"], found["episodes"]
    inside, training = (len({c["episode"] for c in copies if c["where"] == where}) for where in ("test", "training"))
    exact = sum(copy["kind"] == "exact" for copy in copies)
    against = "" if found["training_episodes"] is None else f", {training} are in the training set"
    said = f"duplicates: {inside} of {total} videos come earlier in the set{against} ({exact} exact)"
    if not out:
        return [f"{said}; none is left out."]
    gaps = []
    for name in benchmark.evaluated:
        pair = found["mae"][name]["strict"]
        both = f"{format_number(pair['with'], 3)} with, {format_number(pair['without'], 3)} without"
        gaps.append(f"{benchmark.shown(name)} {both}")
    return [f"{said}; {len(out)} ({len(out) / total:.1%}) count twice or leaked: MAE of {'; '.join(gaps)} them."]


def _headline(benchmark: BenchmarkReport) -> "Table":
    table = _table(f"Clean episodes, {benchmark.caption}; 95 % intervals")
    for heading in ("MAE (HELM)", "MAE (strict)", "micro", "scored", "unread"):
        table.add_column(heading, justify="right")
    for name, model in benchmark.models.items():
        counts, shown = model.counts, safe_markup(benchmark.shown(name))
        helm = error_text(model.helm.macro if model.helm else None) + helm_mark(model)
        strict, micro = error_text(model.strict.macro), format_number(model.strict.micro.value, 3)
        row = (helm, strict, micro, f"{counts.scored}/{counts.asked}", unread_text(counts, counts.unread))
        table.add_row(f"[bold]{shown}[/bold]" if name in benchmark.evaluated else shown, *row)
    return table


def _causes(benchmark: BenchmarkReport) -> "Table":
    """Return how well each model tells why rollouts failed, beside the best constant answer."""
    table = _table("Why rollouts failed; 95 % intervals")
    for heading in ("accuracy", "macro F1", "frame error", "read"):
        table.add_column(heading, justify="right")
    for name, found in benchmark.named_causes.items():
        measures = (error_text(each) for each in (found.accuracy, found.macro_f1, found.frame_error))
        table.add_row(safe_markup(name), *measures, f"{found.accuracy.scored}/{found.accuracy.asked}")
    return table


def _parts(benchmark: BenchmarkReport, kind: str, names: Sequence[str]) -> "Table":
    """Return the errors on each subset, embodiment or perspective; of subsets also who is best there."""
    winners = benchmark.winners if kind == "subsets" else {}
    table = _table(f"MAE per {kind.removesuffix('s')} (HELM / strict)")
    for name in benchmark.evaluated:
        table.add_column(safe_markup(benchmark.shown(name)), justify="right")
    table.add_column("episodes", justify="right")
    if winners:
        table.add_column("best", overflow="fold")
    models = [benchmark.models[name] for name in benchmark.evaluated]
    for name in names:
        errors = [" / ".join(_value(read, kind, name) for read in (m.helm, m.strict)) for m in models]
        first = vars(models[0].strict)[kind].get(name)
        best = [safe_markup(", ".join(map(benchmark.shown, winners.get(name, ()))) or "-")] if winners else []
        table.add_row(safe_markup(short_name(name)), *errors, str(first.asked if first else 0), *best)
    return table


def _swings(benchmark: BenchmarkReport) -> "Table":
    swings = benchmark.swings
    table = _table(f"Rank of {len(swings)} models: over all subsets, on the best and on the worst one")
    for heading in ("all", "best", "worst"):
        table.add_column(heading, justify="right", overflow="fold")
    for swing in swings:
        ends = (safe_markup(rank_text(each)) for each in (swing.best, swing.worst))
        table.add_row(safe_markup(benchmark.shown(swing.model)), str(swing.rank), *ends)
    return table


def _orders(benchmark: BenchmarkReport) -> "Table":
    table = _table(f"{benchmark.orders_caption}; 95 % intervals")
    table.add_column("by")
    for heading in benchmark.orders[0].numbers:
        table.add_column(heading, justify="right", overflow="fold")
    for row in benchmark.orders:
        shown = safe_markup(row.model)
        table.add_row(f"[bold]{shown}[/bold]" if row.evaluated else shown, row.way, *row.numbers.values())
    return table


def rank_text(found: SubsetRank) -> str:
    """Return a rank with its subset and the error there."""
    return f"{found.rank} ({short_name(found.subset)}, {format_number(found.error, 3)})"


def _known_errors(errors: ProtocolErrors) -> dict[str, float]:
    return {name: error.value for name, error in errors.subsets.items() if error.value is not None}


def _value(errors: ProtocolErrors | None, kind: str, name: str) -> str:
    error = vars(errors)[kind].get(name) if errors else None
    return format_number(error.value if error else None, 3)


def _table(title: str) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold")
    return table
