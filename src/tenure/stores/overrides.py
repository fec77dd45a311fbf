"""The override of a job as its row keeps it: one JSON object, or NULL if the definition in code is in force."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tenure.core.job_options import rules_of, written_rules
from tenure.core.records import JobSpec, Override
from tenure.stores.row_checks import clamped, is_instant, storable


def written(override: Override | None) -> dict[str, Any] | None:
    """The override as JSON. `sync_jobs` of PostgreSQL compares `code` with the definition that a node brings."""
    if override is None:
        return None
    code = override.code
    return {
        "code": {
            "function": code.function,
            "trigger": code.trigger,
            "kwargs": code.kwargs,
            "rules": written_rules(code.rules),
        },
        "tzdata": code.tzdata,
        "at": override.at,
        "by": storable(override.by),
        "why": storable(override.why),
    }


def read(text: object, spec: JobSpec) -> Override | None:
    """Read the override of a job with this spec. If it cannot be read, the definition in force counts as the code's."""
    if not isinstance(text, str):
        return None
    try:
        found = json.loads(text)
        code, at, words = found["code"], found["at"], [found["by"], found["why"], found["tzdata"]]
        function, trigger, kwargs, rules = (code[word] for word in ("function", "trigger", "kwargs", "rules"))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    words += [function, kwargs, "" if trigger is None else trigger]
    if not is_instant(at) or not all(isinstance(word, str) for word in words):
        return None
    said = replace(
        spec,
        function=function,
        trigger=trigger,
        kwargs=kwargs,
        rules=rules_of(json.dumps(rules)),
        in_code=True,
        release=0,
        tzdata=found["tzdata"],
    )
    return Override(said, clamped(at), found["by"], found["why"])
