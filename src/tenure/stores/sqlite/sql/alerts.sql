-- Alerts, and what has to be told of them.

-- name: marked_jobs
-- Paused jobs, and active ones with a trigger.
SELECT id FROM tenure_job NOT INDEXED   -- by id: an index of the application would sort all of its jobs for each page
 WHERE id > :beyond AND application = :application AND (state = 'paused' OR (state = 'active' AND trigger IS NOT NULL))
 ORDER BY id LIMIT :limit

-- name: marked_among
-- The same among some jobs.
SELECT j.id FROM json_each(:among) x CROSS JOIN tenure_job j ON j.id = x.value
 WHERE j.id > :beyond AND j.application = :application
   AND (j.state = 'paused' OR (j.state = 'active' AND j.trigger IS NOT NULL))
 ORDER BY j.id LIMIT :limit

-- name: job_marks
-- How the newest final runs of some jobs ended. At most `depth` of each are read, and seldom more than one. If they do
-- not tell, it was at the time of the oldest of them, or earlier.
WITH marked AS MATERIALIZED (
    SELECT x.value AS of_job,
           (SELECT f.id
              FROM (SELECT r.id, r.state, r.kind, r.reason FROM tenure_run r INDEXED BY tenure_run_of_job
                     WHERE r.job = x.value AND r.state IN ('succeeded', 'failed', 'lost', 'cancelled', 'skipped')
                     ORDER BY r.scheduled_for DESC LIMIT :depth) f
             WHERE f.state = 'succeeded' OR (f.state = 'cancelled' AND f.kind <> 'manual' AND f.reason <> 'replaced')
             LIMIT 1) AS settled,
           (SELECT f.scheduled_for
              FROM (SELECT r.scheduled_for, r.state FROM tenure_run r INDEXED BY tenure_run_of_job
                     WHERE r.job = x.value AND r.state IN ('succeeded', 'failed', 'lost', 'cancelled', 'skipped')
                     ORDER BY r.scheduled_for DESC LIMIT :depth) f
             WHERE f.state IN ('succeeded', 'failed', 'lost') LIMIT 1) AS ended
      FROM json_each(:jobs) x
), known AS MATERIALIZED (
    SELECT of_job, settled, ended,
           CASE WHEN settled IS NULL OR ended IS NULL THEN
                (SELECT r.scheduled_for FROM tenure_run r INDEXED BY tenure_run_of_job
                  WHERE r.job = of_job AND r.state IN ('succeeded', 'failed', 'lost', 'cancelled', 'skipped')
                  ORDER BY r.scheduled_for DESC LIMIT 1 OFFSET :depth - 1) END AS oldest
      FROM marked
)
SELECT {job_or_done},
       CASE WHEN known.settled IS NULL THEN known.oldest
            ELSE (SELECT s.scheduled_for FROM tenure_run s WHERE s.id = known.settled) END,
       (SELECT s.finished_at FROM tenure_run s WHERE s.id = known.settled),
       coalesce(known.ended, known.oldest),
       -- Only after the newest run that ended otherwise: what was missed before has been made up for.
       (SELECT coalesce(f.until, f.scheduled_for)
          FROM (SELECT x.scheduled_for, x.until, x.state, x.reason FROM tenure_run x INDEXED BY tenure_run_of_job
                 WHERE x.job = known.of_job AND x.scheduled_for > coalesce(known.ended, -9e18)
                   AND x.state IN ('succeeded', 'failed', 'lost', 'cancelled', 'skipped')
                 ORDER BY x.scheduled_for DESC LIMIT :depth) f
         WHERE f.state = 'skipped' AND f.reason = 'missed' LIMIT 1),
       EXISTS (SELECT 1 FROM tenure_run o INDEXED BY tenure_run_open
                WHERE o.job = known.of_job AND (o.state = 'pending' OR o.state = 'waiting' OR o.state = 'running')
                  AND (o.attempt > 0 OR o.state = 'waiting')),
       EXISTS (SELECT 1 FROM tenure_run o INDEXED BY tenure_run_open
                WHERE o.job = known.of_job AND (o.state = 'pending' OR o.state = 'waiting' OR o.state = 'running')
                  AND (o.looks > 0 OR o.pool IS NOT NULL))
  FROM known CROSS JOIN tenure_job ON tenure_job.id = known.of_job
 ORDER BY known.of_job

-- name: dead_nodes
-- Nodes of an application that were declared dead.
SELECT n.label, n.ended_at, coalesce(n.ended_by, '')
  FROM tenure_node n INDEXED BY tenure_node_ended
 CROSS JOIN tenure_node_facts f ON f.node = n.id AND f.application = :application
 WHERE n.state <> 'alive' AND n.state = 'dead' AND n.ended_at >= :since ORDER BY n.ended_at LIMIT 1000

-- name: open_alerts
-- The alerts that are not closed.
SELECT {alert} FROM tenure_alert a INDEXED BY tenure_alert_open
 WHERE a.application = :application AND a.closed_at IS NULL ORDER BY a.first_seen, a.id LIMIT 10000

-- name: alert_history
-- The alerts that were opened, newest first.
SELECT {alert} FROM tenure_alert a INDEXED BY tenure_alert_opened
 WHERE a.application = :application AND a.opened_at IS NOT NULL ORDER BY a.opened_at DESC, a.id LIMIT :limit

-- name: add_alert
-- Add an alert, unless one is not closed, or was closed after the look.
INSERT INTO tenure_alert (id, application, kind, target, text, since, first_seen, last_seen, seen, missing, opened_at,
                          closed_at, version)
SELECT :id, :application, :kind, :target, :text, :since, :first_seen, :last_seen, :seen, 0, :opened_at, NULL, 1
 WHERE NOT EXISTS (SELECT 1 FROM tenure_alert c INDEXED BY tenure_alert_closed
                    WHERE c.application = :application AND c.closed_at IS NOT NULL
                      AND c.closed_at BETWEEN :seen_at AND :now   -- later: the clock was wrong when it was closed
                      AND c.kind = :kind AND c.target = :target)
ON CONFLICT DO NOTHING   -- another node was first

-- name: change_alert
-- Apply a step to the version that its node has read.
UPDATE tenure_alert
   SET text = :text, since = :since, first_seen = :first_seen, last_seen = :last_seen, seen = :seen, missing = :missing,
       opened_at = :opened_at, closed_at = :closed_at, version = version + 1
 WHERE id = :id AND version = :was

-- name: drop_alert
-- Forget an alert that was seen too briefly.
DELETE FROM tenure_alert WHERE id = :id AND version = :was AND opened_at IS NULL

-- name: add_message
-- Write what has to be told to one sink.
INSERT INTO tenure_alert_message (application, alert, event, key, sink, made_at)
VALUES (:application, :id, :event, :key, :sink, :now)
ON CONFLICT DO NOTHING

-- name: alert_messages
-- The messages of some alerts.
SELECT {message}, {alert}
  FROM json_each(:alerts) w
 CROSS JOIN tenure_alert_message m INDEXED BY tenure_alert_message_alert ON m.alert = w.value
 CROSS JOIN tenure_alert a ON a.id = m.alert
 WHERE m.application = :application ORDER BY m.number

-- name: unsent_messages
-- Messages that have to be sent, and that no node sends.
SELECT {message}, {alert}
  FROM tenure_alert_message m INDEXED BY tenure_alert_message_unsent
 CROSS JOIN tenure_alert a ON a.id = m.alert
 WHERE m.application = :application AND m.sent_at IS NULL AND m.given_up = 0
   AND m.sink IN (SELECT value FROM json_each(:sinks))
   AND (m.claimed_until IS NULL OR m.claimed_until <= :now OR m.claimed_until > :too_far)
   AND NOT EXISTS (SELECT 1 FROM tenure_alert_message e INDEXED BY tenure_alert_message_alert
                    WHERE e.alert = m.alert AND e.sink = m.sink AND e.number < m.number
                      AND e.sent_at IS NULL AND e.given_up = 0)
 ORDER BY m.number LIMIT :limit

-- name: claim_message
-- Claim one.
UPDATE tenure_alert_message SET claimed_by = :by, claimed_until = :until WHERE number = :number

-- name: end_message
-- What became of a message. That a sink has accepted it counts, whichever node claims it now.
UPDATE tenure_alert_message
   SET sent_at = CASE WHEN :error = '' THEN :now END, tries = tries + (:error <> ''), error = :error,
       given_up = (:error <> '' AND :until IS NULL), claimed_until = :until
 WHERE number = :number AND sent_at IS NULL AND (:error = '' OR claimed_by = :by)

-- name: old_alerts
-- Alerts that were closed long ago.
SELECT id FROM tenure_alert INDEXED BY tenure_alert_closed
 WHERE application = :application AND closed_at IS NOT NULL AND closed_at < :before ORDER BY closed_at LIMIT :limit

-- name: forget_messages
-- Delete the messages of one alert.
DELETE FROM tenure_alert_message WHERE alert = ?

-- name: forget_alert
-- Delete one alert.
DELETE FROM tenure_alert WHERE id = ?
