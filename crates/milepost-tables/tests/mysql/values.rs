//! Values that are the same afterwards, or no row.

use milepost_tables::{Batch, Cell, Dialect, Digits, Kind, Value};

use super::support::{copy, place, read, scan, table, text};

const EVERY_TYPE: &str = "CREATE TABLE every_type (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    flag TINYINT(1), tiny TINYINT, tiny_u TINYINT UNSIGNED, small SMALLINT, medium MEDIUMINT, medium_u MEDIUMINT UNSIGNED,
    number INT, number_u INT UNSIGNED, big BIGINT, big_u BIGINT UNSIGNED, year YEAR, bit1 BIT(1), bit40 BIT(40),
    price DECIMAL(10,2), wide DECIMAL(65,30), single FLOAT, `double` DOUBLE,
    fixed CHAR(5), name VARCHAR(50), latin VARCHAR(20) CHARACTER SET latin1, long_text LONGTEXT, tiny_text TINYTEXT,
    raw BINARY(4), bytes VARBINARY(20), tiny_blob TINYBLOB, long_blob LONGBLOB,
    day DATE, clock TIME, clock6 TIME(6), moment DATETIME, moment6 DATETIME(6), stamp TIMESTAMP NULL, stamp3 TIMESTAMP(3) NULL,
    colour ENUM('red', 'it''s', 'back\\\\slash'), tags SET('a', 'b', 'c'), doc JSON, place POINT)";

const ROWS: &[&str] = &[
    // The least of each.
    "(1, 0, -128, 0, -32768, -8388608, 0, -2147483648, 0, -9223372036854775808, 0, 1901, b'0', 0, \
     -99999999.99, -99999999999999999999999999999999999.999999999999999999999999999999, -3.4028234e38, -1.7976931348623157e308, \
     '', '', '', '', '', x'00000000', '', '', '', \
     '0000-00-00', '-838:59:59', '-838:59:59', '0000-00-00', '0000-00-00', '1970-01-01 00:00:01', '0000-00-00', \
     'red', '', '[]', ST_GeomFromText('POINT(1 2)'))",
    // The most of each.
    "(18446744073709551615, 1, 127, 255, 32767, 8388607, 16777215, 2147483647, 4294967295, 9223372036854775807, \
     18446744073709551615, 2155, b'1', 1099511627775, \
     99999999.99, 99999999999999999999999999999999999.999999999999999999999999999999, 3.4028234e38, 1.7976931348623157e308, \
     '12345', REPEAT('😀', 50), REPEAT('é', 20), REPEAT('long ', 20000), REPEAT('t', 255), x'ffffffff', REPEAT(x'ff', 20), \
     REPEAT(x'00', 255), REPEAT(x'00ff27', 30000), \
     '9999-12-31', '838:59:59', '838:59:58.999999', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999999', \
     '2038-01-19 03:14:07', '2038-01-19 03:14:07.999', 'back\\\\slash', 'a,b,c', '{\"a\": [1, null]}', ST_GeomFromText('POINT(-1 1e9)'))",
    // What is not there.
    "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
     NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    // What is easily spoilt on the way.
    "(3, 1, 0, 10, 0, 0, 0, 0, 0, 0, 9223372036854775808, 0, b'1', 5, 0.10, -0.000000000000000000000000000001, 0.1, 0.1, \
     'a', 'tab\\t line\\n back\\\\ quote\\' nul\\0 \\\\N \\r end ', 'ÿ', '\\\\N', '\\t', x'5c4e0a09', x'5c27000a0d09', x'5c4e', x'1a', \
     '1970-01-01', '-00:00:01', '-00:00:00.000001', '1970-01-01 00:00:00', '1969-12-31 23:59:59.100000', \
     '2024-10-27 01:30:00', '2024-03-31 02:30:00.120', 'it''s', 'b', '\"\\\\u0000 \\\\\\\\\"', ST_GeomFromText('POINT(0 0)'))",
    "(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2000, b'0', 39, 1.00, 1, 16777216, 5e-324, 'é', ' leading', 'x', ' ', ' ', x'20202020', \
     x'20', x'00', x'', '2024-02-29', '00:00:00', '24:00:00.5', '2024-00-00', '2024-02-29 00:00:00', NULL, NULL, 'red', 'a,c', \
     '1.0', NULL)",
];

#[tokio::test]
async fn every_type_is_the_same_there_and_back() {
    let Some(place) = place().await else { return };
    place.run(&[EVERY_TYPE]).await;
    for row in ROWS {
        place.run(&[&format!("INSERT INTO every_type VALUES {row}")]).await;
    }
    let database = place.open().await;
    let source = table(&*database, "every_type").await;
    for (into, from) in [("verbatim", Dialect::Mysql), ("by_kind", Dialect::Postgres)] {
        // From another database there are no moments beyond dates, which the target of this one takes all the same.
        let rejected = copy(&*database, &source, into, from).await;
        assert_eq!(rejected, [], "{into}");
        let target = table(&*database, into).await;
        let mut back = scan(&target);
        back.columns = scan(&source).columns;
        assert_eq!(read(&*database, back).await, read(&*database, scan(&source)).await, "{into}");
        if from == Dialect::Mysql {
            let natives = |table: &milepost_tables::Table| {
                table.columns.iter().map(|column| column.native.clone()).collect::<Vec<_>>()
            };
            assert_eq!(natives(&target), natives(&source));
        }
    }
    let differ = "SELECT COUNT(*) FROM every_type JOIN verbatim USING (id) WHERE NOT (
        every_type.single <=> verbatim.single AND every_type.raw <=> verbatim.raw AND every_type.bit40 <=> verbatim.bit40
        AND every_type.place <=> verbatim.place AND every_type.name <=> BINARY verbatim.name)";
    assert_eq!(place.ask::<u64>(differ).await, [0]);
}

#[tokio::test]
async fn kinds_are_spelled_in_one_way() {
    let Some(place) = place().await else { return };
    place.run(&[EVERY_TYPE, &format!("INSERT INTO every_type VALUES {}", ROWS[3])]).await;
    let database = place.open().await;
    let source = table(&*database, "every_type").await;
    let row = read(&*database, scan(&source)).await.remove(0);
    let of = |name: &str| row[source.columns.iter().position(|column| column.name == name).unwrap()].clone();
    assert_eq!(of("flag"), Value::Bool(true));
    assert_eq!(of("bit1"), Value::Bool(true));
    assert_eq!(of("big_u"), Value::Uint(1 << 63));
    assert_eq!(of("bit40"), Value::Int(5));
    assert_eq!(of("price"), text("0.10"));
    assert_eq!(of("single"), Value::Float(f64::from(0.1_f32)));
    assert_eq!(of("clock6"), text("-00:00:00.000001"));
    assert_eq!(of("moment6"), text("1969-12-31 23:59:59.1"));
    assert_eq!(of("stamp3"), text("2024-03-31 02:30:00.12"));
    assert_eq!(of("doc"), text("\"\\u0000 \\\\\""));
    assert_eq!(of("bytes"), Value::Bytes(b"\\'\0\n\r\t".to_vec()));
}

#[tokio::test]
async fn a_value_that_is_not_what_it_is_asked_for_as_spoils_its_row() {
    let Some(place) = place().await else { return };
    place
        .run(&[
            "CREATE TABLE mixed (id INT PRIMARY KEY, flag TINYINT(1), word VARCHAR(20), moment DATETIME(6), amount DECIMAL(10,4))",
            "INSERT INTO mixed VALUES (1, 1, '12', '2024-01-01', 1.5), (2, 2, '12', '2024-01-01', 1), \
             (3, 0, 'twelve', '2024-01-01', 1), (4, 0, '12', '2024-01-01 00:00:01', 1), (5, 0, '12', '2024-01-01', 1.2345)",
        ])
        .await;
    let database = place.open().await;
    let mut asked = scan(&table(&*database, "mixed").await);
    asked.batch_rows = 100;
    asked.columns[2].1 = Kind::Int { bits: 8, unsigned: false };
    asked.columns[3].1 = Kind::Date;
    asked.columns[4].1 = Kind::Decimal { digits: Some(Digits { precision: 10, scale: 2 }) };
    let batch = database.read(asked.clone()).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(
        super::support::values(&batch),
        [[Value::Int(1), Value::Bool(true), Value::Int(12), text("2024-01-01"), text("1.5000")]]
    );
    let reasons: Vec<&str> = batch.spoilt.iter().map(|spoilt| spoilt.reason.as_str()).collect();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(
        reasons[0].starts_with("column \"flag\" holds 2, which is no boolean; `types: { flag: integer }`"),
        "{reasons:?}"
    );
    assert!(reasons[1].starts_with("column \"word\" holds \"twelve\""), "{reasons:?}");
    assert!(reasons[2].starts_with("column \"moment\" holds \"2024-01-01 00:00:01\""), "{reasons:?}");
    assert!(reasons[3].starts_with("column \"amount\" holds \"1.2345\""), "{reasons:?}");
    assert_eq!(batch.spoilt[0].row["id"], 2);
    asked.columns[1].1 = Kind::Int { bits: 8, unsigned: false };
    let batch = database.read(asked).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(batch.spoilt.len(), 3, "as a number a flag may be 2");
}

#[tokio::test]
async fn what_a_column_would_change_is_a_rejected_row() {
    let Some(place) = place().await else { return };
    let target = "CREATE TABLE target (id INT PRIMARY KEY, v {})";
    let of_text = |value: &str| {
        let mut batch = Batch::new(2);
        batch.push(Cell::Int(1));
        batch.push_text(value);
        batch
    };
    let of = |cell: Cell| {
        let mut batch = Batch::new(2);
        batch.push(Cell::Int(1));
        batch.push(cell);
        batch
    };
    let any_text = Kind::Text { length: None };
    let moment = Kind::DateTime { fraction: 6 };
    let int = Kind::Int { bits: 64, unsigned: true };
    let cases = [
        ("CHAR(5)", any_text.clone(), of_text("ab "), "CHAR forgets the spaces"),
        ("VARCHAR(3)", any_text.clone(), of_text("abc "), "has 4 characters"),
        ("TINYTEXT", any_text.clone(), of_text(&" ".repeat(256)), "255 bytes"),
        ("VARCHAR(3) CHARACTER SET latin1", any_text.clone(), of_text("語"), "Incorrect string value"),
        ("ENUM('a', 'b')", any_text.clone(), of_text("1"), "no value of the target's ENUM"),
        ("ENUM('a', 'b')", any_text.clone(), of_text("A"), "no value of the target's ENUM"),
        ("SET('a', 'b')", any_text.clone(), of_text("b,a"), "no members"),
        ("JSON", any_text, of_text("{"), "CONSTRAINT"),
        ("DECIMAL(5,2)", Kind::Decimal { digits: None }, of_text("1.005"), "more than 2 digits after the point"),
        ("DECIMAL(5,2)", Kind::Decimal { digits: None }, of_text("NaN"), "no number"),
        ("INT", Kind::Decimal { digits: None }, of_text("1.5"), "more than 0 digits after the point"),
        ("INT", int.clone(), of(Cell::Int(1 << 31)), "Out of range"),
        ("TINYINT UNSIGNED", int.clone(), of(Cell::Int(-1)), "Out of range"),
        ("BIGINT", int.clone(), of(Cell::Uint(u64::MAX)), "Out of range"),
        ("YEAR", int.clone(), of(Cell::Int(70)), "no year"),
        ("DOUBLE", int, of(Cell::Int((1 << 53) + 1)), "would round"),
        ("FLOAT", Kind::Float { bits: 64 }, of(Cell::Float(0.1)), "would round"),
        ("DOUBLE", Kind::Float { bits: 64 }, of(Cell::Float(f64::NAN)), "no number"),
        ("DATETIME(3)", moment.clone(), of_text("2024-01-01 00:00:00.0001"), "more than 3 digits"),
        ("DATETIME(3)", moment.clone(), of_text("2024-02-30 00:00:00"), "Incorrect datetime value"),
        ("DATETIME", moment.clone(), of_text("infinity"), "no date with a time"),
        ("DATETIME", moment.clone(), of_text("12024-01-01 00:00:00"), "no date with a time"),
        ("TIMESTAMP NULL", moment, of_text("2050-01-01 00:00:00"), "Incorrect datetime value"),
        ("DATE", Kind::Date, of_text("0044-03-15 BC"), "no date"),
        ("TIME", Kind::Time { fraction: 0 }, of_text("839:00:00"), "Incorrect time value"),
        ("INT NOT NULL", Kind::Int { bits: 32, unsigned: false }, of(Cell::Null), "does not take"),
        ("TIMESTAMP NOT NULL", Kind::Instant { fraction: 0 }, of(Cell::Null), "does not take"),
    ];
    let database = place.open().await;
    for (declared, kind, batch, expected) in cases {
        place.run(&["DROP TABLE IF EXISTS target", &target.replace("{}", declared)]).await;
        let load = super::support::load(
            "copy",
            "token",
            "target",
            &[("id", Kind::Int { bits: 32, unsigned: false }), ("v", kind)],
        );
        let rejected =
            super::support::write(&*database, &load, milepost_tables::Shape::LikeTarget, &[batch]).await.unwrap();
        assert_eq!(rejected.len(), 1, "{declared} {expected}");
        assert!(rejected[0].reason.contains(expected), "{declared}: {}", rejected[0].reason);
        let in_target: Vec<u64> = place.ask(&format!("SELECT COUNT(*) FROM {}", load.staging.name)).await;
        assert_eq!(in_target, [0], "{declared} {expected}");
    }
}
