-- What the supervisor reads and writes. Every write of an attempt under way carries its token.

-- name: heads
-- One row a lane, whatever the number of jobs: the tally's queued rows are the lanes, and each costs one seek.
SELECT j.id, j.band, j.tenant, j.kind, j.needs, j.rank, j.exclusive, j.root_id, j.ready_at, j.deadline_at,
    l.last_start_at, l.gated_at, iif(l.short_job = j.id, l.short_since, NULL), l.reason, l.retry_at, l.clears_at
FROM tally t CROSS JOIN jobs j ON j.id = (
    SELECT id FROM jobs INDEXED BY jobs_lane
    WHERE band = t.band AND tenant = t.tenant AND kind = t.kind AND needs = t.needs
        AND state = 'queued' AND parked IS NULL
    ORDER BY rank, id LIMIT 1)
LEFT JOIN lanes l ON l.band = t.band AND l.tenant = t.tenant AND l.kind = t.kind AND l.needs = t.needs
WHERE t.state = 'queued';

-- name: following
-- The job behind a lane's head, once that was started or parked.
SELECT id, band, tenant, kind, needs, rank, exclusive, root_id, ready_at, deadline_at FROM jobs INDEXED BY jobs_lane
WHERE band = :band AND tenant = :tenant AND kind = :kind AND needs = :needs
    AND state = 'queued' AND parked IS NULL AND (rank, id) > (:rank, :job_id)
ORDER BY rank, id LIMIT 1;

-- name: any_queued
-- Is a look at the host worth its price?
SELECT EXISTS (SELECT 1 FROM tally WHERE state = 'queued');

-- name: running
-- Who holds slots now: never more rows than max_running.
SELECT j.id, j.band, j.tenant, j.kind, j.needs, j.exclusive, j.root_id, a.claimed_at,
    iif(a.timeout_ms > 0, min(a.claimed_at + a.timeout_ms, coalesce(j.deadline_at, 9e15)), j.deadline_at), j.token
FROM jobs j INDEXED BY jobs_active CROSS JOIN attempts a ON a.token = j.token
WHERE j.state IN ('starting', 'running', 'waiting');

-- name: pauses
-- A handful of rows at most.
SELECT scope, name FROM pauses;

-- name: claim
-- One conditional UPDATE: whoever cancelled or edited the job meanwhile wins, and no row comes back.
UPDATE jobs SET state = 'starting', token = :token, tries = tries + 1, reason = 'claimed', changed_at = :now,
    started_at = :now, ready_at = NULL
WHERE id = :job_id AND state = 'queued' AND parked IS NULL
RETURNING id, kind, tenant, band, tries, command, payload, cwd, path, env, timeout_ms, deadline_at;

-- name: open_attempt
-- Beside the claim, in the same transaction.
INSERT INTO attempts (token, job_id, number, claimed_at, boot_id, lease_ms, lease_until, grace_ms, timeout_ms,
    heartbeat, log)
VALUES (:token, :job_id, :number, :now, :boot_id, :lease_ms, :now + :lease_ms, :grace_ms, :timeout_ms,
    :heartbeat, :log);

-- name: last_token
-- Never lower than any token given out, even when the attempts were pruned.
SELECT coalesce((SELECT value FROM meta WHERE key = 'last_token'), 0);

-- name: keep_last_token
-- Once a pass that claims.
INSERT INTO meta VALUES ('last_token', :token) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: mark_running
-- The agent was seen to run.
UPDATE jobs SET state = 'running', reason = 'started', changed_at = :now
WHERE id = :job_id AND token = :token AND state = 'starting' RETURNING id;

-- name: note_leader
-- Whom to signal later, and never another process with its pid.
UPDATE attempts SET started_at = coalesce(started_at, :now), pid = :pid, pid_started = :pid_started
WHERE token = :token AND ended_at IS NULL;

-- name: live
-- What a new supervisor takes over, and what a running one must still own.
SELECT a.token, a.job_id, a.number, j.kind, j.tenant, j.state, a.claimed_at, a.started_at, a.boot_id, a.pid,
    a.pid_started, a.lease_ms, a.grace_ms, a.timeout_ms, a.heartbeat, a.kill_reason, a.kill_at, a.log, j.deadline_at
FROM attempts a INDEXED BY attempts_live CROSS JOIN jobs j ON j.id = a.job_id AND j.token = a.token
WHERE a.ended_at IS NULL;

-- name: close_disowned
-- An attempt left open whose job has moved on: its writes are void, only the row is to be closed.
UPDATE attempts SET ended_at = :now, outcome = 'lost', error = 'superseded'
WHERE token IN (
    SELECT a.token FROM attempts a INDEXED BY attempts_live
    WHERE a.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = a.job_id AND j.token = a.token));

-- name: renew
-- One statement for all: `beats` is {token: time of its last sign of life}.
UPDATE attempts SET lease_until = b.value + lease_ms
FROM json_each(:beats) b WHERE attempts.token = CAST(b.key AS INTEGER) AND ended_at IS NULL;

-- name: intend_kill
-- Committed before the first signal; the first reason stands.
UPDATE attempts SET kill_reason = :reason, kill_at = :now
WHERE token = :token AND ended_at IS NULL AND kill_reason IS NULL RETURNING token;

-- name: cancel_requests
-- Jobs with an attempt under way that somebody asked to cancel.
SELECT id, token FROM jobs INDEXED BY jobs_cancel WHERE cancel_at IS NOT NULL AND token IS NOT NULL;

-- name: policy
-- What the retry rule needs; a token that is no longer the job's finds nothing.
SELECT kind, band, attempts, max_attempts, on_lost, accepted_at, deadline_at, cancel_at IS NOT NULL AS cancel
FROM jobs WHERE id = :job_id AND token = :token;

-- name: finish
-- The outcome, accepted at most once: no row comes back when the token is no longer the job's.
UPDATE jobs SET state = :state, token = NULL, attempts = attempts + :charged, reason = :reason, changed_at = :now,
    run_after = coalesce(:run_after, run_after),
    ready_at = iif(:state = 'queued', :now, NULL),
    ended_at = iif(:state IN ('succeeded', 'dead', 'cancelled'), :now, NULL),
    exit_code = :exit_code, last_error = :error, error_class = :error_class, cancel_at = NULL
WHERE id = :job_id AND token = :token RETURNING id;

-- name: close_attempt
-- Beside the finish, in the same transaction.
UPDATE attempts SET ended_at = :now, outcome = :outcome, exit_code = :exit_code, signal = :signal,
    error_class = :error_class, error = :error, output_tail = :output_tail, charged = :charged
WHERE token = :token AND ended_at IS NULL;

-- name: promote
-- What has become due, a few hundred at a time so that nobody waits long for the lock.
UPDATE jobs SET state = 'queued', reason = 'due', changed_at = :now, ready_at = :now
WHERE id IN (SELECT id FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled' AND run_after <= :now
             ORDER BY run_after LIMIT :most)
RETURNING id;

-- name: expire
-- Not started in time: `expired`. A deadline that passes after an attempt has failed leaves the job `dead`.
UPDATE jobs SET
    state = iif(tries > 0 AND deadline_at <= :now AND state <> 'held', 'dead', 'expired'),
    reason = iif(deadline_at <= :now, 'deadline', 'stale'),
    last_error = coalesce(last_error || '; ', '')
        || iif(deadline_at <= :now, 'its deadline passed', 'not started before it was stale'),
    changed_at = :now, ended_at = :now, parked = NULL, ready_at = NULL
WHERE id IN (SELECT id FROM jobs INDEXED BY jobs_expiry
             WHERE expires_at <= :now AND state IN ('scheduled', 'queued', 'held') LIMIT :most)
RETURNING id;

-- name: next_due
-- The next moment at which the calendar alone changes something: two seeks.
SELECT min(
    coalesce((SELECT min(run_after) FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled'), 9e15),
    coalesce((SELECT min(expires_at) FROM jobs INDEXED BY jobs_expiry
              WHERE expires_at IS NOT NULL AND state IN ('scheduled', 'queued', 'held')), 9e15));

-- name: park
-- Out of its lane until what it waits for ends; the triggers jobs_unpark bring it back.
UPDATE jobs SET parked = :reason WHERE id = :job_id AND state = 'queued' AND parked IS NULL;

-- name: note_lane
-- The reason that every job of the lane answers with; `since` stays while the reason does, `short_since`
-- while the same head waits for nothing but slots that others hold.
INSERT INTO lanes (band, tenant, kind, needs, reason, measured, limit_value, since, retry_at, gated_at,
    short_job, short_since, promised_at, clears_at)
VALUES (:band, :tenant, :kind, :needs, :reason, :measured, :limit, :now, :retry_at, iif(:gated, :now, NULL),
    iif(:short, :job_id, NULL), iif(:short, :now, NULL), :promised_at, :clears_at)
ON CONFLICT DO UPDATE SET
    since = iif(reason IS excluded.reason, since, excluded.since),
    reason = excluded.reason, measured = excluded.measured, limit_value = excluded.limit_value,
    retry_at = excluded.retry_at, gated_at = coalesce(excluded.gated_at, gated_at),
    short_since = iif(short_job IS excluded.short_job, short_since, excluded.short_since),
    promised_at = iif(short_job IS excluded.short_job, coalesce(promised_at, excluded.promised_at),
                      excluded.promised_at),
    short_job = excluded.short_job, clears_at = excluded.clears_at;

-- name: clear_lane
-- Its head started: the old reason is no longer true. The row is needed for what its wait counts from.
INSERT INTO lanes (band, tenant, kind, needs, last_start_at) VALUES (:band, :tenant, :kind, :needs, :now)
ON CONFLICT DO UPDATE SET reason = NULL, measured = NULL, limit_value = NULL, since = NULL, retry_at = NULL,
    short_job = NULL, short_since = NULL, promised_at = NULL, clears_at = NULL,
    last_start_at = excluded.last_start_at;

-- name: turns
-- Whose turn it is; tenants whose clock is not ahead of their band's present have no row.
SELECT band, tenant, clock FROM turns;

-- name: move_turn
-- A start was charged.
INSERT INTO turns VALUES (:band, :tenant, :clock) ON CONFLICT DO UPDATE SET clock = excluded.clock;

-- name: forget_turns
-- A clock that the present has reached says nothing more.
DELETE FROM turns WHERE band = :band AND tenant <> '' AND clock <= :present;

-- name: defer
-- Counted at most once an interval: "deferred 38 times, uid_procs".
INSERT INTO deferrals VALUES (:job_id, :reason, 1, :now, :now)
ON CONFLICT DO UPDATE SET count = count + 1, last_at = excluded.last_at
WHERE last_at <= :now - :every;

-- name: unsettled
-- For --until-idle: what still runs, is queued or is scheduled, by lane; paused lanes are the caller's to leave out.
SELECT state, band, tenant, kind, needs FROM tally
WHERE state IN ('scheduled', 'queued', 'starting', 'running', 'waiting');

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
