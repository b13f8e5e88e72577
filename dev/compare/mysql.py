"""A table of MySQL or MariaDB, read with PyMySQL, as the bytes that the server sends."""

import pymysql

import values
from table import Column, Table, name_parts, server

MEANINGS = {
    "tinyint": "int",
    "smallint": "int",
    "mediumint": "int",
    "int": "int",
    "bigint": "int",
    "year": "int",
    "float": "float32",
    "double": "float64",
    "decimal": "decimal",
    "char": "text",
    "varchar": "text",
    "tinytext": "text",
    "text": "text",
    "mediumtext": "text",
    "longtext": "text",
    "enum": "text",
    "set": "text",
    "binary": "bytes",
    "varbinary": "bytes",
    "tinyblob": "bytes",
    "blob": "bytes",
    "mediumblob": "bytes",
    "longblob": "bytes",
    "bit": "int",
    "date": "date",
    "time": "time",
    "datetime": "datetime",
    "timestamp": "instant",
    "json": "json",
    "uuid": "uuid",
    "geometry": "bytes",
    "point": "bytes",
}

COLUMNS = """
SELECT column_name, column_type, data_type, is_nullable FROM information_schema.columns
WHERE table_schema = coalesce(%s, database()) AND table_name = %s ORDER BY ordinal_position
"""
# MariaDB keeps JSON as a text with a check.
DOCUMENTS = """
SELECT check_clause FROM information_schema.check_constraints
WHERE constraint_schema = coalesce(%s, database()) AND table_name = %s
"""
INDEXES = """
SELECT index_name, min(non_unique), group_concat(column_name ORDER BY seq_in_index SEPARATOR '\1'), count(sub_part)
FROM information_schema.statistics
WHERE table_schema = coalesce(%s, database()) AND table_name = %s AND index_type = 'BTREE' GROUP BY index_name
"""


def quoted(name):
    return "`" + name.replace("`", "``") + "`"


class Mysql:
    def __init__(self, url):
        host, port, user, password, database = server(url)
        self.connection = pymysql.connect(
            host=host,
            port=port or 3306,
            user=user,
            password=password,
            database=database,
            charset="utf8mb4",
            use_unicode=False,
            conv={},
        )
        self.ask("SET SESSION time_zone = '+00:00', SESSION group_concat_max_len = 100000")

    def ask(self, sql, parameters=None):
        with self.connection.cursor() as cursor:
            literal = [None if part is None else self.connection.escape_string(part) for part in parameters or []]
            words = tuple("NULL" if part is None else f"'{part}'" for part in literal)
            cursor.execute(sql % words if words else sql)
            return cursor.fetchall()

    def table(self, name):
        parts = name_parts(name)
        named = ".".join(quoted(part) for part in parts if part)
        texts = lambda rows: [[value if value is None else value.decode() for value in row] for row in rows]
        is_mariadb = "MariaDB" in texts(self.ask("SELECT version()"))[0][0]
        checks = {check for (check,) in texts(self.ask(DOCUMENTS, parts))} if is_mariadb else set()
        columns = []
        for column, declared, data_type, nullable in texts(self.ask(COLUMNS, parts)):
            meaning = MEANINGS.get(data_type, "other")
            if declared in ("tinyint(1)", "bit(1)"):
                meaning = "bool"
            if f"json_valid({quoted(column)})" in checks:
                meaning = "json"
            columns.append(Column(column, declared, meaning, nullable == "YES", padded=data_type == "char"))
        indexes = [
            (index, (unique == "0", names.split("\1")))
            for index, unique, names, parts_only in texts(self.ask(INDEXES, parts))
            if parts_only == "0"
        ]
        # Only as a double does the server say all digits of a float.
        shown = lambda column: quoted(column.name) + (" * 1e0" if column.meaning == "float32" else "")
        return Table(
            columns=columns,
            primary=next((names for index, (_, names) in indexes if index == "PRIMARY"), []),
            indexes=[index for name, index in indexes if name != "PRIMARY"],
            rows=self.ask(f"SELECT {', '.join(map(shown, columns))} FROM {named}"),
        )

    def value(self, raw, column, meaning):
        if meaning == "verbatim":
            # Two that differ differ in this as well, and a person can read it.
            return raw.decode(errors="surrogateescape")
        if meaning == "bytes":
            return raw
        if column.declared.startswith("bit("):
            raw = str(int.from_bytes(raw, "big")).encode()
        return values.from_text(meaning, raw.decode())
