"""Whether the arguments of stored jobs fit the functions of this process. Runs of those that do not fit will fail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tenure.core.arguments import TAG, decode
from tenure.core.messages import StoredArguments
from tenure.core.unfit import LONGEST, UnfitArguments
from tenure.errors import ConfigurationError
from tenure.jobs.functions import Registry, bind_names, bind_values

REMEMBERED = 1000
"""Verdicts that are kept: most jobs of a function have the same parameters."""


class ArgumentCheck:
    """Looks at stored arguments, and remembers what does not fit, by function."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._verdicts: dict[tuple[str, frozenset[str]], str] = {}
        self._unfit: dict[tuple[str, bool], UnfitArguments] = {}

    def look(self, stored: Iterable[StoredArguments]) -> None:
        """Look at some more jobs, or runs that were requested."""
        for one in stored:
            if (found := self._problem(one.function, one.kwargs)) is not None:
                problem, surely, given = found
                key = one.function, surely
                so_far = self._unfit.get(key) or UnfitArguments(one.function, problem[:LONGEST], surely)
                self._unfit[key] = so_far.and_one(one.name, one.run, given)

    def found(self) -> Iterator[UnfitArguments]:
        """What does not fit, function by function."""
        return iter(self._unfit.values())

    def _problem(self, name: str, kwargs: str) -> tuple[str, bool, frozenset[str]] | None:
        """Why these arguments do not fit, by the same rule as where they are written; whether that is sure, and the
        names of the arguments. None if they fit."""
        try:
            given = json.loads(kwargs) if TAG not in kwargs else decode(kwargs)
            names = frozenset(given)
        except (ValueError, TypeError, RecursionError) as error:
            return f"The arguments cannot be read: {error}", True, frozenset()
        if not isinstance(given, dict):
            return f"The arguments cannot be read: {kwargs:.80} is not a JSON object.", True, frozenset()
        function = self._registry.get(name)
        if function is None:
            return None
        if (name, names) not in self._verdicts:
            said = ""
            try:
                bind_names(function, dict.fromkeys(names))
            except ConfigurationError as error:
                said = str(error)
            if len(self._verdicts) >= REMEMBERED:
                self._verdicts.clear()
            self._verdicts[name, names] = said
        if said := self._verdicts[name, names]:
            return said, True, names
        try:
            bind_values(function, given)
        except ConfigurationError as error:
            return str(error), False, names
        return None
