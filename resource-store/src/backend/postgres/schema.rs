//! The tables, and every statement, for one schema.
//!
//! | table | rows |
//! |---|---|
//! | `store` | one: the layout, the name of the history, the number of the last change |
//! | `resource` | the resources; `key` is group, kind, partition, namespace and name, each followed by a zero byte, so that a query is a range of keys |
//! | `change` | the last changes, by their number |
//!
//! The view `listing` shows the keys as columns, for people.

/// The layout that this version reads and writes. Another one gets the next number,
/// and a step in `DatabaseSetup` that changes tables of the one before.
pub(super) const LAYOUT: i32 = 1;

/// Statements, with the name of the schema in them.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    pub(super) schema: String,
    pub(super) read: String,
    pub(super) list: String,
    pub(super) list_from: String,
    pub(super) owned: String,
    pub(super) everything: String,
    pub(super) position: String,
    pub(super) adopt: String,
    pub(super) rename: String,
    pub(super) write: String,
    pub(super) find_change: String,
    pub(super) prune: String,
    pub(super) changes: String,
    pub(super) listen: String,
    pub(super) swap: Vec<String>,
    pub(super) replace_store: String,
}

/// Quotes a name.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The number of the timeline of the server's log: each promotion of a standby and each
/// recovery to a point in time begins another one.
const TIMELINE: &str =
    "(('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int)";

impl Statements {
    pub(super) fn new(schema: &str) -> Self {
        let s = quoted(schema);
        Self {
            schema: schema.to_owned(),
            read: format!("SELECT version, value FROM {s}.resource WHERE key = $1"),
            list: format!(
                "SELECT version, value FROM {s}.resource WHERE key >= $1 AND key < $2 ORDER BY key"
            ),
            // One statement sees one moment, so the number is that of the rows.
            list_from: format!(
                "SELECT st.name, st.seq, r.version, r.value FROM {s}.store st \
                 LEFT JOIN {s}.resource r ON r.key >= $1 AND r.key < $2 ORDER BY r.key"
            ),
            owned: format!("SELECT version, value FROM {s}.resource WHERE owner = $1 ORDER BY key"),
            everything: format!("SELECT version, value FROM {s}.resource ORDER BY key"),
            position: format!("SELECT name, seq FROM {s}.store"),
            adopt: format!(
                "WITH adopted AS (UPDATE {s}.store SET name = $1, timeline = {TIMELINE} \
                 WHERE timeline <> {TIMELINE} RETURNING name) \
                 SELECT coalesce((SELECT name FROM adopted), name), seq FROM {s}.store"
            ),
            rename: format!("UPDATE {s}.store SET name = $1 WHERE name = $2 AND seq < $3"),
            write: WRITE.replace("{s}", &s),
            find_change: format!(
                "SELECT st.pruned, c.value IS NOT NULL \
                 FROM {s}.store st LEFT JOIN {s}.change c \
                 ON c.seq > $1 AND c.version = $2 AND (c.kind = 2) = $3 LIMIT 1"
            ),
            prune: format!(
                "WITH bound AS (UPDATE {s}.store SET pruned = seq - $1 WHERE seq - $1 > pruned \
                 RETURNING pruned) DELETE FROM {s}.change c USING bound WHERE c.seq <= bound.pruned"
            ),
            changes: format!(
                "SELECT st.name, st.seq, st.pruned, \
                 c.seq, c.kind, c.version, c.value, c.replaced_version, c.replaced \
                 FROM {s}.store st LEFT JOIN LATERAL \
                 (SELECT * FROM {s}.change WHERE seq > $1 ORDER BY seq LIMIT $2) c ON true \
                 ORDER BY c.seq"
            ),
            listen: format!("LISTEN {s}"),
            swap: vec![
                format!("DELETE FROM {s}.resource"),
                format!("INSERT INTO {s}.resource SELECT * FROM pg_temp.resource_store_staged"),
                format!("DELETE FROM {s}.change"),
            ],
            replace_store: format!(
                "UPDATE {s}.store SET name = $1, seq = seq + 1, pruned = seq + 1 \
                 RETURNING pg_notify($2, 'restored') IS NULL"
            ),
        }
    }
}

/// Makes everything that the store needs, in an empty or absent schema.
pub(super) fn definition(schema: &str) -> String {
    format!(
        "CREATE TABLE {s}.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    layout integer NOT NULL,
    name text NOT NULL,
    timeline integer NOT NULL,
    seq bigint NOT NULL,
    pruned bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE {s}.resource (
    key bytea PRIMARY KEY,
    owner bytea,
    uid text NOT NULL,
    version text NOT NULL,
    group_version text NOT NULL,
    value bytea NOT NULL
);
CREATE INDEX resource_by_owner ON {s}.resource (owner, key) WHERE owner IS NOT NULL;
CREATE TABLE {s}.change (
    seq bigint PRIMARY KEY,
    kind smallint NOT NULL,
    version text NOT NULL,
    value bytea NOT NULL,
    replaced_version text,
    replaced bytea
);
CREATE VIEW {s}.listing AS
    SELECT part[1] AS \"group\", group_version, part[2] AS kind, part[3] AS partition,
        part[4] AS namespace, part[5] AS name, uid, version, octet_length(value) AS bytes
    FROM {s}.resource, string_to_array(encode(key, 'escape'), '\\000') AS part;
INSERT INTO {s}.store (layout, name, timeline, seq, pruned)
    VALUES ({LAYOUT}, '{name}', 0, 0, 0);
",
        s = quoted(schema),
        name = random_name(),
    )
}

/// The name of a history, which no other ever had.
pub(super) fn random_name() -> String {
    format!("{:016x}", fastrand::u64(..))
}

/// Conditional changes to several resources, in one statement and so one transaction.
///
/// 1. `fit` finds those whose condition holds. No version comes again, so what does
///    not hold here never will: it needs no lock and writes nothing.
/// 2. `turn` locks the row of the store until the commit, and takes numbers. Every
///    other step takes its rows from a join with it, so it is the first lock, and two
///    writers cannot lock each other out.
/// 3. The conditions are looked at again, on the rows as they are by then: between 1
///    and 2 other writers may have had their turns.
/// 4. What was changed is logged under its number, and the listeners are notified.
const WRITE: &str = "\
WITH asked AS (
    SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[],
        $6::bytea[], $7::bytea[], $8::bigint[]) WITH ORDINALITY
        AS a (key, uid, expected, version, group_version, owner, value, floor, place)
), fit AS MATERIALIZED (
    SELECT a.*, r.value AS old_value,
        a.value IS NOT NULL AND r.group_version <> a.group_version AS moved
    FROM asked a LEFT JOIN {s}.resource r ON r.key = a.key
    WHERE CASE
        WHEN a.value IS NOT NULL AND a.expected = '' THEN r.key IS NULL
        ELSE r.uid = a.uid AND r.version = a.expected
    END AND (a.floor IS NULL OR a.floor >= (SELECT pruned FROM {s}.store))
), turn AS (
    UPDATE {s}.store SET seq = seq + $9
    WHERE EXISTS (SELECT FROM fit)
    RETURNING seq - $9 AS base
), created AS (
    INSERT INTO {s}.resource (key, owner, uid, version, group_version, value)
    SELECT f.key, f.owner, f.uid, f.version, f.group_version, f.value
    FROM fit f CROSS JOIN turn WHERE f.value IS NOT NULL AND f.expected = ''
    ON CONFLICT (key) DO NOTHING RETURNING key
), updated AS (
    UPDATE {s}.resource r SET owner = f.owner, version = f.version,
        group_version = f.group_version, value = f.value
    FROM fit f CROSS JOIN turn
    WHERE f.value IS NOT NULL AND f.expected <> ''
        AND r.key = f.key AND r.uid = f.uid AND r.version = f.expected
    RETURNING r.key
), deleted AS (
    DELETE FROM {s}.resource r USING fit f CROSS JOIN turn
    WHERE f.value IS NULL AND r.key = f.key AND r.uid = f.uid AND r.version = f.expected
    RETURNING r.key
), done AS MATERIALIZED (
    SELECT f.*, turn.base + f.place AS seq FROM fit f CROSS JOIN turn
    WHERE f.key IN (SELECT key FROM created UNION ALL SELECT key FROM updated
        UNION ALL SELECT key FROM deleted)
), logged AS (
    INSERT INTO {s}.change (seq, kind, version, value, replaced_version, replaced)
    SELECT seq,
        CASE WHEN value IS NULL THEN 2 WHEN expected = '' THEN 0 ELSE 1 END,
        CASE WHEN value IS NULL THEN expected ELSE version END,
        coalesce(value, old_value),
        CASE WHEN moved THEN expected END,
        CASE WHEN moved THEN old_value END
    FROM done ORDER BY seq RETURNING seq
), told AS (
    SELECT pg_notify($10, max(seq)::text) FROM logged HAVING count(*) > 0
)
SELECT (SELECT name FROM {s}.store), (SELECT base FROM turn),
    ARRAY(SELECT place FROM fit), ARRAY(SELECT place FROM done), (SELECT count(*) FROM told)";
