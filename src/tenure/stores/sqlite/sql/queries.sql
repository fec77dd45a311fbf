-- name: own_row
SELECT state, seq, asked FROM tenure_node WHERE id = :id

-- name: peers
SELECT id, seq, asked, ttl, host FROM tenure_node WHERE state = 'alive' AND id <> :id

-- name: rows
-- Those the node holds, and those it is a candidate for.
SELECT e.name, e.term, e.holder, e.state = 'held', e.asked_term IS e.term, h.state IS 'alive', h.seq
  FROM tenure_election e LEFT JOIN tenure_node h ON h.id = e.holder
 WHERE e.name IN (SELECT value FROM json_each(:names)) OR (e.holder = :id AND e.state = 'held')

-- name: join
INSERT INTO tenure_node (id, ttl, label, host, joined_at) VALUES (:id, :ttl, :label, :host, :now) ON CONFLICT DO NOTHING

-- name: beat
-- Only for a node that was asked to, or that has to be revived: everybody else beats in its lock file.
UPDATE tenure_node SET seq = :number WHERE id = :id AND state = 'alive' AND seq < :number

-- name: ask_node
UPDATE tenure_node SET asked = 1 WHERE id = :id AND state = 'alive' AND asked = 0

-- name: declare
UPDATE tenure_node SET state = 'dead', ended_at = :now, ended_by = :why, last_seen = :last_seen
 WHERE id = :id AND state = 'alive' AND seq = coalesce(:seq, seq)

-- name: leave
UPDATE tenure_node SET state = 'left', ended_at = :now, ended_by = :why WHERE id = :id AND state = 'alive'

-- name: held_by
SELECT name, term FROM tenure_election WHERE holder = :id AND state = 'held' ORDER BY name

-- name: release
UPDATE tenure_election SET state = 'released', asked_term = NULL
 WHERE name = :name AND term = :term AND holder = :id AND state = 'held'

-- name: end_term
UPDATE tenure_term SET ended_at = :now, ended_by = :why WHERE election = :name AND number = :term AND ended_at IS NULL

-- name: alive
SELECT id FROM tenure_node WHERE state = 'alive'

-- name: cards
SELECT id, label, ttl, host FROM tenure_node WHERE state = 'alive' AND id IN (SELECT value FROM json_each(:ids))

-- name: candidate
SELECT label FROM tenure_node WHERE id = :id AND state = 'alive'

-- name: election
SELECT e.term, e.holder, e.state, h.state, h.ended_by, h.last_seen, t.ended_at
  FROM tenure_election e
  LEFT JOIN tenure_node h ON h.id = e.holder
  LEFT JOIN tenure_term t ON t.election = e.name AND t.number = e.term
 WHERE e.name = :name

-- name: create
INSERT INTO tenure_election (name) VALUES (:name) ON CONFLICT DO NOTHING

-- name: grant
UPDATE tenure_election
   SET term = :term, holder = :id, state = 'held', granted_at = :now, reason = :why, asked_term = NULL
 WHERE name = :name

-- name: begin_term
INSERT INTO tenure_term (election, number, node, label, began_at, began_by, gap) VALUES (:name, :term, :id, :label, :now, :why, :gap)

-- name: forget_terms
DELETE FROM tenure_term
 WHERE election = :name
   AND number < (SELECT number FROM tenure_term WHERE election = :name ORDER BY number DESC LIMIT 1 OFFSET 1000)

-- name: ask
UPDATE tenure_election SET asked_term = term WHERE name = :name AND state = 'held' RETURNING term

-- name: leaders
SELECT e.name, e.term, e.holder, coalesce(n.label, ''), e.granted_at, n.state IS 'alive', n.host
  FROM tenure_election e LEFT JOIN tenure_node n ON n.id = e.holder
 WHERE e.state = 'held' AND (:name IS NULL OR e.name = :name) ORDER BY e.name

-- name: terms
SELECT election, number, node, label, began_at, began_by, ended_at, ended_by, gap
  FROM tenure_term WHERE :name IS NULL OR election = :name ORDER BY began_at DESC, number DESC LIMIT :limit

-- name: epoch
SELECT number, max_ttl, boot_id, device, inode FROM tenure_epoch

-- name: unsettle
UPDATE tenure_epoch SET inode = '' WHERE number = :number

-- name: raise_epoch
UPDATE tenure_epoch SET number = max(number + 1, :now), boot_id = :boot_id, device = :device, inode = :inode WHERE number = :number

-- name: restamp
-- The same file after a reboot, on a device that got another number.
UPDATE tenure_epoch SET boot_id = :boot_id, device = :device WHERE boot_id <> :boot_id

-- name: begin_epoch
INSERT INTO tenure_epoch (one, boot_id, device, inode) VALUES (1, :boot_id, :device, :inode)

-- name: sweep
DELETE FROM tenure_node
 WHERE state <> 'alive' AND ended_at < :before AND NOT EXISTS (SELECT 1 FROM tenure_election e WHERE e.holder = tenure_node.id)

-- name: sweep_facts
DELETE FROM tenure_node_facts WHERE NOT EXISTS (SELECT 1 FROM tenure_node n WHERE n.id = tenure_node_facts.node)

-- name: sweep_functions
DELETE FROM tenure_function_set WHERE NOT EXISTS (SELECT 1 FROM tenure_node_facts f WHERE f.functions = tenure_function_set.hash)

-- name: sweep_guards
-- A day later than it could: while `within` of a key is being changed, some may still ask for a longer span.
DELETE FROM tenure_guard WHERE until < :before

-- name: schema_version
SELECT version, oldest FROM tenure_schema_version

-- name: fence
-- main: an attached file would not commit together with the caller's.
INSERT INTO main.tenure_fence (name, term, holder) VALUES (:name, :term, :holder)

-- name: standing
SELECT term, holder, state = 'held' FROM main.tenure_election WHERE name = :name
