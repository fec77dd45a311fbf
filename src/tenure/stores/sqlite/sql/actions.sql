-- The log of actions: what people did.

-- name: note_action
-- Record what a person does.
INSERT INTO tenure_action (at, application, by, what, target, run, why, origin, detail)
VALUES (:now, :application, :by, :what, :target, :run, :why, :origin, :detail)

-- name: actions
-- The newest actions in an application, and on elections that belong to none.
SELECT id, at, application, by, what, target, run, why, origin, detail
  FROM tenure_action INDEXED BY tenure_action_application
 WHERE application IN (:application, '') AND (:by IS NULL OR by = :by) AND at >= :since AND at < :before
   AND (:what IS NULL OR what = :what) AND id < :below
 ORDER BY id DESC LIMIT :limit

-- name: actions_on
-- The newest actions on one job or election.
SELECT id, at, application, by, what, target, run, why, origin, detail
  FROM tenure_action INDEXED BY tenure_action_target
 WHERE application IN (:application, '') AND target = :target AND (:by IS NULL OR by = :by)
   AND at >= :since AND at < :before AND (:what IS NULL OR what = :what) AND id < :below
 ORDER BY id DESC LIMIT :limit

-- name: old_actions
-- The oldest actions of an application, and on elections that belong to none, that need not be kept.
SELECT id FROM (SELECT id, at FROM tenure_action INDEXED BY tenure_action_application
                 WHERE application = :application ORDER BY id LIMIT :limit)
 WHERE at < :before OR id <= (SELECT max(a.id) FROM tenure_action a) - :keep
UNION ALL
SELECT id FROM (SELECT id, at FROM tenure_action INDEXED BY tenure_action_application
                 WHERE application = '' ORDER BY id LIMIT :limit)
 WHERE at < :before OR id <= (SELECT max(a.id) FROM tenure_action a) - :keep

-- name: forget_action
-- Delete one action.
DELETE FROM tenure_action WHERE id = ?
