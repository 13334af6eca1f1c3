"""A shelf: what was used last is kept, up to so many bytes."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Shelf(Generic[Thing]):
    """Keeps things by the name of their content; the one used longest ago goes first when room is short."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used_bytes = 0
        self._kept: OrderedDict[str, tuple[Thing, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, name: str) -> Thing | None:
        """Return the thing of this name, which now counts as used last; None if it is not here."""
        if name not in self._kept:
            return None
        self._kept.move_to_end(name)
        return self._kept[name][0]

    def put(self, name: str, thing: Thing, size: int) -> None:
        """Keep a thing of so many bytes, unless it alone is too big for the shelf."""
        if name in self._kept:
            self.used_bytes -= self._kept.pop(name)[1]
        if size > self.most_bytes:
            return
        while self.used_bytes + size > self.most_bytes:
            self.used_bytes -= self._kept.popitem(last=False)[1][1]
        self._kept[name] = (thing, size)
        self.used_bytes += size

    def things(self) -> Iterator[tuple[str, Thing]]:
        """Yield every name and thing, the one used last first."""
        return ((name, thing) for name, (thing, _) in reversed(self._kept.items()))
