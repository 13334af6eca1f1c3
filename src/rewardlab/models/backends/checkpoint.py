"""A transformers checkpoint: identity, options of `hf:`, device and dtype, loading network and processor.

Every loader of transformers is told `trust_remote_code=False`, else it asks on the terminal whether a checkpoint's own
code may run; weights are safetensors only, and which attention runs is said here, for a config can name code for it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from rewardlab.core.errors import ModelError, PlanError, RewardlabError
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.models.model_string import one_of, option

_MAX_TYPE = 100  # letters of a model type
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_WEIGHTS = "*.safetensors"  # never *.bin, which is a pickle: a program that runs when it is opened

Loaded = TypeVar("Loaded")
# Model type and folder to the files beside config and weights that answers depend on; PlanError where it is not read
OtherFiles = Callable[[str, str], Sequence[str]]


def identify_checkpoint(place: str, revision: str, other_files: OtherFiles) -> str:
    """Return what identifies the weights, without loading them; PlanError where there are none of a type to be read."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise PlanError("this model needs torch and transformers; install them with pip install 'rewardlab[hf]'")
    folder = Path(place).expanduser()
    if place and folder.is_dir():
        return _identify_folder(folder, other_files)
    if place.startswith((".", "/", "~")) or not _HUB_ID.fullmatch(place):
        raise PlanError(f"there is no folder {place!r}; name a checkpoint folder, or a hub id such as Qwen/NAME")
    return digest("hub", place, revision)


def _identify_folder(folder: Path, other_files: OtherFiles) -> str:
    """Hash the config, other files, and name, size and time of each weight file: one written again is another."""
    config = folder / "config.json"
    weights = sorted(folder.glob(_WEIGHTS))
    if not config.is_file() or not weights:
        missing = _WEIGHTS if config.is_file() else "config.json"
        raise PlanError(f"{folder} is no checkpoint folder: it holds no {missing}")
    content = config.read_bytes()
    names = [name for name in other_files(_model_type(folder, content), str(folder)) if (folder / name).is_file()]
    others = (part for name in names for part in (name, (folder / name).read_bytes()))
    files = [(path.name, path.stat()) for path in weights]
    return digest(content, *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files), *others)


def folder_type(folder: Path) -> str:
    """Return the model type that the config of a folder names."""
    config = folder / "config.json"
    if not config.is_file():
        raise PlanError(f"{folder} is no checkpoint folder: it holds no config.json")
    return _model_type(folder, config.read_bytes())


def _model_type(folder: Path, config: bytes) -> str:
    try:
        return str(parse_json(config)["model_type"])[:_MAX_TYPE]
    except (ValueError, KeyError, TypeError):
        raise PlanError(f"{folder / 'config.json'} names no model_type; is it a transformers checkpoint?") from None


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
    """Say that parameters are missing from the weights, where `loading`, what the loader reports, says so.

    The library would go on with random numbers in their place.
    """
    missing = sorted(loading["missing_keys"])
    if missing:
        raise ModelError(
            f"the weights in {place} lack {len(missing)} parameters of the model, such as {missing[0]}; "
            "is it a whole checkpoint, and of the class that its config names?"
        )


def check_hardware(dtype: str, device: str) -> None:
    """Check, in a `__post_init__`, the options dtype and device."""
    one_of("dtype", dtype, ("auto", "float32", "bfloat16", "float16"))
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


# Options of `hf:`, and the checkpoint they are for.


@dataclass(frozen=True)
class HfOptions:
    """Options of `hf:`."""

    dtype: str = option("auto", "auto, float32, bfloat16 or float16")
    device: str = option("auto", "auto, cpu, cuda or cuda:N", speed=True)
    attn: str = option("sdpa", "sdpa, eager, flash_attention_2 or flash_attention_3")
    frames: str = option(
        "auto", "how a clip is shown: images, video, or auto: video where the model's processor has it"
    )
    pixels: int = option(0, "most pixels per frame; 0 for what the model was published with")
    reuse: bool = option(True, "cache features of frames and, for Qwen, keys and values of prefixes", speed=True)
    reuse_gb: float = option(4.0, "GiB of memory for that cache", speed=True)
    revision: str = option("main", "revision of a hub id")

    def __post_init__(self) -> None:
        check_hardware(self.dtype, self.device)
        one_of("attn", self.attn, ("sdpa", "eager", "flash_attention_2", "flash_attention_3"))
        one_of("frames", self.frames, ("auto", "images", "video"))
        if self.pixels < 0 or self.reuse_gb < 0:
            raise PlanError("options pixels and reuse_gb must not be negative")

    @property
    def reuse_bytes(self) -> int:
        """Return how many bytes of the cache there may be; 0 for no reuse."""
        return int(self.reuse_gb * 2**30) if self.reuse else 0


@dataclass(frozen=True)
class HfSpec:
    """Which checkpoint to run, and how."""

    checkpoint: str
    options: HfOptions


# Loading the processor of a checkpoint, which turns text and frames into the inputs of its model.


def load_processor(place: str, config: Any, options: HfOptions) -> Any:
    """Return the processor of a checkpoint, with the image processor that gives the same pixels on every machine."""
    import transformers
    from transformers.processing_utils import ProcessorMixin

    said = {"revision": options.revision, "trust_remote_code": False}
    video_class = _class_with_video(place, config, options)
    if video_class is not None and find_spec("torchvision") is None:
        return _load_without_video(video_class, place, options)
    processor = transformers.AutoProcessor.from_pretrained(place, **said)
    if not isinstance(processor, ProcessorMixin) or "image_processor" not in processor.get_attributes():
        raise ModelError(f"{place} has a {type(processor).__name__} and no processor of images; is a file missing?")
    # torchvision and pillow resize differently: what a model sees must not depend on which of them is installed
    processor.image_processor = transformers.AutoImageProcessor.from_pretrained(place, backend="pil", **said)
    return processor


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
        raise ModelError(f"{known.__name__} of {place} needs torchvision, which is not installed; install it{other}")
    said = {"revision": options.revision, "trust_remote_code": False}
    parts = {
        "tokenizer": transformers.AutoTokenizer.from_pretrained(place, **said),
        "image_processor": transformers.AutoImageProcessor.from_pretrained(place, backend="pil", **said),
    }
    settings, _ = known.get_processor_dict(place, revision=options.revision)
    # the library's check of each part's class takes no None, though the class itself does
    unchecked = type(known.__name__, (known,), {"check_argument_for_proper_class": lambda *_: None})
    return unchecked.from_args_and_dict([parts.get(name) for name in known.get_attributes()], settings)  # type: ignore[attr-defined]


def load_network(place: str, options: HfOptions) -> Any:
    """Return the network of a checkpoint, in evaluation mode on its device."""
    import transformers

    device = choose_device(options.device)
    model, loading = transformers.AutoModelForImageTextToText.from_pretrained(
        place,
        revision=options.revision,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=choose_dtype(options.dtype, device),
        attn_implementation=options.attn,
        output_loading_info=True,
    )
    check_weights(loading, place)
    return model.to(device).eval().requires_grad_(False)
