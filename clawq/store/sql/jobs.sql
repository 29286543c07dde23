-- name: cancel
-- At once for what has not started; whoever claimed it first wins, and no row comes back.
UPDATE jobs SET state = 'cancelled', reason = 'cancelled', changed_at = :now, ended_at = :now, parked = NULL,
    ready_at = NULL
WHERE id = :job_id AND state IN ('scheduled', 'queued', 'held') RETURNING state;

-- name: ask_cancel
-- A request: the supervisor ends the agent. The first one stands.
UPDATE jobs SET cancel_at = coalesce(cancel_at, :now)
WHERE id = :job_id AND state IN ('starting', 'running', 'waiting') RETURNING state;

-- name: cancel_below
-- The children that have not started, and theirs; of the whole tree only with :tree. Those that run go on.
UPDATE jobs SET state = 'cancelled', reason = 'cancelled', changed_at = :now, ended_at = :now, parked = NULL,
    ready_at = NULL, last_error = 'cancelled with job ' || :job_id
WHERE state IN ('scheduled', 'queued', 'held') AND id IN (
    WITH RECURSIVE below(id) AS (
        SELECT id FROM jobs INDEXED BY jobs_children
        WHERE parent_id = :job_id AND (:tree OR state IN ('scheduled', 'queued', 'held'))
        UNION
        SELECT c.id FROM below CROSS JOIN jobs c INDEXED BY jobs_children ON c.parent_id = below.id
        WHERE :tree OR c.state IN ('scheduled', 'queued', 'held'))
    SELECT id FROM below) RETURNING id;

-- name: ask_cancel_below
-- With --tree: those that run too.
UPDATE jobs SET cancel_at = coalesce(cancel_at, :now)
WHERE state IN ('starting', 'running', 'waiting') AND id IN (
    WITH RECURSIVE below(id) AS (
        SELECT id FROM jobs INDEXED BY jobs_children WHERE parent_id = :job_id
        UNION
        SELECT c.id FROM below CROSS JOIN jobs c INDEXED BY jobs_children ON c.parent_id = below.id)
    SELECT id FROM below) RETURNING id;

-- name: approve
-- A held job goes on to where it would have gone without --hold; a question is answered.
UPDATE jobs SET state = CASE WHEN kind = 'ask' THEN 'succeeded' WHEN run_after > :now THEN 'scheduled'
                        ELSE 'queued' END,
    reason = 'approved', changed_at = :now, ready_at = iif(kind = 'ask' OR run_after > :now, NULL, :now),
    ended_at = iif(kind = 'ask', :now, NULL)
WHERE id = :job_id AND state = 'held' RETURNING state;

-- name: deny
-- What a person does not want is cancelled, and says so.
UPDATE jobs SET state = 'cancelled', reason = 'denied', changed_at = :now, ended_at = :now
WHERE id = :job_id AND state = 'held' RETURNING state;

-- name: edit
-- Only what has not started. NULL leaves a value alone; a new time moves the job between queued and scheduled.
UPDATE jobs SET
    priority = coalesce(:priority, priority),
    band = coalesce(:band, band),
    stale_at = coalesce(:stale_at, stale_at),
    deadline_at = coalesce(:deadline_at, deadline_at),
    timeout_ms = coalesce(:timeout_ms, timeout_ms),
    max_attempts = coalesce(:max_attempts, max_attempts),
    run_after = coalesce(:run_after, run_after),
    rank = coalesce(:run_after - iif(rank < -:first / 2, :first, 0), rank + priority * :point)
        - coalesce(:priority, priority) * :point,
    state = CASE WHEN :run_after IS NULL OR state = 'held' THEN state
                 WHEN :run_after > :now THEN 'scheduled' ELSE 'queued' END,
    parked = iif(:run_after > :now OR :band <> band, NULL, parked),
    ready_at = CASE WHEN :run_after IS NULL OR state = 'held' THEN ready_at
                    WHEN :run_after > :now THEN NULL ELSE coalesce(ready_at, :now) END,
    reason = CASE WHEN :run_after IS NULL OR state = 'held' OR (state = 'scheduled') = (:run_after > :now)
                  THEN reason ELSE 'edited' END,
    changed_at = CASE WHEN :run_after IS NULL OR state = 'held' OR (state = 'scheduled') = (:run_after > :now)
                      THEN changed_at ELSE :now END
WHERE id = :job_id AND state IN ('scheduled', 'queued', 'held') RETURNING state;

-- name: restart
-- Begins again as if accepted now: the limits of its life keep their distance from acceptance.
UPDATE jobs SET state = 'queued', reason = :reason, changed_at = :now, attempts = 0, accepted_at = :now,
    run_after = :now, ready_at = :now, rank = :now - priority * :point
        - iif(EXISTS (SELECT 1 FROM jobs p WHERE p.id = jobs.parent_id AND p.token IS NOT NULL), :first, 0),
    stale_at = stale_at + (:now - accepted_at), deadline_at = deadline_at + (:now - accepted_at), start_by = NULL,
    retry_by = NULL, limits_met = 0, forks_failed = 0,
    started_at = NULL, ended_at = NULL, exit_code = NULL, last_error = NULL, error_class = NULL, cancel_at = NULL
WHERE id = :job_id AND state IN (SELECT value FROM json_each(:states)) AND kind <> 'ask'
RETURNING tenant, coalesce(asked_kind, kind) AS kind, dedupe_key, dedupe_scope;

-- name: is_question
-- It has nothing to run.
SELECT id FROM jobs WHERE id = ? AND kind = 'ask';

-- name: settle
-- A person says what became of a job that nobody could tell.
UPDATE jobs SET state = :state, reason = :reason, changed_at = :now, ended_at = :now, cancel_at = NULL,
    last_error = iif(:error IS NULL, NULL, coalesce(last_error || '; ', '') || :error)
WHERE id = :job_id AND state = 'unknown' RETURNING state;

-- name: take_key
-- A key of scope 'active' was freed when the job ended; another job may have it by now.
INSERT INTO dedupe (tenant, kind, key, job_id, until_end) VALUES (:tenant, :kind, :key, :job_id, 1)
ON CONFLICT DO NOTHING;

-- name: key_holder
-- Whose key it is.
SELECT job_id FROM dedupe WHERE tenant = :tenant AND kind = :kind AND key = :key;

-- name: pending
-- How full the queue is, as the cap counts it.
SELECT coalesce(sum(n), 0) AS n FROM tally WHERE state IN ('scheduled', 'queued', 'held') AND kind <> 'ask';

-- name: pause
-- A second pause of the same thing changes nothing.
INSERT INTO pauses (scope, name, since) VALUES (:scope, :name, :now) ON CONFLICT DO NOTHING RETURNING since;

-- name: resume
-- Only this pause; others stand.
DELETE FROM pauses WHERE scope = :scope AND name = :name RETURNING since;

-- name: prunable
-- The oldest of one kind of end, a batch at a time so that nobody waits long for the lock. A parent that has not ended
-- may still wait for it, and its next attempt gets it back.
SELECT id FROM jobs INDEXED BY jobs_ended WHERE ended_at IS NOT NULL AND state = :state AND ended_at < :before
    AND NOT EXISTS (SELECT 1 FROM jobs p WHERE p.id = jobs.parent_id AND p.ended_at IS NULL)
ORDER BY ended_at LIMIT :most;

-- name: prunable_count
-- For --dry-run: the same.
SELECT count(*) AS n FROM jobs INDEXED BY jobs_ended
WHERE ended_at IS NOT NULL AND state = :state AND ended_at < :before
    AND NOT EXISTS (SELECT 1 FROM jobs p WHERE p.id = jobs.parent_id AND p.ended_at IS NULL);

-- name: logs
-- The files that go with the jobs.
SELECT a.log FROM json_each(:ids) AS gone CROSS JOIN attempts a ON a.job_id = gone.value;

-- name: prune
-- Whatever was retried meanwhile has no end, and stays.
DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) AND ended_at < :before RETURNING id;
