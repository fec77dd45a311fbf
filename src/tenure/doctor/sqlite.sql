-- name: tables
-- The tables of tenure in this file.
SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'tenure\_%' ESCAPE '\'

-- name: version
-- What the schema is, and the least that a library must know to use it.
SELECT version, oldest FROM tenure_schema_version

-- name: zone_rules
-- Active jobs planned with an older release of the zone rules than they were written with.
SELECT name, tzdata, substr(next_reading, 1, instr(next_reading, '@') - 1)
  FROM tenure_job WHERE state = 'active' AND next_reading < tzdata ORDER BY name LIMIT 6

-- name: nodes
-- All nodes.
SELECT id, label, state, ttl, asked, host FROM tenure_node ORDER BY label

-- name: held
-- Elections and their holders.
SELECT e.name, e.term, e.holder, coalesce(n.label, ''), e.granted_at, coalesce(n.state, 'gone')
  FROM tenure_election e LEFT JOIN tenure_node n ON n.id = e.holder
 WHERE e.state = 'held' ORDER BY e.name

-- name: epoch
-- The number of the epoch.
SELECT number FROM tenure_epoch
