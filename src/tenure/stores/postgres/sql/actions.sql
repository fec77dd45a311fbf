-- The log of actions: what people did.

-- name: actions
-- The newest actions in an application, and on elections that belong to none. Rows are compared whole, so that the
-- server begins where the page does: else it may walk along the ids of all applications.
SELECT a.id, date_part('epoch', a.at), a.application, a.by, a.what, a.target, a.run, a.why, a.origin, a.detail
  FROM unnest(ARRAY[%(application)s, '']) AS w (application)
 CROSS JOIN LATERAL (SELECT x.* FROM {schema}.action x
                      WHERE (x.application, x.id) < (w.application, coalesce(%(below)s::bigint, 9223372036854775807))
                        AND x.application >= w.application
                        AND {action}
                      ORDER BY x.application DESC, x.id DESC LIMIT %(limit)s) a
 ORDER BY a.id DESC LIMIT %(limit)s

-- name: actions_on
-- The newest actions on one job or election.
SELECT a.id, date_part('epoch', a.at), a.application, a.by, a.what, a.target, a.run, a.why, a.origin, a.detail
  FROM unnest(ARRAY[%(application)s, '']) AS w (application)
 CROSS JOIN LATERAL (SELECT x.* FROM {schema}.action x
                      WHERE (x.application, x.target, x.id)
                          < (w.application, %(target)s::text, coalesce(%(below)s::bigint, 9223372036854775807))
                        AND (x.application, x.target) >= (w.application, %(target)s::text)
                        AND {action}
                      ORDER BY x.application DESC, x.target DESC, x.id DESC LIMIT %(limit)s) a
 ORDER BY a.id DESC LIMIT %(limit)s

-- name: forget_actions
-- Delete the oldest actions of an application, and on elections that belong to none, that need not be kept.
DELETE FROM {schema}.action a
 USING unnest(ARRAY[%(application)s, '']) AS w (application)
 CROSS JOIN LATERAL (SELECT x.id, x.at FROM {schema}.action x
                      WHERE x.application = w.application ORDER BY x.id LIMIT %(limit)s) o
 WHERE a.id = o.id
   AND (o.at < to_timestamp(%(before)s::float8)
        OR o.id <= (SELECT max(m.id) FROM {schema}.action m) - %(keep)s::bigint)
RETURNING a.id
