"""A cache bounded in bytes, and image features in place of pixels."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, Generic, TypeVar

from rewardlab.core.episode import Frames, fingerprint_frames

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """Values by the key of their content; the least recently used goes first when room is short."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[str, tuple[Value, int]] = OrderedDict()

    def get(self, key: str) -> Value | None:
        """Return the value of this key, which now counts as used last; None if it is not here."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: str, value: Value, size: int) -> None:
        """Store a value of so many bytes, unless it alone is too big for the cache."""
        if key in self._entries:
            self.used_bytes -= self._entries.pop(key)[1]
        if size > self.max_bytes:
            return
        while self.used_bytes + size > self.max_bytes:
            self.used_bytes -= self._entries.popitem(last=False)[1][1]
        self._entries[key] = (value, size)
        self.used_bytes += size

    def items(self) -> Iterator[tuple[str, Value]]:
        """Yield every key and value, the most recently used first."""
        return ((key, value) for key, (value, _) in reversed(self._entries.items()))


# Features of images for models of transformers that take them in place of pixels: an image seen before is not encoded.
#
# The library itself encodes images before it reads a prompt and hands the features over as `mm_encoder_outputs`; which
# models take them is in the signature of their forward pass. Only where pixels are one picture per image, and nothing
# else goes to the vision tower with them, is it sure that the features of an image are the same in every batch.

FEATURES = "mm_encoder_outputs"


class ImageFeatureCache:
    """The features that a model's vision tower gave, in at most so many bytes; with 0 bytes nothing is kept."""

    def __init__(self, model: Any, max_bytes: int) -> None:
        self.model = model
        self.cache: LRUCache[Any] = LRUCache(max_bytes)
        self.reuse = max_bytes > 0 and FEATURES in signature(model.forward).parameters
        self.stacked = False  # some towers give one tensor for all images, others a list

    def fill_in(self, inputs: Mapping[str, Any], images: Sequence[Frames]) -> dict[str, Any]:
        """Return the inputs of a batch that shows these images, with features in place of pixels where that is sure."""
        if not self._is_one_picture_each(inputs, len(images)):
            return dict(inputs)
        pixels = inputs["pixel_values"]
        keys = [fingerprint_frames(image) for image in images]
        missing = {key: row for row, key in enumerate(keys) if self.cache.get(key) is None}
        found = {key: self.cache.get(key) for key in keys if key not in missing}
        if missing:
            encoded = self._encode(pixels[list(missing.values())])
            if len(encoded) != len(missing):
                self.reuse = False
                return dict(inputs)
            for key, features in zip(missing, encoded):
                found[key] = features
                self.cache.put(key, features, features.nbytes)
        others = {name: value for name, value in inputs.items() if name != "pixel_values"}
        return others | {FEATURES: {"image": self._output([found[key] for key in keys])}}

    def _is_one_picture_each(self, inputs: Mapping[str, Any], images: int) -> bool:
        if not self.reuse or "pixel_values" not in inputs:
            return False
        taken = signature(self.model.base_model.get_image_features).parameters
        alone = [name for name in inputs if name in taken] == ["pixel_values"]
        return alone and inputs["pixel_values"].ndim == 4 and len(inputs["pixel_values"]) == images

    def _encode(self, pixels: Any) -> list[Any]:
        """Return the features of each picture; copies, since views would keep the whole batch alive."""
        found = self.model.base_model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output
        self.stacked = not isinstance(found, list | tuple)
        return [features.clone() for features in found]

    def _output(self, features: list[Any]) -> Any:
        import torch
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        return BaseModelOutputWithPooling(pooler_output=torch.stack(features) if self.stacked else features)
