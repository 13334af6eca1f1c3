"""One real browser for the tests of a page; where there is none, those tests are skipped."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.real_browser import open_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser
