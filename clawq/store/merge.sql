-- Restoring: what the replaced database (attached as `gone`) knows, told to the restored one. Whole tables are
-- read, which nothing else here does; indexes are there for the joins. `:shift` is added to the job numbers of a
-- database that is another queue's, and 0 otherwise.

-- name: same_queue
-- A number then means the same job in both.
SELECT (SELECT value FROM gone.meta WHERE key = 'queue') IS (SELECT value FROM main.meta WHERE key = 'queue');

-- name: same_life
-- Nothing was restored since the backup was made: what is missing in the replaced database was pruned there.
SELECT (SELECT value FROM gone.meta WHERE key = 'life') IS (SELECT value FROM main.meta WHERE key = 'life');

-- name: triggers
-- They are for single moves; the books are made anew at the end.
SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger';

-- name: find_known
-- Jobs of which the replaced database knows more: accepted since, tried since, ended, or unknown. An end counts
-- in any case, whatever the clocks say.
CREATE TEMP TABLE known AS
SELECT g.id AS was, g.id + :shift AS id, j.id IS NULL AS is_new,
    j.id IS NOT NULL AND j.ended_at IS NULL AND g.ended_at IS NOT NULL AS ended
FROM gone.jobs g LEFT JOIN main.jobs j ON j.id = g.id + :shift
WHERE j.id IS NULL
    OR (j.created_at = g.created_at AND j.kind = g.kind AND j.cwd = g.cwd
        AND ((g.ended_at IS NOT NULL AND j.ended_at IS NULL)
            OR (g.changed_at >= j.changed_at AND j.token IS NOT NULL)
            OR (g.changed_at > j.changed_at
                AND (g.ended_at IS NOT NULL OR g.state = 'unknown' OR g.tries > j.tries))));

-- name: find_strangers
-- One number, two jobs: a copy of this queue went on elsewhere. They stay in the replaced file.
CREATE TEMP TABLE strangers AS
SELECT g.id AS was FROM gone.jobs g JOIN main.jobs j ON j.id = g.id + :shift
WHERE NOT (j.created_at = g.created_at AND j.kind = g.kind AND j.cwd = g.cwd);

-- name: find_pruned
-- Ended, and pruned since.
CREATE TEMP TABLE pruned AS
SELECT id FROM main.jobs j WHERE NOT EXISTS (SELECT 1 FROM gone.jobs g WHERE g.id = j.id);

-- name: is_column
-- Stored ones; generated columns cannot be written.
SELECT name FROM pragma_table_xinfo(:name, 'main') WHERE hidden = 0;

-- name: effects
-- The newer word on each effect stands.
DELETE FROM main.effects WHERE id IN (
    SELECT e.id FROM main.effects e JOIN gone.effects g
        ON g.scope = e.scope AND g.key = e.key AND g.tenant = e.tenant
        AND (g.scope = 'tenant' OR (g.job_id + :shift = e.job_id
                                    AND g.job_id NOT IN (SELECT was FROM strangers)))
    WHERE coalesce(g.settled_at, g.begun_at) >= coalesce(e.settled_at, e.begun_at));

-- name: keys_of_ended
-- Free again, as at the end of any job.
DELETE FROM main.dedupe WHERE until_end = 1
    AND NOT EXISTS (SELECT 1 FROM main.jobs j WHERE j.id = job_id AND j.ended_at IS NULL);

-- name: keys
-- Those that hold for ever, and those of jobs that have not ended.
INSERT OR IGNORE INTO main.dedupe (tenant, kind, key, job_id, until_end)
SELECT tenant, kind, key, job_id + :shift, until_end FROM gone.dedupe d
WHERE until_end = 0 OR EXISTS (SELECT 1 FROM main.jobs j WHERE j.id = d.job_id + :shift AND j.ended_at IS NULL);

-- name: pauses
-- Of both: what a person has stopped stays so until a person says otherwise.
INSERT OR IGNORE INTO main.pauses SELECT * FROM gone.pauses;

-- name: config
-- It was compiled from the file that is here.
INSERT OR REPLACE INTO main.config SELECT * FROM gone.config;

-- name: unpark
-- A job whose exclusive name is still taken is parked again when it is next looked at.
UPDATE main.jobs SET parked = NULL WHERE parked IS NOT NULL;

-- name: clear_spent
-- Added up anew.
DELETE FROM main.spent;

-- name: spent
-- As the triggers would have.
INSERT INTO main.spent SELECT budget, tenant, sum(amount), count(*) FROM main.spends GROUP BY 1, 2;

-- name: clear_tally
-- Counted anew below.
DELETE FROM main.tally;

-- name: tally
-- As the triggers would have kept it.
INSERT INTO main.tally SELECT state, band, tenant, kind, needs, count(*) FROM main.jobs GROUP BY 1, 2, 3, 4, 5;

-- name: counted
-- The events have new numbers, and what they tell was counted where they came from. Whoever follows them goes on here.
INSERT OR REPLACE INTO main.meta
SELECT column1, coalesce((SELECT max(id) FROM main.events), 0) FROM (VALUES ('counted'), ('restored_to'));

-- name: lanes
-- A lane goes with its last queued job.
DELETE FROM main.lanes WHERE NOT EXISTS (
    SELECT 1 FROM main.tally t WHERE t.state = 'queued' AND t.band = lanes.band AND t.tenant = lanes.tenant
        AND t.kind = lanes.kind AND t.needs = lanes.needs);

-- name: last_job
-- The highest number ever given to a job.
SELECT coalesce((SELECT seq FROM main.sqlite_sequence WHERE name = 'jobs'), 0);

-- name: last_job_gone
-- The same in the replaced database.
SELECT coalesce((SELECT seq FROM gone.sqlite_sequence WHERE name = 'jobs'), 0);

-- name: last_token
-- Of both databases, where both are there.
SELECT coalesce((SELECT value FROM main.meta WHERE key = 'last_token'), 0);

-- name: last_token_gone
-- The same in the replaced database.
SELECT coalesce((SELECT value FROM gone.meta WHERE key = 'last_token'), 0);

-- name: forget_last_job
-- There is no row before the first job.
DELETE FROM main.sqlite_sequence WHERE name = 'jobs';

-- name: keep_last_job
-- No number is given twice.
INSERT INTO main.sqlite_sequence (name, seq) VALUES ('jobs', :last);

-- name: keep_meta
-- A new life, a stop that nobody waits for, and tokens that go on above all others.
INSERT OR REPLACE INTO main.meta VALUES ('last_token', :token), ('life', lower(hex(randomblob(16))));

-- name: forget_stop
-- Asked of a supervisor that is no more.
DELETE FROM main.meta WHERE key = 'stop';

-- name: pause
-- A person looks first.
INSERT OR IGNORE INTO main.pauses VALUES ('all', '', :now);

-- name: under_way
-- Each needs its attempt file to tell what became of it.
SELECT id, token FROM main.jobs WHERE token IS NOT NULL;

-- name: close_attempt
-- Nothing tells how it ended.
UPDATE main.attempts SET ended_at = :now, outcome = 'lost', error_class = 'lost', error = :error, charged = 1
WHERE token = :token AND ended_at IS NULL;

-- name: note_ran
-- The way from `starting` to `unknown`.
UPDATE main.jobs SET state = 'running', reason = 'restored', changed_at = :now
WHERE id = :job_id AND state = 'starting';

-- name: settle_unknown
-- It may have done its work: only a person, or its kind's probe, may let it run again.
UPDATE main.jobs SET state = 'unknown', token = NULL, attempts = attempts + 1, reason = 'restored',
    changed_at = :now, last_error = :error, error_class = 'lost', cancel_at = NULL
WHERE id = :job_id;
