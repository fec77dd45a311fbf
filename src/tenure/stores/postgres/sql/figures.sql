-- Statements about figures by hour and by day.

-- name: count_figures
-- Count hours of the next jobs anew.
SELECT since, up_to, runs, changed FROM {schema}.count_figures(%(application)s, %(since)s, %(beyond)s, %(jobs)s::int)

-- name: note_counted
-- Note until when every hour was counted when it was over.
INSERT INTO {schema}.hours_counted AS c (application, up_to)
SELECT a.id, to_timestamp(%(up_to)s) FROM {schema}.application a WHERE a.name = %(application)s
ON CONFLICT (application) DO UPDATE SET up_to = excluded.up_to WHERE c.up_to < excluded.up_to

-- name: close_days
-- Make one row of the hours of old days, and delete days that are too old.
SELECT {schema}.close_days(%(application)s, %(before)s, %(oldest)s, %(limit)s::int)

-- name: figures_by_hour
-- The figures of one job by hour.
SELECT h.job, date_part('epoch', h.hour), sum(h.succeeded)::bigint, sum(h.failed)::bigint, sum(h.lost)::bigint,
       sum(h.cancelled)::bigint, sum(h.skipped)::bigint, sum(h.missed)::bigint, sum(h.open)::bigint,
       sum(h.late_total)::bigint, max(h.late_most), string_agg(h.late, ','),
       sum(h.took_total)::bigint, max(h.took_most), string_agg(h.took, ',')
  FROM {schema}.application a
  JOIN {schema}.job j ON j.application = a.id
  JOIN {schema}.job_hour h ON h.job = j.id AND h.hour >= to_timestamp(%(since)s) AND h.hour < to_timestamp(%(before)s)
 WHERE a.name = %(application)s AND j.name = %(name)s
 GROUP BY h.job, h.hour ORDER BY h.hour

-- name: figures_by_day
-- The figures of one job of days that are one row.
SELECT d.job, date_part('epoch', d.day), d.succeeded, d.failed, d.lost, d.cancelled, d.skipped, d.missed, 0,
       d.late_total, d.late_most, d.late, d.took_total, d.took_most, d.took
  FROM {schema}.application a
  JOIN {schema}.job j ON j.application = a.id
  JOIN {schema}.job_day d ON d.job = j.id AND d.day >= to_timestamp(%(since)s) AND d.day < to_timestamp(%(before)s)
 WHERE a.name = %(application)s AND j.name = %(name)s
 ORDER BY d.day

-- name: figures_of_jobs
-- The figures of all jobs over their hours since an instant.
SELECT j.name, s.*
  FROM {schema}.application a
  JOIN {schema}.job j ON j.application = a.id
 CROSS JOIN LATERAL ({figures_since}) s
 WHERE a.name = %(application)s

-- name: figures_of_named
-- The figures of these jobs over their hours since an instant.
SELECT j.name, s.*
  FROM {schema}.application a
 CROSS JOIN unnest(%(names)s::text[]) AS n (name)
  JOIN {schema}.job j ON j.application = a.id AND j.name = n.name
 CROSS JOIN LATERAL ({figures_since}) s
 WHERE a.name = %(application)s

-- name: counts_by_queue
-- How many runs ended how since an instant, by the queues of their jobs.
SELECT j.queue, sum(h.succeeded)::bigint, sum(h.failed)::bigint, sum(h.lost)::bigint, sum(h.cancelled)::bigint,
       sum(h.skipped)::bigint, sum(h.missed)::bigint, sum(h.open)::bigint
  FROM {schema}.application a
  JOIN {schema}.job_hour h ON h.application = a.id AND h.hour >= to_timestamp(%(since)s)
  JOIN {schema}.job j ON j.id = h.job
 WHERE a.name = %(application)s
 GROUP BY j.queue
