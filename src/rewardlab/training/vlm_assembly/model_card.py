"""The card of an assembled model: what it is made of, under which licences, and what it is not yet."""

from rewardlab.training.vlm_assembly.plan import AssemblePlan
from rewardlab.training.vlm_assembly.upstream import Upstream

_CARD = """# {name}

Put together by `rewardlab assemble-vlm`: {family} of transformers around two models that were trained apart.

| part | model | licence | type |
|---|---|---|---|
| vision tower | {vision.name} | {vision.licence} | {vision.kind} |
| language model | {language.name} | {language.licence} | {language.kind} |
| projector | {projector} | | |

A frame is {tokens} tokens. {weights} Added are a token `<image>` in the vocabulary and
positions of the vision tower for frames of this size.

{trained} Whoever passes the folder on is bound by the licences above.
"""


# The projector, the weights of the two models, and what may be expected.
_RANDOM = (
    "two layers, random, seed {seed}",
    "The weights of the two models are unchanged.",
    "**Not trained.** The projector is random: what the model says about images means nothing until it is trained.\n"
    "Text alone is answered as by the language model.",
)
_TRAINED = (
    "two layers, of the adapter",
    "The vision tower is unchanged; adapters of `rewardlab train vlm` are merged into the language model.",
    "**Trained by** `rewardlab train vlm`, which wrote the adapters; the card beside them says on what.",
)


def model_card(vision: Upstream, language: Upstream, plan: AssemblePlan) -> str:
    """Return the text of the model card."""
    said = _RANDOM if plan.adapter is None else _TRAINED
    family = "LLaVA" if plan.pool == 1 else "Aya Vision"
    named = {"name": plan.out.name, "vision": vision, "language": language, "tokens": plan.tokens, "family": family}
    projector, weights, trained = (text.format(seed=plan.seed, adapter=plan.adapter) for text in said)
    return _CARD.format(**named, projector=projector, weights=weights, trained=trained)
