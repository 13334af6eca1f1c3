"""Qwen-VL models made tiny from their configs, against the library's own forward pass and generation."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, rearrange, with_frames
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.settings import Execution
from rewardlab.core.trial import Failure, Score
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.models import name_model
from rewardlab.models.backends.qwen_prompt import FAMILIES, PromptBuilder, frame_size
from rewardlab.models.protocols import PARSERS, roboreward_prompt
from rewardlab.models.vlm import AnswerFormat, Image, LRUCache, Prompt, Video
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.models import tiny
from tests.plans import stress_plan

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
)
SAVE = {"qwen3_vl": tiny.save_qwen3, "qwen2_5_vl": tiny.save_qwen25}
SIDE = {"qwen3_vl": 32, "qwen2_5_vl": 28}  # pixels of a token
# On a CPU without bfloat16 instructions, as many of aarch64 are, torch falls back to a slower kernel and says so.
NO_BFLOAT16 = "ignore:(?s).*(failed, switching to|bf16|bfloat16):UserWarning"
TOLERANCE = 1e-4  # of levels and probabilities with reuse, against without, in float32


@pytest.fixture(scope="module", params=SAVE)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield SAVE[request.param](tmp_path_factory.mktemp(request.param) / request.param)
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return built(folder, "reuse=yes")


def _pixels(folder: Path) -> int:
    return 6 * SIDE[folder.name] ** 2


def built(folder: Path, options: str) -> Any:
    return name_model(f"hf:{folder}?pixels={_pixels(folder)}&{options}").build()


def episode(folder: Path, instruction: str, name: str = "a", count: int = 5) -> Episode:
    """Return an episode whose frames need no resizing: two tokens high, three wide."""
    side = SIDE[folder.name]
    square = moving_square(name, count, size=3 * side)
    return episode_from_frames(square[:, : 2 * side], instruction)


INSTRUCTIONS = ("put the red cup on the plate", "open it", "do not close the <|im_end|> drawer, please", "")


def variants(folder: Path) -> list[Episode]:
    """Return one clip under changes of instruction, order, length and pixels, and another clip."""
    clean = episode(folder, INSTRUCTIONS[0])
    orders = ([4, 3, 2, 1, 0], [0, 1, 2, 3, 3], [0, 1, 2, 2], [2, 3, 4], [0], [0, 1, 2, 3, 4, 4, 4])
    return [
        *(replace(clean, instruction=text) for text in INSTRUCTIONS),
        *(rearrange(clean, np.array(order)) for order in orders),
        with_frames(clean, 255 - clean.frames),
        episode(folder, INSTRUCTIONS[0], "b"),
        replace(clean, instruction="close the window"),
    ]


def video(clip: Episode) -> Video:
    return Video(clip.frames, clip.times, 10.0)


def reference(folder: Path, model: Any, parts: list[Any], answer: str | None) -> dict[str, Any]:
    """Return the library's inputs for text and clips, laid out by hand; `answer` None leaves the turn open."""
    import torch
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    timed = folder.name == "qwen3_vl"
    patch = 16 if timed else 14
    text = "" if timed else "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    text += "<|im_start|>user\n"
    patches, grids = [], []
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        frames = np.concatenate([part.frames, part.frames[-1:]]) if len(part.clip) % 2 else part.frames
        times = np.append(part.times, part.times[-1])
        pads = "<|video_pad|>" * 6
        if timed:
            for i in range(0, len(frames), 2):
                text += f"<{(times[i] + times[i + 1]) / 2:.1f} seconds><|vision_start|>{pads}<|vision_end|>"
        else:
            text += f"<|vision_start|>{pads * (len(frames) // 2)}<|vision_end|>"
        pixels = torch.from_numpy(frames).permute(0, 3, 1, 2)[None] / 255
        mean, std = (
            torch.tensor(v).view(1, 1, 3, 1, 1) for v in (FAMILIES[folder.name].mean, FAMILIES[folder.name].std)
        )
        flat, *grid = Qwen3VLVideoProcessor.patchify(None, (pixels - mean) / std, patch, 2, 2)
        patches.append(flat[0])
        grids.append(grid)
    if answer is not None:
        text += f"<|im_end|>\n<|im_start|>assistant\n{answer}"
    ids = torch.tensor([model.vlm.tokenizer(text, add_special_tokens=False)["input_ids"]])
    kinds = 2 * (ids == model.vlm.tokenizer.convert_tokens_to_ids("<|video_pad|>")).int()
    seconds = {} if timed else {"second_per_grid_ts": torch.tensor([0.2] * len(grids))}
    return {
        "input_ids": ids,
        "mm_token_type_ids": kinds,
        "pixel_values_videos": torch.cat(patches),
        "video_grid_thw": torch.tensor(grids),
        **seconds,
    }


def last_logprob(network: Any, inputs: dict[str, Any]) -> float:
    """Return the log-probability of the last token by the library's own forward pass."""
    import torch

    with torch.no_grad():
        logits = network(**inputs).logits[0, -2]
    return float(torch.log_softmax(logits, dim=-1)[inputs["input_ids"][0, -1]])


def gap(first: list[Any], second: list[Any]) -> float:
    """Return the largest difference of level or probability."""
    rows = [[(score.level, *score.probabilities) for score in scores] for scores in (first, second)]
    return float(np.abs(np.array(rows[0]) - np.array(rows[1])).max())


def test_it_keeps_the_contract(folder: Path, model: Any) -> None:
    check_model(model, variants(folder))


@pytest.mark.parametrize("order", ["video_first", "text_first"])
def test_the_logits_are_those_of_a_full_pass_with_each_digit_appended(folder: Path, order: str) -> None:
    model = built(folder, f"order={order}")
    shown = episode(folder, INSTRUCTIONS[0])
    text = roboreward_prompt(shown.instruction)
    parts = [shown, text] if order == "video_first" else [text, shown]
    probs = np.exp(
        [last_logprob(model.vlm.network.model, reference(folder, model, parts, f"ANSWER: {d}")) for d in range(1, 6)]
    )
    (score,) = model.score([shown])
    np.testing.assert_allclose(score.probabilities, probs / probs.sum(), atol=1e-5)
    assert score.level == pytest.approx(probs @ [1, 2, 3, 4, 5] / probs.sum(), abs=1e-4)
    assert score.raw is None and score.progress is None


def test_reuse_does_not_change_the_answers(folder: Path, model: Any) -> None:
    episodes = variants(folder)
    together = model.score(episodes)
    assert gap(together, built(folder, "reuse=no").score(episodes)) < TOLERANCE
    assert gap(together, [model.score([each])[0] for each in reversed(episodes)][::-1]) < TOLERANCE
    assert gap(together, built(folder, "attn=eager").score(episodes)) < TOLERANCE
    assert gap(together[:1] * 3, together[1:4]) > 100 * TOLERANCE  # the instruction matters, so equality says something
    assert gap(together[:1] * 7, together[4:11]) > 100 * TOLERANCE  # and so do the frames


@pytest.mark.filterwarnings(NO_BFLOAT16)
def test_bfloat16_answers_nearly_alike_with_and_without_reuse(folder: Path, model: Any) -> None:
    episodes = variants(folder)
    half = built(folder, "dtype=bfloat16").score(episodes)
    assert gap(half, built(folder, "dtype=bfloat16&reuse=no&attn=eager").score(episodes)) < 0.1
    assert 0 < gap(half, model.score(episodes)) < 0.2


def test_what_is_known_is_not_worked_out_again(folder: Path) -> None:
    model = built(folder, "reuse=yes")
    patches, tokens = [], []
    network = model.vlm.network.model.model
    network.visual.register_forward_pre_hook(lambda _, given: patches.append(len(given[0])))
    network.language_model.layers[0].register_forward_pre_hook(
        lambda _, given, named: tokens.append((named["hidden_states"] if not given else given[0]).shape[:2].numel()),
        with_kwargs=True,
    )
    clean = episode(folder, INSTRUCTIONS[0], count=6)
    pair = 2 * 3 * 4  # patches of two frames
    model.score([clean])
    assert sum(patches) == 3 * pair
    first = sum(tokens)
    model.score([replace(clean, instruction=text) for text in INSTRUCTIONS[1:]])
    assert sum(patches) == 3 * pair and sum(tokens) - first < first  # three more questions cost less than one clip
    model.score([rearrange(clean, np.array([4, 5, 0, 1, 2, 3])), rearrange(clean, np.arange(4))])
    assert sum(patches) == 3 * pair  # the same pairs in another order
    model.score([rearrange(clean, np.array([0, 1, 2, 3, 5, 4]))])
    assert sum(patches) == 4 * pair  # a pair turned round is another


def test_memory_for_reuse_is_bounded_and_too_little_of_it_costs_only_time(folder: Path, model: Any) -> None:
    small = built(folder, "reuse_gb=0.001")
    episodes = variants(folder)
    assert gap(small.score(episodes), model.score(episodes)) < TOLERANCE
    for cache in (small.vlm.network.vision.cache, small.vlm.network.prefixes.cache):
        assert 0 < cache.used_bytes <= cache.max_bytes < 1e6


def test_the_cache_evicts_what_was_used_least_recently() -> None:
    cache: LRUCache[str] = LRUCache(10)
    for key in "abc":
        cache.put(key, key.upper(), 3)
    assert cache.get("a") == "A"
    cache.put("d", "D", 4)
    assert [key for key, _ in cache.items()] == ["d", "a", "c"] and cache.used_bytes == 10
    cache.put("a", "AA", 1)
    cache.put("huge", "H", 11)
    assert cache.get("huge") is None and cache.get("b") is None and cache.get("a") == "AA"
    assert cache.used_bytes == 8 and [key for key, _ in cache.items()] == ["a", "d", "c"]


@pytest.mark.parametrize("parser", ["strict", "robometer"])
def test_what_it_writes_is_what_the_library_generates_and_is_parsed(folder: Path, parser: str) -> None:
    model = built(folder, f"answer=generate&parser={parser}&tokens=6")
    asked = [episode(folder, text) for text in INSTRUCTIONS[:2]]
    answers = model.score(asked)
    for shown, answer in zip(asked, answers, strict=True):
        inputs = reference(folder, model, [shown, roboreward_prompt(shown.instruction)], "")
        network = model.vlm.network.model
        made = network.generate(
            **inputs, do_sample=False, max_new_tokens=6, eos_token_id=model.vlm.tokenizer.eos_token_id
        )
        written = model.vlm.tokenizer.decode(made[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        read = PARSERS[parser](written)
        if isinstance(read, Failure):
            read = Failure(f"{read.reason}; the answer was cut off at 6 tokens, allow more with ?tokens=", read.raw)
        assert answer == read and answer.raw == written
        assert isinstance(answer, Score if parser == "robometer" else Failure)


def test_a_prompt_is_completed_alike_alone_and_in_a_batch(folder: Path, model: Any) -> None:
    clip, still = episode(folder, "x", count=4), episode(folder, "x", count=1).frames[0]
    texts = ("what?", "and what is this now?")
    prompts = [Prompt(("Image:", Image(still), "and", video(clip), text)) for text in texts]
    together = model.vlm.complete(prompts, 3)
    assert together == [model.vlm.complete([prompt], 3)[0] for prompt in prompts]
    assert all(completion.text and completion.finish == "length" for completion in together)


def test_probabilities_of_answers_are_those_of_a_full_pass_and_one_token_long(folder: Path, model: Any) -> None:
    clip = episode(folder, "x", count=4)
    (probs,) = model.vlm.answer_probs([Prompt((video(clip), "open?"))], AnswerFormat("It is", (" True", " False")))
    inputs = [reference(folder, model, [clip, "open?"], f"It is {word}") for word in ("True", "False")]
    expected = np.exp([last_logprob(model.vlm.network.model, each) for each in inputs])
    np.testing.assert_allclose(probs, expected / expected.sum(), atol=1e-5)
    with pytest.raises(ModelError, match=r"no single token for each of .* use answer=generate"):
        model.vlm.answer_probs([Prompt(("x",))], AnswerFormat("It is ", ("one", "something else")))


def test_the_log_probability_of_a_continuation_is_that_of_a_full_pass(folder: Path, model: Any) -> None:
    clip = episode(folder, "x", count=4)
    texts = ("The answer is:", "open it. The answer is:")
    logprobs = model.vlm.continuation_logprob([Prompt((video(clip), text)) for text in texts], " True")
    for text, value in zip(texts, logprobs, strict=True):
        inputs = reference(folder, model, [clip, text + " True"], None)
        assert value == pytest.approx(last_logprob(model.vlm.network.model, inputs), abs=1e-4)


def test_positions_follow_the_published_rule_where_time_outruns_space() -> None:
    """The worked example of Qwen2.5-VL: 25 positions a second, a frame each second, three pairs of 2 x 2 tokens."""
    builder = PromptBuilder(tiny.qwen_tokenizer(), FAMILIES["qwen2_5_vl"], 56 * 56, 25.0)
    shown = builder.visual_input(np.zeros((6, 56, 56, 3), np.uint8), np.arange(6.0))
    prompt = builder.open_turn([shown, "x y"], [shown])
    visual = prompt.positions[:, prompt.kinds == 2] - prompt.positions[:, prompt.kinds == 2].min()
    assert visual[0].tolist() == [0] * 4 + [50] * 4 + [100] * 4
    assert visual[1].tolist() == [0, 0, 1, 1] * 3 and visual[2].tolist() == [0, 1, 0, 1] * 3
    after = prompt.positions[:, np.flatnonzero(prompt.kinds == 2)[-1] + 1 :] - prompt.positions[0, prompt.kinds == 2][0]
    assert (after == np.arange(101, 101 + after.shape[1])).all()


@pytest.mark.parametrize("family", SAVE)
@pytest.mark.parametrize("size", [(480, 640), (64, 48), (1080, 1920), (33, 900), (256, 256)])
def test_frames_are_resized_by_the_published_rule(family: str, size: tuple[int, int]) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    area = SIDE[family] ** 2
    published = smart_resize(*size, factor=SIDE[family], min_pixels=128 * area, max_pixels=768 * area)
    assert frame_size(*size, FAMILIES[family], 0) == published
    rows, columns = frame_size(*size, FAMILIES[family], 40 * area)
    assert rows * columns <= 40 * area and rows % SIDE[family] == columns % SIDE[family] == 0


def test_a_big_frame_is_shown_at_the_size_of_the_budget(folder: Path) -> None:
    model: Any = name_model(f"hf:{folder}?pixels=5000").build()
    big = episode_from_frames(moving_square("a", 3, size=90), "open it")
    (score,) = model.score([big])
    assert isinstance(score, Score)
    assert all(
        pair.size[0] * pair.size[1] <= 5000 for pair in model.vlm.builder.visual_input(big.frames, big.times).pairs
    )


def test_a_stress_test_runs_and_goes_on(folder: Path, tiny_data: Path, tmp_path: Path) -> None:
    name = f"hf:{folder}?pixels={_pixels(folder)}"
    chosen = dict(controls=False, limit=2, execution=Execution(workers=1, engine="local"), out=tmp_path / "run")
    plan = stress_plan((name,), str(tiny_data), ("polite_filler", "reverse"), (1,), **chosen)
    trials = evaluate(plan).trials()
    assert trials.text("status").tolist() == ["scored"] * 6
    assert len(set(trials.number("level"))) == 6
    assert evaluate(plan).trials().arrow.equals(trials.arrow)


def test_an_instruction_that_spells_a_special_token_stays_text(model: Any) -> None:
    builder = model.vlm.builder
    shown = builder.visual_input(np.zeros((2, 64, 64, 3), np.uint8), np.arange(2.0))
    plain, odd = (builder.chat([shown, text], [shown]) for text in ("open", "open <|im_end|><|video_pad|>"))
    for name in ("<|im_end|>", "<|video_pad|>"):
        token = model.vlm.tokenizer.convert_tokens_to_ids(name)
        assert (plain.ids == token).sum() == (odd.ids == token).sum() > 0
    assert len(odd) > len(plain)


def test_naming_models_loads_no_framework() -> None:
    code = "import sys; from rewardlab.models import MODELS; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "PIL", "tokenizers"} & set(loaded)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_other_files_are_another_model_and_a_later_time_is_not(folder: Path, tmp_path: Path, file: str) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copied"))
    first = name_model(f"hf:{folder}")
    os.utime(copied / file, ns=(1, 1))
    assert first.exclusive and name_model(f"hf:{copied}").fingerprint == first.fingerprint
    content = bytearray((copied / file).read_bytes())
    content[-1] ^= 1
    (copied / file).write_bytes(content)
    assert name_model(f"hf:{copied}").fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf:./no/such/folder", "there is no folder './no/such/folder'"),
        ("hf:", "there is no folder ''"),
        ("hf:two words", "there is no folder 'two words'"),
        ("hf:{empty}", "holds no config.json"),
        ("hf:{bare}", r"holds no \*.safetensors"),
        ("hf:{other}", "image-text-to-text model of transformers, such as llava or qwen3_vl, got clip"),
        ("hf:{folder}?answer=guess", "answer must be logits or generate, got 'guess'"),
        ("hf:{folder}?attention=sdpa", "hf takes no option 'attention'"),
        ("hf:{folder}?tokens=0", "tokens must be at least 1, got 0"),
        ("hf:{folder}?device=gpu", "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_a_wrong_name_is_said_without_loading_anything(folder: Path, tmp_path: Path, name: str, says: str) -> None:
    places = {"folder": folder} | {each: tmp_path / each for each in ("empty", "bare", "other")}
    for each in ("empty", "bare", "other"):
        (tmp_path / each).mkdir()
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "qwen3_vl"}')
    (tmp_path / "other" / "config.json").write_text('{"model_type": "clip"}')
    (tmp_path / "other" / "model.safetensors").write_bytes(b"")
    with pytest.raises(PlanError, match=says):
        name_model(name.format(**places))


def test_what_cannot_be_loaded_is_said_in_one_sentence(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    named = name_model(f"hf:nobody/no-such-model?revision={'0' * 40}")  # a hub id is only looked for when it is loaded
    with pytest.raises(ModelError, match=r"^cannot load nobody/no-such-model: it is no folder here, and [^\n]+$"):
        named.build()
    for short in ("config.json", "model.safetensors", "tokenizer.json"):
        broken = tmp_path / short
        shutil.copytree(folder, broken)
        named = name_model(f"hf:{broken}")
        (broken / short).write_bytes((folder / short).read_bytes()[:1000])
        with pytest.raises(ModelError, match=rf"^cannot load {broken}: [^\n]+$"):
            named.build()
    with pytest.raises(ModelError, match="no CUDA device"):
        name_model(f"hf:{folder}?device=cuda:7").build()


def test_fewer_kernels_change_rounding_only(folder: Path, model: Any) -> None:
    from rewardlab.models.backends.fused_ops import patch_fused_ops as use_fewer_kernels

    fused = built(folder, "reuse=yes")
    use_fewer_kernels(fused.vlm.network.model)
    episodes = variants(folder)
    big = episode_from_frames(moving_square("a", 4, size=4 * SIDE[folder.name]), INSTRUCTIONS[0])
    assert gap(fused.score([*episodes, big]), model.score([*episodes, big])) < TOLERANCE


def test_clips_of_different_lengths_are_read_in_one_pass_and_answered_as_alone(folder: Path) -> None:
    model, plain = built(folder, "reuse=yes"), built(folder, "reuse=no")
    passes: list[tuple[int, int]] = []
    layer = model.vlm.network.model.model.language_model.layers[0]
    layer.register_forward_pre_hook(
        lambda _, given, named: passes.append(tuple((named["hidden_states"] if not given else given[0]).shape[:2])),
        with_kwargs=True,
    )
    clips = [
        episode(folder, INSTRUCTIONS[i % 3], name, count)
        for i, (name, count) in enumerate(zip("abcd", (5, 8, 2, 6), strict=True))
    ]
    together = model.score(clips)
    assert [rows for rows, _ in passes] == [4]
    assert gap(together, plain.score(clips)) < TOLERANCE
    questions = [replace(clip, instruction=text) for text in INSTRUCTIONS[:3] for clip in clips[:2]]
    again = model.score(questions)
    assert [rows for rows, _ in passes[1:]] == [1, 1]  # one pass for each clip, over what follows its frames
    assert sum(length for _, length in passes[1:]) < passes[0][1] * 2
    assert gap(again, plain.score(questions)) < TOLERANCE


def test_what_is_written_after_clips_of_different_lengths_is_what_is_written_alone(folder: Path, model: Any) -> None:
    clips = [episode(folder, "x", name, count) for name, count in (("a", 3), ("b", 7))]
    prompts = [Prompt((video(clip), text)) for text in ("what?", "and what is this now?") for clip in clips]
    together = built(folder, "reuse=yes").vlm.complete(prompts, 4)
    assert together == [built(folder, "reuse=no").vlm.complete([prompt], 4)[0] for prompt in prompts]
    assert together == model.vlm.complete(prompts[::-1], 4)[::-1]
