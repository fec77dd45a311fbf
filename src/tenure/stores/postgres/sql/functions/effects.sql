-- What an application calls inside its own transactions. `fence`, `complete` and `once` raise inside the server: a
-- caller that swallows the error still cannot commit. The caller's role needs EXECUTE on these three and nothing
-- else.
--
-- A run has a token only while it is RUNNING. Rows are found by index even in a small table: for a SERIALIZABLE
-- caller, a scan of the whole table would conflict with every other writer.

-- Raises if the term is over. It is the last statement of the caller's transaction: KEY SHARE lets beats and releases
-- pass, and delays a new term until the caller has committed. A caller that freezes is disconnected after the ttl.
CREATE OR REPLACE FUNCTION {schema}.fence(election_name text, of_term bigint, of_holder uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_term bigint;
    patience   double precision;
BEGIN
    PERFORM 1 FROM {schema}.election x
      WHERE x.name = election_name AND x.term = of_term AND x.holder = of_holder AND x.state = 'held'
        FOR KEY SHARE;
    IF NOT FOUND THEN
        SELECT x.term INTO found_term FROM {schema}.election x WHERE x.name = election_name;
        RAISE EXCEPTION 'tenure: term % of election "%" is over, the current one is %',
            of_term, election_name, coalesce(found_term, 0)
            USING ERRCODE = 'TN001', HINT = 'Another node may lead. Nothing of this transaction was committed.';
    END IF;
    SELECT least(n.ttl, nullif(extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0))
      INTO patience
      FROM {schema}.node n WHERE n.id = of_holder;   -- a shorter limit that the caller has set stays
    PERFORM set_config('idle_in_transaction_session_timeout', ceil(coalesce(patience, 10) * 1000)::bigint::text, true);
END $$;

-- Raises the error for an attempt that no longer has its run.
CREATE OR REPLACE FUNCTION {schema}.refuse_attempt(of_run bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'tenure: run % is %, this attempt no longer counts', of_run,
        coalesce((SELECT r.state::text FROM {schema}.run r WHERE r.id = of_run), 'unknown')
        USING ERRCODE = 'TN002', HINT = 'Nothing of this transaction was committed.';
END $$;

-- Disconnects a caller that freezes after the ttl of its node, so it cannot delay its successor. A shorter limit that
-- the caller has set stays.
CREATE OR REPLACE FUNCTION {schema}.limit_idling(of_node uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    patience double precision;
BEGIN
    SELECT least(n.ttl, nullif(extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval), 0))
      INTO patience
      FROM {schema}.node n WHERE n.id = of_node;
    PERFORM set_config('idle_in_transaction_session_timeout', ceil(coalesce(patience, 30) * 1000)::bigint::text, true);
END $$;

-- Lets the run succeed with the caller's transaction. Locks the run and nothing else.
CREATE OR REPLACE FUNCTION {schema}.complete(of_run bigint, of_token text, began double precision) RETURNS void
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

-- True if no attempt of this run has committed this key. KEY SHARE does not delay a session that takes the run back.
-- The next attempt then waits at the primary key until this transaction ends.
CREATE OR REPLACE FUNCTION {schema}.once(of_run bigint, of_token text, of_key text) RETURNS boolean
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
