"""Write a part of a dataset as a dataset of its own: `python subset_rows.py DATA OUT [--successes] [--sources N]`."""

import argparse
import json
import os
from pathlib import Path


def main() -> None:
    """Keep the rows that are asked for, and link their files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--successes", action="store_true", help="rows at level 5 alone")
    parser.add_argument("--camera", default="", help="rows of this camera alone")
    parser.add_argument(
        "--sources", type=int, default=0, help="so many source episodes, every task before a second one"
    )
    parser.add_argument("--without", default="", help="leave out rows that this stage made: clip or counterfactual")
    parser.add_argument("--hide-progress", action="store_true", help="leave out the progress of frames")
    words = parser.parse_args()
    rows = [json.loads(line) for line in (words.data / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [row for row in rows if not words.successes or row["reward"] == 5]
    kept = [row for row in kept if words.camera in ("", row["camera"])]
    kept = [row for row in kept if not words.without or _stage(row) != words.without]
    kept = kept if not words.sources else some_sources(kept, words.sources)
    for row in kept:
        for name in (row["file_name"], row["world"]["file"]):
            (words.out / name).parent.mkdir(parents=True, exist_ok=True)
            if not (words.out / name).exists():
                os.link(words.data / name, words.out / name)
    if words.hide_progress:
        kept = [{key: value for key, value in row.items() if key != "progress"} for row in kept]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
    (words.out / "metadata.jsonl").write_text(lines, encoding="utf-8")
    print(f"{len(kept)} rows: {words.out}")


def some_sources(rows: list[dict], count: int) -> list[dict]:
    """Return the rows of so many source episodes, the first of every task before the second of any."""
    by_task: dict[str, list[str]] = {}
    for row in rows:
        source, known = _source(row), by_task.setdefault(row["task_id"], [])
        if source not in known:
            known.append(source)
    ranked = sorted((place, source) for sources in by_task.values() for place, source in enumerate(sources))
    chosen = {source for _, source in ranked[:count]}
    return [row for row in rows if _source(row) in chosen]


def _stage(row: dict) -> str:
    return row.get("provenance", {}).get("stage", "")


def _source(row: dict) -> str:
    return row.get("provenance", {}).get("source_episode", row["file_name"])


if __name__ == "__main__":
    main()
