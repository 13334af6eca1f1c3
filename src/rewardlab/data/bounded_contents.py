"""Contents of a dataset whose episodes are made one by one, with a bound on how many are read."""

from collections.abc import Callable, Iterable

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROWS
from rewardlab.data.contract import Contents, Problem


def bounded_contents(found: Iterable[tuple[str, Callable[[], Episode]]], thing: str) -> Contents:
    """Return the episodes that can be made and why others cannot; `thing` is what one is made of, such as a row."""
    episodes: list[Episode] = []
    problems: list[Problem] = []
    for place, make in found:
        if len(episodes) + len(problems) == ROWS.value:
            problems.append(Problem(place, f"this {thing} and those after it are not read, {ROWS.describe()}"))
            break
        try:
            episodes.append(make())
        except DataError as error:
            problems.append(Problem(place, str(error)))
    return Contents(tuple(episodes), tuple(problems))
