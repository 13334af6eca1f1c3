"""Why a request is refused: each reason knows its HTTP status."""

from rewardlab.core.errors import RewardlabError


class RefusedRequest(RewardlabError):
    """A request that is not answered; the client is told the status and the reason."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after  # seconds

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
