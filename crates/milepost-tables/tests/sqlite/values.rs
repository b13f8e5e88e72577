//! Values there and back: exactly, or not at all.

use milepost_tables::{Dialect, Digits, Kind, Scan, Shape, Value};

use crate::lab::{
    INTEGER, Lab, TEXT, UNSIGNED, batch, batches, copy, foreign, load, put, scan, table, text, values, writer_to_new,
};

const TYPES: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, b BOOLEAN, i INT, s SMALLINT, r REAL,
    d DECIMAL(10,2), dt DECIMAL TEXT(30,10), v VARCHAR(20) COLLATE NOCASE, x BLOB, day DATE, clock TIME,
    made DATETIME, moment TIMESTAMPTZ, j JSON, u UUID, n, m MONEY);
    CREATE INDEX t_i ON t (i);
    CREATE UNIQUE INDEX t_v ON t (v, id);
    INSERT INTO t VALUES
    (1, 1, -9223372036854775808, -32768, 1e300, 12.5, '12345678901234567890.1234567890', 'it''s 😀', x'00ff',
     '2024-02-29', '23:59:59.5', '2024-02-29 23:59:59.123456', '9999-12-31 23:59:59', '{\"a\": [1, 2]}',
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 5, 1.25),
    (7, 0, 9223372036854775807, 32767, -0.5, -3, '-0.0000000001', '', x'', '1970-01-01', '00:00:00',
     '1970-01-01 00:00:00', '1970-01-01 00:00:00', '5', '00000000-0000-0000-0000-000000000000', 6, 'much'),
    (9, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);";

#[tokio::test]
async fn a_table_that_stays_with_sqlite_is_the_same_afterwards() {
    let lab = Lab::new();
    let from = lab.made("from.db", TYPES).await;
    let to = lab.database("to.db").await;
    copy(&from, &to, "t").await;
    assert_eq!(lab.rows("to.db", "SELECT * FROM t ORDER BY id"), lab.rows("from.db", "SELECT * FROM t ORDER BY id"));
    let (there, here) = (table(&to, "t").await, table(&from, "t").await);
    assert_eq!((there.columns, there.primary, there.indexes), (here.columns, here.primary, here.indexes));
    assert_eq!(lab.rows("to.db", "SELECT * FROM sqlite_sequence"), ["'t'|9"], "it never counts a number twice");
}

#[tokio::test]
async fn what_comes_from_elsewhere_is_read_back_in_its_own_words() {
    let digits = Some(Digits { precision: 38, scale: 10 });
    let cases = [
        (Kind::Bool, vec![Value::Bool(true), Value::Bool(false)]),
        (Kind::Int { bits: 8, unsigned: true }, vec![Value::Int(0), Value::Int(255)]),
        (Kind::Int { bits: 24, unsigned: false }, vec![Value::Int(-8_388_608), Value::Int(8_388_607)]),
        (INTEGER, vec![Value::Int(i64::MIN), Value::Int(i64::MAX)]),
        (UNSIGNED, vec![Value::Int(0), Value::Int(i64::MAX), Value::Uint(1 << 63), Value::Uint(u64::MAX)]),
        (Kind::Float { bits: 32 }, vec![Value::Float(f64::from(0.1_f32)), Value::Float(f64::from(f32::MAX))]),
        (Kind::Float { bits: 64 }, vec![Value::Float(5e-324), Value::Float(f64::NEG_INFINITY), Value::Float(3.0)]),
        (Kind::Decimal { digits }, vec![text("-1234567890123456789012345678.0000000001"), text("0.0000000000")]),
        (Kind::Decimal { digits: None }, vec![text("1.10"), text("NaN"), text(&"9".repeat(200)), text("-Infinity")]),
        (TEXT, vec![text(""), text("007"), text("1e3"), text(" 1 "), text("nul \0 within"), text("😀")]),
        (Kind::Bytes { length: Some(4) }, vec![Value::Bytes(vec![]), Value::Bytes(vec![0, 255, 39, 92])]),
        (Kind::Date, vec![text("0001-01-01"), text("9999-12-31"), text("0000-00-00"), text("infinity")]),
        (Kind::Time { fraction: 6 }, vec![text("00:00:00"), text("23:59:59.999999"), text("-838:59:59")]),
        (Kind::DateTime { fraction: 3 }, vec![text("1000-01-01 00:00:00"), text("9999-12-31 23:59:59.999")]),
        (Kind::Instant { fraction: 6 }, vec![text("1970-01-01 00:00:00"), text("-infinity")]),
        (Kind::Json, vec![text("1.0"), text("null"), text("\"1\""), text("{\"a\":  1}")]),
        (Kind::Uuid, vec![text("00000000-0000-0000-0000-000000000000"), text("12345678-1234-1234-1234-123456789012")]),
        (Kind::Enum { values: vec!["1".into(), "two".into()] }, vec![text("1"), text("two")]),
        (Kind::Other, vec![text("{1,2}"), text("192.168.0.1"), text("12")]),
    ];
    let lab = Lab::new();
    let to = lab.database("to.db").await;
    for (place, (kind, given)) in cases.into_iter().enumerate() {
        let table = foreign(&format!("t{place}"), &[INTEGER, kind.clone()]);
        let given = given.into_iter().chain([Value::Null]).enumerate();
        let rows: Vec<_> = given.map(|(row, value)| vec![Value::Int(row as i64), value]).collect();
        put(&to, &table, &rows).await;
        assert_eq!(values(&to, scan(&table)).await, rows, "{kind:?}");
        let again = crate::lab::table(&to, &format!("t{place}")).await;
        if !matches!(kind, Kind::Enum { .. } | Kind::Other) {
            assert_eq!(again.columns[1].kind, kind);
        }
    }
}

/// The reason that a single value is spoilt for.
async fn reason(lab: &Lab, number: usize, declared: &str, value: &str) -> Option<String> {
    let sql = format!("CREATE TABLE t{number} (a {declared}); INSERT INTO t{number} VALUES ({value})");
    let database = lab.made("db", &sql).await;
    let table = table(&database, &format!("t{number}")).await;
    let batch = batches(&database, scan(&table)).await.remove(0);
    assert_eq!(batch.rows() + batch.spoilt.len(), 1);
    batch.spoilt.into_iter().next().map(|spoilt| {
        assert!(spoilt.row.contains_key("a"));
        spoilt.reason
    })
}

#[tokio::test]
async fn a_value_that_is_not_what_its_column_says_spoils_its_row() {
    let cases = [
        ("INTEGER", "'old'", "column \"a\" holds the text \"old\", which is no integer"),
        ("INTEGER", "1.5", "holds the number 1.5"),
        ("INTEGER", "x'00'", "bytes (1 of them)"),
        ("SMALLINT", "40000", "integer of 16 bits"),
        ("TINYINT UNSIGNED", "-1", "without sign"),
        ("BOOLEAN", "2", "boolean (0 or 1)"),
        ("BOOLEAN", "'true'", "boolean (0 or 1)"),
        ("REAL", "'much'", "floating-point"),
        ("FLOAT4", "0.1", "32 bits"),
        ("DECIMAL(10,2)", "0.1 + 0.2", "decimal(10,2)"),
        ("DECIMAL(4,2)", "100", "decimal(4,2)"),
        ("DECIMAL(10,2)", "'dear'", "\"dear\""),
        ("DECIMAL TEXT", "'1e999999999'", "decimal"),
        ("TEXT", "x'41'", "types: { a: bytes }"),
        ("TEXT", "CAST(x'ff' AS TEXT)", "not UTF-8"),
        ("BLOB", "'text'", "which is no bytes"),
        ("DATE", "1709164800", "types: { a: int }"),
        ("DATE", "2460369.5", "date like"),
        ("DATE", "'29.02.2024'", "date like"),
        ("DATETIME", "'2024-02-29 10:00:00+02:00'", "types: { a: instant }"),
        ("DATETIME(3)", "'2024-02-29 10:00:00.1234'", "at most 3 digits"),
        ("TIME", "'noon'", "time like"),
        ("TIMESTAMPTZ", "'2024-02-29 10:00:00 CET'", "moment like"),
        ("UUID", "'not one'", "UUID"),
        ("JSON", "x'00'", "JSON"),
        ("ANYTHING", "x'00'", "types: { a: bytes }"),
    ];
    let lab = Lab::new();
    for (number, (declared, value, expected)) in cases.into_iter().enumerate() {
        let reason = reason(&lab, number, declared, value).await.unwrap_or_default();
        assert!(reason.contains(expected) && reason.contains("column \"a\""), "{declared} {value}: {reason}");
    }
}

#[tokio::test]
async fn a_value_is_told_in_one_spelling_however_it_is_held() {
    let cases = [
        ("DECIMAL(10,2)", "12", "12.00"),
        ("DECIMAL(10,2)", "0.1", "0.10"),
        ("DECIMAL(10,2)", "-0.5", "-0.50"),
        ("DECIMAL TEXT(10,2)", "'+1.5'", "1.50"),
        ("DECIMAL TEXT(10,2)", "'1.500'", "1.50"),
        ("DECIMAL TEXT", "'1.5e-3'", "0.0015"),
        ("NUMERIC", "1e20", "100000000000000000000"),
        ("DATETIME", "'2024-02-29T10:00'", "2024-02-29 10:00:00"),
        ("TIMESTAMPTZ", "'2024-02-29T23:30:00.50-01:00'", "2024-03-01 00:30:00.5"),
        ("UUID", "'A0EEBC999C0B4EF8BB6D6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("JSON", "5", "5"),
        ("MONEY", "1.50", "1.5"),
        ("MONEY", "7", "7"),
    ];
    let lab = Lab::new();
    for (number, (declared, value, expected)) in cases.into_iter().enumerate() {
        let name = format!("t{number}");
        let sql = format!("CREATE TABLE {name} (a {declared}); INSERT INTO {name} VALUES ({value})");
        let database = lab.made("db", &sql).await;
        let table = table(&database, &name).await;
        assert_eq!(values(&database, scan(&table)).await, [[text(expected)]], "{declared} {value}");
    }
}

#[tokio::test]
async fn a_column_is_read_as_what_is_asked_for() {
    let lab = Lab::new();
    let sql = "CREATE TABLE t (mixed, day DATE, n TEXT, u BLOB, r REAL);
        INSERT INTO t VALUES (1, 1709164800, '12', x'00112233445566778899aabbccddeeff', 3.0),
        ('one', 0, '-12', NULL, NULL), (1.5, 1, '0', NULL, NULL)";
    let database = lab.made("db", sql).await;
    let table = table(&database, "t").await;
    let spoilt = batches(&database, scan(&table)).await.remove(0).spoilt;
    assert!(spoilt[0].reason.contains("no type") && spoilt[0].reason.contains("types: { mixed: text }"), "{spoilt:?}");
    let kinds = [TEXT, INTEGER, INTEGER, Kind::Uuid, INTEGER];
    let columns = table.columns.iter().zip(kinds).map(|(column, kind)| (column.name.clone(), kind)).collect();
    let rows = values(&database, Scan { columns, ..scan(&table) }).await;
    let uuid = text("00112233-4455-6677-8899-aabbccddeeff");
    assert_eq!(rows[0], [text("1"), Value::Int(1_709_164_800), Value::Int(12), uuid, Value::Int(3)]);
    assert_eq!(rows[1], [text("one"), Value::Int(0), Value::Int(-12), Value::Null, Value::Null]);
    assert_eq!(rows[2][0], text("1.5"));
}

#[tokio::test]
async fn what_sqlite_cannot_hold_is_rejected_with_its_column() {
    let cases = [(Kind::Float { bits: 64 }, Value::Float(f64::NAN), "NaN"), (TEXT, Value::Null, "NOT NULL")];
    let lab = Lab::new();
    let to = lab.database("to.db").await;
    for (kind, value, expected) in cases {
        let mut table = foreign("t", &[INTEGER, kind]);
        table.columns[1].nullable = false;
        let mut writer = writer_to_new(&to, &table, &load(&table, "token"), true).await;
        let rejected = writer.write(&batch(&[vec![Value::Int(1), value]])).await.unwrap();
        assert!(rejected[0].reason.contains(expected) && rejected[0].column.as_deref() == Some("c1"), "{rejected:?}");
    }
    let mut table = foreign("t", &[UNSIGNED]);
    table.columns[0].counts_up = true;
    let mut writer = writer_to_new(&to, &table, &load(&table, "token"), true).await;
    let rows = [vec![Value::Uint(u64::MAX)], vec![Value::Null], vec![Value::Int(5)]];
    let rejected = writer.write(&batch(&rows)).await.unwrap();
    assert_eq!(rejected.iter().map(|rejected| rejected.row).collect::<Vec<_>>(), [0, 1]);
    assert!(rejected[0].reason.contains("9223372036854775807"), "{rejected:?}");
    assert!(rejected[1].reason.contains("primary key"), "a number is not invented: {rejected:?}");
}

#[tokio::test]
async fn another_sqlite_gets_every_value_as_it_is() {
    let lab = Lab::new();
    let sql = "CREATE TABLE t (id INTEGER PRIMARY KEY, a DATETIME, b INT, c, d UNSIGNED BIG BLOB);
        INSERT INTO t VALUES (1, '2024-02-29T10:00:00Z', 'text', 5, '18446744073709551615'), (2, 7, x'00', 'five', '007'), (3, 1.5, 2, 5.0, 9)";
    let database = lab.made("db", sql).await;
    let table = table(&database, "t").await;
    let rows = values(&database, Scan { as_is: vec![0, 1, 2, 3, 4], ..scan(&table) }).await;
    let expected = [
        vec![Value::Int(1), text("2024-02-29T10:00:00Z"), text("text"), Value::Int(5), Value::Uint(u64::MAX)],
        vec![Value::Int(2), Value::Int(7), Value::Bytes(vec![0]), text("five"), text("007")],
        vec![Value::Int(3), Value::Float(1.5), Value::Int(2), Value::Float(5.0), Value::Int(9)],
    ];
    assert_eq!(rows, expected);

    let to = lab.database("to.db").await;
    let load = load(&table, "token");
    let shape = Shape::Of { table: &table, from: Dialect::Sqlite };
    let begun = crate::lab::begin(&to, &load, shape, false).await;
    let mut writer = to.writer(&load, &begun, false).await.unwrap();
    assert_eq!(writer.write(&batch(&rows)).await.unwrap(), []);
    writer.commit(None, 0).await.unwrap();
    let stored = |table: &str| format!("SELECT *, typeof(c), typeof(d) FROM {table}");
    assert_eq!(lab.rows("to.db", &stored("t__mp_1")), lab.rows("db", &stored("t")));
}
