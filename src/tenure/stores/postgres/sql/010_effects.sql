-- What runs committed under a key, and the completion of a run inside the caller's transaction. Both functions raise inside the
-- server, so that whoever swallows the error cannot commit. The caller's role needs EXECUTE and nothing else.
--
-- A run has a token only while it is running. Rows are found by index even in a small table: to a SERIALIZABLE caller a scan of the
-- whole table would be a conflict with everybody.

CREATE TABLE {schema}.effect (
    run     bigint NOT NULL REFERENCES {schema}.run ON DELETE CASCADE,
    key     text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),   -- for people
    PRIMARY KEY (run, key)
);

CREATE FUNCTION {schema}.refuse_attempt(of_run bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'tenure: run % is %, this attempt no longer counts', of_run,
        coalesce((SELECT r.state::text FROM {schema}.run r WHERE r.id = of_run), 'unknown')
        USING ERRCODE = 'TN002', HINT = 'Nothing of this transaction was committed.';
END $$;

-- A caller that freezes is ended after the ttl of its node, so that it cannot hold up its successor. A shorter limit of the
-- caller's own stays.
CREATE FUNCTION {schema}.limit_idling(of_node uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    patience double precision;
BEGIN
    SELECT least(n.ttl, nullif(extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0)) INTO patience
      FROM {schema}.node n WHERE n.id = of_node;
    PERFORM set_config('idle_in_transaction_session_timeout', ceil(coalesce(patience, 30) * 1000)::bigint::text, true);
END $$;

-- The run succeeds with the caller's transaction. Locks the run and nothing else.
CREATE FUNCTION {schema}.complete(of_run bigint, of_token text, began double precision) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    holder uuid;
BEGIN
    UPDATE {schema}.run r
       SET state = 'succeeded', token = NULL, reason = '', asked_to_end = '', stopping = false,
           started_at = coalesce(to_timestamp(began), r.claimed_at), finished_at = clock_timestamp()
     WHERE r.id = of_run AND r.token = of_token
    RETURNING r.node INTO holder;
    IF NOT FOUND THEN PERFORM {schema}.refuse_attempt(of_run); END IF;
    PERFORM {schema}.limit_idling(holder);
END $$;

-- True if no attempt of this run has committed this key. KEY SHARE lets whoever takes the run back pass; the next attempt waits at
-- the primary key for the end of this transaction.
CREATE FUNCTION {schema}.once(of_run bigint, of_token text, of_key text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    holder uuid;
    first  boolean;
BEGIN
    SELECT r.node INTO holder FROM {schema}.run r WHERE r.id = of_run AND r.token = of_token FOR KEY SHARE;
    IF NOT FOUND THEN PERFORM {schema}.refuse_attempt(of_run); END IF;
    INSERT INTO {schema}.effect (run, key) VALUES (of_run, of_key) ON CONFLICT DO NOTHING;
    first := FOUND;
    PERFORM {schema}.limit_idling(holder);
    RETURN first;
END $$;
