"""What all pages share: the Jinja environment, with escaping on, whose skeleton.html each page extends."""

import base64
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.core.errors import PlanError

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates(package: str = "rewardlab.reporting") -> "Environment":
    """Return the templates of a package; it finds skeleton, style sheet and script in this one."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader

    loaders = [PackageLoader(name, ".") for name in dict.fromkeys((package, "rewardlab.reporting"))]
    return Environment(loader=ChoiceLoader(loaders), autoescape=True, trim_blocks=True)


def data_address(kind: str, data: bytes) -> str:
    """Return bytes as an address that a page can show by itself."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def page_path(out: Path | str) -> Path:
    """Return the path of a page that is to be written: with the ending .html, without which no browser opens it."""
    path = Path(out)
    if not path.name or (path.is_dir() and path.suffix == ".html"):
        raise PlanError(f"out must name a page to write such as report.html, got {str(out)!r}, which is a folder")
    return path if path.suffix == ".html" else path.with_name(f"{path.name}.html")
