"""The vision-language models that every protocol can ask: those of the package, and `package.module:name` outside."""

from collections.abc import Collection

from rewardlab.core.catalog import find
from rewardlab.models.backends.hf import HF
from rewardlab.models.backends.openai import OPENAI
from rewardlab.models.external import is_module, make_external, name_external
from rewardlab.models.model_string import Pairs
from rewardlab.models.vlm import NamedVlm, VlmBackend, is_vlm

VLM_BACKENDS: dict[str, VlmBackend] = {"hf": HF, "openai": OPENAI}


def find_backend(name: str) -> VlmBackend:
    """Return the backend of this name, or one that takes an object of the module of this name as the model."""
    if name not in VLM_BACKENDS and is_module(name):
        return _external_backend(name)
    return find(VLM_BACKENDS, name, "VLM backend")


def _external_backend(module: str) -> VlmBackend:
    """Return the backend for `module:name`: a model, or a class or function that makes one from the options."""

    def named(name: str, pairs: Pairs, also: Collection[str]) -> NamedVlm:
        external = name_external(f"{module}:{name}", pairs, is_vlm, also)
        return NamedVlm(
            external.identity,
            lambda budget: make_external(external, is_vlm, "the methods of VisionLanguageModel"),
            external.shown,
            isolated=True,
        )

    return VlmBackend("a vision-language model outside the package", named)
