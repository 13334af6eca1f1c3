"""What a model reads when it is trained: the tokens of the prompt as scoring writes them, with the right answer.

The tokens of an example are those that `hf:` asks with, whose last one is the choice; nothing else is replaced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rewardlab.core.episode import Episode
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Failure
from rewardlab.models.backends.processor_vlm import PromptRenderer, RenderedPrompt, text_piece
from rewardlab.models.backends.qwen_prompt import TEXT, PromptBuilder, VisualInput
from rewardlab.models.protocols import ANSWER, rubric_prompt
from rewardlab.models.protocols.clips import ShownClips
from rewardlab.models.vlm import Prompt, Video, choice_tokens, frame_rate

Tensors = dict[str, Tensor]
Answer = int | str  # a level, or a caption
Asked = tuple[str, Answer]  # an instruction and the answer to it
SpellReply = Callable[[str], list[int]]  # the tokens of a whole chat that ends in this reply
CAPTION_QUESTION = "Describe in one sentence what the robot does in the video."


@dataclass(frozen=True)
class Reply:
    """The tokens of an answer: the opening as the model reads it, a choice for each level, and the end of the turn."""

    asked: str  # the opening with a choice, whose token is replaced by the right one
    opening: tuple[int, ...]
    choices: tuple[int, ...]
    end: int

    def labels(self, level: int) -> list[int]:
        """Return the tokens that the model should write for a level."""
        return [*self.opening, self.choices[level - 1], self.end]


@dataclass(frozen=True, eq=False)
class Sample:
    """The inputs of one example: what has one row per token, and what shows its frames."""

    tokens: Tensors  # each (tokens,) or (tokens, 3)
    pictures: Tensors
    labels: Tensor  # (reply,)


@dataclass(frozen=True)
class QwenInputs:
    """Makes samples by the fast path of `hf:`: token ids with three positions each, and pairs of frames.

    It travels to the processes that decode. `padding` is what stands left of a shorter row, by the name of the tokens;
    0 elsewhere.
    """

    builder: PromptBuilder
    video_first: bool
    reply: Reply
    padding: dict[str, int]

    def sample(self, episode: Episode, answer: Answer) -> Sample:
        """Return the inputs of a clip and the answer to be learned."""
        return self.samples(episode, [(episode.instruction, answer)])[0]

    def samples(self, episode: Episode, asked: Sequence[Asked]) -> list[Sample]:
        """Return the inputs of a clip under several instructions; its pictures are made once and the first has them."""
        video = _video(episode)
        visual = self.builder.visual_input(video.frames, video.times)
        made = [self._words(video, visual, *each) for each in asked]
        pictures = {
            "frames": torch.stack([torch.from_numpy(pair.frames.copy()) for pair in visual.pairs]),
            "sizes": torch.tensor([pair.size for pair in visual.pairs]),
        }
        return [replace(made[0], pictures=pictures), *made[1:]]

    def _words(self, video: Video, visual: VisualInput, instruction: str, answer: Answer) -> Sample:
        prompt = _prompt(video, instruction, answer, self.video_first)
        parts = [part if isinstance(part, str) else visual for part in prompt.parts]
        reply, labels = _answered(answer, self.reply, self.builder.reply_ids)
        sequence = self.builder.chat(parts, (), reply)
        ids = torch.from_numpy(sequence.ids)
        ids[1 - len(labels) :] = torch.tensor(labels[:-1])
        tokens = {
            "input_ids": ids,
            "position_ids": torch.from_numpy(sequence.positions.T.copy()),
            "visual": torch.from_numpy(sequence.kinds != TEXT),
        }
        return Sample(tokens, {}, torch.tensor(labels))


@dataclass(frozen=True)
class ProcessorInputs:
    """Makes samples for any other image-text-to-text model, with its processor."""

    renderer: PromptRenderer
    video_first: bool
    reply: Reply
    padding: dict[str, int]

    def sample(self, episode: Episode, answer: Answer) -> Sample:
        return self.samples(episode, [(episode.instruction, answer)])[0]

    def samples(self, episode: Episode, asked: Sequence[Asked]) -> list[Sample]:
        video = _video(episode)
        (rendered, labels), *others = [self._rendered(episode.id, video, *each) for each in asked]
        first = self._processed(rendered, labels)
        if not others:
            return [first]
        tail = self._tail(rendered)
        size, rest = len(tail), [value for name, value in first.tokens.items() if name != "input_ids"]
        plain = all(value.ndim == 1 and bool((value[-size:] == value[-1]).all()) for value in rest)
        # Only the text at the end differs, its last token aside: the rest of the first sample serves all.
        if plain and torch.equal(first.tokens["input_ids"][-size:-1], tail[:-1]):
            made = [first]
            for text, labels in others:
                tail = self._tail(text)
                tokens = {
                    name: torch.cat([value[:-size], tail if name == "input_ids" else value[-1:].expand(len(tail))])
                    for name, value in first.tokens.items()
                }
                tokens["input_ids"][-1] = labels[-2]
                made.append(Sample(tokens, {}, torch.tensor(labels)))
            return made
        processed = (self._processed(*each) for each in others)
        return [first, *(replace(sample, pictures={}) for sample in processed)]

    def _rendered(self, name: str, video: Video, instruction: str, answer: Answer) -> tuple[RenderedPrompt, list[int]]:
        """Return the whole chat as text, and the tokens of its answer."""
        reply, labels = _answered(answer, self.reply, self.renderer.reply_ids)
        rendered = self.renderer.chat(_prompt(video, instruction, answer, self.video_first), reply)
        if isinstance(rendered, Failure):
            raise ModelError(f"episode {name!r}: {rendered.reason}")
        return rendered, labels

    def _processed(self, rendered: RenderedPrompt, labels: list[int]) -> Sample:
        inputs = dict(self.renderer.inputs([rendered]))
        shape = inputs["input_ids"].shape
        names = [name for name, value in inputs.items() if value.shape == shape and not name.startswith("pixel")]
        tokens = {name: inputs[name][0] for name in names}
        if int(tokens["input_ids"][-1]) not in (labels[-2], self.reply.choices[0]):
            name = type(self.renderer.processor).__name__
            raise ModelError(f"{name} adds text after the reply, so that no answer can be learned; use another model")
        tokens["input_ids"][-1] = labels[-2]
        pictures = {name: value for name, value in inputs.items() if name not in names}
        return Sample(tokens, pictures, torch.tensor(labels))

    def _tail(self, rendered: RenderedPrompt) -> Tensor:
        """Return the tokens of the text behind all images."""
        text = rendered.text
        start = max(text.rfind(token) + len(token) for token in self.renderer.tokens.values() if token in text)
        tokens = self.renderer.processor.tokenizer(text[start:], add_special_tokens=False, return_tensors="pt")
        ids: Tensor = tokens["input_ids"][0]
        return ids


AnswerInputs = QwenInputs | ProcessorInputs


def _prompt(video: Video, instruction: str, answer: Answer, video_first: bool) -> Prompt:
    if isinstance(answer, str):
        return Prompt((video, CAPTION_QUESTION))
    return rubric_prompt(ShownClips((video,)), instruction, video_first=video_first)


def _answered(answer: Answer, reply: Reply, spell: SpellReply) -> tuple[str, list[int]]:
    """Return the reply as text to be tokenised behind the prompt, and the tokens to be learned, the end included."""
    if isinstance(answer, str):
        return answer, [*_reply_tokens(answer, spell), reply.end]
    return reply.asked, reply.labels(answer)


def _video(episode: Episode) -> Video:
    return Video(episode.frames, episode.times, frame_rate(episode.times))


def qwen_inputs(builder: PromptBuilder, video_first: bool) -> QwenInputs:
    """Return what makes samples for a Qwen-VL checkpoint."""
    end = int(builder.tokenizer.convert_tokens_to_ids("<|im_end|>"))
    return QwenInputs(builder, video_first, _reply(builder.reply_ids, end), {})


def processor_inputs(renderer: PromptRenderer, ends: set[int], video_first: bool) -> ProcessorInputs:
    """Return what makes samples for a checkpoint with a processor, whose turns end with one of these tokens."""
    reply = _reply(renderer.reply_ids, _end_of_turn(renderer, ends))
    return ProcessorInputs(renderer, video_first, reply, {"input_ids": renderer.processor.tokenizer.pad_token_id})


def _reply(spell: SpellReply, end: int) -> Reply:
    asked, choices = choice_tokens(ANSWER, spell)
    return Reply(asked, tuple(_reply_tokens(asked, spell)[:-1]), tuple(choices), end)


def _reply_tokens(reply: str, spell: SpellReply) -> list[int]:
    """Return the tokens of a reply, those that follow what a chat without a reply ends in."""
    whole, before = spell(reply), spell("")
    common = next(
        (place for place, pair in enumerate(zip(whole, before, strict=False)) if pair[0] != pair[1]), len(before)
    )
    return whole[common:]


def _end_of_turn(renderer: PromptRenderer, ends: set[int]) -> int:
    """Return the token with which the chat template ends a reply; the tokenizer's own end where it writes none."""
    tokenizer, own = renderer.processor.tokenizer, renderer.processor.tokenizer.eos_token_id
    if renderer.processor.chat_template is None:
        return int(own)
    turns = [("user", "Question?"), ("assistant", "Reply")]
    messages = [{"role": role, "content": [text_piece(text)]} for role, text in turns]
    after = renderer.write(messages, False).rpartition("Reply")[2]
    written = tokenizer(after, add_special_tokens=False)["input_ids"]
    return int(next((token for token in written if token in ends), own))


def pad_left(rows: Sequence[Tensor], value: int) -> Tensor:
    """Return rows of different lengths as one tensor, the shorter ones filled up on the left."""
    longest = max(map(len, rows))
    padded = rows[0].new_full((len(rows), longest, *rows[0].shape[1:]), value)
    for place, row in enumerate(rows):
        padded[place, longest - len(row) :] = row
    return padded
