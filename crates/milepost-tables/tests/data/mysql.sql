-- Every type of MariaDB, and values that copiers break. Rows from 100 on are those that some other database cannot hold.
SET NAMES utf8mb4;
SET time_zone = '+00:00';
CREATE TABLE every_type (
    id INT PRIMARY KEY,
    a_bool BOOL,
    a_tinyint TINYINT,
    an_unsigned_tinyint TINYINT UNSIGNED,
    a_smallint SMALLINT,
    an_unsigned_smallint SMALLINT UNSIGNED,
    a_mediumint MEDIUMINT,
    an_unsigned_mediumint MEDIUMINT UNSIGNED,
    an_int INT,
    an_unsigned_int INT(8) UNSIGNED ZEROFILL,
    a_bigint BIGINT,
    an_unsigned_bigint BIGINT UNSIGNED,
    a_decimal DECIMAL(10, 2),
    a_large_decimal DECIMAL(65, 30),
    an_unsigned_decimal DECIMAL(20, 0) UNSIGNED,
    a_float FLOAT,
    a_double DOUBLE,
    a_bit BIT,
    many_bits BIT(64),
    a_char CHAR(5),
    a_varchar VARCHAR(20),
    a_latin VARCHAR(20) CHARACTER SET latin1,
    a_binary BINARY(4),
    a_varbinary VARBINARY(255),
    a_tinytext TINYTEXT,
    a_text TEXT,
    a_mediumtext MEDIUMTEXT,
    a_longtext LONGTEXT,
    a_tinyblob TINYBLOB,
    a_blob BLOB,
    a_mediumblob MEDIUMBLOB,
    a_longblob LONGBLOB,
    an_enum ENUM('sad', 'it''s ok', 'glücklich'),
    a_set SET('a', 'b c', 'd'),
    a_date DATE,
    a_time TIME(6),
    a_time_0 TIME,
    a_datetime DATETIME(6),
    a_datetime_3 DATETIME(3),
    a_timestamp TIMESTAMP(6) NULL,
    a_timestamp_0 TIMESTAMP NULL,
    a_year YEAR,
    a_json JSON,
    a_uuid UUID,
    an_inet6 INET6,
    a_sum BIGINT AS (CAST(a_smallint AS SIGNED) + an_int) STORED,
    a_virtual INT AS (a_tinyint * 2) VIRTUAL
) CHARACTER SET utf8mb4;
INSERT INTO every_type (id) VALUES (1);
INSERT INTO every_type (id, a_bool, a_tinyint, an_unsigned_tinyint, a_smallint, an_unsigned_smallint, a_mediumint, an_unsigned_mediumint, an_int,
    an_unsigned_int, a_bigint, an_unsigned_bigint, a_decimal, a_large_decimal, an_unsigned_decimal, a_float, a_double, a_bit, many_bits) VALUES
    (2, TRUE, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12.50, 1.5, 11, 1.5, 2.5, b'1', b'101'),
    -- The least, the greatest, and what is around zero.
    (3, FALSE, -128, 0, -32768, 0, -8388608, 0, -2147483648, 0, -9223372036854775808, 0, -99999999.99,
        -99999999999999999999999999999999999.999999999999999999999999999999, 0, -3.4028234e38, -1.7976931348623157e308, b'0', 0),
    (4, TRUE, 127, 255, 32767, 65535, 8388607, 16777215, 0, 4294967295, 9223372036854775807, 18446744073709551615, 99999999.99,
        99999999999999999999999999999999999.999999999999999999999999999999, 99999999999999999999, 3.4028234e38, 1.7976931348623157e308, NULL, 18446744073709551615),
    (5, NULL, 0, NULL, 0, NULL, 0, NULL, 2147483647, NULL, 0, 9223372036854775808, 0, 0.000000000000000000000000000001, NULL, 1.1754944e-38, 2.2250738585072014e-308, NULL, NULL),
    (6, NULL, -1, NULL, -1, NULL, -1, NULL, -1, NULL, -1, 9223372036854775807, -0.01, -0.000000000000000000000000000001, NULL, 1e-45, 5e-324, NULL, NULL),
    (7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.10, 0.10, NULL, -0e0, -0e0, NULL, NULL),
    (8, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 9007199254740993, 9007199254740993, 1, 12345678901234567890, NULL, 16777216, 9007199254740993, NULL, NULL),
    (9, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1.01, 0.1, NULL, 0.1, 0.1, NULL, NULL);
-- Texts: empty, spaces at both ends, what formats use as marks, planes beyond the first, letters with and without a mark of their own.
INSERT INTO every_type (id, a_text, a_varchar, a_char, a_tinytext, a_mediumtext, a_longtext, a_latin, an_enum, a_set) VALUES
    (10, '', '', '', '', '', '', '', 'sad', ''),
    (11, '  both  ends  ', ' x ', 'a', ' ', ' ', ' ', ' ü ', 'glücklich', 'a,b c,d'),
    (12, '\\N', '\\N', '\\N', '\\N', '\\N', '\\N', '\\N', 'it''s ok', 'b c'),
    (13, '\\.\n\\.\n', '\\.', '\\.', '\\.', '\\.', '\\.', '\\.', NULL, NULL),
    (14, 'it''s "quoted" `so`, %s ? $1 :a {}', '\'"`', '\'"`', '\'"`', '\'"`', '\'"`', '\'"`', NULL, NULL),
    (15, 'back\\slash \\\\ \\\' \\n', '\\', '\\', '\\', '\\', '\\', '\\', NULL, NULL),
    (16, 'tab\tnewline\nreturn\rboth\r\nend\Z', '\t\n\r', '\n', '\n', '\n', '\n', '\n', NULL, NULL),
    (17, '😀𝒳🏳️‍🌈 �', '😀𝒳', '😀', '😀', '😀', '😀', 'é', NULL, NULL),
    (18, CONVERT(UNHEX('65CC81206973206E6F7420C3A92C20EFBBBFE2808B') USING utf8mb4), CONVERT(UNHEX('65CC81') USING utf8mb4), NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (19, 'NULL', 'null', 'NULL', 'NULL', 'NULL', 'NULL', 'NULL', NULL, NULL),
    (20, CONVERT(UNHEX('7FC280C29FE280A8') USING utf8mb4), '20 characters,  four', 'abcde', NULL, NULL, NULL, '€', NULL, NULL),
    (21, NULL, REPEAT('😀', 20), REPEAT('😀', 5), REPEAT('😀', 60), REPEAT('😀', 300000), REPEAT('😀', 300000), NULL, NULL, NULL);
INSERT INTO every_type (id, a_binary, a_varbinary, a_tinyblob, a_blob, a_mediumblob, a_longblob) VALUES
    (30, '', '', '', '', '', ''),
    (31, x'00', x'00', x'00', x'00', x'00', x'00'),
    (32, x'5c4e0a27', x'5c785c4e0a090d275c', x'5c785c4e0a090d275c', x'5c785c4e0a090d275c', x'5c785c4e0a090d275c', x'5c785c4e0a090d275c'),
    (33, 'a b ', (SELECT GROUP_CONCAT(CHAR(seq - 1) ORDER BY seq SEPARATOR '') FROM seq_1_to_255), x'ff', x'ff', x'ff', x'ff');
INSERT INTO every_type (id, a_date, a_time, a_time_0, a_datetime, a_datetime_3, a_year) VALUES
    (40, '0001-01-01', '00:00:00', '00:00:00', '0001-01-01 00:00:00', '0001-01-01', 1901),
    (41, '1970-01-01', '00:00:00.000001', '00:00:01', '1970-01-01 00:00:00', '1970-01-01', 2155),
    (42, '9999-12-31', '23:59:59.999999', '23:59:59', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999', 0),
    (43, '1969-12-31', '23:59:59.1', '12:00:00', '1969-12-31 23:59:59.999999', NULL, 2024),
    (44, '1582-10-10', '12:00:00', NULL, '2024-03-31 02:30:00', NULL, NULL);
-- One moment in several zones, and both sides of the changes to summer time and back.
INSERT INTO every_type (id, a_timestamp, a_timestamp_0) VALUES
    (45, '1970-01-01 00:00:01', '1970-01-01 00:00:01'),
    (46, '2038-01-19 03:14:07.999999', '2038-01-19 03:14:07'),
    (47, '2024-03-31 00:59:59.999999', '2024-03-31 01:00:00');
SET time_zone = '+02:00';
INSERT INTO every_type (id, a_timestamp, a_timestamp_0) VALUES (48, '2024-10-27 02:30:00', '2024-10-27 02:30:00');
SET time_zone = '-04:30';
INSERT INTO every_type (id, a_timestamp, a_timestamp_0) VALUES (49, '2024-10-26 20:00:00', '2024-10-26 20:00:00');
SET time_zone = '+00:00';
INSERT INTO every_type (id, a_json, a_uuid, an_inet6) VALUES
    (60, 'null', '00000000-0000-0000-0000-000000000000', '::'),
    (61, '  [ ]  ', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'),
    (62, '"\\ud83d\\ude00 😀 \\"\\\\ \\/"', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '2001:db8::1'),
    (63, '123456789012345678901234567890.123456789012345678901234567890', NULL, '::ffff:10.0.0.1'),
    (64, '[1e30, -0, 0.1, 1E-7, 18446744073709551616]', NULL, NULL),
    (65, '{"a":{"b":{"c":{"d":[[[[[{"e":""}]]]]]}}}, "a": 1}', NULL, NULL);
-- What others cannot hold.
SET sql_mode = 'ALLOW_INVALID_DATES';
INSERT INTO every_type (id, a_text) VALUES (100, 'a\0b');
INSERT INTO every_type (id, a_json) VALUES (101, '"\\u0000"');
INSERT INTO every_type (id, a_date) VALUES (110, '0000-00-00'), (111, '2024-00-00'), (112, '2024-02-30'), (113, '0000-01-01');
INSERT INTO every_type (id, a_datetime) VALUES (114, '0000-00-00 00:00:00'), (115, '2024-06-31 10:00:00');
INSERT INTO every_type (id, a_timestamp) VALUES (116, '0000-00-00 00:00:00');
INSERT INTO every_type (id, a_time) VALUES (117, '838:59:59'), (118, '-838:59:59.999999'), (119, '24:00:00'), (120, '-00:00:01'), (121, '24:00:00.000001');
INSERT INTO every_type (id, a_bool) VALUES (122, 5), (123, -1);
INSERT INTO every_type (id, an_enum) VALUES (124, 'none of them');
SET sql_mode = DEFAULT;

-- Keys that differ by no more than case, accents or a space at the end.
CREATE TABLE spelled (word VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, meaning INT NOT NULL);
INSERT INTO spelled VALUES ('a', 1), ('A', 2), ('á', 3), (CONVERT(UNHEX('61CC81') USING utf8mb4), 4), ('a ', 5), ('a  ', 6), ('', 7), (' ', 8), ('ß', 9), ('ss', 10), ('SS', 11),
    ('Z', 12), ('z', 13), ('é', 14), ('e', 15), ('😀', 16), ('😁', 17), ('a\tb', 18), ('a-b', 19), ('ab', 20), ('I', 21), ('ı', 22), ('i', 23), ('İ', 24);
INSERT INTO spelled SELECT CONCAT(ELT(1 + seq MOD 3, 'k', 'K', 'ḱ'), seq), seq FROM seq_100_to_499;
-- Keys in an order that is not that of their bytes.
CREATE TABLE sorted (word VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY, meaning INT NOT NULL);
INSERT INTO sorted SELECT CONCAT(ELT(1 + seq MOD 4, 'k', 'K', 'ḱ', 'Z'), seq), seq FROM seq_100_to_499;

CREATE TABLE `order "by" Größe 'x' ``y`` %s :a ?` (
    `select` INT PRIMARY KEY,
    `a b` INT NOT NULL,
    `it's` TEXT,
    `say "hi"` TEXT,
    `back``tick` TEXT,
    `größe` TEXT,
    `表` TEXT,
    `100%s {} ? :name $1 \` TEXT,
    `a.b` TEXT,
    INDEX `an index of "order"` (`a b`, `select`),
    UNIQUE INDEX `b` (`a b`)
) CHARACTER SET utf8mb4;
INSERT INTO `order "by" Größe 'x' ``y`` %s :a ?` SELECT seq, seq, 'b', 'c', 'd', 'e', 'f', 'g', 'h' FROM seq_1_to_250;

CREATE TABLE a_name_as_long_as_mariadb_allows_it_to_be_is_sixty_four_characte (id INT PRIMARY KEY, v VARCHAR(50) NOT NULL,
    INDEX an_index_named_as_long_as_mariadb_allows_it_is_sixty_four_charac (id, v)) CHARACTER SET utf8mb4;
INSERT INTO a_name_as_long_as_mariadb_allows_it_to_be_is_sixty_four_characte VALUES (1, 'x');

CREATE TABLE long_values (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, a_blob LONGBLOB NOT NULL, a_text LONGTEXT NOT NULL) CHARACTER SET utf8mb4;
INSERT INTO long_values (a_blob, a_text) SELECT REPEAT(x'005cff0a27', 1048576), REPEAT('\\é''\n', 200000) FROM seq_1_to_2;
