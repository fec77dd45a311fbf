-- Backfills, and their due times.

-- name: create_backfill
-- Create a backfill, and request its first runs.
SELECT c.number, {run}
  FROM {schema}.create_backfill(%(wanted)s::jsonb) c
  LEFT JOIN LATERAL (SELECT (c.run).*) r ON true LEFT JOIN {schema}.job j ON j.id = r.job
 ORDER BY r.scheduled_for

-- name: advance_backfills
-- Settle what is over, and request the next runs.
SELECT a.begins, a.more, a.held FROM {schema}.advance_backfills(%(application)s, %(limit)s::int, %(as_of)s) a

-- name: steer_backfill
-- Pause, resume or cancel a backfill.
SELECT {schema}.steer_backfill(%(application)s, %(number)s::bigint, %(steer)s, %(by)s, %(why)s, %(action)s::jsonb)

-- name: backfills
-- The newest backfills of an application, of a job, or the one with a number.
SELECT b.number, b.job, b.name, date_part('epoch', b.since), date_part('epoch', b.until), b.include, b.at_once,
       b.even_forgotten, b.state, b.by, b.why, date_part('epoch', b.created_at), b.state_by, b.state_why,
       date_part('epoch', b.finished_at), c.words, c.counts, coalesce(b.traceparent, '')
  FROM (SELECT x.* FROM {schema}.backfill x
         WHERE x.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s)
           AND (%(number)s::bigint IS NULL OR x.number = %(number)s::bigint)
           AND (%(job)s::text IS NULL OR x.name = %(job)s::text)
         ORDER BY x.number DESC LIMIT %(limit)s) b
 CROSS JOIN LATERAL (SELECT array_agg(w.word) AS words, array_agg(w.count) AS counts
                       FROM (SELECT coalesce(d.outcome, r.state::text,
                                             CASE WHEN d.run IS NULL THEN 'left' ELSE 'overtaken' END) AS word, count(*)
                               FROM {schema}.backfill_due d LEFT JOIN {schema}.run r ON r.id = d.run
                              WHERE d.backfill = b.number GROUP BY 1) w) c
 ORDER BY b.number DESC

-- name: forget_backfills
-- Delete the oldest backfills that were over before an instant.
WITH old AS MATERIALIZED (
    SELECT o.number FROM {schema}.backfill o
     WHERE o.application = (SELECT a.id FROM {schema}.application a WHERE a.name = %(application)s)
       AND o.finished_at IS NOT NULL AND o.finished_at < to_timestamp(%(before)s::float8)
     ORDER BY o.finished_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), due AS (
    DELETE FROM {schema}.backfill_due d USING old o WHERE d.backfill = o.number
)
DELETE FROM {schema}.backfill b USING old o WHERE b.number = o.number
RETURNING b.number
