"""Semantic perturbations: the same wish in other words, or another wish for the same video."""

from rewardlab.perturb.instruction.directional import colour_swap, object_swap, relation_flip
from rewardlab.perturb.instruction.filler import irrelevant_detail, polite_filler
from rewardlab.perturb.instruction.language import language
from rewardlab.perturb.instruction.meaning import paraphrase, synonym
from rewardlab.perturb.instruction.number_form import number_form
from rewardlab.perturb.instruction.order import ambiguous_reference, word_order
from rewardlab.perturb.instruction.probes import completion_claim, metadata_leak, prompt_injection
from rewardlab.perturb.instruction.surface import case_spacing, char_edit, ocr_confusion, typo_keyboard
from rewardlab.perturb.instruction.wishes import added_requirement, negation, task_swap

INSTRUCTION = (
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
