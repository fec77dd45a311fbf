"""The agenda of the scheduler's loop."""

import math

from tenure.scheduling.agenda import Agenda, Step


def test_at_first_every_step_is_due():
    agenda = Agenda()
    assert {agenda.due(step) for step in Step} == {0.0}
    assert agenda.next_at() == 0.0


def later(agenda, moment=math.inf):
    for step in Step:
        agenda.at(step, moment)
    return agenda


def test_the_loop_wakes_for_the_step_that_is_due_first():
    agenda = later(Agenda(), 30.0)
    agenda.at(Step.PLAN, 20.0)
    agenda.at(Step.CLAIM, 10.0)
    assert agenda.next_at() == 10.0
    agenda.at(Step.CLAIM, 40.0)
    assert agenda.next_at() == 20.0


def test_by_never_puts_a_step_off():
    agenda = later(Agenda(), 30.0)
    agenda.by(Step.CLAIM, 40.0)
    assert agenda.due(Step.CLAIM) == 30.0
    agenda.by(Step.CLAIM, 10.0)
    assert agenda.due(Step.CLAIM) == agenda.next_at() == 10.0


def test_a_step_without_wake_is_due_but_wakes_nothing():
    agenda = later(Agenda(), 30.0)
    agenda.at(Step.PRUNE, 10.0, wake=False)
    assert agenda.due(Step.PRUNE) == 10.0
    assert agenda.next_at() == 30.0
    agenda.soon(Step.PRUNE)
    assert agenda.next_at() == 0.0
