"""Published folders: a card that the hub reads, results, the run itself; uploads; submissions and their check."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import Run, start_run
from rewardlab.models import name_model
from rewardlab.reporting.publish import runs_publish, yaml_text
from rewardlab.reporting.submissions import check_submission, open_submitted, read_submission
from tests.conftest import IN_PROCESS
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import trial
from tests.reporting.hub_server import Hub, hub_server

TRICKY = [
    "a: b # c",
    "---\n...\n- x: 1",
    "'\"\\`",
    "{{ x }} ${y} %TAG !!python/object/apply:os.system",
    "é打🙂\u202e\x00\x1b\x85\u2028\ufeff",
    "*anchor &a <<",
    "no",
    "1e5",
    "",
    " ",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_data: Path) -> Run:
    out = tmp_path_factory.mktemp("run") / "run"
    few: dict[str, Any] = {"perturbations": ("jpeg",), "severities": (4,), "execution": IN_PROCESS}
    return rewardlab.stress("length", tiny_data, out=out, **few)


def made_run(folder: Path, data: str = "hub:teetone/RoboReward/test", model: str = "judge", **record: Any) -> Run:
    """Return a run of made-up trials of one model on data of the hub."""
    trials = [
        trial(
            float(1 + n % 5), 1 + n % 5, id=str(n), model=model, episode=str(n), video=str(n), task=f"t{n}",
            subset="droid",
        )
        for n in range(20)
    ]  # fmt: skip
    content = record_of(trials, evaluated=[model], **record)
    content["settings"] |= {} if "settings" in record else {"data": data}
    made = start_run(folder, content)
    made.append(trials)
    return made


@pytest.mark.parametrize(
    "value", [*TRICKY, 1, -2.5, 1e-7, 1e300, True, None, [], {}, {"a": [1, {"b": TRICKY}], "c": {}}]
)
def test_yaml_reads_back_as_what_was_written(value: object) -> None:
    yaml = pytest.importorskip("yaml", reason="needs the extra hub")
    assert yaml.safe_load(yaml_text({"key": value, "list": [value, [value]]})) == {
        "key": value,
        "list": [value, [value]],
    }


def test_a_card_is_what_the_hub_reads(run: Run, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    folder = Path(runs_publish(run, out=tmp_path / "published", trained_on=("teetone/RoboReward", "my own clips")))
    card = hub.ModelCard.load(folder / "README.md")
    assert card.data.model_name == "length" and card.data.datasets == ["teetone/RoboReward"]
    found = {(each.metric_type, each.dataset_args["severity"]): each for each in card.data.eval_results}
    summary = run.summary
    assert found["macro_mae", 0].metric_value == pytest.approx(summary.clean("length", "macro_mae").value)
    stressed = summary.measurement("length", "visual", 4, "success_accuracy")
    assert found["success_accuracy", 4].metric_value == pytest.approx(stressed.value)
    assert found["macro_mae", 0].metric_args == {"scored": 5, "asked": 5}
    assert "as its publisher states: teetone/RoboReward and my own clips." in card.text
    assert not (folder / ".eval_results").exists()  # the data is on no hub
    assert {path.name for path in folder.iterdir()} == {"README.md", "report", "report.html", "run", "submission.json"}
    assert Run(folder / "run").summary == summary and "length" in (folder / "report.html").read_text()


def test_a_run_with_repeats_is_published_and_submitted(tiny_data: Path, tmp_path: Path) -> None:
    few: dict[str, Any] = {"perturbations": "none", "execution": IN_PROCESS}
    thrice = rewardlab.stress(_levels, tiny_data, repeats=3, out=tmp_path / "run", **few)
    assert thrice.record.plan.repeated == ("_levels",)
    out = runs_publish(thrice, out=tmp_path / "published")
    assert check_submission(out).problems == ()


def _levels(episode: rewardlab.Episode) -> float:
    return 1.0 + len(episode.instruction) % 5


def test_results_of_data_on_the_hub_are_in_its_format(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="needs the extra hub")
    hub = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    judged = made_run(tmp_path / "run")
    out = runs_publish(judged, out=tmp_path / "out", link="https://example.org/judge")
    content = yaml.safe_load((Path(out) / ".eval_results" / "rewardlab.yaml").read_text())
    entries = {entry.task_id: entry for entry in hub.parse_eval_result_entries(content)}
    assert hub.eval_result_entries_to_yaml(list(entries.values())) == content
    assert {entry.dataset_id for entry in entries.values()} == {"teetone/RoboReward"}
    assert entries["macro_mae"].value == 0.0 and math.isfinite(entries["success_accuracy"].value)
    assert entries["macro_mae"].source_url == "https://example.org/judge"
    assert str(entries["macro_mae"].date) == "2026-01-01T00:00:00+00:00"
    assert "20 of 20 episodes scored" in entries["macro_mae"].notes
    other = runs_publish(judged, out=tmp_path / "other", benchmark="lab/clips")
    assert '"lab/clips"' in (Path(other) / ".eval_results" / "rewardlab.yaml").read_text()


@pytest.mark.parametrize(
    ("given", "record", "said"),
    [
        ((), {}, "Training data: not stated"),
        (("none",), {}, "as its publisher states: no public dataset."),
        (("BridgeData",), {}, "as its publisher states: BridgeData."),
        (("DROID",), {}, "evaluated on droid, which is among them"),
        (("teetone/roboreward",), {}, "evaluated on teetone/RoboReward, which is among them"),
        ((), {"trained_on": {"judge": ["DROID"]}}, "as the model states: DROID."),
        ((), {"trained_tasks": {"judge": ["t1", "t2", "other"]}}, "3 tasks that it names; 2 of the 20 here"),
    ],
)
def test_a_card_says_what_the_model_was_trained_on(
    tmp_path: Path, given: tuple[str, ...], record: dict[str, Any], said: str
) -> None:
    card = (
        Path(runs_publish(made_run(tmp_path / "run", **record), out=tmp_path / "out", trained_on=given)) / "README.md"
    ).read_text()
    assert said in card
    assert ("not of unseen data" in card) == ("among them:" in card)


@pytest.mark.slow
def test_models_that_ship_state_what_they_were_trained_on(tiny_data: Path, tmp_path: Path) -> None:
    assert name_model("pocket").trained_on == ("Meta-World", "tabletop", "DROID")
    assert name_model("pocket-plain").trained_on == ("Meta-World",)
    assert name_model("ensemble:pocket,pocket-plain").trained_on == ("Meta-World", "tabletop", "DROID")
    assert name_model("ensemble:pocket,constant").trained_on == ()
    few: dict[str, Any] = {
        "perturbations": "polite_filler",
        "severities": (1,),
        "controls": False,
        "execution": IN_PROCESS,
    }
    stated = rewardlab.stress("pocket", tiny_data, out=tmp_path / "run", **few).record.trained_on
    assert stated == {"pocket": ("Meta-World", "tabletop", "DROID")}


@pytest.mark.slow
def test_of_several_models_one_is_named(tiny_data: Path, tmp_path: Path) -> None:
    few: dict[str, Any] = {
        "perturbations": "polite_filler",
        "severities": (1,),
        "controls": False,
        "execution": IN_PROCESS,
    }
    both = rewardlab.stress(["length", "motion"], tiny_data, out=tmp_path / "run", **few)
    with pytest.raises(PlanError, match="evaluated 2 models"):
        runs_publish(both, out=tmp_path / "out")
    folder = Path(runs_publish(f"{both.folder}::motion", out=tmp_path / "out"))
    assert read_submission(folder / "submission.json").model == "motion"
    assert "**motion**" in (folder / "README.md").read_text() and "**length**" not in (folder / "README.md").read_text()
    site = rewardlab.leaderboard(folder, out=tmp_path / "site").parent
    assert [page.name for page in site.glob("model-*")] == ["model-1-motion.html"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"benchmark": "nothing"}, "benchmark must be OWNER/NAME"),
        ({"benchmark": "../../x"}, "benchmark must be OWNER/NAME"),
        ({"link": "javascript:alert(1)"}, "link must be an https address"),
        ({"link": "https://x/'onload='"}, "link must be an https address"),
        ({"trained_on": ("a\nb",)}, "printable names"),
        ({"push": "me/results"}, "HF_TOKEN"),
    ],
)
def test_a_wrong_setting_writes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    if "push" in changes:
        pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(PlanError, match=said):
        runs_publish(run, out=tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    with pytest.raises(PlanError, match="holds other files"):
        runs_publish(run, out=tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["README.md"]
    with pytest.raises(PlanError, match="outside of the run"):
        runs_publish(run, out=run.folder / "published")
    first = runs_publish(run, out=tmp_path / "out")
    assert runs_publish(run, out=tmp_path / "out") == first  # a published one is written anew


def test_an_unfinished_run_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="20 of 30 trials: finish it"):
        runs_publish(made_run(tmp_path / "run", trials=30), out=tmp_path / "out")


def test_a_part_of_a_dataset_is_no_result_of_it(tmp_path: Path) -> None:
    judged = made_run(tmp_path / "run", settings=record_of([])["settings"] | {"limit": 20, "data": "hub:lab/clips"})
    folder = Path(runs_publish(judged, out=tmp_path / "out"))
    assert not (folder / ".eval_results").exists()
    with pytest.raises(PlanError, match="no result of lab/clips"):
        runs_publish(judged, out=tmp_path / "out", benchmark="lab/clips")


# Uploads, to a server on this machine that speaks the calls of the hub


def push(run: Run, folder: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, **more: Any) -> str:
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with hub_server(hub):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        return runs_publish(run, out=folder, push="me/results", **more)


@pytest.mark.filterwarnings("ignore")
def test_a_push_makes_a_private_repository_and_uploads_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    hub, folder = Hub(), tmp_path / "out"
    address = push(made_run(tmp_path / "run"), folder, hub, monkeypatch)
    assert address == f"{hub.url}/me/results/commit/1" and "private" in {
        hub.created.get("visibility"),
        *(name for name, on in hub.created.items() if on is True),
    }
    written = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert hub.files == written and ".eval_results/rewardlab.yaml" in written
    assert hub.tokens == {"Bearer hf_secret"} and not hub.as_pull_request
    assert b"hf_secret" not in b"".join(written.values()) and "hf_secret" not in "".join(capfd.readouterr())
    push(made_run(tmp_path / "run"), folder, hub, monkeypatch)  # what was published like this before is written to
    assert not hub.as_pull_request


@pytest.mark.filterwarnings("ignore")
def test_a_repository_of_others_gets_a_pull_request_that_leaves_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(exists=True, files={"README.md": b"the card of a model"})
    address = push(made_run(tmp_path / "run"), tmp_path / "out", hub, monkeypatch)
    assert hub.as_pull_request and address.endswith("/discussions/1")
    assert hub.files["README.md"] == b"the card of a model" and "submission.json" in hub.files


@pytest.mark.filterwarnings("ignore")
def test_a_refused_upload_is_one_sentence_without_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="is written, but me/results did not take it") as told:
        push(made_run(tmp_path / "run"), tmp_path / "out", Hub(refuses=True), monkeypatch)
    assert "hf_secret" not in str(told.value) and (tmp_path / "out" / "README.md").exists()


# Submissions


@pytest.fixture
def published(run: Run, tmp_path: Path) -> Path:
    return Path(runs_publish(run, out=tmp_path / "published", trained_on=("DROID",), link="https://example.org/a"))


def test_a_published_folder_is_a_valid_submission_with_a_page(published: Path, tmp_path: Path) -> None:
    assert main(["leaderboard", str(published), str(published / "submission.json"), "--check"]) == 0
    index = rewardlab.leaderboard([published], out=tmp_path / "site")
    page = index.with_name("model-1-length.html").read_text()
    assert 'href="model-1-length.html"' in index.read_text() and "trained on: DROID" in index.read_text()
    assert "as its publisher states: DROID." in page and 'href="https://example.org/a"' in page
    assert 'href="published-1.html#model-1"' in page and (tmp_path / "site" / "published-1.html").exists()


def test_a_submission_fits_its_schema(published: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "examples" / "submission.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    content = json.loads((published / "submission.json").read_text())
    assert validator.is_valid(content)
    for name, value in BAD_FIELDS:
        wrong = content | {name: value}
        assert not validator.is_valid(wrong), name
        (published / "submission.json").write_text(json.dumps(wrong))
        with pytest.raises(RunError, match="is no submission"):
            read_submission(published / "submission.json")


BAD_FIELDS: list[tuple[str, object]] = [
    ("schema", 2),
    ("schema", "1"),
    ("model", None),
    ("run", "/etc"),
    ("run", "../run"),
    ("run", ""),
    ("trained_on", "DROID"),
    ("trained_on", ["x" * 201]),
    ("trained_on", [""]),
    ("trained_on", ["x"] * 201),
    ("stated_by", "somebody"),
    ("stated_by", "nobody"),
    ("link", "javascript:alert(1)"),
    ("link", "https://a/?q=<script>"),
    ("trials_sha256", "0" * 63),
    ("more", "fields"),
]


def test_what_is_wrong_with_a_submission_is_listed(
    published: Path, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((published / "submission.json").read_text())
    (published / "submission.json").write_text(json.dumps(content | {"model": "pocket", "trials_sha256": "0" * 64}))
    (published / "notes").symlink_to(tmp_path)
    found = check_submission(published).problems
    assert [problem.partition(";")[0] for problem in found] == [
        f"{published / 'notes'} is a link",
        "the run evaluated length, not pocket",
        "trials_sha256 is not the digest of the trials of the run",
    ]
    with pytest.raises(RunError, match="is a link; a submission holds files only"):
        rewardlab.leaderboard([published], out=tmp_path / "site")
    assert main(["leaderboard", str(published), str(run.folder), str(tmp_path / "none"), "--check"]) == 4
    output = capsys.readouterr().out
    assert "is a link" in output and f"{run.folder}: valid (length)" in output
    assert "3 submissions, 2 with problems" in output and not (tmp_path / "leaderboard").exists()


def test_edited_numbers_are_found(published: Path) -> None:
    from rewardlab.core.records import checksummed

    path = published / "run" / "summary.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    next(row for row in content["measurements"] if row["value"] is not None)["value"] = 0.123
    path.write_text(json.dumps(checksummed(content)))
    (problem,) = check_submission(published).problems
    assert "does not match the trials" in problem
    with pytest.raises(RunError, match="does not match the trials"):
        rewardlab.leaderboard([published], out=published.parent / "site")


def test_a_submission_that_leads_elsewhere_is_refused(published: Path, run: Run) -> None:
    (published / "elsewhere").symlink_to(run.folder)
    content = json.loads((published / "submission.json").read_text())
    (published / "submission.json").write_text(json.dumps(content | {"run": "elsewhere"}))
    with pytest.raises(RunError, match="run must stay below the folder"):
        open_submitted(published)
    assert any("run must stay below the folder" in problem for problem in check_submission(published).problems)
