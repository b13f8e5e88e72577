-- Every type of PostgreSQL, and values that copiers break. Rows from 100 on are those that some other database cannot hold.
CREATE TABLE every_type (
    id integer PRIMARY KEY,
    a_boolean boolean,
    a_smallint smallint,
    an_integer integer,
    a_bigint bigint,
    a_real real,
    a_double double precision,
    a_numeric numeric,
    a_price numeric(10, 2),
    a_large_numeric numeric(65, 30),
    a_thousand numeric(6, -3),
    a_text text,
    a_varchar varchar(20),
    a_char char(5),
    a_bytea bytea,
    a_date date,
    a_time time,
    a_time_3 time(3),
    a_timetz timetz,
    a_timestamp timestamp,
    a_timestamp_3 timestamp(3),
    a_timestamptz timestamptz,
    a_timestamptz_0 timestamptz(0),
    an_interval interval,
    a_json json,
    a_jsonb jsonb,
    a_uuid uuid,
    an_enum mood,
    a_domain postcode,
    a_composite pair,
    an_oid oid,
    an_inet inet,
    a_cidr cidr,
    a_macaddr macaddr,
    a_bit bit(5),
    a_varbit varbit,
    a_money money,
    an_xml xml,
    a_tsvector tsvector,
    a_point point,
    a_polygon polygon,
    an_int4range int4range,
    a_tstzrange tstzrange,
    some_integers integer[],
    some_texts text[][],
    a_sum bigint GENERATED ALWAYS AS (a_smallint::bigint + an_integer) STORED
);
INSERT INTO every_type (id) VALUES (1);
INSERT INTO every_type VALUES (2, true, 1, 2, 3, 1.5, 2.5, 12.50, 12.50, 1.5, 12000, 'text', 'varchar', 'char', '\x00ff', '2024-02-29',
    '12:34:56.789012', '12:34:56.789', '12:34:56+02', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789',
    '2024-02-29 12:34:56.789012+02', '2024-02-29 12:34:56-05', '1 year 2 mons 3 days 04:05:06.7',
    '{"b": [1, 2.50, null, true, "ü\u0000x"], "a": {"": {}}, "a": 1}', '{"b": [1, 2.50, null, true, "ü"], "a": {"": {}}}',
    'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'it''s ok', '0123', ROW(1, 'x,"y"'), 4294967295, '10.0.0.1/8', '2001:db8::/32', '08:00:2b:01:02:03',
    B'10101', B'', 1234.56, '<a b="c">&amp;</a>', 'a:1 fat:2 cat:3', '(1.5,-2)', '((0,0),(1,1),(1,0))', '[1,5)',
    '[2024-01-01 00:00:00+00,2024-03-31 03:00:00+02)', '{1,NULL,-3}', '{{"a","b,c"},{"\"","NULL"}}');
-- The least, the greatest, and what is around zero.
INSERT INTO every_type (id, a_boolean, a_smallint, an_integer, a_bigint, a_real, a_double, a_numeric, a_price, a_large_numeric, a_uuid, an_oid) VALUES
    (3, false, -32768, -2147483648, -9223372036854775808, -3.4028235e38, -1.7976931348623157e308, -99999999999999999999999999999999999.999999999999999999999999999999, -99999999.99,
        -99999999999999999999999999999999999.999999999999999999999999999999, '00000000-0000-0000-0000-000000000000', 0),
    (4, true, 32767, 0, 9223372036854775807, 3.4028235e38, 1.7976931348623157e308, 99999999999999999999999999999999999.999999999999999999999999999999, 99999999.99,
        99999999999999999999999999999999999.999999999999999999999999999999, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 1),
    (5, NULL, 0, 2147483647, 0, 1.1754944e-38, 2.2250738585072014e-308, 0, 0, 0.000000000000000000000000000001, NULL, NULL),
    (6, NULL, -1, 0, -1, 1e-45, 5e-324, -0.000000000000000000000000000001, -0.01, -0.000000000000000000000000000001, NULL, NULL),
    (7, NULL, NULL, NULL, NULL, '-0', '-0', 0.10, 0.10, 0.10, NULL, NULL),
    (8, NULL, NULL, NULL, 9007199254740993, 16777217, 9007199254740993, 1e20, 1, 12345678901234567890, NULL, NULL),
    (9, NULL, NULL, NULL, NULL, 0.1, 0.1, 123456789.1234567890, 1.005, 0.1, NULL, NULL);
-- Texts: empty, spaces at both ends, what formats use as marks, planes beyond the first, letters with and without a mark of their own.
INSERT INTO every_type (id, a_text, a_varchar, a_char, an_enum) VALUES
    (10, '', '', '', 'sad'),
    (11, '  both  ends  ', ' x ', 'a ', 'glücklich'),
    (12, E'\\N', E'\\N', E'\\N', NULL),
    (13, E'\\.\n\\.\n', E'\\.', E'\\.', NULL),
    (14, E'it''s "quoted" `so`, %s ? $1 :a {}', E'''"`', E'''"`', NULL),
    (15, E'back\\slash \\\\ \\'' \\n', E'\\', E'\\', NULL),
    (16, E'tab\tnewline\nreturn\rboth\r\nfeed\fbell\x07escape\x1b', E'\t\n\r', E'\n', NULL),
    (17, '😀𝒳🏳️‍🌈 �', '😀𝒳', '😀', NULL),
    (18, E'e\u0301 is not \u00e9, \ufeff\u200b', E'e\u0301', E'e\u0301', NULL),
    (19, 'NULL', 'null', 'NULL', NULL),
    (20, E'\x7f\u0080\u009f\u2028', '20 characters,  four', 'abcde', NULL),
    (21, repeat('😀', 300000), repeat('😀', 20), repeat('😀', 5), NULL);
INSERT INTO every_type (id, a_bytea) VALUES
    (30, ''),
    (31, '\x00'),
    (32, '\x5c785c4e0a090d275c'),
    (33, (SELECT decode(string_agg(lpad(to_hex(i), 2, '0'), '' ORDER BY i), 'hex') FROM generate_series(0, 255) AS i));

INSERT INTO every_type (id, a_date, a_time, a_timestamp, a_timestamptz, a_timestamptz_0, a_timestamp_3) VALUES
    (40, '0001-01-01', '00:00:00', '0001-01-01 00:00:00', '0001-01-01 00:00:00+00', '0001-01-01 00:00:00+00', '0001-01-01'),
    (41, '1970-01-01', '00:00:00.000001', '1970-01-01 00:00:00', '1970-01-01 00:00:00+00', '1970-01-01 00:00:00+00', '1970-01-01'),
    (42, '9999-12-31', '23:59:59.999999', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '9999-12-31 23:59:59+00', '9999-12-31 23:59:59.999'),
    (43, '1969-12-31', '23:59:59.1', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999+00', '1969-12-31 23:59:59+00', NULL),
    (44, '1582-10-10', '12:00:00', '1900-02-28 23:59:59', '2038-01-19 03:14:08+00', '2106-02-07 06:28:16+00', NULL),
    -- One moment in four zones, and both sides of the changes to summer time and back.
    (45, NULL, NULL, '2024-03-31 02:30:00', '2024-03-31 02:59:59+02', '2024-03-31 00:59:59+00', NULL),
    (46, NULL, NULL, '2024-10-27 02:30:00', '2024-10-27 02:30:00 Europe/Berlin', '2024-10-27 02:30:00+02', NULL),
    (47, NULL, NULL, NULL, '2024-10-27 02:30:00+02', '2024-10-27 02:30:00+01', NULL),
    (48, NULL, NULL, NULL, '2024-10-27 05:45:00.5+05:15', '2024-11-03 01:30:00 America/New_York', NULL),
    (49, NULL, NULL, NULL, '1890-01-01 00:00:00 Europe/Amsterdam', NULL, NULL);
INSERT INTO every_type (id, a_json, a_jsonb) VALUES
    (60, 'null', 'null'),
    (61, '  [ ]  ', '[]'),
    (62, '"\ud83d\ude00 😀 \"\\ \/"', '"\ud83d\ude00 😀 \"\\ \/"'),
    (63, '123456789012345678901234567890.123456789012345678901234567890', '123456789012345678901234567890.123456789012345678901234567890'),
    (64, '[1e30, -0, 0.1, 1E-7, 18446744073709551616]', '[1e30, -0, 0.1, 1E-7, 18446744073709551616]'),
    (65, '{"a":{"b":{"c":{"d":[[[[[{"e":""}]]]]]}}}}', '{"a":{"b":{"c":{"d":[[[[[{"e":""}]]]]]}}}}');
-- What others cannot hold.
INSERT INTO every_type (id, a_double) VALUES (100, 'NaN'), (101, 'Infinity'), (102, '-Infinity');
INSERT INTO every_type (id, a_real) VALUES (103, 'NaN'), (104, 'Infinity');
INSERT INTO every_type (id, a_numeric) VALUES (105, 'NaN'), (106, 'Infinity'), (107, '1e100'::numeric + 1), (108, 1e-31), (109, '123456789012345678901234567890123456');
INSERT INTO every_type (id, a_date) VALUES (110, 'infinity'), (111, '0044-03-15 BC'), (112, '10000-01-01'), (113, '-infinity');
INSERT INTO every_type (id, a_timestamp) VALUES (114, 'infinity'), (115, '10000-01-01 00:00:00');
INSERT INTO every_type (id, a_timestamptz) VALUES (116, '-infinity'), (117, '10000-01-01 00:00:00+00'), (118, '0001-01-01 00:00:00+14');
INSERT INTO every_type (id, a_time) VALUES (119, '24:00:00');

-- Keys that differ by no more than case, accents or a space at the end; read in an order that is not that of their bytes.
CREATE TABLE spelled (word text COLLATE "und-x-icu" PRIMARY KEY, meaning integer NOT NULL);
INSERT INTO spelled VALUES ('a', 1), ('A', 2), ('á', 3), (E'a\u0301', 4), ('a ', 5), ('a  ', 6), ('', 7), (' ', 8), ('ß', 9), ('ss', 10), ('SS', 11),
    ('Z', 12), ('z', 13), ('é', 14), ('e', 15), ('😀', 16), ('😁', 17), (E'a\tb', 18), ('a-b', 19), ('ab', 20), ('I', 21), ('ı', 22), ('i', 23), ('İ', 24);
INSERT INTO spelled SELECT (ARRAY['k', 'K', 'ḱ'])[1 + i % 3] || i, i FROM generate_series(100, 499) AS i;

CREATE TABLE "order ""by"" Größe 'x' `y` %s :a ?" (
    "select" integer PRIMARY KEY,
    "a b" integer NOT NULL,
    "it's" text,
    "say ""hi""" text,
    "back`tick" text,
    "größe" text,
    "表" text,
    "100%s {} ? :name $1 \" text,
    "a.b" text
);
CREATE INDEX "an index of ""order""" ON "order ""by"" Größe 'x' `y` %s :a ?" ("a b", "select");
CREATE UNIQUE INDEX "b" ON "order ""by"" Größe 'x' `y` %s :a ?" ("a b");
INSERT INTO "order ""by"" Größe 'x' `y` %s :a ?" SELECT i, i, 'b', 'c', 'd', 'e', 'f', 'g', 'h' FROM generate_series(1, 250) AS i;

CREATE TABLE a_name_as_long_as_postgresql_allows_it_to_be_is_sixty_three_byt (id integer PRIMARY KEY, v text NOT NULL);
CREATE INDEX an_index_named_as_long_as_postgresql_allows_it_is_sixty_three_b ON a_name_as_long_as_postgresql_allows_it_to_be_is_sixty_three_byt (id, v);
ALTER TABLE a_name_as_long_as_postgresql_allows_it_to_be_is_sixty_three_byt ALTER COLUMN v TYPE varchar(50);
INSERT INTO a_name_as_long_as_postgresql_allows_it_to_be_is_sixty_three_byt VALUES (1, 'x');

CREATE TABLE long_values (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, a_bytea bytea NOT NULL, a_text text NOT NULL);
INSERT INTO long_values (a_bytea, a_text)
    SELECT decode(repeat('005cff0a27', 1048576), 'hex'), repeat(E'\\é''\n', 200000) FROM generate_series(1, 2);
