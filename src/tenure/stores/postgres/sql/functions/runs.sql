-- What nodes do with runs that they have claimed, and with runs of nodes that died.

-- Ends attempts. Never waits: a run that another transaction has locked, or that would become PENDING while its job is
-- locked, stays as it is, and `accepted` is NULL for it: busy, send it again. Three NULLs are the usual answer: all
-- accepted, all as requested, no other run waits.
CREATE OR REPLACE FUNCTION {schema}.finish_runs(
    ids bigint[], tokens text[], states text[], reasons text[], again float8[], started float8[], finished float8[],
    waits float8[],   -- of bodies that raised NotYet: `wait_up_to`
    results text[], OUT accepted boolean[], OUT became text[], OUT wakes boolean[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    now_    timestamptz := clock_timestamp();
    returns boolean := 'pending' = ANY (states);
    jobs    bigint[];   -- of the runs that become PENDING, locked
    done    bigint[];
    all_    boolean;
    apps    int[];
BEGIN
    IF returns THEN   -- a removal must see the runs that become PENDING
        SELECT array_agg(l.id) INTO jobs
          FROM (SELECT j.id FROM {schema}.job j
                 WHERE j.id = ANY (ARRAY(SELECT r.job FROM unnest(ids, states) AS x (id, state)
                                           JOIN {schema}.run r ON r.id = x.id
                                          WHERE x.state = 'pending'))
                   FOR KEY SHARE SKIP LOCKED) l;
        WITH mine AS MATERIALIZED (
            SELECT r.id AS run, r.job, r.kind, r.attempt, r.asked_to_end,
                   coalesce(r.looking_since, to_timestamp(x.started), to_timestamp(x.finished), now_) AS since, x.*
              FROM unnest(ids, tokens, states, reasons, again, started, finished, waits, results)
                   AS x (id, token, state, reason, again, started, finished, wait, result)
              JOIN {schema}.run r ON r.id = x.id AND r.token = x.token AND (x.state <> 'pending' OR r.job = ANY (jobs))
               FOR NO KEY UPDATE OF r SKIP LOCKED
        ), ended AS (
            UPDATE {schema}.run r
               SET state = x.becomes, token = NULL, asked_to_end = '', stopping = false, lane = x.lane,
                   entered = pg_current_xact_id(),
                   attempt = greatest(r.attempt, 1) - CASE WHEN x.unbegun THEN 1 ELSE 0 END,
                   interruptions = least(r.interruptions, 2147483646) + CASE WHEN x.interrupted THEN 1 ELSE 0 END,
                   failures = least(r.failures, 2147483646)
                              + CASE WHEN x.wait IS NULL AND (x.state = 'failed' OR x.again IS NOT NULL)
                                     THEN 1 ELSE 0 END,
                   looks = CASE WHEN x.wait IS NULL THEN r.looks
                                ELSE least(coalesce(r.looks, 0), 2147483646) + 1 END,
                   looking_since = CASE WHEN x.wait IS NULL THEN r.looking_since ELSE x.since END,
                   last_look = CASE WHEN x.wait IS NULL THEN r.last_look ELSE r.attempt END,
                   pool = CASE WHEN x.becomes = 'pending' THEN NULL ELSE r.pool END,
                   reason = CASE WHEN x.becomes = 'cancelled'
                                 THEN coalesce(CASE WHEN x.state = 'cancelled' THEN nullif(x.reason, '') END,
                                               nullif(r.asked_to_end, ''),
                                               CASE WHEN x.state = 'pending' THEN 'removed' ELSE '' END)
                                 WHEN x.becomes = 'skipped' THEN 'paused'
                                 WHEN x.wait IS NOT NULL AND x.becomes = 'failed'
                                 THEN 'gave up waiting: ' || coalesce(x.reason, '')
                                 WHEN x.interrupted THEN 'its node was stopped'
                                 WHEN x.unbegun THEN '' ELSE coalesce(x.reason, '') END,
                   due_at = CASE WHEN x.again IS NULL OR x.becomes <> 'pending' THEN r.due_at
                                 ELSE least(coalesce(to_timestamp(x.finished), now_) + make_interval(secs => x.again),
                                            CASE WHEN x.wait IS NOT NULL
                                                 THEN x.since + make_interval(secs => x.wait) END) END,
                   expires_at = CASE WHEN x.becomes <> 'pending' OR r.expires_at IS NULL THEN r.expires_at
                                     WHEN x.unbegun
                                     THEN greatest(r.expires_at, now_ + make_interval(secs => x.on_time)) END,
                   label = CASE WHEN x.unbegun AND r.attempt <= 1 THEN '' ELSE r.label END,
                   claimed_at = CASE WHEN x.unbegun AND r.attempt <= 1 THEN NULL ELSE r.claimed_at END,
                   slot = CASE WHEN x.unbegun THEN NULL ELSE r.slot END,   -- it may have another run by now
                   started_at = to_timestamp(x.started),
                   finished_at = CASE WHEN x.becomes > 'running' OR NOT x.unbegun
                                      THEN coalesce(to_timestamp(x.finished), now_) END,
                   result = x.result,
                   outcome = CASE WHEN x.becomes > 'running' OR x.unbegun THEN NULL
                                  WHEN x.interrupted THEN 'interrupted'
                                  WHEN x.wait IS NOT NULL THEN 'not yet' ELSE 'failed' END
              FROM (SELECT m.*, j.on_time, j.lane,
                           m.state = 'pending' AND m.again IS NULL AND m.started IS NULL AS unbegun,
                           m.state = 'pending' AND m.again IS NULL AND m.started IS NOT NULL AS interrupted,
                           CASE WHEN m.state <> 'pending' THEN m.state
                                WHEN m.asked_to_end <> '' THEN 'cancelled'
                                -- Never begun: as if the pause had found it unclaimed.
                                WHEN j.state = 'paused' AND m.again IS NULL AND m.started IS NULL AND m.kind = 'due'
                                     AND m.attempt <= 1 THEN 'skipped'
                                WHEN m.again IS NULL AND m.started IS NOT NULL
                                     AND (j.state = 'removed' OR j.on_lost = 'fail') THEN 'lost'
                                WHEN j.state = 'removed' AND m.wait IS NOT NULL THEN 'cancelled'
                                WHEN m.wait IS NOT NULL
                                     AND coalesce(to_timestamp(m.finished), now_)
                                         >= m.since + make_interval(secs => m.wait) THEN 'failed'
                                WHEN j.state <> 'removed' THEN 'pending'
                                WHEN m.again IS NULL THEN 'cancelled'
                                ELSE 'failed' END::{schema}.run_state AS becomes
                      FROM mine m JOIN {schema}.job j ON j.id = m.job OFFSET 0) x
             WHERE r.id = x.run
            RETURNING r.id, r.application
        )
        SELECT array_agg(e.id), array_agg(DISTINCT e.application) INTO done, apps FROM ended e;
    ELSE
        WITH mine AS MATERIALIZED (   -- found by id and token: a test of `state` would call for the wrong index
            SELECT r.id AS run, x.state, x.reason, x.started, x.finished, x.result
              FROM unnest(ids, tokens, states, reasons, started, finished, results)
                   AS x (id, token, state, reason, started, finished, result)
              JOIN {schema}.run r ON r.id = x.id AND r.token = x.token
               FOR NO KEY UPDATE OF r SKIP LOCKED
        ), ended AS (
            UPDATE {schema}.run r
               SET state = x.state::{schema}.run_state, token = NULL, asked_to_end = '', stopping = false,
                   failures = least(r.failures, 2147483646) + CASE WHEN x.state = 'failed' THEN 1 ELSE 0 END,
                   reason = CASE WHEN x.state = 'cancelled' THEN coalesce(nullif(x.reason, ''), r.asked_to_end)
                                 ELSE coalesce(x.reason, '') END,
                   started_at = to_timestamp(x.started), finished_at = coalesce(to_timestamp(x.finished), now_),
                   result = x.result
              FROM mine x
             WHERE r.id = x.run
            RETURNING r.id, r.application
        )
        SELECT array_agg(e.id), array_agg(DISTINCT e.application) INTO done, apps FROM ended e;
    END IF;
    all_ := coalesce(cardinality(done), 0) = cardinality(ids);
    IF all_ AND NOT returns
       AND NOT EXISTS (SELECT FROM {schema}.run w WHERE w.application = ANY (apps) AND w.state = 'waiting') THEN
        RETURN;
    END IF;

    done := coalesce(done, '{}');
    SELECT array_agg(CASE WHEN all_ OR x.id = ANY (done) THEN true
                          WHEN r.token = x.token THEN NULL   -- the attempt still has it: busy
                          ELSE false END ORDER BY x.place),
           array_agg(coalesce(r.state::text, 'lost') ORDER BY x.place),
           array_agg((all_ OR x.id = ANY (done)) AND j.state = 'active'
                     AND EXISTS (SELECT FROM {schema}.run w
                                  WHERE w.application = r.application AND w.job = r.job AND w.state = 'waiting'
                                    AND w.pool IS NULL)
                     AND (j.max_running IS NULL OR {schema}.places_taken(j.id) < j.max_running)
                     -- Or it has left a place in its pool.
                     OR (all_ OR x.id = ANY (done)) AND r.pool IS NOT NULL
                     AND EXISTS (SELECT FROM {schema}.run w
                                  WHERE w.application = r.application AND w.pool = r.pool
                                    AND w.state IN ('waiting', 'running') AND w.state = 'waiting') ORDER BY x.place)
      INTO accepted, became, wakes
      FROM unnest(ids, tokens) WITH ORDINALITY AS x (id, token, place)
      LEFT JOIN {schema}.run r ON r.id = x.id LEFT JOIN {schema}.job j ON j.id = r.job;
    PERFORM {schema}.notify_nodes(n.application)
       FROM (SELECT DISTINCT r.application
               FROM unnest(ids, became, wakes, accepted) AS x (id, became, wakes, accepted)
               JOIN {schema}.run r ON r.id = x.id WHERE x.accepted AND (x.wakes OR x.became = 'pending')) n;
END $$;

-- Puts back runs that this node was given but does not have. Returns how many. The next reconciliation lists a busy one
-- again.
CREATE OR REPLACE FUNCTION {schema}.put_back_runs(ids bigint[], tokens text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT count(*)
              FROM {schema}.finish_runs(ids, tokens, array_fill('pending'::text, ARRAY[cardinality(ids)]),
                                        NULL, NULL, NULL, NULL, NULL, NULL) f,
                   unnest(f.accepted) AS a (accepted)
             WHERE a.accepted);
END $$;

-- Takes back the runs of dead nodes, and lists the runs that the caller has. With `stops` the caller was told to
-- stop: its runs are marked, so that they count as interrupted and not as lost if the caller is gone next.
CREATE OR REPLACE FUNCTION {schema}.reconcile(caller uuid, of_application text, stops boolean,
    OUT at float8, OUT held_ids bigint[], OUT held_tokens text[], OUT held_asked text[],
    OUT held_must_answer boolean[], OUT lost_ids bigint[], OUT owed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app   int;
    gone  uuid[];
    jobs  bigint[];
    now_  timestamptz := clock_timestamp();
BEGIN
    at := date_part('epoch', now_);
    SELECT a.id INTO app FROM {schema}.application a WHERE a.name = of_application;
    -- Reads between the ids of live nodes, not their own entries: beside an old snapshot these have many dead versions.
    SELECT array_agg(DISTINCT r.node) INTO gone
      FROM (SELECT n.id AS node, lead(n.id) OVER (ORDER BY n.id) AS next FROM {schema}.node n WHERE n.state = 'alive'
            UNION ALL
            SELECT NULL, (SELECT n.id FROM {schema}.node n WHERE n.state = 'alive' ORDER BY n.id LIMIT 1)) live
      CROSS JOIN LATERAL unnest(ARRAY(SELECT o.node FROM {schema}.run o
                                       WHERE o.application = app AND o.state = 'running'
                                         AND o.node > coalesce(live.node, '00000000-0000-0000-0000-000000000000')
                                         AND o.node < coalesce(live.next, 'ffffffff-ffff-ffff-ffff-ffffffffffff')))
                         AS r (node);
    IF gone IS NOT NULL THEN
        SELECT array_agg(l.id) INTO jobs
          FROM (SELECT j.id FROM {schema}.job j
                 WHERE j.id = ANY (ARRAY(SELECT r.job FROM {schema}.run r
                                          WHERE r.application = app AND r.state = 'running' AND r.node = ANY (gone)))
                   FOR KEY SHARE SKIP LOCKED) l;
        WITH taken AS MATERIALIZED (   -- the columns as they are once the rows are locked
            SELECT r.id, r.job, r.asked_to_end, r.stopping, r.losses FROM {schema}.run r
             WHERE r.application = app AND r.state = 'running' AND r.node = ANY (gone) AND r.job = ANY (jobs)
               FOR NO KEY UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE {schema}.run r
               SET state = x.becomes, token = NULL, asked_to_end = '', stopping = false, lane = x.lane,
                   entered = pg_current_xact_id(),
                   losses = least(r.losses, 2147483646) + CASE WHEN r.stopping THEN 0 ELSE 1 END,
                   interruptions = least(r.interruptions, 2147483646) + CASE WHEN r.stopping THEN 1 ELSE 0 END,
                   reason = coalesce(nullif(r.asked_to_end, ''),
                                     CASE WHEN r.stopping THEN 'its node was stopped' ELSE 'its node died' END),
                   expires_at = CASE WHEN x.becomes = 'pending' THEN NULL ELSE r.expires_at END,
                   pool = CASE WHEN x.becomes = 'pending' THEN NULL ELSE r.pool END,
                   finished_at = now_,
                   outcome = CASE WHEN x.becomes > 'running' THEN NULL
                                  WHEN r.stopping THEN 'interrupted' ELSE 'lost' END
              FROM (SELECT t.id, j.lane,
                           CASE WHEN t.asked_to_end <> '' THEN 'cancelled'
                                WHEN j.state = 'removed' OR j.on_lost = 'fail'
                                     OR (NOT t.stopping AND t.losses >= j.max_lost - 1) THEN 'lost'
                                ELSE 'pending' END::{schema}.run_state AS becomes
                      FROM taken t JOIN {schema}.job j ON j.id = t.job) x
             WHERE r.id = x.id
            RETURNING r.id
        )
        SELECT array_agg(e.id) INTO lost_ids FROM ended e;
        IF lost_ids IS NOT NULL THEN
            PERFORM {schema}.notify_nodes(app);
        END IF;
    END IF;
    IF stops THEN
        UPDATE {schema}.run r SET stopping = true
         WHERE r.id IN (SELECT o.id FROM {schema}.run o
                         WHERE o.application = app AND o.state = 'running' AND o.node = caller AND NOT o.stopping
                           FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    SELECT array_agg(r.id), array_agg(r.token), array_agg(r.asked_to_end),
           array_agg(r.started_at IS NULL AND (SELECT j.state <> 'active' FROM {schema}.job j WHERE j.id = r.job))
      INTO held_ids, held_tokens, held_asked, held_must_answer
      FROM {schema}.run r WHERE r.application = app AND r.state = 'running' AND r.node = caller;
    owed := (SELECT r.job FROM {schema}.run r WHERE r.application = app AND r.owes AND r.state > 'running'
              ORDER BY r.job LIMIT 1) IS NOT NULL;   -- ORDER BY, so that the index `run_owed` serves
END $$;

-- A node reports that the bodies of runs whose jobs were paused or removed have begun. A locked run is about to end.
CREATE OR REPLACE FUNCTION {schema}.note_begun(ids bigint[], tokens text[], started float8[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    UPDATE {schema}.run r SET started_at = to_timestamp(x.started)
      FROM (SELECT l.id, b.started FROM unnest(ids, tokens, started) AS b (id, token, started)
              JOIN LATERAL (SELECT o.id FROM {schema}.run o WHERE o.id = b.id AND o.token = b.token
                               FOR NO KEY UPDATE SKIP LOCKED) l ON true OFFSET 0) x
     WHERE r.id = x.id;
END $$;

-- The live nodes that may still begin runs of this job from before this generation. A claim stamps its runs with the
-- job's generation under the job's lock, so runs with an older one were claimed before the change. Once the job is
-- active again there is nothing to wait for.
CREATE OR REPLACE FUNCTION {schema}.unbegun(of_job bigint, of_generation bigint)
RETURNS TABLE (label text, ttl float8)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN QUERY
    SELECT DISTINCT n.label, n.ttl::float8
      FROM {schema}.run r JOIN {schema}.node n ON n.id = r.node
     -- RUNNING; a test of `state` alone might call for the index `run_running`.
     WHERE r.job = of_job AND r.attempt - r.reopened > 0 AND r.state <= 'running' AND r.token IS NOT NULL
       AND r.started_at IS NULL
       AND r.generation < of_generation AND n.state = 'alive'
       AND EXISTS (SELECT FROM {schema}.job j WHERE j.id = of_job AND j.state <> 'active')
     ORDER BY 1, 2;
END $$;
