"""The checkpoint that a training begins with: its network, what makes its inputs, and its other files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.errors import PlanError
from rewardlab.models import MODELS
from rewardlab.models.backends.checkpoint import HfOptions, HfSpec, check_weights, choose_device, load_checkpoint
from rewardlab.models.backends.qwen_prompt import FAMILIES, PromptBuilder
from rewardlab.models.contract import ModelEntry
from rewardlab.models.model_string import parse_model_string
from rewardlab.models.protocols.rubric import RubricOptions
from rewardlab.models.vlm import end_tokens
from rewardlab.training.vlm.inputs import AnswerInputs, processor_inputs, qwen_inputs
from rewardlab.training.vlm.network import (
    AnswerNetwork,
    ProcessorAnswerNetwork,
    QwenAnswerNetwork,
    TrainedParts,
    choose_trained,
)

_COPIED = (".json", ".jinja", ".txt", ".model")  # what tokenizers and processors are made of; no code, no pickle
_WRITTEN = ("config.json", "generation_config.json")  # by the library, with the weights


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A loaded checkpoint; `adapted` is the model with its adapters where there are any."""

    network: AnswerNetwork
    inputs: AnswerInputs
    adapted: Any

    @property
    def model(self) -> Any:
        """Return the model of transformers."""
        return self.network.model


@dataclass(frozen=True)
class Named:
    """What a model string says: the checkpoint with its options, and those of the prompt."""

    spec: HfSpec
    rubric: RubricOptions
    options: str  # as written, to score the result with
    identity: str  # of its files

    def scoring_string(self, folder: Path) -> str:
        """Return the model string of a folder that was trained from this one."""
        return f"hf:{folder}" + (f"?{self.options}" if self.options else "")


def name_base(text: str) -> Named:
    """Return what is meant by a checkpoint, with `hf:` before it or not; PlanError where there is none to train."""
    string = parse_model_string(text if text.startswith("hf:") else f"hf:{text}")
    entry = MODELS["hf"]
    assert isinstance(entry, ModelEntry)
    spec = entry.parse(string)
    identity = entry.identify(spec)
    if spec.options.answer != "logits":
        raise PlanError("a model is trained and chosen by the probabilities of its answers; leave out answer=generate")
    return Named(spec.backend_spec, spec.options, string.text.partition("?")[2], identity)


def load_base(named: Named, parts: TrainedParts, device: str, dtype: Any = None) -> BaseModel:
    """Load a checkpoint with the parts chosen that are trained; without a dtype it keeps the one it is stored in."""

    def load(place: str) -> BaseModel:
        loaded = _load(place, named, parts, dtype or "auto")
        loaded.network.to(choose_device(device))
        for parameter in loaded.network.parameters():  # adapters too; buffers keep their precision
            parameter.data = parameter.data.to(dtype or parameter.dtype)
        return loaded

    return load_checkpoint(named.spec.checkpoint, load)


def _load(place: str, named: Named, parts: TrainedParts, dtype: Any) -> BaseModel:
    import transformers

    options = named.spec.options
    said = {"revision": options.revision, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(place, **said)
    fast = config.model_type in FAMILIES and options.frames == "auto"
    renderer = None if fast else _renderer(place, config, options)  # before the weights, which take longer
    model = _network(place, options, dtype)
    adapted = choose_trained(model, parts)
    if renderer is not None:
        ends = end_tokens(model, renderer.processor.tokenizer.eos_token_id)
        return BaseModel(ProcessorAnswerNetwork(model), processor_inputs(renderer, ends, named.rubric), adapted)
    family = FAMILIES[config.model_type]
    per_second = 0.0 if family.timestamps else float(config.vision_config.tokens_per_second)
    builder = PromptBuilder(
        transformers.AutoTokenizer.from_pretrained(place, **said), family, options.pixels, per_second
    )
    return BaseModel(QwenAnswerNetwork(model, family), qwen_inputs(builder, named.rubric), adapted)


def _renderer(place: str, config: Any, options: HfOptions) -> Any:
    from rewardlab.models.backends.checkpoint import load_processor
    from rewardlab.models.backends.processor_vlm import prompt_renderer

    return prompt_renderer(load_processor(place, config, options), place, options)


def _network(place: str, options: HfOptions, dtype: Any) -> Any:
    import transformers

    model, loading = transformers.AutoModelForImageTextToText.from_pretrained(
        place,
        revision=options.revision,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation=options.attn,
        output_loading_info=True,
    )
    check_weights(loading, place)
    return model


def other_files(named: Named) -> list[Path]:
    """Return the files of a checkpoint beside its weights and config: those of tokenizer, processor and template."""
    from transformers.utils import cached_file

    place = Path(named.spec.checkpoint).expanduser()
    if not place.is_dir():
        found = cached_file(named.spec.checkpoint, "config.json", revision=named.spec.options.revision)
        place = Path(str(found)).parent
    files = [path for path in sorted(place.iterdir()) if path.suffix in _COPIED and path.is_file()]
    return [path for path in files if path.name not in _WRITTEN and not path.name.endswith(".index.json")]
