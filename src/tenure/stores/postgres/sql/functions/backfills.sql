-- Backfills: due times that are fixed once, and requested a few at a time.
--
-- The lock of the backfill's row decides who takes its next step. Steps wait for no lock; what people do waits first
-- for the job and then for the backfill.

-- Requests the next runs of a backfill, at most `room`; and returns them. The caller has locked the job KEY SHARE, like
-- that of any requested run, and the backfill. `ahead`: the clock is this much ahead of the time that the caller goes
-- by. `held`: a run that another transaction has locked was passed by.
CREATE OR REPLACE FUNCTION {schema}.request_backfilled(
    of_backfill bigint, room bigint, ahead interval, OUT opened bigint[], OUT held boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    b     {schema}.backfill%ROWTYPE;
    j     {schema}.job%ROWTYPE;
    d     {schema}.backfill_due%ROWTYPE;
    known bigint;   -- the run that the due time has already
    made  bigint;
    by_   text;
BEGIN
    opened := '{}';
    held := false;
    SELECT * INTO b FROM {schema}.backfill x WHERE x.number = of_backfill;
    SELECT * INTO j FROM {schema}.job x WHERE x.id = b.job;
    by_ := coalesce(nullif(b."by", ''), 'backfill ' || b.number);   -- quoted: BY is a word of PL/pgSQL
    FOR d IN SELECT x.* FROM {schema}.backfill_due x
              WHERE x.backfill = of_backfill AND x.outcome IS NULL AND x.run IS NULL ORDER BY x.scheduled_for
    LOOP
        EXIT WHEN cardinality(opened) >= room;
        made := NULL;
        INSERT INTO {schema}.run (job, application, lane, generation, kind, key, scheduled_for, due_at, state, by,
                                  traceparent, owes)
        SELECT j.id, j.application, j.lane, j.generation, 'backfill', d.key, d.scheduled_for,
               greatest(clock_timestamp() - ahead, d.scheduled_for),   -- in the order of their turns
               'pending', by_, b.traceparent, j.followed
         WHERE j.state <> 'removed' AND 'missing' = ANY (b.include)
           AND (b.even_forgotten OR d.scheduled_for >= j.kept_since)
           AND NOT EXISTS (SELECT FROM {schema}.run x WHERE x.job = j.id AND x.key = d.key)
        ON CONFLICT (job, key) DO NOTHING
        RETURNING id INTO made;
        IF made IS NOT NULL AND d.scheduled_for < clock_timestamp() - interval '10 minutes' THEN
            INSERT INTO {schema}.hour_touched (job, at) VALUES (j.id, d.scheduled_for);
        END IF;
        IF made IS NULL THEN
            SELECT x.id INTO known FROM {schema}.run x
             WHERE x.job = j.id AND x.key = d.key AND x.state = ANY (b.reopens) AND x.count = 1;
            IF FOUND THEN
                PERFORM 1 FROM {schema}.run x WHERE x.id = known FOR NO KEY UPDATE SKIP LOCKED;
                IF NOT FOUND THEN
                    held := true;
                    CONTINUE;
                END IF;
                SELECT x.id INTO made
                  FROM {schema}.reopen_run(known, b.reopens::text[], by_, NULL, b.traceparent, ahead) x;
            END IF;
        END IF;
        UPDATE {schema}.backfill_due x
           SET run = made, outcome = CASE WHEN made IS NULL THEN 'overtaken' END
         WHERE x.backfill = d.backfill AND x.scheduled_for = d.scheduled_for;
        IF made IS NOT NULL THEN
            opened := opened || made;
        END IF;
    END LOOP;
    IF cardinality(opened) > 0 THEN PERFORM {schema}.notify_nodes(j.application); END IF;
END $$;

-- How many more runs of a backfill may be open.
CREATE OR REPLACE FUNCTION {schema}.room_of_backfill(b {schema}.backfill, at_most bigint) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp {planner} AS $$
    SELECT CASE WHEN b.state <> 'running' THEN 0
                WHEN b.at_once IS NULL THEN at_most
                ELSE least(at_most, b.at_once - (SELECT count(*) FROM {schema}.backfill_due d
                                                  WHERE d.backfill = b.number AND d.outcome IS NULL
                                                    AND d.run IS NOT NULL)) END
$$;

-- Settles due times whose runs are over, at most `at_most`; the backfill is finished if none is unsettled. Returns how
-- many. The caller has locked the backfill.
CREATE OR REPLACE FUNCTION {schema}.settle_backfilled(of_backfill bigint, at_most bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    settled bigint;
    looks   bigint := at_most;
BEGIN
    IF at_most IS NOT NULL THEN   -- all that may be open, lest those that take long hold up the others
        SELECT greatest(at_most, b.at_once) INTO looks FROM {schema}.backfill b WHERE b.number = of_backfill;
    END IF;
    UPDATE {schema}.backfill_due d SET outcome = e.outcome
      FROM (SELECT o.scheduled_for, CASE WHEN r.id IS NULL THEN 'overtaken' ELSE r.state::text END AS outcome
              FROM (SELECT x.scheduled_for, x.run FROM {schema}.backfill_due x
                     WHERE x.backfill = of_backfill AND x.outcome IS NULL AND x.run IS NOT NULL
                     ORDER BY x.scheduled_for LIMIT looks) o
              LEFT JOIN {schema}.run r ON r.id = o.run
             WHERE r.id IS NULL OR r.state > 'running'
             ORDER BY o.scheduled_for LIMIT at_most) e
     WHERE d.backfill = of_backfill AND d.scheduled_for = e.scheduled_for;
    GET DIAGNOSTICS settled = ROW_COUNT;
    RETURN settled;
END $$;

-- A backfill without an unsettled due time is over.
CREATE OR REPLACE FUNCTION {schema}.finish_backfill(of_backfill bigint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp {planner} AS $$
    UPDATE {schema}.backfill b
       SET finished_at = clock_timestamp(), state = CASE b.state WHEN 'cancelled' THEN b.state ELSE 'done' END
     WHERE b.number = of_backfill AND b.finished_at IS NULL
       AND NOT EXISTS (SELECT FROM {schema}.backfill_due d WHERE d.backfill = b.number AND d.outcome IS NULL)
$$;

-- Creates a backfill of those due times that it may run, and requests its first runs. Returns a row for each of these,
-- and none if there is nothing to run. The lock excludes retention, so that what is not forgotten now is remembered.
CREATE OR REPLACE FUNCTION {schema}.create_backfill(wanted jsonb) RETURNS TABLE (number bigint, run {schema}.run)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    j    {schema}.job%ROWTYPE;
    b    {schema}.backfill%ROWTYPE;
    made bigint[];
    many bigint;
BEGIN
    SELECT x.* INTO j FROM {schema}.job x JOIN {schema}.application a ON a.id = x.application
     WHERE a.name = wanted ->> 'application' AND x.name = wanted ->> 'name' AND x.state <> 'removed'
       FOR NO KEY UPDATE OF x;
    IF NOT FOUND THEN RETURN; END IF;
    SELECT * INTO j FROM {schema}.job x WHERE x.id = j.id;   -- as retention has left it
    INSERT INTO {schema}.backfill (application, job, name, since, until, include, reopens, at_once, even_forgotten, by,
                                   why, traceparent, created_at)
    VALUES (j.application, j.id, j.name, to_timestamp((wanted ->> 'since')::float8),
            to_timestamp((wanted ->> 'until')::float8),
            ARRAY(SELECT jsonb_array_elements_text(wanted -> 'include')),
            ARRAY(SELECT s::{schema}.run_state FROM jsonb_array_elements_text(wanted -> 'reopens') s),
            (wanted ->> 'at_once')::int, (wanted ->> 'even_forgotten')::boolean, wanted ->> 'by', wanted ->> 'why',
            nullif(wanted ->> 'traceparent', ''), clock_timestamp())
    RETURNING * INTO b;
    INSERT INTO {schema}.backfill_due (backfill, scheduled_for, job, key)
    SELECT b.number, to_timestamp((w.due ->> 0)::float8), j.id, w.due ->> 1
      FROM jsonb_array_elements(wanted -> 'due') AS w (due)
      LEFT JOIN {schema}.run r ON r.job = j.id AND r.key = w.due ->> 1
     WHERE CASE WHEN r.id IS NULL
                THEN 'missing' = ANY (b.include)
                     AND (b.even_forgotten OR to_timestamp((w.due ->> 0)::float8) >= j.kept_since)
                ELSE r.state = ANY (b.reopens) AND r.count = 1 END;
    GET DIAGNOSTICS many = ROW_COUNT;
    IF many = 0 THEN
        DELETE FROM {schema}.backfill x WHERE x.number = b.number;
        RETURN;
    END IF;
    PERFORM {schema}.note_action(wanted ->> 'application', j.name, NULL,
                                 (wanted -> 'action')
                                 || jsonb_build_object('detail', 'backfill ' || b.number || ': '
                                                                 || (wanted #>> '{action,detail}')))
      WHERE jsonb_typeof(wanted -> 'action') = 'object';
    SELECT q.opened INTO made FROM {schema}.request_backfilled(b.number, {schema}.room_of_backfill(b, many), '0') q;
    PERFORM {schema}.finish_backfill(b.number);
    -- One row without a run if another transaction has locked all that may begin.
    RETURN QUERY SELECT b.number, r FROM (SELECT 1) o LEFT JOIN {schema}.run r ON r.id = ANY (made);
END $$;

-- Settles what is over, and requests the next runs. Waits for nothing.
CREATE OR REPLACE FUNCTION {schema}.advance_backfills(
    of_application text, at_most int, as_of float8, OUT begins boolean, OUT more boolean, OUT held boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app     int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    ahead   interval := greatest(clock_timestamp() - coalesce(to_timestamp(as_of), clock_timestamp()), '0');
    one     bigint;
    b       {schema}.backfill%ROWTYPE;
    settled bigint;
    made    bigint[];
    held_   boolean;
BEGIN
    begins := false;
    more := false;
    held := false;
    FOR one IN SELECT x.number FROM {schema}.backfill x
                WHERE x.application = app AND x.finished_at IS NULL ORDER BY x.number
    LOOP
        SELECT * INTO b FROM {schema}.backfill x
         WHERE x.number = one AND x.finished_at IS NULL FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN   -- another node takes this step, and may have read before our runs ended
            held := true;
            CONTINUE;
        END IF;
        settled := {schema}.settle_backfilled(one, at_most);
        more := more OR settled >= at_most;
        IF b.state = 'running' THEN
            PERFORM 1 FROM {schema}.job j WHERE j.id = b.job FOR KEY SHARE SKIP LOCKED;
            IF NOT FOUND THEN
                held := true;
                CONTINUE;
            END IF;
            SELECT q.opened, q.held INTO made, held_
              FROM {schema}.request_backfilled(one, {schema}.room_of_backfill(b, at_most), ahead) q;
            begins := begins OR cardinality(made) > 0;
            more := more OR cardinality(made) >= at_most;
            held := held OR held_;
        END IF;
        PERFORM {schema}.finish_backfill(one);
    END LOOP;
END $$;

-- Pauses, resumes or cancels a backfill. False if it is in no state for it.
CREATE OR REPLACE FUNCTION {schema}.steer_backfill(
    of_application text, of_number bigint, steer text, said_by text, said_why text, action jsonb
) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    b   {schema}.backfill%ROWTYPE;
BEGIN
    IF steer = 'cancel-backfill' THEN   -- it changes runs that have not begun
        PERFORM 1 FROM {schema}.job j
          WHERE j.id = (SELECT x.job FROM {schema}.backfill x WHERE x.number = of_number AND x.application = app)
            FOR UPDATE;
    ELSE
        PERFORM 1 FROM {schema}.job j
          WHERE j.id = (SELECT x.job FROM {schema}.backfill x WHERE x.number = of_number AND x.application = app)
            FOR KEY SHARE;
    END IF;
    SELECT * INTO b FROM {schema}.backfill x WHERE x.number = of_number AND x.application = app FOR NO KEY UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    CASE
        WHEN steer = 'pause-backfill' AND b.state = 'running'
             AND EXISTS (SELECT FROM {schema}.backfill_due d
                          WHERE d.backfill = b.number AND d.outcome IS NULL AND d.run IS NULL) THEN
            b.state := 'paused';
        WHEN steer = 'resume-backfill' AND b.state = 'paused' THEN
            b.state := 'running';
        WHEN steer = 'cancel-backfill' AND b.state IN ('running', 'paused') THEN
            b.state := 'cancelled';
        ELSE
            RETURN false;
    END CASE;
    UPDATE {schema}.backfill x SET state = b.state, state_by = said_by, state_why = said_why WHERE x.number = b.number;
    IF b.state = 'running' THEN
        PERFORM {schema}.request_backfilled(b.number, {schema}.room_of_backfill(b, NULL), '0');
    ELSIF b.state = 'cancelled' THEN
        PERFORM {schema}.cancel_runs(
            ARRAY(SELECT d.run FROM {schema}.backfill_due d JOIN {schema}.run r ON r.id = d.run
                   WHERE d.backfill = b.number AND d.outcome IS NULL AND d.run IS NOT NULL
                     AND r.state IN ('pending', 'waiting')),
            CASE WHEN said_why = '' THEN 'backfill ' || b.number || ' was cancelled' ELSE said_why END
            || CASE said_by WHEN '' THEN '' ELSE ' (by ' || said_by || ')' END,
            NULL);
        PERFORM {schema}.leave_backfilled(b.number);
    END IF;
    PERFORM {schema}.note_action(of_application, b.name, NULL, action);
    PERFORM {schema}.notify_nodes(app);
    RETURN true;
END $$;

-- Nothing requests what is left of a backfill any more. The caller has locked it.
CREATE OR REPLACE FUNCTION {schema}.leave_backfilled(of_backfill bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    UPDATE {schema}.backfill_due d SET outcome = 'left'
     WHERE d.backfill = of_backfill AND d.outcome IS NULL AND d.run IS NULL;
    PERFORM {schema}.settle_backfilled(of_backfill, NULL);
    PERFORM {schema}.finish_backfill(of_backfill);
END $$;

-- Cancels the backfills of a job that was removed, after its runs that have not begun. The caller has locked the job.
CREATE OR REPLACE FUNCTION {schema}.cancel_backfills(of_job {schema}.job, said_by text, said_why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    one bigint;
BEGIN
    FOR one IN UPDATE {schema}.backfill b SET state = 'cancelled', state_by = said_by, state_why = said_why
                WHERE b.application = of_job.application AND b.finished_at IS NULL AND b.job = of_job.id
                  AND b.state IN ('running', 'paused')
               RETURNING b.number
    LOOP
        PERFORM {schema}.leave_backfilled(one);
    END LOOP;
END $$;
