"""What a request says that its body is, and one sentence for what is wrong inside."""

from typing import Any

from starlette.requests import Request


def media_type(request: Request) -> str:
    """Return the content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def validation_sentence(errors: Any) -> str:
    """Return what is wrong with a request, without a word of the request itself."""
    parts = [f"{'.'.join(str(step) for step in error['loc'])}: {error['msg']}" for error in errors[:3]]
    return "; ".join(parts).encode("utf-8", "replace").decode()[:400]
