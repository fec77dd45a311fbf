"""A beat of which any number may run: `celery -A app beat -S tenure.ext.celery:Scheduler`.

Every entry of `beat_schedule` is a job of tenure, and every beat is a node. Each due time is sent by one of them; if that one is killed,
another sends it. A message carries an id made of its due time (`task_id`), so that a repetition carries the same id.
"""

from __future__ import annotations

from tenure.ext.celery.beat import Scheduler, task_id

__all__ = ["Scheduler", "task_id"]
