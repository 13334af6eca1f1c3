"""What an augmentation made, as a person reads it on a terminal: one line for each stage, and what was asked."""

from collections.abc import Mapping

from rewardlab.augmentation.augment_dataset import Augmented, StageReport


def augmentation_lines(made: Augmented) -> list[str]:
    """Return one line for each stage, and one for the questions."""
    return [*map(_stage_line, made.stages), f"questions asked: {_counts(made.asked)}; known: {_counts(made.known)}"]


def _stage_line(report: StageReport) -> str:
    levels = ", ".join(f"{level}: {count:,}" for level, count in report.levels.items())
    refused = f", {report.rejected:,} refused" if report.rejected else ""
    return f"{report.stage}: {report.kept:,} rows{refused}; by level {levels}; {report.folder}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items()) or "none"
