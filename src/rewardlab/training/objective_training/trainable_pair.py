"""A backbone as a training sees it: inputs that never change and are stored, and what is trained on top of them.

Of a projected pair the encoders are frozen: the inputs are their features, and the projections are trained. Of CLIP and
SigLIP the inputs are pixels and tokens, and LoRA adapters in every layer are trained.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.models.backends.checkpoint import folder_type, load_checkpoint
from rewardlab.models.backends.clip_pair import ClipPair, load_clip_pair
from rewardlab.models.backends.projected_pair import MODEL_TYPE, ProjectedPair, load_projected_pair
from rewardlab.training.objective_training.backbone_parts import copy_encoders, write_projections
from rewardlab.training.peft_adapters import loaded_peft

_LORA_SCALE = 2  # alpha over rank


class TrainablePair(Protocol):
    """What trainings, evaluations and result folders need of a backbone."""

    folder: Path
    network: nn.Module  # its parameters that want gradients are trained

    def image_inputs(self, frames: Frames) -> Tensor:
        """Return what is stored of frames, one row each."""

    def text_inputs(self, texts: Sequence[str]) -> Tensor:
        """Return what is stored of texts, one row each."""

    def images(self, inputs: Tensor) -> Tensor:
        """Return a unit vector per stored frame."""

    def texts(self, inputs: Tensor) -> Tensor:
        """Return a unit vector per stored text."""

    def write(self, folder: Path) -> None:
        """Write the pair as it is now, as a folder for `contrastive:`."""


class TrainableProjections:
    """A projected pair: the inputs are features in half precision."""

    def __init__(self, folder: Path, pair: ProjectedPair) -> None:
        self.folder, self.pair = folder, pair
        self.network: nn.Module = pair.projections.requires_grad_(True)

    def image_inputs(self, frames: Frames) -> Tensor:
        """Return the tokens of frames."""
        return self.pair.image_tokens(list(frames)).half()

    def text_inputs(self, texts: Sequence[str]) -> Tensor:
        """Return the sentence vectors of texts."""
        return self.pair.sentence_vectors(texts).half()

    def images(self, inputs: Tensor) -> Tensor:
        """Return a unit vector per frame."""
        return nn.functional.normalize(self.pair.projections.images(inputs), dim=-1)

    def texts(self, inputs: Tensor) -> Tensor:
        """Return a unit vector per text."""
        return nn.functional.normalize(self.pair.projections.texts(inputs), dim=-1)

    def write(self, folder: Path) -> None:
        """Write the encoders as they were and the projections as they are."""
        copy_encoders(self.folder, folder)
        write_projections(folder, self.pair.projections)


class TrainableAdapters:
    """CLIP or SigLIP with LoRA adapters: the inputs are pixels in half precision, and tokens with their mask."""

    def __init__(self, folder: Path, pair: ClipPair, rank: int) -> None:
        self.folder, self.pair = folder, pair
        self.network: nn.Module = _with_adapters(pair.model, rank)

    def image_inputs(self, frames: Frames) -> Tensor:
        """Return the pixels as the model takes them."""
        pixels: Tensor = self.pair.pixels(list(frames)).half()
        return pixels

    def text_inputs(self, texts: Sequence[str]) -> Tensor:
        """Return tokens and mask, padded to the model's length."""
        made = self.pair.tokens(texts, whole_length=True)
        return torch.stack([made["input_ids"], made["attention_mask"]], 1)

    def images(self, inputs: Tensor) -> Tensor:
        """Return a unit vector per frame."""
        return nn.functional.normalize(self.pair.embed_pixels(inputs.to(self.pair.model.dtype)), dim=-1)

    def texts(self, inputs: Tensor) -> Tensor:
        """Return a unit vector per text."""
        return nn.functional.normalize(self.pair.embed_tokens(inputs[:, 0], inputs[:, 1]), dim=-1)

    def write(self, folder: Path) -> None:
        """Write the model with its adapters merged, and the files of its tokenizer and image processor."""
        folder.mkdir(parents=True, exist_ok=True)
        network: Any = self.network
        network.merge_adapter()
        try:
            self._write_merged(folder)
        finally:
            network.unmerge_adapter()
        for path in self.folder.iterdir():
            if path.suffix in (".json", ".txt", ".model") and path.name != "config.json" and "index" not in path.name:
                shutil.copyfile(path, folder / path.name)

    def _write_merged(self, folder: Path) -> None:
        plain = {n.replace(".base_layer", ""): p for n, p in self.pair.model.state_dict().items() if "lora_" not in n}
        model = type(self.pair.model)(self.pair.model.config)
        model.load_state_dict({name: value.cpu() for name, value in plain.items()})
        model.config._name_or_path = ""  # else the path on this machine would be saved
        model.save_pretrained(folder)


def _with_adapters(model: Any, rank: int) -> nn.Module:
    targets = [n for n, module in model.named_modules() if isinstance(module, nn.Linear) and ".layers." in n]
    need = "CLIP and SigLIP are trained by LoRA, which needs peft"
    with loaded_peft(need) as peft, torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        config = peft.LoraConfig(r=rank, lora_alpha=_LORA_SCALE * rank, lora_dropout=0.0, target_modules=targets)
        adapted: nn.Module = peft.get_peft_model(model, config)
    return adapted


def load_pair(folder: Path, device: str, rank: int) -> TrainablePair:
    """Return the backbone in a folder, in full precision, ready to be trained."""
    if folder_type(folder) == MODEL_TYPE:
        return load_checkpoint(
            str(folder), lambda place: TrainableProjections(folder, load_projected_pair(folder, device, torch.float32))
        )
    pair = load_checkpoint(str(folder), lambda place: load_clip_pair(place, "main", device, torch.float32))
    return TrainableAdapters(folder, pair, rank)
