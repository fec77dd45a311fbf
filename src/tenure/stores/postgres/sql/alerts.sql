-- Alerts, and what has to be told of them.

-- name: job_marks
-- Paused jobs, active ones with a trigger, and how their newest runs ended.
SELECT {job}, date_part('epoch', m.settled), date_part('epoch', m.settled_at), date_part('epoch', m.ran),
       date_part('epoch', m.missed), m.busy, m.held
  FROM {schema}.job_marks(%(application)s, %(beyond)s::bigint, %(limit)s::int, %(depth)s::int,
                          %(among)s::bigint[]) m
  JOIN {schema}.job j ON j.id = m.job
 ORDER BY m.job

-- name: dead_nodes
-- Nodes of an application that were declared dead.
SELECT n.label, date_part('epoch', n.ended_at), coalesce(n.ended_by, '')
  FROM {schema}.node n
  JOIN {schema}.node_facts f ON f.node = n.id AND f.application = %(application)s
 WHERE n.state = 'dead' AND n.ended_at >= to_timestamp(%(since)s::float8)
 ORDER BY n.ended_at LIMIT 1000

-- name: open_alerts
-- The alerts that are not closed.
SELECT {alert} FROM {schema}.alert a
 WHERE a.application = %(application)s AND a.closed_at IS NULL
 ORDER BY a.first_seen, a.id LIMIT 10000

-- name: alert_history
-- The alerts that were opened, newest first.
SELECT {alert} FROM {schema}.alert a
 WHERE a.application = %(application)s AND a.opened_at IS NOT NULL
 ORDER BY a.opened_at DESC, a.id LIMIT %(limit)s

-- name: note_alerts
-- Apply what a look has found.
SELECT {schema}.note_alerts(%(application)s, %(seen_at)s::float8, %(stale)s::float8, %(steps)s::jsonb,
                            %(sinks)s::text[])

-- name: alert_messages
-- The messages of some alerts.
SELECT {message}, {alert}
  FROM {schema}.alert_message m JOIN {schema}.alert a ON a.id = m.alert
 WHERE m.alert = ANY (%(alerts)s::uuid[]) AND m.application = %(application)s ORDER BY m.number

-- name: claim_messages
-- Claim messages that have to be sent. Finds nothing and writes nothing while all is well.
WITH due AS MATERIALIZED (
    SELECT m.number FROM {schema}.alert_message m
     WHERE m.application = %(application)s AND m.sent_at IS NULL AND NOT m.given_up
       AND m.sink = ANY (%(sinks)s::text[])
       -- A claim is over, or reaches so far that the clock was wrong when it was made.
       AND (m.claimed_until IS NULL OR m.claimed_until <= clock_timestamp()
            OR m.claimed_until > clock_timestamp() + make_interval(secs => %(too_far)s::float8))
       AND NOT EXISTS (SELECT 1 FROM {schema}.alert_message e
                        WHERE e.alert = m.alert AND e.sink = m.sink AND e.number < m.number
                          AND e.sent_at IS NULL AND NOT e.given_up)
     ORDER BY m.number LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE {schema}.alert_message m
       SET claimed_by = %(by)s, claimed_until = clock_timestamp() + make_interval(secs => %(lapse)s::float8)
      FROM due WHERE m.number = due.number
    RETURNING m.*
)
SELECT {message}, {alert}
  FROM claimed m JOIN {schema}.alert a ON a.id = m.alert ORDER BY m.number

-- name: end_message
-- What became of a message. That a sink has accepted it counts, whichever node claims it now.
UPDATE {schema}.alert_message m
   SET sent_at = CASE WHEN %(error)s = '' THEN clock_timestamp() END,
       tries = m.tries + CASE WHEN %(error)s = '' THEN 0 ELSE 1 END,
       error = %(error)s,
       given_up = %(error)s <> '' AND %(again_in)s::float8 IS NULL,
       claimed_until = clock_timestamp() + make_interval(secs => coalesce(%(again_in)s::float8, 0))
 WHERE m.number = %(number)s AND m.sent_at IS NULL AND (%(error)s = '' OR m.claimed_by = %(by)s)
RETURNING true

-- name: forget_alerts
-- Delete alerts that were closed long ago, and with them their messages.
DELETE FROM {schema}.alert a
 WHERE a.id IN (SELECT o.id FROM {schema}.alert o
                 WHERE o.application = %(application)s AND o.closed_at IS NOT NULL
                   AND o.closed_at < to_timestamp(%(before)s::float8)
                 ORDER BY o.closed_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING a.id
