"""Semantic perturbations: the same goal in other words, or another goal for the same video."""

from rewardlab.perturbations.semantic.added_text import (
    completion_claim,
    irrelevant_detail,
    metadata_leak,
    polite_filler,
    prompt_injection,
)
from rewardlab.perturbations.semantic.goal_changes import added_requirement, ambiguous_reference, negation, task_swap
from rewardlab.perturbations.semantic.paraphrase import paraphrase, synonym, word_order
from rewardlab.perturbations.semantic.spelling import case_spacing, char_edit, number_form, ocr_confusion, typo_keyboard
from rewardlab.perturbations.semantic.swaps import colour_swap, object_swap, relation_flip
from rewardlab.perturbations.semantic.translation import language

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
