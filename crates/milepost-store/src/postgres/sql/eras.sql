-- `recovery: manual`: which plans and tasks may be claimed without a person's word. The rule is that of `going.rs`.
-- An era lasts for as long as a node of it is there. `automatic` is null for a plan that does not say.

-- Whether a node is there that belongs to an era.
CREATE FUNCTION @.has_begun() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM @.settled s JOIN @.nodes n ON n.session = s.session WHERE NOT n.ended AND n.expires_at >= @.now_ms()
    )
$$;

-- What the word of a person is worth who asks this node; or, of a visitor, anybody.
CREATE FUNCTION @.go_now(own bigint) RETURNS smallint LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN own IS NULL THEN CASE WHEN @.has_begun() THEN 1 ELSE 2 END
        WHEN EXISTS (SELECT FROM @.settled s WHERE s.session = own) THEN 1 ELSE 2 END::smallint
$$;

CREATE FUNCTION @.is_held(automatic boolean, go smallint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN automatic THEN false WHEN automatic IS NULL OR go <> 1 THEN go < 1 ELSE NOT @.has_begun() END
$$;

-- Which era a node is in, asked until it is known: true. One that was seen since this node came goes on; if nobody of it
-- can be there any more, another begins; and while somebody may be, it is not known.
CREATE FUNCTION @.settle_era(own bigint, by_default boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE mine @.nodes; clock bigint;
BEGIN
    PERFORM @.begin_write(own);
    clock := @.now_ms();
    IF EXISTS (SELECT FROM @.settled s WHERE s.session = own) THEN
        RETURN true;
    END IF;
    SELECT n.* INTO mine FROM @.nodes n WHERE n.session = own;
    IF EXISTS (
        SELECT FROM @.nodes n JOIN @.settled s ON s.session = n.session WHERE n.seen_at > mine.started_at
    ) THEN
        UPDATE @.plans SET go = 1 WHERE go > 1 AND ended_at IS NULL;
        UPDATE @.task_runtimes SET go = 1 WHERE go > 1;
    ELSIF @.has_begun() THEN
        RETURN false;
    ELSE
        UPDATE @.plans SET go = CASE WHEN coalesce(automatic, by_default) THEN 1 ELSE greatest(go - 1, 0) END
        WHERE ended_at IS NULL AND automatic IS NOT TRUE;
        UPDATE @.task_runtimes SET go = go - 1 WHERE go > 0;
    END IF;
    DELETE FROM @.settled s WHERE NOT EXISTS (SELECT FROM @.nodes n WHERE n.session = s.session);
    INSERT INTO @.settled VALUES (own);
    RETURN true;
END $$;
