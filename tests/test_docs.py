"""The documentation is what the code says: generated pages are up to date, links lead somewhere, names exist."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from rewardlab.cli import COMMANDS, Command
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import command_parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in ROOT.rglob("*.md") if not {".venv", "build", "node_modules", "runs"} & set(path.parts))
EXAMPLES = sorted(
    [*(DOCS / "examples").iterdir(), *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "results").rglob("*.py")]
)
FIRST_PERSON = re.compile(r"first paper|\bseed 00\d|the seeds?'s", re.IGNORECASE)


def script(name: str) -> ModuleType:
    """Load a script of docs/ that is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["commands", "catalogs", "summary", "trials"])
def test_a_reference_page_is_what_the_code_says(page: str) -> None:
    made = script("make_reference").PAGES[page]()
    assert (DOCS / "reference" / f"{page}.md").read_text() == made, "run `make docs`"


def test_the_table_of_limits_is_what_the_code_says() -> None:
    assert script("make_reference").limits_table() + "\n\n" in (ROOT / "SECURITY.md").read_text(), "run `make docs`"


def test_the_page_of_perturbations_lists_every_one_with_its_table() -> None:
    written, reference = (DOCS / "reference" / "perturbations.md").read_text(), script("make_reference")
    for family in reference.FAMILIES.values():
        for perturbation in family:
            assert "\n".join(reference.facts(perturbation)) in written, f"run `make docs`: {perturbation.name}"
            if perturbation.channel != "instruction" and f"catalogue/{perturbation.name}.webp" in written:
                assert (DOCS / "reference" / "catalogue" / f"{perturbation.name}.webp").exists()


def test_the_api_page_is_what_the_code_says() -> None:
    assert (DOCS / "reference" / "api.md").read_text() == script("make_api_page").api_page(), "run `make docs`"


def test_the_architecture_page_is_what_the_code_says() -> None:
    assert (DOCS / "develop" / "architecture.md").read_text() == script("make_architecture").page(), "run `make docs`"


@pytest.mark.parametrize("title", ["From a video file to a trial on the page", "From a model string to an answer"])
def test_every_stop_of_a_tour_exists(title: str) -> None:
    section = (DOCS / "develop" / "tour.md").read_text().partition(f"## {title}")[2].partition("\n## ")[0]
    stops = re.findall(r"^\d+\. `([\w/]+)\.py: (\w+)`", section, flags=re.MULTILINE)
    assert stops and len(stops) == len(re.findall(r"^\d+\. ", section, flags=re.MULTILINE))
    for path, name in stops:
        module = import_module("rewardlab." + path.replace("/", ".").removesuffix(".__init__"))
        assert hasattr(module, name), f"{path}.py has no {name}"


def written_commands(text: str) -> list[str]:
    """Return the command lines in a text: lines of code and inline code that begin with `rewardlab`."""
    text = re.sub(r" *\\\n\s*", " ", text)  # a line that goes on
    start = r"^(?: {4,}|\$ (?:\.venv/bin/)?|[^\n|`]*? -m |\s+entry: )"
    lines = re.findall(start + r"(rewardlab [^\n]+)$", text, flags=re.MULTILINE)
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines += [line for block in fenced for line in block.splitlines() if line.startswith("rewardlab ")]
    lines += [" ".join(code.split()) for code in re.findall(r"`(rewardlab [^`]+)`", text)]
    lines = [re.sub(r"(?<=[A-Z])\.\.\.", "", line) for line in lines]  # MODEL... stands for one or several
    return [re.split(r"\s#|&&| & | \| | > ", line)[0].strip() for line in lines if "..." not in line]


def is_whole(words: list[str], command: Command) -> bool:
    """Tell whether a command is written with what it needs, not only named."""
    return len(words) > 0 or all(setting.default is not MISSING for setting in command.settings)


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_on_a_page_can_be_parsed(page: Path) -> None:
    for line in written_commands(page.read_text(encoding="utf-8")):
        words = shlex.split(line)[1:]
        name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), "")
        families = {each.split()[0] for each in COMMANDS}
        assert name or words[0].startswith("-") or words in [[family] for family in families], f"there is no {line!r}"
        command, rest = COMMANDS.get(name), words[len(name.split()) :]
        if command is None or not is_whole(rest, command):
            continue
        try:
            command_parser(name, command.load(), command.settings).parse_args(rest)
        except PlanError as error:
            pytest.fail(f"{page.name}: {line}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere_and_papers_have_titles(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    assert not FIRST_PERSON.search(text), "name the paper by its title"


def test_no_code_speaks_of_a_paper_without_its_title() -> None:
    code = [path for path in (ROOT / "src").rglob("*.py") if FIRST_PERSON.search(path.read_text())]
    assert code == []


def test_the_readme_shows_small_pictures() -> None:
    shown = re.findall(r"!\[[^]]+\]\((docs/pictures/[^)]+)\)", (ROOT / "README.md").read_text())
    assert shown and all((ROOT / name).stat().st_size < 200_000 for name in shown)


def test_every_file_that_the_notice_names_is_there() -> None:
    named = re.findall(r"\bsrc/[\w/.*-]+\w", (ROOT / "NOTICE").read_text(encoding="utf-8"))
    assert named and [path for path in named if not any(ROOT.glob(path))] == []


def test_the_page_about_installing_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    rows = [line for line in (DOCS / "install.md").read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])} == {*extras}


def test_every_page_is_in_the_navigation_and_listed() -> None:
    site = script("make_site")
    pages = {page for section in site.navigation().values() for page in section}
    folders = (DOCS, ROOT / "results")
    written = {str(page.relative_to(ROOT)) for folder in folders for page in folder.rglob("*.md")}
    subpages = {f"results/robustness/{name}.md" for name in ("table1", "claims", "plan")}
    assert written - pages == {*subpages, "results/vlm/adapter/README.md"}
    assert (DOCS / "README.md").read_text(encoding="utf-8") == site.contents_page(), "run `make docs`"


@pytest.fixture(scope="module")
def built() -> Path:
    """Build the site with every way to the network closed."""
    pytest.importorskip("zensical", reason="needs the dependency group docs")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, str(DOCS / "make_site.py")]
    done = subprocess.run(command, env=os.environ | nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Warning" not in done.stdout + done.stderr, done.stdout + done.stderr
    return ROOT / "build" / "site"


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(built: Path) -> None:
    loads = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\s(?:src|href)=\"?(?:https?:)?//[^>]*>")
    pages = {page.name: loads.findall(page.read_text(encoding="utf-8")) for page in built.rglob("*.html")}
    assert len(pages) > 30 and not [found for found in pages.values() if found]


def test_llms_txt_lists_pages_that_are_there(built: Path) -> None:
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", (built / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(links) > 40 and [link for link in links if not (built / link).is_file()] == []


@pytest.mark.slow
def test_the_search_finds_a_page_from_disk(built: Path) -> None:
    pytest.importorskip("playwright")
    from tests.real_browser import open_browser

    with open_browser() as browser:
        page = browser.new_page()
        page.goto((built / "index.html").as_uri())
        page.keyboard.press("Control+k")
        page.keyboard.type("conformal")
        page.get_by_text("Calibration").first.wait_for()


@pytest.mark.parametrize(
    ("text", "code"), [("[b](b.md#there)", 0), ("[b](b.md#nowhere)", 1), ("[c](c.md)", 1), ("![picture](none.png)", 1)]
)
def test_a_broken_link_fails_the_build(tmp_path: Path, text: str, code: int) -> None:
    pytest.importorskip("zensical", reason="needs the dependency group docs")
    (tmp_path / "docs").mkdir()
    shutil.copyfile(DOCS / "make_site.py", tmp_path / "docs" / "make_site.py")
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    nav = 'nav = [{ "Start" = ["index.md", "docs/a.md", "docs/b.md"] }]\n\n['
    (tmp_path / "zensical.toml").write_text(re.sub(r"nav = \[\n.*?\n\]\n\n\[", nav, settings, flags=re.DOTALL))
    (tmp_path / "README.md").write_text("# Home\n\nHello.\n")
    (tmp_path / "docs" / "a.md").write_text(f"# A\n\nSee {text}\n")
    (tmp_path / "docs" / "b.md").write_text("# B\n\nHere.\n\n## There\n")
    done = subprocess.run([sys.executable, str(tmp_path / "docs" / "make_site.py")], capture_output=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
