"""Policies: what people write beside a trigger (`missed='all', timeout='20m'`), checked where it is written, and made into `Rules`.

Every word has one meaning and a default that is safe to forget. A wrong word or value is refused at definition, with what to write instead; the words of
other schedulers are known and answered with ours.
"""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, TypedDict, TypeVar, cast, get_args

from tenure.core.cluster import MAX_NAME
from tenure.core.records import Missed, OnLost, Overlap, Rules
from tenure.errors import ConfigurationError
from tenure.util.durations import Duration, seconds

T = TypeVar("T")

_DEFAULT = Rules()
_MOST = 2_147_483_647
"""What a whole number in a table may be."""


class Policy(TypedDict, total=False):
    """The words, for `**policy: Unpack[Policy]`. What is not given has the default of `Rules`."""

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


def rules(given: Mapping[str, object], *, where: str) -> Rules:
    """The rules that these words mean. `where` names the job in errors."""
    checked: dict[str, Any] = {}
    for word, value in given.items():
        if word not in _CHECKS:
            raise ConfigurationError(f"{where}: {_unknown(word, value)}")
        checked[word] = _CHECKS[word](value, f"{where}: {word}")
    if checked.get("overlap") == "allow":
        checked.setdefault("max_running", None)
    elif checked.get("max_running", 1) is None:
        overlap = checked.get("overlap", _DEFAULT.overlap)
        raise ConfigurationError(
            f"{where}: max_running: None means no limit, and overlap={overlap!r} says what to do at a limit. "
            "Write overlap='allow' for any number at once, or a number for max_running."
        )
    return Rules(**checked)


def as_json(given: Rules) -> str:
    """A text that `from_json` reads back, in this version of tenure and in later ones. Equal rules give equal texts."""
    return json.dumps(asdict(given), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=4096)
def from_json(text: str) -> Rules:
    """The rules that `as_json` wrote. Words of newer versions are ignored."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"rules: {text!r:.200} is not JSON ({error}).") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"rules: {text!r:.200} is not the text of rules.")
    known = {word: value for word, value in found.items() if word in _CHECKS}
    if isinstance(pair := known.get("backoff"), list):
        known["backoff"] = tuple(pair)
    return rules(known, where="rules")


def named(name: object, what: str) -> str:
    """A name as tenure takes them for jobs and queues: text of 1 to 200 characters, none of them a control character."""
    if not isinstance(name, str):
        raise ConfigurationError(f"{what}: {name!r} is a {type(name).__name__}. Write a text.")
    if not name.strip():
        raise ConfigurationError(f"{what}: {name!r} is empty. Write at least one character.")
    if len(name) > MAX_NAME:
        raise ConfigurationError(f"{what}: {name[:30]!r}… has {len(name)} characters, at most {MAX_NAME} are allowed.")
    if wrong := next((c for c in name if unicodedata.category(c) in {"Cc", "Cs"}), None):
        raise ConfigurationError(f"{what}: {name!r} contains {wrong!r}, which cannot be shown. Leave it out.")
    return name


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
            f"{what}: in {value!r} the longest pause is shorter than the first. Write the first pause, then the longest."
        )
    return first, longest


_CHECKS: dict[str, Callable[[object, str], Any]] = {
    "missed": _one_of(get_args(Missed)),
    "grace": _or_none(_above_zero("5m")),
    "overlap": _one_of(get_args(Overlap)),
    "max_running": _or_none(_whole(1)),
    "timeout": _or_none(_above_zero("20m")),
    "retries": _whole(0),
    "backoff": _backoff,
    "on_lost": _one_of(get_args(OnLost)),
    "max_lost": _whole(1),
    "jitter": _length,
    "spread": _length,
    "queue": named,
}

_ELSEWHERE = {
    "misfire_grace_time": "Write grace='5m': how late a run may begin. Without it a due time counts as missed after 60 s.",
    "max_instances": "Write max_running={value!r}; overlap says what happens at the limit.",
    "max_running_jobs": "Write max_running={value!r}; overlap says what happens at the limit.",
    "max_active_runs": "Write max_running={value!r}; overlap says what happens at the limit.",
    "concurrency": "Write max_running={value!r}; overlap says what happens at the limit.",
    "replace_existing": "It is not needed: a job of the same name is replaced.",
    "conflict_policy": "It is not needed: a job of the same name is replaced.",
    "next_run_time": "The trigger decides when it is due. Write at(…) as a trigger, or ask for a run with run_now.",
    "countdown": "Write at(…) as a trigger, or ask for a run with run_now.",
    "eta": "Write at(…) as a trigger, or ask for a run with run_now.",
    "expires": "Write grace={value!r}: how late a run may begin.",
    "soft_time_limit": "Write timeout={value!r}.",
    "time_limit": "Write timeout={value!r}.",
    "job_timeout": "Write timeout={value!r}.",
    "execution_timeout": "Write timeout={value!r}.",
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
    "reject_on_worker_lost": "Write on_lost='retry' (the default) or 'fail': what follows when a node dies during a run.",
    "routing_key": "Write queue={value!r}.",
    "exchange": "Write queue={value!r}.",
    "executor": "Write queue={value!r}, and queues= on the nodes that serve it.",
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
        return f"{word}={value!r} is a word of another scheduler. Write {ours}."
    if word == "catchup":
        ours = "missed='all'" if value else "missed='latest'"
        return f"{word}={value!r} is a word of another scheduler. Write {ours}."
    if advice := _ELSEWHERE.get(word):
        return f"{word}={value!r} is a word of another scheduler. {advice.format(value=value)}"
    known = [field.name for field in fields(Rules)]
    near = difflib.get_close_matches(word, known, 1)
    return f"{word}={value!r} is not a policy. " + (
        f"Did you mean {near[0]}=?" if near else f"The policies are {', '.join(known)}."
    )
