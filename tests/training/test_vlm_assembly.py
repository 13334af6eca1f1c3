"""Vision-language models put together from tiny towers and tiny language models."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.cli import main
from rewardlab.core.errors import PlanError
from rewardlab.models import name_model
from rewardlab.models.vlm import Image, Prompt
from rewardlab.testing import check_model
from tests.conftest import moving_square
from tests.models import tiny
from tests.narrowing import as_scores

pytestmark = [
    pytest.mark.skipif(
        find_spec("torch") is None or find_spec("transformers") is None, reason="torch and transformers: extra assemble"
    ),
    pytest.mark.usefixtures("one_torch_thread"),
]
TEXT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_WIDTH, _LAYERS, _HEADS, _KEYS, _INNER = 32, 2, 4, 2, 48


def save_dinov2(folder: Path) -> Path:
    import torch
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    shape = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "mlp_ratio": 2}
    Dinov2Model(Dinov2Config(patch_size=14, image_size=70, **shape)).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A tower\n")
    return folder


def tiny_llama(*, tied: bool = True) -> tuple[Any, Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    tokenizer = tiny.qwen_tokenizer()
    tokenizer.chat_template = TEXT_TEMPLATE
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=_INNER,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KEYS,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)  # so that what it says depends on what it is asked
    return model, tokenizer


def save_llama(folder: Path, *, tied: bool = True) -> Path:
    model, tokenizer = tiny_llama(tied=tied)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_gguf(path: Path) -> Path:
    """Write the tiny Llama as GGUF, where queries and keys have the halves of each head interleaved."""
    from gguf import GGUFWriter

    model, tokenizer = tiny_llama()
    backend = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_license("mit")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KEYS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_vocab_size(len(tokenizer))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    special = set(tokenizer.added_tokens_decoder)
    writer.add_token_types([3 if number in special else 1 for number in range(len(tokenizer))])
    writer.add_token_merges([" ".join(pair) for pair in backend["merges"]])
    writer.add_bos_token_id(tokenizer.convert_tokens_to_ids("<|im_start|>"))
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(TEXT_TEMPLATE)
    for name, value in gguf_tensors(model).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tensors(model: Any) -> dict[str, np.ndarray]:
    weights = {name: value.numpy() for name, value in model.model.state_dict().items()}
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    found = {"token_embd.weight": weights["embed_tokens.weight"], "output_norm.weight": weights["norm.weight"]}
    for layer in range(_LAYERS):
        for ours, theirs in names.items():
            value = weights[f"layers.{layer}.{ours}.weight"]
            if theirs in ("attn_q", "attn_k"):
                heads = _HEADS if theirs == "attn_q" else _KEYS
                value = value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
            found[f"blk.{layer}.{theirs}.weight"] = np.ascontiguousarray(value)
    return found


TOWERS: dict[str, Callable[[Path], Path]] = {"dinov2": save_dinov2, "clip": tiny.save_clip, "siglip": tiny.save_siglip}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("language") / "tiny-llama")


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_dinov2(tmp_path_factory.mktemp("vision") / "tiny-dinov2")


@pytest.fixture(scope="module")
def assembled(llama: Path, dinov2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("assembled") / "tiny-vlm"
    assert rewardlab.train_assemble(vision=dinov2, language=llama, out=out, tokens=9) == f"hf:{out}"
    return out


def first_logits(model: Any, tokenizer: Any, text: str) -> Any:
    import torch

    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits[0, -1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pool"), [*((kind, 1) for kind in TOWERS), ("dinov2", 2), ("siglip", 3)])
def test_every_kind_of_tower_becomes_a_model_that_scores(kind: str, pool: int, llama: Path, tmp_path: Path) -> None:
    tower = TOWERS[kind](tmp_path / kind)
    parts: dict[str, Any] = {"language": llama, "tokens": 9, "pool": pool}
    model = name_model(rewardlab.train_assemble(vision=tower, out=tmp_path / "vlm", **parts)).build()
    frames = moving_square("a", 3, size=40)[:, :30]
    episodes = [
        rewardlab.episode_from_frames(shown, text)
        for text in ("open it", "put the cup")
        for shown in (frames, 255 - frames)
    ]
    check_model(model, episodes)
    levels = [score.level for score in as_scores(model.score(episodes))]
    assert len({round(level, 5) for level in levels}) == 4  # both the words and the frames are heard


@pytest.mark.parametrize("pool", [1, 2])
def test_a_frame_is_as_many_tokens_as_asked_and_images_are_as_large_as_words(
    pool: int, llama: Path, dinov2: Path, tmp_path: Path
) -> None:
    import torch

    parts: dict[str, Any] = {"vision": dinov2, "language": llama, "tokens": 9, "pool": pool}
    model: Any = name_model(rewardlab.train_assemble(out=tmp_path / "vlm", **parts)).build()
    vlm = model.vlm
    clip = [Image(frame) for frame in moving_square("a", 2, size=60)]
    inputs = vlm.renderer.inputs([vlm.renderer.chat(Prompt((*clip, "What happened?")))])
    assert inputs["pixel_values"].shape[-2:] == (3 * pool * 14, 3 * pool * 14)
    assert int((inputs["input_ids"] == vlm.model.config.image_token_id).sum()) == 2 * 9
    with torch.no_grad():
        images = torch.cat(list(vlm.model.get_image_features(inputs["pixel_values"]).pooler_output))
    words = vlm.model.get_input_embeddings().weight
    assert 0.3 < float(images.norm(dim=-1).mean() / words.norm(dim=-1).mean()) < 3


def test_features_of_a_pooled_model_can_be_kept_while_it_is_trained(llama: Path, dinov2: Path, tmp_path: Path) -> None:
    from rewardlab.training.vlm.network import ProcessorAnswerNetwork

    parts: dict[str, Any] = {"vision": dinov2, "language": llama, "tokens": 4, "pool": 2}
    model: Any = name_model(rewardlab.train_assemble(out=tmp_path / "vlm", **parts)).build()
    vlm = model.vlm
    clip = [Image(frame) for frame in moving_square("a", 2, size=60)]
    inputs = vlm.renderer.inputs([vlm.renderer.chat(Prompt((*clip, "What happened?")))])
    assert ProcessorAnswerNetwork(vlm.model).can_fuse({"pixel_values": inputs["pixel_values"]})


@pytest.mark.parametrize("tied", [True, False])
def test_text_alone_is_answered_as_by_the_language_model(dinov2: Path, tmp_path: Path, tied: bool) -> None:
    import torch

    language, tokenizer = tiny_llama(tied=tied)
    folder = save_llama(tmp_path / "llama", tied=tied)
    name = rewardlab.train_assemble(vision=dinov2, language=folder, out=tmp_path / "vlm", tokens=4)
    model: Any = name_model(name).build()
    vlm = model.vlm
    message = [{"role": "user", "content": "open the drawer"}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    rendered = vlm.renderer.chat(Prompt(("open the drawer",)))
    assert rendered.text == text
    theirs, ours = first_logits(language, tokenizer, text), first_logits(vlm.model, vlm.tokenizer, text)
    torch.testing.assert_close(ours[: len(theirs)], theirs)


def test_the_chat_template_puts_images_where_they_stand(assembled: Path) -> None:
    model: Any = name_model(f"hf:{assembled}").build()
    vlm = model.vlm
    still = Image(np.zeros((20, 20, 3), np.uint8))
    rendered = vlm.renderer.chat(Prompt((still, "first", still, "second")), "ANSWER: 1")
    user, assistant = "<|im_start|>user\n<image>first<image>second<|im_end|>\n", "<|im_start|>assistant\nANSWER: 1"
    assert rendered.text == user + assistant


def test_the_parts_are_unchanged_and_the_seed_alone_draws_the_projector(
    assembled: Path, llama: Path, dinov2: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    made = [load_file(assembled / "model.safetensors")]
    for name, seed in (("again", 0), ("other", 1)):
        rewardlab.train_assemble(vision=dinov2, language=llama, out=tmp_path / name, tokens=9, seed=seed)
        made.append(load_file(tmp_path / name / "model.safetensors"))
    same, again, other = made
    assert all(same[name].equal(again[name]) for name in same)
    changed = {name for name in same if not same[name].equal(other[name])}
    assert changed and all("multi_modal_projector" in name for name in changed)
    tower = load_file(dinov2 / "model.safetensors")
    key = "embeddings.patch_embeddings.projection.weight"
    assert next(value for name, value in same.items() if name.endswith(key)).equal(tower[key])


def test_the_card_names_models_and_licences_and_the_config_no_place(assembled: Path, llama: Path) -> None:
    card = (assembled / "README.md").read_text()
    assert "| vision tower | tiny-dinov2 | apache-2.0 | dinov2 |" in card
    assert "| language model | tiny-llama | not stated | llama |" in card
    assert str(llama.parent) not in "".join(path.read_text() for path in assembled.glob("*.json"))


@pytest.mark.skipif(find_spec("gguf") is None or find_spec("accelerate") is None, reason="gguf: extra assemble")
def test_a_gguf_file_becomes_the_same_model_as_its_folder(assembled: Path, dinov2: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    path = save_gguf(tmp_path / "tiny.gguf")
    out = tmp_path / "vlm"
    model = name_model(rewardlab.train_assemble(vision=dinov2, language=path, out=out, tokens=9)).build()
    made, expected = (load_file(folder / "model.safetensors") for folder in (out, assembled))
    for name, value in expected.items():
        if "multi_modal_projector" not in name:
            assert np.allclose(made[name][: len(value)], value, atol=1e-6), name
    assert "| language model | tiny (Tiny) | mit | llama |" in (out / "README.md").read_text()
    assert "quantization" not in (out / "config.json").read_text()
    frames = moving_square("a", 3, size=40)
    (score,) = as_scores(model.score([rewardlab.episode_from_frames(frames, "open it")]))
    assert 1 <= score.level <= 5


@pytest.mark.slow
def test_converted_dinov2_gives_the_features_that_it_gave(tmp_path: Path) -> None:
    import torch

    from rewardlab.training.encoders import PATCH, Dinov2
    from rewardlab.training.vlm.assembly import load_vision_tower

    torch.manual_seed(0)
    eyes = Dinov2().eval()
    with torch.no_grad():
        for parameter in (eyes.first, eyes.positions):
            parameter.normal_()
    path = tmp_path / "eyes.npz"
    np.savez(path, **{name: value.half().numpy() for name, value in eyes.state_dict().items()})
    eyes.load_state_dict({name: value.half().float() for name, value in eyes.state_dict().items()})
    side = 37  # the size it was trained on, where no positions are resampled
    tower = load_vision_tower(str(path), side)
    pixels = torch.randn(1, 3, side * PATCH, side * PATCH)
    with torch.no_grad():
        x = torch.cat([eyes.first, eyes.patches(pixels).flatten(2).transpose(1, 2) + eyes.positions], dim=1)
        for block in eyes.blocks:
            x = block(x)
        torch.testing.assert_close(tower.model(pixels).last_hidden_state, eyes.norm(x), atol=1e-4, rtol=1e-4)


def wrong_parts(tmp_path: Path, llama: Path, dinov2: Path) -> dict[str, tuple[object, object, str]]:
    (tmp_path / "no model").mkdir()
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    (tmp_path / "broken.npz").write_bytes(b"PK")
    shutil.copytree(dinov2, tmp_path / "odd pixels")
    (tmp_path / "odd pixels" / "preprocessor_config.json").write_text('{"image_mean": [0.5], "image_std": [0.5]}')
    return {
        "odd pixels": (tmp_path / "odd pixels", llama, "must state image_mean and image_std, three numbers each"),
        "nothing": ("", llama, "name both models .* vision is missing"),
        "no folder": (tmp_path / "none", llama, "there is no vision tower .*none"),
        "empty folder": (tmp_path / "no model", llama, "holds no config.json"),
        "no image model": (llama, llama, "a vision tower is one of dinov2, clip, siglip, got llama"),
        "no DINOv2": (tmp_path / "broken.npz", llama, "is not DINOv2 ViT-S/14"),
        "no language": (dinov2, tmp_path / "none.gguf", "there is no language model .*none.gguf"),
        "no causal model": (dinov2, dinov2, "expected a causal language model .* got dinov2"),
        "broken GGUF": (dinov2, tmp_path / "broken.gguf", "cannot load|needs gguf"),
    }


@pytest.mark.parametrize(
    "case",
    [
        "odd pixels",
        "nothing",
        "no folder",
        "empty folder",
        "no image model",
        "no DINOv2",
        "no language",
        "no causal model",
        "broken GGUF",
    ],
)
def test_what_cannot_be_put_together_is_said_in_one_sentence(
    case: str, tmp_path: Path, llama: Path, dinov2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vision, language, says = wrong_parts(tmp_path, llama, dinov2)[case]
    out = tmp_path / "out"
    assert main(["train", "assemble", "--vision", str(vision), "--language", str(language), "--out", str(out)]) in (
        2,
        3,
    )
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(says, said) and said.startswith("rewardlab: ")
    assert not out.exists()


def test_a_folder_that_is_there_and_tokens_that_make_no_square_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"is there already; name another folder"):
        rewardlab.train_assemble(vision="a", language="b", out=tmp_path)
    with pytest.raises(PlanError, match=r"a square number such as .* got 50"):
        rewardlab.train_assemble(vision="a", language="b", out=tmp_path / "new", tokens=50)


def test_gguf_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rewardlab.training.vlm import assembly as language_model

    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(PlanError, match=r"needs the packages? gguf.*: pip install 'rewardlab\[assemble\]'"):
        language_model.load_language_model(str(tmp_path / "a.gguf"))
