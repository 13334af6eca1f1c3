"""What an augmentation will ask at most, told before anything is spent, and what it has cost so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rewardlab.augmentation.augment_plan import AugmentPlan
from rewardlab.augmentation.provenance import SUCCESS, DatasetRow
from rewardlab.augmentation.teacher_questions import Role
from rewardlab.augmentation.teachers import NamedTeacher
from rewardlab.models.backends.ledger import Spent, SpentSoFar

_LEVELS = 4  # commands and clips made of a success


@dataclass(frozen=True)
class QuestionForecast:
    """Questions to each teacher, the least where every first answer is good and the most there can be."""

    successes: int
    least: dict[Role, int]
    most: dict[Role, int]
    teachers: dict[Role, NamedTeacher]
    spent: Spent

    @property
    def sentence(self) -> str:
        """Return all of it in one line."""
        asked = [
            f"{teacher.name} ({role}): {self.least[role]:,} to {self.most[role]:,} questions"
            + (" to a server" if teacher.server else "")
            for role, teacher in self.teachers.items()
        ]
        paid = [f"tokens and cost: {self._price()}"] if any(each.server for each in self.teachers.values()) else []
        return "; ".join([f"{self.successes:,} successes", *asked, *paid, "those answered before are not asked again"])

    def _price(self) -> str:
        """Return what a run from the beginning would cost by the answers so far."""
        spent = self.spent
        if not spent.replies:
            return "told after the first answers"
        least = sum(self.least[role] for role, teacher in self.teachers.items() if teacher.server)
        tokens = (spent.input_tokens + spent.output_tokens) / spent.replies * least
        cost = f"{spent.cost / spent.priced * least:.4g}" if spent.priced else "unknown"
        return f"about {tokens:,.0f} tokens or more, cost {cost} or more"


def forecast_questions(
    plan: AugmentPlan, rows: Sequence[DatasetRow], teachers: Mapping[Role, NamedTeacher]
) -> QuestionForecast:
    """Return what the stages of a plan ask about these rows."""
    sources = [row for row in rows if row.is_source]
    won = [row for row in sources if row.row.get("reward") == SUCCESS]
    unknown = sum(row.episode.truth.progress is None for row in won)
    made = len(rows) - len(sources)
    least: dict[Role, int] = {"vision": 0, "text": 0}
    most: dict[Role, int] = {"vision": 0, "text": 0}
    tries = plan.attempts

    def add(role: Role, fewest: int, largest: int) -> None:
        least[role] += fewest
        most[role] += largest

    if "rewrite" in plan.stages:
        tasks = len({str(row.row["task"]) for row in sources})
        add("text", tasks, tasks * tries)
    if "counterfactual" in plan.stages:
        add("text", _LEVELS * len(won), _LEVELS * len(won) * tries)
        add("vision", (2 + _LEVELS) * len(won), (2 + _LEVELS * tries) * len(won) * tries)
        made += _LEVELS * len(won)
    if "clip" in plan.stages:
        add("vision", _LEVELS * unknown, _LEVELS * unknown * tries * tries)
        made += _LEVELS * (len(won) - unknown)
    if "validate" in plan.stages:
        add("vision", 0, made * tries)
    return QuestionForecast(len(won), least, most, dict(teachers), SpentSoFar(plan.calls_folder).read())
