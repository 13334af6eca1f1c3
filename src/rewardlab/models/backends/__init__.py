"""The vision-language models that every protocol can ask: those of the package, and `package.module:name` outside."""

from typing import Any

from rewardlab.core.catalog_lookup import find, load_object
from rewardlab.core.seeding import digest
from rewardlab.models.backends.hf import HF
from rewardlab.models.backends.openai import OPENAI
from rewardlab.models.external import is_module, make_external
from rewardlab.models.vlm import NoOptions, VlmBackend, is_vlm

VLM_BACKENDS: dict[str, VlmBackend[Any]] = {"hf": HF, "openai": OPENAI}


def find_backend(name: str) -> VlmBackend[Any]:
    """Return the backend of this name, or one that takes an object of the module of this name as the model."""
    if name not in VLM_BACKENDS and is_module(name):
        return _external_backend(name)
    return find(VLM_BACKENDS, name, "VLM backend")


def _external_backend(module: str) -> VlmBackend[tuple[str, object, str]]:
    """Return the backend for `module:name`: a model, or a class or function that makes one without arguments."""

    def parse(name: str, options: NoOptions) -> tuple[str, object, str]:
        path = f"{module}:{name}"
        return path, *load_object(path)

    return VlmBackend(
        "a vision-language model outside the package",
        parse=parse,
        identify=lambda spec: digest(spec[0], spec[2]),
        build=lambda spec, _: make_external(spec[0], spec[1], is_vlm, "the methods of VisionLanguageModel"),
        outside=True,
    )
