"""The command line: a table of commands in groups; flags come from signatures, `show_*` functions print results."""

import atexit
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rewardlab.core import __version__
from rewardlab.core.catalog import find
from rewardlab.core.errors import (
    BAD_DATA,
    CTRL_C,
    FAULT,
    GATE_FAILED,
    MODEL_FAILED,
    WRONG_USE,
    PlanError,
    RewardlabError,
)
from rewardlab.core.settings import Help, Setting, arguments_of, command_parser, settings_of, several
from rewardlab.core.terminal import counted, loading, one_line, safe_streams, terminal_console

if TYPE_CHECKING:
    import pyarrow
    from rich.table import Table

    from rewardlab.augmentation.augment import Augmented
    from rewardlab.core.run import Run
    from rewardlab.core.summary import Summary
    from rewardlab.data.contract import Contents
    from rewardlab.data.convert import Conversion
    from rewardlab.data.roboreward_rows import Skeleton
    from rewardlab.evaluation.attack import AttackRun
    from rewardlab.evaluation.compare import Comparison
    from rewardlab.evaluation.fit_calibration import CalibrationRun
    from rewardlab.evaluation.fit_guard import GuardRun
    from rewardlab.evaluation.merge import Merged
    from rewardlab.evaluation.plan import Plan
    from rewardlab.evaluation.rank import Ranking
    from rewardlab.evaluation.runs import RunEntry
    from rewardlab.evaluation.score import ScoreReport
    from rewardlab.rl.relabel import Relabelled
    from rewardlab.rl.results import RlResults
    from rewardlab.serving.verified_split import VerifiedSplit
    from rewardlab.studies.perturbation_paper.commands import MonteCarloOutput


_MAX_LISTED_MODELS = 12  # of more trained models, only the comparison page is printed
_TRAINED_LABEL = "trained model: "

# Functions that run a command and print its result. Each takes the call as a `partial` and returns the exit code, or
# None for 0.


def _say(*lines: object) -> None:
    """Print each on a line of its own; line breaks inside names are escaped."""
    for line in lines:
        print(one_line(line), flush=True)


def show_scores(
    call: "partial[ScoreReport]",
    *,
    json: Annotated[bool, Help("print JSON: one object with a list of clips")] = False,
    verbose: Annotated[bool, Help("print the traceback of every failure, not only of the first", short="-v")] = False,
) -> int:
    """Print the scores with their explanations; the exit code is 3 if a clip has no score."""
    from rewardlab.core.trial import Failure
    from rewardlab.reporting.command_text import score_json, score_lines

    report = call()
    print(score_json(report) if json else "\n".join(score_lines(report, every=verbose)))
    return MODEL_FAILED if any(isinstance(clip.answer, Failure) for clip in report.clips) else 0


@dataclass(frozen=True)
class Output:
    """How a run is printed and which gates it must pass; not recorded in the run."""

    require: Annotated[
        str | Sequence[str],
        Help(
            "exit with 1 unless this gate passes, such as macro_mae<=0.8 or certified:visual>=2; repeatable",
            metavar="GATE",
            commas=False,
        ),
    ] = ()
    junit: Annotated[Path | None, Help("write models and gates as JUnit XML to this file")] = None
    dry_run: Annotated[bool, Help("print what would be scored, and score nothing")] = False
    json: Annotated[bool, Help("print the headline as JSON instead of tables")] = False
    verbose: Annotated[
        bool, Help("print every table, finding, failure reason, traceback and accuracy drop", short="-v")
    ] = False
    open: Annotated[bool, Help("open the report in a browser")] = False


def show_stress(call: "partial[Run]", *, output: Output = Output()) -> int:
    """Run the stress test, print the summary and the path of the report."""
    from rewardlab.api import stress_plan
    from rewardlab.reporting.terminal_summary import print_summary

    shard = call.keywords["sharding"].shard
    of_whole = {"require": output.require, "junit": output.junit, "json": output.json, "open": output.open}
    unused = [f"--{name}" for name, given in of_whole.items() if given]
    if shard and unused:
        raise PlanError(
            f"a shard has no results for {', '.join(unused)}: `rewardlab runs merge` the shards, then give the same "
            "command --out MERGED in place of --shard, which scores nothing again"
        )
    if shard and not output.dry_run:
        _say(f"shard {shard}: {call().folder}; merge the shards with `rewardlab runs merge`")
        return 0
    return _run_and_print(
        call,
        stress_plan(call.keywords),
        output,
        lambda _, summary: print_summary(summary, terminal_console(), every=output.verbose),
    )


def show_benchmark(call: "partial[Run]", *, output: Output = Output()) -> int:
    """Run the benchmark, print the errors and the path of the report."""
    from rewardlab.api import bench_plan
    from rewardlab.reporting.benchmark_tables import load_benchmark, print_benchmark
    from rewardlab.reporting.terminal_summary import print_beside

    def show(run: "Run", summary: "Summary") -> None:
        found = load_benchmark(run)
        assert found is not None
        print_benchmark(found, terminal_console())
        print_beside(summary, terminal_console())

    return _run_and_print(call, bench_plan(call.keywords), output, show)


def _run_and_print(call: "partial[Run]", plan: "Plan", output: Output, show: "Callable[[Run, Summary], None]") -> int:
    """Make a run, print it with the short names of its models, and return the exit code.

    The JUnit file is written even if the run fails.
    """
    from rewardlab.core.summary import rename_models
    from rewardlab.evaluation.display import display_names, names_of_run, traceback_lines
    from rewardlab.evaluation.evaluate import forecast_run
    from rewardlab.evaluation.gates import check_gates, write_junit, write_junit_error
    from rewardlab.evaluation.summary import load_summary
    from rewardlab.reporting.terminal_summary import (
        exit_code,
        failure_lines,
        headline_json,
        next_command,
        required_gates,
    )

    gates = required_gates(several(output.require), plan.models, plan.names)
    if output.dry_run:
        _say(forecast_run(plan).sentence)
        return 0
    try:
        run = call()
    except RewardlabError as error:
        if output.junit is not None:
            models = [model.spec for model in plan.models]
            names = display_names(models, dict(zip(models, plan.names, strict=False)))
            try:
                write_junit_error(output.junit, list(names.values()), str(error))
            except RewardlabError as unwritten:  # which must not hide why the run failed
                print(one_line(f"rewardlab: {unwritten}"), file=sys.stderr)
        raise
    summary = load_summary(run)
    trials = run.trials(("id", "status", "model", "reason", "traceback", "seconds", "member_failures"))
    names = names_of_run(run.record, summary.models)
    results, reasons = check_gates(gates, summary), failure_lines(trials, names, every=output.verbose)
    shown, shown_results = rename_models(summary, names), [result.called(names) for result in results]
    code = exit_code(summary, results)
    if output.json:
        print(headline_json(run, summary, results, code))
    else:
        if not plan.execution.quiet:
            show(run, shown)
            _print_details(run, shown, output, [*reasons, *traceback_lines(trials, names, every=output.verbose)])
        _say(*(result.sentence for result in shown_results), f"report: {run.page}")
        if not plan.execution.quiet:
            _say(f"next: {next_command(run, summary)}")
    if output.junit is not None:  # last: a path that cannot be written hides no result
        seconds = {names[m]: trials.where(trials.matches("model", m)).number("seconds") for m in summary.evaluated}
        spent = {model: each[each > 0].sum() for model, each in seconds.items()}
        write_junit(output.junit, shown, shown_results, reasons, spent)
    if output.open and not output.json:
        import webbrowser

        if not webbrowser.open(run.page.absolute().as_uri()):
            _say("no browser was found: open the report by hand")
    return code


def _print_details(run: "Run", summary: "Summary", output: Output, reasons: Sequence[str]) -> None:
    """Print why models failed and what paid ones cost; a model without any score is also reported on stderr."""
    from rewardlab.evaluation.gates import silent_models
    from rewardlab.reporting.findings_text import spending
    from rewardlab.reporting.terminal_summary import drop_lines

    spent = [f"spent: {sentence}" for sentence in spending(run.folder)]
    _say(*(drop_lines(summary) if output.verbose else ()), *reasons, *spent)
    for model in silent_models(summary):
        print(one_line(f"rewardlab: {model} returned no score at all"), file=sys.stderr)


def show_attack(call: "partial[AttackRun]") -> None:
    """Run the attack, print the lowest severity that breaks each model, and the folder of the clips."""
    from rewardlab.reporting.command_text import print_attack
    from rewardlab.reporting.findings_text import spending

    found = call()
    print_attack(found.result, terminal_console())
    _say(*spending(found.run.folder), f"attack: {found.run.place}")


def show_calibration(call: "partial[CalibrationRun]") -> None:
    """Fit the calibration, print what it changes and how to use it."""
    from rewardlab.evaluation.fit_calibration import calibration_sentences
    from rewardlab.reporting.findings_text import spending

    fitted = call()
    _say(*calibration_sentences(fitted.record), *spending(fitted.run.folder))
    _say(f"calibrated model: {call.keywords['model']}+{fitted.run.folder}")


def show_guard(call: "partial[GuardRun]") -> None:
    """Fit the guard, print what it does and how to use it."""
    from rewardlab.evaluation.fit_guard import guard_sentences

    fitted = call()
    _say(*guard_sentences(fitted.record), f"guarded model: {call.keywords['model']}+{fitted.run.folder}")


def show_comparison(
    call: "partial[Comparison]",
    *,
    out: Annotated[Path | None, Help("write the comparison to this file instead: .md or .json")] = None,
) -> None:
    """Print the verdict and a table of every test, or write them to a file."""
    from rewardlab.reporting.command_text import print_comparison, verdict, write_comparison

    if out is not None and out.suffix not in (".md", ".json"):
        raise PlanError(f"--out must be a file that ends in .md or .json, got {str(out)!r}")
    with loading("comparing"):
        comparison = call()
    if out is None:
        print_comparison(comparison, terminal_console())
    else:
        _say(verdict(comparison), f"comparison: {write_comparison(comparison, out)}")


def _printer(label: str = "", waiting: str = "") -> "Callable[[partial[object]], None]":
    """Return a function that prints a label and the result; both texts may have settings of the call in braces."""

    def show(call: "partial[object]") -> None:
        with loading(waiting.format(**call.keywords), quiet=not waiting):
            result = call()
        _say(f"{label.format(**call.keywords)}: {result}" if label else result)

    return show


def show_leaderboard(
    call: "partial[Path]",
    *,
    check: Annotated[bool, Help("compare each run or submission with its trials, and write nothing")] = False,
) -> int:
    """Print where the site is, or what is wrong with each submission; the exit code is 4 if anything is."""
    from rewardlab.reporting.submissions import check_submission

    if not check:
        with loading("writing the pages"):
            _say(f"leaderboard: {call()}")
        return 0
    with loading("checking"):
        result = [check_submission(place) for place in several(call.keywords["runs"])]
    for checked in result:
        _say(*(f"{checked.place}: {problem}" for problem in checked.problems))
        if not checked.problems:
            _say(f"{checked.place}: valid ({checked.model})")
    wrong = sum(bool(checked.problems) for checked in result)
    _say(f"{counted(len(result), 'submission')}, {wrong} with problems")
    return BAD_DATA if wrong else 0


def show_lines(call: "partial[Any]", label: str = "") -> None:
    """Print each result on a line, after a label."""
    _say(*(f"{label}{result}" for result in call()))


def show_perturbed(call: "partial[list[str]]") -> None:
    """Print each file when it is written."""
    call(tell=_say)


def show_montecarlo(call: "partial[MonteCarloOutput]") -> None:
    """Print the tables of the simulated study and where its files are."""
    from rewardlab.studies.perturbation_paper.commands import print_montecarlo

    made = call()
    print_montecarlo(made, terminal_console())
    _say(f"tables and figures: {made.folder}", *([f"report: {made.run.page}"] if made.run is not None else ()))


def show_collection(call: "partial[Mapping[int, int]]") -> None:
    """Record the rollouts and print how many rows there are at each level."""
    levels = call()
    _say(f"{call.keywords['out']}: " + ", ".join(f"level {level}: {levels[level]}" for level in sorted(levels)))


def _trained(forecast: str, show: "Callable[[partial[Any]], None]") -> "Callable[[partial[Any]], None]":
    """Return what shows a training, or with --dry-run what the named function says that it would take."""

    def shown(
        call: "partial[Any]",
        *,
        dry_run: Annotated[bool, Help("check everything, print what it would take, and train nothing")] = False,
    ) -> None:
        if not dry_run:
            return show(call)
        module, _, name = forecast.partition(":")
        _say(*getattr(import_module(f"rewardlab.training.{module}"), name)(**call.keywords))

    return shown


def show_trained_objectives(call: "partial[tuple[str, ...]]") -> None:
    """Print how to use what was trained, write the page of the comparison, and print where it is."""
    from rewardlab.studies.objectives import write_objective_page
    from rewardlab.training.objectives import objective_settings

    settings = objective_settings(**call.keywords)
    models = call()
    if len(models) <= _MAX_LISTED_MODELS:
        _say(*(f"{_TRAINED_LABEL}{model}" for model in models))
    if settings.does("evaluate"):
        _say(f"comparison: {write_objective_page(settings.out)}")
    else:
        _say(f"stopped after {settings.stop_after}: {settings.out}")


def run_server(call: "partial[None]") -> None:
    """Serve until the process is stopped."""
    call()


def show_view(call: "partial[Path | None]") -> None:
    """Serve the page until the process is stopped, or print where the static copy is."""
    written = call()
    if written is not None:
        _say(f"static copy: {written}")


def show_verified(call: "partial[VerifiedSplit | None]") -> None:
    """Serve the page until the process is stopped, or print what was written."""
    split = call()
    if split is not None:
        _say(f"{call.keywords['export']}: {split.sentence()}")


def show_relabelled(call: "partial[Relabelled]") -> int:
    """Print which file holds the progress of every frame, and how many episodes have none; if any, exit with 3."""
    made = call()
    if made.failed:
        _say(f"{made.failed} of {made.episodes} episodes have no progress; the first reason: {made.reason}")
    _say(f"progress of {counted(made.frames, 'frame')} of {counted(made.episodes, 'episode')}: {made.path}")
    return MODEL_FAILED if made.failed else 0


def show_rl_study(call: "partial[RlResults]") -> int:
    """Print how many training runs are finished and where their page is; exit with 3 if one failed."""
    results, out = call(), call.keywords["out"]
    failed = sum(run.status == "failed" for run in results.training_runs)
    _say(f"{len(results.training_runs) - failed} of {len(results.training_runs)} training runs are finished: {out}")
    _say(f"report: {out / 'index.html'}")
    return MODEL_FAILED if failed else 0


def show_check(call: "partial[Contents]") -> int:
    """Print the problems; the exit code says whether there are any."""
    from rewardlab.data import dataset_notes
    from rewardlab.data.reading import wordless_note
    from rewardlab.data.sources import outcome_sentence

    contents, data = call(), str(call.keywords["data"])
    notes = (*dataset_notes(data), *wordless_note(contents.episodes))
    _say(*contents.problems, *(f"note: {note}" for note in notes))
    _say(outcome_sentence(contents, data))
    counts = {"valid episode": contents.episodes, "problem": contents.problems, "note": notes}
    _say(", ".join(counted(len(what), noun) for noun, what in counts.items()))
    return BAD_DATA if contents.problems else 0


def show_skeleton(call: "partial[Skeleton]") -> None:
    """Print what was written and what is left to fill in."""
    from rewardlab.data.roboreward_rows import skeleton_lines

    _say(*skeleton_lines(call()))


def show_conversion(call: "partial[Conversion]") -> None:
    """Print what was written, and what was left out."""
    with loading(f"converting {call.keywords['data']}"):
        made = call()
    counts = ", ".join(f"{name or 'rollouts'}: {count}" for name, count in made.counts.items())
    _say(*(f"left out {problem}" for problem in made.left_out))
    _say(f"{made.folder}: {counts}, left out: {len(made.left_out)}")


def show_ranking(call: "partial[Ranking]") -> int:
    """Print the worst episodes with the reasons; the exit code is 3 if an episode has no score."""
    from rewardlab.reporting.command_text import print_ranking

    ranking = call()
    print_ranking(ranking, terminal_console())
    if call.keywords["out"] is not None:
        _say(f"every episode: {call.keywords['out']}")
    return MODEL_FAILED if any(each.level is None for each in ranking.episodes) else 0


def show_augmentation(
    call: "partial[Augmented]",
    *,
    dry_run: Annotated[bool, Help("print how many questions there would be at most; send and write nothing")] = False,
) -> None:
    """Print how many rows each stage kept and rejected, how many questions it took, and what they cost."""
    from rewardlab.augmentation.augment import augmentation_lines, forecast_augmentation
    from rewardlab.reporting.findings_text import spending

    if dry_run:
        _say(forecast_augmentation(**call.keywords).sentence)
    else:
        made = call()
        _say(*augmentation_lines(made), *spending(made.cache_dir))


def show_runs(
    call: "partial[list[RunEntry]]", *, json: Annotated[bool, Help("print a JSON object per run instead")] = False
) -> None:
    """Print the runs as a table, or as JSON lines."""
    from rewardlab.reporting.command_text import entry_row, rows_json, run_table

    entries = call()
    if json:
        print(rows_json([entry_row(entry) for entry in entries]))
    else:
        terminal_console().print(run_table(entries))


def show_query(
    call: "partial[pyarrow.Table]", *, json: Annotated[bool, Help("print every row, as JSON")] = False
) -> None:
    """Print the result of a query as a table, or as JSON lines."""
    from rewardlab.reporting.command_text import query_table, rows_json

    found = call()
    try:
        shown = rows_json(found.to_pylist()) if json else query_table(found)
    except (OverflowError, ValueError) as error:  # Arrow has dates of which Python has none
        raise PlanError(f"the result cannot be shown: {error}; select it as text, CAST(... AS VARCHAR)") from None
    if json:
        print(shown)
    else:
        terminal_console().print(shown)


def show_joined(call: "partial[int]") -> None:
    """Print how many trials were written, and where."""
    _say(f"{call.keywords['out']}: {call():,} trials")


def show_pruned(call: "partial[list[RunEntry]]") -> None:
    """Print the runs that were removed, or that would be."""
    from rewardlab.reporting.command_text import run_table

    entries, removed = call(), call.keywords["yes"]
    terminal_console().print(run_table(entries))
    _say(f"{'removed' if removed else 'would remove, with --yes'}: {len(entries)} runs")


def show_merged(call: "partial[Merged]") -> None:
    """Merge shards and print how complete the run is now."""
    with loading("merging shards"):
        made = call()
    left = made.planned - made.trials
    state = "complete" if not left else f"{left:,} trials are missing: merge the other shards as well"
    _say(*(f"note: {note}" for note in made.notes))
    _say(f"{made.run.folder}: {made.trials:,} of {made.planned:,} trials, {state}")


def show_table(call: "partial[Table]") -> None:
    """Print a table."""
    terminal_console().print(call())


def show_text(call: "partial[str]") -> None:
    """Print a text."""
    print(call())


def show_completion(call: "partial[str]") -> None:
    """Print the script, made from the settings of every command."""
    print(call(commands={name: command.settings for name, command in COMMANDS.items()}), end="")


@dataclass(frozen=True)
class Command:
    """One command: the function that does the work, a summary for the help, and the function that prints its result.

    `show` takes the call as a `partial` with all its arguments; its own keywords with a Help are flags too. It returns
    the exit code, or None for 0.
    """

    target: str  # module:function, within rewardlab
    summary: str
    show: Callable[..., int | None]

    def load(self) -> Any:
        """Return the function; its module is imported now."""
        module, _, name = self.target.partition(":")
        return getattr(import_module(f"rewardlab.{module}"), name)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return every setting: those of the function, then those of `show`."""
        return (*settings_of(self.load()), *settings_of(self.show))


_P = "studies.perturbation_paper.commands"
GROUPS: dict[str, dict[str, Command]] = {
    "Evaluate a reward model": {
        "score": Command("evaluation.score:score_clips", "score a clip and explain the answer", show_scores),
        "stress": Command("api:stress", "perturb data, score it, report what breaks", show_stress),
        "bench": Command("api:bench", "error per subset by the RoboRewardBench protocol", show_benchmark),
        "attack": Command("api:attack", "find the smallest perturbation that breaks a score", show_attack),
        "compare": Command("evaluation.compare:compare", "paired tests between two models", show_comparison),
        "report": Command(
            "reporting.report:report", "write the page of one run or several", _printer("report", "writing the report")
        ),
        "leaderboard": Command(
            "reporting.leaderboard:leaderboard", "rank models of many runs on a static site", show_leaderboard
        ),
        "view": Command("serving.view:view", "browse and compare all runs of a folder, live", show_view),
    },
    "Prepare data": {
        "data check": Command("data:data_check", "list what is wrong with a dataset", show_check),
        "data convert": Command("data.convert:data_convert", "write a dataset in another layout", show_conversion),
        "data report": Command(
            "reporting.data_page:data_report", "a page about a dataset", _printer("report", "reading {data}")
        ),
        "data rank": Command(
            "evaluation.rank:data_rank", "the worst episodes by a model's scores, and why", show_ranking
        ),
        "data augment": Command(
            "augmentation.augment:data_augment", "make labelled failures from successes", show_augmentation
        ),
        "data verify": Command("serving.verify:data_verify", "a page on which people check labels", show_verified),
        "data perturb": Command(
            "reporting.perturbed_copies:data_perturb", "write perturbed copies or contact sheets", show_perturbed
        ),
        "data init": Command("data.roboreward_rows:data_init", "metadata.jsonl for a folder of videos", show_skeleton),
        "collect": Command("api:collect", "record simulated rollouts with exact labels", show_collection),
    },
    "Improve a model": {
        "train pocket": Command(
            "training.pocket:train_pocket",
            "train the small model that ships with rewardlab",
            _trained("pocket:forecast_pocket", partial(show_lines, label=_TRAINED_LABEL)),
        ),
        "train vlm": Command(
            "training.vlm:train_vlm",
            "fine-tune a vision-language model",
            _trained("vlm:forecast_vlm", partial(show_lines, label=_TRAINED_LABEL)),
        ),
        "train objective": Command(
            "training.objectives:train_objective",
            "train an encoder with one objective",
            _trained("objectives:forecast_objective", show_trained_objectives),
        ),
        "train assemble": Command(
            "training.vlm:train_assemble",
            "join a vision tower and a language model",
            _trained("vlm:forecast_assembly", _printer("assembled model")),
        ),
        "fit calibration": Command(
            "evaluation.fit_calibration:fit_calibration", "calibrate the probabilities of a model", show_calibration
        ),
        "fit guard": Command(
            "evaluation.fit_guard:fit_guard", "withhold unreliable predictions of success", show_guard
        ),
    },
    "Use it on a robot": {
        "serve": Command("serving.serve:serve", "serve a model over HTTP and WebSocket", run_server),
        "relabel": Command("rl.relabel:relabel", "write a reward for every frame of a dataset", show_relabelled),
    },
    "Run a study": {
        "study montecarlo": Command(
            f"{_P}:study_montecarlo", "the simulated study of the perturbation paper", show_montecarlo
        ),
        "study perturbation": Command(
            f"{_P}:study_perturbation", "the same study from the trials of a run", show_lines
        ),
        "study objectives": Command(
            "studies.objectives:study_objectives", "every learning objective on one backbone", _printer()
        ),
        "study rl": Command("studies.rl.page:study_rl", "policies trained on different rewards", show_rl_study),
        "study rl-page": Command("studies.rl.page:study_rl_page", "write the page of `study rl`", _printer("report")),
    },
    "Manage runs and the catalog": {
        "runs list": Command("evaluation.runs:runs_list", "runs below a folder", show_runs),
        "runs sql": Command("evaluation.runs:runs_sql", "query the trials of many runs in SQL", show_query),
        "runs join": Command("evaluation.runs:runs_join", "write the trials of many runs to one file", show_joined),
        "runs prune": Command("evaluation.runs:runs_prune", "remove runs that match a filter", show_pruned),
        "runs merge": Command("evaluation.merge:runs_merge", "join the shards of a run", show_merged),
        "runs export": Command(
            "reporting.trackers:runs_export", "write a run to MLflow or Weights & Biases", _printer("{to}")
        ),
        "runs publish": Command(
            "reporting.publish:runs_publish",
            "a folder for a model hub: card, results, run and page",
            _printer("published", "writing {out}"),
        ),
        "list": Command("reporting.catalog:list_catalog", "list models, perturbations, metrics, datasets", show_table),
        "show": Command("reporting.catalog:show_entry", "describe one entry of the catalog", show_text),
        "completion": Command("reporting.catalog:completion", "tab completion for a shell", show_completion),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
_FAMILIES = tuple(dict.fromkeys(name.split()[0] for name in COMMANDS if " " in name))

_GC_THRESHOLD = 20_000  # objects; at Python's default of 700, garbage collection takes a sixth of the import time
_EXIT_CODES = (
    f"exit codes: 0 success, {GATE_FAILED} gate failed, {WRONG_USE} usage error, {MODEL_FAILED} model failed, "
    f"{BAD_DATA} bad data,\n{FAULT} bug in rewardlab, {CTRL_C} Ctrl-C"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; an error that the user can correct is printed as one sentence."""
    gc.set_threshold(_GC_THRESHOLD)
    words = sys.argv[1:] if arguments is None else list(arguments)
    ctrl_c = _CtrlC()
    with safe_streams():
        try:
            if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # first in, so called last
                signal.signal(signal.SIGINT, ctrl_c)
            try:
                return _run(words)
            finally:
                ctrl_c.pressed = max(1, ctrl_c.pressed)  # there is nothing left to stop
        except (RewardlabError, UnicodeEncodeError, KeyboardInterrupt) as error:
            print(f"rewardlab: {_sentence(error)}", file=sys.stderr)
            return _exit_code(error)
        except BrokenPipeError:  # the other end of the pipe, such as `head`, is closed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception:  # a bug in rewardlab: the traceback passes the same filter as all output
            traceback.print_exc()
            return FAULT


@dataclass
class _CtrlC:
    """Lets the first Ctrl-C stop a command, ignores the second while results are written, and exits at the third."""

    pressed: int = 0

    def __call__(self, _signal: int, _frame: object) -> None:
        self.pressed += 1
        if self.pressed == 1:
            raise KeyboardInterrupt
        if self.pressed > 2:
            os._exit(CTRL_C)


def _run(words: Sequence[str]) -> int:
    if words and words[0] == "--version":
        print(f"rewardlab {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0 if words else WRONG_USE
    if words[0] in _FAMILIES and (len(words) == 1 or words[1] in ("-h", "--help")):
        print(_family_overview(words[0]))
        return 0 if len(words) > 1 else WRONG_USE
    name = " ".join(words[: 2 if words[0] in _FAMILIES else 1])
    find(COMMANDS, name, "command")
    command, rest = COMMANDS[name], words[len(name.split()) :]
    function = command.load()
    given = vars(command_parser(name, function, command.settings).parse_args(rest))
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    call = partial(function, **arguments_of(function, values))
    return command.show(call, **arguments_of(command.show, values)) or 0


def _overview() -> str:
    """Return the help on one screen: commands of one word, and the first word of the others with their second words."""
    lines = [f"rewardlab {__version__}: find out when you can trust a reward model for robots.", ""]
    lines += ["usage: rewardlab COMMAND ...   (`rewardlab COMMAND --help` explains one)"]
    for title, commands in GROUPS.items():
        lines += ["", title]
        for first in dict.fromkeys(name.split()[0] for name in commands):
            whole = commands.get(first)
            parts = [name.split()[1] for name in commands if name.startswith(f"{first} ")]
            lines.append(f"  {first:12} {whole.summary if whole else ', '.join(parts)}")
    return "\n".join([*lines, "", _EXIT_CODES])


def _family_overview(family: str) -> str:
    lines = [f"  {name:20} {command.summary}" for name, command in COMMANDS.items() if name.split()[0] == family]
    return "\n".join([f"usage: rewardlab {family} COMMAND ...   (COMMAND --help explains one)", "", *lines])


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return CTRL_C
    return error.exit_code if isinstance(error, RewardlabError) else WRONG_USE


def _sentence(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, UnicodeEncodeError):
        return (
            f"a name has characters that {error.encoding} cannot write: {error.object[:200]!r}; "
            "rename it, or set PYTHONUTF8=1 to print it unchanged"
        )
    return "\n  ".join(line.rstrip() for line in str(error).split("\n"))  # so no name starts a line
