-- `recovery: manual`: which plans and tasks may be claimed without a person's word. The rule is that of `going.rs`.
-- An era lasts for as long as a node of it is there. `automatic` is null for a plan that does not say.

-- Whether a node is there that belongs to an era.
CREATE FUNCTION @.has_begun() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM @.settled s JOIN @.nodes n ON n.session = s.session WHERE NOT n.ended AND n.expires_at >= @.now_ms()
    )
$$;

-- What the word of a person is worth who asks this node. Only one that belongs to an era knows which one it is for.
CREATE FUNCTION @.go_now(own bigint, automatic boolean) RETURNS smallint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN automatic OR EXISTS (SELECT FROM @.settled s WHERE s.session = own) THEN 1 ELSE 2 END::smallint
$$;

-- A sign of life of this node: if it belongs to an era, that is there, and all words were for it. Whoever is here and wants
-- to know belongs to it too from now on: one that is busy may ask no more before this node is gone.
CREATE FUNCTION @.see(own bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM @.settled s WHERE s.session = own) THEN
        PERFORM @.keep_to_this_era(NULL);
        IF EXISTS (SELECT FROM @.asking) THEN
            WITH asked AS (DELETE FROM @.asking RETURNING session)
            INSERT INTO @.settled SELECT n.session FROM asked JOIN @.nodes n ON n.session = asked.session AND NOT n.ended
            ON CONFLICT DO NOTHING;
            PERFORM @.forget_settled();
        END IF;
    END IF;
END $$;

CREATE FUNCTION @.forget_settled() RETURNS void LANGUAGE sql AS $$
    DELETE FROM @.settled s WHERE NOT EXISTS (SELECT FROM @.nodes n WHERE n.session = s.session)
$$;

-- What was said for all plans, or for one, is for no other era than this.
CREATE FUNCTION @.keep_to_this_era(only_plan bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @.plans p SET go = 1 WHERE p.go > 1 AND (only_plan IS NULL OR p.no = only_plan);
    UPDATE @.task_runtimes r SET go = 1 WHERE r.go > 1 AND (only_plan IS NULL OR r.plan = only_plan);
END $$;

CREATE FUNCTION @.is_held(automatic boolean, go smallint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN automatic THEN false WHEN automatic IS NULL OR go <> 1 THEN go < 1 ELSE NOT @.has_begun() END
$$;

-- Which era a node is in, asked until it is known: true. One that was seen since this node came goes on; if nobody of it
-- can be there any more, another begins; and while somebody may be, it is not known. Who is there is judged first.
CREATE FUNCTION @.settle_era(own bigint, by_default boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE mine @.nodes;
BEGIN
    PERFORM @.begin_write(own);
    PERFORM @.reap(own);
    IF EXISTS (SELECT FROM @.settled s WHERE s.session = own) THEN
        RETURN true;
    END IF;
    SELECT n.* INTO mine FROM @.nodes n WHERE n.session = own;
    IF EXISTS (
        SELECT FROM @.nodes n JOIN @.settled s ON s.session = n.session WHERE n.seen_at > mine.started_at
    ) THEN
        PERFORM @.keep_to_this_era(NULL);
    ELSIF @.has_begun() THEN
        INSERT INTO @.asking VALUES (own) ON CONFLICT DO NOTHING;
        RETURN false;
    ELSE
        UPDATE @.plans SET go = CASE WHEN coalesce(automatic, by_default) THEN 1 ELSE greatest(go - 1, 0) END
        WHERE ended_at IS NULL AND automatic IS NOT TRUE;
        -- Whoever is still set going does not stay in line among those that are not.
        UPDATE @.task_runtimes SET go = go - 1, queue = CASE WHEN queue = 1 AND go > 1 THEN 0 ELSE queue END WHERE go > 0;
    END IF;
    PERFORM @.forget_settled();
    DELETE FROM @.asking a WHERE a.session = own;
    INSERT INTO @.settled VALUES (own);
    RETURN true;
END $$;

-- What was said for a plan was for the node that runs it now, and no other.
CREATE FUNCTION @.use_up(own bigint, only_plan bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM @.plans p WHERE p.go > 1 AND p.no = only_plan)
        OR EXISTS (SELECT FROM @.task_runtimes r WHERE r.go > 0 AND r.go > 1 AND r.plan = only_plan) THEN
        PERFORM @.begin_write(own);
        PERFORM @.keep_to_this_era(only_plan);
    END IF;
END $$;
