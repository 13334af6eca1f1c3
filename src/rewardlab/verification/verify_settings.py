"""The settings of `rewardlab verify`."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.http_server.bearer_token import TOKEN_VARIABLE
from rewardlab.http_server.listening import require_port


@dataclass(frozen=True)
class VerifyPlan:
    """Start a local page on which people check the labels of a dataset; or write out what they have verified."""

    data: str = setting("dataset in the RoboReward layout: a folder with metadata.jsonl", positional=True)
    verdicts: Path | None = setting("SQLite file of the verdicts; by default DATA/verdicts.sqlite", None)
    overlap: float = setting("share of the rows that two people judge, from 0 to 1, to measure how far they agree", 0.2)
    seed: int = setting("seed of the order of rows, and of those that two people judge", 0)
    host: str = setting("address to listen on; by default nobody but this machine reaches it", "127.0.0.1")
    port: int = setting(f"port to listen on; 0 takes a free one; the token is {TOKEN_VARIABLE}, else a new one", 8010)
    export: Path | None = setting("write verified rows and their videos into this new folder, and serve nothing", None)

    def __post_init__(self) -> None:
        require_port(self.port)
        if not 0 <= self.overlap <= 1:
            raise PlanError(f"overlap must be a share from 0 to 1, got {self.overlap}")
