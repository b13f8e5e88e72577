//! Every type, there and back.

use std::collections::BTreeMap;

use milepost_tables::{
    Copy, Dialect, Digits, How, IfExists, Kind, Limits, OnRowError, Resume, TableName, Value, Verify, Watch, copy,
};
use tokio_util::sync::CancellationToken;

use crate::loading::{Loading, batch, column, t};
use crate::server::{Schema, is_there, scan};

struct Nobody;

impl Watch for Nobody {
    fn progress(&self, _done: u64, _total: u64) {}
    fn say(&self, _line: &str) {}
}

/// Copies a table within its schema, reading everything again at the end.
async fn copied(schema: &Schema, from: &str, into: &str) {
    let job = Copy {
        name: format!("test/{from}"),
        run: 1,
        from: schema.database().await,
        to: schema.database().await,
        table: TableName::new(from),
        into: TableName::new(into),
        columns: None,
        types: BTreeMap::new(),
        filter: None,
        batch_rows: 3,
        if_exists: IfExists::Fail,
        on_row_error: OnRowError::Stop,
        rejected_file: None,
        resume: Resume::Table,
        verify: Verify::Checksums,
        indexes: true,
        limits: Limits::default(),
    };
    copy(job, &Nobody, &CancellationToken::new()).await.unwrap();
}

const EVERY_TYPE: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'it''s fine');
    CREATE DOMAIN price AS numeric(10,2) CHECK (value >= 0);
    CREATE TABLE source (
        id int PRIMARY KEY, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision, n numeric, n2 numeric(12,3),
        m money, b boolean, t text, v varchar(5), c char(5), by bytea, d date, ti time(3), tz timetz, ts timestamp,
        tstz timestamptz(4), iv interval, j json, jb jsonb, u uuid, e mood, p price, a text[], aa int[][], ip inet, ci cidr,
        ma macaddr, bi bit(3), vb bit varying(9), x xml, po point, r int4range, ts_v tsvector, o oid, ch \"char\");
    INSERT INTO source (id) VALUES (0);
    INSERT INTO source VALUES (1, -32768, -2147483648, -9223372036854775808, 1.1, 0.1, 'NaN', -123456789.125,
        '-12345.67', true, E'tab\\t nl\\n cr\\r bs\\\\ \\\\N \\b\\f\\v 😀 é', '', 'ab', '\\x00ff0a5c', 'infinity', '23:59:59.999',
        '10:00:00+05:30', '-infinity', '9999-12-31 23:59:59.9999+00', '1 year -2 mons 3 days -04:05:06.789',
        '{\"b\": 1,  \"a\": [1.0, null], \"b\": 2}', '{\"b\":1,\"a\":1.10}', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11',
        'it''s fine', 0.10, ARRAY['a\"b', NULL, 'c\\d', 'null', ''], '{{1,2},{3,4}}', '::1/64', '10.0.0.0/8',
        '08:00:2b:01:02:03', B'101', B'1010', '<a>1 &amp; 2</a>', '(1.5,-2)', '[1,5)', 'fat:1A cat:2', 4294967295, 'x');
    INSERT INTO source VALUES (2, 32767, 2147483647, 9223372036854775807, 'Infinity', '-Infinity', 'Infinity', 0.000,
        '92233720368547758.07', false, '', '😀😀😀😀😀', '     ', '', '0044-03-15 BC', '24:00', '00:00:00-12',
        '0001-01-01 00:00:00.000001 BC', '1970-01-01 00:00:00+00', '0', 'null', '\"x\"', '00000000-0000-0000-0000-000000000000',
        'sad', 0, '{}', NULL, '1.2.3.4', '::/0', 'ff:ff:ff:ff:ff:ff', B'000', B'', '', '(NaN,Infinity)', 'empty', '', 0, ' ');
    INSERT INTO source (id, f4, f8, n, n2, d, ts, tstz, by, t)
    VALUES (3, 3.4028235e38, 1.7976931348623157e308, 1e-30, 999999999.999, '5874897-12-31', '294276-12-31 23:59:59.999999',
            '4713-01-01 00:00:00+00 BC', decode(repeat('ab', 100000), 'hex'), repeat('ü\\', 100000)),
           (4, 1e-45, 5e-324, -0.000000, -0.001, '2000-02-29', '1999-12-31 23:59:59.5', '2024-06-01 12:00:00.1234+02', '\\x', ' '),
           (5, '-0', '-0', 123456789012345678901234567890.123456789, 1, 'epoch', 'epoch', 'epoch', '\\x5c78', E'\\\\.')";

#[tokio::test]
async fn every_type_is_the_same_in_a_copy() {
    if !is_there("every_type_is_the_same_in_a_copy") {
        return;
    }
    let schema = Schema::new().await;
    schema.run(EVERY_TYPE).await;
    copied(&schema, "source", "target").await;
    let types = |table| {
        format!(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attnum"
        )
    };
    assert_eq!(schema.ask(&types("source")).await, schema.ask(&types("target")).await);
    // As text, so that nothing is equal that is spelled in two ways.
    let rows = |table| format!("SET extra_float_digits = 3; SELECT {table}::text FROM {table} ORDER BY id");
    let (source, target) = (schema.ask(&rows("source")).await, schema.ask(&rows("target")).await);
    assert_eq!(source.len(), 6);
    assert_eq!(source, target);
    schema.remove().await;
}

#[tokio::test]
async fn a_type_that_is_not_there_is_refused_by_its_name() {
    if !is_there("a_type_that_is_not_there_is_refused_by_its_name") {
        return;
    }
    let (source, target) = (Schema::new().await, Schema::new().await);
    source.run("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE t (m mood)").await;
    let table = source.database().await.table(&TableName::new("t")).await.unwrap().unwrap();
    let mut loading = Loading::of(&target.database().await, "t", table.columns, &[]);
    loading.from = Dialect::Postgres;
    let error = loading.begin(false).await.unwrap_err().to_string();
    for word in ["\"m\"", "mood", "CREATE TYPE mood AS ENUM ('sad', 'ok')", "`types`"] {
        assert!(error.contains(word), "{error}");
    }
    source.remove().await;
    target.remove().await;
}

#[tokio::test]
async fn what_another_database_has_gets_a_type_that_holds_all_of_it() {
    if !is_there("what_another_database_has_gets_a_type_that_holds_all_of_it") {
        return;
    }
    let schema = Schema::new().await;
    let database = schema.database().await;
    let int = |bits, unsigned| Kind::Int { bits, unsigned };
    let digits = |precision, scale| Kind::Decimal { digits: Some(Digits { precision, scale }) };
    let cases = [
        (int(8, true), "smallint", Value::Int(255)),
        (int(16, true), "integer", Value::Int(65_535)),
        (int(24, true), "integer", Value::Int(16_777_215)),
        (int(32, true), "bigint", Value::Int(4_294_967_295)),
        (int(64, true), "numeric(20,0)", Value::Uint(u64::MAX)),
        (int(64, false), "bigint", Value::Int(i64::MIN)),
        (Kind::Bool, "boolean", Value::Bool(true)),
        (Kind::Float { bits: 32 }, "real", Value::Float(f64::from(0.1_f32))),
        (Kind::Float { bits: 64 }, "double precision", Value::Float(5e-324)),
        (digits(65, 30), "numeric(65,30)", t("12345.000000000000000000000000000001")),
        (Kind::Decimal { digits: None }, "numeric", t("-0.1000")),
        (Kind::Text { length: Some(3) }, "character varying(3)", t("😀\\\n")),
        (Kind::Text { length: None }, "text", t("")),
        (Kind::Bytes { length: Some(4) }, "bytea", Value::Bytes(vec![0, 92, 255])),
        (Kind::Date, "date", t("9999-12-31")),
        (Kind::Time { fraction: 3 }, "time(3) without time zone", t("23:59:59.999")),
        (Kind::DateTime { fraction: 6 }, "timestamp(6) without time zone", t("1000-01-01 00:00:00.000001")),
        (Kind::Instant { fraction: 0 }, "timestamp(0) with time zone", t("2038-01-19 03:14:07")),
        (Kind::Json, "json", t("{\"b\":  1, \"b\": 2}")),
        (Kind::Uuid, "uuid", t("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        (Kind::Enum { values: vec!["a'b".into(), "c".into()] }, "text", t("a'b")),
        (Kind::Other, "text", t("POINT(1 2)")),
    ];
    let columns = cases.iter().enumerate().map(|(at, (kind, _, _))| column(&format!("c{at}"), kind.clone()));
    let loading = Loading::of(&database, "t", columns.collect(), &[]);
    let row: Vec<Value> = cases.iter().map(|(_, _, value)| value.clone()).collect();
    let nothing = vec![Value::Null; row.len()];
    loading.load(&batch(&[&row, &nothing])).await;
    loading.finish(How::Replace).await.unwrap();
    let types = schema.ask("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 ORDER BY attnum").await;
    assert_eq!(types, cases.iter().map(|(_, native, _)| *native).collect::<Vec<_>>());
    // Read back in the words of its source.
    let columns = loading.load.columns.clone();
    let mut rows =
        database.read(milepost_tables::Scan { columns, ..scan(database.as_ref(), "t").await }).await.unwrap();
    let found = rows.next().await.unwrap().unwrap();
    assert_eq!(found.spoilt, []);
    let values = |at: usize| -> Vec<Value> { found.row(at).iter().map(|cell| found.value(*cell)).collect() };
    assert_eq!(values(0), row);
    assert_eq!(values(1), nothing);
    drop(rows);
    schema.remove().await;
}
