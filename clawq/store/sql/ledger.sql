-- What the accounts say: budgets in sliding windows, resources at rest, footprints of kinds, and what observing
-- would have refused.

-- name: window
-- What a budget's window holds now, by tenant, and when its oldest entry leaves: the running sums without what is
-- past its window and not yet deleted, which is little.
WITH past AS MATERIALIZED (
    SELECT tenant, sum(amount) AS amount, count(*) AS n FROM spends INDEXED BY spends_window
    WHERE budget = :budget AND at <= :after GROUP BY tenant)
SELECT s.tenant, s.amount - coalesce(p.amount, 0),
    (SELECT min(at) FROM spends INDEXED BY spends_window WHERE budget = :budget AND at > :after)
FROM spent s LEFT JOIN past p ON p.tenant = s.tenant WHERE s.budget = :budget AND s.n > coalesce(p.n, 0);

-- name: reserve
-- At the start, in the claim's transaction; a retry pays like a first attempt.
INSERT INTO spends (budget, tenant, token, at, amount) VALUES (:budget, :tenant, :token, :now, :amount);

-- name: unreserve
-- It never ran.
DELETE FROM spends WHERE token = :token;

-- name: recorded
-- What an attempt has reserved and spent of a budget so far.
SELECT coalesce(sum(amount), 0), max(told) FROM spends INDEXED BY spends_token
WHERE token = :token AND budget = :budget;

-- name: tell_spend
-- The attempt's real figure, cumulative; what passes the reservation is an entry of its own.
INSERT INTO spends (budget, tenant, token, at, amount, told)
VALUES (:budget, :tenant, :token, :now, :amount, :told);

-- name: overpaid
-- Reservations of an attempt that turned out too high.
SELECT budget, sum(amount) - max(told) FROM spends INDEXED BY spends_token
WHERE token = :token GROUP BY budget HAVING max(told) < sum(amount);

-- name: owner
-- Whose job an attempt works for, while it is under way.
SELECT tenant FROM jobs WHERE id = :job_id AND token = :token AND state IN ('starting', 'running', 'waiting');

-- name: give_back
-- Once, when the attempt ends: its first entry is the reservation.
UPDATE spends SET amount = amount - :amount WHERE id = (
    SELECT id FROM spends INDEXED BY spends_token WHERE token = :token AND budget = :budget ORDER BY id LIMIT 1);

-- name: forget_spends
-- Out of every window, and of no attempt that could still report.
DELETE FROM spends WHERE budget = :budget AND at <= :before
    AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.token = spends.token AND a.ended_at IS NULL);

-- name: spends_not_after
-- By a clock that was ahead: it would count until the right one gets there.
UPDATE spends SET at = :now WHERE budget = :budget AND at > :now;

-- name: cooldowns_not_after
-- As long a rest as it was set for, from now on.
UPDATE cooldowns SET until = until - max(0, set_at - :now), set_at = min(set_at, :now),
    passed_at = min(passed_at, :now) WHERE set_at > :now OR passed_at > :now;

-- name: streaks_not_after
-- The next rest in a row is measured from the last one.
UPDATE streaks SET until = until - (since - :now), since = :now WHERE since > :now;

-- name: cooldowns
-- A handful of rows; when its probe started tells whether it has run for long enough.
SELECT c.resource, c.until, c.step_ms, c.probe_token, c.passed_at, c.released, a.token IS NOT NULL, a.started_at
FROM cooldowns c LEFT JOIN attempts a ON a.token = c.probe_token AND a.ended_at IS NULL;

-- name: cool
-- A new rest replaces the one before it; the longer end stands.
INSERT INTO cooldowns (resource, set_at, until, step_ms) VALUES (:resource, :now, :until, :step_ms)
ON CONFLICT DO UPDATE SET set_at = excluded.set_at, until = max(until, excluded.until),
    step_ms = excluded.step_ms, probe_token = NULL, passed_at = NULL, released = 0;

-- name: rests_until
-- What became of it.
SELECT until FROM cooldowns WHERE resource = :resource;

-- name: warm
-- Cleared by hand, or everybody is back.
DELETE FROM cooldowns WHERE resource = :resource;

-- name: streak
-- Which rest in a row the last one was.
SELECT streak, since, until FROM streaks WHERE resource = :resource;

-- name: keep_streak
-- Beside the rest itself, which goes when everybody is back.
INSERT INTO streaks VALUES (:resource, :streak, :since, :until)
ON CONFLICT DO UPDATE SET streak = excluded.streak, since = excluded.since, until = excluded.until;

-- name: forget_streak
-- A probe succeeded, or a person cleared the rest.
DELETE FROM streaks WHERE resource = :resource;

-- name: tell_failure
-- What the agent says of its own end; `owner` was asked in the same transaction.
UPDATE attempts SET told = json_object('class', :class, 'reason', :reason, 'resource', :resource,
    'retry_after_ms', :retry_after_ms, 'error', :error)
WHERE token = :token AND ended_at IS NULL;

-- name: probe
-- The first start after the rest.
UPDATE cooldowns SET probe_token = :token WHERE resource = :resource AND passed_at IS NULL AND probe_token IS NULL;

-- name: release
-- One of those that come back after the probe.
UPDATE cooldowns SET released = released + 1 WHERE resource = :resource AND passed_at IS NOT NULL;

-- name: probe_passed
-- It ended without meeting the limit again, or it has run for long enough.
UPDATE cooldowns SET passed_at = :now, probe_token = NULL WHERE resource = :resource AND passed_at IS NULL;

-- name: probe_void
-- The probe never ran, so it told nothing.
UPDATE cooldowns SET probe_token = NULL WHERE probe_token = :token;

-- name: probes_of
-- Which rests this attempt was the probe of.
SELECT resource FROM cooldowns WHERE probe_token = :token;

-- name: footprints
-- One row a kind that has run.
SELECT kind, procs, mb FROM footprints;

-- name: note_footprint
-- Rises at once, sinks by a fifth of the difference with each attempt.
INSERT INTO footprints VALUES (:kind, :procs, :mb, :now) ON CONFLICT DO UPDATE SET
    procs = max(excluded.procs, procs * 0.8 + excluded.procs * 0.2),
    mb = max(excluded.mb, mb * 0.8 + excluded.mb * 0.2), at = excluded.at;

-- name: observe
-- What enforcing would have refused. Tenants are free text: beyond a thousand rows new ones share a row.
INSERT INTO observed SELECT :stage, :reason, :kind, CASE WHEN count(*) < 1000 THEN :tenant
    ELSE coalesce((SELECT tenant FROM observed
                   WHERE stage = :stage AND reason = :reason AND kind = :kind AND tenant = :tenant), '*') END,
    1, :now, :now FROM observed WHERE true
ON CONFLICT DO UPDATE SET count = count + 1, last_at = excluded.last_at;

-- name: observed
-- Since observing began.
SELECT stage, reason, kind, tenant, count, first_at, last_at FROM observed ORDER BY count DESC, reason, kind;

-- name: forget_observed
-- Observing begins anew.
DELETE FROM observed;

-- name: observing_since
-- The key is there while a supervisor observes; producers ask for it too.
SELECT value FROM meta WHERE key = 'observe';

-- name: begin_observing
-- Its value is when it began.
INSERT INTO meta VALUES ('observe', :now) ON CONFLICT (key) DO NOTHING;

-- name: end_observing
-- What was observed stays to be read until it begins anew.
DELETE FROM meta WHERE key = 'observe';
