-- Statements about nodes, elections, terms and epochs.

-- name: join
-- Enter a node.
INSERT INTO tenure_node (id, ttl, label, host, joined_at) VALUES (:id, :ttl, :label, :host, :now) ON CONFLICT DO NOTHING

-- name: own_row
-- What the file says about this node.
SELECT state, seq, asked FROM tenure_node WHERE id = :id

-- name: peers
-- All other live nodes.
SELECT id, seq, asked, ttl, host FROM tenure_node WHERE state = 'alive' AND id <> :id

-- name: rows
-- The elections that a node holds, and those in which it is a candidate.
SELECT e.name, e.term, e.holder, e.state = 'held', e.asked_term IS e.term, h.state IS 'alive', h.seq
  FROM tenure_election e LEFT JOIN tenure_node h ON h.id = e.holder
 WHERE e.name IN (SELECT value FROM json_each(:names)) OR (e.holder = :id AND e.state = 'held')

-- name: beat
-- Renew a node's lease in the file: only for a node that was requested to, or that must be revived. All others beat
-- in their lock files.
UPDATE tenure_node SET seq = :number WHERE id = :id AND state = 'alive' AND seq < :number

-- name: ask_node
-- Request that a node beats in the file, because its lock file cannot be read.
UPDATE tenure_node SET asked = 1 WHERE id = :id AND state = 'alive' AND asked = 0

-- name: alive
-- The ids of all live nodes.
SELECT id FROM tenure_node WHERE state = 'alive'

-- name: cards
-- Labels and hosts of live nodes.
SELECT id, label, ttl, host FROM tenure_node WHERE state = 'alive' AND id IN (SELECT value FROM json_each(:ids))

-- name: candidate
-- The label of a live node.
SELECT label FROM tenure_node WHERE id = :id AND state = 'alive'

-- name: declare
-- Declare a node dead.
UPDATE tenure_node SET state = 'dead', ended_at = :now, ended_by = :why, last_seen = :last_seen
 WHERE id = :id AND state = 'alive' AND seq = coalesce(:seq, seq)

-- name: leave
-- Mark a node that stops in good order.
UPDATE tenure_node SET state = 'left', ended_at = :now, ended_by = :why WHERE id = :id AND state = 'alive'

-- name: sweep
-- Delete nodes that ended long ago and hold nothing.
DELETE FROM tenure_node
 WHERE state <> 'alive' AND ended_at < :before
   AND NOT EXISTS (SELECT 1 FROM tenure_election e WHERE e.holder = tenure_node.id)

-- name: sweep_facts
-- Delete what deleted nodes could run.
DELETE FROM tenure_node_facts WHERE NOT EXISTS (SELECT 1 FROM tenure_node n WHERE n.id = tenure_node_facts.node)

-- name: sweep_functions
-- Delete sets of functions that no node refers to.
DELETE FROM tenure_function_set
 WHERE NOT EXISTS (SELECT 1 FROM tenure_node_facts f WHERE f.functions = tenure_function_set.hash)

-- name: election
-- One election with its holder, to decide whether a term can be granted.
SELECT e.term, e.holder, e.state, h.state, h.ended_by, h.last_seen, t.ended_at
  FROM tenure_election e
  LEFT JOIN tenure_node h ON h.id = e.holder
  LEFT JOIN tenure_term t ON t.election = e.name AND t.number = e.term
 WHERE e.name = :name

-- name: create
-- Enter an election.
INSERT INTO tenure_election (name) VALUES (:name) ON CONFLICT DO NOTHING

-- name: grant
-- Give an election to a node.
UPDATE tenure_election
   SET term = :term, holder = :id, state = 'held', granted_at = :now, reason = :why, asked_term = NULL
 WHERE name = :name

-- name: release
-- Give a term up.
UPDATE tenure_election SET state = 'released', asked_term = NULL
 WHERE name = :name AND term = :term AND holder = :id AND state = 'held'

-- name: held_by
-- The elections that a node holds.
SELECT name, term FROM tenure_election WHERE holder = :id AND state = 'held' ORDER BY name

-- name: begin_term
-- Write a new term into the history.
INSERT INTO tenure_term (election, number, node, label, began_at, began_by, gap)
VALUES (:name, :term, :id, :label, :now, :why, :gap)

-- name: end_term
-- Write the end of a term into the history.
UPDATE tenure_term SET ended_at = :now, ended_by = :why WHERE election = :name AND number = :term AND ended_at IS NULL

-- name: forget_terms
-- Keep the last 1000 terms of an election.
DELETE FROM tenure_term
 WHERE election = :name
   AND number < (SELECT number FROM tenure_term WHERE election = :name ORDER BY number DESC LIMIT 1 OFFSET 1000)

-- name: ask
-- Request that the holder of an election resigns.
UPDATE tenure_election SET asked_term = term WHERE name = :name AND state = 'held' RETURNING term

-- name: leaders
-- The holders of one election or of all.
SELECT e.name, e.term, e.holder, coalesce(n.label, ''), e.granted_at, n.state IS 'alive', n.host
  FROM tenure_election e LEFT JOIN tenure_node n ON n.id = e.holder
 WHERE e.state = 'held' AND (:name IS NULL OR e.name = :name) ORDER BY e.name

-- name: terms
-- The history of all elections, newest first.
SELECT election, number, node, label, began_at, began_by, ended_at, ended_by, gap
  FROM tenure_term ORDER BY began_at DESC, number DESC LIMIT :limit

-- name: terms_of
-- The history of one election, newest first.
SELECT election, number, node, label, began_at, began_by, ended_at, ended_by, gap
  FROM tenure_term WHERE election = :name ORDER BY number DESC LIMIT :limit

-- name: recent_terms
-- The newest terms of each of the elections after a name.
SELECT t.election, t.number, t.node, t.label, t.began_at, t.began_by, t.ended_at, t.ended_by, t.gap
  FROM (SELECT name FROM tenure_election WHERE name > :after ORDER BY name LIMIT :elections) e
 CROSS JOIN tenure_term t ON t.election = e.name
   AND t.number >= coalesce((SELECT x.number FROM tenure_term x WHERE x.election = e.name
                              ORDER BY x.number DESC LIMIT 1 OFFSET :each - 1), 0)
 ORDER BY t.election, t.number DESC

-- name: node_records
-- The nodes that are alive, and those that ended last.
SELECT id, label, state, ttl, joined_at, last_seen, ended_at, coalesce(ended_by, '')
  FROM tenure_node INDEXED BY tenure_node_alive WHERE state = 'alive'
UNION ALL
SELECT * FROM (SELECT id, label, state, ttl, joined_at, last_seen, ended_at, coalesce(ended_by, '')
                 FROM tenure_node INDEXED BY tenure_node_ended WHERE state <> 'alive'
                ORDER BY ended_at DESC, id LIMIT :ended)

-- name: epoch
-- The epoch, and the file it was written for.
SELECT number, max_ttl, boot_id, device, inode FROM tenure_epoch

-- name: begin_epoch
-- Write the first epoch.
INSERT INTO tenure_epoch (one, boot_id, device, inode) VALUES (1, :boot_id, :device, :inode)

-- name: unsettle
-- Stop all grants until the epoch is raised.
UPDATE tenure_epoch SET inode = '' WHERE number = :number

-- name: raise_epoch
-- Begin a new epoch for the file that was observed, unless another node has done so.
UPDATE tenure_epoch
   SET number = max(number + 1, :now), boot_id = :boot_id, device = :device, inode = :inode
 WHERE number = :number

-- name: restamp
-- After a reboot, note that the same file lies on a device with another number.
UPDATE tenure_epoch SET boot_id = :boot_id, device = :device WHERE boot_id <> :boot_id
