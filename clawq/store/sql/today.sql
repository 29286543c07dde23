-- What has happened since midnight, for `clawq status`.

-- name: counted
-- A few rows an hour: what the supervisor has added up already.
SELECT what, kind, word, n FROM counts
WHERE hour >= max(1, :hour) AND what IN ('ended', 'deferred');

-- name: lately
-- Ends that it has not, among the latest two thousand moves: it is never long behind.
SELECT j.kind, e.to_state AS state, count(*) AS n FROM (
    SELECT id, job_id, to_state, at FROM events WHERE id > :after ORDER BY id DESC LIMIT 2000
) e CROSS JOIN jobs j ON j.id = e.job_id
WHERE e.at >= :since AND e.to_state IN ('succeeded', 'dead', 'expired', 'cancelled') GROUP BY 1, 2;
