-- name: drain
-- The last starts, to tell how soon a place will be free: all, the tenant's, the kind's, and since when.
SELECT count(*), coalesce(sum(j.tenant = :tenant), 0), coalesce(sum(j.kind = :kind), 0), min(recent.claimed_at)
FROM (SELECT job_id, claimed_at FROM attempts INDEXED BY attempts_started
      WHERE claimed_at > :since ORDER BY claimed_at DESC LIMIT 100) recent
CROSS JOIN jobs j ON j.id = recent.job_id;

-- name: count_refusal
-- Tenants are free text: beyond a thousand rows new ones share a row, so that this table stays small.
INSERT INTO refusals (reason, kind, tenant, count, last_at)
SELECT :reason, :kind, CASE WHEN count(*) < 1000 THEN :tenant
    ELSE coalesce((SELECT tenant FROM refusals WHERE reason = :reason AND kind = :kind AND tenant = :tenant), '*') END,
    :count, :now FROM refusals WHERE true
ON CONFLICT DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at;

-- name: nag
-- In one statement, so that of two callers one speaks.
INSERT INTO meta VALUES ('nag_day', ?1) ON CONFLICT DO UPDATE SET value = ?1 WHERE value IS NOT ?1 RETURNING 1;
