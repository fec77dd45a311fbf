-- Statements about figures by hour and by day.

-- name: counted_up_to
-- Before this instant, every hour was counted when it was over.
SELECT up_to FROM tenure_hours_counted WHERE application = :application

-- name: note_counted
-- Note until when every hour was counted when it was over.
INSERT INTO tenure_hours_counted (application, up_to) VALUES (:application, :up_to)
ON CONFLICT (application) DO UPDATE SET up_to = excluded.up_to WHERE tenure_hours_counted.up_to < excluded.up_to

-- name: runs_to_count
-- The runs of a job that are due in a period.
SELECT scheduled_for, state, reason, count, due_at, started_at, finished_at
  FROM tenure_run INDEXED BY tenure_run_of_job
 WHERE job = :job AND scheduled_for >= :since AND scheduled_for < :before

-- name: run_to_count
-- The same of one run.
SELECT scheduled_for, state, reason, count, due_at, started_at, finished_at FROM tenure_run WHERE id = :id

-- name: touched_hours
-- The hours of a job in which a run was inserted late, or opened again.
SELECT hour FROM tenure_hour_touched WHERE job = :job

-- name: open_hours
-- The hours of a job that had open runs at the last count.
SELECT hour FROM tenure_job_hour INDEXED BY tenure_job_hour_open WHERE job = :job AND open > 0

-- name: closed_day
-- A day of a job whose hours are one row.
SELECT 1 FROM tenure_job_day WHERE job = :job AND day = :day

-- name: figures_there
-- What was counted of a job's runs in a period.
SELECT job, hour, succeeded, failed, lost, cancelled, skipped, missed, open, late_total, late_most, late, took_total,
       took_most, took
  FROM tenure_job_hour
 WHERE job = :job AND hour >= :since AND hour < :before AND removed = 0

-- name: write_hour
-- Write the figures of an hour.
INSERT OR REPLACE INTO tenure_job_hour (job, application, hour, removed, succeeded, failed, lost, cancelled, skipped,
                                        missed, open, late_total, late_most, late, took_total, took_most, took)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)

-- name: empty_hour
-- Delete the figures of an hour that has no runs any more.
DELETE FROM tenure_job_hour WHERE job = ? AND hour = ? AND removed = 0

-- name: figures_removed
-- What is kept of the runs of an hour that retention has removed.
SELECT job, hour, succeeded, failed, lost, cancelled, skipped, missed, open, late_total, late_most, late, took_total,
       took_most, took
  FROM tenure_job_hour WHERE job = :job AND hour = :hour AND removed = 1

-- name: touch_hour
-- Note that an hour which is over has another run.
INSERT OR IGNORE INTO tenure_hour_touched (job, hour) VALUES (?, ?)

-- name: touch_hour_of_run
-- The same, if this run was due long ago.
INSERT OR IGNORE INTO tenure_hour_touched (job, hour)
SELECT job, scheduled_for - scheduled_for % 3600000000 FROM tenure_run WHERE id = :id AND scheduled_for < :before

-- name: untouch_hours
-- Forget which hours of a job were touched: they are counted.
DELETE FROM tenure_hour_touched WHERE job = ?

-- name: days_to_close
-- The oldest days of jobs that ended before an instant and have no open runs.
SELECT DISTINCT h.job, h.hour - h.hour % 86400000000
  FROM tenure_job_hour h INDEXED BY tenure_job_hour_of_application
 WHERE h.application = :application AND h.hour < :before
   AND NOT EXISTS (SELECT 1 FROM tenure_job_hour o
                    WHERE o.job = h.job AND o.hour >= h.hour - h.hour % 86400000000
                      AND o.hour < h.hour - h.hour % 86400000000 + 86400000000 AND o.open > 0)
 LIMIT :limit

-- name: hours_of_day
-- All figures of a day of a job.
SELECT job, hour, succeeded, failed, lost, cancelled, skipped, missed, open, late_total, late_most, late, took_total,
       took_most, took
  FROM tenure_job_hour WHERE job = :job AND hour >= :day AND hour < :day + 86400000000

-- name: write_day
-- Write the figures of a day.
INSERT OR REPLACE INTO tenure_job_day (job, application, day, succeeded, failed, lost, cancelled, skipped, missed,
                                       late_total, late_most, late, took_total, took_most, took)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)

-- name: forget_hours
-- Delete the hours of a day.
DELETE FROM tenure_job_hour WHERE job = :job AND hour >= :day AND hour < :day + 86400000000

-- name: old_days
-- Days that are too old.
SELECT job, day FROM tenure_job_day INDEXED BY tenure_job_day_of_application
 WHERE application = :application AND day < :oldest LIMIT :limit

-- name: forget_day
-- Delete a day.
DELETE FROM tenure_job_day WHERE job = ? AND day = ?

-- name: figures_by_hour
-- The figures of one job by hour.
SELECT h.job, h.hour, h.succeeded, h.failed, h.lost, h.cancelled, h.skipped, h.missed, h.open, h.late_total,
       h.late_most, h.late, h.took_total, h.took_most, h.took
  FROM tenure_job j CROSS JOIN tenure_job_hour h ON h.job = j.id
 WHERE j.application = :application AND j.name = :name AND h.hour >= :since AND h.hour < :before ORDER BY h.hour

-- name: figures_by_day
-- The figures of one job of days that are one row.
SELECT d.job, d.day, d.succeeded, d.failed, d.lost, d.cancelled, d.skipped, d.missed, 0, d.late_total, d.late_most,
       d.late, d.took_total, d.took_most, d.took
  FROM tenure_job j CROSS JOIN tenure_job_day d ON d.job = j.id
 WHERE j.application = :application AND j.name = :name AND d.day >= :since AND d.day < :before ORDER BY d.day

-- name: figures_of_jobs
-- The figures of all jobs over their hours since an instant.
SELECT j.name, sum(h.succeeded), sum(h.failed), sum(h.lost), sum(h.cancelled), sum(h.skipped), sum(h.missed),
       sum(h.open), sum(h.late_total), max(h.late_most), group_concat(h.late, ','), sum(h.took_total), max(h.took_most),
       group_concat(h.took, ',')
  FROM tenure_job j CROSS JOIN tenure_job_hour h ON h.job = j.id
 WHERE j.application = :application AND h.hour >= :since
 GROUP BY j.id, j.name

-- name: figures_of_named
-- The figures of these jobs over their hours since an instant.
SELECT j.name, sum(h.succeeded), sum(h.failed), sum(h.lost), sum(h.cancelled), sum(h.skipped), sum(h.missed),
       sum(h.open), sum(h.late_total), max(h.late_most), group_concat(h.late, ','), sum(h.took_total), max(h.took_most),
       group_concat(h.took, ',')
  FROM json_each(:names) n
 CROSS JOIN tenure_job j ON j.application = :application AND j.name = n.value
 CROSS JOIN tenure_job_hour h ON h.job = j.id
 WHERE h.hour >= :since
 GROUP BY j.id, j.name

-- name: counts_by_queue
-- How many runs ended how since an instant, by the queues of their jobs.
SELECT j.queue, sum(h.succeeded), sum(h.failed), sum(h.lost), sum(h.cancelled), sum(h.skipped), sum(h.missed),
       sum(h.open)
  FROM tenure_job_hour h INDEXED BY tenure_job_hour_of_application
 CROSS JOIN tenure_job j ON j.id = h.job
 WHERE h.application = :application AND h.hour >= :since
 GROUP BY j.queue

-- name: forget_figures_by_hour
-- Delete hours of jobs, up to a limit.
DELETE FROM tenure_job_hour
 WHERE (job, hour, removed) IN (SELECT h.job, h.hour, h.removed
                                  FROM json_each(:jobs) x CROSS JOIN tenure_job_hour h ON h.job = x.value LIMIT :rows)

-- name: forget_figures_by_day
-- Delete days of jobs, up to a limit.
DELETE FROM tenure_job_day
 WHERE (job, day) IN (SELECT d.job, d.day FROM json_each(:jobs) x CROSS JOIN tenure_job_day d ON d.job = x.value
                       LIMIT :rows)

-- name: with_figures
-- Which of these jobs have figures left.
SELECT x.value FROM json_each(:jobs) x
 WHERE EXISTS (SELECT 1 FROM tenure_job_hour h WHERE h.job = x.value)
    OR EXISTS (SELECT 1 FROM tenure_job_day d WHERE d.job = x.value)
