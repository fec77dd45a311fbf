"""The functions behind jobs: their names, and how they are called.

A job names a function, and a node runs the job only if that function was registered in its process: tenure never
imports anything because a row says so. Whatever is wrong with a function or its arguments raises an error when the job
is defined, not when it is due.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from inspect import Parameter, Signature
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from tenure.core.argument_types import ValueType, value_type
from tenure.errors import ConfigurationError
from tenure.jobs import arounds
from tenure.jobs.arounds import Around
from tenure.util.names import named
from tenure.util.plurals import a_type

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[(.*)\]")


@dataclass(frozen=True, slots=True)
class Function:
    """A function that jobs may name."""

    name: str
    callable: Callable[..., Any]
    is_coroutine: bool
    signature: Signature
    run_parameter: str | None
    """The parameter that receives the run; None if no parameter does."""
    run_first: bool = False
    """The run can only be passed by position."""
    in_process: bool = False
    """Called in a process of its own, which finds it by its module and name."""
    takes: Mapping[str, ValueType] = field(default_factory=dict, compare=False)
    """What its parameters with plain annotations take."""
    arounds: Sequence[Around] = field(default=(), compare=False)
    """What is put around it, the outermost first. The list of its registry, so that it may grow."""

    @property
    def place(self) -> str:
        """Where it is written: 'billing.jobs:41'."""
        return place_of(self.callable)

    def call(self, run: object, kwargs: Mapping[str, Any]) -> Any:
        """Call it for a run, inside what is put around it. A coroutine function returns its coroutine."""
        if not self.arounds:
            return self._call(run, kwargs)
        inside = arounds.call_async if self.is_coroutine else arounds.call
        return inside(self.arounds, run, lambda: self._call(run, kwargs))

    def _call(self, run: object, kwargs: Mapping[str, Any]) -> Any:
        if self.run_parameter is None:
            return self.callable(**kwargs)
        if self.run_first:
            return self.callable(run, **kwargs)
        return self.callable(**{**kwargs, self.run_parameter: run})


class Registry:
    """The functions that this process has, one for each name."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self.arounds: list[Around] = []
        """What is put around each of them, from its next call on."""
        self.wants_traceparents = False
        """Bodies are told which span requested their run."""
        self._digested: tuple[tuple[str, ...], str] = ((), "")

    def add(self, function: Function) -> Function:
        """Add a function. The same one twice is fine; another one of the same name is refused."""
        known = self._functions.setdefault(function.name, replace(function, arounds=self.arounds))
        if known.callable != function.callable:
            raise ConfigurationError(
                f"{function.name!r} is one name for two functions: {known.place} and {function.place}. "
                "Give one of them another name with name='…'."
            )
        return known

    def get(self, name: str) -> Function | None:
        """The function of this name."""
        return self._functions.get(name)

    def wanted(self, names: frozenset[str]) -> None:
        """Jobs use these functions. A registry that can find functions by name may add those that it lacks."""

    def find(self, fn: Callable[..., Any]) -> Function | None:
        """The function with this callable; the first, if there are several."""
        return next((function for function in self._functions.values() if function.callable == fn), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of definition."""
        return tuple(self._functions)

    @property
    def signatures(self) -> str:
        """A digest of the parameters of all functions. Stored arguments may no longer fit if it changes."""
        names = self.names
        if self._digested[0] != names:
            taken = [(name, _parameters(self.get(name))) for name in sorted(names)]
            self._digested = names, sha256(json.dumps(taken).encode()).hexdigest()[:16]
        return self._digested[1]

    @property
    def coroutines(self) -> tuple[str, ...]:
        """The names of those that need an event loop."""
        return tuple(function.name for function in [*self._functions.values()] if function.is_coroutine)


def describe(fn: Callable[..., Any], name: str | None = None) -> Function:
    """Look at a function once, and refuse what could not be called as a job."""
    if not callable(fn):
        raise ConfigurationError(f"{fn!r} is {a_type(fn)}, which cannot be called. Write a function.")
    if isinstance(fn, type):
        raise ConfigurationError(
            f"{fn.__qualname__} ({place_of(fn)}) is a class. Write a function, or a method of an instance."
        )
    called = _called(fn)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigurationError(
            f"{title_of(fn)} ({place_of(fn)}) is a generator: calling it does nothing. Write a function without yield."
        )
    try:
        signature = inspect.signature(fn)
    except (ValueError, TypeError):
        raise ConfigurationError(
            f"{title_of(fn)} does not say which arguments it takes. Write a def around it."
        ) from None
    if name is None:
        name = title_of(fn)
        if name == "<lambda>":
            raise ConfigurationError(f"The lambda at {place_of(fn)} has no name of its own. Give it one with name='…'.")
    name = named(name, "job name")
    body = inspect.unwrap(called)
    parameter = _run_parameter(name, body, signature)
    first = parameter is not None and parameter.kind is Parameter.POSITIONAL_ONLY
    if first and parameter is not next(iter(signature.parameters.values())):
        raise ConfigurationError(f"{name}: {parameter} must be the first parameter, or come after the '/'.")
    return Function(
        name=name,
        callable=fn,
        is_coroutine=inspect.iscoroutinefunction(called),
        signature=signature,
        run_parameter=None if parameter is None else parameter.name,
        run_first=first,
        takes=_value_types(signature, getattr(body, "__globals__", {})),
    )


def bind(function: Function, kwargs: Mapping[str, object]) -> None:
    """Refuse arguments that the function would refuse, and values that its annotations do not allow."""
    bind_names(function, kwargs)
    bind_values(function, kwargs)


def bind_values(function: Function, kwargs: Mapping[str, object]) -> None:
    """Refuse values of another type than the function declares, where the annotation is plain."""
    parameters = function.signature.parameters
    for name, takes in function.takes.items():
        given = {name: kwargs[name]} if name in kwargs else {}
        if parameters[name].kind is Parameter.VAR_KEYWORD:
            given = {word: value for word, value in kwargs.items() if word not in parameters}
        for word, value in given.items():
            found = takes.misfit(value, word)
            if found is None or value is parameters[name].default:
                continue
            what = "and was given" if found.place == word else f"and {found.place} is"
            shown = "None" if found.value is None else f"the {type(found.value).__name__} {found.value!r:.80}"
            raise ConfigurationError(
                f"{function.name} ({function.place}) takes {word}: {takes.text}, {what} {shown}. {found.instead}"
            )


def bind_names(function: Function, kwargs: Mapping[str, object]) -> None:
    """Refuse arguments that are missing, and those that the function does not know."""
    taken, missing = set(), []
    anything = False
    for parameter in function.signature.parameters.values():
        if parameter.name == function.run_parameter:
            continue
        if parameter.kind in _BY_NAME:
            taken.add(parameter.name)
            if parameter.default is Parameter.empty and parameter.name not in kwargs:
                missing.append(parameter.name)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            anything = True
        elif parameter.kind is Parameter.POSITIONAL_ONLY and parameter.default is Parameter.empty:
            raise ConfigurationError(
                f"{function.name}: {parameter.name!r} can only be given by position, and arguments of jobs are given "
                "by name. Take the '/' out of its parameters."
            )
    if function.run_parameter in kwargs and not function.run_first:
        raise ConfigurationError(
            f"{function.name}: {function.run_parameter!r} is given the run. Leave it out of kwargs."
        )
    for name in [] if anything else [name for name in kwargs if name not in taken]:
        near = difflib.get_close_matches(name, sorted(taken), 1)
        known = f"It takes {', '.join(sorted(taken))}." if taken else "It takes none."
        raise ConfigurationError(
            f"{function.name} ({function.place}) has no parameter {name!r}. "
            + (f"Did you mean {near[0]!r}?" if near else known)
        )
    if missing == ["self"]:
        raise ConfigurationError(
            f"{function.name} ({function.place}) is a method without its instance. "
            "Register the method of an instance instead."
        )
    if missing:
        raise ConfigurationError(
            f"{function.name} ({function.place}) needs {', '.join(map(repr, missing))}. "
            f"Write kwargs={{{missing[0]!r}: …}} or call({title_of(function.callable)}, {missing[0]}=…), "
            f"or give {'it a default' if len(missing) == 1 else 'them defaults'}."
        )


def _value_types(signature: Signature, scope: Mapping[str, Any]) -> dict[str, ValueType]:
    """What the parameters take whose annotations are plain, also where they are texts."""
    found = {}
    for parameter in signature.parameters.values():
        takes = value_type(_evaluated(parameter.annotation, scope))
        if takes is not None and parameter.kind is not Parameter.VAR_POSITIONAL:
            found[parameter.name] = takes
    return found


def _evaluated(annotation: object, scope: Mapping[str, Any]) -> object:
    """An annotation; if it is a text, what it means, or the text if only type checkers know."""
    if not isinstance(annotation, str):
        return annotation
    one = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(one, dict(scope), include_extras=True)["it"]
    except Exception:  # it may contain any code
        return annotation


def _parameters(function: Function | None) -> list[tuple[str, str, bool, str]]:
    """What decides whether arguments fit."""
    if function is None:
        return []
    return [
        (
            parameter.name,
            parameter.kind.name,
            parameter.default is Parameter.empty,
            function.takes[parameter.name].text if parameter.name in function.takes else "",
        )
        for parameter in function.signature.parameters.values()
        if parameter.name != function.run_parameter
    ]


def _run_parameter(name: str, body: Callable[..., Any], signature: Signature) -> Parameter | None:
    scope = getattr(body, "__globals__", {})
    candidates = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (*_BY_NAME, Parameter.POSITIONAL_ONLY)
        and (_means_run(parameter.annotation, scope) or _called_run(parameter))
    ]
    if len(candidates) > 1:
        both = " and ".join(repr(parameter.name) for parameter in candidates)
        raise ConfigurationError(f"{name}: {both} would both be given the run. Keep one of them.")
    return candidates[0] if candidates else None


def _called_run(parameter: Parameter) -> bool:
    return parameter.name == "run" and parameter.annotation is Parameter.empty


def _means_run(annotation: object, scope: Mapping[str, Any]) -> bool:
    """True if an annotation means `Run`, even as a text that cannot be evaluated because its import is under
    TYPE_CHECKING."""
    if isinstance(annotation, str):
        return _says_run(annotation, scope)
    origin = get_origin(annotation)
    if origin is Annotated:
        return _means_run(get_args(annotation)[0], scope)
    if origin in (Union, types.UnionType):
        return any(_means_run(part, scope) for part in get_args(annotation))
    if isinstance(annotation, type):
        return annotation.__name__ == "Run" and annotation.__module__.partition(".")[0] == "tenure"
    forward = getattr(annotation, "__forward_arg__", None)
    return isinstance(forward, str) and _says_run(forward, scope)


def _says_run(text: str, scope: Mapping[str, Any]) -> bool:
    text = text.strip().strip("'\"")
    if inner := _OPTIONAL.fullmatch(text):
        text = inner[1]
    for part in text.split("|"):
        first, *rest = part.strip().strip("'\"").split(".")
        found = scope.get(first)
        for attribute in rest:
            found = getattr(found, attribute, None)
        if found is None:
            if [first, *rest] in (["Run"], ["tenure", "Run"], ["tenure", "run", "Run"]):
                return True
        elif not isinstance(found, str) and _means_run(found, scope):
            return True
    return False


def _called(fn: object) -> Any:
    """The function inside partials, methods and callable objects."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif inspect.ismethod(fn) or isinstance(fn, staticmethod):
            fn = fn.__func__
        elif inspect.isroutine(fn) or isinstance(fn, type):
            return fn
        else:
            fn = type(fn).__call__


def title_of(fn: object) -> str:
    """The name of a function, or of what calls it."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


def place_of(fn: object) -> str:
    """Where a function is written, for people: 'billing.jobs:41'."""
    body = inspect.unwrap(_called(fn))
    module = getattr(body, "__module__", None) or "?"
    code = getattr(body, "__code__", None)
    return f"{module}:{code.co_firstlineno}" if code is not None else str(module)
