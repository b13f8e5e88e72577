"""A table of SQLite, read with Python's own module. What is stored counts, the declared type only says what it means."""

import sqlite3

import values
from table import Column, Table

# The first one whose word is part of the declared type says what it means.
MEANINGS = [
    ("BOOL", "bool"),
    ("JSON", "json"),
    ("UUID", "uuid"),
    ("GUID", "uuid"),
    ("DECIMAL", "decimal"),
    ("NUMERIC", "decimal"),
    ("INT", "int"),
    # All 64 bits without a sign: integers as long as they are some, and texts beyond.
    ("UNSIGNED BIG BLOB", "int"),
    ("TIMESTAMPTZ", "instant"),
    ("WITH TIME ZONE", "instant"),
    ("INSTANT", "instant"),
    ("DATETIME", "datetime"),
    ("TIMESTAMP", "datetime"),
    ("DATE", "date"),
    ("TIME", "time"),
    ("CHAR", "text"),
    ("CLOB", "text"),
    ("TEXT", "text"),
    ("BLOB", "bytes"),
    ("FLOAT4", "float32"),
    ("REAL", "float64"),
    ("FLOA", "float64"),
    ("DOUB", "float64"),
]


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Text(bytes):
    """What SQLite calls text, which is any bytes at all."""


class Sqlite:
    def __init__(self, url):
        path = url.removeprefix("sqlite:").removeprefix("//")
        self.connection = sqlite3.connect(f"file:{path.replace('?', '%3f').replace('#', '%23')}?mode=ro", uri=True)

    def table(self, name):
        name = name[1:-1].replace('""', '"') if name.startswith('"') else name
        described = self.connection.execute("SELECT name, type, \"notnull\", pk FROM pragma_table_info(?)", [name])
        columns, primary = [], []
        for column, declared, filled, position in described:
            words = declared.upper()
            meaning = next((meaning for word, meaning in MEANINGS if word in words), "other")
            columns.append(Column(column, declared, meaning, not filled))
            if position:
                primary.append((position, column))
        indexes = []
        listed = 'SELECT name, "unique", origin, partial FROM pragma_index_list(?)'
        for index, unique, origin, partial in self.connection.execute(listed, [name]).fetchall():
            names = [row[0] for row in self.connection.execute("SELECT name FROM pragma_index_info(?)", [index])]
            if origin != "pk" and not partial and None not in names:
                indexes.append((bool(unique), names))
        self.connection.text_factory = Text
        rows = self.connection.execute(f"SELECT {', '.join(quoted(c.name) for c in columns)} FROM {quoted(name)}")
        table = Table(columns, [column for _, column in sorted(primary)], indexes, rows.fetchall())
        self.connection.text_factory = str
        return table

    def value(self, raw, column, meaning):
        stored = "text" if isinstance(raw, Text) else {int: "integer", float: "real", bytes: "blob"}[type(raw)]
        if meaning == "verbatim":
            return raw if stored == "integer" else (stored, repr(raw))
        if stored == "text":
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                raise values.Unreadable(f"text that is not UTF-8: {raw[:100]!r}") from None
            if meaning not in ("bytes", "float32", "float64", "bool"):
                return values.from_text(meaning, text)
        if (meaning, stored) == ("bytes", "blob"):
            return bytes(raw)
        if (meaning, stored) in (("bool", "integer"), ("int", "integer"), ("decimal", "integer")):
            return values.from_text(meaning, str(raw))
        if meaning in ("float32", "float64") and stored == "real":
            return values.from_text(meaning, repr(raw))
        if meaning == "other" and column.declared and stored in ("integer", "real"):
            return repr(raw)
        if (meaning, stored) == ("decimal", "real"):
            return values.number(repr(raw))
        raise values.Unreadable(f"{stored} {raw!r:.100} in a column that means {meaning}")
