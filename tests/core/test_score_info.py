"""Score.info: what is known about an answer keeps its type through files, processes and servers; `raw` is text only."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rewardlab.core.episode import Episode, episode_from_frames
from rewardlab.core.errors import RunError
from rewardlab.core.run import Run, start_run
from rewardlab.core.run_files import encode_part, part_name
from rewardlab.core.trial import (
    Answer,
    Failure,
    GuardVerdict,
    Score,
    ScoreInfo,
    describe_info,
    familiarity_sentence,
    validate_answer,
)
from rewardlab.core.trial_table import OPTIONAL_COLUMNS, TrialTable, to_arrow, trials_digest
from rewardlab.models.calibration import Calibrated, Calibration
from rewardlab.models.composite import Ensemble
from rewardlab.models.guard import Guard, Guarded, answer_features
from rewardlab.models.protocols import Rubric
from rewardlab.models.remote import pack_answers, unpack_answers
from rewardlab.models.vlm import AnswerFormat, Completion, Prompt
from tests.conftest import moving_square
from tests.handmade_runs import record_of
from tests.metrics.handmade_trials import ONE

FULL = ScoreInfo(
    prediction_set=(3, 4),
    set_coverage=0.9,
    novelty=0.25,
    unfamiliar=True,
    training_distance=0.6123,
    distance_limit=0.35,
    unfamiliar_because="a still picture",
    disagreement=0.5,
    uncalibrated_level=3.5,
    member_levels={"pocket": 4.0, "length": 3.0},
    member_failures={"hf:x": "no camera"},
    skipped_members=1,
    frame_quality={"noise": -1.5},
    precision="int8",
    input_tokens=900,
    output_tokens=12,
    cost=0.004,
    log_probability=-60.5,
    normalised_instruction="open the drawer",
    failure_cause="dropped",
    failure_probabilities={"none": 0.25, "dropped": 0.75},
    failure_frame=3,
    failure_text="FRAME: 4\nCAUSE: 3",
    guard=GuardVerdict("hold", 0.4, 0.8, {"noise": 1.25}),
)
INFOS = [FULL, ScoreInfo(), ScoreInfo(prediction_set=(), guard=GuardVerdict("pass", 0.0))]
TRIALS = [
    replace(ONE, id=f"{place:03}", status="scored", level=3.0, reason=None, info=info)
    for place, info in enumerate(INFOS)
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return start_run(tmp_path / "run", record_of(TRIALS))


def test_info_comes_out_of_parquet_as_it_went_in(run: Run) -> None:
    for trial in TRIALS:
        run.append([trial])
    assert run.trials().rows() == TRIALS
    run.compact()
    assert run.trials().rows() == TRIALS
    assert run.trials().number("novelty").tolist()[0] == 0.25 and np.isnan(run.trials().number("novelty")[1])


def test_a_part_without_columns_of_info_reads_as_missing_and_joins_with_others(run: Run) -> None:
    plain = [replace(trial, info=ScoreInfo()) for trial in TRIALS]
    data = encode_part(to_arrow(plain[1:2]).drop_columns(list(OPTIONAL_COLUMNS)), run.record.plan_digest)
    (run.folder / "trials" / part_name("part", data)).write_bytes(data)
    assert pq.read_schema(pa.BufferReader(data)).names[-1] == "seconds"
    assert run.trials().rows() == plain[1:2]
    run.append([TRIALS[0], TRIALS[2]])
    assert run.trials().rows() == [TRIALS[0], plain[1], TRIALS[2]]


def test_the_digest_counts_info_and_is_that_of_an_earlier_run_where_there_is_none() -> None:
    plain = to_arrow([replace(trial, info=ScoreInfo()) for trial in TRIALS])
    before = trials_digest(TrialTable(plain.drop_columns(list(OPTIONAL_COLUMNS))))
    assert trials_digest(TrialTable(plain)) == before
    changed = replace(FULL, member_levels={"pocket": 4.0, "length": 2.0})
    digests = {trials_digest(TrialTable(to_arrow([replace(ONE, info=info)]))) for info in (*INFOS, changed)}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"novelty": float("nan")}, "novelty must be a finite number"),
        ({"training_distance": float("inf")}, "training_distance must be a finite number"),
        ({"prediction_set": (7,)}, "prediction_set must be levels"),
        ({"member_levels": {"a": float("inf")}}, "member_levels must be finite numbers"),
        ({"guard": GuardVerdict("maybe", 0.2)}, "guard_decision must be a known decision of a guard"),  # type: ignore[arg-type]
        ({"failure_cause": "gravity"}, "failure_cause must be a known cause"),
        ({"failure_probabilities": {"dropped": 1.5}}, "failure_probabilities must be numbers from 0 to 1"),
        ({"failure_frame": -1}, "failure_frame must be 0 or more"),
        ({"guard": GuardVerdict("pass", 1.5)}, "guard_risk must be from 0 to 1"),
    ],
)
def test_an_info_that_cannot_be_is_refused_when_a_run_is_read(run: Run, changed: dict[str, Any], words: str) -> None:
    run.append([replace(TRIALS[0], info=replace(FULL, **changed))])
    with pytest.raises(RunError, match=words):
        run.trials()


def test_a_long_text_in_a_map_that_is_there_many_times_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    long = ScoreInfo(member_failures={"m": "x" * 1_000_000})
    run.append([replace(trial, info=long) for trial in TRIALS])
    monkeypatch.setenv("REWARDLAB_MAX_TRIALS_MB", "2")
    with pytest.raises(RunError, match="MB of trials in memory"):
        run.trials()


@pytest.mark.parametrize("info", INFOS)
def test_info_crosses_the_wire(info: ScoreInfo) -> None:
    answers: list[Answer] = [Score(3.0, raw="three", info=info), Failure("no camera", "hm", info)]
    assert unpack_answers(pack_answers(answers, "f"), [1, 1]) == (answers, "f")


def test_an_answer_without_info_or_with_more_than_is_known_is_taken() -> None:
    rows = [{"level": 3}, {"level": 3, "info": {"novelty": 0.5, "mood": "good"}}, {"failure": "hm", "info": None}]
    found, _ = unpack_answers(json.dumps({"answers": rows, "fingerprint": "f"}).encode(), [1, 1, 1])
    assert found == [Score(3.0), Score(3.0, info=ScoreInfo(novelty=0.5)), Failure("hm")]


@pytest.mark.parametrize(
    "info",
    [
        {"novelty": 0.5},
        ScoreInfo(novelty="high"),  # type: ignore[arg-type]
        ScoreInfo(novelty=True),
        ScoreInfo(unfamiliar="no"),  # type: ignore[arg-type]
        ScoreInfo(disagreement=float("nan")),
        ScoreInfo(prediction_set=(5, 4)),
        ScoreInfo(prediction_set=(0,)),
        ScoreInfo(member_levels={"a": float("inf")}),
        ScoreInfo(member_levels={1: 3.0}),  # type: ignore[dict-item]
        ScoreInfo(member_failures={"a": "x" * 200_000}),
        ScoreInfo(failure_cause="gravity"),
        ScoreInfo(failure_probabilities={"gravity": 0.5}),
        ScoreInfo(failure_frame=-1),
        ScoreInfo(input_tokens=1.5),  # type: ignore[arg-type]
        ScoreInfo(guard="pass"),  # type: ignore[arg-type]
        ScoreInfo(guard=GuardVerdict("pass", None)),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("answer", [Score(3.0), Failure("no camera")])
def test_a_bad_info_of_a_model_is_a_failure(info: Any, answer: Answer) -> None:
    found = validate_answer(replace(answer, info=info), 1)
    assert isinstance(found, Failure) and found.info == ScoreInfo() and found.reason != "no camera"


def test_numbers_of_any_kind_become_plain_ones() -> None:
    info = ScoreInfo(np.array([4, 5]), novelty=np.float32(0.5), unfamiliar=np.True_)  # type: ignore[arg-type]
    found = validate_answer(Score(3, info=info), 1).info
    assert found == ScoreInfo(prediction_set=(4, 5), novelty=0.5, unfamiliar=True)
    assert json.dumps(found.prediction_set) == "[4, 5]" and type(found.novelty) is float
    assert found.unfamiliar is True


class Writes:
    """A vision-language model that writes the same to everything."""

    def __init__(self, text: str) -> None:
        self.text = text

    def complete(
        self,
        prompts: Sequence[Prompt],
        max_tokens: int,  # noqa: ARG002
        answer: AnswerFormat | None = None,  # noqa: ARG002
    ) -> list[Completion | Failure]:
        return [Completion(self.text, info=ScoreInfo(input_tokens=900, cost=0.01)) for _ in prompts]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        raise NotImplementedError

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        raise NotImplementedError


def clip(instruction: str = "push") -> Episode:
    return episode_from_frames(moving_square("a", count=4), instruction)


NOTES = '{"novelty": "high", "set": [5], "sd": 9, "levels": {"a": 5}, "trust": {"verdict": "pass"}} ANSWER: 4'


def test_json_that_a_language_model_writes_is_text() -> None:
    (answer,) = Rubric(Writes(NOTES)).score([clip()])
    assert answer == Score(4.0, raw=NOTES, info=ScoreInfo(input_tokens=900, cost=0.01))
    assert answer_features(answer) == {}
    (unread,) = Rubric(Writes('{"novelty": "high"}')).score([clip()])
    assert isinstance(unread, Failure) and unread.raw == '{"novelty": "high"}' and unread.info.novelty is None


def test_models_around_a_language_model_keep_its_text_and_its_cost() -> None:
    vlm = Rubric(Writes("ANSWER: 5"))
    calibrated = Calibrated(vlm, Calibration(None, ((1.0, 1.0), (5.0, 5.0)), 0.9, 0.5))
    guard = Guard(("set_size",), (0.0,), (1.0,), (0.0,), 0.0, 0.1, ("push",), 0.1, "abstain")
    (refused,) = Guarded(calibrated, guard).score([clip()])
    assert isinstance(refused, Failure) and refused.raw == "ANSWER: 5"
    verdict = GuardVerdict("abstain", 0.5, None, {})
    info = ScoreInfo((5,), 0.9, uncalibrated_level=5.0, input_tokens=900, cost=0.01, guard=verdict)
    assert refused.info == info
    (both,) = Ensemble(("a", "b"), (vlm, vlm), "vote", (1.0, 1.0)).score([clip()])
    assert both.raw is None and (both.info.input_tokens, both.info.cost) == (1800, 0.02)


def test_people_read_what_is_known_in_one_line() -> None:
    text = describe_info(FULL)
    assert "prediction set 3, 4 (holds the true level in 90 % of clips like its training data)" in text
    assert "pocket 4" in text and "guard: hold, risk 0.40" in text and "novelty 0.25 (" in text
    assert "True" not in text and "still" not in text  # that is the other sentence
    assert describe_info(ScoreInfo(unfamiliar=False)) == describe_info(ScoreInfo()) == ""


@pytest.mark.parametrize(
    ("info", "sentence"),
    [
        (ScoreInfo(novelty=0.2), ""),
        (ScoreInfo(unfamiliar=False), "within its training data"),
        (ScoreInfo(unfamiliar=True), "unlike its training data: do not use this answer"),
        (
            ScoreInfo(unfamiliar=False, training_distance=0.12, distance_limit=0.35),
            "within its training data (distance 0.12, limit 0.35)",
        ),
        (
            ScoreInfo(unfamiliar=True, training_distance=0.61, distance_limit=0.35),
            "unlike its training data (distance 0.61, limit 0.35): do not use this answer",
        ),
        (
            ScoreInfo(unfamiliar=True, training_distance=0.5713, distance_limit=0.5692),
            "unlike its training data (distance 0.5713, limit 0.5692): do not use this answer",
        ),
        (FULL, "unlike its training data (a still picture): do not use this answer"),
    ],
)
def test_one_sentence_tells_whether_to_trust_an_answer(info: ScoreInfo, sentence: str) -> None:
    assert familiarity_sentence(info) == sentence
    assert "training data:" not in describe_info(info)
