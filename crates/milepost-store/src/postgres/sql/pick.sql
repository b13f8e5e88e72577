-- What may be claimed next, in the order in which it is taken. Nothing is taken here: between this and `take_tasks` the
-- tasks are folded and decided on by those who can, and no transaction waits for them.

CREATE FUNCTION @.pick(
    own bigint, only_plan bigint, runs_stages boolean, known text[], most integer, now_at bigint, pending_only boolean,
    by_default boolean, needed smallint
) RETURNS TABLE (no bigint, queue smallint, blocked boolean, alone boolean, revision integer, room integer) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE at_plan bigint := coalesce(only_plan - 1, 0); p @.plans; clock bigint; wanted integer := most; found_now integer;
BEGIN
    PERFORM @.reap_if_due(own);
    IF NOT EXISTS (SELECT FROM @.nodes n WHERE n.session = own AND NOT n.ended) THEN
        RAISE EXCEPTION 'the session of this node has ended' USING ERRCODE = 'MP001';
    END IF;
    IF only_plan IS NOT NULL THEN
        PERFORM @.use_up(own, only_plan);
    END IF;
    clock := @.now_ms();
    IF NOT pending_only AND wanted > 0 THEN
        -- The interrupted by number, then what is due by time.
        RETURN QUERY
        SELECT c.no, c.queue, false, false, c.revision, c.room FROM (
            SELECT r.no, r.queue, q.revision, q.max_concurrency - q.slots AS room, r.wake_at
            FROM @.task_runtimes r JOIN @.plans q ON q.no = r.plan
            WHERE (r.queue = 7 OR r.queue IN (5, 6) AND r.wake_at <= now_at)
                AND (only_plan IS NOT NULL OR coalesce(q.automatic, by_default)
                    OR r.queue <> 7 AND (r.go >= needed OR q.go >= needed AND q.ended_at IS NULL))
                AND (only_plan IS NULL OR q.no = only_plan) AND (r.status = 6 OR q.status = 2)
                AND (r.slot OR q.slots < q.max_concurrency)
                AND CASE WHEN q.workflow IS NULL THEN runs_stages ELSE q.workflow = ANY (known) END
                AND NOT EXISTS (
                    SELECT FROM @.locks l WHERE l.tenant = r.tenant AND l.task <> r.no AND l.expires_at >= clock
                )
            ORDER BY r.queue <> 7, CASE WHEN r.queue <> 7 THEN r.wake_at END, r.no
            LIMIT wanted
        ) c;
        GET DIAGNOSTICS found_now = ROW_COUNT;
        wanted := wanted - found_now;
    END IF;
    -- From plan to plan among those that have a task to take.
    WHILE wanted > 0 LOOP
        SELECT r.plan INTO at_plan FROM @.task_runtimes r WHERE r.queue = 0 AND r.plan > at_plan ORDER BY r.plan LIMIT 1;
        EXIT WHEN NOT FOUND OR at_plan > only_plan;
        SELECT * INTO p FROM @.plans q WHERE q.no = at_plan;
        CONTINUE WHEN p.status <> 2 OR p.slots >= p.max_concurrency
            OR NOT CASE WHEN p.workflow IS NULL THEN runs_stages ELSE p.workflow = ANY (known) END;
        IF only_plan IS NULL AND NOT coalesce(p.automatic, by_default) AND p.go < needed THEN
            -- Only what a person set going by itself; it does not line up among those that wait for a person.
            RETURN QUERY
            SELECT r.no, r.queue, false, true, p.revision, p.max_concurrency - p.slots
            FROM @.task_runtimes r WHERE r.go > 0 AND r.go >= needed AND r.queue = 0 AND r.plan = at_plan
                AND NOT EXISTS (
                    SELECT FROM @.locks l WHERE l.tenant = r.tenant AND l.task <> r.no AND l.expires_at >= clock
                )
            ORDER BY r.rank, r.no LIMIT least(wanted, p.max_concurrency - p.slots);
            GET DIAGNOSTICS found_now = ROW_COUNT;
            wanted := wanted - found_now;
            CONTINUE;
        END IF;
        RETURN QUERY
        SELECT r.no, r.queue, EXISTS (
                SELECT FROM @.locks l WHERE l.tenant = r.tenant AND l.task <> r.no AND l.expires_at >= clock
            ), false, p.revision, p.max_concurrency - p.slots
        FROM @.task_runtimes r WHERE r.queue = 0 AND r.plan = at_plan
        ORDER BY r.rank, r.no LIMIT least(wanted, p.max_concurrency - p.slots);
        GET DIAGNOSTICS found_now = ROW_COUNT;
        wanted := wanted - found_now;
    END LOOP;
END $$;

-- When the next sleeping task wakes that could be claimed then.
CREATE FUNCTION @.next_due(
    only_plan bigint, runs_stages boolean, known text[], now_at bigint, by_default boolean, needed smallint
) RETURNS bigint LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
    SELECT min(d.wake_at) FROM unnest(ARRAY[5, 6]::smallint[]) u (queue), LATERAL (
        SELECT r.wake_at FROM @.task_runtimes r JOIN @.plans q ON q.no = r.plan
        WHERE r.queue = u.queue AND r.queue IN (2, 5, 6, 7) AND r.wake_at > now_at AND (only_plan IS NULL OR q.no = only_plan)
            AND (r.status = 6 OR q.status = 2)
            AND CASE WHEN q.workflow IS NULL THEN runs_stages ELSE q.workflow = ANY (known) END
            AND (only_plan IS NOT NULL OR coalesce(q.automatic, by_default)
                OR r.go >= needed OR q.go >= needed AND q.ended_at IS NULL)
        ORDER BY r.wake_at LIMIT 1
    ) d
$$;

-- The same with all that it takes to decide on them. There is always a row, so that `due` has a place. Without `now_at`
-- it is this server's clock that says what is due; `clock` answers by what it was judged.
CREATE FUNCTION @.candidates(
    own bigint, only_plan bigint, runs_stages boolean, known text[], most integer, now_at bigint, pending_only boolean,
    by_default boolean, needed smallint
) RETURNS TABLE (clock bigint, due bigint, no bigint, id text, plan bigint, tenant text, created_at bigint, body text, crc bigint, rank bigint,
    version bigint, last_event bigint, status smallint, lease bigint, queue smallint, slot boolean,
    blocked boolean, alone boolean, revision integer, room integer, creation_crc bigint, creation text) LANGUAGE sql VOLATILE ROWS 100
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
    WITH n AS MATERIALIZED (SELECT coalesce(now_at, @.now_ms()) AS clock),
    d AS MATERIALIZED (SELECT n.clock, @.next_due(only_plan, runs_stages, known, n.clock, by_default, needed) AS due FROM n)
    SELECT d.clock, d.due, p.no, p.id, p.plan, p.tenant, p.created_at, p.body, p.crc, p.rank, p.version, p.last_event, p.status,
        p.lease, p.queue, p.slot, p.blocked, p.alone, p.revision, p.room, p.creation_crc, p.creation
    FROM d LEFT JOIN LATERAL (
        SELECT k.i, c.no, c.id, c.plan, c.tenant, c.created_at, c.body, c.crc, r.rank, r.version, r.last_event, r.status, r.lease,
            k.queue, r.slot, k.blocked, k.alone, k.revision, k.room, e.crc AS creation_crc, e.body AS creation
        FROM @.pick(own, only_plan, runs_stages, known, most, d.clock, pending_only, by_default, needed) WITH ORDINALITY
            k (no, queue, blocked, alone, revision, room, i)
        JOIN @.task_configs c ON c.no = k.no JOIN @.task_runtimes r ON r.no = k.no
        LEFT JOIN @.events e ON r.version = 1 AND e.pos = r.last_event
    ) p ON true
    ORDER BY p.i
$$;
