"""A beat of which any number may run."""

import pytest
from celery import Celery
from celery.beat import BeatLazyFunc
from celery.schedules import crontab, schedule, solar

from ext import beats


@pytest.mark.timeout(120)
def test_killing_the_sender_costs_no_due_time_and_repeats_carry_the_same_id(tmp_path, database) -> None:
    verdict = beats.play(tmp_path, database, kills=2, apart=2.0)
    print(verdict)
    assert verdict.missing == []
    assert verdict.strangers == []
    assert verdict.repeats <= 2
    assert verdict.seconds >= 6
