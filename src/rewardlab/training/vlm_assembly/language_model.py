"""The language model of an assembled model: loaded from a folder or a GGUF file, with a token for images added."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from rewardlab.core.errors import PlanError
from rewardlab.models.backends.checkpoint import check_weights, load_checkpoint
from rewardlab.training.vlm_assembly.upstream import Upstream, folder_upstream, gguf_upstream

IMAGE_TOKEN = "<image>"


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A loaded causal language model whose vocabulary has the image token."""

    model: Any
    tokenizer: Any
    upstream: Upstream

    @property
    def image_token_id(self) -> int:
        """Return the id of the image token."""
        number: int = self.tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
        return number


def load_language_model(place: str) -> LanguageModel:
    """Return the language model in a folder of transformers or a GGUF file; PlanError where it is none."""
    path = Path(place).expanduser()
    if path.is_dir():
        upstream = folder_upstream(path)
        _check_kind(upstream.kind, path)
        model, tokenizer = _load(path, {"use_safetensors": True})
    elif path.is_file() and path.suffix == ".gguf":
        _check_gguf_installed()
        model, tokenizer = _load(path.parent, {"gguf_file": path.name})
        vars(model.config).pop("quantization_config", None)  # it is no more, and a folder that says so cannot be loaded
        upstream = gguf_upstream(path, model.config.model_type)
    else:
        raise PlanError(f"there is no language model {place!r}; name a checkpoint folder or a .gguf file")
    _add_image_token(model, tokenizer)
    return LanguageModel(model, tokenizer, upstream)


def _check_kind(kind: str, folder: Path) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise PlanError(f"expected a causal language model of transformers, such as llama, got {kind} in {folder}")


def _check_gguf_installed() -> None:
    for package in ("gguf", "accelerate"):
        if find_spec(package) is None:
            raise PlanError(f"a .gguf file needs {package}; install it with pip install 'rewardlab[assemble]'")


def _load(folder: Path, source: dict[str, Any]) -> tuple[Any, Any]:
    import transformers

    def load(place: str) -> tuple[Any, Any]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            place, trust_remote_code=False, gguf_file=source.get("gguf_file")
        )
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            place, trust_remote_code=False, dtype=torch.float32, output_loading_info=True, **source
        )
        check_weights(loading, place)
        return model, tokenizer

    loaded: tuple[Any, Any] = load_checkpoint(str(folder), load)
    return loaded


def _add_image_token(model: Any, tokenizer: Any) -> None:
    """Add the token that images stand for; its embedding is never read, and the mean of all is never likely."""
    from tokenizers import AddedToken

    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.add_tokens([AddedToken(IMAGE_TOKEN, special=True, normalized=False)], special_tokens=True)
    old = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) <= old:  # the table has rows to spare
        return
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for table in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
            table[old:] = table[:old].mean(dim=0)
