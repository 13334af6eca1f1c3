"""Opening a stranger's run imports no code, opens no dataset of theirs, and says in a sentence what is off."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import DataError, RunError
from rewardlab.core.records import checksummed
from rewardlab.core.run import Run, start_run
from rewardlab.core.trial import Answer
from rewardlab.evaluation.replay import replay
from rewardlab.evaluation.summary import load_summary
from rewardlab.perturbations import is_in_catalogue
from rewardlab.reporting.run_page import render_page
from tests.conftest import IN_PROCESS
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial
from tests.narrowing import of_type

EVIL = "from pathlib import Path\nPath(__file__).with_name('marker').touch()\nx = reader = None\n"
LAB = (
    "from rewardlab.perturbations.contract import on_instruction\n"
    "@on_instruction('semantic', parameter='n', table=(1, 2, 3, 4))\n"
    "def shout(text, n, rng):\n    '''Shout, as only this lab does.'''\n    return text + '!' * n\n"
)
NAMES = [["evil:x"], ["resolution", "evil:x"], ["resolution+evil:x"], ["evil:x+resolution"], ["random:evil:x"]]
DATASETS = ["evil:reader:.", "evil:reader:sample", "hub:nobody/nothing", "hub:nobody/nothing/test", "/dev", "\0"]
# Every verb that opens a run, in one process; lines of output that are a number are exit codes.
EVERY_VERB = """
import sys
sys.modules["matplotlib"] = None  # figures would only take time
from pathlib import Path
import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import RewardlabError
from rewardlab.core.run import Run

def python(run):
    try:
        rewardlab.report(run), Run(Path(run)).summary, Run(Path(run))._repr_html_()
    except RewardlabError as error:
        print(error, file=sys.stderr)
        return 2
    return 0

first = sys.argv[1]
print(main(["report", first]))
print(main(["study", "perturbation", first, first + "-study"]))
print(main(["leaderboard", *sys.argv[1:], "--out", first + "-site"]))
print(main(["compare", f"{first}::Length", f"{first}::constant"]))
print(main(["runs", "publish", first, "--out", first + "-published"]))
print(main(["leaderboard", first + "-published", "--check"]))
for run in sys.argv[1:]:
    print(python(run))
"""


class Length:
    """Judges by the length of the instruction, so that every changed text breaks an expectation."""

    def score(self, episodes: Sequence[rewardlab.Episode]) -> list[Answer]:
        return [rewardlab.Score(1 + len(episode.instruction) % 5) for episode in episodes]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "lab.py").write_text(LAB)
    (folder / "evil.py").write_text(EVIL)
    return folder


@pytest.fixture(scope="module")
def strangers_run(lab: Path, tiny_data: Path) -> Run:
    """A real run with a perturbation of a lab's own, whose code has since become evil."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(lab))
        run = rewardlab.stress(
            Length(),
            tiny_data,
            perturbations=("lab:shout", "resolution"),
            severities=(2,),
            execution=IN_PROCESS,
            out=lab / "run",
        )
        sys.modules.pop("lab", None)
    shutil.copy(run.page, lab / "first.html")
    (lab / "lab.py").write_text(EVIL)
    return run


def copy_with(run: Run, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Copy a run with another run.json, whose checksum fits."""
    shutil.copytree(run.folder, folder, ignore=shutil.ignore_patterns("report*"))
    content = json.loads((folder / "run.json").read_text())
    del content["sha256"]
    change(content)
    (folder / "run.json").write_text(json.dumps(checksummed(content)))
    return folder


def page_of(run: Run) -> str:
    return render_page([run], [load_summary(run)], allow_code=False)


def settings(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["settings"].update(changes)


@pytest.mark.slow
def test_no_verb_that_opens_a_run_imports_what_the_run_names(strangers_run: Run, lab: Path, tmp_path: Path) -> None:
    hostile = [{"perturbations": names} for names in NAMES] + [{"data": data} for data in DATASETS]
    folders = [str(strangers_run.folder)]
    folders += [str(copy_with(strangers_run, tmp_path / f"{n}", settings(**each))) for n, each in enumerate(hostile)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(lab), *sys.path])}
    arguments = [sys.executable, "-c", EVERY_VERB, *folders]
    done = subprocess.run(arguments, cwd=lab, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    codes = [line for line in done.stdout.splitlines() if line in ("0", "2")]
    assert codes == ["0"] * (6 + len(folders)), (codes, done.stderr)
    assert not (lab / "marker").exists()


def test_an_outside_perturbation_is_reported_by_its_numbers_and_a_sentence_says_why_no_clip(
    strangers_run: Run, tmp_path: Path
) -> None:
    page = page_of(strangers_run)
    assert '<a href="#shout">shout</a>' in page and "as only this lab does" not in page
    assert "<article" not in page
    assert "a report opens no dataset that a run names" in page and "--allow-code" in page
    inside = copy_with(strangers_run, tmp_path / "inside", settings())
    data = shutil.copytree(json.loads((inside / "run.json").read_text())["settings"]["data"], inside / "data")
    own = copy_with(Run(inside), tmp_path / "own", settings(data=str(tmp_path / "own" / "data")))
    assert data.is_dir() and "No clip shows shout: " in page_of(Run(own))


def test_a_camera_behind_the_name_hides_no_link_to_elsewhere(strangers_run: Run, tmp_path: Path) -> None:
    elsewhere = json.loads((strangers_run.folder / "run.json").read_text())["settings"]["data"]
    run = Run(copy_with(strangers_run, tmp_path / "own", settings(data=str(tmp_path / "own" / "data@front"))))
    (run.folder / "data").symlink_to(elsewhere)
    with pytest.raises(DataError, match="a report opens no dataset that a run names"):
        replay(run, allow_code=False)
    (run.folder / "data").unlink()
    shutil.copytree(elsewhere, run.folder / "data")
    with pytest.raises(DataError, match="no episode of a camera 'front'"):
        replay(run, allow_code=False)


def test_a_trusted_run_shows_its_clips_and_what_its_own_perturbations_do(
    strangers_run: Run, lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab.py").write_text(LAB)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lab", raising=False)
    assert main(["report", str(strangers_run.folder), "--allow-code", "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Shout, as only this lab does." in page and "<article" in page and "data:video/mp4" in page
    made_by_stress = (lab / "first.html").read_text()  # stress, which asked the models itself, trusts itself
    assert "Shout, as only this lab does." in made_by_stress and "<article" in made_by_stress


@pytest.mark.parametrize(
    ("name", "harmless"),
    [
        ("all", True), ("visual", True), ("fog", True), ("fog+jpeg", True), ("random:visual", True), ("no such", True),
        ("a:b", False), ("fog+a:b", False), ("a:b+fog", False), ("random:a:b", False), ("random:visual+a:b", False),
        ("random:", False),
    ],
)  # fmt: skip
def test_only_names_of_the_catalogue_are_in_the_catalogue(name: str, harmless: bool) -> None:
    assert is_in_catalogue(name) == harmless


SHAPES: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("settings", lambda c: c.update(settings=[]), "settings must be an object"),
    ("data", settings(data=5), "settings.data must be text, got 5"),
    ("perturbations", settings(perturbations="all"), "settings.perturbations must be a list"),
    ("frames", settings(frames=None), "settings.frames must be text"),
    ("seed", settings(seed="0"), "settings.seed must be whole number"),
    ("limit", settings(limit=1.5), "settings.limit must be whole number or null"),
    ("nobody evaluated", lambda c: c.update(evaluated=[]), "evaluated must name one or more of the models of the plan"),
    ("evaluated is text", lambda c: c.update(evaluated="length"), "evaluated must be a list"),
    ("evaluated is another", lambda c: c.update(evaluated=["best"]), "evaluated must name one or more of the models"),
    ("no evaluated", lambda c: c.pop("evaluated"), "has no evaluated"),
    ("versions", lambda c: c.update(versions=["1"]), "versions must be an object"),
    ("caveats", lambda c: c.update(caveats={"Length": 1}), "caveats.Length must be text"),
    ("trained tasks", lambda c: c.update(trained_tasks={"Length": 1}), "trained_tasks.Length must be a list"),
    ("command", lambda c: c.update(command={"a": 1}), "command must be text"),
    ("created", lambda c: c.update(created=None), "created must be text"),
    ("skipped", lambda c: c.update(skipped=[3]), "skipped[0] must be an object"),
    ("skipped row", lambda c: c.update(skipped=[{"place": 3, "what": ""}]), "skipped[0].place must be text"),
    ("trials", lambda c: c.update(trials="many"), "trials must be whole number"),
    ("fewer trials", lambda c: c.update(trials=3), "trials, but the plan has 3"),
    ("negative", lambda c: c.update(trials=-1), "must not be negative"),
    ("plan", lambda c: c.update(plan=None), "plan must be an object"),
    ("models", lambda c: c["plan"].update(models=["a"]), "models must be an object"),
    ("severities", lambda c: c["plan"].update(severities=[9]), "plan.severities must be among 0, 1, 2, 3, 4"),
    (
        "accuracy_threshold",
        lambda c: c["plan"].update(accuracy_threshold=2),
        "plan.accuracy_threshold must be from 0 to 1",
    ),
    ("another plan", lambda c: c["plan"].update(seed=1), "it belongs to a run with another plan"),
    ("unknown", lambda c: c.update({"<b>": 1}), "unknown keys: <b>"),
    ("depth", lambda c: c.update(settings=nested(99)), "too many lists and objects inside each other"),
    ("digits", settings(seed=10**60), "a whole number of 61 digits"),
    ("surrogate", settings(data="\ud800"), "half of a surrogate pair"),
]


def nested(depth: int) -> object:
    return {"a": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(("change", "words"), [shape[1:] for shape in SHAPES], ids=[shape[0] for shape in SHAPES])
def test_every_malformed_record_is_one_sentence(
    strangers_run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], object],
    words: str,
) -> None:
    folder = str(copy_with(strangers_run, tmp_path / "run", change))
    other = ["--out", f"{folder}-other"]
    commands = [["report", folder], ["leaderboard", folder, *other], ["compare", folder, folder]]
    commands += [["runs", "merge", folder, str(strangers_run.folder), *other], ["runs", "export", folder]]
    for command in commands:
        assert main(command) == 2
        said = capsys.readouterr().err
        assert (words in said or "are no shards of one run" in said) and said.count("\n") == 1


@pytest.mark.parametrize("name", ["run.json", "summary.json", "bench.json", "duplicates.json"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"null", b'{"schema": 1}', b"{" * 5000, "pipe", "device"])
def test_every_malformed_file_is_one_sentence(
    strangers_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | str
) -> None:
    folder = copy_with(strangers_run, tmp_path / "run", settings())
    (folder / "bench.json").write_text("{}")  # so that duplicates.json is looked for
    (folder / name).unlink(missing_ok=True)
    if content == "pipe":
        os.mkfifo(folder / name)
    elif content == "device":
        (folder / name).symlink_to("/dev/zero")
    else:
        (folder / name).write_bytes(of_type(bytes, content))
    assert main(["report", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_names_with_markup_stay_text_on_every_page(tmp_path: Path) -> None:
    """What a stranger wrote runs in no browser, breaks no table, and is no formula of a figure."""
    bad = "<script>alert(1)</script>\"'onload=x $\\frac{1}$ `x` | [a](javascript:b)\n# head"
    trials = [
        trial(
            float(1 + n % 5), 1 + n % 5, id=str(n), model=bad, episode=f"{bad}{n}", video=str(n), task=bad, subset=bad,
            instruction=bad, perturbation=bad if n % 2 else "clean", category="visual" if n % 2 else "clean",
            severity=4 * (n % 2), raw=bad,
        )
        for n in range(40)
    ]  # fmt: skip
    trials += [
        trial(None, 3, id="x", model=bad, episode="x", video="x", task="t", status="failed", reason=bad, subset=bad)
    ]
    record = record_of(
        trials,
        command=bad,
        created=bad,
        versions={bad: bad},
        caveats={bad: bad},
        trained_on={bad: [bad.replace("\n", " ")]},
    )
    record["settings"]["data"] = record["settings"]["frames"] = bad
    record["skipped"] = [{"place": bad, "what": bad}]
    run = start_run(tmp_path / "run", record)
    run.append(trials)
    written = [rewardlab.report(run), rewardlab.leaderboard([run], out=tmp_path / "site")]
    rewardlab.study_perturbation(run, tmp_path / "study")
    rewardlab.runs_publish(run, out=tmp_path / "published")
    rewardlab.leaderboard([tmp_path / "published"], out=tmp_path / "site of submissions")
    for path in [*written, *tmp_path.rglob("*.html"), *tmp_path.rglob("*.md"), *tmp_path.rglob("*.svg")]:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)  # code is shown, not rendered
        assert not re.search(r"(?<!\\)<script>alert", text), path
        assert "\n# head" not in text or path.suffix == ".html", path
    assert {path.name for path in tmp_path.iterdir()} == {
        *("run", "site", "study"),
        *("published", "site of submissions"),
    }
    yaml = pytest.importorskip("yaml", reason="needs the extra hub")
    front = (tmp_path / "published" / "README.md").read_text().split("\n---\n")[0]
    (model,) = yaml.safe_load(front)["model-index"]
    assert {result["dataset"]["type"] for result in model["results"]} == {"other"}
    assert all(result["dataset"]["name"].startswith(bad) for result in model["results"])


def test_links_in_a_strangers_folder_lead_no_report_elsewhere(
    strangers_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_with(strangers_run, tmp_path / "run", settings())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "page").write_text("mine")
    (folder / "report.html").symlink_to(outside / "page")
    (folder / f".report.html.{os.getpid()}.tmp").symlink_to(outside / "page")
    (folder / "report").symlink_to(outside)
    assert main(["report", str(folder)]) == 2
    assert "is a link to another place, where nothing is written" in capsys.readouterr().err
    assert [path.name for path in outside.iterdir()] == ["page"] and (outside / "page").read_text() == "mine"


@pytest.mark.parametrize("name", ["notes.json", "trials/part-0.parquet"])
def test_a_strangers_run_publishes_no_file_from_elsewhere(strangers_run: Run, tmp_path: Path, name: str) -> None:
    folder = copy_with(strangers_run, tmp_path / "run", settings())
    (tmp_path / "secret").write_text("mine")
    if name.startswith("trials"):
        (part,) = (folder / "trials").iterdir()
        part.rename(tmp_path / "part")
        part.symlink_to(tmp_path / "part")
    else:
        (folder / name).symlink_to(tmp_path / "secret")
    (folder / "ledger.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(RunError, match="is no regular file"):
        rewardlab.runs_publish(folder, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
