"""Checkpoints, pockets and calibrations of strangers: nothing in them runs, and what is wrong is one sentence."""

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewardlab.core.episode import episode_from_frames
from rewardlab.core.errors import ModelError, PlanError, RewardlabError
from rewardlab.core.trial import Failure
from rewardlab.models import name_model
from rewardlab.models.calibration import read_level_map
from rewardlab.models.pocket import WEIGHTS
from rewardlab.models.protocols.gvl import completion_percentages
from tests.conftest import moving_square
from tests.models import tiny, tiny_pairs, tiny_vlms
from tests.narrowing import as_score

MARK = "REWARDLAB_TEST_RAN"  # set in the environment by any code of a checkpoint that runs


class Payload:
    def __reduce__(self) -> tuple[object, ...]:
        return exec, (f"import os; os.environ[{MARK!r}] = 'pickle'",)


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.delenv(MARK, raising=False)
    monkeypatch.setattr("builtins.input", lambda *_words: pytest.fail("a question was asked on the terminal"))
    yield
    assert MARK not in os.environ


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return tiny.save_qwen3(tmp_path_factory.mktemp("qwen") / "qwen")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return tiny.save_clip(tmp_path_factory.mktemp("clip") / "clip")


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return tiny_vlms.save_llava(tmp_path_factory.mktemp("llava") / "llava")


def changed(folder: Path, to: Path, name: str = "config.json", **settings: object) -> Path:
    shutil.copytree(folder, to)
    path = to / name
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return to


def test_weights_as_a_pickle_are_no_weights(qwen: Path, clip: Path, tmp_path: Path) -> None:
    for folder, prefix in ((qwen, "hf"), (clip, "contrastive")):
        bad = tmp_path / prefix
        shutil.copytree(folder, bad)
        for path in bad.glob("*.safetensors"):
            path.unlink()
        (bad / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
        with pytest.raises(PlanError, match=r"holds no \*\.safetensors"):
            name_model(f"{prefix}:{bad}")
        (bad / "other.safetensors").write_bytes(b"")  # a name that makes it look like weights
        with pytest.raises(ModelError, match=f"^cannot load {bad}"):
            name_model(f"{prefix}:{bad}").build()


CODE = (
    f"import os\nos.environ[{MARK!r}] = 'code'\nclass Evil:\n    pass\nEvilConfig = EvilModel = EvilTokenizer = Evil\n"
)
MAPS = {
    "AutoConfig": "evil.EvilConfig",
    "AutoModel": "evil.EvilModel",
    "AutoModelForImageTextToText": "evil.EvilModel",
    "AutoTokenizer": ["evil.EvilTokenizer", "evil.EvilTokenizer"],
    "AutoImageProcessor": "evil.Evil",
    "AutoVideoProcessor": "evil.Evil",
    "AutoProcessor": "evil.Evil",
}


def test_code_that_a_config_names_does_not_run(qwen: Path, clip: Path, llava: Path, tmp_path: Path) -> None:
    for folder, prefix in ((qwen, "hf"), (clip, "contrastive"), (llava, "hf")):
        bad = changed(folder, tmp_path / folder.name, auto_map=MAPS)
        for name in ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json"):
            if (bad / name).exists():
                (bad / name).write_text(json.dumps(json.loads((bad / name).read_text()) | {"auto_map": MAPS}))
        (bad / "evil.py").write_text(CODE)
        model = name_model(f"{prefix}:{bad}").build()  # its own classes are not needed, and not loaded
        assert model.score([episode_from_frames(moving_square("a", count=3, size=32), "open the drawer")])
    assert not any(name.endswith("evil") for name in sys.modules)


def test_nothing_in_a_projected_pair_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from rewardlab.training.objectives.backbones import name_backbone, write_pair

    vision, text = tiny_pairs.save_dinov2(tmp_path / "vision"), tiny_pairs.save_bert(tmp_path / "text")
    pair = write_pair(name_backbone(f"pair={vision}+{text}"), tmp_path / "pair")
    for part in ("image_encoder", "text_encoder"):
        for name in ("config.json", "tokenizer_config.json"):
            path = pair / part / name
            if path.exists():
                path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": MAPS}))
        (pair / part / "evil.py").write_text(CODE)
    episodes = [episode_from_frames(moving_square("a", count=3, size=32), "open the drawer")]
    assert name_model(f"contrastive:{pair}").build().score(episodes)
    assert not any(name.endswith("evil") for name in sys.modules)
    (pair / "text_encoder" / "model.safetensors").unlink()
    (pair / "text_encoder" / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ModelError, match=rf"^cannot load {pair}: [^\n]+$"):
        name_model(f"contrastive:{pair}").build()


def test_code_that_is_said_to_be_needed_does_not_run_and_nobody_is_asked(qwen: Path, tmp_path: Path) -> None:
    bad = changed(qwen, tmp_path / "bad", model_type="evil", auto_map=MAPS)
    (bad / "evil.py").write_text(CODE)
    with pytest.raises(
        PlanError, match="image-text-to-text model of transformers, such as llava or qwen3_vl, got evil"
    ):
        name_model(f"hf:{bad}")
    tokenizer = {"auto_map": MAPS, "tokenizer_class": "EvilTokenizer"}
    bad = changed(qwen, tmp_path / "tokenizer", "tokenizer_config.json", **tokenizer)
    (bad / "evil.py").write_text(CODE)
    model: Any = name_model(f"hf:{bad}").build()
    assert "evil" not in type(model.vlm.tokenizer).__module__


def test_a_processor_of_its_own_code_does_not_run_and_nobody_is_asked(llava: Path, tmp_path: Path) -> None:
    for name in ("Evil", "PreTrainedModel"):
        bad = changed(llava, tmp_path / name, "processor_config.json", processor_class=name, auto_map=MAPS)
        (bad / "evil.py").write_text(CODE)
        with pytest.raises(ModelError, match=rf"^cannot load {bad}: [^\n]+$"):
            name_model(f"hf:{bad}").build()


TEMPLATES = (
    "{{ cycler.__init__.__globals__.os.environ.update({'REWARDLAB_TEST_RAN': 'template'}) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% for message in messages",
    "{{ raise_exception('no') }}",
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_template_runs_no_code_and_is_one_sentence(llava: Path, tmp_path: Path, template: str) -> None:
    shutil.copytree(llava, tmp_path / "bad")
    (tmp_path / "bad" / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelError, match=r"^(the chat template of .* drops the image token|cannot load [^\n]+$)"):
        name_model(f"hf:{tmp_path / 'bad'}").build()


def test_attention_from_elsewhere_is_not_fetched(clip: Path, tmp_path: Path) -> None:
    bad = changed(clip, tmp_path / "bad", attn_implementation="nobody/no-such-kernel")
    model: Any = name_model(f"contrastive:{bad}").build()
    assert model.encoder.pair.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    "config", [b"[" * 100_000, b"7", b"null", b"{}", b"\xff", b'{"model_type": ' + b"9" * 5000 + b"}"]
)
def test_a_config_that_is_none_is_one_sentence(config: bytes, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_bytes(config)
    with pytest.raises(PlanError, match="names no model_type"):
        name_model(f"hf:{tmp_path}")


def pocket(folder: Path, settings: str | bytes | None = None) -> Path:
    for path in WEIGHTS.glob("pocket.*"):
        shutil.copy(path, folder / path.name)
    if settings is not None:
        (folder / "pocket.json").write_bytes(settings if isinstance(settings, bytes) else settings.encode())
    return folder / "pocket"


def odd(**changes: object) -> str:
    sound = {"size": 112, "conformal": 0.1, "calibration": {"weight": [[0.0] * 5] * 11, "bias": [0.25] * 5}}
    return json.dumps(sound | changes)


def test_settings_that_are_not_odd_are_taken(tmp_path: Path) -> None:
    name_model(f"pocket:{pocket(tmp_path, odd())}").build()


@pytest.mark.parametrize(
    "settings",
    [
        b"[" * 100_000,
        "7",
        "{}",
        odd(size="big"),
        odd(size=1_000_000_000),
        odd(size=[]),
        odd(conformal=None),
        odd(calibration={}),
        odd(calibration={"weight": [[0.0] * 5] * 10, "bias": [0.0] * 5}),
        odd(calibration={"weight": [[0.0] * 5] * 11, "bias": [0.0] * 4}),
        odd(calibration={"weight": [[0.0] * 5] * 10 + [[0.0]], "bias": [0.0] * 5}),
        odd(calibration={"weight": [["print()"] * 5] * 11, "bias": [0.0] * 5}),
        odd().replace("0.25", "1e999"),
    ],
)
def test_a_pocket_with_odd_settings_is_one_sentence(settings: str | bytes, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"pocket\.json"):
        name_model(f"pocket:{pocket(tmp_path, settings)}").build()


def test_a_pocket_whose_graph_is_a_pickle_is_refused(tmp_path: Path) -> None:
    stem = pocket(tmp_path)
    for precision in ("", ".int8"):  # whichever this processor takes
        (tmp_path / f"pocket.image_encoder{precision}.onnx").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ModelError, match="cannot be loaded"):
        name_model(f"pocket:{stem}").build()


@pytest.mark.parametrize("place", ["beside.bin", "../outside.bin", "/dev/zero", "link.bin"])
def test_a_pocket_whose_graph_names_other_files_is_refused(place: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    (tmp_path / "in").mkdir()
    stem = pocket(tmp_path / "in")
    for name in ("in/beside.bin", "outside.bin"):
        (tmp_path / name).write_bytes(bytes(1 << 24))
    (tmp_path / "in" / "link.bin").symlink_to(tmp_path / "outside.bin")
    for path in stem.parent.glob("pocket.image_encoder*.onnx"):
        graph = onnx.load(path)
        tensor = max(graph.graph.initializer, key=lambda each: len(each.raw_data))
        tensor.data_location = onnx.TensorProto.EXTERNAL
        facts = {"location": place, "offset": "0", "length": str(len(tensor.raw_data))}
        tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in facts.items())
        tensor.ClearField("raw_data")
        path.write_bytes(graph.SerializeToString())
    with pytest.raises(ModelError, match="cannot be loaded"):
        name_model(f"pocket:{stem}").build()


FITTED = {"temperature": 1.0, "steps": [], "coverage": 0.9, "threshold": 0.5}


@pytest.mark.parametrize(
    "fitted",
    [
        7,
        {},
        FITTED | {"temperature": 0},
        FITTED | {"temperature": "warm"},
        FITTED | {"threshold": [1]},
        FITTED | {"temperature": None},
        FITTED | {"temperature": None, "steps": [[1, 2, 3]]},
        FITTED | {"temperature": None, "steps": 5},
        FITTED | {"code": "import os"},
    ],
)
def test_a_calibration_that_is_none_is_one_sentence(fitted: object, tmp_path: Path) -> None:
    length = name_model("length")
    record = {"model": "length", "fingerprint": length.fingerprint, "fitted": fitted}
    (tmp_path / "calibration.json").write_text(json.dumps(record))
    with pytest.raises(PlanError, match="another kind of calibration"):
        name_model(f"length+{tmp_path}")


def test_a_calibration_that_is_a_pipe_or_no_json_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    for content in (b"[" * 100_000, b"\xff", b'{"model": NaN}', pickle.dumps(Payload())):
        path.write_bytes(content)
        with pytest.raises(PlanError, match="cannot be read as a calibration"):
            name_model(f"length+{tmp_path}")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(RewardlabError):
        name_model(f"length+{tmp_path}")


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"7", b"null", b'{"thresholds": "abcd"}', b'{"thresholds": [1e999, 2, 3, 4]}', b"\x80"]
)
def test_a_level_map_that_is_none_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "levels.json").write_bytes(content)
    with pytest.raises(PlanError, match="is no level map"):
        read_level_map(tmp_path / "levels.json")


HOSTILE_TEXTS: dict[str, Callable[[], str]] = {
    "depth": lambda: "[" * 50_000 + "]" * 50_000,
    "digits": lambda: '{"frame_number": ' + "9" * 50_000 + ', "task_completion_percentage": 5}',
    "a number that never ends": lambda: '"frame_number": 1, "task_completion_percentage": ' + "9" * 90_000,
    "many beginnings": lambda: '"frame_number": 1 ' * 5_000,
    "blanks": lambda: '"frame_number":' + " " * 90_000,
}


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_a_reply_made_to_break_the_reader_holds_no_percentages(name: str) -> None:
    found = completion_percentages(HOSTILE_TEXTS[name]())
    assert not found or max(found.values()) > 100


def test_a_level_with_digits_without_end_is_a_failure() -> None:
    from rewardlab.models.protocols import PARSERS

    for name, text in (
        (name, text) for name in PARSERS for text in ("ANSWER: " + "9" * 90_000, "ANSWER:" + " " * 90_000)
    ):
        assert name == "robometer" or isinstance(PARSERS[name](text), Failure)
    assert np.isfinite(as_score(PARSERS["robometer"]("ANSWER: " + "9" * 90_000)).level)
