"""Image-text-to-text models made tiny from their configs, asked through their processors, against the library."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import Episode, episode_from_frames, rearrange
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.core.trial import Failure, Score
from rewardlab.models import name_model
from rewardlab.models.backends.checkpoint import HfOptions, load_network
from rewardlab.models.protocols import roboreward_prompt
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Prompt, Video
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.models import tiny_vlms
from tests.models.test_hf import NO_BFLOAT16, gap, last_logprob, video
from tests.narrowing import known
from tests.test_docs import DOCS, script

pytestmark = [
    pytest.mark.skipif(
        find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra hf"
    ),
    pytest.mark.usefixtures("one_torch_thread"),
]
VIDEO = ("llava_onevision", "internvl", "qwen2_5_vl", "qwen3_vl")  # whose processors have a part for videos
TOLERANCE = 1e-4
needs_torchvision = pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision, which shows video")
INSTRUCTIONS = ("put the red cup on the plate", "open it", "do not close the drawer, please", "")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}
    root = tmp_path_factory.mktemp("vlms")

    def saved(kind: str) -> Path:
        if kind not in made:
            made[kind] = tiny_vlms.SAVE[kind](root / kind)
        return made[kind]

    return saved


@pytest.fixture(scope="module", params=tiny_vlms.SAVE)
def folder(request: pytest.FixtureRequest, folders: Callable[[str], Path]) -> Path:
    return folders(request.param)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return built(folder)


@pytest.fixture(scope="module")
def llava(folders: Callable[[str], Path]) -> Path:
    return folders("llava")


def built(folder: Path, options: str = "frames=images") -> Any:
    return name_model(f"hf:{folder}?{options}").build()


def episode(instruction: str, name: str = "a", count: int = 4) -> Episode:
    return episode_from_frames(moving_square(name, count, size=40), instruction)


def variants() -> list[Episode]:
    clean = episode(INSTRUCTIONS[0])
    orders = ([3, 2, 1, 0], [0, 1], [2])
    return [
        *(episode(text) for text in INSTRUCTIONS),
        *(rearrange(clean, np.array(order)) for order in orders),
        episode(INSTRUCTIONS[0], "b"),
    ]


def library_inputs(model: Any, clip: Episode, text: str, reply: str, kind: str = "image") -> Any:
    """Return the inputs that the library itself makes of a chat with this clip, whose last message goes on."""
    from PIL import Image as PilImage
    from transformers.video_utils import VideoMetadata

    processor = model.vlm.renderer.processor
    frames = [PilImage.fromarray(frame) for frame in clip.frames]
    content = [{"type": kind, kind: clip.frames}] if kind == "video" else [{"type": kind, kind: f} for f in frames]
    messages: list[dict[str, Any]] = [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]
    if reply:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": reply}]})
    settings: dict[str, Any] = {"images_kwargs": dict(model.vlm.renderer.image_settings)}
    if kind == "video":
        metadata = VideoMetadata(len(clip.frames), fps=10.0, duration=0.1, frames_indices=list(range(len(clip.frames))))
        settings = {"video_metadata": [[metadata]], "do_sample_frames": False}
    return processor.apply_chat_template(
        messages,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        continue_final_message=True,
        processor_kwargs=settings,
    )


def expected_probs(model: Any, clip: Episode, kind: str = "image") -> Any:
    text = roboreward_prompt(clip.instruction)
    inputs = [library_inputs(model, clip, text, f"ANSWER: {digit}", kind) for digit in range(1, 6)]
    probs = np.exp([last_logprob(model.vlm.model, each) for each in inputs])
    return probs / probs.sum()


def test_the_probabilities_are_those_of_a_full_pass_with_each_digit_appended(model: Any) -> None:
    shown = episode(INSTRUCTIONS[0])
    (score,) = model.score([shown])
    expected = expected_probs(model, shown)
    np.testing.assert_allclose(score.probabilities, expected, atol=1e-5)
    assert score.level == pytest.approx(expected @ [1, 2, 3, 4, 5], abs=1e-4)
    assert score.raw is None and score.progress is None


@needs_torchvision
@pytest.mark.parametrize("kind", VIDEO)
def test_shown_as_video_the_probabilities_are_those_of_the_library_too(
    folders: Callable[[str], Path], kind: str
) -> None:
    model, shown = built(folders(kind), "frames=video"), episode(INSTRUCTIONS[0])
    (score,) = model.score([shown])
    np.testing.assert_allclose(score.probabilities, expected_probs(model, shown, "video"), atol=1e-5)
    assert gap([score], built(folders(kind)).score([shown])) > 100 * TOLERANCE  # not what images say
    check_model(model, variants())


@needs_torchvision
@pytest.mark.skipif(find_spec("num2words") is None, reason="num2words, which the processor of SmolVLM 2 needs")
def test_smolvlm_is_told_the_true_seconds_of_its_frames(tmp_path: Path) -> None:
    model = built(tiny_vlms.save_smolvlm(tmp_path / "smolvlm"), "frames=auto")
    times = np.array([0.0, 2.0, 61.0])
    prompt = model.vlm.renderer.chat(Prompt((Video(episode("x", count=3).frames, times, 2 / 61), "open?")))
    text = model.vlm.tokenizer.decode(model.vlm.renderer.inputs([prompt])["input_ids"][0])
    assert [text.count(f"Frame from {time}:") for time in ("00:00", "00:02", "01:01")] == [1, 1, 1]
    check_model(model, variants())


@needs_torchvision
def test_a_clip_is_a_video_where_the_processor_has_it_and_a_lone_frame_an_image(folders: Callable[[str], Path]) -> None:
    model, other = built(folders("internvl"), "frames=auto"), built(folders("llava"), "frames=auto")
    for clip, videos, images in ((episode("x"), 1, 0), (episode("x", count=1), 0, 1)):
        rendered = model.vlm.renderer.chat(Prompt((video(clip), "open?")))
        assert (len(rendered.videos), len(rendered.images)) == (videos, images)
    assert len(other.vlm.renderer.chat(Prompt((video(episode("x")), "open?"))).images) == 4


def test_it_keeps_the_contract_and_answers_alike_alone_and_in_a_batch(model: Any) -> None:
    episodes = variants()
    check_model(model, episodes)
    together = model.score(episodes)
    assert gap(together, [model.score([each])[0] for each in reversed(episodes)][::-1]) < TOLERANCE
    assert gap(together[:1] * 3, together[1:4]) > 10 * TOLERANCE  # the instruction matters, so equality says something
    assert gap(together[:1], together[-1:]) > 10 * TOLERANCE  # and so do the frames, of which there are as many


@pytest.mark.slow
def test_a_frame_seen_before_is_not_encoded_again_and_answers_stay_the_same(folder: Path) -> None:
    model, plain = built(folder), built(folder, "frames=images&reuse=no")
    episodes = [*variants(), *variants()[::-1]]
    answers = model.score(episodes)
    expected = plain.score(episodes)
    np.testing.assert_allclose(
        [score.probabilities for score in answers], [score.probabilities for score in expected], atol=1e-4
    )
    again = built(folder, "frames=images&reuse_gb=0.00001").score(episodes)  # too little to keep all of them
    np.testing.assert_allclose(
        [score.probabilities for score in again], [score.probabilities for score in expected], atol=1e-4
    )


@pytest.mark.parametrize("kind", ["llava", "gemma3", "internvl"])
def test_features_of_frames_are_kept_where_the_model_takes_them(folders: Callable[[str], Path], kind: str) -> None:
    model = built(folders(kind))
    clip = episode("open it")
    encoded = []
    tower = model.vlm.model.base_model.vision_tower
    tower.register_forward_pre_hook(
        lambda _, given, named: encoded.append(len((*given, *named.values())[0])), with_kwargs=True
    )
    model.score([clip, replace(clip, instruction="close it"), rearrange(clip, np.array([2, 0, 1, 3]))])
    assert encoded == [4]  # frames, once each
    model.score([rearrange(clip, np.array([3, 2, 1, 0]))])
    assert encoded == [4]


@pytest.mark.parametrize("save", [tiny_vlms.save_ovis2, pytest.param(tiny_vlms.save_llama4, marks=needs_torchvision)])
def test_a_model_that_reads_more_of_its_tower_than_pooled_features_answers(
    save: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = save(tmp_path / "vlm")
    model = built(folder)
    check_model(model, variants())
    assert gap(model.score(variants()), built(folder, "frames=images&reuse=no").score(variants())) < TOLERANCE


@needs_torchvision
def test_a_processor_that_gives_lists_beside_tensors_answers(tmp_path: Path) -> None:
    folder = script("make_hf_types").save_any("unlimited_ocr", tmp_path / "vlm")
    shown = [episode(INSTRUCTIONS[0]), episode(INSTRUCTIONS[0], "b")]
    answers = built(folder).score(shown)
    assert gap(answers, built(folder, "frames=images&reuse=no").score(shown)) < TOLERANCE
    assert gap(answers[:1], answers[1:]) > 10 * TOLERANCE


def test_a_processor_that_shows_one_image_a_prompt_is_refused(tmp_path: Path) -> None:
    folder = tiny_vlms.save_blip2(tmp_path / "blip2")
    for options in ("frames=images", "frames=images&reuse=no"):
        with pytest.raises(ModelError, match=r"^Blip2Processor writes 6 image tokens for two images and 8 for four"):
            built(folder, options)


def test_what_it_writes_is_what_the_library_generates(model: Any) -> None:
    clip = episode("x")
    prompts = [Prompt((video(clip), text)) for text in ("what?", "and what is this now?")]
    together = model.vlm.complete(prompts, 4)
    assert together == [model.vlm.complete([prompt], 4)[0] for prompt in prompts]
    rendered = model.vlm.renderer.chat(prompts[1])
    inputs = model.vlm.renderer.inputs([rendered])
    written = [int(token) for token in inputs["input_ids"][0]]
    made = model.vlm.model.generate(**inputs, do_sample=False, max_new_tokens=4)[0, len(written) :]
    assert together[1].text == model.vlm.tokenizer.decode(made, skip_special_tokens=True) and together[1].text
    assert together[1].finish == "length"


def test_greedy_whatever_the_checkpoint_says_about_sampling(llava: Path, tmp_path: Path) -> None:
    changed = tmp_path / "sampling"
    shutil.copytree(llava, changed)
    path = changed / "generation_config.json"
    sampling = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 3.0, "no_repeat_ngram_size": 1}
    path.write_text(json.dumps(json.loads(path.read_text()) | sampling))
    prompt = Prompt((video(episode("x")), "what?"))
    first, second = built(llava).vlm.complete([prompt], 6), built(changed).vlm.complete([prompt], 6)
    assert first == second


def test_the_log_probability_of_a_continuation_is_that_of_a_full_pass(model: Any) -> None:
    clip = episode("x")
    texts = ("The answer is:", "open it. The answer is:")
    logprobs = model.vlm.continuation_logprob([Prompt((video(clip), text)) for text in texts], " True")
    for text, value in zip(texts, logprobs, strict=True):
        inputs = library_inputs(model, clip, text + " True", "")
        assert value == pytest.approx(last_logprob(model.vlm.model, inputs), abs=1e-4)


@pytest.mark.parametrize("kind", ["idefics3", "internvl", "gemma3"])
def test_frames_are_shown_whole_and_not_in_tiles(folders: Callable[[str], Path], kind: str) -> None:
    model = built(folders(kind))
    wide = [np.zeros((60, 200, 3), np.uint8)] * 2
    inputs = model.vlm.renderer.inputs([model.vlm.renderer.chat(Prompt((*map(Image, wide), "open?")))])
    pixels = inputs["pixel_values"]
    assert pixels.flatten(0, -4).shape[0] == 2


def test_protocols_of_frames_and_text_in_turn_work_where_the_template_keeps_their_order(
    folders: Callable[[str], Path],
) -> None:
    shown = [episode("open the drawer")]
    (top,) = name_model(f"topreward:hf:{folders('llava')}?prefixes=2").build().score(shown)
    assert isinstance(top, Score) and len(known(top.progress)) == 4
    (gvl,) = name_model(f"gvl:hf:{folders('idefics3')}?tokens=3").build().score(shown)
    assert isinstance(gvl, Failure) and gvl.reason.startswith("unreadable answer") and gvl.raw
    for name in (f"gvl:hf:{folders('llava')}?tokens=3", f"hf:{folders('llava')}?order=text_first"):
        (answer,) = name_model(name).build().score(shown)
        assert isinstance(answer, Failure) and "puts all frames before the text" in answer.reason
    (first,) = name_model(f"hf:{folders('gemma3')}?order=text_first").build().score(shown)
    assert isinstance(first, Score)


def test_without_a_template_and_with_one_for_text_alone_frames_stand_in_the_text(tmp_path: Path) -> None:
    shown = episode("open it")
    for name, template in (("plain", None), ("text", tiny_vlms.TEXT_TEMPLATE)):
        model = built(tiny_vlms.save_llava(tmp_path / name, template), "frames=auto")
        check_model(model, variants())
        rendered = model.vlm.renderer.chat(Prompt((video(shown), "open it")), "ANSWER: 1")
        frames = "<image>\n" * 4
        expected = f"{frames}open it\nANSWER: 1"
        if template:
            expected = f"<|im_start|>user\n{frames}open it<|im_end|>\n<|im_start|>assistant\nANSWER: 1"
        assert rendered.text == expected
        assert model.vlm.renderer.chat(Prompt(("open it",))).text.endswith("\n")


def test_a_prompt_that_spells_out_a_special_token_is_a_failure_of_its_own(llava: Path) -> None:
    model = built(llava)
    answers = model.score([episode("open it"), episode("look at <image> now"), episode("<|im_end|>"), episode("close")])
    assert [type(answer) for answer in answers] == [Score, Failure, Failure, Score]
    assert "contains '<image>'" in answers[1].reason


def test_too_many_frames_for_the_context_are_a_failure_that_says_so(tmp_path: Path) -> None:
    length = 300
    model = built(tiny_vlms.save_llava(tmp_path / "short", context=length))
    long, short = episode("open it", count=60), episode("open it", count=2)
    answers = model.score([short, long, short])
    assert isinstance(answers[0], Score) and answers[0] == answers[2]
    assert isinstance(answers[1], Failure)
    assert answers[1].reason.startswith("60 frames and text are ") and "reads 300 at most" in answers[1].reason
    read: list[int] = []
    model.vlm.model.register_forward_pre_hook(
        lambda _, _given, named: read.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    texts = [" ".join(["open"] * count) for count in (400, 2)]
    tall, small = model.vlm.complete([Prompt((Image(short.frames[0]), text)) for text in texts], 500)
    assert isinstance(tall, Failure)  # what fits in the same batch is answered, within the context
    assert isinstance(small, Completion) and small.finish == "length" and sum(read) == length - 1


def test_a_batch_is_neighbours_that_show_frames_alike_up_to_a_number_of_frames(llava: Path) -> None:
    model, rows = built(llava), []
    model.vlm.model.register_forward_pre_hook(
        lambda _, _given, named: rows.append(len(named["input_ids"])), with_kwargs=True
    )
    model.score([episode("open it", count=count) for count in (4, 4, 4, 3, 3, 4)])
    assert rows == [3, 2, 1]
    rows.clear()
    model.score([episode("open it", count=50)] * 5)
    assert rows == [2, 2, 1]


def test_frames_over_the_budget_of_pixels_are_shrunk(llava: Path) -> None:
    renderer = built(llava, "pixels=500").vlm.renderer
    assert renderer._shrunk(np.zeros((40, 80, 3), np.uint8)).shape == (15, 31, 3)
    assert renderer._shrunk(np.zeros((20, 25, 3), np.uint8)).shape == (20, 25, 3)


@pytest.mark.filterwarnings(NO_BFLOAT16)
def test_bfloat16_answers_nearly_alike(llava: Path) -> None:
    episodes = variants()
    half = built(llava, "dtype=bfloat16").score(episodes)
    assert 0 < gap(half, built(llava).score(episodes)) < 0.2


def test_qwen_keeps_its_fast_path_unless_frames_are_asked_for(folders: Callable[[str], Path]) -> None:
    fast, slow = (built(folders("qwen3_vl"), options) for options in ("pixels=5000", "frames=images"))
    assert type(fast.vlm).__name__ == "QwenVL" and type(slow.vlm).__name__ == "ProcessorVlm"
    assert name_model(f"hf:{folders('qwen3_vl')}").name == f"hf:{folders('qwen3_vl')}"


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of that processor
def test_a_processor_that_ends_prompts_itself_can_write_and_cannot_be_asked_for_probabilities(tmp_path: Path) -> None:
    folder = tiny_vlms.save_paligemma(tmp_path / "paligemma")
    with pytest.raises(ModelError, match=r"PaliGemmaProcessor adds text after the reply.* use answer=generate"):
        built(folder).score([episode("open it")])
    (answer,) = built(folder, "answer=generate&parser=robometer&tokens=3").score([episode("open it")])
    assert isinstance(answer, Score) and answer.raw


def test_another_chat_template_is_another_model(llava: Path, tmp_path: Path) -> None:
    folder = tmp_path / "llava"
    shutil.copytree(llava, folder)
    first = name_model(f"hf:{folder}").fingerprint
    assert name_model(f"hf:{folder}").fingerprint == first
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("ASSISTANT", "ROBOT"))
    assert name_model(f"hf:{folder}").fingerprint != first


def test_a_text_model_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(PlanError, match=r"expected an image-text-to-text model .* got llama in .* sees no frames"):
        name_model(f"hf:{tmp_path}")
    with pytest.raises(PlanError, match="option frames must be auto, images or video, got 'film'"):
        name_model(f"hf:{tmp_path}?frames=film")


def rewritten(folder: Path, to: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    shutil.copytree(folder, to)
    content = json.loads((to / name).read_text())
    change(content)
    (to / name).write_text(json.dumps(content))
    return to


def test_weights_that_lack_parameters_are_one_sentence(llava: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(llava, tmp_path / "half")
    path = tmp_path / "half" / "model.safetensors"
    kept = {name: value for name, value in load_file(path).items() if "vision_tower" not in name}
    save_file(kept, path, {"format": "pt"})
    with pytest.raises(ModelError, match=r"the weights in .*half lack \d+ parameters .* such as .*vision_tower"):
        built(tmp_path / "half")
    wider = rewritten(llava, tmp_path / "wide", "config.json", lambda c: c["text_config"].update(intermediate_size=80))
    with pytest.raises(ModelError, match=r"^cannot load [^\n]+$"):
        built(wider)


def test_an_encoder_decoder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "florence2"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="is an encoder-decoder, florence2"):
        built(tmp_path)


def test_a_model_that_does_not_write_token_by_token_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "pi0"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"^PI0ForConditionalGeneration of .* does not go on with a text token by"):
        built(tmp_path)


def test_a_processor_without_video_or_settings_is_one_sentence(llava: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"LlavaProcessor of .* does not support video; use frames=images"):
        built(llava, "frames=video")
    bare = tmp_path / "bare"
    shutil.copytree(llava, bare)
    (bare / "processor_config.json").unlink()
    with pytest.raises(ModelError, match=rf"^cannot load {bare}: [^\n]+$"):
        built(bare)


def test_a_checkpoint_without_a_processor_is_one_sentence(tmp_path: Path) -> None:
    tiny_vlms.tokenizer_with().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "fast_vlm"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"has a \w+ and no processor of images"):
        built(tmp_path)


def test_a_processor_that_names_no_image_token_is_one_sentence(tmp_path: Path) -> None:
    from transformers import CLIPImageProcessorPil, GitConfig, GitProcessor

    GitConfig().save_pretrained(tmp_path)
    GitProcessor(CLIPImageProcessorPil(), tiny_vlms.tokenizer_with()).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"GitProcessor of .* has no image token"):
        built(tmp_path)


def test_a_chat_template_that_shows_no_image_is_one_sentence(tmp_path: Path) -> None:
    silent = tiny_vlms.save_llava(tmp_path / "odd", "{% for message in messages %}{{ message['role'] }}{% endfor %}")
    with pytest.raises(ModelError, match=r"^the chat template of .* drops the image token '<image>'"):
        built(silent)


def test_without_torchvision_video_is_refused_and_images_are_not(
    folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    for options in ("frames=auto", "frames=video"):
        with pytest.raises(ModelError, match=r"InternVLProcessor of .* needs torchvision.* images with frames="):
            built(folders("internvl"), options)
    assert isinstance(built(folders("internvl")).score([episode("open it")])[0], Score)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("llama4", ("Llama4Processor", "Llama4ImageProcessor")),
        ("lfm2_vl", ("Lfm2VlProcessor", "Lfm2VlImageProcessor")),
        ("mistral3", ("PixtralProcessor", "PixtralImageProcessor")),
    ],
)
@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed")
def test_a_processor_of_images_that_needs_torchvision_is_one_sentence(
    kind: str, parts: tuple[str, str], tmp_path: Path
) -> None:
    tiny_vlms.tokenizer_with().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    settings = {"processor_class": parts[0], "image_processor_type": parts[1]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=rf"^the {kind} processor of .* needs torchvision, which is not installed"):
        built(tmp_path)


def test_attention_is_what_the_model_has_unless_one_is_asked_for(llava: Path, tmp_path: Path) -> None:
    import torch
    from transformers import GitConfig, GitForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = {**shape, "image_size": 28, "patch_size": 14}
    GitForCausalLM(GitConfig(vision_config=vision, vocab_size=50, **shape)).save_pretrained(tmp_path / "git")
    git = load_network(str(tmp_path / "git"), HfOptions(), torch.float32)
    assert git.config._attn_implementation == "eager"  # its class has no sdpa
    with pytest.raises(ValueError, match="GitForCausalLM does not support an attention implementation"):
        load_network(str(tmp_path / "git"), HfOptions(attn="sdpa"), torch.float32)
    assert built(llava).vlm.model.config._attn_implementation == "sdpa"
    assert name_model(f"hf:{llava}?attn=sdpa").fingerprint == name_model(f"hf:{llava}").fingerprint
    changed = rewritten(llava, tmp_path / "vlm", "config.json", lambda c: c.update(attn_implementation="no/kernel"))
    assert built(changed).vlm.model.config._attn_implementation == "sdpa"


def test_an_answer_of_several_tokens_is_one_sentence(model: Any) -> None:
    with pytest.raises(ModelError, match=r"no single token for each of .* use answer=generate"):
        model.vlm.answer_probs([Prompt(("x",))], AnswerFormat("It is ", ("one", "something else")))


def test_the_page_of_types_has_a_row_for_each_type_of_its_release_of_transformers() -> None:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    page = (DOCS / "reference" / "hf_types.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (\w[\w ]+) \|", page, flags=re.MULTILINE)
    assert {state for _, state in rows} <= {"runs", "refused", "not tried", "fails"}
    if f"transformers {transformers.__version__} " in page:
        assert [kind for kind, _ in rows] == sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
