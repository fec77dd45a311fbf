"""Whether the arguments of stored jobs fit the functions of this process. Runs of those that do not fit will fail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tenure.core.arguments import TAG, decode
from tenure.core.messages import StoredArguments
from tenure.errors import ConfigurationError
from tenure.jobs.functions import Registry, bind_names, bind_values
from tenure.util.plurals import counted

NAMED = 5
"""How many jobs a sentence names."""
REMEMBERED = 1000
"""Verdicts that are kept: most jobs of a function have the same parameters."""


@dataclass(slots=True)
class Unfit:
    """The jobs of one function whose arguments do not fit."""

    function: str
    problem: str
    surely: bool
    """True if the function cannot be called with them; False if they have other types than it declares."""
    names: list[str] = field(default_factory=list)
    """The first of them."""
    count: int = 0

    @property
    def text(self) -> str:
        """What is wrong, and what to do."""
        more = self.count - len(self.names)
        names = ", ".join(self.names) + (f" and {more} more" if more else "")
        return (
            f"{counted(self.count, 'stored job')} {'has' if self.count == 1 else 'have'} arguments that "
            f"{self.function!r} does not take, so the runs {'will' if self.surely else 'may'} fail: {names}. "
            f"{self.problem} Change them with scheduler.update(name, kwargs={{…}}), or let the function take both."
        )

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "function": self.function,
            "surely": self.surely,
            "jobs": self.count,
            "some": self.names,
            "text": self.text,
        }


class ArgumentCheck:
    """Looks at stored arguments, and remembers what does not fit, by function."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._verdicts: dict[tuple[str, frozenset[str]], str] = {}
        self._unfit: dict[tuple[str, bool], Unfit] = {}

    def look(self, stored: Iterable[StoredArguments]) -> None:
        """Look at some more jobs."""
        for one in stored:
            if (found := self._problem(one.function, one.kwargs)) is not None:
                unfit = self._unfit.setdefault((one.function, found.surely), found)
                unfit.count += 1
                if len(unfit.names) < NAMED:
                    unfit.names.append(one.name)

    def found(self) -> Iterator[Unfit]:
        """What does not fit, function by function."""
        return iter(self._unfit.values())

    def _problem(self, name: str, kwargs: str) -> Unfit | None:
        """Why these arguments do not fit, by the same rule as where they are written; None if they do."""
        try:
            given = json.loads(kwargs) if TAG not in kwargs else decode(kwargs)
            names = frozenset(given)
        except (ValueError, TypeError, RecursionError) as error:
            return Unfit(name, f"The arguments cannot be read: {error}", surely=True)
        if not isinstance(given, dict):
            return Unfit(name, f"The arguments cannot be read: {kwargs:.80} is not a JSON object.", surely=True)
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
            return Unfit(name, said, surely=True)
        try:
            bind_values(function, given)
        except ConfigurationError as error:
            return Unfit(name, str(error), surely=False)
        return None
