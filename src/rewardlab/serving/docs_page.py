"""The page at `/docs`: every endpoint with examples and a form to try it, made from the OpenAPI document."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import Any

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader

_URL = "http://127.0.0.1:8000"  # the script of the page puts the address of the server in its place
_JSON, _FORM = "application/json", "multipart/form-data"
_NO_CONTENT = "204"

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A value that a request takes: in its path, its query, a form or a JSON object."""

    name: str
    kind: str
    required: bool
    meaning: str
    example: object


@dataclass(frozen=True)
class Body:
    """One way to send a request: its content types, none without a body, with its fields and an example for curl."""

    content_types: tuple[str, ...]
    fields: tuple[Field, ...]
    example: object
    curl: str


@dataclass(frozen=True)
class Endpoint:
    """An endpoint as the page shows it; `answer` is the example of what comes back, `errors` the other statuses."""

    method: str
    path: str
    description: str
    bodies: tuple[Body, ...]
    parameters: tuple[Field, ...]
    query: tuple[Field, ...]
    status: str
    answer: str
    errors: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Return where on the page it stands."""
        return f"{self.method}{self.path}".replace("/", "-").replace("{", "").replace("}", "").lower()


@lru_cache(maxsize=1)
def docs_page(app: FastAPI) -> str:
    """Return the page as HTML; it loads nothing from other sites."""
    document = app.openapi()
    groups: dict[str, list[Endpoint]] = {tag["name"]: [] for tag in document["tags"]}
    errors: dict[str, list[str]] = {}  # what each status may mean
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups[operation["tags"][0]].append(_endpoint(document, path, method, operation))
            for status in _errors(operation):
                errors.setdefault(status, []).append(operation["responses"][status]["description"])
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    meanings = {status: "; or ".join(dict.fromkeys(errors[status])) for status in sorted(errors)}
    template = environment.get_template("docs_page.html")
    return template.render(groups=groups, errors=meanings, version=app.version, url=_URL)


def _endpoint(document: Schema, path: str, method: str, operation: Schema) -> Endpoint:
    given = operation.get("parameters", ())
    parameters = {place: tuple(map(_parameter, (p for p in given if p["in"] == place))) for place in ("path", "query")}
    content = operation.get("requestBody", {}).get("content", {})
    files = tuple(kind for kind in content if kind not in (_JSON, _FORM))
    kinds_of_body = [(kind,) for kind in content if kind not in files] + ([files] if files else [])
    bodies = [_body(document, path, kinds, content[kinds[0]]["schema"]) for kinds in kinds_of_body]
    if not bodies:
        curl = f"curl {'-X DELETE ' if method == 'delete' else ''}{_address(path)}"
        bodies = [Body((), (), None, curl)]
    status = next(each for each in sorted(operation["responses"]) if each[0] == "2")
    return Endpoint(
        method.upper(),
        path,
        operation["description"],
        tuple(bodies),
        parameters["path"],
        parameters["query"],
        status,
        _answer(document, status, operation["responses"][status]),
        _errors(operation),
    )


def _errors(operation: Schema) -> tuple[str, ...]:
    return tuple(sorted(status for status in operation["responses"] if status[0] in "45"))


def _address(path: str) -> str:
    """Return a path as curl takes it, with a word in place of each parameter."""
    return _URL + re.sub(r"\{\w+\}", "ID", path)


def _parameter(given: Schema) -> Field:
    schema = given["schema"]
    return Field(given["name"], _kind(schema), given["required"], given.get("description", ""), None)


def _body(document: Schema, path: str, content_types: tuple[str, ...], schema: Schema) -> Body:
    schema, content_type = _resolved(document, schema), content_types[0]
    required = schema.get("required", ())
    fields = tuple(
        Field(name, _kind(each), name in required, each.get("description", ""), example_of(document, each))
        for name, each in schema.get("properties", {}).items()
    )
    example = example_of(document, schema)
    if content_type == _JSON:
        parts = ["-H", f"content-type: {_JSON}", "-d", json.dumps(example)]
    elif content_type == _FORM:
        values = [f"{each.name}={each.example}" for each in fields if each.required or each.kind == "file"]
        parts = [word for value in values for word in ("-F", value)]
    else:
        parts = ["-H", f"content-type: {content_type}", "--data-binary", "@FILE"]
    curl = " ".join(["curl", *map(quote, parts), _address(path)])
    return Body(content_types, fields, example, curl)


def _answer(document: Schema, status: str, response: Schema) -> str:
    """Return an example of what an endpoint answers, as text."""
    if status == _NO_CONTENT:
        return "nothing"
    content_type, entry = next(iter(response["content"].items()))
    if content_type != _JSON:
        return f"{content_type}: {response['description']}"
    found = entry["example"] if "example" in entry else example_of(document, entry["schema"])
    plain_list = re.compile(r"\[[^][{}]*\]")
    return plain_list.sub(
        lambda text: " ".join(text[0].split()).replace("[ ", "[").replace(" ]", "]"), json.dumps(found, indent=2)
    )


def _resolved(document: Schema, schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    *_, name = schema["$ref"].split("/")
    found: Schema = document["components"]["schemas"][name]
    return found


def example_of(document: Schema, schema: Schema) -> Any:
    """Return an example of what a schema takes: the one that it states, else the simplest."""
    if "examples" in schema:
        return schema["examples"][0]
    schema = _resolved(document, schema)
    choices = schema.get("anyOf", schema.get("oneOf"))
    if choices:
        return example_of(document, choices[0])
    for stated in ("const", "default"):
        if stated in schema:
            return schema[stated]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [example_of(document, schema["items"])] * schema.get("minItems", 1)
    if schema.get("type") == "object":
        required, values = schema.get("required", ()), schema.get("properties", {})
        shown = {name: each for name, each in values.items() if name in required or "examples" in each}
        return {name: example_of(document, each) for name, each in shown.items()}
    if schema.get("format") == "binary":
        return "@FILE"
    return {"integer": 0, "number": 0.0, "boolean": False}.get(schema.get("type", ""), "")


def _kind(schema: Schema) -> str:
    """Return what a value is, in words."""
    if schema.get("format") == "binary":
        return "file"
    options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    names = {"string": "text", "array": "list", "boolean": "true or false"}
    kind = str(options[0].get("type", "object"))
    shown = " or ".join(map(str, schema["enum"])) if "enum" in schema else names.get(kind, kind)
    return f"{shown}, default {schema['default']}" if schema.get("default") is not None else shown
