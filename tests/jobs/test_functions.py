"""Functions as jobs: how they are looked at, named, and held against their arguments."""

import functools
import sys
import types
from collections import Counter
from typing import Annotated, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.planning import jitter_of, spread_of
from tenure.errors import ConfigurationError
from tenure.jobs.functions import Registry, bind, describe


class Run:
    """Stands for `tenure.Run`, which is made further up than what is tested here."""


Run.__module__ = "tenure.run"
Shift = Run
package = types.SimpleNamespace(Run=Run)


class Other:
    """Somebody else's class of the same name."""


Other.__name__ = "Run"


def refused(call, *args) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call(*args)
    return str(caught.value)


def by_name(run): ...
def by_name_with_default(run=None): ...
def by_annotation(current: Run): ...
def by_text(current: "Run"): ...
def by_dotted_text(current: "package.Run"): ...
def by_unknown_dotted_text(current: "tenure.Run"): ...  # noqa: F821 - as an import under TYPE_CHECKING leaves it
def by_other_name(current: "Shift"): ...
def by_optional(current: Optional[Run] = None): ...  # noqa: UP045 - people write it
def by_optional_text(current: "Optional[Run]" = None): ...  # noqa: UP045
def by_union(current: Run | None = None): ...
def by_union_text(current: "Run | None" = None): ...
def by_text_in_optional(current: Optional["Run"] = None): ...
def by_annotated(current: Annotated[Run, "the run"]): ...
def by_position(run, /): ...
def by_keyword(*, run): ...


@pytest.mark.parametrize(
    "fn",
    [
        by_name,
        by_name_with_default,
        by_annotation,
        by_text,
        by_dotted_text,
        by_unknown_dotted_text,
        by_other_name,
        by_optional,
        by_optional_text,
        by_union,
        by_union_text,
        by_text_in_optional,
        by_annotated,
        by_position,
        by_keyword,
    ],
    ids=lambda fn: fn.__name__,
)
def test_the_parameter_that_means_the_run_is_given_it(fn):
    function = describe(fn)
    assert function.run_parameter in {"run", "current"}
    bind(function, {})
    function.call("the run", {})


def annotated_otherwise(run: int): ...
def of_another_library(current: Other): ...
def of_another_library_as_text(current: "Other"): ...
def any_number(*run): ...
def nothing_at_all(): ...


@pytest.mark.parametrize(
    "fn",
    [annotated_otherwise, of_another_library, of_another_library_as_text, any_number, nothing_at_all],
    ids=lambda fn: fn.__name__,
)
def test_no_other_parameter_is(fn):
    assert describe(fn).run_parameter is None


def test_two_parameters_cannot_both_be_given_the_run():
    def both(run, current: Run): ...

    assert "'run' and 'current'" in refused(describe, both)


def test_a_call_gives_run_and_arguments():
    def with_run(customer, *, run):
        return customer, run

    def with_run_first(run, /, customer):
        return customer, run

    def without(customer):
        return customer

    assert describe(with_run).call("the run", {"customer": 7}) == (7, "the run")
    assert describe(with_run_first).call("the run", {"customer": 7}) == (7, "the run")
    assert describe(without).call("the run", {"customer": 7}) == 7


def test_a_decorated_function_is_seen_through():
    def inner(run: "Run", customer: int):
        return run, customer

    @functools.wraps(inner)
    def outer(*args, **kwargs):
        return inner(*args, **kwargs)

    function = describe(outer)
    assert (function.name, function.run_parameter) == ("inner", "run")
    assert function.call("it", {"customer": 7}) == ("it", 7)


class Report:
    def send(self, run):
        return self, run

    async def send_later(self, run): ...
    def __call__(self, customer):
        return customer


class AsyncReport:
    async def __call__(self): ...


async def coroutine(): ...


def test_methods_partials_and_callable_objects():
    report = Report()
    assert describe(report.send).name == "send"
    assert describe(report.send).call("it", {}) == (report, "it")
    assert describe(report).name == "Report"
    assert describe(report).call("it", {"customer": 7}) == 7
    bound = describe(functools.partial(report, customer=7))
    bind(bound, {})
    assert (bound.name, bound.call("it", {})) == ("Report", 7)


@pytest.mark.parametrize(
    "fn", [coroutine, Report().send_later, AsyncReport(), functools.partial(coroutine), staticmethod(coroutine)]
)
def test_coroutines_are_known(fn):
    assert describe(fn).is_coroutine


@pytest.mark.parametrize("fn", [by_name, Report().send, Report()])
def test_what_is_none_is_none(fn):
    assert not describe(fn).is_coroutine


def generator():
    yield


async def async_generator():
    yield


class Generating:
    def __call__(self):
        yield


@pytest.mark.parametrize("fn", [generator, async_generator, Generating(), functools.partial(generator)])
def test_generators_are_refused_for_calling_one_does_nothing(fn):
    assert "calling it does nothing" in refused(describe, fn)


def test_classes_and_what_cannot_be_called_are_refused():
    assert "is a class" in refused(describe, Report)
    assert "cannot be called" in refused(describe, 7)


def test_a_lambda_needs_a_name_and_a_nested_function_has_its_own():
    def nested(): ...

    assert "name='…'" in refused(describe, lambda: None)
    assert describe(lambda: None, "report").name == "report"
    assert describe(nested).name == "nested"


def test_a_name_that_cannot_be_is_refused():
    assert "job name" in refused(describe, by_name, "x" * 201)


def test_one_name_for_two_functions_names_both_places():
    registry = Registry()

    def one(): ...
    def two(): ...

    registry.add(describe(one, "report"))
    message = refused(registry.add, describe(two, "report"))
    assert f"{__name__}:{one.__code__.co_firstlineno}" in message
    assert f"{__name__}:{two.__code__.co_firstlineno}" in message
    assert registry.get("report").callable is one


def test_the_same_function_twice_is_fine():
    registry, report = Registry(), Report()
    first = registry.add(describe(report.send))
    assert registry.add(describe(report.send)) is first
    registry.add(describe(report.send, "other"))
    assert registry.names == ("send", "other")
    assert registry.find(report.send) is first
    assert registry.find(by_name) is None
    assert registry.get("nothing") is None


def takes(customer_id: int, run: Run, since: str = "") -> None: ...
def takes_anything(run, **rest): ...
def by_position_only(customer_id, /): ...


def test_arguments_are_held_against_the_signature():
    bind(describe(takes), {"customer_id": 7})
    bind(describe(takes), {"customer_id": 7, "since": "2026"})
    bind(describe(takes_anything), {"whatever": 1})
    assert "needs 'customer_id'" in refused(bind, describe(takes), {})
    assert "Did you mean 'customer_id'?" in refused(bind, describe(takes), {"customerid": 7})
    assert "customer_id, since" in refused(bind, describe(takes), {"zzz": 7, "customer_id": 7})
    assert "'run' is given the run" in refused(bind, describe(takes), {"customer_id": 7, "run": 1})
    assert "'/'" in refused(bind, describe(by_position_only), {})
    assert "method without its instance" in refused(bind, describe(Report.send), {})


@settings(deadline=None)
@given(st.text(), st.floats(0, 1e6))
def test_shifts_stay_below_their_limit(name, limit):
    assert 0 <= spread_of("app", name, limit) <= limit
    assert limit == 0 or spread_of("app", name, limit) < limit
    assert limit == 0 or jitter_of("app", name, 1_800_000_000.25, limit) < limit


def test_spread_is_even_and_the_same_everywhere():
    tenths = Counter(int(spread_of("app", f"report:{i}", 60.0) // 6) for i in range(2000))
    assert set(tenths) == set(range(10))
    assert all(140 < count < 260 for count in tenths.values())
    # Written down: another release, process or machine must come to the same, or a change of library would move the starts of all jobs.
    assert spread_of("app", "report", 60.0) == 34.400002
    assert jitter_of("app", "report", 1_800_000_000.25, 60.0) == 18.525779


def test_jitter_differs_from_due_time_to_due_time_and_not_by_how_the_float_came_about():
    due = [1_800_000_000.0 + i for i in range(100)]
    assert len({jitter_of("app", "report", at, 60.0) for at in due}) == 100
    at = 1_800_000_000.1
    assert jitter_of("app", "report", at, 60.0) == jitter_of(
        "app", "report", at + sys.float_info.epsilon * at / 2, 60.0
    )
