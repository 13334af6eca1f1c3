"""`openai:MODEL@URL`: any model behind an OpenAI-compatible chat-completions endpoint, local or hosted."""

from rewardlab.core.errors import PlanError
from rewardlab.models.backends.openai_options import OpenAIOptions, OpenAISpec, parse_endpoint
from rewardlab.models.contract import Budget
from rewardlab.models.vlm import VisionLanguageModel, VlmBackend


def _build(spec: OpenAISpec, budget: Budget) -> VisionLanguageModel:
    from rewardlab.models.backends.openai_vlm import OpenAIEndpoint

    if budget.max_cost is not None and min(spec.options.input_price, spec.options.output_price) < 0:
        raise PlanError(
            f"--max-cost needs the prices of {spec.model}: add ?input_price=...&output_price=... per million tokens, "
            "0 where it costs nothing"
        )
    return OpenAIEndpoint(spec, budget)


OPENAI = VlmBackend(
    "a vision-language model behind an OpenAI-compatible endpoint; openai:MODEL@URL, the key in OPENAI_API_KEY",
    parse=parse_endpoint,
    build=_build,
    identify=lambda spec: spec.url,  # the server does not say what weights it holds
    options=OpenAIOptions(),
    server=True,
)
