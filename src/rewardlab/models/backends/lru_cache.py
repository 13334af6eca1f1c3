"""A cache bounded in bytes that evicts what was used least recently."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """Values by the key of their content; the least recently used goes first when room is short."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[str, tuple[Value, int]] = OrderedDict()

    def get(self, key: str) -> Value | None:
        """Return the value of this key, which now counts as used last; None if it is not here."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: str, value: Value, size: int) -> None:
        """Store a value of so many bytes, unless it alone is too big for the cache."""
        if key in self._entries:
            self.used_bytes -= self._entries.pop(key)[1]
        if size > self.max_bytes:
            return
        while self.used_bytes + size > self.max_bytes:
            self.used_bytes -= self._entries.popitem(last=False)[1][1]
        self._entries[key] = (value, size)
        self.used_bytes += size

    def items(self) -> Iterator[tuple[str, Value]]:
        """Yield every key and value, the most recently used first."""
        return ((key, value) for key, (value, _) in reversed(self._entries.items()))
