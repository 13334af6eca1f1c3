"""The entries, the files of a variant, the precision it runs in, the split it was trained with."""

import json
import os
import platform
import re
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.settings import Help
from rewardlab.models.contract import (
    Budget,
    ModelEntry,
    ModelString,
    NamedModel,
    RewardModel,
    canonical_name,
    identity,
    path_digest,
    read_arguments,
)

WEIGHTS = Path(__file__).with_name("weights")
WORD_VECTORS = WEIGHTS / "word_vectors.npz"
_MOST_FACTS = 1 << 20  # bytes of a variant's JSON file; ours have a few thousand


def variant_files(stem: Path) -> tuple[Path, ...]:
    """Return the files of a variant; `stem` is their path without the ending."""
    parts = ("image_encoder.onnx", "temporal_encoder.onnx", "familiar_states.npy", "json")
    return (WORD_VECTORS, *(stem.with_name(f"{stem.name}.{part}") for part in parts))


def read_facts(path: Path) -> Any:
    """Return what the JSON file of a variant records; a ValueError says what is wrong with it."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_FACTS:  # a pipe may have no end
        raise ValueError(f"expected a file of at most {_MOST_FACTS:,} bytes")
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("too many lists and objects inside each other") from None


def _name(string: ModelString, variant: str, caveat: str, trained_on: tuple[str, ...]) -> NamedModel:
    """Name a variant that ships, or `pocket:FOLDER/VARIANT`, as `rewardlab train pocket` writes it."""
    device = str(read_arguments(string.name, _options, string.options).get("device", "cpu"))
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise PlanError(f"option device must be cpu, cuda or cuda:N, got {device!r}")
    stem = Path(string.argument) if string.argument else WEIGHTS / variant
    word_vectors, image_encoder, *others = files = variant_files(stem)
    missing = [path for path in files if not os.path.exists(path)]  # pathlib fails on long names
    if missing:
        raise PlanError(f"no pocket is at {stem}: {missing[0]} is missing; name it as FOLDER/VARIANT, without ending")
    precision = choose_precision(stem) if device == "cpu" else "float32"
    encoder = int8_image_encoder(stem) if precision == "int8" else image_encoder
    optional = (familiar_images(stem),) if familiar_images(stem).exists() else ()
    try:
        tasks = read_facts(others[-1])["trained_tasks"]
    except (OSError, ValueError, KeyError, TypeError):  # what is wrong with them is said when the model is loaded
        tasks = ()
    numeric = {"precision": precision} | ({} if device == "cpu" else {"device": "cuda"})
    return NamedModel(
        canonical_name(string, () if device == "cpu" else (("device", device),)),
        identity("pocket", numeric, *map(path_digest, (word_vectors, encoder, *others, *optional))),
        False,
        partial(_build, stem, precision, device),
        caveat="" if string.argument else caveat,
        trained_tasks=tuple(map(str, tasks)) if isinstance(tasks, list) else (),
        deterministic=device == "cpu",
        trained_on=() if string.argument else trained_on,
    )


def _options(
    device: Annotated[str, Help("where it runs: cpu, by onnxruntime; cuda or cuda:N, by torch")] = "cpu",
) -> None:
    """The options of a variant."""


def _build(stem: Path, precision: "Precision", device: str, _budget: Budget) -> RewardModel:
    from rewardlab.models.pocket.inference import open_pocket

    return open_pocket(stem, precision, device)


_SIMULATION_ONLY = (
    "It has seen nothing but simulation (Meta-World): on recordings of real robots its answers mean little."
)
_FEW_REAL_CLIPS = (
    "It has learned from simulation and from few demonstrations of one real robot: "
    "on real robots it has not been shown to be better than counting moving pixels, and it was trained on no clip of a "
    "wrist camera."
)
_TRAINED_ON = ("Meta-World", "tabletop", "DROID")  # as their model cards state
POCKET = {
    "pocket": ModelEntry(
        "small learned model, trained on simulated rollouts under perturbations and on real demonstrations; "
        "pocket:FOLDER/VARIANT for one that you trained",
        partial(_name, variant="pocket", caveat=_FEW_REAL_CLIPS, trained_on=_TRAINED_ON),
        version=2,
    ),
    "pocket-large": ModelEntry(
        "the same, with DINOv2 beside its own convolutions: tells instructions apart better on real clips, "
        "16 to 35 times as slow on a CPU",
        partial(_name, variant="pocket-large", caveat=_FEW_REAL_CLIPS, trained_on=_TRAINED_ON),
    ),
    "pocket-plain": ModelEntry(
        "an older one, trained on clean frames of Meta-World only",
        partial(_name, variant="pocket-plain", caveat=_SIMULATION_ONLY, trained_on=_TRAINED_ON[:1]),
        version=2,
    ),
}


# The precision of pocket's image encoder: int8 where that graph is there and the processor has int8 dot products.

Precision = Literal["int8", "float32"]

INT8_VARIABLE = "REWARDLAB_POCKET_INT8"  # environment variable; 0 or 1 takes the choice out of the processor's hands
# x86 without these sums int8 products in 16 bits, which overflow: int8 would be wrong there, not only slow.
_DOT_PRODUCTS = frozenset(("avx512_vnni", "avx_vnni", "asimddp"))


def int8_image_encoder(stem: Path) -> Path:
    """Return where a variant has the int8 graph of its image encoder; not every variant has one."""
    return stem.with_name(f"{stem.name}.image_encoder.int8.onnx")


def familiar_images(stem: Path) -> Path:
    """Return where a variant has the mean image tokens of training clips; not every variant has them."""
    return stem.with_name(f"{stem.name}.familiar_images.npy")


def choose_precision(stem: Path) -> Precision:
    """Return the precision in which a variant runs on this machine; REWARDLAB_POCKET_INT8 set to 0 or 1 forces it."""
    asked, int8 = os.environ.get(INT8_VARIABLE, "").strip(), int8_image_encoder(stem)
    if asked not in ("", "0", "1"):
        raise PlanError(f"{INT8_VARIABLE} must be 0 or 1, or not set, got {asked[:40]!r}")
    if asked == "1" and not int8.exists():
        raise PlanError(f"{INT8_VARIABLE}=1 asks for {int8}, which is missing; unset it to run float32")
    return "int8" if asked == "1" or (asked == "" and int8.exists() and has_int8_dot_products()) else "float32"


def has_int8_dot_products() -> bool:
    """Return whether this processor is known to multiply and sum int8 in one instruction."""
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    try:
        return lists_int8_dot_products(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:  # neither Linux nor macOS
        return False


def lists_int8_dot_products(cpuinfo: str) -> bool:
    """Return whether every core that a text like /proc/cpuinfo describes has int8 dot products."""
    cores = re.findall(r"^(?:flags|Features)[ \t]*:(.*)$", cpuinfo, re.MULTILINE)
    return bool(cores) and all(_DOT_PRODUCTS & set(core.split()) for core in cores)


# The catalog split of a variant: what it was trained with and what was held out, as its own file records it.
#
# The lists were drawn from the catalog when training began. Later entries of the catalog are in neither list.

Names = tuple[str, ...]


@dataclass(frozen=True)
class CatalogSplit:
    """Perturbations and changed worlds that a variant was trained with, and those held out to test it by."""

    train_perturbations: Names
    train_worlds: Names
    held_out_perturbations: Names
    held_out_worlds: Names

    @property
    def held_out(self) -> Names:
        """Return every held-out name of the catalog."""
        return (*self.held_out_perturbations, *self.held_out_worlds)

    def to_json(self) -> dict[str, dict[str, list[str]]]:
        """Return the two entries of a variant's JSON file."""
        return {
            "trained_with": {"perturbations": list(self.train_perturbations), "worlds": list(self.train_worlds)},
            "held_out": {"perturbations": list(self.held_out_perturbations), "worlds": list(self.held_out_worlds)},
        }


def read_split(path: Path) -> CatalogSplit:
    """Return the split that a JSON file records; DataError if it records none."""
    try:
        facts = read_facts(path)
        train, held_out = facts["trained_with"], facts["held_out"]
        lists = (train["perturbations"], train["worlds"], held_out["perturbations"], held_out["worlds"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} does not record what was held out ({error!r}); train the model again") from error
    return CatalogSplit(*(tuple(map(str, names)) for names in lists))


def shipped_split(variant: str) -> CatalogSplit:
    """Return what a model of the package was trained with, and what was held out."""
    return read_split(WEIGHTS / f"{variant}.json")
