//! What the server's catalogue says of tables.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::database::{Listed, MARKS, UNFINISHED};
use crate::error::TableError;
use crate::table::{Column, Index, Table, TableName};

use super::connect::Session;
use super::names::Place;
use super::types::{Base, Native};

const TABLES: &str = "
    SELECT n.nspname::text, c.relname::text, c.reltuples::float8, c.relkind = 'p', pg_total_relation_size(c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
      AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
      AND ($1 = false OR n.nspname = ANY (current_schemas(false)))
      AND has_schema_privilege(n.oid, 'USAGE')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype = 'e')
    ORDER BY n.nspname <> current_schema(), n.nspname, c.relname";

const RELATION: &str = "
    SELECT c.oid, c.relkind::text, c.reltuples::float8
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = $2";

/// Domains are followed down to what they are made of.
const COLUMNS: &str = "
    WITH RECURSIVE types AS (
        SELECT a.attnum, a.atttypid AS type, a.atttypmod AS modifier
        FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
      UNION ALL
        SELECT types.attnum, t.typbasetype, CASE WHEN types.modifier >= 0 THEN types.modifier ELSE t.typtypmod END
        FROM types JOIN pg_type t ON t.oid = types.type WHERE t.typtype = 'd'
    )
    SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
           a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%', false),
           coalesce(to_jsonb(a) ->> 'attgenerated', '') <> '',
           t.typname::text, t.typnamespace = 'pg_catalog'::regnamespace, t.typtype::text, types.modifier,
           (SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname)
            FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
            WHERE c.oid = a.attcollation AND a.attcollation <> o.typcollation),
           ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
           a.attnum, d.adbin IS NOT NULL
    FROM types JOIN pg_type t ON t.oid = types.type AND t.typtype <> 'd'
    JOIN pg_attribute a ON a.attrelid = $1 AND a.attnum = types.attnum
    JOIN pg_type o ON o.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    ORDER BY a.attnum";

/// `plain`: no more than a list of columns, in the order and with the comparison that they have by themselves.
const INDEXES: &str = "
    SELECT c.relname::text, i.indisprimary, i.indisunique, i.indkey::int2[],
           i.indpred IS NULL AND i.indexprs IS NULL AND m.amname = 'btree'
             AND array_length(i.indkey::int2[], 1) = coalesce((to_jsonb(i) ->> 'indnkeyatts')::int, i.indnatts)
             AND (0 = ALL (i.indoption::int2[]) OR 3 = ALL (i.indoption::int2[]))
             AND coalesce(to_jsonb(i) ->> 'indnullsnotdistinct', 'false') = 'false'
             AND NOT EXISTS (SELECT FROM unnest(i.indclass::oid[]) AS u JOIN pg_opclass p ON p.oid = u WHERE NOT p.opcdefault)
             AND NOT EXISTS (
                 SELECT FROM unnest(i.indkey::int2[], i.indcollation::oid[]) AS u (column_number, collation_used)
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.column_number
                 WHERE u.collation_used <> a.attcollation) AS plain,
           coalesce((to_jsonb(i) ->> 'indnkeyatts')::int, i.indnatts)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
    WHERE i.indrelid = $1 AND i.indisvalid
    ORDER BY i.indisprimary DESC, i.indisunique DESC, c.relname";

const LEFT_OUT: &str = "
    SELECT CASE contype WHEN 'f' THEN 'foreign key ' WHEN 'c' THEN 'check ' WHEN 'x' THEN 'exclusion ' END || conname
    FROM pg_constraint WHERE conrelid = $1 AND contype IN ('f', 'c', 'x')
    UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal
    UNION ALL SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = $1
    UNION ALL SELECT 'rows of the child table ' || inhrelid::regclass::text
    FROM pg_inherits JOIN pg_class c ON c.oid = inhparent WHERE inhparent = $1 AND c.relkind = 'r'
    UNION ALL SELECT 'its partitions (one table is made of them)' FROM pg_class WHERE oid = $1 AND relkind = 'p'
    ORDER BY 1";

/// A table, and what only PostgreSQL knows of it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) table: Table,
    pub(super) place: Place,
    /// By column.
    pub(super) natives: Vec<Native>,
    /// It has no rows of its own but those of its partitions.
    pub(super) partitioned: bool,
}

impl Found {
    /// What rows are selected from: those of this table alone, since tables that inherit are tables by themselves.
    pub(super) fn from(&self) -> String {
        let only = if self.partitioned { "" } else { "ONLY " };
        format!("{only}{}", self.place.sql())
    }

    pub(super) fn column(&self, name: &str) -> Result<usize, TableError> {
        let found = self.table.columns.iter().position(|column| column.name == name);
        found.ok_or_else(|| TableError::Refused(format!("table {} has no column \"{name}\"", self.place.shown())))
    }
}

/// `narrow`: only in the schemas that names are looked up in.
pub(super) async fn tables(session: &Session, narrow: bool) -> Result<Vec<Listed>, TableError> {
    let rows = session.ask("list its tables", TABLES, &[(&narrow, Type::BOOL)]).await?;
    let listed = rows.iter().filter_map(|row| {
        let (schema, name): (String, String) = (row.get(0), row.get(1));
        let own = name == MARKS || name.contains(UNFINISHED);
        let schema = Some(schema).filter(|schema| *schema != session.schema);
        let bytes = Some(row.get::<_, i64>(4) as u64).filter(|_| !row.get::<_, bool>(3));
        (!own).then(|| Listed { name: TableName { schema, name }, rows: estimate(row.get(2)), bytes })
    });
    Ok(listed.collect())
}

/// None if there is nothing of this name; a view and its like are refused.
pub(super) async fn find(session: &Session, name: &TableName) -> Result<Option<Found>, TableError> {
    const DOING: &str = "look at a table";
    let place = session.place(name);
    let relation = session.ask(DOING, RELATION, &[(&place.schema, Type::TEXT), (&place.name, Type::TEXT)]).await?;
    let Some(relation) = relation.first() else { return Ok(None) };
    let (oid, class): (u32, String) = (relation.get(0), relation.get(1));
    let refused = |what| Err(TableError::Refused(format!("{} is {what}, and only tables are copied", place.shown())));
    match class.as_str() {
        "r" | "p" => {}
        "v" => return refused("a view"),
        "m" => return refused("a materialized view"),
        "f" => return refused("a foreign table"),
        "i" | "I" => return refused("an index"),
        "S" => return refused("a sequence"),
        _ => return refused("no table"),
    }
    let oid_parameter = [(&oid as &(dyn tokio_postgres::types::ToSql + Sync), Type::OID)];
    let (columns, indexes, left_out) = tokio::try_join!(
        session.ask(DOING, COLUMNS, &oid_parameter),
        session.ask(DOING, INDEXES, &oid_parameter),
        session.ask(DOING, LEFT_OUT, &oid_parameter),
    )?;
    let mut left_out: Vec<String> = left_out.iter().map(|row| row.get(0)).collect();
    left_out.extend(columns.iter().filter_map(default_left_out));
    let numbers: Vec<i16> = columns.iter().map(|row| row.get(11)).collect();
    let natives: Vec<Native> = columns.iter().map(native).collect();
    let columns: Vec<Column> = columns.iter().zip(&natives).map(column).collect();
    let (mut primary, mut plain) = (Vec::new(), Vec::new());
    for row in &indexes {
        let (name, is_primary): (String, bool) = (row.get(0), row.get(1));
        let keys = row.get::<_, Vec<i16>>(3).into_iter().take(row.get::<_, i32>(5) as usize);
        let positions: Option<Vec<usize>> = keys.map(|key| numbers.iter().position(|number| *number == key)).collect();
        match positions {
            Some(positions) if is_primary => primary = positions,
            Some(positions) if row.get(4) => plain.push(Index { name, unique: row.get(2), columns: positions }),
            Some(_) | None => left_out.push(format!("index {name}")),
        }
    }
    let table =
        Table { name: name.clone(), columns, primary, indexes: plain, rows: estimate(relation.get(2)), left_out };
    Ok(Some(Found { table, place, natives, partitioned: class == "p" }))
}

/// As `find`, for a table that has to be there.
pub(super) async fn get(session: &Session, name: &TableName) -> Result<Found, TableError> {
    find(session, name).await?.ok_or_else(|| {
        TableError::Refused(format!("there is no table {} in {}", session.place(name).shown(), session.shown()))
    })
}

fn native(row: &Row) -> Native {
    let (name, own, class): (String, bool, String) = (row.get(5), row.get(6), row.get(7));
    Native { base: Base::of(&name, own, &class), modifier: row.get(8), sql: row.get(1), labels: row.get(10) }
}

fn column((row, native): (&Row, &Native)) -> Column {
    let collation: Option<String> = row.get(9);
    Column {
        name: row.get(0),
        kind: native.kind(),
        native: match collation {
            Some(collation) => format!("{} COLLATE {collation}", native.sql),
            None => native.sql.clone(),
        },
        nullable: row.get(2),
        counts_up: row.get(3),
        generated: row.get(4),
        default: row.get(12),
    }
}

fn default_left_out(row: &Row) -> Option<String> {
    let (name, counts_up, generated, has): (String, bool, bool, bool) =
        (row.get(0), row.get(3), row.get(4), row.get(12));
    match (has, generated, counts_up) {
        (true, true, _) => Some(format!("how column {name} is computed")),
        (true, false, false) => Some(format!("default of column {name}")),
        (true, false, true) | (false, _, _) => None,
    }
}

/// Below zero where nobody has counted yet.
fn estimate(rows: f64) -> Option<u64> {
    (rows >= 0.0).then_some(rows as u64)
}
