"""The modules of production, loaded once more with virtual time in place of threads and clocks. The text is the same;
only imports differ.

`copies.node`, `copies.planner` … are these modules. The real ones, which other tests of the same process use, are not
touched.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
from types import ModuleType, SimpleNamespace
from typing import Any

from sim.runtime import fakes
from sim.runtime.kernel import K
from tenure.triggers import tzdata_version

COPIED = frozenset(
    f"tenure.{name}"
    for name in [
        "cluster.base_node",
        "cluster.callbacks",
        "cluster.candidate",
        "cluster.control_loop",
        "cluster.elector",
        "cluster.epoch",
        "cluster.failure_detector",
        "cluster.heartbeat",
        "cluster.lease_state",
        "cluster.message_loop",
        "cluster.messages",
        "cluster.node",
        "core.database_clock",
        "core.lease",
        "core.liveness",
        "core.planning",
        "core.run_rules",
        "election",
        "jobs.definition_news",
        "jobs.listeners",
        "jobs.operations",
        "jobs.run_log",
        "jobs.start_report",
        "run",
        "scheduling.agenda",
        "scheduling.alert_look",
        "scheduling.alert_messages",
        "scheduling.alert_sender",
        "scheduling.alert_watch",
        "scheduling.attempt",
        "scheduling.backfills",
        "scheduling.base_executor",
        "scheduling.check_in_sender",
        "scheduling.claimer",
        "scheduling.clock_watch",
        "scheduling.completer",
        "scheduling.context",
        "scheduling.deploy_check",
        "scheduling.engine",
        "scheduling.event_loop",
        "scheduling.executor",
        "scheduling.figures",
        "scheduling.followers",
        "scheduling.health",
        "scheduling.loop",
        "scheduling.missed",
        "scheduling.planner",
        "scheduling.reconciler",
        "scheduling.reporting",
        "scheduling.retention",
        "scheduling.sending_thread",
        "scheduling.slices",
        "scheduling.timeouts",
        "stores.memory.ledger",
        "stores.memory.tables",
        "term",
        "util.backoff",
        "util.batch_size",
        "util.failure_log",
        "util.vital_thread",
    ]
)
DOUBT = (10.0, 20.0)
"""For how long a clock is doubted here."""
_LOADED: dict[str, ModuleType] = {}


def load(name: str) -> ModuleType:
    """The copy of a module."""
    if name not in _LOADED:
        original = importlib.import_module(name)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        copy = ModuleType(name)
        copy.__file__ = spec.origin
        copy.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        _LOADED[name] = copy
        with open(spec.origin, encoding="utf-8") as source:  # noqa: PTH123 - the text as it stands
            exec(compile(source.read(), spec.origin, "exec"), copy.__dict__)  # noqa: S102 - our own modules
        assert original is not copy
    return _LOADED[name]


def _import(name: str, globals_: Any = None, locals_: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if name in fakes.MODULES:
        return fakes.MODULES[name]
    if name in COPIED:
        return load(name)
    if fromlist and any(f"{name}.{part}" in COPIED or f"{name}.{part}" in fakes.MODULES for part in fromlist):
        real = importlib.import_module(name)
        return SimpleNamespace(**{part: _part(real, f"{name}.{part}", part) for part in fromlist})
    return builtins.__import__(name, globals_, locals_, fromlist, level)


def _part(real: ModuleType, full: str, part: str) -> Any:
    if full in fakes.MODULES:
        return fakes.MODULES[full]
    if full in COPIED:
        return load(full)
    try:
        return getattr(real, part)
    except AttributeError:
        return importlib.import_module(full)


def zone_rules() -> str:
    """The release of the zone rules that a process has."""
    return str((K.process is not None and K.process.things.get("tzdata")) or tzdata_version())


def reset() -> None:
    """A new world: nothing is left of the processes of the last one."""
    node.__dict__["_SHARED"] = {}
    node.__dict__["_SHARED_MUTEX"] = fakes.Lock()
    run.__dict__["_MUTEX"] = fakes.Lock()
    retention.__dict__["PRUNE_EVERY"] = 11.0
    missed.__dict__["DOUBT"] = DOUBT
    planner.__dict__.update(REPLAN_EVERY=5.0, DOUBT=DOUBT)
    for module in (planner, plan, verbs):
        module.__dict__["tzdata_version"] = zone_rules  # or no history would be long enough
    timekeeper.__dict__["DOUBT"] = DOUBT


admission = load("tenure.core.run_rules")
memory_ledger = load("tenure.stores.memory.ledger")
memory_tables = load("tenure.stores.memory.tables")
batches = load("tenure.util.batch_size")
lease = load("tenure.core.lease")
watch = load("tenure.core.liveness")
plan = load("tenure.core.planning")
verbs = load("tenure.jobs.operations")
timekeeper = load("tenure.core.database_clock")
lease_state = load("tenure.cluster.lease_state")
heartbeat = load("tenure.cluster.heartbeat")
epoch = load("tenure.cluster.epoch")
base_node = load("tenure.cluster.base_node")
node = load("tenure.cluster.node")
election = load("tenure.election")
run = load("tenure.run")
base_executor = load("tenure.scheduling.base_executor")
executor = load("tenure.scheduling.executor")
completer = load("tenure.scheduling.completer")
claimer = load("tenure.scheduling.claimer")
reconciler = load("tenure.scheduling.reconciler")
planner = load("tenure.scheduling.planner")
missed = load("tenure.scheduling.missed")
retention = load("tenure.scheduling.retention")
engine = load("tenure.scheduling.engine")
