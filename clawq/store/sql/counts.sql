-- What has been counted since ever and by the hour, and what was sampled by the minute. The supervisor adds to it
-- in bulk from the events that came since it last did; readers add what came since then.

-- name: counted_to
-- The last event that is in `counts`.
SELECT coalesce((SELECT value FROM meta WHERE key = 'counted'), 0);

-- name: keep_counted_to
-- Beside the counts themselves, in one transaction.
INSERT INTO meta VALUES ('counted', :to) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: last_of_batch
-- Where a batch of events that are not counted yet ends; NULL when there is none.
SELECT max(id) FROM (SELECT id FROM events WHERE id > :after ORDER BY id LIMIT :most);

-- name: last_event_of
-- Of jobs that are to be pruned.
SELECT max((SELECT max(e.id) FROM events e INDEXED BY events_job WHERE e.job_id = each.value))
FROM json_each(:ids) AS each;

-- name: uncounted
-- Moves that are not counted yet, alike ones together. `ms` of a start is how long the job was queued before, of an
-- end how long it ran; `spoke_ms` is from queued to the first output, `held_ms` how long its slots were taken until
-- this move, `ended` the attempt's outcome and error class. Materialized, or each WHEN would look again.
WITH moves AS MATERIALIZED (
    SELECT j.kind, j.needs, e.from_state, e.to_state, e.reason, e.at / 3600000 AS hour,
        j.tries > 0 AS tries, j.parent_id IS NOT NULL AS child,
        e.to_state = 'starting' AND j.tries > 1 AND coalesce(j.deadline_at <= e.at, 0) AS late,
        max(0, CASE
            WHEN e.from_state = 'starting' AND e.to_state = 'running' THEN e.at - (
                SELECT p.at FROM events p INDEXED BY events_job WHERE p.job_id = e.job_id AND p.id < e.id
                    AND p.to_state = 'queued' ORDER BY p.id DESC LIMIT 1)
            WHEN e.from_state IN ('running', 'waiting') AND e.to_state NOT IN ('running', 'waiting') THEN e.at - (
                SELECT p.at FROM events p INDEXED BY events_job WHERE p.job_id = e.job_id AND p.id < e.id
                    AND p.from_state = 'starting' AND p.to_state = 'running' ORDER BY p.id DESC LIMIT 1)
            END) AS ms,
        CASE WHEN e.from_state IN ('starting', 'running') AND j.needs <> '' THEN max(0, e.at - (
            SELECT p.at FROM events p INDEXED BY events_job WHERE p.job_id = e.job_id AND p.id < e.id
            ORDER BY p.id DESC LIMIT 1)) END AS held_ms,
        CASE WHEN e.from_state IN ('starting', 'running', 'waiting')
                  AND e.to_state NOT IN ('starting', 'running', 'waiting') THEN (
            SELECT a.outcome || ' ' || coalesce(a.error_class, '') FROM attempts a
            WHERE a.job_id = e.job_id AND a.ended_at = e.at LIMIT 1) END AS ended,
        CASE WHEN e.from_state IN ('starting', 'running', 'waiting')
                  AND e.to_state NOT IN ('starting', 'running', 'waiting') THEN max(0, (
            SELECT a.spoke_at - (SELECT p.at FROM events p INDEXED BY events_job WHERE p.job_id = e.job_id
                                 AND p.id < e.id AND p.to_state = 'queued' ORDER BY p.id DESC LIMIT 1)
            FROM attempts a WHERE a.job_id = e.job_id AND a.ended_at = e.at LIMIT 1)) END AS spoke_ms
    FROM events e CROSS JOIN jobs j ON j.id = e.job_id WHERE e.id > :after AND e.id <= :to
)
SELECT kind, needs, from_state, to_state, reason, hour, tries, child, late, ended,
    CASE WHEN ms IS NULL THEN NULL WHEN ms <= 100 THEN 100 WHEN ms <= 500 THEN 500 WHEN ms <= 1000 THEN 1000
         WHEN ms <= 5000 THEN 5000 WHEN ms <= 15000 THEN 15000 WHEN ms <= 60000 THEN 60000
         WHEN ms <= 300000 THEN 300000 WHEN ms <= 900000 THEN 900000 WHEN ms <= 3600000 THEN 3600000
         WHEN ms <= 14400000 THEN 14400000 WHEN ms <= 86400000 THEN 86400000 ELSE 0 END AS most_ms,
    CASE WHEN spoke_ms IS NULL THEN NULL WHEN spoke_ms <= 100 THEN 100 WHEN spoke_ms <= 500 THEN 500
         WHEN spoke_ms <= 1000 THEN 1000
         WHEN spoke_ms <= 5000 THEN 5000 WHEN spoke_ms <= 15000 THEN 15000 WHEN spoke_ms <= 60000 THEN 60000
         WHEN spoke_ms <= 300000 THEN 300000 WHEN spoke_ms <= 900000 THEN 900000 WHEN spoke_ms <= 3600000 THEN 3600000
         WHEN spoke_ms <= 14400000 THEN 14400000 WHEN spoke_ms <= 86400000 THEN 86400000 ELSE 0 END AS most_spoke_ms,
    count(*) AS n, coalesce(sum(ms), 0) AS ms, coalesce(sum(held_ms), 0) AS held_ms,
    coalesce(sum(spoke_ms), 0) AS spoke_ms
FROM moves GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12;

-- name: add
-- Twice each: for its hour, and under hour 0 for ever.
INSERT INTO counts VALUES (:hour, :what, :kind, :word, :n, :total)
ON CONFLICT DO UPDATE SET n = n + excluded.n, total = total + excluded.total;

-- name: spent
-- What an attempt's entries come to, by budget; the kind is that of its workflow's first job while there is one.
SELECT (SELECT coalesce(r.kind, j.kind) FROM jobs j LEFT JOIN jobs r ON r.id = j.root_id WHERE j.id = :job_id) AS kind,
    budget, sum(amount) FROM spends INDEXED BY spends_token WHERE token = :token GROUP BY budget;

-- name: refused
-- Refusals and duplicates are counted where they happen, by producers.
SELECT iif(reason = 'duplicate', reason, 'refused'), kind, iif(reason = 'duplicate', '', reason), sum(count)
FROM refusals GROUP BY kind, reason;

-- name: ever
-- As many rows as there are kinds of things to tell apart.
SELECT what, kind, word, n, total FROM counts WHERE hour = 0;

-- name: hourly
-- By the hour, in order.
SELECT hour, what, kind, word, n, total FROM counts WHERE hour >= max(1, :since) ORDER BY hour;

-- name: forget_hours
-- What is counted for ever stays.
DELETE FROM counts WHERE hour > 0 AND hour < :before;

-- name: sample
-- One row a minute; a clock that was set back writes over it.
INSERT OR REPLACE INTO samples
SELECT :minute, :now, coalesce(sum(n) FILTER (WHERE state = 'queued'), 0),
    coalesce(sum(n) FILTER (WHERE state = 'scheduled'), 0), coalesce(sum(n) FILTER (WHERE state = 'held'), 0),
    coalesce(sum(n) FILTER (WHERE state IN ('starting', 'running')), 0),
    coalesce(sum(n) FILTER (WHERE state = 'waiting'), 0), coalesce(sum(n) FILTER (WHERE state = 'unknown'), 0),
    (SELECT :now - min((SELECT min(ready_at) FROM jobs INDEXED BY jobs_oldest
                 WHERE state = 'queued' AND tenant = t.tenant AND band = t.band AND kind = t.kind))
     FROM tally t WHERE t.state = 'queued'),
    :max_running, :procs, :max_procs, :free_mb, :min_free_mb, :pressure, :free_disk_mb
FROM tally;

-- name: samples
-- A row a minute, in order.
SELECT at, queued, scheduled, held, running, waiting, unknown, oldest_age_ms, max_running, procs, max_procs,
    free_mb, min_free_mb, pressure, free_disk_mb
FROM samples WHERE minute >= :since ORDER BY minute;

-- name: forget_samples
-- A few rows each time.
DELETE FROM samples WHERE minute < :before;
