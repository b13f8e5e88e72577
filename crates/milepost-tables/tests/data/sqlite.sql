-- Every type that people declare in SQLite, and values that copiers break. Rows from 100 on are those that some other database cannot hold.
CREATE TABLE every_type (
    id INTEGER PRIMARY KEY,
    an_int INT,
    a_tinyint TINYINT,
    a_smallint SMALLINT,
    a_mediumint MEDIUMINT,
    a_bigint BIGINT,
    an_unsigned UNSIGNED BIG INT,
    an_int2 INT2,
    an_int8 INT8,
    a_character CHARACTER(20),
    a_varchar VARCHAR(20),
    a_varying VARYING CHARACTER(255),
    an_nchar NCHAR(55),
    a_native NATIVE CHARACTER(70),
    an_nvarchar NVARCHAR(100),
    a_text TEXT,
    a_clob CLOB,
    a_blob BLOB,
    a_real REAL,
    a_double DOUBLE,
    a_double_precision DOUBLE PRECISION,
    a_float FLOAT,
    a_numeric NUMERIC,
    a_decimal DECIMAL(10, 5),
    a_boolean BOOLEAN,
    a_date DATE,
    a_time TIME,
    a_datetime DATETIME,
    a_timestamp TIMESTAMP,
    a_timestamptz TIMESTAMPTZ,
    a_json JSON,
    a_uuid UUID,
    a_money MONEY,
    a_thing
);
INSERT INTO every_type (id) VALUES (1);
INSERT INTO every_type VALUES (2, 1, 2, 3, 4, 5, 6, 7, 8, 'character', 'varchar', 'varying', 'nchar', 'native', 'nvarchar', 'text', 'clob', x'00ff', 1.5, 2.5, 3.5,
    4.5, 5.25, 12.5, TRUE, '2024-02-29', '12:34:56.789012', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56', '2024-02-29 12:34:56',
    '{"b": [1, 2.50, null, true, "ü"], "a": {"": {}}}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 12.5, 'a text');
-- The least, the greatest, and what is around zero.
INSERT INTO every_type (id, an_int, a_bigint, an_int8, a_real, a_double, a_numeric, a_decimal, a_boolean, a_uuid) VALUES
    (3, -2147483648, -9223372036854775808, -9223372036854775808, -1.7976931348623157e308, -1.7976931348623157e308, -9223372036854775808, -99999.99999, FALSE, '00000000-0000-0000-0000-000000000000'),
    (4, 2147483647, 9223372036854775807, 9223372036854775807, 1.7976931348623157e308, 1.7976931348623157e308, 9223372036854775807, 99999.99999, TRUE, 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
    (5, 0, 0, 0, 2.2250738585072014e-308, 2.2250738585072014e-308, 0, 0, NULL, NULL),
    (6, -1, -1, -1, 5e-324, 5e-324, 0.1, -0.00001, NULL, NULL),
    (7, NULL, NULL, NULL, -0.0, -0.0, -0.5, 0.1, NULL, NULL),
    (8, NULL, 9007199254740993, NULL, 9007199254740992.0, 0.1, 123456.125, 1, NULL, NULL);
INSERT INTO every_type (id, a_text, a_varchar, a_clob) VALUES
    (10, '', '', ''),
    (11, '  both  ends  ', ' x ', ' '),
    (12, '\N', '\N', '\N'),
    (13, '\.' || char(10) || '\.' || char(10), '\.', '\.'),
    (14, 'it''s "quoted" `so`, %s ? $1 :a {}', '''"`', '''"`'),
    (15, 'back\slash \\ \'' \n', '\', '\'),
    (16, 'tab' || char(9) || 'newline' || char(10) || 'return' || char(13) || 'both' || char(13, 10) || 'bell' || char(7, 27, 26), char(9, 10, 13), char(10)),
    (17, '😀𝒳🏳️‍🌈 �', '😀𝒳', '😀'),
    (18, 'e' || char(769) || ' is not ' || char(233) || ', ' || char(65279, 8203), 'e' || char(769), ''),
    (19, 'NULL', 'null', 'NULL'),
    (20, char(127, 128, 159, 8232), '20 characters,  four', '12'),
    (21, replace(hex(zeroblob(150000)), '0', '😀'), '1', '1e5');
INSERT INTO every_type (id, a_blob) VALUES (30, x''), (31, x'00'), (32, x'5c785c4e0a090d275c'), (33, zeroblob(100) || x'fffe');
UPDATE every_type SET a_blob = CAST(a_blob AS BLOB) WHERE id = 33;
INSERT INTO every_type (id, a_date, a_time, a_datetime, a_timestamp, a_timestamptz) VALUES
    (40, '0001-01-01', '00:00:00', '0001-01-01 00:00:00', '0001-01-01 00:00:00', '1001-01-01 00:00:00'),
    (41, '1970-01-01', '00:00:00.000001', '1970-01-01 00:00:00', '1970-01-01 00:00:00', '1970-01-01 00:00:00'),
    (42, '9999-12-31', '23:59:59.999999', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999'),
    (43, '1969-12-31', '23:59:59.1', '1969-12-31 23:59:59.999999', '2024-03-31 02:30:00', '2024-03-31 00:59:59.999999'),
    -- As other programs write moments: with a letter between, with a zone.
    (44, NULL, NULL, '2024-02-29T12:34:56.5', NULL, '2024-10-27T02:30:00+02:00'),
    (45, NULL, NULL, NULL, NULL, '2024-10-27 02:30:00+01:00'),
    (46, NULL, NULL, NULL, NULL, '2024-10-27T00:30:00Z');
INSERT INTO every_type (id, a_json) VALUES
    (60, 'null'),
    (61, '  [ ]  '),
    (62, '"\ud83d\ude00 😀 \"\\ \/"'),
    (63, '{"n": 123456789012345678901234567890.123456789012345678901234567890}'),
    (64, '[1e30, -0, 0.1, 1E-7, 18446744073709551616]'),
    (65, '{"a":{"b":{"c":{"d":[[[[[{"e":""}]]]]]}}}, "a": 1}');
-- What others cannot hold, or what is not what its column says.
INSERT INTO every_type (id, a_text) VALUES (100, 'a' || char(0) || 'b'), (101, CAST(x'61ff62' AS TEXT)), (102, x'6162');
INSERT INTO every_type (id, a_json) VALUES (103, '{"broken"');
INSERT INTO every_type (id, a_double) VALUES (104, 9e999), (105, -9e999), (106, 'a text');
INSERT INTO every_type (id, an_int) VALUES (107, 'a text'), (108, 1.5), (109, x'31');
INSERT INTO every_type (id, a_date) VALUES (110, 'soon'), (111, '2024-02-30'), (112, 20240229), (113, '10000-01-01');
INSERT INTO every_type (id, a_datetime) VALUES (114, '2024-02-29 25:00:00'), (115, 1709210096), (116, '2024-02-29 12:34:56.7890123');
INSERT INTO every_type (id, a_time) VALUES (117, '25:00:00'), (118, '12:34:56.7890123');
INSERT INTO every_type (id, a_boolean) VALUES (119, 2), (120, 'true');
INSERT INTO every_type (id, a_decimal) VALUES (121, 'a text'), (122, 1e300);
INSERT INTO every_type (id, a_uuid) VALUES (123, 'no uuid'), (124, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11');
INSERT INTO every_type (id, a_varchar) VALUES (125, 'longer than the twenty characters that are declared');
INSERT INTO every_type (id, a_tinyint) VALUES (126, 9223372036854775807);
INSERT INTO every_type (id, a_thing) VALUES (127, 5), (128, 1.5), (129, x'00'), (130, '007');
INSERT INTO every_type (id, a_money) VALUES (131, 'a text'), (132, 7);

-- Keys that differ by no more than case, accents or a space at the end.
CREATE TABLE spelled (word TEXT NOT NULL PRIMARY KEY, meaning INTEGER NOT NULL);
INSERT INTO spelled VALUES ('a', 1), ('A', 2), ('á', 3), ('a' || char(769), 4), ('a ', 5), ('a  ', 6), ('', 7), (' ', 8), ('ß', 9), ('ss', 10), ('SS', 11),
    ('Z', 12), ('z', 13), ('é', 14), ('e', 15), ('😀', 16), ('😁', 17), ('a' || char(9) || 'b', 18), ('a-b', 19), ('ab', 20), ('I', 21), ('ı', 22), ('i', 23), ('İ', 24);
INSERT INTO spelled WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 499)
    SELECT CASE i % 3 WHEN 0 THEN 'k' WHEN 1 THEN 'K' ELSE 'ḱ' END || i, i FROM n;
-- Keys in an order that is not that of their bytes.
CREATE TABLE sorted (word TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, meaning INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO sorted WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 499)
    SELECT CASE i % 3 WHEN 0 THEN 'k' WHEN 1 THEN 'K' ELSE 'Z' END || i, i FROM n;

CREATE TABLE "order ""by"" Größe 'x' `y` %s :a ?" (
    "select" INTEGER PRIMARY KEY,
    "a b" INTEGER NOT NULL,
    "it's" TEXT,
    "say ""hi""" TEXT,
    "back`tick" TEXT,
    "größe" TEXT,
    "表" TEXT,
    "100%s {} ? :name $1 \" TEXT,
    "a.b" TEXT
);
CREATE INDEX "an index of ""order""" ON "order ""by"" Größe 'x' `y` %s :a ?" ("a b", "select");
CREATE UNIQUE INDEX "b" ON "order ""by"" Größe 'x' `y` %s :a ?" ("a b");
INSERT INTO "order ""by"" Größe 'x' `y` %s :a ?" WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250)
    SELECT i, i, 'b', 'c', 'd', 'e', 'f', 'g', 'h' FROM n;

CREATE TABLE long_values (id INTEGER PRIMARY KEY AUTOINCREMENT, a_blob BLOB NOT NULL, a_text TEXT NOT NULL);
INSERT INTO long_values (a_blob, a_text) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2)
    SELECT CAST(replace(hex(zeroblob(1310720)), '00', 'ab''\') AS BLOB), replace(hex(zeroblob(200000)), '00', '\é''' || char(10)) FROM n;
