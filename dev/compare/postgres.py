"""A table of PostgreSQL, read through libpq in its text format."""

import psycopg

import values
from table import Column, Table, name_parts

MEANINGS = {
    "boolean": "bool",
    "smallint": "int",
    "integer": "int",
    "bigint": "int",
    "oid": "int",
    "real": "float32",
    "double precision": "float64",
    "numeric": "decimal",
    "money": "decimal",
    "text": "text",
    "character varying": "text",
    "character": "text",
    "name": "text",
    "bytea": "bytes",
    "date": "date",
    "time without time zone": "time",
    "timestamp without time zone": "datetime",
    "timestamp with time zone": "instant",
    "json": "json",
    "jsonb": "json",
    "uuid": "uuid",
}

COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, coalesce(b.oid::regtype, t.oid::regtype)::text,
       t.typtype
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = nullif(t.typbasetype, 0)
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
INDEXES = """
SELECT i.indisprimary, i.indisunique,
       (SELECT string_agg(a.attname, chr(1) ORDER BY k.at) FROM unnest(i.indkey) WITH ORDINALITY k(number, at)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.at <= i.indnkeyatts)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
WHERE i.indrelid = $1::regclass AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid AND m.amname = 'btree'
"""


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Postgres:
    def __init__(self, url):
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SET TimeZone TO 'UTC'")
        self.connection.execute("SET DateStyle TO 'ISO, YMD'")
        self.connection.execute("SET IntervalStyle TO 'postgres'")
        self.connection.execute("SET bytea_output TO 'hex'")

    def ask(self, sql, parameters=()):
        result = self.connection.pgconn.exec_params(sql.encode(), [parameter.encode() for parameter in parameters])
        if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
            raise RuntimeError(result.error_message.decode(errors="replace"))
        width = range(result.nfields)
        return [[result.get_value(row, column) for column in width] for row in range(result.ntuples)]

    def table(self, name):
        named = ".".join(quoted(part) for part in name_parts(name) if part)
        texts = lambda rows: [[value if value is None else value.decode() for value in row] for row in rows]
        columns = [
            Column(
                name=column,
                declared=declared,
                meaning="text" if typtype == "e" else MEANINGS.get(base, "other"),
                nullable=nullable == "t",
                padded=base == "character",
            )
            for column, declared, nullable, base, typtype in texts(self.ask(COLUMNS, [named]))
        ]
        indexes = texts(self.ask(INDEXES, [named]))
        return Table(
            columns=columns,
            primary=next((names.split("\1") for primary, _, names in indexes if primary == "t"), []),
            indexes=[(unique == "t", names.split("\1")) for primary, unique, names in indexes if primary == "f"],
            rows=self.ask(f"SELECT {', '.join(quoted(column.name) for column in columns) or '1'} FROM {named}"),
        )

    def value(self, raw, column, meaning):
        text = raw.decode()
        if meaning == "verbatim":
            return text
        if meaning == "bytes":
            if not text.startswith("\\x"):
                raise values.Unreadable(f"{text[:100]!r} is not bytes")
            return bytes.fromhex(text[2:])
        if column.declared == "money":
            text = text.replace("$", "").replace(",", "")
        return values.from_text(meaning, text)
