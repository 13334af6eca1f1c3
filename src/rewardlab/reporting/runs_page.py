"""What the page of `view` shows: the runs of a folder, models side by side, and every model's curve on one clip."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from threading import RLock
from typing import Any

import cv2
import numpy as np

from rewardlab.core.errors import RewardlabError, RunError
from rewardlab.core.run import ATTACK, RECORD, SUMMARY, Run
from rewardlab.core.seeding import digest
from rewardlab.core.storage import is_locked, write_file
from rewardlab.core.summary import Measurement, in_control_order
from rewardlab.core.trial import CATEGORIES, CLEAN, SEVERITIES
from rewardlab.core.trial_table import METRIC_COLUMNS, TrialTable
from rewardlab.evaluation.compare import compare_runs, finding
from rewardlab.evaluation.display import format_date, names_of_run
from rewardlab.evaluation.findings import model_verdict
from rewardlab.evaluation.measurements import measurements
from rewardlab.evaluation.replay import TrialReplay, replay
from rewardlab.evaluation.runs import RunEntry, runs_list
from rewardlab.evaluation.scoring import frames_hash
from rewardlab.evaluation.summary import load_summary
from rewardlab.metrics import METRICS
from rewardlab.metrics.accuracy import macro_mae, success_accuracy, success_auc_within_subset
from rewardlab.metrics.clustered_bootstrap import draw_clusters
from rewardlab.metrics.estimates import clusters_of, with_clean_answers, with_clusters
from rewardlab.reporting.command_text import COMPARISON_HEAD, comparison_notes, test_row, verdict
from rewardlab.reporting.page import data_address, templates
from rewardlab.reporting.severity_curves import KEPT
from rewardlab.reporting.trial_cards import shrink

Json = dict[str, Any]
_CLEAN_METRICS = (macro_mae.name, success_accuracy.name, success_auc_within_subset.name)  # in the list, with KEPT
_SHOWN_METRICS = (success_accuracy.name, macro_mae.name, KEPT, success_auc_within_subset.name, "kendall_tau_b")
_MEASURE_SECONDS = 1.0  # an answer with the list measures runs for so long; the next one goes on
_PAUSE = 10  # a run that grows is measured again after so many times the seconds that it took
_DRAWS = 500  # of the bootstrap while a run goes on; a finished run has its own intervals
_CLIP_HEIGHT, _MOST_FRAMES, _JPEG_QUALITY = 240, 200, 75
_ANSWER = ("status", "reason", "level", "probabilities", "progress", "shown", "frames_hash")
_TRUTH = ("instruction", "truth_level", "truth_progress")
_CHANGE = ("perturbation", "category", "severity")
_MOST_KEPT = 4  # runs whose trials, datasets and reports are kept in memory
_LIST_SECONDS = 1.0  # for so long the folder is not listed again
_KEY = "[0-9a-f]{16}"


@dataclass(frozen=True)
class _Measured:
    """The numbers of a run when its files had these names and times; `problem` says why there are none."""

    files: tuple[object, ...]
    numbers: tuple[Measurement, ...]
    verdicts: Mapping[str, str]  # by model; a run that is not finished has none
    problem: str
    at: float
    seconds: float


@dataclass(eq=False)
class RunsPage:
    """The page over the runs below a folder; between calls it keeps what it measured and opened of each run.

    Runs are strangers' without `allow_code`: no code that one names is imported, and no dataset outside its folder is
    opened. Runs, episodes and changes are addressed by digests, never by paths.
    """

    folder: Path
    allow_code: bool = False
    _listed: tuple[float, list[RunEntry]] = field(default_factory=lambda: (-math.inf, []))  # when, and what
    _measured: dict[str, _Measured] = field(default_factory=dict)
    _tables: dict[str, tuple[tuple[object, ...], TrialTable]] = field(default_factory=dict)
    _replays: dict[str, TrialReplay | str] = field(default_factory=dict)
    _reports: dict[str, tuple[tuple[object, ...], str]] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)  # one request at a time measures, opens and renders

    def html(self, *, static: bool = False) -> str:
        """Return the page itself; a static one reads its documents from files beside it."""
        name = self.folder.resolve().name
        return templates().get_template("runs_page.html").render(folder=name, static=static)

    def document(self, name: str) -> Json:
        """Return a document by its name; RunError if there is none."""
        if name == "runs":
            return self.runs()
        makers: dict[str, Callable[..., Json]] = {
            rf"run-({_KEY})": self.run,
            rf"episode-({_KEY})-({_KEY})": self.episode,
            rf"frames-({_KEY})-({_KEY})-({_KEY})": self.frames,
            rf"tests-({_KEY})-([0-9]{{1,4}})-({_KEY})-([0-9]{{1,4}})": self.tests,
        }
        for pattern, make in makers.items():
            if found := re.fullmatch(pattern, name):
                with self._lock:
                    return make(*found.groups())
        raise RunError("there is no such document here")

    def runs(self, *, all_numbers: bool = False) -> Json:
        """Return the list of the runs; numbers that are not measured yet are missing, unless all are wanted."""
        end, rows = time.monotonic() + _MEASURE_SECONDS, []
        for entry in self._entries():
            free = self._lock.acquire(blocking=all_numbers)
            try:
                rows.append(self._row(entry, measure=free and (all_numbers or time.monotonic() < end)))
            except RewardlabError as error:  # it was removed or damaged since the folder was listed
                rows.append(_unreadable(entry) | {"problem": self._without_place(str(error))})
            finally:
                if free:
                    self._lock.release()
        metrics = [_metric(METRICS[name]) for name in (*_CLEAN_METRICS, KEPT)]
        return {"runs": rows, "metrics": metrics}

    def _row(self, entry: RunEntry, *, measure: bool) -> Json:
        row = _unreadable(entry)
        problem = self._outside(entry.run) or entry.problem
        if problem:
            return row | {"problem": self._without_place(problem)}
        record, known = entry.run.record, self._measured.get(entry.name)
        if measure and (known is None or _is_due(known, entry)):
            known = self._measured[entry.name] = _measure(entry, known)
        if known is not None and known.problem:
            return row | {"problem": self._without_place(known.problem)}
        names = names_of_run(record, record.plan.models)
        models = [
            {"index": place, "model": model, "name": names[model], "evaluated": model in record.evaluated}
            | {"numbers": None if known is None else _headline(known.numbers, model, record.evaluated)}
            | {"verdict": "" if known is None else known.verdicts.get(model, "")}
            for place, model in _in_order(record.plan.models, record.evaluated)
        ]
        row |= {"state": state_of(entry), "kind": record.kind, "data": record.settings.data, "models": models}
        row |= {"date": format_date(record.created), "created": record.created, "episodes": record.episodes}
        row |= {"trials": min(entry.trials, record.trials), "planned": record.trials}
        return row | {"data_digest": record.plan.data_digest, "note": _ATTACK_NOTE if record.kind == "attack" else ""}

    def _outside(self, run: Run) -> str:
        """Say which file of a run leads out of the folder; nothing where none does."""
        top = self.folder.resolve()
        for path in (run.folder, *run.folder.glob("*"), *run.parts()):
            if not path.resolve().is_relative_to(top):
                return f"{path} leads out of this folder, so it is not read; copy the run instead of linking to it"
        return ""

    def _without_place(self, sentence: str) -> str:
        return sentence.replace(f"{self.folder}/", "").replace(f"{self.folder.resolve()}/", "")

    def _entries(self) -> list[RunEntry]:
        at, entries = self._listed
        if time.monotonic() - at > _LIST_SECONDS:
            entries = runs_list(self.folder)
            self._listed = time.monotonic(), entries
        return entries

    def _entry(self, key: str) -> RunEntry:
        """Return the run of a key; what it is called and where it lies comes from the list alone."""
        found = next((entry for entry in self._entries() if _key(entry.name) == key), None)
        if found is None:
            raise RunError("this run is not in the folder any more")
        if problem := self._outside(found.run) or found.problem:
            raise RunError(self._without_place(problem))
        return found

    def _table(self, entry: RunEntry) -> TrialTable:
        """Return the trials of a run; those of the last few runs are kept."""
        files, known = _files(entry.run), self._tables.pop(entry.name, None)
        table = known[1] if known is not None and known[0] == files else entry.run.trials(METRIC_COLUMNS)
        self._tables[entry.name] = files, table
        _keep_last(self._tables)
        return table

    def run(self, key: str) -> Json:
        """Return the numbers of a run per category and severity, and its clips and changes."""
        entry = self._entry(key)
        row, trials = self._row(entry, measure=True), self._table(entry)
        if row["state"] == "unreadable":
            raise RunError(row["problem"])
        index = {model["model"]: model["index"] for model in row["models"]}
        numbers = [
            [index[m.model], m.group, m.severity, m.metric, m.value, m.low, m.high, m.scored, m.asked]
            for m in self._measured[entry.name].numbers
        ]
        episodes, changes = dict[str, Json](), dict[str, Json]()
        for trial in _firsts(trials, trials.codes("episode")[0]).records(("episode", *_TRUTH)):
            facts = {"instruction": trial["instruction"], "level": trial["truth_level"]}
            episodes[_key(trial["episode"])] = {"id": trial["episode"]} | facts
        severities = trials.number("severity").astype(np.int64)
        for trial in sorted(
            _firsts(trials, trials.codes("perturbation")[0] * len(SEVERITIES) + severities).records(_CHANGE),
            key=lambda each: ((CLEAN, *CATEGORIES).index(each["category"]), each["perturbation"], each["severity"]),
        ):
            changes[_change_key(trial)] = trial
        metrics = [_metric(METRICS[name]) for name in _SHOWN_METRICS]
        return row | {"numbers": numbers, "metrics": metrics, "episodes": episodes, "changes": changes}

    def episode(self, key: str, episode: str) -> Json:
        """Return every trial of an episode: what each model answered under each change."""
        entry = self._entry(key)
        trials = _of_episode(self._table(entry), episode)
        index = {model: number for number, model in enumerate(entry.run.record.plan.models)}
        return {
            "trials": [
                {name: trial[name] for name in (*_ANSWER, *_TRUTH)}
                | {"change": _change_key(trial), "model": index[trial["model"]]}
                for trial in trials
            ]
        }

    def frames(self, key: str, episode: str, change: str) -> Json:
        """Return the frames that the models saw as pictures, or the sentence that says why there are none."""
        entry = self._entry(key)
        rows = [trial for trial in _of_episode(self._table(entry), episode) if _change_key(trial) == change]
        if not rows:
            raise RunError("this run has no trial of that clip under that perturbation yet")
        row = rows[0]
        try:
            shown = self._replay(entry)
            if isinstance(shown, str):
                return {"problem": shown}
            made = shown.change(row["episode"], row["perturbation"], row["severity"]).episode
            pixels, times = made.frames, made.times
        except (RewardlabError, OSError, ValueError) as error:  # a path that a stranger wrote can be no path at all
            return {"problem": f"The clip cannot be shown: {self._without_place(str(error))}"}
        kept = np.unique(np.linspace(0, len(pixels) - 1, min(len(pixels), _MOST_FRAMES)).round().astype(int))
        pictures = [_picture(frame) for frame in shrink(pixels[kept], _CLIP_HEIGHT)]
        notes = [] if len(kept) == len(pixels) else [f"{len(kept)} of {len(pixels)} frames are shown."]
        if row["frames_hash"] != frames_hash(made):
            notes.append("The dataset has changed since the run: the models saw other pixels.")
        return {
            "frames": pictures,
            "places": kept.tolist(),
            "times": [round(float(at), 3) for at in times - times[0]],
            "note": " ".join(notes),
        }

    def _replay(self, entry: RunEntry) -> TrialReplay | str:
        which = f"{entry.name} {entry.run.record.plan_digest}"
        if which not in self._replays:
            try:
                self._replays[which] = replay(entry.run, allow_code=self.allow_code)
            except (RewardlabError, OSError, ValueError) as error:
                sentence = str(error).replace("a report opens", "this page opens")
                self._replays[which] = f"The clip cannot be shown: {sentence}"
            _keep_last(self._replays)
        return self._replays[which]

    def tests(self, key_a: str, model_a: str, key_b: str, model_b: str) -> Json:
        """Return the paired tests between two models, in words and as a table."""
        (run_a, name_a), (run_b, name_b) = self._model(key_a, model_a), self._model(key_b, model_b)
        made = compare_runs(run_a, run_b, name_a, name_b)
        rows = [test_row(test) for test in made.tests]
        claims = [finding(made, test) for test in made.tests if test.better is not None]
        about = {"a": made.model_a, "b": made.model_b, "verdict": verdict(made), "claims": claims}
        return about | {"head": COMPARISON_HEAD, "rows": rows, "notes": comparison_notes(made)}

    def _model(self, key: str, index: str) -> tuple[Run, str]:
        run = self._entry(key).run
        models = run.record.plan.models
        if int(index) >= len(models):
            raise RunError("there is no such model in this run")
        return run, models[int(index)]

    def report(self, key: str) -> str:
        """Return the report of a run, made of its trials; a page that lies in the run folder is not shown."""
        from rewardlab.reporting.run_page import render_page

        with self._lock:
            run = self._entry(key).run
            files = _files(run)
            if key not in self._reports or self._reports[key][0] != files:
                self._reports[key] = files, render_page([run], [load_summary(run)], allow_code=self.allow_code)
                _keep_last(self._reports)
            return self._reports[key][1]


def _unreadable(entry: RunEntry) -> Json:
    return {"key": _key(entry.name), "name": entry.name, "state": "unreadable", "models": []}


_ATTACK_NOTE = f"An attack: its result is {ATTACK} beside the clips, and it has no report."


def state_of(entry: RunEntry) -> str:
    """Return whether a run is complete, running or stopped; whoever writes a run holds its lock."""
    if is_locked(entry.run.folder):
        return "running"
    return "stopped" if entry.state == "open" else "complete"


def _keep_last(found: dict[str, Any]) -> None:
    """Drop the oldest entries, so that a page that stays open over many runs does not grow."""
    while len(found) > _MOST_KEPT:
        found.pop(next(iter(found)))


def _files(run: Run) -> tuple[object, ...]:
    """Identify the content of a run: parts are named by their content."""
    times = [path.stat().st_mtime_ns for name in (RECORD, SUMMARY) if (path := run.folder / name).is_file()]
    return (*times, *(path.name for path in run.parts()))


def _is_due(known: _Measured, entry: RunEntry) -> bool:
    rested = entry.state != "open" or time.monotonic() - known.at > _PAUSE * known.seconds
    return rested and known.files != _files(entry.run)


def _measure(entry: RunEntry, before: _Measured | None) -> _Measured:
    """Measure a run: a finished one has a summary of these very trials, of another one the trials so far count."""
    started, files, problem = time.monotonic(), _files(entry.run), ""
    found: Sequence[Measurement] = ()
    verdicts: dict[str, str] = {}
    try:
        if (entry.run.folder / SUMMARY).is_file():
            summary = entry.run.summary
            found = summary.measurements
            verdicts = {model: model_verdict(summary, model) for model in summary.evaluated}
        elif entry.trials and entry.kind != "attack":
            trials = with_clusters(with_clean_answers(entry.run.trials(METRIC_COLUMNS)))
            found = list(measurements(trials, draw_clusters(int(clusters_of(trials).max(initial=-1)) + 1, _DRAWS, 0)))
    except (RewardlabError, OSError, ValueError) as error:
        if _files(entry.run) != files and before is not None:  # it was written meanwhile
            return replace(before, at=time.monotonic())
        problem = str(error)
    kept = tuple(m for m in found if m.metric in _SHOWN_METRICS and m.group in (CLEAN, *CATEGORIES))
    return _Measured(files, kept, verdicts, problem, time.monotonic(), time.monotonic() - started)


def _headline(numbers: Sequence[Measurement], model: str, evaluated: Sequence[str]) -> Json:
    """Return the numbers of a model in the list, each with what the best control reaches."""
    found: Json = {}
    for name in _CLEAN_METRICS:
        clean = {m.model: m for m in numbers if m.metric == name and m.group == CLEAN and m.value is not None}
        better = min if METRICS[name].better == "lower" else max
        controls = [m for other, m in clean.items() if other not in evaluated and other.partition(":")[0] != "oracle"]
        if model in clean:
            best = better(controls, key=lambda m: m.value or 0.0, default=None)
            found[name] = _number(clean[model]) | {"best": best and {"model": best.model, "value": best.value}}
    top = max((m.severity for m in numbers), default=0)
    kept = [m for m in numbers if (m.model, m.metric, m.severity) == (model, KEPT, top) and m.value is not None]
    if kept and top:
        worst = min(kept, key=lambda m: m.value or 0.0)
        found[KEPT] = _number(worst) | {"where": f"{worst.group}, severity {top}"}
    return found


def _number(m: Measurement) -> Json:
    return {"value": m.value, "low": m.low, "high": m.high, "scored": m.scored, "asked": m.asked}


def _metric(metric: Any) -> Json:
    return {name: getattr(metric, name) for name in ("name", "heading", "title", "better", "summary")}


def _in_order(models: Sequence[str], evaluated: Sequence[str]) -> list[tuple[int, str]]:
    """Return the models with their places in the plan, evaluated ones first."""
    others = in_control_order(model for model in models if model not in evaluated)
    return [(models.index(model), model) for model in (*dict.fromkeys(evaluated), *others)]


def _key(name: str) -> str:
    return digest("view", name)


def _change_key(trial: Mapping[str, Any]) -> str:
    return digest("change", str(trial["perturbation"]), int(trial["severity"]))


def _firsts(trials: TrialTable, codes: "np.ndarray[Any, Any]") -> TrialTable:
    """Return one trial of each code, of the least severity."""
    order = np.argsort(trials.number("severity"), kind="stable")
    return trials.take(order[np.unique(codes[order], return_index=True)[1]])


def _of_episode(trials: TrialTable, key: str) -> list[Json]:
    """Return the trials of an episode; RunError if there are none."""
    codes, names = trials.codes("episode")
    place = next((place for place, name in enumerate(names) if _key(name) == key), None)
    if place is None:
        raise RunError("this run has no trial of that clip yet")
    return trials.where(codes == place).records(("model", "episode", *_CHANGE, *_ANSWER, *_TRUTH))


def _picture(frame: "np.ndarray[Any, Any]") -> str:
    _, data = cv2.imencode(".jpg", frame[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return data_address("image/jpeg", data.tobytes())


# The static copy: the page, and each document as a script that hands its JSON over, which works from disk.

_EXPORT_BYTES = 48_000_000  # of all frames in a static copy
_MOST_PAIRS = 60  # of models that are tested against each other in a static copy
_NO_FRAMES = "This clip is not in the static copy, which holds a limited number; `rewardlab view` shows every clip."
_NO_TESTS = "This pair is not tested in the static copy; `rewardlab compare` tests any two models."


def write_static_copy(page: RunsPage, out: Path) -> Path:
    """Write the page with all that it shows into a folder, and return the path of its index.

    Clips are limited: untouched ones first, then those at the highest severities.
    """
    listed, data = page.runs(all_numbers=True), out / "data"
    put = partial(_write_document, data)
    readable = [row for row in listed["runs"] if row["state"] != "unreadable"]
    clips: list[tuple[int, str, str, str]] = []  # by what goes first
    for row in readable:
        key = row["key"]
        found = page.document(f"run-{key}")
        row["report"] = _write_report(page, key, out)
        put(f"run-{key}", found)
        for episode in found["episodes"]:
            put(f"episode-{key}-{episode}", page.document(f"episode-{key}-{episode}"))
            clips += [(-c["severity"] or -9, key, episode, change) for change, c in found["changes"].items()]
    left = _EXPORT_BYTES
    for _, key, episode, change in sorted(clips):
        name = f"frames-{key}-{episode}-{change}"
        left -= put(name, _document_or_problem(page, name) if left > 0 else {"problem": _NO_FRAMES})
    for number, (name_a, name_b) in enumerate(_pairs(readable)):
        name = f"tests-{name_a}-{name_b}"
        put(name, _document_or_problem(page, name) if number < _MOST_PAIRS else {"problem": _NO_TESTS})
    put("runs", listed)
    return write_file(out / "index.html", page.html(static=True))


def _write_document(folder: Path, name: str, content: Json) -> int:
    """Write a document as a script, and return its bytes; nothing in it can end the script."""
    text = json.dumps(content, allow_nan=False).replace("<", "\\u003c")
    write_file(folder / f"{name}.js", f'rewardlab.take("{name}", {text});\n')
    return len(text)


def _document_or_problem(page: RunsPage, name: str) -> Json:
    try:
        return page.document(name)
    except RewardlabError as error:
        return {"problem": str(error)}


def _write_report(page: RunsPage, key: str, out: Path) -> bool:
    try:
        write_file(out / f"report-{key}.html", page.report(key))
    except RewardlabError:
        return False
    return True


def _pairs(rows: Sequence[Json]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of evaluated models of runs of the same episodes, in both orders."""
    by_data: dict[str, list[str]] = {}
    for row in rows:
        names = [f"{row['key']}-{model['index']}" for model in row["models"] if model["evaluated"]]
        by_data.setdefault(row["data_digest"], []).extend(names)
    for names in by_data.values():
        for a, b in combinations(names, 2):
            yield a, b
            yield b, a
