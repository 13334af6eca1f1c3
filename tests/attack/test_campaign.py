"""The page about reliability says what the long attack found, and names every file of attacks."""

import json
from pathlib import Path

from tests.attack.campaign import FULL, table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "results" / "reliability" / "README.md").read_text(encoding="utf-8")


def test_the_table_is_what_the_campaign_found_and_nothing_of_it_is_bad() -> None:
    record = json.loads((ROOT / "results" / "reliability" / "campaign.json").read_text(encoding="utf-8"))
    assert table(record) in PAGE
    assert {result["attack"]: result["tried"] for result in record["attacks"]} == FULL
    assert not any(result["bad"] for result in record["attacks"])


def test_every_file_of_attacks_is_named() -> None:
    files = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert [name for name in sorted(files) if f"`{name}`" not in PAGE] == []
