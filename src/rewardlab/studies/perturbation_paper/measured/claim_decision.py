"""When a claim holds: each question it asks has a number with an interval, and the intervals decide."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rewardlab.analysis.format import markdown_text
from rewardlab.metrics.condition_contrasts import ConditionMeans, ContrastEstimate, Weights

Answer = Literal["yes", "no", "open"]
Verdict = Literal["holds", "does not hold", "cannot be said"]
SURE = 0.95
RULE = (
    "A claim asks one or more questions: is this number above, or below, that bound? It **holds** if the 95 % interval "
    "of every one lies on the claim's side. It **does not hold** if the interval of at least one, widened for the "
    "number of questions (Bonferroni), lies on the other side. Otherwise, and where something was not measured, it "
    "**cannot be said**. For a claim that one case is enough to prove, the two rules change places."
)


@dataclass(frozen=True)
class Question:
    """Is this weighted sum of means above the bound, or below it?"""

    words: str
    means: ConditionMeans
    weights: Weights
    bound: float = 0.0
    above: bool = True

    def estimate(self, confidence: float = SURE) -> ContrastEstimate:
        """Return the number that is asked for."""
        return self.means.combined(self.weights, confidence)

    def answer(self, confidence: float = SURE) -> Answer:
        """Return what the interval says; open where it holds the bound or is unknown."""
        found = self.estimate(confidence)
        if not found.low <= found.high or found.low <= self.bound <= found.high:
            return "open"
        return "yes" if (found.low > self.bound) == self.above else "no"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, where it stands, what it is taken to mean, and the questions that decide it."""

    sentence: str
    where: str
    meaning: str
    questions: Sequence[Question]
    one_is_enough: bool = False

    @property
    def verdict(self) -> Verdict:
        """Return what the questions say together."""
        each = [question.answer() for question in self.questions]
        strict = [question.answer(1 - (1 - SURE) / len(each)) for question in self.questions]
        if self.one_is_enough:
            proved, refuted = "yes" in strict, set(each) == {"no"}
        else:
            proved, refuted = set(each) == {"yes"}, "no" in strict
        return "holds" if proved else "does not hold" if refuted else "cannot be said"


def claims_page(claims: Sequence[Claim], head: str, not_judged: Sequence[str]) -> str:
    """Return the claims in Markdown: all verdicts first, then each with its meaning and every number behind it."""
    lines = ["# What the paper claims, and what was measured", "", head, "", RULE, ""]
    lines += ["| | the paper says | where | verdict | questions |", "|---|---|---|---|---|"]
    for place, claim in enumerate(claims, start=1):
        answers = [question.answer() for question in claim.questions]
        counts = ", ".join(f"{answers.count(kind)} {kind}" for kind in ("yes", "no", "open") if kind in answers)
        lines.append(f"| {place} | {claim.sentence} | {claim.where} | **{claim.verdict}** | {counts} |")
    for place, claim in enumerate(claims, start=1):
        lines += ["", f"## {place}. {claim.sentence}: {claim.verdict}", "", f"Taken to mean: {claim.meaning}.", ""]
        lines += [f"- {_finding(question)}" for question in claim.questions]
    lines += ["", "## Not judged", "", *(f"- {sentence}" for sentence in not_judged)]
    return "\n".join(lines) + "\n"


def _finding(question: Question) -> str:
    found, side = question.estimate(), "above" if question.above else "below"
    number = "not measured" if found.value != found.value else f"{found.value:.3f} {found.ends}"
    return f"{question.answer()}: {markdown_text(question.words)}: {number}, {side} {question.bound:g}?"
