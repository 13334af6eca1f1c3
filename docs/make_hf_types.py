"""Write docs/reference/hf_types.md: every image-text-to-text type of transformers, and what `hf:` does with it.

python docs/make_hf_types.py

Types with a tiny model in tests/models/tiny_vlms.py are built with random weights and asked about clips, each in a
process of its own with a time limit. Of the others only config and processor are tried: enough for some refusals.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import tiny_vlms  # noqa: E402

from rewardlab.core.episode import episode_from_frames  # noqa: E402
from rewardlab.core.errors import RewardlabError  # noqa: E402
from rewardlab.core.trial import Score  # noqa: E402
from rewardlab.models import name_model  # noqa: E402

PAGE = Path(__file__).parent / "reference" / "hf_types.md"
SECONDS = 180  # for one type
BUILDERS: dict[str, Callable[[Path], Path]] = {
    **tiny_vlms.SAVE,
    "blip-2": tiny_vlms.save_blip2,
    "llama4": tiny_vlms.save_llama4,
    "ovis2": tiny_vlms.save_ovis2,
    "paligemma": tiny_vlms.save_paligemma,
    "smolvlm": tiny_vlms.save_smolvlm,
}
REFUSALS = ("is an encoder-decoder", "needs torchvision", "names no image token", "leaves out the image token")
Outcome = tuple[str, str]  # runs, refused or not tried, and why


def ask_tiny(kind: str) -> Outcome:
    """Build a tiny model and ask it: every frame must count, and reuse must not."""
    clip = np.random.default_rng(0).integers(0, 255, (3, 40, 40, 3), np.uint8)
    clips = [clip, *(np.concatenate([clip[:n], 255 - clip[n : n + 1], clip[n + 1 :]]) for n in range(3))]
    episodes = [episode_from_frames(frames, "open the drawer") for frames in clips]
    with TemporaryDirectory() as name:
        folder = Path(name) / "model"
        try:
            BUILDERS[kind](folder)
        except ImportError as error:
            return "not tried", f"its tiny model needs a package: {str(error).strip().splitlines()[0]}"
        try:
            asked = [name_model(f"hf:{folder}?frames=images{more}").build() for more in ("", "&reuse=no")]
            given = [model.score(episodes) for model in asked]
        except RewardlabError as error:
            return "refused", str(error).replace(f" of {folder}", "").replace(str(folder), "the checkpoint")
    levels = [[answer.probabilities for answer in answers if isinstance(answer, Score)] for answers in given]
    if len(levels[0]) != len(clips) or len(levels[1]) != len(clips):
        return "refused", str(next(answer for answers in given for answer in answers if not isinstance(answer, Score)))
    if not np.allclose(np.array(levels[0], float), np.array(levels[1], float), atol=1e-4):
        return "fails", "answers with and without reuse differ"
    if any(levels[0][0] == other for other in levels[0][1:]):
        return "fails", "a changed frame leaves the answer as it was"
    return "runs", "frames as images; every frame counts; the same answers with and without reuse"


def ask_config(kind: str) -> Outcome:
    """Try what is refused before weights are read: the default config, and the processor of the type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    processor, images = PROCESSOR_MAPPING_NAMES.get(kind), IMAGE_PROCESSOR_MAPPING_NAMES.get(kind)
    with TemporaryDirectory() as name:
        folder = Path(name)
        tiny_vlms.tokenizer_with("<image>").save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"")
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        settings = {"processor_class": processor} if processor else {}
        if isinstance(images, dict) and images:
            settings["image_processor_type"] = str(next(iter(images.values()))).removesuffix("Pil")
        (folder / "preprocessor_config.json").write_text(json.dumps(settings))
        try:
            CONFIG_MAPPING[kind]()
            name_model(f"hf:{folder}?frames=images").build()
        except RewardlabError as error:
            said = str(error).replace(f" of {folder}", "").replace(str(folder), "the checkpoint")
            if any(words in said for words in REFUSALS):
                return "refused", said
        except Exception as error:  # a type whose config has no defaults may raise anything
            return "not tried", f"its config has no default: {type(error).__name__}"
    return "not tried", "no tiny model is written for it" if processor else "transformers names no processor for it"


def ask(kind: str) -> Outcome:
    """Return what `hf:` does with a type; a tiny model is asked in a process of its own."""
    if kind not in BUILDERS:
        return ask_config(kind)
    try:
        done = subprocess.run(
            [sys.executable, __file__, kind], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "not tried", f"it took longer than {SECONDS} s"
    if done.returncode:
        return "fails", done.stderr.strip().splitlines()[-1]
    state, why = json.loads(done.stdout.splitlines()[-1])
    return state, why


def page() -> str:
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    rows = {}
    for kind in sorted(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        rows[kind] = ask(kind)
        print(kind, *rows[kind], flush=True)
    counts = Counter(state for state, _ in rows.values())
    torchvision = "with" if find_spec("torchvision") else "without"
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, {torchvision} torchvision"
    counted = ", ".join(f"{number} {state}" for state, number in counts.most_common())
    lines = [
        "# Types of vision-language models in `hf:`",
        "",
        "Written by `python docs/make_hf_types.py`; do not edit.",
        "",
        f"The image-text-to-text types of {versions}: {counted}.",
        "*Runs* is about a tiny model with random weights; no published weights were asked. *Not tried* means that",
        "no tiny model was built: the type may run.",
        "",
        "| type | `hf:` | why |",
        "|---|---|---|",
    ]
    for kind, (state, why) in rows.items():
        lines.append(f"| `{kind}` | {state} | {' '.join(why.split())} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(ask_tiny(sys.argv[1])))
    else:
        PAGE.write_text(page(), encoding="utf-8")
