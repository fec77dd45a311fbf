"""The checker finds each kind of violation in a history made by hand, and nothing in a clean one."""

import json

import pytest

from harness import belief


def lines(node, term, *samples, kind="sample", election="e"):
    for sample in samples:
        begin, end = sample if isinstance(sample, tuple) else (sample, sample)
        yield {"kind": kind, "node": node, "election": election, "term": term, "from": begin, "to": end}


def judge(*histories):
    return belief.judge(belief.entry(line) for history in histories for line in history)


def violated(report, words):
    with pytest.raises(AssertionError, match=words):
        report.verify()
    return report


CLEAN = (
    *lines("a", 1, 1, 2, 3),
    *lines("a", 1, 2.5, kind="effect"),
    *lines("a", 1, 3.1, kind="disbelieves"),
    *lines("b", 2, 5, 6, 7),
    *lines("b", 2, 5.5, kind="acts"),
    *lines("b", 2, 6.5, kind="effect"),
)


def test_a_clean_history_passes_and_is_counted():
    report = judge(CLEAN)
    report.verify(terms=2)
    assert report.counts == {"nodes": 2, "terms": 2, "stretches": 2, "samples": 6, "acts": 1, "effects": 2}
    assert report.largest_gap == 2
    assert report.overlaps == []


def test_two_believers_at_once_are_found_with_names_and_times():
    report = violated(judge(lines("a", 1, 1, 4), lines("b", 2, 3, 6)), r"two believers: a \(term 1\) and b \(term 2\)")
    [overlap] = report.overlaps
    assert (overlap.first.node, overlap.second.node, overlap.begin, overlap.end) == ("a", "b", 3, 4)


def test_one_glimpse_of_belief_inside_anothers_stretch_is_found():
    violated(judge(lines("a", 2, 1, 4), lines("b", 1, (2, 2.1))), "two believers")


def test_believers_of_different_elections_do_not_meet():
    judge(lines("a", 1, 1, 4), lines("b", 1, 2, 3, election="other")).verify()


def test_a_sample_across_a_freeze_proves_nothing():
    """a asked at 1, was frozen, and read the clock at 9: its belief may have been over by 2."""
    judge(lines("a", 1, 0.5, (1, 9)), lines("b", 2, 3, 4, 5)).verify()
    judge(lines("a", 1, (1, 9)), lines("b", 2, 3, 4, 5)).verify()


def test_belief_that_outlives_a_freeze_is_found():
    violated(judge(lines("a", 1, 0.5, (1, 9), (9.1, 9.2)), lines("b", 2, 3, 4, 5)), "two believers")


def test_belief_ends_at_the_last_true_sample_not_at_the_disbelief():
    judge(lines("a", 1, 1, 2), lines("a", 1, 8, kind="disbelieves"), lines("b", 2, 3, 4)).verify()


def test_one_term_with_two_holders_is_found():
    violated(judge(lines("a", 1, 1, 2), lines("b", 1, 3, 4)), "two holders: term 1 of 'e' was held by a, b")
    violated(judge(lines("a", 1, 1, 2), lines("b", 1, 3, kind="effect")), "two holders")


def test_terms_that_do_not_grow_are_found():
    violated(judge(lines("a", 2, 1, 2), lines("b", 1, 3, 4)), "terms do not grow")
    violated(judge(lines("a", 2, 1, 2), lines("a", 1, 3, 4)), "terms do not grow")


def test_belief_that_comes_back_is_found():
    violated(judge(lines("a", 1, 1, 2), lines("a", 1, 3, kind="disbelieves"), lines("a", 1, 4, 5)), "belief came back")


@pytest.mark.parametrize("kind", ["acts", "effect"])
def test_a_deed_of_an_older_term_after_an_effect_of_a_newer_is_found(kind):
    violated(judge(CLEAN, lines("a", 1, 6.6, kind=kind)), f"deed of the past: {kind} of a for term 1")


def test_a_deed_begun_before_the_newer_effect_is_none():
    judge(CLEAN, lines("a", 1, (6.4, 8), kind="effect")).verify()


def test_an_empty_history_proves_nothing():
    violated(judge(), "only 0 terms were seen")


def test_single_times_are_read_as_the_very_moment():
    report = judge(
        {"t": t, "kind": "believes", "node": n, "election": "e", "term": i}
        for t, n, i in [(1, "a", 1), (3, "a", 1), (2, "b", 2), (4, "b", 2)]
    )
    violated(report, "two believers")


def test_a_failure_shows_the_history():
    with pytest.raises(
        AssertionError, match=r"(?s)two believers.*0\.0000  a +e term 1: believes until 3\.0000.*2\.0000  b"
    ):
        judge(lines("a", 1, 1, 4), lines("b", 2, 3, 6)).verify()


def test_files_of_all_processes_are_judged_together(tmp_path):
    trusted = True
    one, two = belief.Recorder(tmp_path, "a"), belief.Recorder(tmp_path, "b")
    assert one.sample("e", 1, lambda: trusted)
    assert two.sample("e", 2, lambda: trusted)
    assert one.sample("e", 1, lambda: trusted)
    assert two.sample("e", 2, lambda: trusted)
    one.record("acts", "e", 1)
    trusted = False
    assert not one.sample("e", 1, lambda: trusted)
    one.close()
    two.close()
    report = violated(belief.check(tmp_path), "two believers")
    assert report.counts["samples"] == 4
    assert [entry.kind for entry in report.entries if entry.node == "a"] == ["sample", "sample", "acts", "disbelieves"]


def test_a_line_cut_short_by_a_kill_is_left_out_but_rubbish_is_not(tmp_path):
    whole = "".join(json.dumps(line) + "\n" for line in CLEAN)
    (tmp_path / "a.jsonl").write_text(whole + '{"kind": "sam')
    assert belief.check(tmp_path).counts["samples"] == 6
    (tmp_path / "a.jsonl").write_text('{"kind": "sam\n' + whole)
    with pytest.raises(ValueError, match="Unterminated"):
        belief.check(tmp_path)
