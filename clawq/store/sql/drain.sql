-- How fast the queue drains.

-- name: backlog_since
-- Since when some job has waited ready, lane by lane: before that there was less to do than could be done.
SELECT min((SELECT min(ready_at) FROM jobs INDEXED BY jobs_oldest
            WHERE state = 'queued' AND tenant = t.tenant AND band = t.band AND kind = t.kind))
FROM tally t WHERE t.state = 'queued' AND (:tenant IS NULL OR t.tenant = :tenant) AND (:kind IS NULL OR t.kind = :kind);

-- name: ended
-- Ends of the last hundred starts: how many, and when the first of those attempts was started.
SELECT count(*), min(recent.claimed_at)
FROM (SELECT job_id, claimed_at, ended_at, outcome FROM attempts INDEXED BY attempts_started
      WHERE claimed_at > :after ORDER BY claimed_at DESC LIMIT 100) recent
CROSS JOIN jobs j ON j.id = recent.job_id
WHERE recent.ended_at > :since AND recent.ended_at <= :now AND recent.outcome <> 'never_started'
    AND (:tenant IS NULL OR j.tenant = :tenant) AND (:kind IS NULL OR j.kind = :kind);

-- name: ahead
-- Queued jobs of its own and higher bands: all, the tenant's, the kind's.
SELECT coalesce(sum(n), 0), coalesce(sum(n) FILTER (WHERE tenant = :tenant), 0),
       coalesce(sum(n) FILTER (WHERE kind = :kind), 0)
FROM tally WHERE state = 'queued' AND band <= :band;
