//! The table beside the target: what it is made as, from what a source looks like.

use crate::database::Load;
use crate::table::{Column, Dialect, Kind, Table};

use super::connect::Facts;
use super::declare::{Room, declared, key_bytes};
use super::indexes::index_name;
use super::sql;

/// An index has no more bytes than this.
pub(super) const KEY_BYTES: u32 = 3072;
/// A row has no more bytes than this, without what is kept outside of it; some are left for what the server adds.
const ROW_BYTES: u32 = 65_000;

/// A column to be made.
struct Placed<'a> {
    name: &'a str,
    kind: &'a Kind,
    /// As the source has it; a column that is asked for as something else is no longer that.
    source: Option<&'a Column>,
    /// The source's own type is kept.
    verbatim: bool,
    room: Room,
}

/// `CREATE TABLE`. `verbatim`: the source's own types are kept where the source is of the same dialect.
pub(super) fn create(load: &Load, table: &Table, from: Dialect, verbatim: bool, facts: Facts) -> String {
    let mut columns: Vec<Placed<'_>> = (load.columns.iter())
        .map(|(name, kind)| {
            let source = table.columns.iter().find(|column| column.name == *name);
            let same = source.is_some_and(|column| column.kind == *kind && !column.native.is_empty());
            Placed { name, kind, source, verbatim: verbatim && same && from == Dialect::Mysql, room: Room::Free }
        })
        .collect();
    make_room_for_keys(&mut columns, table, facts);
    make_room_in_the_row(&mut columns, facts);
    let counting = counting(&columns, table);
    let mut lines: Vec<String> = columns.iter().map(|column| line(column, table, counting.as_ref(), facts)).collect();
    let key: Option<Vec<&str>> = names(&columns, table, &table.primary);
    if let Some(key) = key.filter(|key| !key.is_empty()) {
        lines.push(format!("PRIMARY KEY ({})", sql::names(key)));
    }
    lines.extend(counting.and_then(|counting| counting.index));
    format!(
        "CREATE TABLE {} (\n{}\n) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {}",
        sql::table(&load.staging),
        lines.join(",\n"),
        facts.exact_collation()
    )
}

fn line(column: &Placed<'_>, table: &Table, counting: Option<&Counting<'_>>, facts: Facts) -> String {
    let native = column.source.filter(|_| column.verbatim).map(|source| source.native.clone());
    let declared = native.unwrap_or_else(|| declared(column.kind, column.room, facts).sql);
    let key = table.primary.iter().any(|position| table.columns[*position].name == column.name);
    let null = if column.source.is_some_and(|source| source.nullable) && !key { "NULL" } else { "NOT NULL" };
    let counts = if counting.is_some_and(|counting| counting.column == column.name) { " AUTO_INCREMENT" } else { "" };
    format!("{} {declared} {null}{counts}", sql::name(column.name))
}

/// Texts without end, and those too long together, get the room that a key has; what is longer is a rejected row. Only
/// for keys in which no two rows may be the same: any other index makes do with the beginnings of texts.
fn make_room_for_keys(columns: &mut [Placed<'_>], table: &Table, facts: Facts) {
    let unique = table.indexes.iter().filter(|index| index.unique).map(|index| &index.columns);
    for key in std::iter::once(&table.primary).chain(unique) {
        let in_key = |column: &Placed<'_>| key.iter().any(|position| table.columns[*position].name == column.name);
        let free = |column: &Placed<'_>| {
            !column.verbatim && matches!(column.kind, Kind::Text { .. } | Kind::Bytes { .. } | Kind::Other | Kind::Json)
        };
        let bytes = |column: &&Placed<'_>| key_bytes(column.kind, facts);
        let whole: Option<u32> =
            columns.iter().filter(|column| in_key(column)).map(|column| bytes(&column)).sum::<Option<u32>>();
        if whole.is_some_and(|whole| whole <= KEY_BYTES) {
            continue;
        }
        let fixed: u32 =
            (columns.iter().filter(|column| in_key(column) && !free(column))).filter_map(|column| bytes(&column)).sum();
        let sharing = columns.iter().filter(|column| in_key(column) && free(column)).count() as u32;
        let share = KEY_BYTES.saturating_sub(fixed) / sharing.max(1);
        for column in columns.iter_mut().filter(|column| free(column)) {
            if in_key(column) {
                column.room = match column.room {
                    Room::Key(less) => Room::Key(less.min(share)),
                    Room::Free | Room::Outside => Room::Key(share),
                };
            }
        }
    }
}

/// Moves the longest texts out of the row until the rest fits.
fn make_room_in_the_row(columns: &mut [Placed<'_>], facts: Facts) {
    loop {
        let bytes = |column: &Placed<'_>| match column.verbatim {
            true => 0,
            false => declared(column.kind, column.room, facts).row_bytes,
        };
        if columns.iter().map(bytes).sum::<u32>() <= ROW_BYTES {
            return;
        }
        let movable = columns.iter_mut().filter(|column| !column.verbatim && column.room == Room::Free);
        let Some(longest) = movable.max_by_key(|column| bytes(column)) else { return };
        longest.room = Room::Outside;
    }
}

/// The one column that may count up by itself. It has to be the first of a key.
struct Counting<'a> {
    column: &'a str,
    /// The key, if it is not the primary one.
    index: Option<String>,
}

fn counting<'a>(columns: &[Placed<'a>], table: &Table) -> Option<Counting<'a>> {
    let counts = |column: &&Placed<'_>| {
        column.source.is_some_and(|source| source.counts_up) && matches!(column.kind, Kind::Int { .. })
    };
    let column = columns.iter().find(counts)?;
    let first = |key: &[usize]| key.first().is_some_and(|position| table.columns[*position].name == column.name);
    if first(&table.primary) {
        return Some(Counting { column: column.name, index: None });
    }
    let short = |position: &usize| {
        !matches!(table.columns[*position].kind, Kind::Text { .. } | Kind::Bytes { .. } | Kind::Other | Kind::Json)
    };
    let index = table.indexes.iter().find(|index| first(&index.columns) && index.columns.iter().all(short))?;
    let unique = if index.unique { "UNIQUE " } else { "" };
    let key = names(columns, table, &index.columns)?;
    let line = format!("{unique}KEY {} ({})", sql::name(&index_name(index)), sql::names(key));
    Some(Counting { column: column.name, index: Some(line) })
}

/// None if one of them is not made.
fn names<'a>(columns: &[Placed<'a>], table: &Table, positions: &[usize]) -> Option<Vec<&'a str>> {
    let name = |position: &usize| {
        columns.iter().find(|column| column.name == table.columns[*position].name).map(|column| column.name)
    };
    positions.iter().map(name).collect()
}
