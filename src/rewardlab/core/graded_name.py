"""Names of perturbations at a severity between the whole ones: `low_light@2.3125`, and pairs `a@1.5+b@2`."""

import re
from collections.abc import Sequence

GradedPart = tuple[str, float]  # a perturbation and its severity, above 0 and at most 4
_PART = r"(.+?)@(\d+(?:\.\d+)?)"
_GRADED = re.compile(rf"{_PART}(?:\+{_PART})?")


def graded_name(parts: Sequence[GradedPart]) -> str:
    """Return the name; one change at a whole severity goes by its plain name, as in a stress test."""
    if len(parts) == 1 and parts[0][1] == int(parts[0][1]):
        return parts[0][0]
    return "+".join(f"{name}@{severity:g}" for name, severity in parts)


def graded_parts(name: str) -> tuple[GradedPart, ...]:
    """Return the changes and severities that a name states; none where it states no severity."""
    found = _GRADED.fullmatch(name)
    if found is None:
        return ()
    first, at, second, second_at = found.groups()
    return ((first, float(at)),) if second is None else ((first, float(at)), (second, float(second_at)))
