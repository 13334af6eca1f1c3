"""Adapters that a training wrote, put onto a model assembled anew: the same model, or a sentence says why not."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.core.errors import ModelError, PlanError
from tests.training.test_vlm_assembly import save_dinov2, save_llama

pytestmark = [
    pytest.mark.skipif(find_spec("peft") is None or find_spec("transformers") is None, reason="extra vlm-train"),
    pytest.mark.usefixtures("one_torch_thread"),
]


FRAMES: dict[str, Any] = {"tokens": 9, "pool": 2}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return two models, a folder put together from them, its adapters, and the folder with these merged in."""
    import torch

    from rewardlab.training.optimizer import trained_parameters
    from rewardlab.training.vlm.base_model import load_base, name_base
    from rewardlab.training.vlm.network import TrainedParts
    from rewardlab.training.vlm.result import write_adapter

    folder = tmp_path_factory.mktemp("adapters")
    vision, language = save_dinov2(folder / "tower"), save_llama(folder / "llama")
    rewardlab.train_assemble(vision=vision, language=language, out=folder / "base", **FRAMES)
    named = name_base(str(folder / "base"))
    base = load_base(named, TrainedParts(lora=2), "cpu")
    torch.manual_seed(3)
    best = {name: torch.randn_like(p) / 8 for name, p in trained_parameters(base.network).items()}
    base.network.load_state_dict(best, strict=False)
    write_adapter(base.adapted, best, named, folder / "adapter")
    base.adapted.merge_and_unload().save_pretrained(folder / "merged")
    return {"vision": vision, "language": language, "adapter": folder / "adapter", "merged": folder / "merged"}


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def test_parts_and_adapters_are_the_trained_model_whatever_the_projector_was(
    parts: dict[str, Path], tmp_path: Path
) -> None:
    import torch

    chosen: dict[str, Any] = {name: parts[name] for name in ("vision", "language", "adapter")}
    rewardlab.train_assemble(**chosen, out=tmp_path / "again", **FRAMES, seed=5)
    made, wanted = weights(tmp_path / "again"), weights(parts["merged"])
    assert made.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(made[name], value, msg=name)
    card = (tmp_path / "again" / "README.md").read_text()
    assert "Not trained" not in card and "merged into the language model" in card


def test_adapters_touch_language_layers_alone_and_name_no_folder(parts: dict[str, Path]) -> None:
    from safetensors import safe_open

    config = json.loads((parts["adapter"] / "adapter_config.json").read_text())
    assert "/" not in config["base_model_name_or_path"]
    assert config["target_modules"].startswith("model\\.language_model\\.")
    with safe_open(parts["adapter"] / "adapter_model.safetensors", "pt") as stored:
        assert all(".language_model." in name for name in list(stored.keys()))


def test_what_is_no_adapter_of_these_models_is_said(parts: dict[str, Path], tmp_path: Path) -> None:
    chosen: dict[str, Any] = {
        "vision": parts["vision"],
        "language": parts["language"],
        "out": tmp_path / "made",
        **FRAMES,
    }
    with pytest.raises(PlanError, match=r"has no adapter_config.json; name the `adapter` folder"):
        rewardlab.train_assemble(**chosen, adapter=tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    for path in parts["adapter"].iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    (other / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    with pytest.raises(PlanError, match="says IA3, expected LORA"):
        rewardlab.train_assemble(**chosen, adapter=other)
    with pytest.raises(ModelError, match="do not fit these two models"):
        rewardlab.train_assemble(**{**chosen, "vision": _wider(tmp_path / "wide")}, adapter=parts["adapter"])
    assert not (tmp_path / "made").exists()


def _wider(folder: Path) -> Path:
    from transformers import Dinov2Config, Dinov2Model

    shape = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "mlp_ratio": 2}
    Dinov2Model(Dinov2Config(patch_size=14, image_size=70, **shape)).save_pretrained(folder)
    return folder
