"""The command line: one line a command, in groups; flags come from signatures, and a function here shows the result."""

import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rewardlab
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
from rewardlab.core.old_settings import build_plan, flat_settings
from rewardlab.core.old_settings import command_parser as old_parser
from rewardlab.core.settings import Help, Setting, arguments_of, command_parser, settings_of, several
from rewardlab.core.terminal import one_line, safe_streams

if TYPE_CHECKING:
    from rewardlab.augmentation.augment import AugmentCommand
    from rewardlab.core.run import Run
    from rewardlab.core.summary import Summary
    from rewardlab.data.convert import CheckPlan, ConvertPlan
    from rewardlab.data.roboreward_rows import InitPlan
    from rewardlab.evaluation.attack import AttackRun
    from rewardlab.evaluation.compare import Comparison
    from rewardlab.evaluation.fit_calibration import CalibrationRun
    from rewardlab.evaluation.fit_guard import GuardRun
    from rewardlab.evaluation.merge import Merged
    from rewardlab.evaluation.plan import Plan
    from rewardlab.evaluation.score import ScoreReport
    from rewardlab.reporting.catalog import CompletionPlan, ListPlan, ShowPlan
    from rewardlab.reporting.command_text import RunsPlan
    from rewardlab.reporting.data_report import DataReportPlan
    from rewardlab.reporting.leaderboard import LeaderboardPlan
    from rewardlab.reporting.perturbed_copies import PerturbPlan
    from rewardlab.reporting.report import ReportPlan
    from rewardlab.reporting.trackers import ExportPlan
    from rewardlab.rl import RlRunPlan
    from rewardlab.rl.relabel import RelabelPlan
    from rewardlab.serving.listening import ServePlan
    from rewardlab.serving.verify import VerifyPlan
    from rewardlab.studies.perturbation_paper.commands import MonteCarloPlan
    from rewardlab.studies.rl.page import RlReportPlan
    from rewardlab.training.objectives import TrainObjectiveCommand
    from rewardlab.training.pocket import PocketPlan
    from rewardlab.training.vlm import AssemblePlan, TrainVlmCommand
    from rewardlab.worlds.metaworld.recording import CollectPlan


_FEW_MODELS = 12  # so many trained models are named one by one


def show_scores(
    call: "partial[ScoreReport]", *, json: Annotated[bool, Help("print JSON: one object with a list of clips")] = False
) -> int:
    """Print the answers and all that explains them; exit with 3 where there is none."""
    from rewardlab.core.trial import Failure
    from rewardlab.reporting.command_text import score_json, score_lines

    asked = call()
    print(score_json(asked) if json else "\n".join(score_lines(asked)))
    return MODEL_FAILED if any(isinstance(clip.answer, Failure) for clip in asked.clips) else 0


@dataclass(frozen=True)
class Output:
    """What is printed of a run, and what it must have shown; no part of the run."""

    require: Annotated[
        str | Sequence[str],
        Help(
            "gate such as macro_mae<=0.8 or certified:visual>=2: else exit code 1; repeatable",
            metavar="GATE",
            commas=False,
        ),
    ] = ()
    junit: Annotated[Path | None, Help("write models and gates as JUnit XML to this file")] = None
    dry_run: Annotated[bool, Help("print what would be scored, and score nothing")] = False
    json: Annotated[bool, Help("print the headline as JSON instead of tables")] = False
    verbose: Annotated[bool, Help("print every reason of failure and every drop too", short="-v", more=True)] = False


def show_stress(call: "partial[Run]", *, output: Output = Output()) -> int:
    """Run the stress test, print the summary and the path of the report."""
    from rewardlab.api import stress_plan
    from rewardlab.core.terminal import terminal_console
    from rewardlab.reporting.terminal_summary import print_summary

    shard = call.keywords["sharding"].shard
    if shard and not output.dry_run:
        _say(f"shard {shard}: {call().folder}; `rewardlab runs merge` puts shards together")
        return 0
    show: Callable[[Run, Summary], None] = lambda run, summary: print_summary(summary, terminal_console())
    return _evaluated(call, stress_plan(call.keywords), output, show)


def show_benchmark(call: "partial[Run]", *, output: Output = Output()) -> int:
    """Run the benchmark, print the errors and the path of the report."""
    from rewardlab.api import bench_plan
    from rewardlab.core.terminal import terminal_console
    from rewardlab.reporting.benchmark_tables import load_benchmark, print_benchmark

    def show(run: "Run", summary: "Summary") -> None:
        found = load_benchmark(run)
        assert found is not None
        print_benchmark(found, terminal_console())

    return _evaluated(call, bench_plan(call.keywords), output, show)


def _evaluated(call: "partial[Run]", plan: "Plan", output: Output, show: "Callable[[Run, Summary], None]") -> int:
    """Make a run, show it by the short names of its models, and return whether it passed.

    Its end is in the JUnit file, whatever it is.
    """
    from rewardlab.core.summary import rename_models
    from rewardlab.evaluation.display import display_names, names_of_run
    from rewardlab.evaluation.evaluate import forecast_run
    from rewardlab.evaluation.gates import check_gates, write_junit, write_junit_error
    from rewardlab.evaluation.summary import load_summary
    from rewardlab.reporting.terminal_summary import exit_code, failure_lines, headline_json, required_gates

    gates = required_gates(several(output.require), plan.models, plan.names)
    if output.dry_run:
        _say(forecast_run(plan).sentence)
        return 0
    try:
        run = call()
    except RewardlabError as error:
        if output.junit is not None:
            models = [model.as_written for model in plan.models]
            asked = display_names(models, dict(zip(models, plan.names, strict=False)))
            write_junit_error(output.junit, list(asked.values()), str(error))
        raise
    summary = load_summary(run)
    trials = run.trials(("id", "status", "model", "reason"))
    names = names_of_run(run.record, summary.models)
    results, reasons = check_gates(gates, summary), failure_lines(trials, names, every=output.verbose)
    shown, told = rename_models(summary, names), [result.called(names) for result in results]
    if output.junit is not None:
        write_junit(output.junit, shown, told, reasons)
    code = exit_code(summary, results)
    if output.json:
        print(headline_json(run, summary, results, code))
        return code
    if not plan.execution.quiet:
        show(run, shown)
        _tell_more(run, shown, output, reasons)
    for line in (*(result.sentence for result in told), f"report: {run.page}"):
        _say(line)
    return code


def _tell_more(run: "Run", summary: "Summary", output: Output, reasons: Sequence[str]) -> None:
    """Print why models failed and what paid ones have cost; a model without any answer is said on stderr too."""
    from rewardlab.reporting.findings_text import spending
    from rewardlab.reporting.terminal_summary import drop_lines, silent_models

    spent = [f"spent: {sentence}" for sentence in spending(run.folder)]
    for line in (*(drop_lines(summary) if output.verbose else ()), *reasons, *spent):
        _say(line)
    for model in silent_models(summary):
        print(one_line(f"rewardlab: {model} gave no answer at all"), file=sys.stderr)


def _say(text: object) -> None:
    """Print one line, whatever names from outside are in it."""
    print(one_line(text), flush=True)


def show_attack(call: "partial[AttackRun]") -> int:
    """Search for the worst case, print what breaks how early, and where the clips are."""
    from rewardlab.core.terminal import terminal_console
    from rewardlab.reporting.command_text import print_attack
    from rewardlab.reporting.findings_text import spending

    found = call()
    print_attack(found.result, terminal_console())
    for line in (*spending(found.run.folder), f"attack: {found.run.place}"):
        _say(line)
    return 0


def show_calibration(call: "partial[CalibrationRun]") -> int:
    """Fit the calibration, print what it changes and how to use it."""
    from rewardlab.evaluation.fit_calibration import calibration_sentences
    from rewardlab.reporting.findings_text import spending

    fitted = call()
    for sentence in (*calibration_sentences(fitted.record), *spending(fitted.run.folder)):
        _say(sentence)
    _say(f"calibrated model: {call.keywords['model']}+{fitted.run.folder}")
    return 0


def show_guard(call: "partial[GuardRun]") -> int:
    """Fit the guard, print what it does and how to use it."""
    from rewardlab.evaluation.fit_guard import guard_sentences

    fitted = call()
    for sentence in guard_sentences(fitted.record):
        _say(sentence)
    _say(f"guarded model: {call.keywords['model']}+{fitted.folder}")
    return 0


def report(plan: "ReportPlan") -> int:
    """Write the report and print where it is."""
    from rewardlab.core.terminal import loading

    with loading("writing the report"):
        page = rewardlab.report(*plan.runs, out=plan.out, trust=plan.trust)
    print(f"report: {page}")
    return 0


def show_comparison(
    call: "partial[Comparison]",
    *,
    out: Annotated[Path | None, Help("write the comparison to this file instead: .md or .json")] = None,
) -> int:
    """Print the verdict and a table of every test, or write them to a file."""
    from rewardlab.core.terminal import loading, terminal_console
    from rewardlab.reporting.command_text import print_comparison, verdict, write_comparison

    if out is not None and out.suffix not in (".md", ".json"):
        raise PlanError(f"--out must be a file that ends in .md or .json, got {str(out)!r}")
    with loading("comparing"):
        comparison = call()
    if out is None:
        print_comparison(comparison, terminal_console())
        return 0
    _say(verdict(comparison))
    _say(f"comparison: {write_comparison(comparison, out)}")
    return 0


def show_paths(call: "partial[Sequence[Path]]") -> int:
    """Print where each file is that was written."""
    for path in call():
        _say(path)
    return 0


def leaderboard(plan: "LeaderboardPlan") -> int:
    """Write the site and print where it is."""
    from rewardlab.core.terminal import loading

    with loading("writing the pages"):
        index = rewardlab.leaderboard(plan.runs, plan.out, trust=plan.trust)
    print(f"leaderboard: {index}")
    return 0


def perturb(plan: "PerturbPlan") -> int:
    """Write copies or sheets and print what was written."""
    from rewardlab.reporting.perturbed_copies import perturbed_files

    for line in perturbed_files(plan):
        _say(line)
    return 0


def montecarlo(plan: "MonteCarloPlan") -> int:
    """Run the simulated study, print its tables and the paths of what was written."""
    from rewardlab.core.terminal import terminal_console
    from rewardlab.reporting.report import write_report
    from rewardlab.studies.perturbation_paper.commands import keep_trials, print_montecarlo, run_montecarlo

    made = run_montecarlo(plan)
    print_montecarlo(made, terminal_console())
    _say(f"tables and figures: {made.folder}")
    run = keep_trials(plan, made)
    if run is not None:
        print(f"report: {write_report([run], run.page, trust=True)}")
    return 0


def collect(plan: "CollectPlan") -> int:
    """Record the rollouts and print how many there are at each level."""
    levels = rewardlab.collect(**flat_settings(plan))
    _say(f"{plan.out}: " + ", ".join(f"level {level}: {levels[level]}" for level in sorted(levels)))
    return 0


def train(plan: "PocketPlan") -> int:
    """Train and export, and print how to use what came out."""
    for model in rewardlab.train_pocket(**flat_settings(plan)):
        _say(f"trained model: {model}")
    return 0


def train_vlm(command: "TrainVlmCommand") -> int:
    """Fine-tune, and print how to use what came out; a dry run prints what it would take."""
    if command.dry_run:
        from rewardlab.training.vlm import forecast_vlm

        for line in forecast_vlm(command.plan):
            _say(line)
        return 0
    for model in rewardlab.train_vlm(**flat_settings(command.plan)):
        _say(f"trained model: {model}")
    return 0


def train_objective(command: "TrainObjectiveCommand") -> int:
    """Train with one objective or several, and print how to use what came out and where the comparison is."""
    from rewardlab.training.objectives import read_plan

    plan = command.plan if command.all is None else read_plan(command.all, command.plan)
    models = rewardlab.train_objective(**flat_settings(plan))
    for model in models if len(models) <= _FEW_MODELS else ():
        _say(f"trained model: {model}")
    _say(f"comparison: {plan.out / 'index.html'}" if plan.does("evaluate") else f"done until {plan.until}: {plan.out}")
    return 0


def assemble_vlm(plan: "AssemblePlan") -> int:
    """Put the model together and print how to use it."""
    _say(f"assembled model: {rewardlab.train_assemble(**flat_settings(plan))}")
    return 0


def serve(plan: "ServePlan") -> int:
    """Serve a model over HTTP until the process is told to stop."""
    rewardlab.serve(**flat_settings(plan))
    return 0


def verify(plan: "VerifyPlan") -> int:
    """Serve the page on which people check labels, or write out what they have verified."""
    rewardlab.data_verify(**flat_settings(plan))
    return 0


def data_report(plan: "DataReportPlan") -> int:
    """Write the page about a dataset and print what it says first, and where it is."""
    from rewardlab.core.terminal import loading

    with loading(f"reading {plan.data}"):
        page = rewardlab.data_report(**flat_settings(plan))
    print(f"report: {page}")
    return 0


def relabel(plan: "RelabelPlan") -> int:
    """Write the progress of every frame and say what has none."""
    made = rewardlab.relabel(**flat_settings(plan))
    if made.failed:
        _say(f"{made.failed} of {made.episodes} episodes have no progress, the first because: {made.reason}")
    _say(f"progress of {made.frames} frames of {made.episodes} episodes: {made.path}")
    return MODEL_FAILED if made.failed else 0


def rl_run(plan: "RlRunPlan") -> int:
    """Train every cell of a plan, and say where its page can be made from."""
    results = rewardlab.study_rl(**flat_settings(plan))
    failed = sum(cell.status == "failed" for cell in results.cells)
    _say(f"{len(results.cells) - failed} of {len(results.cells)} trainings are finished: {plan.out}")
    _say(f"their page: rewardlab study rl-page {plan.out}")
    return MODEL_FAILED if failed else 0


def rl_report(plan: "RlReportPlan") -> int:
    """Write the page of some studies and print where it is."""
    _say(str(rewardlab.study_rl_page(plan.runs, out=plan.out)))
    return 0


def check(plan: "CheckPlan") -> int:
    """Print the problems; the exit code says whether there are any."""
    from rewardlab.api import checked_dataset
    from rewardlab.data import dataset_notes
    from rewardlab.data.reading import wordless_note

    contents = checked_dataset(plan.data)
    for problem in contents.problems:
        _say(problem)
    notes = (*dataset_notes(plan.data), *wordless_note(contents.episodes))
    for note in notes:
        _say(f"note: {note}")
    _say(f"{len(contents.episodes)} sound episodes, {len(contents.problems)} problems, {len(notes)} notes")
    return BAD_DATA if contents.problems else 0


def init(plan: "InitPlan") -> int:
    """Write the skeleton of a dataset and print what is left to fill in."""
    from rewardlab.data.roboreward_rows import skeleton_lines, write_skeleton

    for line in skeleton_lines(write_skeleton(plan.folder)):
        _say(line)
    return 0


def convert(plan: "ConvertPlan") -> int:
    """Write the dataset in another layout and print what was written, and what was left out."""
    from rewardlab.core.terminal import loading

    with loading(f"converting {plan.source}"):
        made = rewardlab.data_convert(**flat_settings(plan))
    for problem in made.left_out:
        _say(f"left out {problem}")
    counts = ", ".join(f"{name or 'rollouts'}: {count}" for name, count in made.counts.items())
    _say(f"{made.folder}: {counts}, left out: {len(made.left_out)}")
    return 0


def augment(command: "AugmentCommand") -> int:
    """Make failures of successes, and print what each stage kept and refused, and what was asked."""
    from rewardlab.augmentation.augment import augmentation_lines, forecast_augmentation
    from rewardlab.reporting.findings_text import spending

    if command.dry_run:
        _say(forecast_augmentation(command.plan).sentence)
        return 0
    made = rewardlab.data_augment(**flat_settings(command.plan))
    for line in (*augmentation_lines(made), *spending(command.plan.calls_folder)):
        _say(line)
    return 0


def runs(plan: "RunsPlan") -> int:
    """List, ask, join or remove the runs of a folder."""
    from rewardlab.core.terminal import terminal_console
    from rewardlab.evaluation.runs import find_runs, query_trials, remove_runs, write_joined
    from rewardlab.reporting.command_text import answer_table, entry_row, rows_json, run_table

    entries = find_runs(plan.folder, plan.where)
    if plan.sql is not None:
        answer = query_trials(entries, plan.sql)
        if plan.json:
            print(rows_json(answer.to_pylist()))
        else:
            terminal_console().print(answer_table(answer))
        return 0
    if plan.join is not None:
        _say(f"{plan.join}: {write_joined(entries, plan.join):,} trials of {len(entries)} runs")
        return 0
    if plan.json:
        print(rows_json([entry_row(entry) for entry in entries]))
    else:
        terminal_console().print(run_table(entries))
    if plan.prune and plan.yes:
        remove_runs(plan.folder, entries)
    if plan.prune:
        _say(f"{'removed' if plan.yes else 'would remove, with --yes'}: {len(entries)} runs")
    return 0


def show_merged(call: "partial[Merged]") -> int:
    """Join shards and print what the run holds now."""
    from rewardlab.core.terminal import loading

    with loading("putting shards together"):
        made = call()
    for note in made.notes:
        _say(f"note: {note}")
    left = made.planned - made.trials
    state = "whole" if not left else f"{left:,} trials are missing: merge the other shards as well"
    _say(f"{made.run.folder}: {made.trials:,} of {made.planned:,} trials, {state}")
    return 0


def export(plan: "ExportPlan") -> int:
    """Write the numbers of a run to an experiment tracker and print where they are."""
    _say(f"{plan.to}: {rewardlab.runs_export(plan.run, plan.to, project=plan.project, place=plan.place)}")
    return 0


def list_catalog(plan: "ListPlan") -> int:
    """Print one line per entry of a catalog, or the catalogs themselves."""
    from rewardlab.core.terminal import terminal_console
    from rewardlab.reporting.catalog import listing

    terminal_console().print(listing(plan))
    return 0


def show(plan: "ShowPlan") -> int:
    """Print everything about an entry."""
    from rewardlab.reporting.catalog import describe

    print(describe(plan.name))
    return 0


def completion(plan: "CompletionPlan") -> int:
    """Print the script that teaches a shell to complete."""
    from rewardlab.reporting.catalog import completion_script

    print(completion_script(plan.shell, {name: command.load() for name, command in COMMANDS.items()}), end="")
    return 0


@dataclass(frozen=True)
class Command:
    """A line of the help: the function that does the work, what it does in a few words, and what shows its result.

    `show` is given the call itself, with all its arguments; its own keywords are flags too. It returns the exit code.
    """

    target: str  # module:function, within rewardlab
    summary: str
    show: Callable[..., int]

    def load(self) -> Any:
        """Return the function; its module is imported now."""
        module, _, name = self.target.partition(":")
        return getattr(import_module(f"rewardlab.{module}"), name)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Return every setting: those of the function, then those of what shows its result."""
        return (*settings_of(self.load()), *settings_of(self.show))


_P = "studies.perturbation_paper.commands"
GROUPS: dict[str, dict[str, Command]] = {
    "Judge a reward model": {
        "score": Command("evaluation.score:score_clips", "score a clip and explain the answer", show_scores),
        "stress": Command("api:stress", "perturb data, score it, report what breaks", show_stress),
        "bench": Command("api:bench", "error per subset by the RoboRewardBench protocol", show_benchmark),
        "attack": Command("api:attack", "find the smallest change that flips a verdict", show_attack),
        "compare": Command("evaluation.compare:compare", "paired tests between two models", show_comparison),
        "report": Command("reporting.report:ReportPlan", "write the page of one run or several", report),
        "leaderboard": Command(
            "reporting.leaderboard:LeaderboardPlan", "rank models of many runs on a static site", leaderboard
        ),
    },
    "Prepare data": {
        "data check": Command("data.convert:CheckPlan", "list what is wrong with a dataset", check),
        "data convert": Command("data.convert:ConvertPlan", "write a dataset in another layout", convert),
        "data report": Command("reporting.data_report:DataReportPlan", "a page about a dataset", data_report),
        "data augment": Command("augmentation.augment:AugmentCommand", "make failures out of successes", augment),
        "data verify": Command("serving.verify:VerifyPlan", "a page on which people check labels", verify),
        "data perturb": Command(
            "reporting.perturbed_copies:PerturbPlan", "write perturbed copies or contact sheets", perturb
        ),
        "data init": Command("data.roboreward_rows:InitPlan", "metadata.jsonl for a folder of videos", init),
        "collect": Command(
            "worlds.metaworld.recording:CollectPlan", "record simulated rollouts with exact labels", collect
        ),
    },
    "Improve a model": {
        "train pocket": Command("training.pocket:PocketPlan", "train the model that ships", train),
        "train vlm": Command("training.vlm:TrainVlmCommand", "fine-tune a vision-language model", train_vlm),
        "train objective": Command(
            "training.objectives:TrainObjectiveCommand",
            "train an encoder with one objective",
            train_objective,
        ),
        "train assemble": Command(
            "training.vlm:AssemblePlan", "join a vision tower and a language model", assemble_vlm
        ),
        "fit calibration": Command(
            "evaluation.fit_calibration:fit_calibration", "make probabilities mean what they say", show_calibration
        ),
        "fit guard": Command("evaluation.fit_guard:fit_guard", "withhold claims of success that are risky", show_guard),
    },
    "Use it on a robot": {
        "serve": Command("serving.listening:ServePlan", "serve a model over HTTP and WebSocket", serve),
        "relabel": Command("rl.relabel:RelabelPlan", "write a reward for every frame of a dataset", relabel),
    },
    "Study what rewards do": {
        "study montecarlo": Command(
            f"{_P}:MonteCarloPlan", "the simulated study of the perturbation paper", montecarlo
        ),
        "study perturbation": Command(f"{_P}:study_perturbation", "the same study measured on a run", show_paths),
        "study rl": Command("rl:RlRunPlan", "policies trained on different rewards", rl_run),
        "study rl-page": Command("studies.rl.page:RlReportPlan", "the page of such trainings", rl_report),
    },
    "Keep house": {
        "runs list": Command("reporting.command_text:RunsPlan", "runs below a folder", runs),
        "runs merge": Command("evaluation.merge:runs_merge", "join the shards of a run", show_merged),
        "runs export": Command("reporting.trackers:ExportPlan", "write a run to MLflow or Weights & Biases", export),
        "list": Command("reporting.catalog:ListPlan", "list models, perturbations, metrics, datasets", list_catalog),
        "show": Command("reporting.catalog:ShowPlan", "explain one of them", show),
        "completion": Command("reporting.catalog:CompletionPlan", "tab completion for a shell", completion),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
_FAMILIES = tuple(dict.fromkeys(name.split()[0] for name in COMMANDS if " " in name))

_OBJECTS_BETWEEN_COLLECTIONS = 20_000  # with 700, as Python has it, a sixth of loading modules is looking for garbage
_EXIT_CODES = (
    f"exit codes: 0 fine, {GATE_FAILED} gate failed, {WRONG_USE} wrong use, {MODEL_FAILED} model failed, "
    f"{BAD_DATA} bad data,\n{FAULT} fault of rewardlab, {CTRL_C} Ctrl-C"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the user can correct is said in one sentence, and the exit code says whose fault it is."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    words = sys.argv[1:] if arguments is None else list(arguments)
    with safe_streams():
        try:
            return _run(words)
        except (RewardlabError, UnicodeEncodeError, KeyboardInterrupt) as error:
            print(f"rewardlab: {_sentence(error)}", file=sys.stderr)
            return _exit_code(error)
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception:  # a fault of rewardlab: shown in full, and through the same filter as everything else
            traceback.print_exc()
            return FAULT


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
    if isinstance(function, type):
        return _run_plan(name, command, function, rest)
    given = vars(command_parser(name, function, command.settings).parse_args(rest))
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    call = partial(function, **arguments_of(function, values))
    return command.show(call, **arguments_of(command.show, values))


def _run_plan(name: str, command: Command, plan_type: Any, words: Sequence[str]) -> int:
    parser = old_parser("", "", "", {name: plan_type})
    given = vars(parser.parse_args([name, *words]))
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items() if key != "command"}
    return command.show(build_plan(plan_type, values))


def _overview() -> str:
    """Return the help on one screen: every command that is one word, and what the others begin with."""
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
    return "\n".join([f"usage: rewardlab {family} COMMAND ...   (--help behind it explains one)", "", *lines])


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
            "give it another name, or set PYTHONUTF8=1 if it is right"
        )
    return "\n  ".join(line.strip() for line in str(error).split("\n"))  # no name from outside begins a line
