"""Semantic perturbations: the same wish in other words, or another wish for the same video."""

from rewardlab.perturb.semantic.clause_order import ambiguous_reference, word_order
from rewardlab.perturb.semantic.empty_instructions import completion_claim, metadata_leak, prompt_injection
from rewardlab.perturb.semantic.filler import irrelevant_detail, polite_filler
from rewardlab.perturb.semantic.goal_changes import added_requirement, negation, task_swap
from rewardlab.perturb.semantic.number_format import number_form
from rewardlab.perturb.semantic.paraphrase import paraphrase, synonym
from rewardlab.perturb.semantic.swaps import colour_swap, object_swap, relation_flip
from rewardlab.perturb.semantic.translate import language
from rewardlab.perturb.semantic.typos import case_spacing, char_edit, ocr_confusion, typo_keyboard

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
