-- Figures by hour and by day: how runs ended, how late they began, and how long they took. See `core/figures.py`.
--
-- All who write figures of an application hold one advisory lock, and read the runs in later statements than the one
-- that took it. So what one has counted, the other has not removed meanwhile. Nothing that they do waits for a row of
-- others: runs and jobs are only read, and no other operation writes these tables, except `hour_touched`, which only
-- grows until a count takes rows from it.

-- The advisory lock of the figures of an application.
CREATE OR REPLACE FUNCTION {schema}.key_of_figures(app int) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT hashtextextended('tenure figures {schema} ' || app, 0)
$$;

-- The figures of these runs, and of those of jobs between two instants, by hour.
CREATE OR REPLACE FUNCTION {schema}.count_runs(runs bigint[], jobs bigint[], lows timestamptz[], highs timestamptz[])
RETURNS TABLE (
    job bigint, application int, hour timestamptz, succeeded bigint, failed bigint, lost bigint, cancelled bigint,
    skipped bigint, missed bigint, open bigint, late_total bigint, late_most bigint, late text,
    took_total bigint, took_most bigint, took text
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp {planner} AS $$
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.job, f.application, date_trunc('hour', f.scheduled_for, 'UTC') AS hour, f.count,
               CASE WHEN f.state <= 'running' THEN 'open' WHEN f.state = 'skipped' AND f.reason = 'missed' THEN 'missed'
                    ELSE f.state::text END AS became,
               -- Between two attempts, `due_at` is that of the next.
               CASE WHEN f.state >= 'running' AND f.started_at IS NOT NULL
                    THEN greatest(round(date_part('epoch', f.started_at - f.due_at) * 1e6), 0)::bigint END AS late,
               CASE WHEN f.state > 'running' AND f.started_at IS NOT NULL AND f.finished_at IS NOT NULL
                    THEN greatest(round(date_part('epoch', f.finished_at - f.started_at) * 1e6), 0)::bigint END AS took
          FROM ((SELECT r.* FROM unnest(runs) AS i (id) JOIN {schema}.run r ON r.id = i.id)
                UNION ALL
                (SELECT r.* FROM unnest(jobs, lows, highs) AS s (job, low, high)
                   JOIN {schema}.run r ON r.job = s.job AND r.state > 'running'
                    AND r.scheduled_for >= s.low AND r.scheduled_for < s.high)
                UNION ALL
                (SELECT r.* FROM unnest(jobs, lows, highs) AS s (job, low, high)
                   JOIN {schema}.run r ON r.job = s.job AND r.state <= 'running'
                    AND r.scheduled_for >= s.low AND r.scheduled_for < s.high)) f
    ), placed AS (
        SELECT b.job, b.hour, b.kind, string_agg(b.bucket || ':' || b.runs, ',' ORDER BY b.bucket) AS buckets
          FROM (SELECT f.job, f.hour, k.kind,
                       least(floor(4 * ln(greatest(k.micros, 1000) / 1000::float8) / ln(2::float8))::int, 159)
                           AS bucket, count(*) AS runs
                  FROM found f
                 CROSS JOIN LATERAL (VALUES ('late', f.late), ('took', f.took)) AS k (kind, micros)
                 WHERE k.micros IS NOT NULL GROUP BY 1, 2, 3, 4) b
         GROUP BY 1, 2, 3
    ), counted AS (
        SELECT f.job, min(f.application) AS application, f.hour,
               coalesce(sum(f.count) FILTER (WHERE f.became = 'succeeded'), 0)::bigint AS succeeded,
               coalesce(sum(f.count) FILTER (WHERE f.became = 'failed'), 0)::bigint AS failed,
               coalesce(sum(f.count) FILTER (WHERE f.became = 'lost'), 0)::bigint AS lost,
               coalesce(sum(f.count) FILTER (WHERE f.became = 'cancelled'), 0)::bigint AS cancelled,
               coalesce(sum(f.count) FILTER (WHERE f.became = 'skipped'), 0)::bigint AS skipped,
               coalesce(sum(f.count) FILTER (WHERE f.became = 'missed'), 0)::bigint AS missed,
               coalesce(sum(f.count) FILTER (WHERE f.became = 'open'), 0)::bigint AS open,
               coalesce(sum(f.late), 0)::bigint AS late_total, coalesce(max(f.late), 0) AS late_most,
               coalesce(sum(f.took), 0)::bigint AS took_total, coalesce(max(f.took), 0) AS took_most
          FROM found f GROUP BY f.job, f.hour
    )
    SELECT c.job, c.application, c.hour, c.succeeded, c.failed, c.lost, c.cancelled, c.skipped, c.missed, c.open,
           c.late_total, c.late_most, coalesce(l.buckets, ''), c.took_total, c.took_most, coalesce(t.buckets, '')
      FROM counted c
      LEFT JOIN placed l ON l.job = c.job AND l.hour = c.hour AND l.kind = 'late'
      LEFT JOIN placed t ON t.job = c.job AND t.hour = c.hour AND t.kind = 'took';
END $$;

-- One text of buckets for several that were joined by commas.
CREATE OR REPLACE FUNCTION {schema}.merged_buckets(joined text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(string_agg(b.bucket || ':' || b.runs, ',' ORDER BY b.bucket), '')
      FROM (SELECT split_part(p.part, ':', 1)::int AS bucket, sum(split_part(p.part, ':', 2)::bigint) AS runs
              FROM unnest(string_to_array(joined, ',')) AS p (part) WHERE p.part ~ '^\d{1,3}:\d{1,18}$' GROUP BY 1) b
$$;

-- Counts the hours of jobs between these instants anew. Writes what differs. Leaves days alone that are one row by now.
-- The caller has the lock of the figures.
CREATE OR REPLACE FUNCTION {schema}.count_hours(
    jobs bigint[], lows timestamptz[], highs timestamptz[], OUT runs bigint, OUT changed bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    gone bigint;
BEGIN
    WITH found AS MATERIALIZED (
        SELECT c.* FROM {schema}.count_runs('{}', jobs, lows, highs) c
    ), written AS (
        INSERT INTO {schema}.job_hour AS h (job, application, hour, removed, succeeded, failed, lost, cancelled,
                                            skipped, missed, open, late_total, late_most, late, took_total,
                                            took_most, took)
        SELECT c.job, c.application, c.hour, false, c.succeeded, c.failed, c.lost, c.cancelled, c.skipped, c.missed,
               c.open, c.late_total, c.late_most, c.late, c.took_total, c.took_most, c.took
          FROM found c
          LEFT JOIN {schema}.job_hour o ON o.job = c.job AND o.hour = c.hour AND o.removed = false
         WHERE (o.succeeded, o.failed, o.lost, o.cancelled, o.skipped, o.missed, o.open, o.late_total, o.late,
                o.late_most, o.took_total, o.took, o.took_most)
               IS DISTINCT FROM (c.succeeded, c.failed, c.lost, c.cancelled, c.skipped, c.missed, c.open, c.late_total,
                                 c.late, c.late_most, c.took_total, c.took, c.took_most)
           AND NOT EXISTS (SELECT FROM {schema}.job_day d
                            WHERE d.job = c.job AND d.day = date_trunc('day', c.hour, 'UTC'))
        ON CONFLICT (job, hour, removed) DO UPDATE
           SET (succeeded, failed, lost, cancelled, skipped, missed, open, late_total, late_most, late, took_total,
                took_most, took)
             = (excluded.succeeded, excluded.failed, excluded.lost, excluded.cancelled, excluded.skipped,
                excluded.missed, excluded.open, excluded.late_total, excluded.late_most, excluded.late,
                excluded.took_total, excluded.took_most, excluded.took)
        RETURNING 1
    ), emptied AS (   -- hours whose runs are all removed, or were only proposed
        DELETE FROM {schema}.job_hour h
         USING unnest(jobs, lows, highs) AS s (job, low, high)
         WHERE h.job = s.job AND h.hour >= s.low AND h.hour < s.high AND h.removed = false
           AND NOT EXISTS (SELECT FROM found c WHERE c.job = h.job AND c.hour = h.hour)
        RETURNING 1
    )
    SELECT coalesce(sum(c.succeeded + c.failed + c.lost + c.cancelled + c.skipped + c.missed + c.open), 0),
           (SELECT count(*) FROM written) + (SELECT count(*) FROM emptied)
      INTO runs, changed FROM found c;
END $$;

-- Counts hours of the next `in_jobs` jobs after `beyond`: those that are young, have open runs, or were touched.
-- `since_` is where a pass begins, NULL in its first slice; `up_to` where the next page begins, NULL after the last.
CREATE OR REPLACE FUNCTION {schema}.count_figures(
    of_application text, since_ float8, beyond bigint, in_jobs int,
    OUT since float8, OUT up_to bigint, OUT runs bigint, OUT changed bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app     int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    now_    timestamptz := clock_timestamp();
    start   timestamptz;
    page    bigint[];
    touched bigint[];
    jobs    bigint[];
    lows    timestamptz[];
    highs   timestamptz[];
BEGIN
    PERFORM pg_advisory_xact_lock({schema}.key_of_figures(app));
    start := least(coalesce(to_timestamp(since_),
                            (SELECT c.up_to FROM {schema}.hours_counted c WHERE c.application = app), to_timestamp(0)),
                   date_trunc('hour', now_, 'UTC') - interval '1 hour');
    since := date_part('epoch', start);
    SELECT array_agg(p.id ORDER BY p.id) INTO page
      FROM (SELECT j.id FROM {schema}.job j WHERE j.application = app AND j.id > beyond ORDER BY j.id LIMIT in_jobs) p;
    IF cardinality(page) = in_jobs THEN up_to := page[in_jobs]; END IF;
    SELECT array_agg(t.id) INTO touched
      FROM unnest(page) AS p (id) JOIN {schema}.hour_touched t ON t.job = p.id;
    SELECT array_agg(s.job), array_agg(s.low), array_agg(s.high) INTO jobs, lows, highs
      FROM (SELECT p.id AS job, start AS low, now_ AS high FROM unnest(page) AS p (id)
            UNION ALL
            SELECT o.job, o.hour, o.hour + interval '1 hour'
              FROM (SELECT h.job, h.hour FROM unnest(page) AS p (id)
                      JOIN {schema}.job_hour h ON h.job = p.id AND h.open > 0
                    UNION
                    SELECT t.job, date_trunc('hour', t.at, 'UTC')
                      FROM unnest(touched) AS x (id) JOIN {schema}.hour_touched t ON t.id = x.id) o
             WHERE o.hour < start) s;
    SELECT c.runs, c.changed INTO runs, changed FROM {schema}.count_hours(jobs, lows, highs) c;
    DELETE FROM {schema}.hour_touched t USING unnest(touched) AS x (id) WHERE t.id = x.id;
END $$;

-- Adds runs that are about to be removed to what is kept of their hours, unless their days are one row by now. The
-- caller has the lock of the figures, and counts the hours anew when the runs are gone.
CREATE OR REPLACE FUNCTION {schema}.keep_figures(doomed bigint[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO {schema}.job_hour AS h (job, application, hour, removed, succeeded, failed, lost, cancelled, skipped,
                                        missed, open, late_total, late_most, late, took_total, took_most, took)
    SELECT c.job, c.application, c.hour, true, c.succeeded, c.failed, c.lost, c.cancelled, c.skipped, c.missed, 0,
           c.late_total, c.late_most, c.late, c.took_total, c.took_most, c.took
      FROM {schema}.count_runs(doomed, '{}', '{}', '{}') c
     WHERE NOT EXISTS (SELECT FROM {schema}.job_day d
                        WHERE d.job = c.job AND d.day = date_trunc('day', c.hour, 'UTC'))
    ON CONFLICT (job, hour, removed) DO UPDATE
       SET (succeeded, failed, lost, cancelled, skipped, missed, late_total, late_most, late, took_total, took_most,
            took)
         = (h.succeeded + excluded.succeeded, h.failed + excluded.failed, h.lost + excluded.lost,
            h.cancelled + excluded.cancelled, h.skipped + excluded.skipped, h.missed + excluded.missed,
            h.late_total + excluded.late_total, greatest(h.late_most, excluded.late_most),
            {schema}.merged_buckets(h.late || ',' || excluded.late),
            h.took_total + excluded.took_total, greatest(h.took_most, excluded.took_most),
            {schema}.merged_buckets(h.took || ',' || excluded.took))
$$;

-- Makes one row of the hours of each day that ended before an instant and has no open runs, for at most so many days of
-- jobs, and deletes as many days from before `oldest`. Returns how many rows it has made and deleted.
CREATE OR REPLACE FUNCTION {schema}.close_days(of_application text, before float8, oldest float8, at_most int)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp {planner} AS $$
DECLARE
    app    int := (SELECT a.id FROM {schema}.application a WHERE a.name = of_application);
    bound  timestamptz := date_trunc('day', to_timestamp(before), 'UTC');
    made   bigint;
    gone   bigint;
BEGIN
    PERFORM pg_advisory_xact_lock({schema}.key_of_figures(app));
    WITH over AS MATERIALIZED (
        SELECT DISTINCT o.job, date_trunc('day', o.hour, 'UTC') AS day
          FROM (SELECT h.job, h.hour FROM {schema}.job_hour h
                 WHERE h.application = app AND h.hour < bound
                   AND NOT EXISTS (SELECT FROM {schema}.job_hour o
                                    WHERE o.job = h.job AND o.open > 0
                                      AND o.hour >= date_trunc('day', h.hour, 'UTC')
                                      AND o.hour < date_trunc('day', h.hour, 'UTC') + interval '1 day')
                 ORDER BY h.hour LIMIT at_most) o
    ), hours AS (
        DELETE FROM {schema}.job_hour h USING over o
         WHERE h.job = o.job AND h.hour >= o.day AND h.hour < o.day + interval '1 day'
        RETURNING h.*, o.day
    ), days AS (
        INSERT INTO {schema}.job_day (job, application, day, succeeded, failed, lost, cancelled, skipped, missed,
                                      late_total, late_most, late, took_total, took_most, took)
        SELECT h.job, app, h.day, sum(h.succeeded), sum(h.failed), sum(h.lost), sum(h.cancelled), sum(h.skipped),
               sum(h.missed), sum(h.late_total), max(h.late_most), {schema}.merged_buckets(string_agg(h.late, ',')),
               sum(h.took_total), max(h.took_most), {schema}.merged_buckets(string_agg(h.took, ','))
          FROM hours h GROUP BY h.job, h.day
        ON CONFLICT (job, day) DO NOTHING
        RETURNING 1
    )
    SELECT count(*) INTO made FROM days;
    DELETE FROM {schema}.job_day d
     USING (SELECT o.job, o.day FROM {schema}.job_day o WHERE o.application = app AND o.day < to_timestamp(oldest)
             ORDER BY o.day LIMIT at_most) x
     WHERE d.job = x.job AND d.day = x.day;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN made + gone;
END $$;
