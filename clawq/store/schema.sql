-- The database, version 1. Times are integer milliseconds since the epoch (columns named *_at),
-- durations integer milliseconds (*_ms). Bands are stored as their index in the order of service:
-- 0 critical, 1 interactive, 2 normal, 3 bulk.
--
-- The tables `states` and `transitions` are filled from clawq/states.py when the database is created;
-- the triggers below refuse every other move, record each move in `events`, and keep `tally`.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE states (
    name TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE transitions (
    from_state TEXT NOT NULL,
    to_state   TEXT NOT NULL REFERENCES states(name),
    PRIMARY KEY (from_state, to_state)
) STRICT, WITHOUT ROWID;

-- The compiled configuration: one row. `identity` names the file's version it was made from
-- (path, inode, size, mtime_ns). A file that does not compile leaves `identity`,
-- `body` alone and writes `broken_identity` and `error`.
CREATE TABLE config (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    identity        TEXT NOT NULL,
    body            TEXT NOT NULL CHECK (json_valid(body)),
    broken_identity TEXT,
    error           TEXT,
    changed_at      INTEGER NOT NULL
) STRICT;

CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again, even after pruning
    kind         TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    band         INTEGER NOT NULL CHECK (band BETWEEN 0 AND 3),
    priority     INTEGER NOT NULL,
    needs        TEXT    NOT NULL,                     -- resource names, sorted, joined by ','
    state        TEXT    NOT NULL,                     -- one of `states`: `transitions` has no other
    reason       TEXT,                                 -- of the last move; copied into events
    changed_at   INTEGER NOT NULL,                     -- of the last move

    command      TEXT CHECK (command IS NULL OR json_valid(command)),  -- argv; NULL: the kind's, at start
    payload      TEXT CHECK (payload IS NULL OR json_valid(payload)),
    cwd          TEXT NOT NULL,
    path         TEXT,                                 -- the caller's PATH
    env          TEXT CHECK (env IS NULL OR json_valid(env)),
    same         INTEGER,                              -- with on_full = coalesce: a hash of what must be the same
    asked_kind   TEXT,                                 -- the kind asked for, when it was taken as a lighter one

    dedupe_key   TEXT,
    dedupe_scope TEXT CHECK (dedupe_scope IN ('ever', 'active')),
    exclusive    TEXT,
    parked       TEXT,                                 -- why a queued job is in no lane: 'exclusive:NAME'
                                                       -- or 'workflow_limit'
    parent_id    INTEGER,
    root_id      INTEGER,
    depth        INTEGER NOT NULL DEFAULT 0,           -- below its root
    on_parent_end TEXT CHECK (on_parent_end IN ('keep', 'cancel')),
    twin         INTEGER,                              -- of a child: a hash of the kind asked for, command and payload
    asked_by     INTEGER,                              -- token of its parent's attempt that asked for it last

    rank         INTEGER NOT NULL,                     -- order within a lane: first due minus priority; much less
                                                       -- while its parent is under way (FIRST_MS of clawq/states.py)
    created_at   INTEGER NOT NULL,
    accepted_at  INTEGER NOT NULL,                     -- restarted by `retry`; max_age counts from here
    run_after    INTEGER NOT NULL,
    ready_at     INTEGER,                              -- when it last became queued
    stale_at     INTEGER,
    deadline_at  INTEGER,
    start_by     INTEGER,                              -- of work that may not wait; its first start meets it
    retry_by     INTEGER,                              -- once tried: no retry starts later (max_age)
    expires_at   INTEGER AS (nullif(min(coalesce(stale_at, 9000000000000000), coalesce(deadline_at, 9000000000000000),
                                        coalesce(retry_by, 9000000000000000),
                                        iif(tries = 0, coalesce(start_by, 9000000000000000), 9000000000000000)),
                                    9000000000000000)) VIRTUAL,

    timeout_ms   INTEGER,                              -- NULL: the kind's; 0: none
    max_attempts INTEGER,                              -- NULL: the kind's
    on_lost      TEXT CHECK (on_lost IN ('retry', 'unknown')),         -- NULL: the kind's

    attempts     INTEGER NOT NULL DEFAULT 0,           -- those charged
    tries        INTEGER NOT NULL DEFAULT 0,           -- all, charged or not: numbers the attempts
    token        INTEGER,                              -- of the attempt under way
    cancel_at    INTEGER,                              -- a cancel was asked for while an attempt is under way
    started_at   INTEGER,
    ended_at     INTEGER,
    exit_code    INTEGER,
    last_error   TEXT,
    error_class  TEXT,
    limits_met   INTEGER NOT NULL DEFAULT 0,           -- rate limits that cost no attempt
    forks_failed INTEGER NOT NULL DEFAULT 0,           -- the same of forks
    result       TEXT,                                 -- JSON, from its last attempt's result file

    -- Written out, since SQLite builds a table of an IN list of three or more at each write: 2 us for each of these.
    CHECK ((token IS NOT NULL) = (state = 'starting' OR state = 'running' OR state = 'waiting')),
    CHECK ((ended_at IS NOT NULL)
           = (state = 'succeeded' OR state = 'dead' OR state = 'expired' OR state = 'cancelled')),
    CHECK (parked IS NULL OR state = 'queued'),
    CHECK (dedupe_scope IS NULL OR dedupe_key IS NOT NULL)
) STRICT;

-- Each condition below is asked at every insert: what is rare and cheap to tell comes first, and no list is so long
-- that SQLite builds a table of it.
-- A lane (band, tenant, kind, needs) is a range of this index; its head is the range's first row.
CREATE INDEX jobs_lane ON jobs (band, tenant, kind, needs, rank, id) WHERE state = 'queued' AND parked IS NULL;
CREATE INDEX jobs_parked ON jobs (exclusive, band, tenant, kind, needs, rank, id)
    WHERE parked <> 'workflow_limit' AND state = 'queued';
CREATE INDEX jobs_exclusive ON jobs (exclusive)
    WHERE exclusive IS NOT NULL AND state IN ('starting', 'running', 'waiting');
CREATE INDEX jobs_parked_root ON jobs (coalesce(root_id, id), band, tenant, kind, needs, rank, id)
    WHERE parked = 'workflow_limit' AND state = 'queued';
CREATE INDEX jobs_active ON jobs (id) WHERE token IS NOT NULL;  -- starting, running, waiting
CREATE INDEX jobs_cancel ON jobs (id) WHERE cancel_at IS NOT NULL;
CREATE INDEX jobs_due ON jobs (run_after) WHERE state = 'scheduled';
CREATE INDEX jobs_expiry ON jobs (expires_at)
    WHERE expires_at IS NOT NULL AND (state = 'scheduled' OR state = 'queued' OR state = 'held');
CREATE INDEX jobs_oldest ON jobs (tenant, band, kind, ready_at) WHERE state = 'queued';
CREATE INDEX jobs_ended ON jobs (state, ended_at) WHERE ended_at IS NOT NULL;
-- For `drop_oldest` and `coalesce`; the many jobs that are queued at once and of a plain kind do not pay for them.
CREATE INDEX jobs_not_ready ON jobs (kind, tenant, id)
    WHERE state IN ('scheduled', 'held') AND tries = 0 AND parent_id IS NULL;
CREATE INDEX jobs_same ON jobs (kind, tenant, same, run_after, id)
    WHERE same IS NOT NULL AND state IN ('scheduled', 'queued', 'held');
CREATE INDEX jobs_children ON jobs (parent_id, twin, id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_descendants ON jobs (root_id) WHERE root_id IS NOT NULL AND kind <> 'ask';
CREATE INDEX jobs_aside ON jobs (state, id)              -- held, unknown, scheduled
    WHERE token IS NULL AND ended_at IS NULL AND state <> 'queued';

CREATE TABLE attempts (
    token        INTEGER PRIMARY KEY,                  -- max(last + 1, epoch ms): names its files, fences its writes
    job_id       INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
    number       INTEGER NOT NULL,
    claimed_at   INTEGER NOT NULL,
    started_at   INTEGER,
    ended_at     INTEGER,
    boot_id      TEXT    NOT NULL,
    pid          INTEGER,                              -- of the sh parent: leader of its group and session
    pid_started  TEXT,                                 -- its kernel start time, as the host writes it
    lease_ms     INTEGER NOT NULL,
    lease_until  INTEGER NOT NULL,
    grace_ms     INTEGER NOT NULL,
    timeout_ms   INTEGER NOT NULL,                     -- 0: none
    heartbeat    TEXT    NOT NULL,
    kill_reason  TEXT,                                 -- committed before the first signal
    kill_at      INTEGER,
    outcome      TEXT,
    exit_code    INTEGER,
    signal       INTEGER,
    error_class  TEXT,
    error        TEXT,
    output_tail  TEXT,                                 -- the last lines the agent wrote
    charged      INTEGER NOT NULL DEFAULT 0 CHECK (charged IN (0, 1)),
    reason       TEXT,                                 -- the word that a retry is counted under, when not the class
    resource     TEXT,                                 -- whose limit it met
    told         TEXT CHECK (told IS NULL OR json_valid(told)),  -- by `clawq fail`: class, reason, resource,
                                                       -- retry_after_ms and error
    peak_mb      INTEGER,
    peak_procs   INTEGER,
    spoke_at     INTEGER,                              -- its first output, to a second, as far as it was seen
    worked_at    INTEGER,                              -- when its tree was last seen to use CPU time
    log          TEXT    NOT NULL,
    waiting_since INTEGER,                             -- in `clawq wait` since then ...
    awaits       TEXT CHECK (awaits IS NULL OR json_valid(awaits)),    -- ... for these jobs
    back_at      INTEGER,                              -- since when it has wanted its slots back ...
    back_reason  TEXT,                                 -- ... and which it lacks
    waited_ms    INTEGER NOT NULL DEFAULT 0,           -- in waits that are over: its timeout does not count them
    UNIQUE (job_id, number),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT;
CREATE INDEX attempts_live ON attempts (token) WHERE ended_at IS NULL;
CREATE INDEX attempts_started ON attempts (claimed_at);

CREATE TABLE deferrals (
    job_id   INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
    reason   TEXT    NOT NULL,
    count    INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    PRIMARY KEY (job_id, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,      -- whoever follows them relies on numbers that only grow
    job_id     INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    from_state TEXT    NOT NULL,
    to_state   TEXT    NOT NULL,
    reason     TEXT
) STRICT;
CREATE INDEX events_job ON events (job_id, id);

-- Outlives its job: a pruned job's key still answers `duplicate`. A job that others were joined to has several.
CREATE TABLE dedupe (
    tenant    TEXT    NOT NULL,
    kind      TEXT    NOT NULL,                        -- that was asked for
    key       TEXT    NOT NULL,
    job_id    INTEGER NOT NULL,
    until_end INTEGER NOT NULL DEFAULT 0 CHECK (until_end IN (0, 1)),  -- scope 'active'
    PRIMARY KEY (tenant, kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX dedupe_until_end ON dedupe (job_id) WHERE until_end = 1;

-- How many jobs are in each state, by lane: caps, status and lanes without COUNT(*).
-- The rows with state 'queued' are the lanes; a row that reaches zero is deleted.
CREATE TABLE tally (
    state  TEXT    NOT NULL,
    band   INTEGER NOT NULL,
    tenant TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    needs  TEXT    NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (state, band, tenant, kind, needs)
) STRICT, WITHOUT ROWID;

-- Why a lane's head was last refused, and when one last started. Goes when the lane goes.
CREATE TABLE lanes (
    band          INTEGER NOT NULL,
    tenant        TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    needs         TEXT    NOT NULL,
    reason        TEXT,
    measured      REAL,
    limit_value   REAL,
    since         INTEGER,
    retry_at      INTEGER,                             -- when the same reason is counted again
    last_start_at INTEGER,
    gated_at      INTEGER,                             -- last refused by a pause, a gate or a cooldown
    short_job     INTEGER,                             -- the head that waits only for slots that others hold ...
    short_since   INTEGER,                             -- ... since when ...
    promised_at   INTEGER,                             -- ... and when its reservation is free at the latest
    clears_at     INTEGER,                             -- when the reason clears by itself
    PRIMARY KEY (band, tenant, kind, needs)
) STRICT, WITHOUT ROWID;

-- Whose turn it is: each tenant's clock in each band, and under the name '' the band's present.
CREATE TABLE turns (
    band   INTEGER NOT NULL,
    tenant TEXT    NOT NULL,
    clock  REAL    NOT NULL,
    PRIMARY KEY (band, tenant)
) STRICT, WITHOUT ROWID;

-- What was reserved or spent, an entry for each attempt and change; older than its window it is deleted.
CREATE TABLE spends (
    id     INTEGER PRIMARY KEY,
    budget TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    token  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    told   INTEGER                                     -- by `clawq spend`: the attempt's real figure so far
) STRICT;
CREATE INDEX spends_window ON spends (budget, at, tenant, amount);
CREATE INDEX spends_token ON spends (token, budget);

-- The sum of `spends`, kept by triggers: a pass asks for what left the window since, and adds up no window.
CREATE TABLE spent (
    budget TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    amount INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    PRIMARY KEY (budget, tenant)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER spends_new AFTER INSERT ON spends BEGIN
    INSERT INTO spent VALUES (NEW.budget, NEW.tenant, NEW.amount, 1)
        ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, n = n + 1;
END;

CREATE TRIGGER spends_changed AFTER UPDATE OF amount ON spends BEGIN
    UPDATE spent SET amount = amount + NEW.amount - OLD.amount WHERE budget = NEW.budget AND tenant = NEW.tenant;
END;

CREATE TRIGGER spends_gone AFTER DELETE ON spends BEGIN
    UPDATE spent SET amount = amount - OLD.amount, n = n - 1 WHERE budget = OLD.budget AND tenant = OLD.tenant;
    DELETE FROM spent WHERE budget = OLD.budget AND tenant = OLD.tenant AND n = 0;
END;

-- Resources that were asked to rest. After `until` one job probes; when that has passed the rest come back
-- in doubling numbers, one doubling each `step_ms`.
CREATE TABLE cooldowns (
    resource    TEXT    PRIMARY KEY,
    set_at      INTEGER NOT NULL,
    until       INTEGER NOT NULL,
    step_ms     INTEGER NOT NULL,
    probe_token INTEGER,
    passed_at   INTEGER,
    released    INTEGER NOT NULL DEFAULT 0             -- starts since it passed
) STRICT, WITHOUT ROWID;

-- The last rest that each provider's limits brought about: the next one in a row is twice as long.
CREATE TABLE streaks (
    resource TEXT    PRIMARY KEY,
    streak   INTEGER NOT NULL,
    since    INTEGER NOT NULL,
    until    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What a kind's process tree grows to: rises at once, sinks slowly.
CREATE TABLE footprints (
    kind  TEXT    PRIMARY KEY,
    procs REAL    NOT NULL,
    mb    REAL    NOT NULL,
    at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Observe mode: what enforcing would have refused.
CREATE TABLE observed (
    stage    TEXT    NOT NULL CHECK (stage IN ('enqueue', 'start')),
    reason   TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    tenant   TEXT    NOT NULL,
    count    INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at  INTEGER NOT NULL,
    PRIMARY KEY (stage, reason, kind, tenant)
) STRICT, WITHOUT ROWID;

-- Side effects, recorded before and after they are done. A key of scope `tenant` outlives the job.
CREATE TABLE effects (
    id         INTEGER PRIMARY KEY,
    scope      TEXT    NOT NULL CHECK (scope IN ('job', 'tenant')),
    tenant     TEXT    NOT NULL,
    job_id     INTEGER NOT NULL,                       -- that began it last, as did the token; it may be pruned by now
    key        TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('begun', 'done', 'failed')),
    token      INTEGER NOT NULL,
    begun_at   INTEGER NOT NULL,
    settled_at INTEGER,
    CHECK ((settled_at IS NULL) = (state = 'begun'))
) STRICT;
CREATE UNIQUE INDEX effects_job ON effects (job_id, key) WHERE scope = 'job';
CREATE UNIQUE INDEX effects_tenant ON effects (tenant, key) WHERE scope = 'tenant';
CREATE INDEX effects_of ON effects (job_id, state);

-- Unknown jobs that no probe was asked about since they became so. `number` is the attempt that left them.
CREATE TABLE probes (
    job_id INTEGER PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    since  INTEGER NOT NULL
) STRICT;

CREATE TABLE pauses (
    scope TEXT    NOT NULL CHECK (scope IN ('all', 'tenant', 'kind', 'resource', 'band')),
    name  TEXT    NOT NULL,                            -- '' for all
    since INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE refusals (
    reason  TEXT    NOT NULL,  -- or `duplicate`, which is none
    kind    TEXT    NOT NULL,
    tenant  TEXT    NOT NULL,
    count   INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (reason, kind, tenant)
) STRICT, WITHOUT ROWID;

-- Keys that answered `duplicate` long after their job had ended: the last of each kind and tenant.
CREATE TABLE old_keys (
    tenant   TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    job_id   INTEGER NOT NULL,
    ended_ms INTEGER,                                  -- before the answer; NULL: the job is pruned
    at       INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind)
) STRICT, WITHOUT ROWID;

-- Up to which job of a state notices have looked.
CREATE TABLE notices_seen (
    state TEXT    PRIMARY KEY,
    at    INTEGER NOT NULL,
    id    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What people were told by `notify`, so that no restart tells it again. `word` is a state and `about` a kind: so many
-- jobs, the last of them job_id, are still to be told; or `word` is an alert's reason, which is told once while it lasts.
CREATE TABLE notices (
    word    TEXT    NOT NULL,
    about   TEXT    NOT NULL,
    pending INTEGER NOT NULL DEFAULT 0,
    job_id  INTEGER,
    told_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (word, about)
) STRICT, WITHOUT ROWID;

-- What was refused lately, for `clawq events`: the latest thousands. Counted for ever in `refusals`.
CREATE TABLE turned_away (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    count  INTEGER NOT NULL
) STRICT;

-- What happened, counted: for each hour since the epoch, and under hour 0 since ever. From `events`, in bulk; how
-- far it has come is `counted` in `meta`. What `kind` and `word` are for each `what` is in clawq/store/counts.py.
CREATE TABLE counts (
    hour  INTEGER NOT NULL,
    what  TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    word  TEXT    NOT NULL,
    n     INTEGER NOT NULL,
    total INTEGER NOT NULL,                            -- ms, or an amount spent
    PRIMARY KEY (hour, what, kind, word)
) STRICT, WITHOUT ROWID;

-- The queue and the machine once a minute, while a supervisor runs. `procs` and `max_procs` are what the gate compares.
CREATE TABLE samples (
    minute        INTEGER PRIMARY KEY,
    at            INTEGER NOT NULL,
    queued        INTEGER NOT NULL,
    scheduled     INTEGER NOT NULL,
    held          INTEGER NOT NULL,
    running       INTEGER NOT NULL,
    waiting       INTEGER NOT NULL,
    unknown       INTEGER NOT NULL,
    oldest_age_ms INTEGER,
    max_running   INTEGER NOT NULL,
    procs         INTEGER,
    max_procs     INTEGER,
    free_mb       INTEGER,
    min_free_mb   INTEGER,
    pressure      INTEGER,
    free_disk_mb  INTEGER
) STRICT;

-- A thousand jobs come in cheaper together: while a row of this stands, the jobs from first_id on are owed their
-- events and their places in the tally, and to delete it pays. No state is called `open`, so that nobody can commit
-- without having paid.
CREATE TABLE bulk (
    first_id INTEGER PRIMARY KEY,
    owed     TEXT NOT NULL DEFAULT 'open' REFERENCES states(name) DEFERRABLE INITIALLY DEFERRED
) STRICT;

CREATE TRIGGER bulk_paid AFTER DELETE ON bulk BEGIN
    SELECT RAISE(ABORT, 'illegal transition') WHERE EXISTS
        (SELECT 1 FROM jobs WHERE id >= OLD.first_id AND state NOT IN
            (SELECT to_state FROM transitions WHERE from_state = 'new'));
    INSERT INTO tally SELECT state, band, tenant, kind, needs, count(*) FROM jobs WHERE id >= OLD.first_id
        GROUP BY state, band, tenant, kind, needs
        ON CONFLICT DO UPDATE SET n = n + excluded.n;
    INSERT INTO events (job_id, at, from_state, to_state, reason)
        SELECT id, changed_at, 'new', state, reason FROM jobs WHERE id >= OLD.first_id ORDER BY id;
END;

CREATE TRIGGER jobs_new AFTER INSERT ON jobs WHEN NOT EXISTS (SELECT 1 FROM bulk) BEGIN
    SELECT RAISE(ABORT, 'illegal transition') WHERE NOT EXISTS
        (SELECT 1 FROM transitions WHERE from_state = 'new' AND to_state = NEW.state);
    INSERT INTO tally VALUES (NEW.state, NEW.band, NEW.tenant, NEW.kind, NEW.needs, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
    INSERT INTO events (job_id, at, from_state, to_state, reason)
        VALUES (NEW.id, NEW.changed_at, 'new', NEW.state, NEW.reason);
END;

CREATE TRIGGER jobs_moved AFTER UPDATE OF state ON jobs WHEN OLD.state IS NOT NEW.state BEGIN
    SELECT RAISE(ABORT, 'illegal transition') WHERE NOT EXISTS
        (SELECT 1 FROM transitions WHERE from_state = OLD.state AND to_state = NEW.state);
    INSERT INTO events (job_id, at, from_state, to_state, reason)
        VALUES (NEW.id, NEW.changed_at, OLD.state, NEW.state, NEW.reason);
    INSERT INTO tally VALUES (NEW.state, NEW.band, NEW.tenant, NEW.kind, NEW.needs, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
    UPDATE tally SET n = n - 1 WHERE state = OLD.state AND band = OLD.band AND tenant = OLD.tenant
        AND kind = OLD.kind AND needs = OLD.needs;
    DELETE FROM tally WHERE state = OLD.state AND band = OLD.band AND tenant = OLD.tenant
        AND kind = OLD.kind AND needs = OLD.needs AND n = 0;
END;

CREATE TRIGGER jobs_tally AFTER UPDATE OF band, tenant, kind, needs ON jobs
WHEN OLD.state IS NEW.state AND (OLD.band IS NOT NEW.band OR OLD.tenant IS NOT NEW.tenant
  OR OLD.kind IS NOT NEW.kind OR OLD.needs IS NOT NEW.needs)
BEGIN
    INSERT INTO tally VALUES (NEW.state, NEW.band, NEW.tenant, NEW.kind, NEW.needs, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
    UPDATE tally SET n = n - 1 WHERE state = OLD.state AND band = OLD.band AND tenant = OLD.tenant
        AND kind = OLD.kind AND needs = OLD.needs;
    DELETE FROM tally WHERE state = OLD.state AND band = OLD.band AND tenant = OLD.tenant
        AND kind = OLD.kind AND needs = OLD.needs AND n = 0;
END;

CREATE TRIGGER jobs_gone AFTER DELETE ON jobs BEGIN
    UPDATE tally SET n = n - 1 WHERE state = OLD.state AND band = OLD.band AND tenant = OLD.tenant
        AND kind = OLD.kind AND needs = OLD.needs;
    DELETE FROM tally WHERE state = OLD.state AND band = OLD.band AND tenant = OLD.tenant
        AND kind = OLD.kind AND needs = OLD.needs AND n = 0;
END;

CREATE TRIGGER tally_lane_gone AFTER DELETE ON tally WHEN OLD.state = 'queued' BEGIN
    DELETE FROM lanes WHERE band = OLD.band AND tenant = OLD.tenant AND kind = OLD.kind AND needs = OLD.needs;
END;

-- A key of scope 'active' is free again when its job ends; an unknown job keeps it.
CREATE TRIGGER jobs_key_free AFTER UPDATE OF ended_at ON jobs
WHEN NEW.ended_at IS NOT NULL BEGIN
    DELETE FROM dedupe WHERE job_id = NEW.id AND until_end = 1;
END;

CREATE TRIGGER jobs_unknown AFTER UPDATE OF state ON jobs WHEN NEW.state = 'unknown' BEGIN
    INSERT INTO probes VALUES (NEW.id, NEW.tries, NEW.changed_at);
END;

CREATE TRIGGER jobs_known AFTER UPDATE OF state ON jobs WHEN OLD.state = 'unknown' BEGIN
    DELETE FROM probes WHERE job_id = NEW.id;
END;

-- What happened for the whole tenant stays known.
CREATE TRIGGER effects_gone AFTER DELETE ON jobs BEGIN
    DELETE FROM effects WHERE job_id = OLD.id AND (scope = 'job' OR state = 'failed');
END;

-- The exclusive name is free, or its candidate left the queue: of each lane the best of those that were parked
-- for it comes back. Those that their workflow's limit parked are no candidates: asked, they would be parked
-- again, and whoever stands behind them would wait for nobody.
CREATE TRIGGER jobs_unpark AFTER UPDATE OF state ON jobs
WHEN OLD.exclusive IS NOT NULL AND OLD.parked IS NULL AND OLD.state IN ('queued', 'starting', 'running', 'waiting')
    AND NEW.state NOT IN ('starting', 'running', 'waiting')
    AND NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_exclusive WHERE exclusive = OLD.exclusive
                    AND state IN ('starting', 'running', 'waiting'))
BEGIN
    UPDATE jobs SET parked = NULL WHERE id IN (
        SELECT (SELECT j.id FROM jobs j INDEXED BY jobs_parked
                WHERE j.exclusive = OLD.exclusive AND j.state = 'queued' AND j.parked <> 'workflow_limit'
                    AND j.band = t.band AND j.tenant = t.tenant AND j.kind = t.kind AND j.needs = t.needs
                ORDER BY j.rank, j.id LIMIT 1)
        FROM tally t WHERE t.state = 'queued');
END;

-- A job of a workflow ended: of each lane the best of those that its limit parked comes back. One alone would
-- keep the place while its own lane is blocked.
CREATE TRIGGER jobs_unpark_root AFTER UPDATE OF state ON jobs
WHEN OLD.parked IS NULL AND NEW.state NOT IN ('starting', 'running')
    AND (OLD.token IS NOT NULL OR OLD.state = 'queued')
    AND EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_parked_root WHERE coalesce(root_id, id) = coalesce(OLD.root_id, OLD.id)
                AND state = 'queued' AND parked = 'workflow_limit')
BEGIN
    UPDATE jobs SET parked = NULL WHERE id IN (
        SELECT (SELECT j.id FROM jobs j INDEXED BY jobs_parked_root
                WHERE coalesce(j.root_id, j.id) = coalesce(OLD.root_id, OLD.id)
                    AND j.state = 'queued' AND j.parked = 'workflow_limit'
                    AND j.band = t.band AND j.tenant = t.tenant AND j.kind = t.kind AND j.needs = t.needs
                ORDER BY j.rank, j.id LIMIT 1)
        FROM tally t WHERE t.state = 'queued');
END;

-- Children of work under way go first in their lane; its end puts back those that nothing above waits for any more.
CREATE TRIGGER jobs_children_first AFTER UPDATE OF token ON jobs WHEN OLD.token IS NULL AND NEW.token IS NOT NULL
    AND EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_children WHERE parent_id = NEW.id)
BEGIN
    UPDATE jobs SET rank = rank - 1000000000000000
    WHERE parent_id = NEW.id AND state IN ('scheduled', 'queued', 'held') AND rank > -500000000000000;
END;

CREATE TRIGGER jobs_children_last AFTER UPDATE OF token ON jobs WHEN OLD.token IS NOT NULL AND NEW.token IS NULL
    AND EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_children WHERE parent_id = NEW.id)
BEGIN
    UPDATE jobs SET rank = rank + 1000000000000000
    WHERE parent_id = NEW.id AND state IN ('scheduled', 'queued', 'held') AND rank < -500000000000000
        AND NOT EXISTS (
            WITH RECURSIVE above(id) AS (
                SELECT NEW.parent_id
                UNION
                SELECT p.parent_id FROM above CROSS JOIN jobs p ON p.id = above.id WHERE above.id IS NOT NULL)
            SELECT 1 FROM above CROSS JOIN jobs a ON a.id = above.id WHERE a.token IS NOT NULL);
END;

-- Nobody is there to hear the answer.
CREATE TRIGGER jobs_withdraw AFTER UPDATE OF token ON jobs WHEN OLD.token IS NOT NULL AND NEW.token IS NOT OLD.token
    AND EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_children WHERE parent_id = NEW.id)
BEGIN
    UPDATE jobs SET state = 'cancelled', reason = 'withdrawn', changed_at = NEW.changed_at, ended_at = NEW.changed_at,
        last_error = 'its asker ended before anybody answered'
    WHERE parent_id = NEW.id AND kind = 'ask' AND asked_by = OLD.token AND state = 'held';
END;

-- What its end means for those below it: a cancelled parent takes along what has not started, and every end those
-- that were to end with it.
CREATE TRIGGER jobs_orphans AFTER UPDATE OF ended_at ON jobs WHEN OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL
    AND EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_children WHERE parent_id = NEW.id)
BEGIN
    -- What runs below those that end here is asked first, while they can still be told from those that ended before:
    -- SQLite calls no trigger for what it does itself.
    UPDATE jobs SET cancel_at = coalesce(cancel_at, NEW.changed_at)
    WHERE on_parent_end = 'cancel' AND state IN ('starting', 'running', 'waiting') AND parent_id IN (
        WITH RECURSIVE ends(id) AS (
            SELECT NEW.id
            UNION
            SELECT c.id FROM ends CROSS JOIN jobs c ON c.parent_id = ends.id
            WHERE c.state IN ('scheduled', 'queued', 'held')
                AND (ends.id <> NEW.id OR NEW.state = 'cancelled' OR c.on_parent_end = 'cancel'))
        SELECT id FROM ends);
    UPDATE jobs SET state = 'cancelled', reason = 'parent ended', changed_at = NEW.changed_at,
        ended_at = NEW.changed_at, parked = NULL, ready_at = NULL,
        last_error = 'its parent, job ' || NEW.id || ', ' || iif(NEW.state = 'cancelled', 'was cancelled', 'has ended')
    WHERE id IN (
        WITH RECURSIVE below(id) AS (
            SELECT id FROM jobs WHERE parent_id = NEW.id AND state IN ('scheduled', 'queued', 'held')
                AND (NEW.state = 'cancelled' OR on_parent_end = 'cancel')
            UNION
            SELECT c.id FROM below CROSS JOIN jobs c ON c.parent_id = below.id
            WHERE c.state IN ('scheduled', 'queued', 'held'))
        SELECT id FROM below);
END;
