"""The frame store: rendered frames and word vectors on the training device, gathered and augmented per batch."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewardlab.models.pocket import WORD_VECTORS
from rewardlab.models.pocket.inference import load_word_pieces
from rewardlab.training.pocket import PocketSettings
from rewardlab.training.pocket.rendering import CLEAN_KINDS, ROBUST_KINDS, RenderedScene, RolloutTable, render_all
from rewardlab.training.pocket.rollouts import load_rollouts, shards_of
from rewardlab.training.pocket.sampling import Batch

_MAX_SHIFT = 4  # pixels
_CALIBRATION_ROLLOUTS = 50  # about so many, of each kind of rendering, show the ranges of the image encoder
# Word augmentation, so that an instruction is more than a name for a known scene:
_WORD_DROPOUT = 0.6  # the largest fraction of words left out of a text
_WORD_NOISE = 0.3  # on the vectors, so that a word stands for its neighbours too
_TEXT_DROPOUT = 0.15  # fraction of clips under their own instruction that are shown without it
_WORD_SWAP = 0.4  # fraction of such clips in whose text some or all words become any others
_INSTRUCTION_WORDS = 0.7  # fraction of these others that are words of other instructions


@dataclass(frozen=True, eq=False)
class FrameStore:
    """Everything that batches are made from, on the training device."""

    table: RolloutTable
    pixels: dict[str, Tensor]  # by the kind of rendering, uint8 (rollouts, frames, H, W, 3)
    word_vectors: Tensor  # (pieces + 1, width); the last row stands for no piece
    instruction_ids: Tensor  # the ids of the pieces that training instructions are made of


def make_frame_store(settings: PocketSettings) -> FrameStore:
    """Render everything and put it on the device, one kind of rendering after the other."""
    pixels: dict[str, Tensor] = {}
    scenes: dict[str, tuple[RenderedScene, ...]] = {}
    for kind in ROBUST_KINDS if "pocket" in settings.variants else CLEAN_KINDS:
        frames, found = render_all(settings, kind, settings.out)
        pixels[kind] = torch.empty(frames.shape, dtype=torch.uint8, device=settings.device)
        for start in range(0, len(frames), 1024):
            some = slice(start, start + 1024)
            pixels[kind][some] = torch.from_numpy(np.array(frames[some])).to(settings.device)
        scenes[kind] = tuple(found)
        if kind != "plain":  # perturbed clips are made of it
            (settings.out / f"{kind}.npy").unlink()
        print(f"rendered {kind}", flush=True)
    (settings.out / "plain.npy").unlink()
    vocabulary = load_word_pieces(WORD_VECTORS)
    vectors = torch.cat([torch.from_numpy(vocabulary.vectors), torch.zeros(1, vocabulary.vectors.shape[1])])
    table = make_rollout_table(settings, scenes)
    return FrameStore(table, pixels, vectors.to(settings.device), _instruction_ids(table).to(settings.device))


def for_fold(store: FrameStore, table: RolloutTable) -> FrameStore:
    """Return the store as a training on this table uses it."""
    return replace(store, table=table, instruction_ids=_instruction_ids(table).to(store.word_vectors.device))


def _instruction_ids(table: RolloutTable) -> Tensor:
    texts = {text for row in table.training for text in table.texts[row]}
    ids = np.unique([load_word_pieces(WORD_VECTORS).piece_ids(text) for text in texts])
    return torch.from_numpy(ids[ids >= 0])


def make_rollout_table(settings: PocketSettings, scenes: dict[str, tuple[RenderedScene, ...]]) -> RolloutTable:
    """Read the rollouts of a folder."""
    shards = [shard for shard in shards_of(settings) for _ in range(shard.count)]
    rollouts = [r for shard in shards_of(settings) for r in load_rollouts(settings.out / "rollouts" / shard.name)]
    check = np.array([shard.part == "check" for shard in shards])
    paths = [r.trajectory for r in rollouts]
    return RolloutTable(
        tasks=tuple(shard.task for shard in shards),
        progress=np.array([path.progress for path in paths], np.float32),
        gripper_pos=np.array([path.gripper_pos for path in paths], np.float32),
        object_pos=np.array([path.object_pos for path in paths], np.float32),
        texts=tuple(r.texts for r in rollouts),
        held_out_texts=tuple(r.held_out_texts for r in rollouts),
        counterfactuals=tuple(r.counterfactuals for r in rollouts),
        scenes=scenes,
        training=np.flatnonzero(~check),
        checks=np.flatnonzero(check),
    )


def calibration_frames(store: FrameStore, variant: str) -> NDArray[np.uint8]:
    """Return an even choice of the frames that a variant is trained on in this store, uint8 (N, H, W, 3)."""
    rows = store.table.training[:: max(1, len(store.table.training) // _CALIBRATION_ROLLOUTS)]
    kinds = [kind for kind in store.pixels if variant == "pocket" or kind in CLEAN_KINDS]
    chosen = [store.pixels[kind][to_device(rows, store)] for kind in kinds]
    return np.concatenate([clips[:, :: max(1, clips.shape[1] // 4)].flatten(0, 1).cpu().numpy() for clips in chosen])


def gather_frames(store: FrameStore, batch: Batch, rng: np.random.Generator | None) -> Tensor:
    """Return the pixels of a batch, uint8 (B, 16, H, W, 3); with a generator the whole batch is shifted by some."""
    side = next(iter(store.pixels.values())).shape[2]
    device = store.word_vectors.device
    frames = torch.empty((len(batch.row), batch.frames.shape[1], side, side, 3), dtype=torch.uint8, device=device)
    for kind in dict.fromkeys(batch.source.tolist()):
        members = np.flatnonzero(batch.source == kind)
        rows, indices = to_device(batch.row[members], store), to_device(batch.frames[members], store)
        frames[to_device(members, store)] = store.pixels[kind][rows[:, None], indices]
    if rng is None:
        return frames
    down, right = (int(shift) for shift in rng.integers(-_MAX_SHIFT, _MAX_SHIFT + 1, 2))
    index = torch.arange(side, device=device)
    return frames[:, :, (index + down).clamp(0, side - 1)][:, :, :, (index + right).clamp(0, side - 1)]


def gather_words(store: FrameStore, batch: Batch, *, augment: bool) -> tuple[Tensor, Tensor]:
    """Return the vectors of the words and which of them are there."""
    ids = to_device(batch.piece_ids, store)
    known = (ids >= 0).float()
    if not augment:
        return store.word_vectors[ids], known  # -1 takes the last row, which is zero
    own = to_device(batch.matches_task, store)[:, None]
    uniform = torch.rand((3, *ids.shape), device=ids.device)
    fate, swap_share, dropout_share = torch.rand((3, len(ids), 1), device=ids.device)
    swapped = own & (fate >= 1 - _WORD_SWAP) & (uniform[0] < 1.2 * swap_share) & (ids >= 0)
    any_word = torch.randint(len(store.word_vectors) - 1, ids.shape, device=ids.device)
    choice = torch.randint(len(store.instruction_ids), ids.shape, device=ids.device)
    replacement = torch.where(uniform[1] < _INSTRUCTION_WORDS, store.instruction_ids[choice], any_word)
    ids = torch.where(swapped, replacement, ids)
    known = known * (uniform[2] >= _WORD_DROPOUT * dropout_share) * ~(own & (fate < _TEXT_DROPOUT))
    vectors = store.word_vectors[ids]
    return (vectors + _WORD_NOISE * torch.randn_like(vectors)) * known[..., None], known


def to_device(values: NDArray[Any], store: FrameStore) -> Tensor:
    """Return an array as a tensor on the device, without waiting for it."""
    tensor, device = torch.from_numpy(values), store.word_vectors.device
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
