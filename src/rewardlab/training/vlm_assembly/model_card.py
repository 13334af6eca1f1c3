"""The card of an assembled model: what it is made of, under which licences, and what it is not yet."""

from rewardlab.training.vlm_assembly.plan import AssemblePlan
from rewardlab.training.vlm_assembly.upstream import Upstream

_CARD = """# {name}

Put together by `rewardlab assemble-vlm`: LLaVA of transformers around two models that were trained apart.

| part | model | licence | type |
|---|---|---|---|
| vision tower | {vision.name} | {vision.licence} | {vision.kind} |
| language model | {language.name} | {language.licence} | {language.kind} |
| projector | two layers, random, seed {seed} | | |

A frame is {tokens} tokens. The weights of the two models are unchanged, but for a token `<image>` in the vocabulary and
positions of the vision tower for frames of this size.

**Not trained.** The projector is random: what the model says about images means nothing until it is trained. Text alone
is answered as by the language model. Whoever passes the folder on is bound by the licences above.
"""


def model_card(vision: Upstream, language: Upstream, plan: AssemblePlan) -> str:
    """Return the text of the model card."""
    return _CARD.format(name=plan.out.name, vision=vision, language=language, tokens=plan.tokens, seed=plan.seed)
