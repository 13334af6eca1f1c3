"""The parts of a contrastive pair from what the package ships: DINOv2 out of pocket-large, word vectors out of pocket.

python results/stages/backbone_parts.py OUT    # OUT/dinov2.npz and OUT/words, for --backbone NAME=dinov2.npz+words

The weights of DINOv2 were stored in 8 bits and its positions for 12 x 12 patches; the sentence encoder has no layer: a
sentence is the mean of its word vectors.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, BertTokenizerFast

from rewardlab.training.encoders import Dinov2

WEIGHTS = Path(__file__).parents[2] / "src" / "rewardlab" / "models" / "pocket" / "weights"
SHIPPED, PUBLISHED = 12, 37  # patches on a side


def dinov2_weights() -> dict[str, NDArray[np.float32]]:
    """Return the weights of DINOv2 under the names that `train objective` reads from an .npz file."""
    graph = onnx.load(WEIGHTS / "pocket-large.image_encoder.onnx").graph
    stored = {weight.name: numpy_helper.to_array(weight) for weight in graph.initializer}
    zero = float(stored["zero_point"])
    found = {}
    for name in Dinov2().state_dict():
        whole = next(
            (stored[n] for n in (f"frozen.encoder.{name}", f"frozen.encoder.{name}.half") if n in stored), None
        )
        if whole is None and name.startswith("blocks."):
            matrix = f"/frozen/blocks.{name.split('.')[1]}/{name.split('.')[2]}/Transpose_output_0"
            whole = ((stored[f"{matrix}.int8"] - zero) * stored[f"{matrix}.scale"]).T
        if name == "positions":
            grid = torch.from_numpy(stored["frozen.positions.half"].astype(np.float32)).transpose(1, 2)
            wide = torch.nn.functional.interpolate(
                grid.unflatten(2, (SHIPPED, SHIPPED)), size=PUBLISHED, mode="bicubic", align_corners=False
            )
            whole = wide.flatten(2).transpose(1, 2).numpy()
        assert whole is not None, name
        found[name] = np.asarray(whole, np.float32)
    return found


def write_words(folder: Path) -> None:
    """Write the word vectors as a BERT without layers, whose mean over the words is the sentence."""
    table = np.load(WEIGHTS / "word_vectors.npz")
    pieces = table["pieces"].tobytes().decode().split("\n")
    tokenizer = Tokenizer(WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    ends = [(name, pieces.index(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    marks = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    BertTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **marks).save_pretrained(folder)
    width = table["vectors"].shape[1]
    model = BertModel(
        BertConfig(vocab_size=len(pieces), hidden_size=width, num_hidden_layers=0, num_attention_heads=2),
    )
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.copy_(torch.from_numpy(table["vectors"] * table["scale"]))
        model.embeddings.position_embeddings.weight.zero_()
        model.embeddings.token_type_embeddings.weight.zero_()
    model.save_pretrained(folder)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "dinov2.npz", **dinov2_weights())
    write_words(out / "words")
