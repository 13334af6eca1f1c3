"""Backbones: put together from parts, loaded, trained by projections or LoRA, written.

`NAME=VISION+TEXT` names both: VISION is DINOv2 ViT-S/14 as .npz or .onnx, TinyViT-5M as .onnx, or a folder of either;
TEXT is a folder of a BERT sentence encoder such as all-MiniLM-L6-v2. `NAME=VISION+TEXT?pretrain=STEPS` first trains
both as an image-text pair, on frames and captions. `NAME=FOLDER` is what `contrastive:` takes.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rewardlab.core.episode import Frames
from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.records import read_json
from rewardlab.core.storage import atomic_write, link_or_copy, write_file
from rewardlab.models.backends.checkpoint import load_checkpoint, model_type
from rewardlab.models.contrastive import CLIP_TYPES, ClipPair, load_clip_pair
from rewardlab.models.projected_pair import (
    IMAGE_ENCODER,
    IMAGE_TYPES,
    MODEL_TYPE,
    PROJECTIONS,
    TEXT_ENCODER,
    TEXT_TYPES,
    TINY_VIT,
    WEIGHTS,
    PairConfig,
    ProjectedPair,
    Projections,
    TinyVit,
    TinyVitConfig,
    load_encoders,
    load_projected_pair,
)
from rewardlab.training.encoders import (
    DINOV2,
    Upstream,
    folder_upstream,
    is_tiny_vit,
    tiny_vit_weights,
    write_dinov2_folder,
)
from rewardlab.training.encoders import WIDTH as DINOV2_WIDTH
from rewardlab.training.lora import add_lora
from rewardlab.training.objectives import backbone_name

UPSTREAM = "upstream.json"
TINY_VIT_5M = Upstream("TinyViT-5M, ImageNet-22k (microsoft/Cream)", "mit", TINY_VIT)
_TINY_VIT_PIXELS, _DINOV2_PIXELS = 224, 112
_GRID, _HIDDEN, _WIDTH = 4, 512, 256  # tokens on a side of a frame's features, and the shape of the projections
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


@dataclass(frozen=True)
class Backbone:
    """A backbone of the settings: its name, and the folder that holds it, or the two parts that it is made of.

    `pretrain` counts the steps that train both parts on frames and captions before anything else.
    """

    name: str
    folder: Path | None
    vision: Path | None = None
    text: Path | None = None
    pretrain: int = 0


def name_backbone(text: str) -> Backbone:
    """Return the backbone that a text means; PlanError where a file is not there or of another kind."""
    written, asked, steps = text.partition("?pretrain=")
    _, equals, rest = written.partition("=")
    parts = [Path(part).expanduser() for part in (rest if equals else written).split("+")]
    if asked and not (steps.isdecimal() and int(steps) and len(parts) == 2):
        raise PlanError(f"backbone {text}: expected NAME=VISION+TEXT?pretrain=STEPS with a number above 0")
    for path in parts:
        if not path.exists():
            raise PlanError(f"backbone {text}: there is no {path}; write NAME=VISION+TEXT or NAME=FOLDER")
    if len(parts) == 2:
        return Backbone(backbone_name(text), None, parts[0], parts[1], int(steps or 0))
    if len(parts) > 2 or not parts[0].is_dir():
        raise PlanError(f"backbone {text}: expected NAME=VISION+TEXT or a folder that contrastive: takes")
    kind = model_type(parts[0])
    if kind not in (*CLIP_TYPES, MODEL_TYPE):
        raise PlanError(f"backbone {text}: expected clip, siglip or {MODEL_TYPE}, got {kind} in {parts[0]}")
    return Backbone(backbone_name(text), parts[0])


def write_pair(backbone: Backbone, out: Path) -> Path:
    """Write the folder of a pair with random projections from its parts, unless it is there, and return it."""
    assert backbone.vision is not None and backbone.text is not None
    if (out / "config.json").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    for part in (backbone.vision, backbone.text):
        if part.is_dir() and not (part / WEIGHTS).is_file():
            raise PlanError(f"{part} has no {WEIGHTS}; save the encoder as one safetensors file")
    pixels, image_width = _write_image_encoder(backbone.vision, out / IMAGE_ENCODER)
    kind = model_type(backbone.text) if backbone.text.is_dir() else "a file"
    if kind not in TEXT_TYPES:
        got = f"{kind} in {backbone.text}"
        raise PlanError(f"a sentence encoder is a folder of type {' or '.join(TEXT_TYPES)}, got {got}")
    _copy(backbone.text, out / TEXT_ENCODER, ("config.json", WEIGHTS, *_TOKENIZER_FILES))
    _halve(out / TEXT_ENCODER / WEIGHTS)
    text_config = json.loads((out / TEXT_ENCODER / "config.json").read_text(encoding="utf-8"))
    published = TINY_VIT_5M if model_type(out / IMAGE_ENCODER) == TINY_VIT else DINOV2
    parts = {
        "image encoder": folder_upstream(backbone.vision) if backbone.vision.is_dir() else published,
        "sentence encoder": folder_upstream(backbone.text),
    }
    said = {part: f"{upstream.name}, licence {upstream.licence}" for part, upstream in parts.items()}
    (out / UPSTREAM).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    config = PairConfig(MODEL_TYPE, pixels, _GRID, image_width, int(text_config["hidden_size"]), _HIDDEN, _WIDTH)
    load_encoders(out, config)  # what does not load is said before anything is trained
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        write_projections(out, Projections(config))
    write_file(out / "config.json", json.dumps(asdict(config), indent=1) + "\n")
    return out


def read_upstreams(folder: Path) -> str:
    """Return where the encoders of a folder come from, in words; its own name where nobody wrote it down."""
    if not (folder / UPSTREAM).is_file():
        return folder.resolve().name
    return "; ".join(f"{part} {text}" for part, text in read_json(folder / UPSTREAM).items())


def write_projections(folder: Path, projections: Projections) -> None:
    """Write the projections as tensors, without pickles."""
    from safetensors.torch import save_file

    tensors = {name: value.detach().float().cpu().contiguous() for name, value in projections.state_dict().items()}
    with atomic_write(folder / PROJECTIONS) as partial:
        save_file(tensors, partial)


def _write_image_encoder(source: Path, folder: Path) -> tuple[int, int]:
    """Write an image encoder in half precision; return the side of its frames and the width of its features."""
    from safetensors.torch import save_file

    try:
        if source.is_dir():
            return _copy_image_encoder(source, folder)
        if source.suffix != ".onnx" or not is_tiny_vit(source):
            folder.mkdir(parents=True, exist_ok=True)
            write_dinov2_folder(source, folder)
            _halve(folder / WEIGHTS)
            return _DINOV2_PIXELS, DINOV2_WIDTH
        config = TinyVitConfig()
        weights = tiny_vit_weights(source, config)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: value.half().contiguous() for name, value in weights.items()}, folder / WEIGHTS)
        (folder / "config.json").write_text(json.dumps(asdict(config)) + "\n", encoding="utf-8")
        return _TINY_VIT_PIXELS, config.hidden_size
    except RewardlabError:
        raise
    except Exception as error:  # a file that is something else may raise anything
        raise PlanError(
            f"{source} is no image encoder: {error}; expected DINOv2 ViT-S/14 as .npz or .onnx, TinyViT-5M as "
            ".onnx, or a folder of either"
        ) from None


def _copy_image_encoder(source: Path, folder: Path) -> tuple[int, int]:
    kind = model_type(source)
    if kind not in IMAGE_TYPES:
        raise PlanError(f"an image encoder is {' or '.join(IMAGE_TYPES)}, got {kind} in {source}")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    _copy(source, folder, ("config.json", WEIGHTS))
    if kind == TINY_VIT:
        return 32 * config["windows"][-1], int(config["hidden_size"])
    side = config["patch_size"]
    return min(int(config["image_size"]), 8 * side), int(config["hidden_size"])


def _copy(source: Path, folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _halve(path: Path) -> None:
    """Store weights in half precision: they are frozen, and what is trained sees them as they are stored."""
    from safetensors.torch import load_file, save_file

    tensors = {name: value.half() if value.is_floating_point() else value for name, value in load_file(path).items()}
    with atomic_write(path) as partial:
        save_file(tensors, partial, metadata={"format": "pt"})


# A backbone as a training sees it: inputs that never change and are stored, and what is trained on top of them.
#
# Of a projected pair the encoders are frozen: the inputs are their features, and the projections are trained; a
# pretraining before trains all of it on pixels and tokens. Of CLIP and SigLIP the inputs are pixels and tokens too, and
# LoRA adapters in every layer are trained. All kinds turn frames and texts into inputs, one row each, and inputs into
# unit vectors; `write` makes a folder for `contrastive:`.


class TrainableProjections:
    """A projected pair: the inputs are features in half precision."""

    def __init__(self, folder: Path, pair: ProjectedPair) -> None:
        self.folder, self.pair = folder, pair
        self.network: nn.Module = pair.projections.requires_grad_(True)

    def image_inputs(self, frames: Frames) -> Tensor:
        return self.pair.image_tokens(list(frames)).half()

    def text_inputs(self, texts: Sequence[str]) -> Tensor:
        return self.pair.sentence_vectors(texts).half()

    def images(self, inputs: Tensor) -> Tensor:
        return nn.functional.normalize(self.pair.projections.images(inputs), dim=-1)

    def texts(self, inputs: Tensor) -> Tensor:
        return nn.functional.normalize(self.pair.projections.texts(inputs), dim=-1)

    def write(self, folder: Path) -> None:
        for name in (IMAGE_ENCODER, TEXT_ENCODER):
            (folder / name).mkdir(parents=True, exist_ok=True)
            for path in (self.folder / name).iterdir():
                link_or_copy(path, folder / name / path.name)
        write_projections(folder, self.pair.projections)
        _copy(self.folder, folder, (UPSTREAM, "config.json"))


class TrainableEncoders:
    """A projected pair of which everything is trained: the inputs are pixels, and tokens with their mask."""

    def __init__(self, folder: Path, pair: ProjectedPair) -> None:
        self.folder, self.pair = folder, pair
        self._encoders = {IMAGE_ENCODER: pair.image_encoder, TEXT_ENCODER: pair.text_encoder}
        self.network: nn.Module = nn.ModuleDict({**self._encoders, "projections": pair.projections})
        self.network.requires_grad_(True)

    def image_inputs(self, frames: Frames) -> Tensor:
        return torch.from_numpy(frames)

    def text_inputs(self, texts: Sequence[str]) -> Tensor:
        made = self.pair.tokenize(texts, padding="max_length")
        return torch.stack([made["input_ids"], made["attention_mask"]], 1)

    def images(self, inputs: Tensor) -> Tensor:
        return nn.functional.normalize(self.pair.projections.images(self.pair.encode_frames(inputs)), dim=-1)

    def texts(self, inputs: Tensor) -> Tensor:
        ids, mask = inputs[:, :, : int(inputs[:, 1].sum(1).max())].unbind(1)
        vectors = self.pair.encode_tokens(input_ids=ids, attention_mask=mask)
        return nn.functional.normalize(self.pair.projections.texts(vectors), dim=-1)

    def write(self, folder: Path) -> None:
        from safetensors.torch import save_file

        for name, encoder in self._encoders.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            if isinstance(encoder, TinyVit):
                save_file(
                    {key: value.contiguous() for key, value in encoder.state_dict().items()}, folder / name / WEIGHTS
                )
            else:
                encoder.save_pretrained(folder / name)  # under the names that every version of transformers reads
            _halve(folder / name / WEIGHTS)
            _copy(self.folder / name, folder / name, ("config.json", *_TOKENIZER_FILES))
        write_projections(folder, self.pair.projections)
        said = read_json(self.folder / UPSTREAM) | {"both": "then trained as an image-text pair on simulated frames"}
        (folder / UPSTREAM).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        _copy(self.folder, folder, ("config.json",))


class TrainableAdapters:
    """CLIP or SigLIP with LoRA adapters: the inputs are pixels in half precision, and tokens with their mask."""

    def __init__(self, folder: Path, pair: ClipPair, rank: int) -> None:
        self.folder, self.pair = folder, pair
        layers = [n for n, module in pair.model.named_modules() if isinstance(module, nn.Linear) and ".layers." in n]
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            self.network = add_lora(pair.model, rank, layers, "LoRA, by which CLIP and SigLIP are trained,")

    def image_inputs(self, frames: Frames) -> Tensor:
        pixels: Tensor = self.pair.pixels(list(frames)).half()
        return pixels

    def text_inputs(self, texts: Sequence[str]) -> Tensor:
        """Return tokens and mask, padded to the model's length."""
        made = self.pair.tokens(texts, whole_length=True)
        return torch.stack([made["input_ids"], made["attention_mask"]], 1)

    def images(self, inputs: Tensor) -> Tensor:
        return nn.functional.normalize(self.pair.embed_pixels(inputs.to(self.pair.model.dtype)), dim=-1)

    def texts(self, inputs: Tensor) -> Tensor:
        return nn.functional.normalize(self.pair.embed_tokens(inputs[:, 0], inputs[:, 1]), dim=-1)

    def write(self, folder: Path) -> None:
        """Write the model with its adapters merged, and the files of its tokenizer and image processor."""
        folder.mkdir(parents=True, exist_ok=True)
        source = self.pair.model
        self.network.merge_adapter()
        try:
            plain = {n.replace(".base_layer", ""): p for n, p in source.state_dict().items() if "lora_" not in n}
            model = type(source)(source.config)
            model.load_state_dict({name: value.cpu() for name, value in plain.items()})
            model.config._name_or_path = ""  # else the path on this machine would be saved
            model.save_pretrained(folder)
        finally:
            self.network.unmerge_adapter()
        for path in self.folder.iterdir():
            if path.suffix in (".json", ".txt", ".model") and path.name != "config.json" and "index" not in path.name:
                shutil.copyfile(path, folder / path.name)


TrainablePair = TrainableProjections | TrainableEncoders | TrainableAdapters


def load_pair(folder: Path, device: str, rank: int, *, whole: bool = False) -> TrainablePair:
    """Return the backbone in a folder, in float32, ready to be trained; `whole` with the encoders of a pair.

    On a GPU, float32 matrices are multiplied in TF32.
    """
    if device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    if model_type(folder) == MODEL_TYPE:
        projected = load_checkpoint(str(folder), lambda _: load_projected_pair(folder, device, torch.float32))
        return (TrainableEncoders if whole else TrainableProjections)(folder, projected)
    pair = load_checkpoint(str(folder), lambda place: load_clip_pair(place, "main", device, torch.float32))
    return TrainableAdapters(folder, pair, rank)
