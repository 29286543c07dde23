-- What owners see of the accounts.

-- name: cooldown
-- How far the rest of one resource has come, and who probes it.
SELECT c.resource, c.until, c.step_ms, c.passed_at, c.released, a.job_id
FROM cooldowns c LEFT JOIN attempts a ON a.token = c.probe_token WHERE c.resource = ?;

-- name: cooldowns
-- Every resource at rest: a handful of rows.
SELECT resource, until, passed_at FROM cooldowns ORDER BY resource;

-- name: used
-- What a budget's window holds, of everybody or of one tenant.
SELECT (SELECT coalesce(sum(amount), 0) FROM spent
        WHERE budget = :budget AND (:tenant IS NULL OR tenant = :tenant))
    - (SELECT coalesce(sum(amount), 0) FROM spends INDEXED BY spends_window
       WHERE budget = :budget AND at <= :after AND (:tenant IS NULL OR tenant = :tenant)) AS used;

-- name: leaves
-- The entry with which, leaving the window, so much has left it.
SELECT at FROM (
    SELECT at, sum(amount) OVER (ORDER BY at ROWS UNBOUNDED PRECEDING) AS gone
    FROM spends INDEXED BY spends_window
    WHERE budget = :budget AND at > :after AND (:tenant IS NULL OR tenant = :tenant)
) WHERE gone >= :amount ORDER BY at LIMIT 1;

-- name: observed
-- What enforcing would have refused, the most first; a hundred rows tell the story.
SELECT stage, reason, kind, tenant, count, first_at, last_at FROM observed
ORDER BY count DESC, reason, kind, tenant LIMIT 100;
