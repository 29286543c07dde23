-- What a full kind does instead of refusing.

-- name: oldest
-- The job that `drop_oldest` drops: never started, nobody's child, the first that was accepted.
-- The first of those not ready, and the longest ready of each band: five seeks.
SELECT id, state FROM (
    SELECT id, state FROM (
        SELECT id, state FROM jobs INDEXED BY jobs_not_ready
        WHERE kind = :kind AND tenant = :tenant AND state IN ('scheduled', 'held') AND tries = 0
            AND parent_id IS NULL ORDER BY id LIMIT 1)
    UNION ALL
    SELECT j.id, j.state FROM (VALUES (0), (1), (2), (3)) AS bands CROSS JOIN jobs j ON j.id = (
        SELECT id FROM jobs INDEXED BY jobs_oldest
        WHERE state = 'queued' AND tenant = :tenant AND band = bands.column1 AND kind = :kind AND tries = 0
            AND parent_id IS NULL ORDER BY ready_at LIMIT 1))
ORDER BY id LIMIT 1;

-- name: drop
-- In the transaction that accepts the job which takes its place.
UPDATE jobs SET state = 'cancelled', reason = 'dropped', changed_at = :now, ended_at = :now, parked = NULL,
    ready_at = NULL, last_error = 'dropped, since its kind was full and a newer job came'
WHERE id = :job_id;

-- name: same
-- A waiting job that this one may be joined to: the hash finds it, the columns prove it. It must not start later
-- than this one asked to, nor wait for a person unless this one would, nor end with another parent than its own.
SELECT id, state, deadline_at FROM jobs INDEXED BY jobs_same
WHERE kind = :kind AND tenant = :tenant AND same = :same AND run_after <= :run_after
    AND state IN ('scheduled', 'queued', 'held') AND (state <> 'held' OR :hold)
    AND command IS :command AND payload IS :payload AND cwd = :cwd AND env IS :env AND needs = :needs
    AND parent_id IS :parent_id
ORDER BY run_after, id LIMIT 1;
