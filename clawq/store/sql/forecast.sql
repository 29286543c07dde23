-- What `admitted` is told from.

-- name: pauses
-- Nothing is forecast for what a person has paused, nor by a supervisor that was asked to end.
SELECT scope, name FROM pauses UNION ALL SELECT 'stop', '' FROM meta WHERE key = 'stop';

-- name: waiting
-- How many are in `clawq wait`, and how many may be before only children start.
SELECT coalesce(sum(n), 0), (SELECT body ->> '$.limits.max_waiting' FROM config WHERE id = 1)
FROM tally WHERE state = 'waiting';

-- name: kept
-- What jobs in `clawq wait` hold all the same.
SELECT r.key, sum(t.n) FROM tally t CROSS JOIN json_each((SELECT body FROM config WHERE id = 1), '$.resources') r
WHERE t.state = 'waiting' AND r.value ->> 'keep' AND instr(',' || t.needs || ',', ',' || r.key || ',') GROUP BY r.key;

-- name: in_use
-- Slots taken: a row for each lane with running jobs, so never more than max_running.
SELECT band, tenant, kind, needs, n FROM tally WHERE state IN ('starting', 'running');

-- name: ready
-- Jobs of its own and higher bands that wait only for slots, by lane. More rows or jobs than
-- there are free slots answer the question, so neither is counted further.
SELECT t.band, t.tenant, t.kind, t.needs,
       (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_lane
                              WHERE band = t.band AND tenant = t.tenant AND kind = t.kind AND needs = t.needs
                                  AND state = 'queued' AND parked IS NULL LIMIT :enough)) AS ready
FROM tally t LEFT JOIN lanes l ON l.band = t.band AND l.tenant = t.tenant AND l.kind = t.kind AND l.needs = t.needs
WHERE t.state = 'queued' AND t.band <= :band AND ready > 0
    AND NOT (l.reason IS NOT NULL AND coalesce(l.clears_at > :now, 1)
             AND (l.reason IN ('paused', 'never_fits') OR l.reason GLOB 'cooldown:*' OR l.reason GLOB 'budget:*'))
LIMIT :enough;

-- name: rests
-- Resources at rest or coming back from it; a handful of rows.
SELECT resource, until, step_ms, probe_token, passed_at, released FROM cooldowns;

-- name: spent
-- What a budget's window holds now: all, and one tenant's.
WITH past AS MATERIALIZED (
    SELECT coalesce(sum(amount), 0) AS amount, coalesce(sum(amount) FILTER (WHERE tenant = :tenant), 0) AS own
    FROM spends INDEXED BY spends_window WHERE budget = :budget AND at <= :after)
SELECT coalesce(sum(s.amount), 0) - (SELECT amount FROM past),
    coalesce(sum(s.amount) FILTER (WHERE s.tenant = :tenant), 0) - (SELECT own FROM past)
FROM spent s WHERE s.budget = :budget;
