"""The checkpoint that a training begins with: its network, what makes its inputs, and its other files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardlab.core.errors import PlanError
from rewardlab.models.backends.checkpoint import HfOptions, choose_device, load_checkpoint, load_network
from rewardlab.models.backends.hf import HF, identify_hf
from rewardlab.models.backends.qwen_prompt import FAMILIES, PromptBuilder
from rewardlab.models.contract import options_of, parse_model_string, read_arguments
from rewardlab.models.protocols import RUBRIC
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
        return self.network.model


@dataclass(frozen=True)
class Named:
    """What a model string says: the checkpoint with its options, and those of the prompt."""

    checkpoint: str
    hf: HfOptions
    video_first: bool  # in the prompt of the rubric
    options: str  # as written, to score the result with
    identity: str  # of its files

    def scoring_string(self, folder: Path) -> str:
        """Return the model string of a folder that was trained from this one."""
        return f"hf:{folder}" + (f"?{self.options}" if self.options else "")


def name_base(text: str) -> Named:
    """Return what is meant by a checkpoint, with `hf:` before it or not; PlanError where there is none to train."""
    string = parse_model_string(text if text.startswith("hf:") else f"hf:{text}")
    settings = RUBRIC.settings(HF)
    known = options_of(settings)
    own = read_arguments("hf", settings, tuple(pair for pair in string.options if pair[0] in known))
    others: dict[str, Any] = read_arguments(
        "hf", HfOptions, tuple(pair for pair in string.options if pair[0] not in known), known
    )
    identity, options = identify_hf(string.argument, HfOptions(**others))
    if own.get("answer", "logits") != "logits":
        raise PlanError("a model is trained and chosen by the probabilities of its answers; leave out answer=generate")
    video_first = own.get("order", "video_first") == "video_first"
    return Named(string.argument, options, video_first, string.text.partition("?")[2], identity)


def load_base(named: Named, parts: TrainedParts, device: str, dtype: Any = None) -> BaseModel:
    """Load a checkpoint with the parts chosen that are trained; without a dtype it keeps the one it is stored in."""

    def load(place: str) -> BaseModel:
        loaded = _load(place, named, parts, dtype or "auto")
        loaded.network.to(choose_device(device))
        for parameter in loaded.network.parameters():  # adapters too; buffers keep their precision
            parameter.data = parameter.data.to(dtype or parameter.dtype)
        return loaded

    return load_checkpoint(named.checkpoint, load)


def _load(place: str, named: Named, parts: TrainedParts, dtype: Any) -> BaseModel:
    import transformers

    from rewardlab.models.backends.checkpoint import load_processor
    from rewardlab.models.backends.processor_vlm import prompt_renderer

    options = named.hf
    said = {"revision": options.revision, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(place, **said)
    fast = config.model_type in FAMILIES and options.frames == "auto"
    renderer = None
    if not fast:  # before the weights, which take longer
        renderer = prompt_renderer(load_processor(place, config, options), place, options)
    model = load_network(place, options, dtype)
    adapted = choose_trained(model, parts)
    if renderer is not None:
        ends = end_tokens(model, renderer.processor.tokenizer.eos_token_id)
        return BaseModel(ProcessorAnswerNetwork(model), processor_inputs(renderer, ends, named.video_first), adapted)
    family = FAMILIES[config.model_type]
    per_second = 0.0 if family.timestamps else float(config.vision_config.tokens_per_second)
    builder = PromptBuilder(
        transformers.AutoTokenizer.from_pretrained(place, **said), family, options.pixels, per_second
    )
    return BaseModel(QwenAnswerNetwork(model, family), qwen_inputs(builder, named.video_first), adapted)


def other_files(named: Named) -> list[Path]:
    """Return the files of a checkpoint beside its weights and config: those of tokenizer, processor and template."""
    from transformers.utils import cached_file

    place = Path(named.checkpoint).expanduser()
    if not place.is_dir():
        found = cached_file(named.checkpoint, "config.json", revision=named.hf.revision)
        place = Path(str(found)).parent
    files = [path for path in sorted(place.iterdir()) if path.suffix in _COPIED and path.is_file()]
    return [path for path in files if path.name not in _WRITTEN and not path.name.endswith(".index.json")]
