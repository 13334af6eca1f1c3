"""The RoboReward layout: reader, writer, captions."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from shlex import quote

from rewardlab.core.episode import Clip, Episode, FrameSource, view_episodes
from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROWS
from rewardlab.core.storage import write_file
from rewardlab.data.contract import Contents, Problem, Reader, Writer, WrittenRow, bounded_contents, bounded_items
from rewardlab.data.reading import bounded_text
from rewardlab.data.roboreward_rows import (
    METADATA,
    Row,
    fps_of,
    instruction_of,
    label_of,
    notes_of_rows,
    parse_bounded_row,
    parse_row,
    provenance_of,
    require,
    row_of,
    sim_state_of,
    valid_fps,
    views_of,
)
from rewardlab.data.safe_files import VIDEO_SUFFIXES, path_inside, require_name, shown, text_lines
from rewardlab.data.video import VideoFile, open_videos, write_videos

_OPENED_AHEAD = 256  # rows


def recognises(folder: Path) -> bool:
    """Tell whether the folder has rows of metadata."""
    return (folder / METADATA).is_file()


def read_folder(folder: Path) -> Contents:
    """Read and check every row and every video's container; frames are decoded later, when asked for."""
    rows = RowEpisodes(folder, _clip)
    made = ((place, row if isinstance(row, DataError) else partial(rows.episode, row)) for place, row in _rows(rows))
    contents = bounded_contents(made, "row")
    if contents.episodes or contents.problems:
        return contents
    what = f"holds no row; write one per video, or remove it and let `rewardlab data init {quote(str(folder))}` begin"
    return Contents((), (Problem(METADATA, what),))


def read_rows(folder: Path) -> tuple[tuple[tuple[Row, Episode], ...], tuple[Problem, ...]]:
    """Return every sound row, with all its columns and the episode it names, and what is wrong with the others."""
    rows = RowEpisodes(folder, _clip)
    made = (
        (place, row if isinstance(row, DataError) else partial(_row_and_episode, rows, row))
        for place, row in _rows(rows)
    )
    return bounded_items(made, "row")


def _rows(rows: "RowEpisodes") -> Iterator[tuple[str, Row | DataError]]:
    """Yield the place of every row and what it holds, or why it holds nothing; its videos are open by then."""

    def parsed(text: str) -> Row | DataError:
        try:
            return parse_bounded_row(text)
        except DataError as error:
            return error

    lines = text_lines(rows.folder, rows.folder / METADATA)
    return rows.opened_ahead((f"line {line}", parsed(text)) for line, text in lines)


def _row_and_episode(rows: "RowEpisodes", row: Row) -> tuple[Row, Episode]:
    return row, rows.episode(row)


def notes(folder: Path) -> tuple[Problem, ...]:
    """Return what is odd in the rows and stops no run."""

    def sound_rows() -> Iterator[tuple[int, Row]]:
        for number, text in islice(text_lines(folder, folder / METADATA), ROWS.value):
            with suppress(DataError):  # a line that is no row is a problem, and told elsewhere
                yield number, parse_row(text)

    return notes_of_rows(folder, sound_rows())


def write_episode(folder: Path, episode: Episode, file_name: str, extra: dict[str, object] | None = None) -> None:
    """Write an episode's frames and append its row; the row comes last, so that a row always has its video."""
    from rewardlab.core.video_encoding import encode  # here: PyAV is slow to load, and reading rows needs none of it

    target = folder / file_name
    target.parent.mkdir(parents=True, exist_ok=True)
    clip = episode.clip
    row = row_of(episode, file_name) | (extra or {})
    for place, each in (
        (file_name, episode),
        *zip(views_of("", row).values(), view_episodes(episode).values(), strict=True),
    ):
        encode(each.frames, folder / place, clip.fps, times=None if clip.is_even else episode.times)
    with (folder / METADATA).open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row, ensure_ascii=False) + "\n")


class RowEpisodes:
    """The episodes of the rows of one folder: a video that many of them name is opened once, and its clip is shared."""

    def __init__(self, folder: Path, open_clip: Callable[[Path, str, float | None], Clip]) -> None:
        self.folder = folder
        self.seen: Counter[str] = Counter()
        self.clip = cache(open_clip)

    def opened_ahead(self, found: Iterable[tuple[str, Row | DataError]]) -> Iterator[tuple[str, Row | DataError]]:
        """Yield rows with their places, some at a time, after their videos were opened several at once."""
        source = iter(found)
        while some := list(islice(source, _OPENED_AHEAD)):
            open_videos([*dict.fromkeys(path for _, row in some for path in self._videos(row))])
            yield from some

    def _videos(self, row: Row | DataError) -> Iterator[Path]:
        """Yield the videos that a row names, as far as it is sound."""
        if not isinstance(row, DataError):
            with suppress(DataError):
                name = require_name(row.get("file_name"), "file_name")
                for place in (name, *views_of(name, row).values()):
                    if place.lower().endswith(VIDEO_SUFFIXES):
                        yield path_inside(self.folder, place, "file_name")

    def episode(self, row: Row) -> Episode:
        """Return the episode of one row; DataError says what is wrong with it."""
        require(row, "file_name")
        require_name(row["file_name"], "file_name")
        name = str(row["file_name"])
        instruction = instruction_of(name, row)
        clip = self.clip(self.folder, name, fps_of(name, row))
        valid_fps(name, clip.fps)
        views = {camera: self._view(name, place, clip) for camera, place in views_of(name, row).items()}
        label, provenance = label_of(name, row, len(clip)), provenance_of(name, row)
        sim_state = sim_state_of(self.folder, name, row)
        self.seen[name] += 1
        identity = name if self.seen[name] == 1 else f"{name}#{self.seen[name]}"
        return Episode(identity, instruction, clip, label, provenance, sim_state, views)

    def _view(self, name: str, place: str, clip: Clip) -> FrameSource:
        """Return what a further camera saw, at the moments of the first."""
        source = self.clip(self.folder, place, None).source
        if source.count != clip.source.count:
            what = f"the view {place} has {source.count} frames, and the first view {clip.source.count}"
            raise DataError(f"{name}: {what}; a view shows the same moments: cut or resample it, or leave it out")
        return source


def _clip(folder: Path, name: str, fps: float | None) -> Clip:
    return VideoFile(path_inside(folder, name, "file_name")).clip(fps)


ROBOREWARD = Reader(
    "roboreward",
    "the RoboReward layout: metadata.jsonl beside the videos, one JSON row per episode (file_name, task, reward)",
    "a metadata.jsonl with one row per video",
    recognises,
    read_folder,
    notes,
)


# Captions: what a video shows in words, as `caption` in its row. `train vlm` aligns a new projector with them; no model
# under test sees them.


def captioned_videos(folder: Path) -> Iterator[tuple[Episode, str]]:
    """Yield every video that has a caption once, as an episode with its caption; DataError where there is none."""
    captions: dict[str, str] = {}
    for line, text in text_lines(folder, folder / METADATA) if (folder / METADATA).is_file() else ():
        row = parse_row(text)
        caption = row.get("caption")
        if caption is None:
            continue
        if not isinstance(caption, str) or not caption.strip():
            raise DataError(f"line {line}: caption must be a text, got {shown(caption)}")
        captions.setdefault(str(row.get("file_name")), bounded_text(caption, f"line {line}: caption"))
    if not captions:
        what = f"no row in {folder / METADATA} has a caption"
        raise DataError(f"{what}; collect one with `rewardlab collect metaworld --captions`")
    for episode in read_folder(folder).episodes:
        if episode.id in captions:  # other rows of the same video have a number behind its name
            yield episode, captions[episode.id]


# Writing the layout: videos, and metadata.jsonl with one row each.


def finish(folder: Path, rows: Sequence[WrittenRow]) -> None:
    """Write the rows."""
    write_file(folder / METADATA, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


ROBOREWARD_WRITER = Writer(
    "roboreward",
    "metadata.jsonl beside the videos, as RoboReward publishes it",
    partial(write_videos, row_of=row_of),
    finish,
)
