"""Loading the processor of a checkpoint, which turns text and frames into the inputs of its model."""

from importlib.util import find_spec
from inspect import signature
from typing import Any

from rewardlab.core.errors import ModelError
from rewardlab.models.backends.hf_options import HfOptions


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
