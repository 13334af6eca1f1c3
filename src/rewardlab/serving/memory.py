"""The memory of a server: one budget of decoded bytes that requests, connections and sessions share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from rewardlab.core.limits import SERVER_MB
from rewardlab.serving.listening import RequestRejected


@dataclass(eq=False)
class MemoryBudget:
    """Counts the bytes that a server holds for its clients."""

    held: int = 0
    reclaim: Callable[[], None] = lambda: None  # called when the memory is full: lets go of what nobody uses
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(eq=False)
class MemoryShare:
    """What one request, connection or session holds of the memory of a server."""

    budget: MemoryBudget
    held: int = 0

    def take(self, nbytes: int) -> None:
        """Count bytes before they are allocated; reject with 413 what never fits, with 503 what does not fit now."""
        if self.held + nbytes > SERVER_MB.in_bytes:
            size = f"{(self.held + nbytes) / 1e6:,.0f} MB of memory once decoded"
            raise RequestRejected(413, f"this needs {size}: {SERVER_MB.describe(' MB')}")
        if not self._fits(nbytes):
            self.budget.reclaim()
            if not self._fits(nbytes):
                reason = "requests and sessions fill the memory of this server; close sessions or try again later"
                raise RequestRejected(503, reason, 1)

    def give_back(self, nbytes: int | None = None) -> None:
        """Count bytes as free again; all of this share by default."""
        with self.budget.lock:
            freed = self.held if nbytes is None else nbytes
            self.held -= freed
            self.budget.held -= freed

    def _fits(self, nbytes: int) -> bool:
        with self.budget.lock:
            if self.budget.held + nbytes > SERVER_MB.in_bytes:
                return False
            self.held += nbytes
            self.budget.held += nbytes
            return True
