"""Semantic perturbations: the same goal in other words, or another goal for the same video."""

from rewardlab.perturbations.semantic.goal_changes import added_requirement, negation, task_swap
from rewardlab.perturbations.semantic.irrelevant_text import irrelevant_detail, polite_filler
from rewardlab.perturbations.semantic.number_spelling import number_form
from rewardlab.perturbations.semantic.paraphrase import paraphrase, synonym
from rewardlab.perturbations.semantic.prompt_injection import completion_claim, metadata_leak, prompt_injection
from rewardlab.perturbations.semantic.swaps import colour_swap, object_swap, relation_flip
from rewardlab.perturbations.semantic.translation import language
from rewardlab.perturbations.semantic.typos import case_spacing, char_edit, ocr_confusion, typo_keyboard
from rewardlab.perturbations.semantic.underspecification import ambiguous_reference
from rewardlab.perturbations.semantic.word_order import word_order

SEMANTIC = (
    typo_keyboard,
    char_edit,
    ocr_confusion,
    case_spacing,
    number_form,
    polite_filler,
    irrelevant_detail,
    synonym,
    paraphrase,
    word_order,
    language,
    ambiguous_reference,
    colour_swap,
    object_swap,
    relation_flip,
    negation,
    added_requirement,
    task_swap,
    completion_claim,
    metadata_leak,
    prompt_injection,
)
