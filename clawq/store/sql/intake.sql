-- name: stamp
-- Which form of the configuration is in force; asked again inside the transaction, in case it changed.
SELECT identity, broken_identity, error, changed_at FROM config WHERE id = 1;

-- name: frame
-- What is configured for a kind in a band (NULL: the kind's own), read by SQLite, since Python's json
-- costs more than this whole query. Each value is the kind's, else the band's, else the default.
WITH found AS MATERIALIZED (
    SELECT body, body -> '$.kind_defaults' AS base,
           (SELECT value FROM json_each(body, '$.kinds') WHERE key = :kind) AS own,
           (SELECT value FROM json_each(body, '$.tenants') WHERE key = :tenant) AS tenant
    FROM config WHERE id = 1),
layers AS MATERIALIZED (
    SELECT body, base, own, tenant,
           coalesce(:band, own ->> 'band', base ->> 'band') AS band,
           (SELECT value FROM json_each(body, '$.bands')
            WHERE key = coalesce(:band, own ->> 'band', base ->> 'band')) AS layer
    FROM found)
SELECT own IS NOT NULL, band,
       coalesce(own ->> '$.command[0]', layer ->> '$.command[0]'),
       (SELECT group_concat(value, ',' ORDER BY value)
        FROM json_each(coalesce(own -> 'needs', layer -> 'needs', base -> 'needs', '[]'))),
       coalesce(own ->> 'priority', layer ->> 'priority', base ->> 'priority', 0),
       coalesce(own ->> 'stale_after', layer ->> 'stale_after', base ->> 'stale_after'),
       coalesce(own ->> 'deadline', layer ->> 'deadline', base ->> 'deadline'),
       coalesce(own ->> 'queue_cap', layer ->> 'queue_cap', base ->> 'queue_cap'),
       coalesce(own ->> 'max_running', layer ->> 'max_running', base ->> 'max_running'),
       (SELECT group_concat(key || ' ' || value, ',' ORDER BY key)
        FROM json_each(coalesce(own -> 'spends', layer -> 'spends', base -> 'spends', '{}'))),
       coalesce(own ->> 'on_full', layer ->> 'on_full', base ->> 'on_full'),
       coalesce(own ->> 'on_busy', layer ->> 'on_busy', base ->> 'on_busy'),
       coalesce(own ->> 'degrade_to', layer ->> 'degrade_to'),
       coalesce(own ->> 'refuse_hopeless', layer ->> 'refuse_hopeless', base ->> 'refuse_hopeless'),
       coalesce(own ->> '$.env.PATH', layer ->> '$.env.PATH'),
       body ->> '$.env.PATH',
       coalesce(tenant ->> 'max_queued', body ->> '$.limits.max_queued_per_tenant'),
       coalesce(tenant ->> 'max_running', body ->> '$.limits.max_running_per_tenant'),
       body ->> '$.limits.max_running', body ->> '$.limits.max_queued', body ->> '$.limits.max_held',
       body ->> '$.host.retry_after_ms',
       (SELECT command FROM (SELECT coalesce(own -> 'command', layer -> 'command') AS command)
        WHERE instr(command, '{payload}') OR instr(command, '{field:')),
       body ->> '$.bands.critical.share', body ->> '$.bands.interactive.share'
FROM layers;

-- name: resources
-- Every semaphore there is, to tell an unknown one from one that never has a slot.
SELECT key, value ->> 'limit' FROM json_each((SELECT body FROM config WHERE id = 1), '$.resources');

-- name: budgets
-- Only for jobs that spend: {name: (amount in a window, its length, one tenant's part)}.
SELECT key, value ->> 'limit', value ->> 'per_ms', value ->> 'per_tenant'
FROM json_each((SELECT body FROM config WHERE id = 1), '$.budgets');

-- name: observing
-- Whether refusals are to be recorded only: the file's word, and that of the supervisor that runs.
SELECT (SELECT body ->> '$.mode' FROM config WHERE id = 1), (SELECT value FROM meta WHERE key = 'observe');

-- name: kinds
-- Only for the near match of an unknown kind.
SELECT key FROM json_each((SELECT body FROM config WHERE id = 1), '$.kinds');

-- name: supervisor_path
-- Where the supervisor would look for a program when the caller has no PATH.
SELECT value FROM meta WHERE key = 'supervisor_path';

-- name: json_valid
-- Payloads come as text: SQLite's parser is loaded already.
SELECT json_valid(?);

-- name: key_holder
-- Who has the dedupe key; a pruned job has left its id and no state.
SELECT d.job_id, j.state, j.deadline_at, j.ended_at FROM dedupe d LEFT JOIN jobs j ON j.id = d.job_id
WHERE d.tenant = ? AND d.kind = ? AND d.key = ?;

-- name: take_key
-- In the transaction that found the key free.
INSERT INTO dedupe (tenant, kind, key, job_id, until_end) VALUES (?, ?, ?, ?, ?);

-- name: waiting
-- What the caps count, from the tally: as dear as there are lanes, however many jobs wait. Questions to people
-- only count as held.
SELECT coalesce(sum(n) FILTER (WHERE kind <> 'ask'), 0),
       coalesce(sum(n) FILTER (WHERE tenant = ?1 AND kind <> 'ask'), 0),
       coalesce(sum(n) FILTER (WHERE kind = ?2), 0), coalesce(sum(n) FILTER (WHERE state = 'held'), 0)
FROM tally WHERE state IN ('scheduled', 'queued', 'held');

-- name: exclusive_active
-- A job whose name is taken waits in no lane.
SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_exclusive
               WHERE exclusive = ? AND state IN ('starting', 'running', 'waiting'));

-- name: insert_job
-- The job's own options are frozen here; what stays NULL is read from its kind at each start.
INSERT INTO jobs (kind, tenant, band, priority, needs, command, payload, cwd, path, env, same, asked_kind,
                  dedupe_key, dedupe_scope, exclusive, stale_at, deadline_at, timeout_ms, max_attempts, on_lost,
                  parent_id, root_id, depth, on_parent_end, twin, asked_by, reason, state, changed_at, parked, rank, created_at, accepted_at, run_after, ready_at, start_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: take_free_key
-- In a batch where they are not all free: nothing is changed when somebody has the key.
INSERT INTO dedupe (tenant, kind, key, job_id, until_end) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: last_id
-- The last job number ever given: keys of a batch are taken for the next ones.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0);

-- name: open_bulk
-- The jobs from this one on come without their events and counts ...
INSERT INTO bulk (first_id) VALUES (?);

-- name: close_bulk
-- ... which a trigger writes now.
DELETE FROM bulk;

-- name: nagged
-- The day of the last word about a missing supervisor.
SELECT value FROM meta WHERE key = 'nag_day';

-- name: waiting_since
-- The oldest work that could have started: lane by lane, and what was due and never became ready.
SELECT min(at) FROM (
    SELECT (SELECT min(ready_at) FROM jobs INDEXED BY jobs_oldest
            WHERE state = 'queued' AND tenant = t.tenant AND band = t.band AND kind = t.kind) AS at
    FROM tally t WHERE t.state = 'queued'
    UNION ALL
    SELECT (SELECT min(run_after) FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled'));
