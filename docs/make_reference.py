"""Write docs/reference from the code: commands, catalogs, and the catalogue of perturbations as pictures.

python docs/make_reference.py
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from rewardlab.cli import GROUPS, Command
from rewardlab.core.errors import DataError
from rewardlab.core.limits import LIMITS
from rewardlab.core.records import field_types, type_name
from rewardlab.core.settings import Setting
from rewardlab.core.summary import Summary
from rewardlab.core.trial import GuardVerdict, ScoreInfo, Trial
from rewardlab.core.trial_table import TRIAL_SCHEMA, trial_schema
from rewardlab.data import READERS, open_dataset
from rewardlab.data.convert import WRITERS
from rewardlab.evaluation.bench import BenchmarkCauses, BenchmarkErrors
from rewardlab.evaluation.replay import TrialReplay, trial_replay
from rewardlab.metrics import METRICS
from rewardlab.models import MODELS
from rewardlab.perturbations import FAMILIES
from rewardlab.perturbations.contract import Perturbation
from rewardlab.reporting.contact_sheets import write_sheet
from rewardlab.worlds.offscreen import backend

REFERENCE = Path(__file__).parent / "reference"
EPISODES = ["bridge_v2/9be3d357ea.mp4", "robometer_page/c82caf06d2.mp4", "robometer_page/de6206dc8b.mp4"]
MADE = "Written by `python docs/make_reference.py`; do not edit.\n"


def commands_page() -> str:
    rare = "Every command with every setting. `--help` leaves out those marked with *; `--help-all` shows them.\n"
    parts = ["# Commands", MADE, rare]
    for title, commands in GROUPS.items():
        parts += [f"## {title}", ""]
        for name, command in commands.items():
            parts += command_section(name, command)
    return "\n".join(parts)


def command_section(name: str, command: Command) -> list[str]:
    """Return what a command does, its settings and two examples, as its function states them."""
    function = command.load()
    summary, _, examples = (inspect.getdoc(function) or "").partition("Examples:\n")
    settings = command.settings
    words = [setting.metavar + "..." * setting.many for setting in settings if setting.positional]
    rows = [f"| {setting_title(each)} | {each.shown_default} | {_cell(each.help.text)} |" for each in settings]
    lines = [f"### {' '.join(['rewardlab', name, *words])}", "", " ".join(summary.split()), ""]
    lines += ["| setting | default | meaning |", "|---|---|---|", *rows, ""] if rows else []
    return [*lines, *(["```", *inspect.cleandoc(examples).splitlines(), "```", ""] if examples else [])]


def setting_title(setting: Setting) -> str:
    """Return a word of the command line, or a flag with what stands for its value; a rare one is marked."""
    if setting.positional:
        return setting.metavar
    value = f"{{{','.join(setting.choices)}}}" if setting.choices and not setting.many else setting.metavar
    return f"`{f'{setting.flag} {value}'.strip()}`{' *' * setting.help.more}"


def catalog_page() -> str:
    about = "What `rewardlab list` prints: models, metrics, readers and writers of datasets.\n"
    parts = ["# Models, metrics and readers", MADE, about, "## Models", "| name | what it is |", "|---|---|"]
    parts += [f"| `{name}` | {entry.summary} |" for name, entry in MODELS.items()]
    parts += ["\n## Metrics", "| name | better | what it is |", "|---|---|---|"]
    parts += [f"| `{name}` | {entry.better} | {entry.summary} |" for name, entry in METRICS.items()]
    parts += ["\n## Readers of datasets", "| name | what it is |", "|---|---|"]
    parts += [f"| `{name}` | {entry.summary} |" for name, entry in READERS.items()]
    parts += ["\n## Writers of datasets", "| name | what it is |", "|---|---|"]
    parts += [f"| `{name}` | {entry.summary} |" for name, entry in WRITERS.items()]
    return "\n".join(parts) + "\n"


def summary_page() -> str:
    head = [
        "# summary.json, bench.json and causes.json",
        MADE,
        "What `rewardlab stress` and `rewardlab bench` write into a run folder, and what `Summary.from_json` and "
        "`BenchmarkErrors.from_json` read and check. A field changes its name or meaning only with `schema`.",
        "Beside these fields each file holds `trials_sha256`, the digest of the trials that it was computed from, and "
        "`sha256`, the checksum of the rest; a report computes the numbers anew and refuses a file that differs.",
        "",
    ]
    return "\n".join([*head, record_tables(Summary), record_tables(BenchmarkErrors), record_tables(BenchmarkCauses)])


def trials_page() -> str:
    head = [
        "# The columns of trials",
        MADE,
        "One row is one episode under one perturbation at one severity, scored by one model. `run.trials()` returns "
        "them: `run.trials().to_pandas()`, `polars.DataFrame(run.trials())`, or `.arrow`; `rewardlab runs sql` queries "
        "many runs. The files are `trials/*.parquet` in a run folder.",
        "",
        f"**Schema {TRIAL_SCHEMA}**, as `rewardlab.trial_schema` in the metadata of each file says. Within a schema no "
        "column changes its name, type or meaning, and none goes away; new ones may come, and are null in older runs. "
        "Another schema is refused with a sentence that says so.",
        "",
        "What is not known is null, never 0.",
        "",
    ]
    groups = (
        ("Every trial", Trial, ""),
        ("What is known about an answer", ScoreInfo, ""),
        ("Guard", GuardVerdict, "guard_"),
    )
    types = {field.name: str(field.type) for field in trial_schema()}
    for title, kind, before in groups:
        rows = {before + name: meaning for name, meaning in field_comments(kind).items()}
        head += [f"## {title}", "", "| column | type | meaning |", "|---|---|---|"]
        head += [f"| `{name}` | {_cell(types[name])} | {_cell(rows[name])} |" for name in rows if name in types] + [""]
    return "\n".join(head)


def field_comments(kind: type) -> dict[str, str]:
    """Return the comment behind each field of a dataclass."""
    lines = re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(kind), re.MULTILINE)
    missing = {field.name for field in dataclasses.fields(kind)} - {"info", "guard"} - {name for name, _ in lines}
    assert not missing, f"fields of {kind.__name__} without a comment: {missing}"
    return dict(lines)


def record_tables(kind: Any) -> str:
    """Return Markdown tables of a record and every record in it: field, type and meaning."""
    parts = []
    for record in dict.fromkeys(_records(kind)):
        parts += [f"## {record.__name__}", "", inspect.cleandoc(str(record.__doc__)), ""]
        parts += ["| field | type | meaning |", "|---|---|---|"]
        hints = field_types(record)
        for entry in dataclasses.fields(record):
            parts.append(
                f"| `{entry.name}` | {type_name(hints[entry.name], linked=True)} | {entry.metadata['meaning']} |"
            )
        parts.append("")
    return "\n".join(parts)


def _records(kind: Any) -> Iterator[Any]:
    if dataclasses.is_dataclass(kind):
        yield kind
        for hint in field_types(kind).values():
            yield from _records(hint)
    else:
        for part in get_args(kind):
            yield from _records(part)


def perturbations_page(shown: TrialReplay) -> str:
    total = sum(len(family) for family in FAMILIES.values())
    parts = [
        "# Perturbations",
        MADE,
        f"All {total} perturbations with their parameters and pictures. Rows of a picture are severities 0 to 4.\n",
        "A perturbation `keeps` the true label, keeps it where a guard holds (`keeps_if`; elsewhere the trial "
        "is skipped), `changes` it by a stated rule, or leaves it `unknown`. Random numbers are drawn `per_clip`, "
        "`per_frame`, per frame but correlated with the frame before (`ar1`), or not at all (`none`).\n",
        "Names compose: `low_light+paraphrase` applies both; `random:visual` draws one of a category for each episode; "
        "`midway:low_light` changes only the second half of the shown frames, as if a lamp went off there "
        "(`midway:camera_move`: somebody bumps the camera). Every perturbation of single frames can begin in the "
        "middle; [how it is measured](../howto/bench.md#a-change-in-the-middle).\n",
    ]
    for category, family in FAMILIES.items():
        parts += [f"## {category.capitalize()} ({len(family)})", ""]
        for perturbation in family:
            parts += entry(shown, perturbation)
    return "\n".join(parts)


def facts(p: Perturbation) -> list[str]:
    """Return what the catalog says of a perturbation: everything but its example."""
    label = f"label {p.label} · expect {p.expect} · changes {p.channel}"
    head = [f"### {p.name}", p.summary, "", f"{label} · randomness {p.randomness} · based on {p.based_on}", ""]
    return [
        *head,
        f"| severity | {p.parameter} |",
        "|---|---|",
        *(f"| {s} | {_cell(v)} |" for s, v in enumerate(p.table, 1)),
    ]


def entry(shown: TrialReplay, p: Perturbation) -> list[str]:
    return [*facts(p), "", *(examples(shown, p) if p.channel == "instruction" else [picture(shown, p)]), ""]


def examples(shown: TrialReplay, p: Perturbation) -> list[str]:
    rows = ["| severity | instruction |", "|---|---|"]
    for episode in shown.episodes.values():
        found = [text(shown, episode.id, p, severity) for severity in (1, 2, 3, 4)]
        if not all(line.startswith("(dropped") for line in found):
            rows += [f"| 0 | {episode.instruction} |", *(f"| {s} | {_cell(line)} |" for s, line in enumerate(found, 1))]
            break
    return rows if len(rows) > 2 else ["No shipped clip has an instruction for which this is defined.", ""]


def text(shown: TrialReplay, episode: str, p: Perturbation, severity: int) -> str:
    try:
        change = shown.change(episode, p.name, severity)
    except DataError as error:
        return f"(dropped: {error})"
    return f"{change.episode.instruction} *[{change.expect}]*"


def picture(shown: TrialReplay, p: Perturbation) -> str:
    for episode in EPISODES:
        try:
            shown.change(episode, p.name, 4)
        except DataError:
            continue
        write_sheet(shown, episode, p, REFERENCE / "catalogue" / f"{p.name}.webp")
        return f"![{p.name} at severities 0 to 4](catalogue/{p.name}.webp)"
    return "None of the clips used for pictures passes the guard of this perturbation."


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|").replace("\n", " ").replace("<", "&lt;")


def limits_table() -> str:
    """Return the table of limits in SECURITY.md."""
    rows = [f"| `{limit.variable}` | {limit.default:,} | {limit.meaning} |" for limit in LIMITS]
    return "\n".join(["| variable | default | what it bounds |", "|---|---|---|", *rows])


def write_limits(page: Path) -> None:
    """Put the table of limits in the place of the one that a page holds."""
    old = re.compile(r"\| variable \| default \|.*(\n\|.*)*")
    page.write_text(old.sub(lambda _found: limits_table(), page.read_text(encoding="utf-8")), encoding="utf-8")


PAGES = {
    "commands": commands_page,
    "catalogs": catalog_page,
    "summary": summary_page,
    "trials": trials_page,
}  # those that show no clip


def main() -> None:
    backend()  # stops where nothing can render: the pictures of changed worlds would be missing without a word
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / f"{name}.md").write_text(page())
    write_limits(REFERENCE.parents[1] / "SECURITY.md")
    simulated = open_dataset("sample-sim").episodes
    EPISODES.extend(episode.id for episode in simulated if episode.label.level == 5)
    every = {episode.id: episode for episode in (*open_dataset("sample").episodes, *simulated)}
    ordered = (*(every[name] for name in EPISODES), *(e for e in every.values() if e.id not in EPISODES))
    shown = trial_replay(ordered, ("all",), "uniform:16", seed=0)
    (REFERENCE / "perturbations.md").write_text(perturbations_page(shown))


if __name__ == "__main__":
    main()
