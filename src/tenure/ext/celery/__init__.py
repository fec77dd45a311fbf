"""A Celery beat that may run any number of times: `celery -A app beat -S tenure.ext.celery:Scheduler`.

Every entry of `beat_schedule` is a job of tenure, and every beat is a node. One of them sends each due time; if that
one is killed, another sends it. The id of a message is made of its due time (`task_id`), so a repetition has the same
id.
"""

from __future__ import annotations

from tenure.ext.celery.beat import BeatScheduler as Scheduler
from tenure.ext.celery.beat import task_id

__all__ = ["Scheduler", "task_id"]
