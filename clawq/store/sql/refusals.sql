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
