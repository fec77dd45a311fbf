-- The log of actions: what people did.

-- Records what a person does. Every operation that carries an action calls this, in its own transaction. Does nothing
-- without an action.
CREATE OR REPLACE FUNCTION {schema}.note_action(of_application text, on_target text, on_run bigint, action jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF jsonb_typeof(action) = 'object' THEN
        INSERT INTO {schema}.action (at, application, by, what, target, run, why, origin, detail)
        VALUES (clock_timestamp(), of_application, action ->> 'by', action ->> 'what', on_target, on_run,
                action ->> 'why', action ->> 'origin', action ->> 'detail');
    END IF;
END $$;
