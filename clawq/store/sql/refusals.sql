-- name: count_refusal
-- Tenants are free text: beyond a thousand rows new ones share a row, so that this table stays small.
INSERT INTO refusals (reason, kind, tenant, count, last_at)
SELECT :reason, :kind, CASE WHEN count(*) < 1000 THEN :tenant
    ELSE coalesce((SELECT tenant FROM refusals WHERE reason = :reason AND kind = :kind AND tenant = :tenant), '*') END,
    :count, :now FROM refusals WHERE true
ON CONFLICT DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at;

-- name: turn_away
-- For `clawq events`, which remembers the latest of them. The newest row is never deleted: numbers only grow.
INSERT INTO turned_away (at, kind, tenant, reason, count) VALUES (:now, :kind, :tenant, :reason, :count);

-- name: forget_turned_away
-- One row goes for each that comes.
DELETE FROM turned_away WHERE id <= last_insert_rowid() - :most;

-- name: nag
-- In one statement, so that of two callers one speaks.
INSERT INTO meta VALUES ('nag_day', ?1) ON CONFLICT DO UPDATE SET value = ?1 WHERE value IS NOT ?1 RETURNING 1;

-- name: old_key_noted
-- Whether a key of this kind was noted a moment ago, which is enough: most duplicates write nothing.
SELECT 1 FROM old_keys WHERE tenant = :tenant AND kind = :kind AND at BETWEEN :now - 600000 AND :now;

-- name: note_old_key
-- In the transaction that answers; tenants are free text, so only a thousand of them are remembered.
INSERT INTO old_keys (tenant, kind, key, job_id, ended_ms, at)
SELECT :tenant, :kind, :key, :job_id, :ended_ms, :now WHERE (SELECT count(*) FROM old_keys) < 1000
ON CONFLICT DO UPDATE SET key = excluded.key, job_id = excluded.job_id, ended_ms = excluded.ended_ms, at = excluded.at;
