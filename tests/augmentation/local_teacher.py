"""A teacher without a server, as a backend from outside is one: it answers well, dies of one clip, or waits.

Workers import this module: it needs nothing that takes long to load.
"""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from rewardlab.augmentation.batched_teacher import BatchedTeacher, CallCache, FactoryWorkers
from rewardlab.augmentation.rows import StageRows, read_dataset
from rewardlab.augmentation.task_texts import relabel_counterfactually
from rewardlab.augmentation.teachers import NamedTeacher, VlmTeacher
from rewardlab.core.episode import Frames, Indices
from rewardlab.core.settings import Execution
from rewardlab.models.contract import Budget
from rewardlab.models.vlm import AnswerFormat, Completion, Prompt, Video
from tests.narrowing import of_type

ANALYSIS = "1) Scene: a red cup, a plate and a spoon.\n2) The robot moves the cup.\n3) The cup is on the plate."
COMMANDS = {
    1: "Pick up the spoon.",
    2: "Put the red cup next to the spoon.",
    3: "Put the red cup under the plate.",
    4: "Put the red cup on the left edge of the plate.",
}
PLAN = "5) Final set\n" + "\n".join(f"{score}: {text}" for score, text in COMMANDS.items()) + "\n5: the original"
POISONED = 64  # side of the clip that the teacher dies of; the others are smaller
_WAITS_AT = 12  # questions; then it waits for a file that frees it, where there is one that holds it


@dataclass(frozen=True)
class DeadlyFrames:
    """A video whose decoder crashes, as C code does; a file counts the tries."""

    tries: Path
    digest: str = "deadly"
    count: int = 12

    def read(self, indices: Indices) -> Frames:  # noqa: ARG002
        with self.tries.open("a") as file:
            file.write("x")
        ctypes.string_at(0)
        raise AssertionError("nobody survives this")


class Annotator:
    """Answers every question at the first attempt, and writes down what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def complete(
        self,
        prompts: Sequence[Prompt],
        max_tokens: int,  # noqa: ARG002
        answer: AnswerFormat | None = None,  # noqa: ARG002
    ) -> list[Completion]:
        return [Completion(self._reply(prompt)) for prompt in prompts]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...]]:
        raise NotImplementedError

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float]:
        raise NotImplementedError

    def _reply(self, prompt: Prompt) -> str:
        clips = [of_type(Video, part) for part in prompt.parts[:-1]]
        text = of_type(str, prompt.parts[-1])
        shown = b"".join(clip.frames.tobytes() for clip in clips)
        with (self.folder / "asked").open("a") as file:
            file.write(sha256(text.encode() + shown).hexdigest() + "\n")
        self._wait()
        if clips and clips[0].frames.shape[1] == POISONED:
            ctypes.string_at(0)
        if "strict annotation validator" in text:
            return "The state fits.\nANSWER: TRUE"
        if "analyzing a video" in text:
            return ANALYSIS
        if "Plan carefully" in text:
            return PLAN
        return COMMANDS[int(text.partition("command for score ")[2][0])]

    def _wait(self) -> None:
        asked = len((self.folder / "asked").read_text().splitlines())
        while asked > _WAITS_AT and (self.folder / "hold").exists():
            threading.Event().wait(0.02)


def make_counterfactuals(data: Path, folder: Path, execution: Execution) -> StageRows:
    """Do the stage `counterfactual` with the teacher, who writes down in the folder what was asked."""
    teacher = NamedTeacher("annotator", "annotator", False, lambda _budget: VlmTeacher(Annotator(folder)), True)
    rows = read_dataset(str(data), skip_invalid=False)
    with FactoryWorkers({"vision": teacher, "text": teacher}, execution) as workers:
        teachers = BatchedTeacher(
            {"vision": teacher, "text": teacher}, Budget(folder=folder), CallCache(folder), workers
        )
        return relabel_counterfactually(rows, teachers, 3)
