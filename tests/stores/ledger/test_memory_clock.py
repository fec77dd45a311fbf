"""The clock of the memory store can be replaced, as `tenure.testing` does."""

from uuid import uuid4

from stores.ledger.scene import Scene
from tenure.core.cluster import Beat
from tenure.stores.memory.store import MemoryStore
from tenure.util.clock import boottime, walltime
from tenure.util.urls import MemoryURL


def test_due_times_follow_the_given_clock():
    now = [1000.0]
    store = MemoryStore(MemoryURL(str(uuid4())), clock=lambda: now[0])
    scene = Scene(store)
    worker = scene.worker()
    scene.add("job", -60)
    assert worker.claim().next_at == 1060.0
    now[0] = 1060.0
    run = worker.take()
    assert scene.run(run.id).claimed_at == 1060.0
    assert worker.session.beat(Beat(worker.id, 2, boottime(), boottime() + 8, None, ())).time == 1060.0
    scene.close()


def test_the_wall_is_the_default():
    session = MemoryStore(MemoryURL(str(uuid4()))).session("test", 5.0)
    assert abs(session.ledger.now() - walltime().timestamp()) < 5
    session.close()
