"""Several views and a demonstration in the prompt of a vision-language model, and two clips compared in one."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, in_memory, strip_labels
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.trial import Failure, Score
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.contract import Budget
from rewardlab.models.protocols import Rubric, roboreward_prompt
from rewardlab.models.protocols.clips import Demonstrations, tiled
from rewardlab.models.protocols.gvl import Gvl
from rewardlab.models.protocols.topreward import TopReward
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Prompt, Video
from rewardlab.perturbations import choose_perturbations
from tests.conftest import write_rows
from tests.models import tiny
from tests.models.loopback import Call, chat_server
from tests.narrowing import known, of_type

has_hf = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
)


class Recorder:
    """A vision-language model that keeps what it is asked."""

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def complete(
        self,
        prompts: Sequence[Prompt],
        max_tokens: int,  # noqa: ARG002
        answer: AnswerFormat | None = None,  # noqa: ARG002
    ) -> list[Completion | Failure]:
        self.prompts += prompts
        return [Completion("ANSWER: 4") for _ in prompts]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        self.prompts += prompts
        return [(1 / len(answer.choices),) * len(answer.choices) for _ in prompts]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:  # noqa: ARG002
        self.prompts += prompts
        return [-0.5 for _ in prompts]


def of_light(light: int, count: int = 4, height: int = 24, width: int = 32) -> Any:
    return np.full((count, height, width, 3), light, np.uint8)


def filmed_by(*lights: int) -> Episode:
    """Return an episode of which each camera sees one brightness; the second is upright, the others are not."""
    views = {f"camera{n}": in_memory(of_light(light, 4, 48, 16)) for n, light in enumerate(lights[1:], 2)}
    return replace(episode_from_frames(of_light(lights[0]), "open the drawer"), views=views)


def asked(model: Any, *episodes: Episode) -> list[Prompt]:
    assert all(isinstance(answer, Score) for answer in model.score([strip_labels(e) for e in episodes]))
    prompts: list[Prompt] = model.vlm.prompts
    return prompts


def lights(prompt: Prompt) -> list[int]:
    return [
        int(part.frames.max() if isinstance(part, Video) else part.frame.max())
        for part in prompt.parts
        if not isinstance(part, str)
    ]


def words(prompt: Prompt) -> str:
    return "".join(part for part in prompt.parts if isinstance(part, str))


def test_every_view_is_a_video_of_the_prompt_and_words_tell_which_is_which() -> None:
    (prompt,) = asked(Rubric(Recorder()), filmed_by(50, 90, 130))
    assert lights(prompt) == [50, 90, 130]
    assert words(prompt).startswith("Frames 1 to 4 show the rollout as the main camera saw it. Frames 5 to 8 show the")
    assert words(prompt).endswith(roboreward_prompt("open the drawer"))
    (text_first,) = asked(Rubric(Recorder(), order="text_first"), filmed_by(50, 90))
    assert isinstance(text_first.parts[0], str) and lights(text_first) == [50, 90]


@pytest.mark.parametrize("model", [Rubric, TopReward])
def test_one_view_is_asked_about_as_ever(model: Any) -> None:
    alone = replace(filmed_by(50), views={})
    for options, episode in (({}, alone), ({"views": "first"}, filmed_by(50, 90)), ({"views": "tile"}, alone)):
        prompt = asked(model(Recorder(), **options), episode)[-1]
        assert lights(prompt) == [50] and "Frames" not in words(prompt) and len(prompt.parts) == 2


def test_a_tiled_view_keeps_its_proportions_in_a_cell_of_the_first() -> None:
    (prompt,) = asked(Rubric(Recorder(), views="tile"), filmed_by(50, 90, 130))
    (video,) = (part for part in prompt.parts if isinstance(part, Video))
    assert video.frames.shape == (4, 48, 64, 3)  # three views in two rows
    assert (video.frames[0, :24, :32] == 50).all() and (video.frames[0, 24:, 32:] == 0).all()
    assert (video.frames[0, :24, 44:52] == 90).all() and (
        video.frames[0, :24, 32:44] == 0
    ).all()  # 8 wide, in the middle
    assert "each picture holds one moment as 3 cameras saw it, row by row: main, camera2, camera3" in words(prompt)
    assert tiled([of_light(9)]).shape == (4, 24, 32, 3)


def test_gvl_shows_every_view_of_a_frame_under_its_number() -> None:
    class Gives(Recorder):
        def complete(self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None) -> Any:
            super().complete(prompts, max_tokens, answer)
            rows = [{"frame_number": n, "task_completion_percentage": 50} for n in range(1, 5)]
            return [Completion(json.dumps(rows)) for _ in prompts]

    for views, shown in (("images", [50, 90] * 5), ("tile", [90] * 5), ("first", [50] * 5)):
        (prompt,) = asked(Gvl(Gives(), views=views), filmed_by(50, 90))  # type: ignore[arg-type]
        assert lights(prompt) == shown
        places = [place for place, part in enumerate(prompt.parts) if str(part).startswith("Frame ")]
        assert all(isinstance(prompt.parts[place + 1], Image) for place in places) and len(places) == 4
        assert ("Each frame is 2 pictures" in words(prompt)) == (views == "images")


def test_topreward_shows_the_same_prefix_of_every_view() -> None:
    prompts = asked(TopReward(Recorder(), prefixes=3), filmed_by(50, 90))
    for prompt in prompts:
        first, second = (part for part in prompt.parts if isinstance(part, Video))
        assert len(first.frames) == len(second.frames) and lights(prompt) == [50, 90]
    assert [len(of_type(Video, prompt.parts[0]).frames) for prompt in prompts] == [2, 2, 4]


def test_options_that_came_later_leave_older_models_as_they_were() -> None:
    name = "openai:judge@http://localhost:9/v1"
    plain = name_model(name)
    assert plain.fingerprint == name_model(f"{name}?views=images").fingerprint and "views" not in plain.name
    assert len({name_model(f"{name}{o}").fingerprint for o in ("", "?views=tile", "?views=first")}) == 3
    # of the release before these options, which would otherwise be another model in every run
    assert name_model("openai:x@http://localhost:1/v1").fingerprint == OLD_FINGERPRINT


OLD_FINGERPRINT = "0566e189a5bbd477"


def demonstration_data(folder: Path) -> Path:
    rows: list[dict[str, object]] = [
        {"file_name": "a.mp4", "task": "open the drawer", "reward": 5},
        {"file_name": "b.mp4", "task": "open the top drawer", "success": True},
        {"file_name": "c.mp4", "task": "open the drawer", "reward": 2},
        {"file_name": "d.mp4", "task": "fold the towel", "reward": 5},
    ]
    write_rows(folder, rows)
    for number, row in enumerate(rows):
        encode(of_light(40 + 40 * number, 10 + number), folder / str(row["file_name"]), fps=10)
    return folder


def test_the_success_of_the_nearest_instruction_and_never_the_same_video_is_shown_first(tmp_path: Path) -> None:
    data = str(demonstration_data(tmp_path / "data"))
    by_name = {each.id: each for each in open_dataset(data).episodes}
    pool = Demonstrations(data)
    assert [each.id for each in pool.episodes] == ["a.mp4", "b.mp4", "d.mp4"]  # c is no success
    nearest = {name: pool.nearest(strip_labels(each)).id for name, each in by_name.items()}
    assert nearest == {"a.mp4": "b.mp4", "b.mp4": "a.mp4", "c.mp4": "a.mp4", "d.mp4": "a.mp4"}
    shown = sample_frames(by_name["c.mp4"], frame_policy("uniform:4"))
    (prompt,) = asked(Rubric(Recorder(), demonstration=data), shown)
    first, second = (part for part in prompt.parts if isinstance(part, Video))
    assert [len(first.frames), len(second.frames)] == [4, 4] and abs(int(first.frames.mean()) - 40) < 4
    assert "Frames 1 to 4 show a demonstration" in words(prompt) and "this task: open the drawer." in words(prompt)
    assert "Frames 5 to 8 show the rollout, which is to be judged." in words(prompt)


@pytest.mark.parametrize("name", ["low_light", "reverse", "gaussian_noise", "polite_filler", "speed_up+jpeg"])
def test_a_changed_clip_is_never_shown_its_own_video(name: str, tmp_path: Path) -> None:
    data = str(demonstration_data(tmp_path / "data"))
    pool, episodes = Demonstrations(data), open_dataset(data).episodes
    (perturbation,) = choose_perturbations((name,))
    for episode in pool.episodes:
        changed = sample_frames(perturbation(episode, 4, 0, episodes).episode, frame_policy("uniform:4"))
        assert pool.nearest(strip_labels(changed)).clip.source.digest != episode.clip.source.digest


def test_demonstrations_that_cannot_be_shown_are_said(tmp_path: Path) -> None:
    data = demonstration_data(tmp_path / "data")
    name = "openai:judge@http://localhost:9/v1?demonstration="
    with pytest.raises(DataError, match="no dataset at"):
        name_model(f"{name}{tmp_path / 'none'}")
    (data / "metadata.jsonl").write_text(json.dumps({"file_name": "a.mp4", "task": "open it", "reward": 2}) + "\n")
    with pytest.raises(PlanError, match="holds no episode known to be a success"):
        name_model(f"{name}{data}")
    (data / "metadata.jsonl").write_text(json.dumps({"file_name": "a.mp4", "task": "open it", "reward": 5}) + "\n")
    (episode,) = open_dataset(data).episodes
    with pytest.raises(DataError, match=r"every success in .* is the video that is asked about"):
        Rubric(Recorder(), demonstration=str(data)).score([strip_labels(episode)])


def test_the_content_of_the_demonstrations_is_part_of_the_model_and_their_place_is_not(tmp_path: Path) -> None:
    first, moved = demonstration_data(tmp_path / "one"), demonstration_data(tmp_path / "two")
    name = "openai:judge@http://localhost:9/v1"

    def identity(folder: Path) -> str:
        return name_model(f"{name}?demonstration={folder}").fingerprint

    before = identity(first)
    assert before == identity(moved) != name_model(name).fingerprint
    rows = (moved / "metadata.jsonl").read_text()
    (moved / "metadata.jsonl").write_text(rows.replace("fold the towel", "fold the cloth"))
    assert identity(moved) != before
    (moved / "metadata.jsonl").write_text(rows)
    encode(of_light(200, 9), moved / "d.mp4", fps=10)
    assert identity(moved) != before == identity(first)


def pictures(call: Call) -> list[Any]:
    """Return the pictures that a request holds."""
    parts = [part for part in call.body["messages"][0]["content"] if part["type"] == "image_url"]
    data = (base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts)
    return [cv2.imdecode(np.frombuffer(each, np.uint8), cv2.IMREAD_COLOR) for each in data]


def test_a_server_is_shown_the_demonstration_the_views_and_both_clips(tmp_path: Path) -> None:
    data = demonstration_data(tmp_path / "data")
    seen: list[list[int]] = []

    def react(call: Call) -> None:
        seen.append([round(float(each.mean())) for each in pictures(call)])
        if "Clip A" not in call.text:
            return call.say("ANSWER: 3")
        letter = "A" if seen[-1][0] > seen[-1][-1] else "B"
        top = [{"token": t, "logprob": float(np.log(p))} for t, p in ((letter, 0.75), ("C", 0.25))]
        tokens: list[Any] = [{"token": t, "logprob": 0.0, "top_logprobs": []} for t in ("ANSWER", ":", " ")]
        call.say(f"ANSWER: {letter}", logprobs={"content": [*tokens, {**top[0], "top_logprobs": top}]})

    with chat_server(react) as server:
        one = filmed_by(200, 90)
        (score,) = name_model(server.model(f"demonstration={data}")).build().score([strip_labels(one)])
        assert isinstance(score, Score) and score.level == 3
        assert np.allclose(seen[0], [40] * 4 + [200] * 4 + [90] * 4, atol=4)
        comparer = known(name_model(server.model()).compare)(Budget())
        dark, light = filmed_by(30), filmed_by(220)
        found = comparer.compare([(dark, light), (light, dark)])
    for answer, expected in zip(found, [(0, 0.75, 0.25), (0.75, 0, 0.25)], strict=True):
        assert answer == pytest.approx(expected, abs=1e-6)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_qwen3(tmp_path_factory.mktemp("qwen") / "qwen3_vl")


@has_hf
def test_a_local_model_scores_views_and_a_demonstration_and_compares(qwen: Path, tmp_path: Path) -> None:
    data, episodes = demonstration_data(tmp_path / "data"), [strip_labels(filmed_by(50, 90))]
    levels = set()
    for options in ("views=first", "views=images", "views=tile", f"views=first&demonstration={data}"):
        (answer,) = name_model(f"hf:{qwen}?pixels=4096&{options}").build().score(episodes)
        levels.add(round(of_type(Score, answer).level, 4))
    assert len(levels) == 4
    comparer = known(name_model(f"hf:{qwen}?pixels=4096").compare)(Budget())
    (one, other) = comparer.compare([(filmed_by(30), filmed_by(220)), (filmed_by(220), filmed_by(30))])
    assert not isinstance(one, Failure) and sum(one) == pytest.approx(1) and one != other


@has_hf
def test_a_model_whose_template_puts_images_first_takes_views_and_demonstrations(tmp_path: Path) -> None:
    from tests.models.tiny_vlms import save_llava

    data, llava = demonstration_data(tmp_path / "data"), save_llava(tmp_path / "llava")
    (answer,) = name_model(f"hf:{llava}?demonstration={data}").build().score([strip_labels(filmed_by(50, 90))])
    assert isinstance(answer, Score), answer
