-- Taking in plans.

-- Many new plans at once, each whole or not at all.
-- Verdicts: 0 stored, 1 the plan is there, 2 a task's id is taken, 3 a tenant is busy, 4 the request is known,
-- 5 what it has for the books is there already: `there` says which of the entries.
CREATE FUNCTION @.create_plans(
    own bigint, ids text[], statuses smallint[], definitions text[], digests bytea[], mosts integer[], autos boolean[],
    workflows text[], refuses boolean[], quiets boolean[], ats bigint[], created_bodies text[], created_crcs bigint[], sizes integer[],
    request_keys text[], request_digests bytea[], request_answers text[],
    task_plans bigint[], task_places bigint[], task_ids text[], tenants text[], ranks bigint[], bodies text[], crcs bigint[],
    stages text[], totals integer[], flagses smallint[],
    entry_ords bigint[] DEFAULT NULL, entry_books smallint[] DEFAULT NULL, entry_keys text[] DEFAULT NULL,
    entry_ats bigint[] DEFAULT NULL, entry_untils bigint[] DEFAULT NULL, entry_bodies text[] DEFAULT NULL,
    entry_replaces boolean[] DEFAULT NULL,
    strike_ords bigint[] DEFAULT NULL, strike_books smallint[] DEFAULT NULL, strike_keys text[] DEFAULT NULL
) RETURNS TABLE (verdicts smallint[], there bigint[]) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    base bigint := @.begin_write(own); clock bigint := @.now_ms(); going smallint := @.go_now(own, false);
    taken bigint[]; busy bigint[]; refused_ords bigint[]; last_plan bigint; last_task bigint;
    -- Of each plan: its number, that of its first task, and the position of its own row in the log. 0 where it is refused.
    plan_nos bigint[]; firsts bigint[]; places bigint[]; new_plans bigint; new_tasks bigint;
BEGIN
    IF entry_ords IS NOT NULL THEN
        there := @.entries_there(entry_books, entry_keys, entry_ats, entry_replaces);
        refused_ords := ARRAY(SELECT entry_ords[k.place] FROM unnest(there) k (place));
    END IF;
    SELECT array_agg(DISTINCT t.plan) INTO taken
    FROM unnest(task_plans, task_ids) t (plan, id) JOIN @.task_configs c ON c.id = t.id COLLATE "C";
    IF true = ANY (refuses) THEN
        SELECT array_agg(DISTINCT t.plan) INTO busy
        FROM unnest(task_plans, tenants) t (plan, tenant) JOIN @.locks l ON l.tenant = t.tenant COLLATE "C"
        WHERE refuses[t.plan] AND l.expires_at >= clock;
    END IF;
    SELECT array_agg(i.verdict) INTO verdicts FROM (
        SELECT CASE
            WHEN k.key IS NOT NULL AND k.at > i.at - 86400000 THEN 4 WHEN i.ord = ANY (refused_ords) THEN 5
            WHEN p.no IS NOT NULL THEN 1
            WHEN i.ord = ANY (taken) THEN 2 WHEN i.ord = ANY (busy) THEN 3 ELSE 0 END::smallint AS verdict
        FROM unnest(ids, ats, request_keys) WITH ORDINALITY i (id, at, key, ord)
        LEFT JOIN @.plans p ON p.id = i.id COLLATE "C"
        LEFT JOIN @.requests k ON k.key = i.key COLLATE "C"
        ORDER BY i.ord
    ) i;
    SELECT c.plan, c.task INTO last_plan, last_task FROM @.counters c;
    SELECT array_agg(CASE WHEN i.ok THEN last_plan + i.plans ELSE 0 END),
        array_agg(CASE WHEN i.ok THEN last_task + i.tasks - i.size + 1 ELSE 0 END),
        array_agg(CASE WHEN i.ok THEN base + i.plans + i.tasks - i.size ELSE 0 END), max(i.plans), max(i.tasks)
    INTO plan_nos, firsts, places, new_plans, new_tasks
    FROM (
        SELECT v.verdict = 0 AS ok, v.size, count(*) FILTER (WHERE v.verdict = 0) OVER (ORDER BY v.ord) AS plans,
            coalesce(sum(v.size) FILTER (WHERE v.verdict = 0) OVER (ORDER BY v.ord), 0)::bigint AS tasks
        FROM unnest(verdicts, sizes) WITH ORDINALITY v (verdict, size, ord) ORDER BY v.ord
    ) i;

    INSERT INTO @.plans (no, id, status, version, revision, max_concurrency, automatic, workflow, counts, slots,
        first_task, last_task, created_at, started_at, go)
    SELECT plan_nos[i.ord], i.id, i.status, 1, 1, i.most, i.auto, i.workflow, ARRAY[i.size, 0, 0, 0, 0, 0, 0, 0, 0], 0,
        firsts[i.ord], firsts[i.ord] + i.size - 1, i.at, CASE WHEN i.status = 2 THEN i.at END, 
        CASE WHEN i.status <> 2 THEN 0 WHEN i.auto THEN 1 ELSE going END
    FROM unnest(ids, statuses, mosts, autos, workflows, ats, sizes) WITH ORDINALITY
        i (id, status, most, auto, workflow, at, size, ord) WHERE verdicts[i.ord] = 0;
    INSERT INTO @.plan_definitions
    SELECT plan_nos[i.ord], i.definition, i.digest FROM unnest(definitions, digests) WITH ORDINALITY i (definition, digest, ord)
    WHERE verdicts[i.ord] = 0;
    INSERT INTO @.events (pos, task, seq, crc, body)
    SELECT places[i.ord], -plan_nos[i.ord], 1, 0, @.plan_body(i.status, i.at, NULL)
    FROM unnest(statuses, ats) WITH ORDINALITY i (status, at, ord) WHERE verdicts[i.ord] = 0;
    INSERT INTO @.task_configs
    SELECT firsts[t.plan] + t.place - 1, t.id, plan_nos[t.plan], t.tenant, ats[t.plan], t.body, t.crc
    FROM unnest(task_plans, task_places, task_ids, tenants, bodies, crcs) t (plan, place, id, tenant, body, crc)
    WHERE verdicts[t.plan] = 0;
    INSERT INTO @.task_runtimes (no, plan, queue, rank, tenant, status, slot, version, lease, last_event, done, total, stage,
        attempt, flags, updated_at)
    SELECT firsts[t.plan] + t.place - 1, plan_nos[t.plan], @.idle_queue(0::smallint, t.flags), t.rank, t.tenant, 0, false, 1, 0,
        places[t.plan] + t.place, 0, t.total, t.stage, 0, t.flags, ats[t.plan]
    FROM unnest(task_plans, task_places, ranks, tenants, totals, stages, flagses) t (plan, place, rank, tenant, total, stage, flags)
    WHERE verdicts[t.plan] = 0;
    INSERT INTO @.events (pos, task, seq, crc, body)
    SELECT places[t.plan] + t.place, firsts[t.plan] + t.place - 1, 1, created_crcs[t.plan], created_bodies[t.plan]
    FROM unnest(task_plans, task_places) t (plan, place) WHERE verdicts[t.plan] = 0;

    UPDATE @.counters SET position = base + new_plans + new_tasks, plan = last_plan + new_plans, task = last_task + new_tasks;
    PERFORM @.keep_request(k.key, k.digest, k.at, k.answer)
    FROM unnest(request_keys, request_digests, ats, request_answers) WITH ORDINALITY k (key, digest, at, answer, ord)
    WHERE k.key IS NOT NULL AND verdicts[k.ord] = 0;
    IF entry_ords IS NOT NULL THEN
        PERFORM @.write_entries(ARRAY(SELECT v.verdict = 0 FROM unnest(verdicts) v (verdict)), entry_ords, entry_books, entry_keys, entry_ats, entry_untils,
            entry_bodies, strike_ords, strike_books, strike_keys);
    END IF;
    IF EXISTS (
        SELECT FROM unnest(verdicts, statuses, quiets) v (verdict, status, quiet)
        WHERE v.verdict = 0 AND v.status = 2 AND NOT (v.quiet AND own IS NOT NULL)
    ) THEN
        PERFORM @.call_others(own);
    END IF;
    RETURN NEXT;
END $$;
