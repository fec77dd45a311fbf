-- What a look at an application reads, and what it changes about its alerts.

-- Paused jobs, and active ones with a trigger, with ids above `beyond`, only those `among` these (NULL: all): how their
-- newest final runs ended. At most `depth` of each are read, and seldom more than one. If they do not tell, it was at
-- the time of the oldest of them, or earlier.
CREATE OR REPLACE FUNCTION {schema}.job_marks(
    of_application text, beyond bigint, at_most int, depth int, among bigint[]
) RETURNS TABLE (
    job bigint, settled timestamptz, settled_at timestamptz, ran timestamptz, missed timestamptz, busy boolean,
    held boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app   int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    page  bigint[];
BEGIN
    IF among IS NULL THEN
        SELECT array_agg(p.id) INTO page
          FROM (SELECT j.id FROM {schema}.job j
                 WHERE j.application = app AND j.id > beyond
                   AND (j.state = 'paused' OR (j.state = 'active' AND j.trigger IS NOT NULL))
                 ORDER BY j.id LIMIT at_most) p;
    ELSE
        SELECT array_agg(p.id) INTO page
          FROM (SELECT j.id FROM unnest(among) AS x (id)
                 CROSS JOIN LATERAL (SELECT o.* FROM {schema}.job o WHERE o.id = x.id) j
                 WHERE j.application = app AND j.id > beyond
                   AND (j.state = 'paused' OR (j.state = 'active' AND j.trigger IS NOT NULL))
                 ORDER BY j.id LIMIT at_most) p;
    END IF;
    RETURN QUERY
    SELECT p.id, coalesce(good.due, oldest.at), good.at, coalesce(ended.at, oldest.at), skipped.at,
           began.busy IS NOT NULL, waits.held IS NOT NULL
      FROM unnest(page) AS p (id)
      LEFT JOIN LATERAL (SELECT f.scheduled_for AS at
                           FROM (SELECT x.scheduled_for, x.state FROM {schema}.run x
                                  WHERE x.job = p.id AND x.state > 'running'
                                  ORDER BY x.scheduled_for DESC LIMIT depth) f
                          WHERE f.state IN ('succeeded', 'failed', 'lost')
                          ORDER BY f.scheduled_for DESC LIMIT 1) ended ON true
      LEFT JOIN LATERAL (SELECT f.scheduled_for AS due, f.finished_at AS at
                           FROM (SELECT x.scheduled_for, x.finished_at, x.state, x.kind, x.reason FROM {schema}.run x
                                  WHERE x.job = p.id AND x.state > 'running'
                                  ORDER BY x.scheduled_for DESC LIMIT depth) f
                          WHERE f.state = 'succeeded'
                             OR (f.state = 'cancelled' AND f.kind <> 'manual' AND f.reason <> 'replaced')
                          ORDER BY f.scheduled_for DESC LIMIT 1) good ON true
      LEFT JOIN LATERAL (SELECT x.scheduled_for AS at FROM {schema}.run x
                          WHERE x.job = p.id AND x.state > 'running' AND (good.due IS NULL OR ended.at IS NULL)
                          ORDER BY x.scheduled_for DESC OFFSET depth - 1 LIMIT 1) oldest ON true
      -- Only after the newest run that ended otherwise: what was missed before has been made up for.
      LEFT JOIN LATERAL (SELECT coalesce(f.until, f.scheduled_for) AS at
                           FROM (SELECT x.scheduled_for, x.until, x.state, x.reason FROM {schema}.run x
                                  WHERE x.job = p.id AND x.state > 'running'
                                    AND x.scheduled_for > coalesce(ended.at, '-infinity')
                                  ORDER BY x.scheduled_for DESC LIMIT depth) f
                          WHERE f.state = 'skipped' AND f.reason = 'missed'
                          ORDER BY f.scheduled_for DESC LIMIT 1) skipped ON true
      LEFT JOIN LATERAL (SELECT true AS busy FROM {schema}.run o
                          WHERE o.job = p.id AND o.state <= 'running' AND (o.attempt > 0 OR o.state = 'waiting')
                          LIMIT 1) began ON true
      LEFT JOIN LATERAL (SELECT true AS held FROM {schema}.run o
                          WHERE o.job = p.id AND o.state <= 'running' AND (o.looks > 0 OR o.pool IS NOT NULL)
                          LIMIT 1) waits ON true;
END $$;

-- Applies each step to the version of the alert that its node has read, and writes what has to be told. Applies nothing
-- if the look is too old, because its node may have been frozen since.
CREATE OR REPLACE FUNCTION {schema}.note_alerts(
    of_application text, seen_at float8, stale float8, steps jsonb, sinks text[]
) RETURNS boolean[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    step    jsonb;
    applied boolean[] := '{}';
    changed bigint;
BEGIN
    FOR step IN
        SELECT s.value FROM jsonb_array_elements(steps) WITH ORDINALITY AS s (value, place) ORDER BY s.place
    LOOP
        changed := 0;
        IF clock_timestamp() > to_timestamp(seen_at) + make_interval(secs => stale) THEN
            applied := applied || false;
            CONTINUE;
        ELSIF (step ->> 'gone')::boolean THEN
            DELETE FROM {schema}.alert a
             WHERE a.id = (step ->> 'id')::uuid AND a.version = (step ->> 'was')::int AND a.opened_at IS NULL;
        ELSIF (step ->> 'was')::int = 0 THEN
            INSERT INTO {schema}.alert (id, application, kind, target, text, since, first_seen, last_seen, seen,
                                        missing, opened_at, closed_at, version)
            SELECT (step ->> 'id')::uuid, of_application, step ->> 'kind', step ->> 'target', step ->> 'text',
                   to_timestamp((step ->> 'since')::float8), to_timestamp((step ->> 'first_seen')::float8),
                   to_timestamp((step ->> 'last_seen')::float8), (step ->> 'seen')::int, 0,
                   to_timestamp((step ->> 'opened_at')::float8), NULL, 1
             WHERE NOT EXISTS (SELECT 1 FROM {schema}.alert c
                                WHERE c.application = of_application AND c.closed_at IS NOT NULL
                                  -- Later: the clock was wrong when it was closed.
                                  AND c.closed_at BETWEEN to_timestamp(seen_at) AND clock_timestamp()
                                  AND c.kind = step ->> 'kind' AND c.target = step ->> 'target')
            ON CONFLICT DO NOTHING;   -- another node was first
        ELSE
            UPDATE {schema}.alert a
               SET text = step ->> 'text', since = to_timestamp((step ->> 'since')::float8),
                   first_seen = to_timestamp((step ->> 'first_seen')::float8),
                   last_seen = to_timestamp((step ->> 'last_seen')::float8),
                   seen = (step ->> 'seen')::int, missing = (step ->> 'missing')::int,
                   opened_at = to_timestamp((step ->> 'opened_at')::float8),
                   closed_at = to_timestamp((step ->> 'closed_at')::float8), version = a.version + 1
             WHERE a.id = (step ->> 'id')::uuid AND a.version = (step ->> 'was')::int;
        END IF;
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed > 0 AND step ->> 'event' <> '' THEN
            INSERT INTO {schema}.alert_message (application, alert, event, key, sink, made_at)
            SELECT of_application, (step ->> 'id')::uuid, step ->> 'event', (step ->> 'key')::uuid, s.sink,
                   clock_timestamp()
              FROM unnest(sinks) AS s (sink)
            ON CONFLICT DO NOTHING;
        END IF;
        applied := applied || (changed > 0);
    END LOOP;
    RETURN applied;
END $$;
