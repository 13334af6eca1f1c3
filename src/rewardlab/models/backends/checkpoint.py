"""A transformers checkpoint: identity, options of `hf:`, device and dtype, loading network and processor.

Every loader of transformers gets `trust_remote_code=False`; without it, transformers asks on the terminal whether to
run a checkpoint's own code. Weights are safetensors only, and the attention is set here (None: as the class has it),
because a config can name code for it.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from rewardlab.core.catalog import quoted
from rewardlab.core.errors import ModelError, PlanError, RewardlabError, require_packages
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.models.contract import SPEED, path_digest

_MAX_TYPE = 100  # letters of a model type
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_ID = re.compile(r"[\w-][\w.-]{0,95}(/[\w-][\w.-]{0,95})?")
_WEIGHTS = "*.safetensors"  # never *.bin, which is a pickle: a program that runs when it is opened

Loaded = TypeVar("Loaded")
# Model type and folder to the files beside config and weights that answers depend on; PlanError where it is not read
OtherFiles = Callable[[str, str], Sequence[str]]


def identify_checkpoint(place: str, revision: str, other_files: OtherFiles) -> tuple[str, str]:
    """Return what identifies the weights, without loading them, and the revision to load.

    A folder goes by the content of its files, a hub id by its commit. PlanError where there is no checkpoint of a type
    that can be read, or no commit is known.
    """
    require_packages("this model", "torch", "transformers", extra="hf")
    folder = Path(place).expanduser()
    if place and os.path.isdir(folder):  # pathlib raises where a name is too long
        weights, kind = sorted(folder.glob(_WEIGHTS)), model_type(folder)
        if not weights:
            raise PlanError(f"{folder} is no checkpoint folder: it holds no {_WEIGHTS}")
        names = ["config.json", *(path.name for path in weights), *other_files(kind, str(folder))]
        there = [name for name in names if (folder / name).is_file()]
        return digest(*(part for name in there for part in (name, path_digest(folder / name)))), revision
    if place.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(place):
        raise PlanError(f"there is no folder {quoted(place)}; name a checkpoint folder, or a hub id such as Qwen/NAME")
    commit = revision if _COMMIT.fullmatch(revision) else _cached_commit(place, revision)
    if not _COMMIT.fullmatch(commit):
        raise PlanError(
            f"the commit of {place} ({revision}) is not known here; add revision=COMMIT, its 40 digits on the hub, "
            f"or download it first: hf download {place}"
        )
    return digest("hub", place, commit), commit


def _cached_commit(place: str, revision: str) -> str:
    """Return the commit that a revision of a hub id has in the local cache: a branch may move, a commit does not."""
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        reference = Path(HF_HUB_CACHE) / f"models--{place.replace('/', '--')}" / "refs" / revision
        return reference.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def model_type(folder: Path) -> str:
    """Return the model type that the config of a checkpoint folder names."""
    config = folder / "config.json"
    if not config.is_file():
        raise PlanError(f"{folder} is no checkpoint folder: it holds no config.json")
    try:
        return str(parse_json(config.read_bytes())["model_type"])[:_MAX_TYPE]
    except (ValueError, KeyError, TypeError):
        raise PlanError(f"{config} names no model_type; is it a transformers checkpoint?") from None


def load_checkpoint(place: str, load: Callable[[str], Loaded]) -> Loaded:
    """Return what `load` makes of the folder or hub id, with one sentence for whatever a library's loader raises."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    logging.disable_progress_bar()
    hub_logging.set_verbosity_error()  # an unreachable hub is told once, below, and not at every try
    folder = Path(place).expanduser()
    try:
        return load(str(folder) if folder.is_dir() else place)
    except RewardlabError:
        raise
    except Exception as error:  # a broken file may raise anything
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        where = "" if folder.is_dir() else "it is no folder here, and as a hub id: "
        raise ModelError(f"cannot load {place}: {where}{first}") from error


def check_weights(loading: Mapping[str, Any], place: str) -> None:
    """Raise where the loader reports parameters missing from the weights; the library would fill in random numbers."""
    missing = sorted(loading["missing_keys"])
    if missing:
        raise ModelError(
            f"the weights in {place} lack {len(missing)} parameters of the model, such as {missing[0]}; "
            "is it a whole checkpoint, and of the class that its config names?"
        )


def check_device(device: str) -> None:
    """Check, in a `__post_init__`, the option device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise PlanError(f"option device must be auto, cpu, cuda or cuda:N, got {device!r}")


def choose_device(device: str) -> str:
    """Return the device that auto means here, or the one that was asked for if it is there."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cpu" and not torch.cuda.is_available():
        raise ModelError(f"device {device} was asked for, and torch sees no CUDA device here; use device=auto")
    return device


def choose_dtype(dtype: str, device: str) -> Any:
    """Return the torch dtype; auto is bfloat16 on a GPU and float32 on a processor."""
    import torch

    if dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


# Options of `hf:`.

Dtype = Annotated[Literal["auto", "float32", "bfloat16", "float16"], Help("auto, float32, bfloat16 or float16")]
Device = Annotated[str, Help("auto, cpu, cuda or cuda:N"), SPEED]
Revision = Annotated[str, Help("revision of a hub id; its commit in the local cache counts")]


@dataclass(frozen=True)
class HfOptions:
    """Options of `hf:`."""

    dtype: Dtype = "auto"
    device: Device = "auto"
    attn: Annotated[
        Literal["auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3"],
        Help("auto (sdpa where the model has it, else eager), sdpa, eager, flash_attention_2 or flash_attention_3"),
    ] = "auto"
    frames: Annotated[
        Literal["auto", "images", "video"],
        Help("how a clip is shown: images, video, or auto: video where the model's processor has it"),
    ] = "auto"
    pixels: Annotated[int, Help("most pixels per frame; 0 for what the model was published with")] = 0
    reuse: Annotated[bool, Help("cache features of frames and, for Qwen, keys and values of prefixes"), SPEED] = True
    reuse_gb: Annotated[float, Help("GiB of memory for that cache"), SPEED] = 4.0
    revision: Revision = "main"

    def __post_init__(self) -> None:
        check_device(self.device)
        if self.pixels < 0 or self.reuse_gb < 0:
            raise PlanError("options pixels and reuse_gb must not be negative")

    @property
    def reuse_bytes(self) -> int:
        """Return how many bytes of the cache there may be; 0 for no reuse."""
        return int(self.reuse_gb * 2**30) if self.reuse else 0


# Loading the processor of a checkpoint, which turns text and frames into the inputs of its model.


def load_processor(place: str, config: Any, options: HfOptions) -> Any:
    """Return the processor of a checkpoint, with the image processor that gives the same pixels on every machine."""
    import transformers
    from transformers.processing_utils import ProcessorMixin

    said = {"revision": options.revision, "trust_remote_code": False}
    try:
        video_class = _class_with_video(place, config, options)
        if video_class is not None and find_spec("torchvision") is None:
            return _load_without_video(video_class, place, options)
        processor = transformers.AutoProcessor.from_pretrained(place, **said)
        if not isinstance(processor, ProcessorMixin) or "image_processor" not in processor.get_attributes():
            raise ModelError(f"{place} has a {type(processor).__name__} and no processor of images; is a file missing?")
        # torchvision and pillow resize differently: what a model sees must not depend on which of them is installed
        processor.image_processor = transformers.AutoImageProcessor.from_pretrained(place, backend="pil", **said)
    except (ImportError, ValueError) as error:  # some image processors have no part for pillow
        if find_spec("torchvision") is None and "torchvision" in str(error).lower():
            raise _no_torchvision(f"the {config.model_type} processor", place) from error
        raise
    return processor


def _no_torchvision(what: str, place: str, other: str = "") -> ModelError:
    return ModelError(f"{what} of {place} needs torchvision, which is not installed; install it{other}")


def _class_with_video(place: str, config: Any, options: HfOptions) -> Any:
    """Return the processor's class where it has a part for videos, all of which need torchvision; else None."""
    from transformers import ProcessorMixin
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING, processor_class_from_name

    try:
        said = ProcessorMixin.get_processor_dict(place, revision=options.revision)[0].get("processor_class")
    except (OSError, ValueError):  # a folder need not say which it is: then it is that of the model's type
        said = None
    known = processor_class_from_name(said) if said else PROCESSOR_MAPPING.get(type(config), None)
    return known if known is not None and "video_processor" in known.get_attributes() else None


def _load_without_video(known: Any, place: str, options: HfOptions) -> Any:
    """Return a processor of this class with nothing in place of its part for videos, where its class allows that."""
    import transformers

    optional = signature(known.__init__).parameters["video_processor"].default is None
    if options.frames != "images" or not optional:
        other = ", or show images with frames=images" if optional else ""
        raise _no_torchvision(known.__name__, place, other)
    said = {"revision": options.revision, "trust_remote_code": False}
    image_processor = transformers.AutoImageProcessor.from_pretrained(place, backend="pil", **said)
    parts = {"tokenizer": transformers.AutoTokenizer.from_pretrained(place, **said), "image_processor": image_processor}
    settings, _ = known.get_processor_dict(place, revision=options.revision)
    # the library's check of each part's class takes no None, though the class itself does
    unchecked = type(known.__name__, (known,), {"check_argument_for_proper_class": lambda *_: None})
    return unchecked.from_args_and_dict([parts.get(name) for name in known.get_attributes()], settings)  # type: ignore[attr-defined]


def load_for_scoring(place: str, options: HfOptions) -> Any:
    """Return the network of a checkpoint, in evaluation mode on its device."""
    device = choose_device(options.device)
    model = load_network(place, options, choose_dtype(options.dtype, device))
    return model.to(device).eval().requires_grad_(False)


def load_network(place: str, options: HfOptions, dtype: Any) -> Any:
    """Return the network of a checkpoint in this dtype; every parameter must be among its weights."""
    import transformers

    model, loading = transformers.AutoModelForImageTextToText.from_pretrained(
        place,
        revision=options.revision,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation=None if options.attn == "auto" else options.attn,
        output_loading_info=True,
    )
    check_weights(loading, place)
    return model
