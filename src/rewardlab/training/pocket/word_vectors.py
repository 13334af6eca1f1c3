"""The vectors of word pieces: what a sentence encoder makes of each piece alone, reduced by PCA.

python -m rewardlab.training.pocket.word_vectors ENCODER_FOLDER OUT.npz
"""

import sys
from pathlib import Path

import numpy as np

from rewardlab.core.run import atomic_write

WORD_VECTOR_WIDTH = 128
_BATCH = 512


def make_word_vectors(encoder: Path, out: Path) -> None:
    """Write the table from a folder with all-MiniLM-L6-v2 (BERT, uncased): encode each piece, keep 128 components."""
    import torch
    from transformers import AutoModel

    pieces = (encoder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    pieces = pieces[:-1] if pieces[-1] == "" else pieces
    model = AutoModel.from_pretrained(encoder).eval()
    start, end = pieces.index("[CLS]"), pieces.index("[SEP]")
    parts = []
    with torch.no_grad():
        for first in range(0, len(pieces), _BATCH):
            middle = torch.arange(first, min(first + _BATCH, len(pieces)))
            ids = torch.stack([torch.full_like(middle, start), middle, torch.full_like(middle, end)], dim=1)
            parts.append(model(input_ids=ids).last_hidden_state[:, 1].numpy())
    states = np.concatenate(parts)
    centred = states - states.mean(axis=0)
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    vectors = centred @ components[:WORD_VECTOR_WIDTH].T
    scale = (np.abs(vectors).max(axis=0) / 127).astype(np.float32)
    with atomic_write(out) as partial, partial.open("wb") as handle:
        np.savez_compressed(
            handle,
            pieces=np.frombuffer("\n".join(pieces).encode(), np.uint8),
            vectors=np.round(vectors / scale).astype(np.int8),
            scale=scale / np.float32(vectors.std()),
        )


if __name__ == "__main__":
    make_word_vectors(Path(sys.argv[1]), Path(sys.argv[2]))
