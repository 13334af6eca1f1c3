"""Build the documentation site into build/site, from the navigation in zensical.toml; nothing is fetched.

python docs/make_site.py        (needs the dependency group docs)

A page is written for the repository: its links are paths of files there. Every page of the navigation, and every file
that they link to, is copied to build/pages, where Zensical builds from. A link that leads nowhere stops the build.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "zensical.toml"
CONTENTS = ROOT / "docs" / "README.md"  # written from the navigation
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)(?=(?:#[^)\s]*)?\))")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def navigation() -> dict[str, list[str]]:
    """Return the pages of each section of the site, as paths in the repository."""
    sections = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]
    return {title: list(_pages(pages)) for entry in sections for title, pages in entry.items()}


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield _source(entry)
        else:
            yield from (page for pages in entry.values() for page in _pages(pages))


def contents_page() -> str:
    """Return docs/README.md: every page of the site with the first sentence of it."""
    made = "Written by `python docs/make_site.py contents` from the navigation in `zensical.toml`; do not edit."
    parts = ["# Documentation", made]
    for section, pages in navigation().items():
        parts.append(f"## {section}")
        lines = [_entry(page) for page in pages if page != "README.md" and ROOT / page != CONTENTS]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _entry(page: str) -> str:
    text = page_text(page)
    title = re.search(r"^# (.+)", text, re.MULTILINE)
    parts = (part for part in re.split(r"\n\s*\n", text) if not re.match(r"[#|>!<-]|    |```|Written by", part))
    first = " ".join(next(parts, "").split())
    if title is None or not first:
        raise SystemExit(f"{page} has no title, or no paragraph")
    sentence = re.split(r"(?<=[.?]) (?=[A-Z`*\[])|: ", first)[0].rstrip(".:")
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", sentence)
    return f"- [{title[1]}]({os.path.relpath(page, 'docs')}): {plain}"


def page_text(page: str) -> str:
    """Return the Markdown of a page, or of a notebook."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return notebook_text(json.loads(text)) if page.endswith(".ipynb") else text


def notebook_text(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown: text, code, and what it printed."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_output(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="output" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        return "<div>" + re.sub(r"\n\s*", "", "".join(data["text/html"])) + "</div>"
    return "```text\n" + "".join(output.get("text") or data["text/plain"]).rstrip() + "\n```"


def copy_pages() -> None:
    """Copy the pages of the navigation, and all that they link to, to where the site is built from."""
    shutil.rmtree(PAGES, ignore_errors=True)
    waiting = [page for pages in navigation().values() for page in pages]
    done: set[str] = set()
    while waiting:
        page = waiting.pop()
        if page in done:
            continue
        done.add(page)
        goal = PAGES / _place(page)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if page.endswith((".md", ".ipynb")):
            text, linked = with_links(page)
            goal.write_text(text, encoding="utf-8")
            waiting += linked
        else:
            shutil.copyfile(ROOT / page, goal)


def with_links(page: str) -> tuple[str, list[str]]:
    """Return the text of a page with links as the site has them, and the files that they lead to."""
    linked = []

    def there(match: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(page), match[1]))
        if not (ROOT / target).is_file():
            raise SystemExit(f"{page} links to {match[1]}, which is no file")
        linked.append(target)
        return os.path.relpath(_place(target), os.path.dirname(page) or ".")

    parts = CODE.split(page_text(page))
    return "".join(part if number % 2 else LINK.sub(there, part) for number, part in enumerate(parts)), linked


def _place(page: str) -> str:
    """Return where a file of the repository is put: README.md is the page of its folder."""
    if page.endswith(".ipynb"):
        return page.removesuffix(".ipynb") + ".md"
    return re.sub(r"(^|/)README\.md$", r"\1index.md", page)


def _source(place: str) -> str:
    """Return the file of the repository that a page of the navigation is made from."""
    sources = (place, re.sub(r"(^|/)index\.md$", r"\1README.md", place), place.removesuffix(".md") + ".ipynb")
    return next((path for path in sources if (ROOT / path).is_file()), place)


def write_search_from_disk() -> None:
    """Write the script that starts the search of pages that are opened from disk.

    Browsers load no worker from a file, so the worker is a text in this script.
    """
    package = importlib.util.find_spec("zensical")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the site needs `pip install --group docs`")
    (worker,) = Path(package.submodule_search_locations[0]).glob("templates/assets/javascripts/workers/search.*.js")
    source = json.dumps(worker.read_text(encoding="utf-8"))
    script = f'const source = new Blob([{source}], {{type: "text/javascript"}}), FromFile = Worker;\n'
    script += 'if (location.protocol === "file:")\n'
    script += "  window.Worker = function () { return new FromFile(URL.createObjectURL(source)); };\n"
    (PAGES / "assets").mkdir(exist_ok=True)
    (PAGES / "assets" / "iframe-worker.js").write_text(f"{{\n{script}}}\n", encoding="utf-8")


def build() -> None:
    """Build the site; a warning stops it."""
    copy_pages()
    write_search_from_disk()
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, check=True)
    for page in PAGES.rglob("*.md"):  # what llms.txt links to
        shutil.copyfile(page, SITE / page.relative_to(PAGES))
    (SITE / "llms.txt").write_text("\n".join(llms_lines()) + "\n", encoding="utf-8")


def llms_lines() -> Iterator[str]:
    """Return the contents as https://llmstxt.org has them: links to Markdown, from the top of the site."""
    project = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]
    yield from (f"# {project['site_name']}", "", f"> {project['site_description']}", "")
    for line in contents_page().splitlines()[4:]:
        yield LINK.sub(lambda found: _place(os.path.normpath(os.path.join("docs", found[1]))), line)


if __name__ == "__main__":
    CONTENTS.write_text(contents_page(), encoding="utf-8")
    if sys.argv[1:] != ["contents"]:
        build()
