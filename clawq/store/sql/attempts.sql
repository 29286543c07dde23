-- What the supervisor reads and writes. Every write of an attempt under way carries its token.

-- name: claim
-- One conditional UPDATE for all of a pass: whoever cancelled or edited a job meanwhile wins, and no row comes back.
UPDATE jobs SET state = 'starting', token = :token + wanted.key, tries = tries + 1, reason = 'claimed',
    changed_at = :now, started_at = :now, ready_at = NULL
FROM json_each(:ids) wanted WHERE jobs.id = wanted.value AND state = 'queued' AND parked IS NULL
RETURNING token, id, kind, tenant, band, tries, command, payload, cwd, path, env, timeout_ms, deadline_at;

-- name: open_attempt
-- Beside the claim, in the same transaction.
INSERT INTO attempts (token, job_id, number, claimed_at, boot_id, lease_ms, lease_until, grace_ms, timeout_ms,
    heartbeat, log)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?4 + ?6, ?7, ?8, ?9, ?10);

-- name: last_token
-- Never lower than any token given out, even when the attempts were pruned.
SELECT coalesce((SELECT value FROM meta WHERE key = 'last_token'), 0);

-- name: keep_last_token
-- Once a pass that claims.
INSERT INTO meta VALUES ('last_token', :token) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: mark_running
-- The agent was seen to run.
UPDATE jobs SET state = 'running', reason = 'started', changed_at = :now
WHERE id = :job_id AND token = :token AND state = 'starting';

-- name: mark_unseen
-- The same of all that had ended when they were first seen to have run: `tokens` is {token: job}.
UPDATE jobs SET state = 'running', reason = 'started', changed_at = :now
FROM json_each(:tokens) t WHERE jobs.id = t.value AND token = CAST(t.key AS INTEGER) AND state = 'starting';

-- name: note_leader
-- Whom to signal later, and never another process with its pid.
UPDATE attempts SET started_at = coalesce(started_at, :now), pid = :pid, pid_started = :pid_started
WHERE token = :token AND ended_at IS NULL;

-- name: live
-- What a new supervisor takes over, and what a running one must still own.
SELECT a.token, a.job_id, a.number, j.kind, j.tenant, j.state, a.claimed_at, a.started_at, a.boot_id, a.pid,
    a.pid_started, a.lease_ms, a.grace_ms, a.timeout_ms, a.heartbeat, a.kill_reason, a.kill_at, a.log, j.deadline_at,
    a.waited_ms
FROM attempts a INDEXED BY attempts_live CROSS JOIN jobs j ON j.id = a.job_id AND j.token = a.token
WHERE a.ended_at IS NULL;

-- name: close_disowned
-- An attempt left open whose job has moved on: its writes are void, only the row is to be closed.
UPDATE attempts SET ended_at = :now, outcome = 'lost', error = 'superseded'
WHERE token IN (
    SELECT a.token FROM attempts a INDEXED BY attempts_live
    WHERE a.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = a.job_id AND j.token = a.token));

-- name: renew
-- One statement for all: `beats` is {token: time of its last sign of life}, `worked` {token: when it last used CPU time}.
UPDATE attempts SET lease_until = b.value + lease_ms, worked_at = coalesce(:worked ->> ('$.' || b.key), worked_at)
FROM json_each(:beats) b WHERE attempts.token = CAST(b.key AS INTEGER) AND ended_at IS NULL;

-- name: intend_kill
-- Committed before the first signal; the first reason stands.
UPDATE attempts SET kill_reason = :reason, kill_at = :now
WHERE token = :token AND ended_at IS NULL AND kill_reason IS NULL RETURNING token;

-- name: cancel_requests
-- Jobs with an attempt under way that somebody asked to cancel.
SELECT id, token FROM jobs INDEXED BY jobs_cancel WHERE cancel_at IS NOT NULL AND token IS NOT NULL;

-- name: policy
-- What the retry rule needs, and whether there is anything to settle: for most there is not. A token that is no longer
-- the job's finds nothing.
SELECT kind, band, attempts, max_attempts, on_lost, accepted_at, deadline_at, cancel_at IS NOT NULL AS cancel,
    needs, limits_met, forks_failed,
    (SELECT told FROM attempts a WHERE a.token = :token AND a.job_id = :job_id) AS told,
    EXISTS (SELECT 1 FROM effects INDEXED BY effects_of WHERE job_id = :job_id AND state = 'begun') AS begun,
    EXISTS (SELECT 1 FROM spends INDEXED BY spends_token WHERE token = :token) AS spent,
    EXISTS (SELECT 1 FROM cooldowns WHERE probe_token = :token) AS probing
FROM jobs WHERE id = :job_id AND token = :token;

-- name: finish
-- The outcome, accepted at most once: no row is changed when the token is no longer the job's. Whether somebody
-- wanted it cancelled still counts when a probe finds that nothing happened.
UPDATE jobs SET state = :state, token = NULL, attempts = attempts + :charged, reason = :reason, changed_at = :now,
    run_after = coalesce(:run_after, run_after),
    ready_at = iif(:state = 'queued', :now, NULL),
    ended_at = iif(:state IN ('succeeded', 'dead', 'cancelled'), :now, NULL),
    retry_by = coalesce(:retry_by, retry_by), result = iif(:ran, :result, result),
    limits_met = limits_met + :free_limit, forks_failed = forks_failed + :free_fork,
    exit_code = :exit_code, last_error = :error, error_class = :error_class,
    cancel_at = iif(:state = 'unknown', cancel_at, NULL)
WHERE id = :job_id AND token = :token;

-- name: close_attempt
-- Beside the finish, in the same transaction. Of one that was never seen to run this is the first that is known of it.
UPDATE attempts SET started_at = coalesce(started_at, :started_at), pid = coalesce(pid, :pid),
    pid_started = coalesce(pid_started, :pid_started),
    ended_at = :now, outcome = :outcome, exit_code = :exit_code, signal = :signal,
    error_class = :error_class, error = :noted_error, output_tail = :output_tail, charged = :charged,
    reason = :end_reason, resource = :resource, peak_procs = :peak_procs, peak_mb = :peak_mb,
    spoke_at = :spoke_at
WHERE token = :token AND ended_at IS NULL;

-- name: succeed
-- `finish` for all that have nothing to tell but that they succeeded: `tokens` is {token: job}.
UPDATE jobs SET state = 'succeeded', token = NULL, attempts = attempts + 1, reason = 'succeeded', changed_at = :now,
    ready_at = NULL, ended_at = :now, result = NULL, exit_code = 0, last_error = NULL, error_class = NULL,
    cancel_at = NULL
FROM json_each(:tokens) t WHERE jobs.id = t.value AND token = CAST(t.key AS INTEGER);

-- name: close_succeeded
-- Beside it, one by one.
UPDATE attempts SET started_at = coalesce(started_at, ?2), pid = coalesce(pid, ?3),
    pid_started = coalesce(pid_started, ?4), ended_at = ?2, outcome = 'succeeded', exit_code = 0, charged = 1,
    peak_procs = ?5, peak_mb = ?6, spoke_at = ?7
WHERE token = ?1 AND ended_at IS NULL;

-- name: retries_not_after
-- Each waits as long as it was to wait when its attempt ended, by whichever clock that was.
UPDATE jobs INDEXED BY jobs_due SET run_after = run_after - (changed_at - :now), changed_at = :now
WHERE state = 'scheduled' AND run_after > :now AND changed_at > :now AND tries > 0;

-- name: promote
-- What has become due, a few hundred at a time so that nobody waits long for the lock.
UPDATE jobs SET state = 'queued', reason = 'due', changed_at = :now, ready_at = :now
WHERE id IN (SELECT id FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled' AND run_after <= :now
             ORDER BY run_after LIMIT :most)
RETURNING id;

-- name: expirable
-- Whose time to start is over.
SELECT id FROM jobs INDEXED BY jobs_expiry
WHERE expires_at <= :now AND (state = 'scheduled' OR state = 'queued' OR state = 'held') LIMIT :most;

-- name: expire
-- Not started in time: `expired`. A deadline that passes after an attempt has failed leaves the job `dead`.
UPDATE jobs SET
    state = CASE WHEN state = 'held' OR tries = 0 THEN 'expired' WHEN deadline_at <= :now THEN 'dead'
                 WHEN stale_at <= :now THEN 'expired' ELSE 'dead' END,
    reason = CASE WHEN deadline_at <= :now THEN 'deadline' WHEN stale_at <= :now THEN 'stale'
                  WHEN retry_by <= :now THEN 'max_age' ELSE 'busy' END,
    last_error = coalesce(last_error || '; ', '')
        || CASE WHEN deadline_at <= :now THEN 'its deadline passed'
                WHEN stale_at <= :now THEN 'not started before it was stale'
                WHEN retry_by <= :now THEN 'too old to be tried again'
                ELSE 'not started within 5 s, and its on_busy is reject: it may not wait' END,
    changed_at = :now, ended_at = :now, parked = NULL, ready_at = NULL
WHERE id = :job_id AND state IN ('scheduled', 'queued', 'held')
RETURNING id;

-- name: next_due
-- The next moment at which the calendar alone changes something: two seeks.
SELECT min(
    coalesce((SELECT min(run_after) FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled'), 9e15),
    coalesce((SELECT min(expires_at) FROM jobs INDEXED BY jobs_expiry
              WHERE expires_at IS NOT NULL AND (state = 'scheduled' OR state = 'queued' OR state = 'held')), 9e15));

-- name: stop_request
-- What `clawq stop` asks for.
SELECT value FROM meta WHERE key = 'stop';

-- name: keep_path
-- For producers that have no PATH of their own.
INSERT INTO meta VALUES ('supervisor_path', :path) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: ask_stop
-- One request at a time; a stronger one replaces it.
INSERT INTO meta VALUES ('stop', :mode) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: forget_stop
-- A request belongs to the supervisor that was running when it was made.
DELETE FROM meta WHERE key = 'stop';
