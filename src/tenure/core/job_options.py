"""The options of a job (`missed='all', timeout='20m'`), checked where they are written and made into `Rules`.

Every option has one meaning and a default that is safe to forget. A wrong option or value is refused at definition,
with what to write instead. Options of other schedulers are recognised, and the error names ours.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict, TypeVar, cast, get_args

from tenure.core.records import Missed, On, OnLost, Overlap, Rules
from tenure.errors import ConfigurationError
from tenure.util.durations import LONGEST, Duration, seconds
from tenure.util.names import named

T = TypeVar("T")

_DEFAULT = Rules()
MAX_TAG, MAX_TAGS = 100, 20
"""Characters of a tag, and tags of a job."""
_MOST = 2_147_483_647
"""The largest integer of a table."""


class Policy(TypedDict, total=False):
    """The options, for `**policy: Unpack[Policy]`. An option that is not given has the default of `Rules`."""

    missed: Missed
    grace: Duration | None
    overlap: Overlap
    max_running: int | None
    timeout: Duration | None
    retries: int
    backoff: Duration | tuple[Duration, Duration]
    on_lost: OnLost
    max_lost: int
    jitter: Duration
    spread: Duration
    queue: str
    pool: str | None
    wait_up_to: Duration
    expect_within: Duration | None
    tags: Sequence[str]
    after: str | None
    on: On


def rules(given: Mapping[str, object], *, where: str) -> Rules:
    """The rules that these options mean. `where` names the job in errors."""
    checked: dict[str, Any] = {}
    for word, value in given.items():
        if word not in OPTIONS:
            raise ConfigurationError(f"{where}: {_unknown(word, value)}")
        checked[word] = OPTIONS[word].check(value, f"{where}: {word}")
    if checked.get("overlap") == "allow":
        checked.setdefault("max_running", None)
    elif checked.get("max_running", 1) is None:
        overlap = checked.get("overlap", _DEFAULT.overlap)
        raise ConfigurationError(
            f"{where}: max_running: None means no limit, and overlap={overlap!r} says what to do at a limit. "
            "Write overlap='allow' for any number at once, or a number for max_running."
        )
    if "on" in checked and checked.get("after") is None and checked["on"] != _DEFAULT.on:
        raise ConfigurationError(
            f"{where}: on={checked['on']!r} says which endings of another job this one follows. Write after='load' "
            "with it, or leave it out."
        )
    return Rules(**checked)


@dataclass(frozen=True, slots=True)
class UnreadableRules(Rules):
    """Replace the rules of a row that cannot be read: the defaults, with the reason. They equal no other rules, so a
    sync of the code replaces them."""

    why: str = ""


def written_rules(given: Rules) -> dict[str, Any]:
    """For a row: what differs from the defaults. A library that knows one more option finds its jobs unchanged."""
    return {name: value for name in OPTIONS if (value := getattr(given, name)) != getattr(_DEFAULT, name)}


@lru_cache(maxsize=4096)
def rules_of(text: object) -> Rules:
    """The rules in a row. Leaves out options that only a newer library knows. Never raises, see `UnreadableRules`."""
    try:
        found = json.loads(cast("str", text))
        known = {name: value for name, value in found.items() if name in OPTIONS}
        for name in ("backoff", "tags"):
            if isinstance(known.get(name), list):
                known[name] = tuple(known[name])
        wrong = next((name for name, value in known.items() if not OPTIONS[name].readable(value)), None)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return UnreadableRules(why=f"its rules are not the JSON of rules ({type(error).__name__})")
    return Rules(**known) if wrong is None else UnreadableRules(why=f"its rules say {wrong}={known[wrong]!r:.60}")


def _one_of(words: tuple[str, ...]) -> Callable[[object, str], str]:
    def check(value: object, what: str) -> str:
        if isinstance(value, str) and value in words:
            return value
        near = difflib.get_close_matches(value.lower(), words, 1) if isinstance(value, str) else []
        meant = f" Did you mean {near[0]!r}?" if near else ""
        listed = f"{', '.join(map(repr, words[:-1]))} or {words[-1]!r}"
        raise ConfigurationError(f"{what}: {value!r} is not known. Write {listed}.{meant}")

    return check


def _whole(least: int) -> Callable[[object, str], int]:
    def check(value: object, what: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigurationError(f"{what}: {value!r} is not a whole number. Write {least} or more.")
        if value < least:
            raise ConfigurationError(f"{what}: {value!r} is too small. Write {least} or more.")
        if value > _MOST:
            raise ConfigurationError(f"{what}: {value!r:.40} is too large. Write {_MOST:,} or less.")
        return value

    return check


def _length(value: object, what: str) -> float:
    length = seconds(cast("Duration", value), what)
    if length < 0:
        raise ConfigurationError(f"{what}: {value!r} is less than zero. Write how long, or 0 for none.")
    return length


def _above_zero(example: str) -> Callable[[object, str], float]:
    def check(value: object, what: str) -> float:
        length = seconds(cast("Duration", value), what)
        if length <= 0:
            raise ConfigurationError(f"{what}: {value!r} leaves no time at all. Write a time such as {example!r}.")
        return length

    return check


def _or_none(check: Callable[[object, str], T]) -> Callable[[object, str], T | None]:
    return lambda value, what: None if value is None else check(value, what)


def _backoff(value: object, what: str) -> tuple[float, float]:
    if not isinstance(value, tuple):
        first = _length(value, what)
        return first, max(first, _DEFAULT.backoff[1])
    if len(value) != 2:  # noqa: PLR2004 - the first and the longest
        raise ConfigurationError(
            f"{what}: {value!r} has {len(value)} values. Write the first pause and the longest: ('10s', '10m')."
        )
    first, longest = (_length(part, what) for part in value)
    if longest < first:
        raise ConfigurationError(
            f"{what}: in {value!r} the longest pause is shorter than the first. "
            "Write the first pause, then the longest."
        )
    return first, longest


def _tags(value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{what}: {value!r:.80} is not a list. Write tags=['customer-7', 'reports'].")
    found = sorted({tag(one, what) for one in value})
    if len(found) > MAX_TAGS:
        raise ConfigurationError(f"{what}: {len(found)} tags are too many. Write at most {MAX_TAGS}.")
    return tuple(found)


def parent_name(value: object, what: str) -> str:
    """The name of the job to follow."""
    if isinstance(value, str):
        return named(value, what)
    if isinstance(value, list | tuple | set | frozenset):
        listed = list(value)
        raise ConfigurationError(
            f"{what}: {listed!r:.80} is a list, and a job follows one other job. Let one of these follow the other, "
            "and this job follow the last."
        )
    name = getattr(value, "__name__", None)
    meant = f" Write its name: after={name!r}." if isinstance(name, str) else ""
    raise ConfigurationError(f"{what}: {value!r:.80} is not the name of a job, such as 'load'.{meant}")


def tag(value: object, what: str) -> str:
    """One tag: a short word, so that it can be typed after `--tag`."""
    text = named(value, what)
    if len(text) > MAX_TAG or any(map(str.isspace, text)):
        raise ConfigurationError(
            f"{what}: {text!r:.80} is not a tag. Write at most {MAX_TAG} characters without spaces, "
            "such as 'customer-7'."
        )
    return text


def _is_word(words: tuple[str, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in words


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST


def _is_tags(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_length, value))  # noqa: PLR2004 - a pair


class Option(NamedTuple):
    """One option of a job."""

    check: Callable[[object, str], Any]
    """Makes the value of `Rules` from what is written in code, or refuses it with what to write instead."""
    readable: Callable[[object], bool]
    """True if a value in a row can be used. Rows may come from another release: no stricter than necessary."""


OPTIONS: dict[str, Option] = {
    "missed": Option(_one_of(get_args(Missed)), _is_word(get_args(Missed))),
    "grace": Option(_or_none(_above_zero("5m")), lambda value: value is None or _is_length(value)),
    "overlap": Option(_one_of(get_args(Overlap)), _is_word(get_args(Overlap))),
    "max_running": Option(_or_none(_whole(1)), lambda value: value is None or (_is_count(value) and value != 0)),
    "timeout": Option(_or_none(_above_zero("20m")), lambda value: value is None or _is_length(value)),
    "retries": Option(_whole(0), _is_count),
    "backoff": Option(_backoff, _is_pair),
    "on_lost": Option(_one_of(get_args(OnLost)), _is_word(get_args(OnLost))),
    "max_lost": Option(_whole(1), _is_count),
    "jitter": Option(_length, _is_length),
    "spread": Option(_length, _is_length),
    "queue": Option(named, lambda value: isinstance(value, str)),
    "pool": Option(_or_none(named), lambda value: value is None or isinstance(value, str)),
    "wait_up_to": Option(_above_zero("24h"), _is_length),
    "expect_within": Option(_or_none(_above_zero("15m")), lambda value: value is None or _is_length(value)),
    "tags": Option(_tags, _is_tags),
    "after": Option(_or_none(parent_name), lambda value: value is None or isinstance(value, str)),
    "on": Option(_one_of(get_args(On)), _is_word(get_args(On))),
}
"""All options of a job, in the order of the documentation. `Rules` has their defaults, `Policy` their types."""

_ELSEWHERE = {
    "misfire_grace_time": (
        "Write grace='5m': how late a run may begin. Without it a due time counts as missed after 60 s."
    ),
    "max_instances": "Write max_running={value!r}; overlap says what happens at the limit.",
    "max_running_jobs": "Write max_running={value!r}; overlap says what happens at the limit.",
    "max_active_runs": "Write max_running={value!r}; overlap says what happens at the limit.",
    "concurrency": "Write max_running={value!r}; overlap says what happens at the limit.",
    "replace_existing": "It is not needed: a job of the same name is replaced.",
    "conflict_policy": "It is not needed: a job of the same name is replaced.",
    "next_run_time": "The trigger decides when it is due. Write at(…) as a trigger, or request a run with run_now.",
    "countdown": "Write at(…) as a trigger, or request a run with run_now.",
    "eta": "Write at(…) as a trigger, or request a run with run_now.",
    "expires": "Write grace={value!r}: how late a run may begin.",
    "soft_time_limit": "Write timeout={value!r}.",
    "time_limit": "Write timeout={value!r}.",
    "job_timeout": "Write timeout={value!r}.",
    "execution_timeout": "Write timeout={value!r}.",
    "sla": "Write expect_within={value!r}: how long after its due time the job must have succeeded.",
    "deadline": "Write expect_within={value!r}: how long after its due time the job must have succeeded.",
    "checkin_margin": "Write expect_within='15m': how long after its due time the job must have succeeded.",
    "max_runtime": "Write timeout='20m'.",
    "max_retries": "Write retries={value!r}.",
    "max_tries": "Write retries=, which does not count the first attempt.",
    "max_attempts": "Write retries=, which does not count the first attempt.",
    "autoretry_for": "Write retries=3: every exception is retried.",
    "retry_backoff": "Write backoff='10s': the first pause, doubled for each further retry.",
    "retry_backoff_max": "Write backoff=('10s', '10m'): the first pause and the longest.",
    "default_retry_delay": "Write backoff={value!r}: the first pause, doubled for each further retry.",
    "retry_delay": "Write backoff={value!r}: the first pause, doubled for each further retry.",
    "retry_jitter": "It is not needed: pauses between retries always vary by 10 %.",
    "max_jitter": "Write jitter={value!r}.",
    "acks_late": "Write on_lost='retry' (the default) or 'fail': what follows when a node dies during a run.",
    "reject_on_worker_lost": (
        "Write on_lost='retry' (the default) or 'fail': what follows when a node dies during a run."
    ),
    "routing_key": "Write queue={value!r}.",
    "exchange": "Write queue={value!r}.",
    "executor": "Write queue={value!r}, and queues= on the nodes that serve it.",
    "labels": "Write tags={value!r}.",
    "tag": "Write tags=[{value!r}].",
    "priority": "There are no priorities. Write queue=, and nodes of its own for what is urgent.",
    "rate_limit": "There is no rate limit. Write max_running=, or spread= to keep jobs apart.",
    "jobstore": "All jobs are in the database of the Scheduler.",
    "id": "Write name={value!r}.",
    "args": "Write kwargs={{…}}: arguments are given by name.",
    "timezone": "Write tz={value!r}.",
    "bind": "It is not needed: a parameter annotated Run is given the run.",
}


def _unknown(word: str, value: object) -> str:
    if word == "coalesce":
        ours = "missed='latest'" if value else "missed='all'"
        return f"{word}={value!r} is an option of another scheduler. Write {ours}."
    if word == "catchup":
        ours = "missed='all'" if value else "missed='latest'"
        return f"{word}={value!r} is an option of another scheduler. Write {ours}."
    if advice := _ELSEWHERE.get(word):
        return f"{word}={value!r} is an option of another scheduler. {advice.format(value=value)}"
    near = difflib.get_close_matches(word, OPTIONS, 1)
    return f"{word}={value!r} is not an option of a job. " + (
        f"Did you mean {near[0]}=?" if near else f"The options are {', '.join(OPTIONS)}."
    )
