"""The paper's claims as questions that intervals decide."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.evaluation.display import markdown_text
from rewardlab.metrics.paired_differences import ConditionMeans, ContrastEstimate, Weights, less
from rewardlab.metrics.robustness import BOTH_TAILS
from rewardlab.studies.perturbation_paper.measured import MeasuredStudy, at, over_categories
from rewardlab.studies.perturbation_paper.paper import (
    CATEGORIES,
    COARSE,
    PRECISE,
    RELIABLE_AT,
    ROLES,
    STATED_TAU,
    TASK_SEVERITY,
    WORST,
)

Answer = Literal["yes", "no", "open"]
Verdict = Literal["supported", "contradicted", "inconclusive"]
SURE = 0.95
RULE = (
    "A claim asks one or more questions: is this number above, or below, that bound? It is **supported** if the 95 % "
    "interval of every one lies on the claim's side. It is **contradicted** if the interval of at least one, widened "
    "for the number of questions (Bonferroni), lies on the other side. Otherwise, and where something was not "
    "measured, it is **inconclusive**. For a claim that one case is enough to prove, the two rules change places. "
    "Claims on reliability have intervals of 90 %, whose ends are the one-sided 95 % bounds of reliability.csv. What a "
    "general model loses is inconclusive where it is not better than a constant when nothing is changed: it has "
    "nothing to lose."
)


@dataclass(frozen=True)
class Question:
    """Is this weighted sum of means above the bound, or below it?"""

    words: str
    means: ConditionMeans
    weights: Weights
    bound: float = 0.0
    above: bool = True
    confidence: float = SURE

    def estimate(self, together: int = 1) -> ContrastEstimate:
        """Return the number that is asked for, with the interval of one of so many questions."""
        return self.means.combined(self.weights, 1 - (1 - self.confidence) / together)

    def answer(self, together: int = 1) -> Answer:
        """Return what the interval says; open where it holds the bound or is unknown."""
        found = self.estimate(together)
        if not found.low <= found.high or found.low <= self.bound <= found.high:
            return "open"
        return "yes" if (found.low > self.bound) == self.above else "no"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, where it stands, what it is taken to mean, and the questions that decide it.

    With a reason why they cannot, `undecidable`, nothing decides it.
    """

    sentence: str
    where: str
    meaning: str
    questions: Sequence[Question]
    one_is_enough: bool = False
    undecidable: str = ""

    @property
    def verdict(self) -> Verdict:
        """Return what the questions say together."""
        if self.undecidable:
            return "inconclusive"
        each = [question.answer() for question in self.questions]
        strict = [question.answer(len(each)) for question in self.questions]
        if self.one_is_enough:
            proved, refuted = "yes" in strict, set(each) == {"no"}
        else:
            proved, refuted = set(each) == {"yes"}, "no" in strict
        return "supported" if proved else "contradicted" if refuted else "inconclusive"


def claims_page(claims: Sequence[Claim], head: str, not_judged: Sequence[str]) -> str:
    """Return the claims in Markdown: all verdicts first, then each with its meaning and every number behind it."""
    lines = ["# What the paper claims, and what was measured", "", head, "", RULE, ""]
    lines += ["| | the paper says | where | verdict | questions |", "|---|---|---|---|---|"]
    for place, claim in enumerate(claims, start=1):
        answers = [question.answer() for question in claim.questions]
        counts = ", ".join(f"{answers.count(kind)} {kind}" for kind in ("yes", "no", "open") if kind in answers)
        lines.append(f"| {place} | {claim.sentence} | {claim.where} | **{claim.verdict}** | {counts} |")
    for place, claim in enumerate(claims, start=1):
        meaning = f"Taken to mean: {claim.meaning}. {claim.undecidable}".strip()
        lines += ["", f"## {place}. {claim.sentence}: {claim.verdict}", "", meaning, ""]
        for question in claim.questions:
            found, side = question.estimate(), "above" if question.above else "below"
            number = "not measured" if found.value != found.value else f"{found.value:.3f} {found.ends}"
            words = f"{question.answer()}: {markdown_text(question.words)}"
            lines.append(f"- {words}: {number}, {side} {question.bound:g}?")
    lines += ["", "## Not judged", "", *(f"- {sentence}" for sentence in not_judged)]
    return "\n".join(lines) + "\n"


_BALANCED = "balanced_success_accuracy"
_NEAR = 0.03  # how far a measured change may lie from the stated one and still be the same
_MODERATE, _CLOSE = 2, 0.75  # our reading of moderate perturbations, and of approaching an accuracy of 0.70
NOT_JUDGED = (
    "Calibration: the paper measures a shift and states no number. Ours is in every.csv; `null` is what a calibrated "
    "model stays below in 95 % of studies of this size.",
    "That the ensemble takes more time: in a run its members' answers are shared with it, so its own time is not seen.",
)
_LOST = f"accuracy lost from clean to severity {WORST}, each cell that keeps its label against its own clean episode"


def paper_claims(study: MeasuredStudy) -> list[Claim]:
    """Return every claim that numbers can decide."""
    blind = _nothing_to_lose(study)
    losses, tasks = ([replace(claim, undecidable=blind) for claim in make(study)] for make in (_losses, _tasks))
    others = [claim for make in (_accuracies, _orders, _thresholds) for claim in make(study)]
    return [*losses, *others, *tasks]


def _nothing_to_lose(study: MeasuredStudy) -> str:
    """Say that no training of the general model is better than a constant undisturbed; nothing where one is."""
    clean = [study.summary.clean(name, _BALANCED) for name in study.trainings(study.model("general"))]
    ends = [(each.low, each.high) for each in clean if each.low is not None and each.high is not None]
    if not ends or any(low > 0.5 for low, _ in ends):
        return ""
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return (
        f"{study.part('general')}, undisturbed: balanced accuracy between {low:.2f} and {high:.2f}, a constant has 0.5."
    )


def _losses(study: MeasuredStudy) -> Iterator[Claim]:
    worst = {category: at(study.model("general"), category, WORST) for category in CATEGORIES}
    mean = {role: over_categories(study.model(role), WORST) for role in ROLES}
    yield Claim(
        "the general model degrades most",
        "abstract",
        f"{_LOST}, mean over categories",
        [
            _more(study.loss, f"{study.part('general')} less {study.part(other)}", mean["general"], mean[other])
            for other in ("tuned", "ensemble")
        ],
    )
    yield Claim(
        "under visual change the general model loses 11.8 points (12.7 %)",
        "abstract, 3.1",
        f"{_LOST}, within {_NEAR:g} of 0.118",
        _within(study.loss, f"{study.part('general')}, visual", worst["visual"], 0.118),
    )
    yield Claim(
        "the general model is most sensitive to visual and temporal change",
        "Figure 1",
        f"{_LOST}, each of the two against each of the other two",
        [
            _more(study.loss, f"{study.part('general')}, {one} less {other}", worst[one], worst[other])
            for one in ("visual", "temporal")
            for other in ("semantic", "domain")
        ],
    )
    yield Claim(
        "the tuned model is less sensitive to visual and temporal change than the general one",
        "2.1, 4",
        _LOST,
        [_gap(study, study.loss, "general", "tuned", category) for category in ("visual", "temporal")],
    )
    yield Claim(
        "the tuned model is more sensitive to semantic change than the general one",
        "2.1, 3.1, 4",
        _LOST,
        [_gap(study, study.loss, "tuned", "general", "semantic")],
    )
    yield Claim(
        "the ensemble is the least sensitive in every category",
        "2.1",
        _LOST,
        [_gap(study, study.loss, other, "ensemble", c) for c in CATEGORIES for other in ("general", "tuned")],
    )


def _accuracies(study: MeasuredStudy) -> Iterator[Claim]:
    yield Claim(
        "when nothing is changed, the general model is the worst",
        "2.1",
        "accuracy on clean episodes, against both other models",
        [_gap(study, study.accuracy, other, "general", CLEAN, 0) for other in ("tuned", "ensemble")],
    )
    yield Claim(
        "the tuned model stays at 91.8 % under all visual change",
        "abstract, 3.1",
        "accuracy at every severity from 1 on",
        [_accurate(study, "tuned", "visual", severity, 0.918) for severity in SEVERITIES[1:]],
    )
    yield Claim(
        "the ensemble has the best worst case in every category",
        "abstract, 3.2, 4",
        f"accuracy at severity {WORST}, against both other models",
        [_gap(study, study.accuracy, "ensemble", other, c) for c in CATEGORIES for other in ("general", "tuned")],
    )
    yield Claim(
        "the ensemble's worst case is above 83 %",
        "3.2",
        f"accuracy at severity {WORST} in every category",
        [_accurate(study, "ensemble", category, WORST, 0.83) for category in CATEGORIES],
    )


def _orders(study: MeasuredStudy) -> Iterator[Claim]:
    # True progress has ties, so that no model without ties can meet a bound above the ceiling.
    models = [name for role in ROLES for name in study.trainings(study.model(role))]
    ceilings = [study.summary.clean(name, "progress_tau_b_ceiling").value for name in models]
    known = [value for value in ceilings if value is not None]
    most = f" (progress without ties reaches at most {min(known):.2f} on clean episodes)" if known else ""
    words = f"tau-b of progress with true progress within an episode{most}, mean over categories"
    mean = {(role, severity): over_categories(study.model(role), severity) for role in ROLES for severity in SEVERITIES}
    fall = round(STATED_TAU["general"][0] - STATED_TAU["general"][WORST], 3)
    yield Claim(
        "the general model's tau falls from .97 to .82",
        "abstract, 3.3",
        f"{words}: lost from clean to severity {WORST}, within {_NEAR:g} of {fall:g}",
        _within(study.tau_loss, study.part("general"), mean["general", WORST], fall),
    )
    yield Claim(
        "the ensemble's tau stays above .93",
        "abstract, 3.3",
        f"{words}, at every severity",
        [Question(f"{study.part('ensemble')}, severity {s}", study.tau, mean["ensemble", s], 0.93) for s in SEVERITIES],
    )
    yield Claim(
        "the ensemble preserves rank order best",
        "4",
        f"{words}, at severity {WORST}, against both other models",
        [
            _more(study.tau, f"{study.part('ensemble')} less {study.part(r)}", mean["ensemble", WORST], mean[r, WORST])
            for r in ("general", "tuned")
        ],
    )


def _thresholds(study: MeasuredStudy) -> Iterator[Claim]:
    yield Claim(
        "the general model is unreliable from severity 1 on in every category",
        "abstract, 3.4",
        f"accuracy at severity 1 below {RELIABLE_AT:g}",
        [_reliable(study, "general", category, 1, above=False) for category in CATEGORIES],
    )
    for role, name, last, stated in (("tuned", "the tuned model", 3, "3-5"), ("ensemble", "the ensemble", 4, "4-5")):
        yield Claim(
            f"{name} is reliable up to severity {stated}",
            "3.4" if role == "tuned" else "abstract, 3.4",
            f"accuracy of {RELIABLE_AT:g} or more up to severity {last} in every category",
            [_reliable(study, role, c, s) for c in CATEGORIES for s in range(1, last + 1)],
        )
    yield Claim(
        "even the best models come close to unreliability at moderate severity",
        "4",
        f"in some category, the best of the judged models is below {_CLOSE:g} at severity {_MODERATE}",
        [_best(study, category) for category in CATEGORIES],
        one_is_enough=True,
    )


def _best(study: MeasuredStudy, category: str) -> Question:
    """Ask about the model that was measured to be the best in a category."""
    found = {m: study.accuracy.combined(at(m, category, _MODERATE)).value for m in study.evaluated}
    best = max(found, key=lambda model: (found[model] == found[model], found[model]))
    words = f"accuracy of {study.shown(best)}, {category}, severity {_MODERATE}"
    return Question(words, study.accuracy, at(best, category, _MODERATE), _CLOSE, above=False)


def _tasks(study: MeasuredStudy) -> Iterator[Claim]:
    present = {condition[1] for condition in study.group_loss.places}
    precise, coarse = ([g for g in kind if g in present] or kind for kind in (PRECISE, COARSE))
    gaps = {
        role: less(study.groups_evenly(study.model(role), precise), study.groups_evenly(study.model(role), coarse))
        for role in ROLES
    }
    words = f"accuracy lost at severity {TASK_SEVERITY}, {' and '.join(precise)} less {' and '.join(coarse)}"
    yield Claim(
        "tasks that need precision lose more",
        "3.5, Figure 3",
        f"{words}, for every model",
        [Question(study.part(role), study.group_loss, gap) for role, gap in gaps.items()],
    )
    yield Claim(
        "tasks that need precision lose more above all with the general model",
        "3.5, Figure 3",
        f"{words}, larger for the general model",
        [
            _more(study.group_loss, f"{study.part('general')} less {study.part(r)}", gaps["general"], gaps[r])
            for r in ("tuned", "ensemble")
        ],
    )


def _more(means: ConditionMeans, words: str, one: Weights, other: Weights) -> Question:
    return Question(words, means, less(one, other))


def _gap(
    study: MeasuredStudy, means: ConditionMeans, one: str, other: str, category: str, severity: int = WORST
) -> Question:
    """Ask whether one role has more than another in a category."""
    sides = (at(study.model(role), category, severity) for role in (one, other))
    return _more(means, f"{study.part(one)} less {study.part(other)}, {category}", *sides)


def _accurate(
    study: MeasuredStudy, role: str, category: str, severity: int, bound: float, *, above: bool = True
) -> Question:
    words = f"{study.part(role)}, {category}, severity {severity}"
    return Question(words, study.accuracy, at(study.model(role), category, severity), bound, above)


def _reliable(study: MeasuredStudy, role: str, category: str, severity: int, *, above: bool = True) -> Question:
    """Ask as reliability.csv does: of the one-sided bounds."""
    return replace(_accurate(study, role, category, severity, RELIABLE_AT, above=above), confidence=BOTH_TAILS)


def _within(means: ConditionMeans, words: str, weights: Weights, stated: float) -> list[Question]:
    """Ask whether a change is the stated one, give or take what we call the same."""
    ends = {True: round(stated - _NEAR, 3), False: round(stated + _NEAR, 3)}
    return [Question(words, means, weights, end, above) for above, end in ends.items()]
