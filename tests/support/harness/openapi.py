"""Holds answers to an OpenAPI 3.1 file: the address, the status, the media type, the headers and the body."""

import json
import re
from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


FORMATS = FormatChecker()
FORMATS.checks("date-time", raises=ValueError)(_is_time)
METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})


class Described:
    """What an OpenAPI file says."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.seen: set[tuple[str, str]] = set()
        """The operations of which an answer with a status below 400 was checked."""

    @property
    def operations(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Every operation, by method and path."""
        return {
            (method, path): operation
            for path, item in self.document["paths"].items()
            for method, operation in item.items()
            if method in METHODS
        }

    def resolved(self, node: dict[str, Any]) -> dict[str, Any]:
        """What a reference stands for."""
        while "$ref" in node:
            found: Any = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            node = found
        return node

    def check(self, method: str, path: str, answer: Any) -> None:
        """Raise unless the file describes this answer. `path` is the address below the API, without its query."""
        [key] = [
            (verb, template)
            for verb, template in self.operations
            if verb == method.lower() and re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path)
        ]
        responses = self.operations[key]["responses"]
        if answer.status_code == 304:
            return
        said = self.resolved(responses.get(str(answer.status_code), responses["default"]))
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in said["content"], (key, answer.status_code, kind)
        for name, reference in said.get("headers", {}).items():
            header = self.resolved(reference)
            value = answer.headers.get(name)
            assert value is not None or not header.get("required"), (key, name)
            assert value is None or re.search(header["schema"]["pattern"], value), (key, name, value)
        schema = {**said["content"][kind]["schema"], "components": self.document["components"]}
        validator = Draft202012Validator(schema, format_checker=FORMATS)
        wrong = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(answer.json())]
        assert wrong == [], (key, answer.status_code, wrong)
        if answer.status_code < 400:
            self.seen.add(key)


def read(text: str) -> Described:
    """The file."""
    return Described(json.loads(text))
