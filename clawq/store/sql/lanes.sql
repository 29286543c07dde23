-- What a pass of admission reads and writes.

-- name: heads
-- One row a lane, whatever the number of jobs: the tally's queued rows are the lanes, and each costs one seek.
SELECT j.id, j.band, j.tenant, j.kind, j.needs, j.rank, j.exclusive, j.root_id, j.ready_at, j.deadline_at,
    l.last_start_at, l.gated_at, iif(l.short_job = j.id, l.short_since, NULL), j.command IS NULL, l.reason, l.retry_at,
    iif(l.short_job = j.id, l.promised_at, NULL)
FROM tally t CROSS JOIN jobs j ON j.id = (
    SELECT id FROM jobs INDEXED BY jobs_lane
    WHERE band = t.band AND tenant = t.tenant AND kind = t.kind AND needs = t.needs
        AND state = 'queued' AND parked IS NULL
    ORDER BY rank, id LIMIT 1)
LEFT JOIN lanes l ON l.band = t.band AND l.tenant = t.tenant AND l.kind = t.kind AND l.needs = t.needs
WHERE t.state = 'queued';

-- name: following
-- The jobs behind a lane's head, once that was started or parked.
SELECT id, band, tenant, kind, needs, rank, exclusive, root_id, ready_at, deadline_at, command IS NULL
FROM jobs INDEXED BY jobs_lane
WHERE band = :band AND tenant = :tenant AND kind = :kind AND needs = :needs
    AND state = 'queued' AND parked IS NULL AND (rank, id) > (:rank, :job_id)
ORDER BY rank, id LIMIT :most;

-- name: any_queued
-- Is a look at the host worth its price?
SELECT EXISTS (SELECT 1 FROM tally WHERE state = 'queued');

-- name: running
-- Who is under way: as many rows as run and wait. A job in `clawq wait` is ended by nothing but its deadline.
SELECT j.id, j.band, j.tenant, j.kind, j.needs, j.exclusive, j.root_id, a.claimed_at,
    iif(a.timeout_ms > 0 AND j.state <> 'waiting',
        min(a.claimed_at + a.waited_ms + a.timeout_ms, coalesce(j.deadline_at, 9e15)), j.deadline_at),
    j.state = 'waiting', a.back_at, j.token
FROM jobs j INDEXED BY jobs_active CROSS JOIN attempts a ON a.token = j.token
WHERE j.token IS NOT NULL;

-- name: pauses
-- A handful of rows at most.
SELECT scope, name FROM pauses;

-- name: park
-- Out of its lane until what it waits for ends; the triggers jobs_unpark bring it back.
UPDATE jobs SET parked = :reason WHERE id = :job_id AND state = 'queued' AND parked IS NULL;

-- name: next_of_name
-- The best of its lane that the same exclusive name has parked takes the place of one that its workflow parks.
UPDATE jobs SET parked = NULL WHERE id = (
    SELECT id FROM jobs INDEXED BY jobs_parked
    WHERE exclusive = :exclusive AND state = 'queued' AND parked <> 'workflow_limit'
        AND band = :band AND tenant = :tenant AND kind = :kind AND needs = :needs
    ORDER BY rank, id LIMIT 1)
RETURNING id;

-- name: next_of_workflow
-- The best of its lane that the same workflow has parked takes the place of one that its name parks.
UPDATE jobs SET parked = NULL WHERE id = (
    SELECT id FROM jobs INDEXED BY jobs_parked_root
    WHERE coalesce(root_id, id) = coalesce(:root_id, :job_id) AND state = 'queued' AND parked = 'workflow_limit'
        AND band = :band AND tenant = :tenant AND kind = :kind AND needs = :needs
    ORDER BY rank, id LIMIT 1)
RETURNING id;

-- name: workflow_limit
-- The limit by which jobs were parked last.
SELECT value FROM meta WHERE key = 'workflow_limit';

-- name: keep_workflow_limit
-- Only when it has changed.
INSERT INTO meta VALUES ('workflow_limit', :most) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: unpark_workflows
-- They come back one for one as others end, so room that no end has made is found only by asking all of them.
UPDATE jobs INDEXED BY jobs_parked_root SET parked = NULL
WHERE state = 'queued' AND parked = 'workflow_limit' AND coalesce(root_id, id) > 0;

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
-- Its head started: the old reason is no longer true. While others wait, their wait counts from here.
INSERT INTO lanes (band, tenant, kind, needs, last_start_at)
SELECT :band, :tenant, :kind, :needs, :now WHERE EXISTS (
    SELECT 1 FROM tally WHERE state = 'queued' AND band = :band AND tenant = :tenant
        AND kind = :kind AND needs = :needs)
ON CONFLICT DO UPDATE SET reason = NULL, measured = NULL, limit_value = NULL, since = NULL, retry_at = NULL,
    short_job = NULL, short_since = NULL, promised_at = NULL, clears_at = NULL,
    last_start_at = excluded.last_start_at;

-- name: serve
-- The wait of whatever else of the band has the same needs counts from here too; the starter's own lane may be gone.
UPDATE lanes SET last_start_at = :now WHERE band = :band AND needs = :needs AND last_start_at IS NOT :now;

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

