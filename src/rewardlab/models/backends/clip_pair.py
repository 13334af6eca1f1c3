"""CLIP, SigLIP and SigLIP 2 of transformers as an image-text pair: frames and texts to vectors of one space."""

from collections.abc import Sequence
from typing import Any

from rewardlab.core.episode import Frames

CLIP_TYPES = ("clip", "siglip")  # SigLIP 2 of a fixed resolution calls itself siglip


class ClipPair:
    """A model of transformers with its tokenizer and image processor."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.processor = processor

    def image_features(self, frames: Sequence[Frames]) -> Any:
        """Return one vector per frame."""
        return self.embed_pixels(self.pixels(frames))

    def text_features(self, texts: Sequence[str]) -> Any:
        """Return one vector per text."""
        return self.embed_tokens(**self.tokens(texts))

    def pixels(self, frames: Sequence[Frames]) -> Any:
        """Return frames as the model takes them."""
        made = self.processor(images=list(frames), return_tensors="pt", input_data_format="channels_last")
        return made["pixel_values"].to(self.model.device, self.model.dtype)

    def embed_pixels(self, pixels: Any) -> Any:
        """Return one vector per picture."""
        return self.model.get_image_features(pixel_values=pixels).pooler_output

    def embed_tokens(self, input_ids: Any, attention_mask: Any) -> Any:
        """Return one vector per row of tokens; SigLIP reads without a mask, as in its training."""
        mask = {"attention_mask": attention_mask} if self.model.config.model_type == "clip" else {}
        return self.model.get_text_features(input_ids, **mask).pooler_output

    def tokens(self, texts: Sequence[str], *, whole_length: bool = False) -> dict[str, Any]:
        """Return tokens and their mask, cut at the model's length; text that spells out a special token stays text.

        SigLIP reads lower case, padded to the full length, as in its training; so is CLIP where it is asked for.
        """
        siglip = self.model.config.model_type != "clip"
        made = self.tokenizer(
            [text.lower() for text in texts] if siglip else list(texts),
            padding="max_length" if siglip or whole_length else True,
            truncation=True,
            max_length=self.model.config.text_config.max_position_embeddings,
            split_special_tokens=True,
            return_attention_mask=True,
            return_tensors="pt",
        ).to(self.model.device)
        return {"input_ids": made["input_ids"], "attention_mask": made["attention_mask"]}


def load_clip_pair(place: str, revision: str, device: str, dtype: Any) -> ClipPair:
    """Return the pair in a folder or behind a hub id; nothing that it names is run."""
    import transformers

    model = transformers.AutoModel.from_pretrained(
        place,
        revision=revision,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation="sdpa",
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, revision=revision, trust_remote_code=False)
    processor = transformers.AutoImageProcessor.from_pretrained(
        place, revision=revision, trust_remote_code=False, backend="pil"
    )
    return ClipPair(model.to(device).eval().requires_grad_(False), tokenizer, processor)
