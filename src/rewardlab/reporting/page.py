"""The page skeleton: one Jinja environment with escaping on, and what all pages share."""

import base64
from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader


@cache
def templates(package: str = "rewardlab.reporting") -> Environment:
    """Return the templates of a package, with escaping on; style and script of all pages lie in this one."""
    loaders = [PackageLoader(name, ".") for name in dict.fromkeys((package, "rewardlab.reporting"))]
    return Environment(loader=ChoiceLoader(loaders), autoescape=True, trim_blocks=True)


def data_address(kind: str, data: bytes) -> str:
    """Return bytes as an address that a page can show by itself."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
