"""The findings of a summary as sentences, and what paid models have cost."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from rewardlab.core.summary import Measurement, Summary, in_control_order
from rewardlab.core.terminal import counted
from rewardlab.evaluation.display import format_coverage, format_interval, format_number, format_threshold, listed
from rewardlab.evaluation.findings import tested_severity
from rewardlab.metrics import metrics_shown
from rewardlab.metrics.abstention import abstention_recall, false_abstention_rate
from rewardlab.metrics.accuracy import instruction_grounding, micro_mae, success_auc_within_subset
from rewardlab.metrics.contract import COVERED_END, Metric
from rewardlab.models.ledger import Spent, spent_by_model

_TASK_KINDS = {"seen": "tasks seen in training", "unseen": "tasks not seen in training"}
_HARD = {"same verb, other object": ("instruction_swap", 2), "same object, other verb": ("instruction_swap", 3)}


def findings(summary: Summary, model: str) -> list[str]:
    """Return the findings of a model, one sentence each."""
    counts = summary.outcomes(model)
    unreadable, asked = counts.unreadable, counts.scored + counts.failed
    broken = [entry for entry in summary.worst if entry.model == model and entry.expectation_kept < 1]
    worst = [f"{entry.perturbation} ({format_number(entry.expectation_kept)})" for entry in broken[:3]]
    sentences = [
        summary.caveat(model),
        _clean_sentence(summary, model) if summary.labelled else _unlabelled_sentence(summary, model),
        _familiarity_sentence(summary, model),
        f"Of {asked:,} answers {unreadable:,} ({unreadable / asked:.1%}) could not be parsed." if unreadable else "",
        abstention_sentence(summary, model),
        _reliable_sentence(summary, model),
        noise_sentence(summary, model),
        *control_sentences(summary, model),
        f"It keeps the fewest expectations under {listed(worst)}." if worst else "",
    ]
    return [sentence for sentence in sentences if sentence]


def _clean_sentence(summary: Summary, model: str) -> str:
    error, success = summary.clean(model, "macro_mae"), summary.clean(model, "success_accuracy")
    if error.value is None and success.value is None:
        return f"It has no result on clean episodes ({format_coverage(success)} scored)."
    off = f"error is {format_number(error.value)} levels {format_interval(error)}, averaged over subsets"
    right = f"success accuracy is {format_number(success.value)} {format_interval(success)}"
    said = ", and its ".join(text for text, row in ((off, error), (right, success)) if row.value is not None)
    return f"On clean episodes its {said} ({format_coverage(success)} scored)."


def _unlabelled_sentence(summary: Summary, model: str) -> str:
    top = summary.highest_severity
    rows = [(name, summary.measurement(model, name, top, "expectation_kept")) for name in summary.categories]
    said = [f"{name} {format_number(r.value)} {format_interval(r)}".strip() for name, r in rows if r.value is not None]
    return f"Expectations kept at severity {top}: {', '.join(said)}." if said else ""


def noise_sentence(summary: Summary, model: str) -> str:
    """Return how far a model's answers move when the same is asked again; nothing without repeats."""
    noise = summary.noise_of(model)
    if noise is None:
        return ""
    if noise.deterministic:
        return "It is deterministic, so its noise floor is 0; each trial was scored once."
    if noise.changed is None:
        return (
            f"Its noise floor is unknown: no trial got two of {noise.askings} answers ({noise.asked:,} trials asked)."
        )
    floors = [
        f"{format_number(floor)} {what}"
        for floor, what in ((noise.macro_mae, "levels of MAE"), (noise.success_accuracy, "of success accuracy"))
        if floor is not None
    ]
    below = f"; two askings of all clean episodes differ by up to {' and '.join(floors)}" if floors else ""
    return (
        f"Asked {noise.askings} times, two answers to one trial have different levels in {noise.changed:.1%} of cases "
        f"{format_interval(noise)} ({noise.scored:,}/{noise.asked:,} trials){below} (95 %)."
    )


def abstention_sentence(summary: Summary, model: str) -> str:
    """Return how often a model abstains where it must and where it must not; nothing where it cannot."""
    alarms = summary.clean(model, false_abstention_rate.name)
    recall = _abstention_recall(summary, model)
    if not alarms.scored and recall is None:
        return ""
    said = (
        [f"abstains on {format_number(alarms.value)} {format_interval(alarms)} of clean clips"] if alarms.scored else []
    )
    if recall is not None:
        value = f"{format_number(recall.value)} {format_interval(recall)}"
        said.append(f"on {value} of clips whose end is hidden ({format_coverage(recall)} answered)")
    else:
        said.append("no clip of this run hides its end, so its recall is unknown: --perturbations covered_end")
    return f"It {'; '.join(said)}."


def _abstention_recall(summary: Summary, model: str) -> Measurement | None:
    """Return the recall where most is hidden; None where no clip hides its end."""
    rows = [summary.measurement(model, COVERED_END, s, abstention_recall.name) for s in summary.severities]
    return next((row for row in rows[::-1] if row.scored), None)


def no_labels_sentence(data: Sequence[str]) -> str:
    """Return what a run on episodes without labels measures, and the commands that add labels."""
    commands = listed([f"`rewardlab data verify {quote(name)}`" for name in data])
    return (
        "These episodes have no labels, so nothing here shows whether a reward is right. The main number is the share "
        f"of expectations kept under change, which needs no labels. To add labels, run {commands}."
    )


def _familiarity_sentence(summary: Summary, model: str) -> str:
    """Return the error on tasks that it was trained on, and on others, where that is known."""
    found = [(words, summary.familiar(model, kind, "micro_mae")) for kind, words in _TASK_KINDS.items()]
    said = [
        f"{format_number(row.value)} {format_interval(row)} on {words} ({row.episodes} episodes; constant "
        f"{format_number(row.blind)})"
        for words, row in found
        if row is not None
    ]
    return f"Its MAE is {' and '.join(said)}." if said else ""


def data_sentences(summary: Summary) -> list[str]:
    """Return where the data are too few, or lack the labels, to certify even a perfect model."""
    none = list(summary.unlabelled) if summary.labelled else []  # without any label, that is said first
    sentences = [f"Nothing can be certified under {listed(none)}: no trial there has a success label."] if none else []
    small: dict[str, list[str]] = {}  # categories by the data that they have and need
    for entry in summary.too_small:
        enough = "no number is enough; lower --accuracy-threshold"
        if entry.clusters_needed:
            enough = f"{entry.clusters_needed:,} tasks, about {entry.episodes_needed:,} episodes, are enough"
        small.setdefault(f"{entry.clusters} tasks in {entry.episodes} episodes ({enough})", []).append(entry.category)
    if small:
        said = [f"{listed(names)} {'has' if len(names) == 1 else 'have'} {text}" for text, names in small.items()]
        least = f"at a success accuracy of {summary.accuracy_threshold:.2f}"
        sentences.append(f"Too few episodes to certify any model, even the oracle, {least}: {'; '.join(said)}.")
    return sentences


def ceiling_sentence(summary: Summary) -> str:
    """Return how far tau-b can reach on the clean episodes that models answered; nothing where no tie lowers it."""
    found = [summary.clean(model, "kendall_tau_b_ceiling").value for model in summary.models]
    known = sorted({format_number(value) for value in found if value is not None})
    if not known or known == ["1.00"]:
        return ""
    reach = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}, depending on the episodes answered"
    return f"Ceiling of tau-b for scores without ties, as true levels are tied: {reach}."


def stage_metrics(summary: Summary) -> list[Metric]:
    """Return the metrics of long tasks that some clean episode was asked for; none where the data has no stages."""
    shown = metrics_shown(lambda display: display.stages)
    return [m for m in shown if any(summary.clean(model, m.name).asked for model in summary.models)]


def certified_text(summary: Summary, model: str, category: str) -> str:
    """Return up to which severity a model is certified, for a table; marked where a constant passes too."""
    reached, mark = _certified(summary, model, category)
    return f"{reached}, {mark}" if mark else reached


def certified_phrase(summary: Summary, model: str, category: str) -> str:
    """Return the same for a sentence."""
    reached, mark = _certified(summary, model, category)
    return f"{reached} ({mark})" if mark else reached


def _certified(summary: Summary, model: str, category: str) -> tuple[str, str]:
    certified = summary.threshold(model, category).certified
    if category in {entry.category for entry in summary.too_small}:
        return "too few tasks", ""
    if category in summary.unlabelled:
        return "no labels", ""
    if certified is None or certified < 0:
        return format_threshold(certified), ""
    tested = tested_severity(summary, model, category)
    if tested is None:
        return str(certified), "as is a constant"
    return str(certified), f"above {tested} as is a constant" if tested < certified else ""


def _reliable_sentence(summary: Summary, model: str) -> str:
    small = {*summary.unlabelled, *(entry.category for entry in summary.too_small)}
    found = [t for t in summary.thresholds if t.model == model and t.category not in small]
    if not found:
        return ""
    least = f"{summary.accuracy_threshold:.2f}"
    reached = [f"{threshold.category} {certified_phrase(summary, model, threshold.category)}" for threshold in found]
    if all(threshold.certified == -1 for threshold in found):
        return f"It is not certified at a success accuracy of {least} at any severity, not even on clean episodes."
    return f"Certified at a success accuracy of {least} up to severity: {', '.join(reached)}."


def control_sentences(summary: Summary, model: str) -> list[str]:
    """Return what a model does beyond the controls: by MAE, by success AUC, and by the words of the instruction."""
    said = (_controls_sentence, _auc_sentence, _grounding_sentence)
    return [sentence for each in said if (sentence := each(summary, model))]


def best_control_text(summary: Summary, model: str, metric: Metric) -> str:
    """Return the best that a control reaches on clean episodes, for a table; nothing without controls."""
    best = summary.best_control(model, metric.name, metric.better)
    return "" if best is None else f"{format_number(best.value)} ({best.model})"


def _auc_sentence(summary: Summary, model: str) -> str:
    metric = success_auc_within_subset
    own, best = summary.clean(model, metric.name), summary.best_control(model, metric.name, metric.better)
    if own.value is None or best is None:
        return ""
    wanted = (model, best.model, metric.name)
    check = next((c for c in summary.controls if (c.model, c.control, c.metric) == wanted), None)
    gain = f", a difference of {format_number(check.gain)} {format_interval(check)}" if check is not None else ""
    ours, theirs = (f"{format_number(row.value)} {format_interval(row)}" for row in (own, best))
    return f"Its {metric.title} is {ours}; the best control, {best.model}, has {theirs}{gain}."


def _grounding_sentence(summary: Summary, model: str) -> str:
    """Return how often a success scores higher under its own instruction, hard others apart; nothing if unmeasured."""
    name = instruction_grounding.name
    easy = summary.measurement(model, "semantic", 1, name)
    if easy.value is None:
        return ""
    hard = [(words, summary.measurement(model, *place, name)) for words, place in _HARD.items()]
    rows = [("", easy), *((f"; {words}: ", row) for words, row in hard if row.value is not None)]
    said = "".join(f"{words}{format_number(row.value)} {format_interval(row)}" for words, row in rows)
    return f"Share of successes that score higher under their own instruction than under another of the source: {said}."


def _controls_sentence(summary: Summary, model: str) -> str:
    wanted = (model, "clean", micro_mae.name)
    clean = [c for c in summary.controls if (c.model, c.where, c.metric) == wanted and c.trials]
    parts = []
    for kind in ("beats", "does not beat", "cannot tell"):
        names = in_control_order(check.control for check in clean if check.conclusion == kind)
        if names:
            words = {"cannot tell": "cannot be distinguished from"}.get(kind, kind)
            parts.append(f"{words} {listed(names)}")
    return f"On clean episodes it {'; it '.join(parts)} (paired MAE, Holm)." if parts else ""


def spending(folder: Path) -> list[str]:
    """Return what each paid model of a run has cost so far, one sentence each."""
    return [f"{model}: {spent_text(spent)}" for model, spent in spent_by_model(folder).items()]


def spent_text(spent: Spent) -> str:
    """Return requests, tokens and cost in a few words."""
    whole = spent.priced >= max(spent.requests, spent.replies)  # a request without a reply may have been charged
    cost = f"cost {spent.cost:.4g}{'' if whole else ' or more'}" if whole or spent.priced else "cost unknown"
    tokens = f"{spent.input_tokens:,} tokens read, {spent.output_tokens:,} written"
    return f"{counted(spent.requests, 'request')}, {tokens}, {cost}"
