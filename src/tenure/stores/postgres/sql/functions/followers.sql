-- Runs of jobs that follow other jobs.
--
-- A run of a job that is followed `owes`. Once it is final it is in the index `run_owed`, however it ended. So no
-- ending has to write or lock anything for its followers.

-- What a run of a follower is, after a run of its parent has ended: PENDING, or SKIPPED with the reason. `run_rules`
-- has the same in Python.
CREATE OR REPLACE FUNCTION {schema}.followed(
    parent text, state {schema}.run_state, reason text, kind {schema}.run_kind, attempt int,
    wanted text, state_of_follower text, OUT becomes {schema}.run_state, OUT why text
)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN o.ended_so AND NOT (state_of_follower = 'paused' AND kind = 'due') THEN 'pending'
                ELSE 'skipped' END::{schema}.run_state,
           CASE WHEN o.ended_so THEN CASE WHEN state_of_follower = 'paused' AND kind = 'due' THEN 'paused' ELSE '' END
                WHEN state <> 'skipped'
                THEN 'after: ' || parent || CASE WHEN state IN ('lost', 'cancelled') THEN ' was ' ELSE ' ' END || state
                WHEN starts_with(reason, 'after: ') THEN reason
                ELSE 'after: ' || parent || ' was skipped (' || reason || ')' END
      FROM (SELECT CASE wanted WHEN 'success' THEN state = 'succeeded'
                               WHEN 'failure' THEN state IN ('failed', 'lost')
                               ELSE attempt > 0 END AS ended_so) o
$$;

-- Gives followers the runs that they are owed. Waits for no job and for no run of a parent: what another transaction
-- has locked stays owed. `at_most` is a limit for each parent, so a locked follower holds up only those beside it.
--
-- Followers are locked KEY SHARE, like the job of a requested run: a change of the job excludes this, a claim does not.
CREATE OR REPLACE FUNCTION {schema}.follow_up(
    of_application text, at_most int, OUT paid bigint, OUT begins boolean, OUT more boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app     int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    now_    timestamptz;
    parents bigint[];
    free    bigint[];   -- followers that are locked
    unpaid  bigint[];   -- parents with a follower that is not
    ended   bigint[];   -- runs of parents
    full_   boolean;
BEGIN
    paid := 0;
    begins := false;
    more := false;
    WITH RECURSIVE owes AS (   -- from parent to parent, however many of its runs owe
        (SELECT r.job FROM {schema}.run r WHERE r.application = app AND r.owes AND r.state > 'running'
          ORDER BY r.job LIMIT 1)
        UNION ALL
        SELECT (SELECT r.job FROM {schema}.run r
                 WHERE r.application = app AND r.owes AND r.state > 'running' AND r.job > o.job
                 ORDER BY r.job LIMIT 1)
          FROM owes o WHERE o.job IS NOT NULL
    )
    SELECT array_agg(o.job) INTO parents FROM owes o WHERE o.job IS NOT NULL;
    IF parents IS NULL THEN RETURN; END IF;
    SELECT array_agg(l.id) INTO free
      FROM (SELECT f.id FROM {schema}.job f
             WHERE f.application = app AND f.state <> 'removed'
               AND f.after = ANY (ARRAY(SELECT p.name FROM {schema}.job p WHERE p.id = ANY (parents)))
               FOR KEY SHARE SKIP LOCKED) l;
    free := coalesce(free, '{}');
    SELECT array_agg(p.id) INTO unpaid   -- in a later statement: what was added meanwhile is owed, too
      FROM {schema}.job p
     WHERE p.id = ANY (parents)
       AND EXISTS (SELECT FROM {schema}.job f
                    WHERE f.application = app AND f.after = p.name AND f.state <> 'removed' AND f.id <> ALL (free));
    SELECT array_agg(l.id), coalesce(max(l.turn) >= at_most, false) INTO ended, full_
      FROM (SELECT r.id, x.turn
              FROM unnest(parents) AS p (id)
             CROSS JOIN LATERAL (SELECT o.id, row_number() OVER (ORDER BY o.id) AS turn
                                   FROM (SELECT s.id FROM {schema}.run s
                                          WHERE s.application = app AND s.job = p.id AND s.owes
                                            AND s.state > 'running'
                                          ORDER BY s.id LIMIT at_most) o) x
              JOIN {schema}.run r ON r.id = x.id AND r.owes AND r.state > 'running'
               FOR NO KEY UPDATE OF r SKIP LOCKED) l;
    IF ended IS NULL THEN RETURN; END IF;
    now_ := clock_timestamp();

    WITH due AS MATERIALIZED (
        SELECT f.id AS job, f.lane, f.generation, f.followed, f.on_time, f.kept_since, d.becomes, d.why, r.key, r.kind,
               r.scheduled_for, r.count, r.until, r.by, r.finished_at
          FROM unnest(ended) AS e (id) JOIN {schema}.run r ON r.id = e.id JOIN {schema}.job p ON p.id = r.job
          JOIN {schema}.job f ON f.application = app AND f.after = p.name AND f.state <> 'removed' AND f.id = ANY (free)
         CROSS JOIN LATERAL {schema}.followed(p.name, r.state, r.reason, r.kind, r.attempt, f.after_on, f.state) d
    ), again AS (   -- skipped before, and never begun
        UPDATE {schema}.run b
           SET state = d.becomes, reason = d.why, kind = d.kind, lane = d.lane, generation = d.generation,
               entered = pg_current_xact_id(), by = d.by, owes = d.followed, due_at = now_,
               expires_at = CASE WHEN d.kind = 'due' THEN now_ + make_interval(secs => d.on_time) END,
               finished_at = CASE d.becomes WHEN 'skipped' THEN now_ END
          FROM due d
         WHERE b.job = d.job AND b.key = d.key AND b.state = 'skipped' AND b.attempt = 0 AND b.count = 1
           AND (starts_with(b.reason, 'after: ') OR b.finished_at < d.finished_at)
           AND (d.becomes <> 'skipped' OR b.reason <> d.why)
        RETURNING b.state, b.owes, b.job, b.scheduled_for
    ), new AS (
        INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, expires_at,
                                  finished_at, state, reason, count, until, by, owes)
        SELECT d.job, app, d.lane, d.generation, d.kind, d.key, d.scheduled_for, now_,
               CASE WHEN d.kind = 'due' AND d.becomes = 'pending' THEN now_ + make_interval(secs => d.on_time) END,
               CASE d.becomes WHEN 'skipped' THEN now_ END, d.becomes, d.why, d.count, d.until, d.by, d.followed
          FROM due d
         -- Neither of these may have run and been forgotten.
         WHERE (d.kind = 'manual' OR coalesce(d.until, d.scheduled_for) >= d.kept_since)
           AND NOT EXISTS (SELECT FROM {schema}.kept_key k WHERE k.job = d.job AND k.key = d.key)
           AND NOT EXISTS (SELECT FROM {schema}.run b WHERE b.job = d.job AND b.key = d.key)
        ON CONFLICT (job, key) DO NOTHING
        RETURNING state, owes, job, scheduled_for
    ), written AS (
        SELECT * FROM again UNION ALL SELECT * FROM new
    ), counted AS (   -- in hours that may have been counted already
        INSERT INTO {schema}.hour_touched (job, at)
        SELECT DISTINCT w.job, date_trunc('hour', w.scheduled_for, 'UTC') FROM written w
         WHERE w.scheduled_for < now_ - interval '10 minutes'
    )
    SELECT coalesce(bool_or(n.state = 'pending'), false), coalesce(bool_or(n.owes AND n.state = 'skipped'), false)
      INTO begins, more
      FROM written n;
    UPDATE {schema}.run r SET owes = false
     WHERE r.id = ANY (ended) AND r.job <> ALL (coalesce(unpaid, '{}'));
    GET DIAGNOSTICS paid = ROW_COUNT;
    more := more OR (full_ AND paid > 0);
    IF begins THEN PERFORM {schema}.notify_nodes(app); END IF;
END $$;

-- A change of a job has withdrawn runs that were skipped while the clock was ahead, and has shortened others. Does the
-- same to what followed them: else the followers would not run when these due times are planned anew.
CREATE OR REPLACE FUNCTION {schema}.withdraw_behind(
    parent {schema}.job, withdrawn text[], shortened text[], now_ timestamptz
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    behind bigint[];   -- its followers, and theirs
BEGIN
    WITH RECURSIVE follows AS (
        SELECT f.id, f.name FROM {schema}.job f WHERE f.application = parent.application AND f.after = parent.name
        UNION
        SELECT f.id, f.name
          FROM follows p JOIN {schema}.job f ON f.application = parent.application AND f.after = p.name
    )
    SELECT array_agg(f.id) INTO behind FROM follows f;
    DELETE FROM {schema}.run r
     WHERE r.job = ANY (behind) AND r.key = ANY (withdrawn) AND r.state = 'skipped' AND r.attempt = 0
       AND starts_with(r.reason, 'after: ');
    UPDATE {schema}.run r SET until = now_
     WHERE r.job = ANY (behind) AND r.key = ANY (shortened) AND r.state = 'skipped' AND r.until > now_;
END $$;
