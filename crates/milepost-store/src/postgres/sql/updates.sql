-- Changing a plan that is there: tasks join as PENDING, others go with their logs, the rest keep what they have done.
-- Verdicts: 0 done, 1 something of it has changed since it was looked at, 2 a task's id is taken, 3 a tenant is busy,
-- 5 a live node has a task of it, 6 what it has for the books is there already: `there` says which of the entries.
-- Everything is as it was looked at, so the caller knows what becomes of the plan.
CREATE FUNCTION @.update_plan(
    own bigint, plan_no bigint, expected bigint, definition text, digest bytea, most integer, auto boolean, workflow text,
    refuses boolean, at bigint, start boolean, next smallint, new_ended bigint, new_counts integer[],
    request_key text, request_digest bytea, request_answer text,
    gone bigint[], gone_versions bigint[],
    kept bigint[], kept_versions bigint[], kept_tenants text[], kept_ranks bigint[], kept_bodies text[], kept_crcs bigint[],
    kept_dones integer[], kept_totals integer[], kept_stages text[], kept_attempts integer[], kept_dues bigint[],
    kept_flagses smallint[],
    created_body text, created_crc bigint,
    task_ids text[], tenants text[], ranks bigint[], bodies text[], crcs bigint[], stages text[], totals integer[],
    flagses smallint[],
    entry_ords bigint[] DEFAULT NULL, entry_books smallint[] DEFAULT NULL, entry_keys text[] DEFAULT NULL,
    entry_ats bigint[] DEFAULT NULL, entry_untils bigint[] DEFAULT NULL, entry_bodies text[] DEFAULT NULL,
    entry_replaces boolean[] DEFAULT NULL,
    strike_ords bigint[] DEFAULT NULL, strike_books smallint[] DEFAULT NULL, strike_keys text[] DEFAULT NULL
) RETURNS TABLE (verdict integer, there bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    base bigint := @.begin_write(own); p @.plans; first_new bigint; clock bigint := @.now_ms();
    new_slots integer; added bigint := cardinality(task_ids); was_held boolean := false;
BEGIN
    PERFORM @.reap(own);
    SELECT * INTO p FROM @.plans q WHERE q.no = plan_no;
    verdict := 0;
    IF entry_ords IS NOT NULL THEN
        there := @.entries_there(entry_books, entry_keys, entry_ats, entry_replaces);
    END IF;
    IF p.version IS DISTINCT FROM expected OR EXISTS (
        SELECT FROM unnest(gone || kept, gone_versions || kept_versions) t (no, version)
        LEFT JOIN @.task_runtimes r ON r.no = t.no WHERE r.version IS DISTINCT FROM t.version
    ) THEN
        verdict := 1;
    ELSIF there IS NOT NULL THEN
        verdict := 6;
    ELSIF EXISTS (SELECT FROM @.task_runtimes r WHERE r.no = ANY (gone || kept) AND r.queue = 2) THEN
        verdict := 5;
    ELSIF EXISTS (SELECT FROM @.task_configs c WHERE c.id = ANY (task_ids)) THEN
        verdict := 2;
    ELSIF refuses AND EXISTS (
        SELECT FROM @.locks l WHERE l.tenant = ANY (tenants) AND l.expires_at >= clock AND l.task <> ALL (gone || kept)
    ) THEN
        verdict := 3;
    END IF;
    IF verdict <> 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;

    DELETE FROM @.events e WHERE e.task = ANY (gone);
    DELETE FROM @.logs l WHERE l.task = ANY (gone);
    DELETE FROM @.locks l WHERE l.task = ANY (gone);
    DELETE FROM @.task_configs c WHERE c.no = ANY (gone);
    DELETE FROM @.task_runtimes r WHERE r.no = ANY (gone);
    -- It shows stages that may be others now.
    DELETE FROM @.snapshots s WHERE s.task = ANY (gone || kept);
    DELETE FROM @.locks l USING unnest(kept, kept_tenants) k (no, tenant)
    WHERE l.task = k.no AND l.tenant IS DISTINCT FROM k.tenant COLLATE "C";
    UPDATE @.task_configs c SET body = k.body, crc = k.crc, tenant = k.tenant
    FROM unnest(kept, kept_bodies, kept_crcs, kept_tenants) k (no, body, crc, tenant) WHERE c.no = k.no;
    UPDATE @.task_runtimes r SET rank = k.rank, tenant = k.tenant, done = k.done, total = k.total, stage = k.stage,
        attempt = k.attempt, due_at = k.due, flags = k.flags,
        -- What sets its tasks off may be another now.
        queue = CASE WHEN r.status = 0 AND (r.flags | k.flags) & 4 <> 0 THEN @.idle_queue(r.status, k.flags) ELSE r.queue END
    FROM unnest(kept, kept_ranks, kept_tenants, kept_dones, kept_totals, kept_stages, kept_attempts, kept_dues, kept_flagses)
        k (no, rank, tenant, done, total, stage, attempt, due, flags) WHERE r.no = k.no;
    -- A tenant may have become free; who still has to wait lines up again at the next claim.
    UPDATE @.task_runtimes r SET queue = 0 WHERE r.queue = 1;

    SELECT c.task + 1 INTO first_new FROM @.counters c;
    INSERT INTO @.task_configs
    SELECT first_new + t.i - 1, t.id, plan_no, t.tenant, at, t.body, t.crc
    FROM unnest(task_ids, tenants, bodies, crcs) WITH ORDINALITY t (id, tenant, body, crc, i);
    INSERT INTO @.task_runtimes (no, plan, queue, rank, tenant, status, slot, version, lease, last_event, done, total, stage,
        attempt, flags, updated_at)
    SELECT first_new + t.i - 1, plan_no, @.idle_queue(0::smallint, t.flags), t.rank, t.tenant, 0, false, 1, 0, base + t.i, 0,
        t.total, t.stage, 0, t.flags, at
    FROM unnest(ranks, tenants, totals, stages, flagses) WITH ORDINALITY t (rank, tenant, total, stage, flags, i);
    INSERT INTO @.events (pos, task, seq, crc, body)
    SELECT base + t.i, first_new + t.i - 1, 1, created_crc, created_body FROM generate_series(1, added) t (i);

    SELECT count(*) INTO new_slots FROM @.task_runtimes r
    WHERE r.plan = plan_no AND r.slot AND r.no BETWEEN p.first_task AND first_new + added;
    UPDATE @.plans q SET status = next, version = q.version + 1, revision = q.revision + 1, counts = new_counts, slots = new_slots,
        max_concurrency = most, automatic = auto, workflow = update_plan.workflow, ended_at = new_ended,
        last_task = CASE WHEN added > 0 THEN first_new + added - 1 ELSE q.last_task END,
        changed_by = CASE WHEN next = q.status THEN q.changed_by END
    WHERE q.no = plan_no;
    UPDATE @.plan_definitions d SET definition = update_plan.definition, digest = update_plan.digest WHERE d.no = plan_no;
    -- Also when its status is the same: the tasks that it speaks for are others now, and what was removed may have been
    -- the end of the log.
    INSERT INTO @.events (pos, task, seq, crc, body)
    VALUES (base + added + 1, -plan_no, p.version + 1, 0, @.plan_body(next, at, NULL));
    IF start THEN
        was_held := next = 2 AND @.is_held(auto, p.go);
        UPDATE @.plans q SET go = @.go_now(own, auto) WHERE q.no = plan_no;
    END IF;
    IF start AND (next <= 1 OR was_held) THEN
        UPDATE @.plans q SET status = 2, version = q.version + 1, started_at = coalesce(q.started_at, at),
            changed_by = CASE WHEN was_held THEN q.changed_by END
        WHERE q.no = plan_no;
        INSERT INTO @.events (pos, task, seq, crc, body)
        VALUES (base + added + 2, -plan_no, p.version + 2, 0, @.plan_body(2::smallint, at, NULL));
    END IF;
    UPDATE @.counters c SET position = base + added + 2, task = first_new + added - 1;
    IF request_key IS NOT NULL THEN
        PERFORM @.keep_request(request_key, request_digest, at, request_answer);
    END IF;
    IF entry_ords IS NOT NULL THEN
        PERFORM @.write_entries(ARRAY[true], entry_ords, entry_books, entry_keys, entry_ats, entry_untils,
            entry_bodies, strike_ords, strike_books, strike_keys);
    END IF;
    PERFORM @.call_others(own);
    RETURN NEXT;
END $$;
