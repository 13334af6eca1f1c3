"""Projected pairs: TinyViT in windows, encoders trained apart, and folders that are refused in one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.narrowing import as_scores, known

torch = pytest.importorskip("torch", reason="needs rewardlab[hf]")
pytest.importorskip("transformers", reason="needs rewardlab[hf]")

from rewardlab.core.episode import episode_from_frames
from rewardlab.core.errors import ModelError, PlanError
from rewardlab.models import name_model
from rewardlab.models.projected_pair import TinyVit, TinyVitConfig
from rewardlab.testing import check_model
from rewardlab.training.encoders import is_tiny_vit, tiny_vit_weights
from rewardlab.training.objectives.backbones import name_backbone, write_pair
from tests.conftest import moving_square
from tests.models import tiny_pairs

pytestmark = pytest.mark.usefixtures("one_torch_thread")
KINDS = ("weight", "bias")
SMALL = TinyVitConfig(widths=(8, 12, 16), depths=(1, 1, 1), heads=(2, 2), windows=(4, 2), hidden_size=16)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pair")
    vision, text = tiny_pairs.save_tiny_vit(root / "vision"), tiny_pairs.save_bert(root / "text")
    return write_pair(name_backbone(f"mine={vision}+{text}"), root / "mine")


def test_it_keeps_the_contract_and_listens_to_words(pair: Path) -> None:
    model = name_model(f"contrastive:{pair}").build()
    frames = moving_square("a", count=5)
    asked = [episode_from_frames(frames, text) for text in ("push the red block", "open the drawer", "x " * 300)]
    check_model(model, asked)
    first, second, _ = as_scores(model.score(asked))
    assert first.progress != second.progress and len(known(first.progress)) == 5


def test_other_encoders_are_another_model(pair: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(pair, other)
    same = name_model(f"contrastive:{pair}").fingerprint
    text = other / "text_encoder" / "model.safetensors"
    content = bytearray(text.read_bytes())
    content[-1] ^= 1
    text.write_bytes(bytes(content))
    assert name_model(f"contrastive:{other}").fingerprint != same


def test_a_window_sees_itself_alone_and_the_convolution_its_neighbours() -> None:
    torch.manual_seed(0)
    network = TinyVit(SMALL).eval()
    block: Any = next(network.stages[0].children())
    maps = torch.randn(1, 12, 8, 8)
    changed = maps.clone()
    changed[:, 0, 0, 0] += 5
    with torch.no_grad():
        moved = (block._attention(changed) - block._attention(maps)).abs().sum(1)[0] > 0
    assert moved[:4, :4].all() and not moved[4:].any() and not moved[:, 4:].any()


def test_attention_is_biased_by_how_far_two_places_are_apart() -> None:
    block: Any = next(TinyVit(SMALL).stages[0].children())
    for a in range(16):
        for b in range(16):
            rows, columns = abs(a // 4 - b // 4), abs(a % 4 - b % 4)
            assert int(block.apart[a, b]) == 4 * rows + columns


def test_weights_of_an_onnx_file_find_their_places(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(4)
    network = TinyVit(SMALL)
    made = PublishedGraph(onnx, network)
    graph = onnx.helper.make_graph(made.nodes, "published", [], [], made.weights)
    onnx.save(onnx.helper.make_model(graph), tmp_path / "any.onnx")
    assert is_tiny_vit(tmp_path / "any.onnx")
    found = tiny_vit_weights(tmp_path / "any.onnx", SMALL)
    wanted = network.state_dict()
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value)


class PublishedGraph:
    """A graph as the exporter writes it: convolutions and matrices by number, the rest by published names."""

    def __init__(self, onnx: Any, network: TinyVit) -> None:
        self.onnx, self.numbers = onnx, iter(range(2000, 3000))
        self.weights: list[Any] = []
        self.nodes: list[Any] = []
        self.state = {name: value.numpy() for name, value in network.state_dict().items()}
        for name in ("stem1", "stem2", *(f"convolutions.0.conv{k}" for k in (1, 2, 3))):
            self.convolution(name)
        for stage in (0, 1):
            for k in (1, 2, 3):
                self.convolution(f"merges.{stage}.conv{k}")
            self.block(f"stages.{stage}.0", f"stages.{stage + 1}.blocks.0")
        self.named("head.norm", "norm", ("weight", "bias"))

    def add(self, name: str, value: np.ndarray) -> str:
        self.weights.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def named(self, published: str, ours: str, kinds: tuple[str, ...]) -> None:
        for kind in kinds:
            self.add(f"{published}.{kind}", self.state[f"{ours}.{kind}"])

    def convolution(self, name: str) -> None:
        inputs = [self.add(f"onnx::Conv_{next(self.numbers)}", self.state[f"{name}.{kind}"]) for kind in KINDS]
        self.nodes.append(self.onnx.helper.make_node("Conv", ["x", *inputs], ["x"]))

    def matrix(self, ours: str, published: str) -> None:
        made = self.add(f"onnx::MatMul_{next(self.numbers)}", self.state[f"{ours}.weight"].T)
        self.nodes.append(self.onnx.helper.make_node("MatMul", ["x", made], ["x"]))
        self.named(published, ours, ("bias",))

    def block(self, ours: str, theirs: str) -> None:
        self.matrix(f"{ours}.qkv", f"{theirs}.attn.qkv")
        self.matrix(f"{ours}.projection", f"{theirs}.attn.proj")
        self.convolution(f"{ours}.around")
        self.matrix(f"{ours}.up", f"{theirs}.mlp.fc1")
        self.matrix(f"{ours}.down", f"{theirs}.mlp.fc2")
        self.named(f"{theirs}.attn.norm", f"{ours}.norm1", KINDS)
        self.named(f"{theirs}.mlp.norm", f"{ours}.norm2", KINDS)
        self.add(f"{theirs}.attn.attention_biases", self.state[f"{ours}.biases"])


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("config.json", {"grid": 4000}, "is no config of a projected pair: a rewardlab_projected_pair has sizes"),
        ("config.json", {"width": "wide"}, "width must be whole number, got 'wide'"),
        ("config.json", {"extra": 1}, "an unknown extra"),
        ("image_encoder/config.json", {"depths": [1]}, "is no config of a TinyViT: a TinyViT has as many widths"),
        ("text_encoder/config.json", {"model_type": "gpt2"}, "expected an encoder of type bert, got gpt2"),
        ("config.json", {"hidden": 7}, "cannot load"),
    ],
)
def test_a_folder_that_does_not_fit_is_one_sentence(
    file: str, change: dict[str, object], says: str, pair: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(pair, bad)
    content = json.loads((bad / file).read_text())
    (bad / file).write_text(json.dumps({**content, **change}))
    with pytest.raises(ModelError, match=says):
        name_model(f"contrastive:{bad}").build()


def test_parts_that_are_none_are_one_sentence(pair: Path, tmp_path: Path) -> None:
    vision, text = pair.parent / "vision", pair.parent / "text"
    (tmp_path / "no.onnx").write_bytes(b"nothing")
    for words, says in (
        (f"a={text}+{text}", "an image encoder is dinov2 or tiny_vit, got bert"),
        (f"a={vision}+{vision}", "a sentence encoder is a folder of type bert, got tiny_vit"),
        (f"a={tmp_path / 'no.onnx'}+{text}", "no.onnx is no image encoder"),
    ):
        with pytest.raises(PlanError, match=says):
            write_pair(name_backbone(words), tmp_path / "out")
    for words, says in (
        (str(vision), "expected clip, siglip or rewardlab_projected_pair, got tiny_vit"),
        ("a=b+c", "there is no b; write NAME=VISION"),
    ):
        with pytest.raises(PlanError, match=says):
            name_backbone(words)
