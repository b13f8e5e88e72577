"""Compares tables with their copies; see dev/compare-tables."""

import argparse
import collections
import json
import sys

import values
from mysql import Mysql
from postgres import Postgres
from sqlite import Sqlite

SHOWN = 10


def database(url):
    scheme = url.split(":")[0]
    kinds = {"sqlite": Sqlite, "postgres": Postgres, "postgresql": Postgres, "mysql": Mysql, "mariadb": Mysql}
    return kinds[scheme](url)


def structure(source, target):
    """What differs in keys, indexes and nullability."""
    filled = lambda table: {c.name: not c.nullable or c.name in table.primary for c in table.columns}
    before, after = filled(source), filled(target)
    for name in before:
        if before[name] != after[name]:
            yield f"column {name!r} is {'NOT NULL' if before[name] else 'nullable'}, its copy is not"
    if source.primary != target.primary:
        yield f"the primary key is {source.primary}, of the copy {target.primary}"
    sorted_indexes = lambda table: sorted(table.indexes)
    if sorted_indexes(source) != sorted_indexes(target):
        yield f"the indexes are {sorted_indexes(source)}, of the copy {sorted_indexes(target)}"


def meanings(source, target, same_kind):
    """The meaning of each column, and what is wrong with what the copy declares."""
    found, wrong = [], []
    for before, after in zip(source.columns, target.columns):
        meaning = before.meaning
        if same_kind and before.declared == after.declared:
            meaning = "verbatim"
        elif after.meaning not in values.MAY_STAND_FOR.get(meaning, {meaning}) | {meaning}:
            wrong.append(f"column {before.name!r} is {before.declared}, which {after.declared} cannot stand for")
        found.append(meaning)
    return found, wrong


def read(side, table, found, padded, negative_zeros):
    """Rows as what they mean."""
    for row in table.rows:
        meant = []
        for raw, column, meaning, is_padded in zip(row, table.columns, found, padded):
            if raw is None:
                meant.append(None)
                continue
            try:
                value = side.value(raw, column, meaning)
            except (values.Unreadable, ValueError, UnicodeDecodeError) as error:
                value = ("unreadable", str(error))
            if is_padded and isinstance(value, str):
                value = value.rstrip(" ")
            if not negative_zeros and value == "8000000000000000" and meaning.startswith("float"):
                value = "0000000000000000"
            meant.append(value)
        yield meant


def shown(value):
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"


def by_key(table, rows):
    names = [column.name for column in table.columns]
    places = [names.index(name) for name in table.primary] or range(len(names))
    # One meaning is one type, NULL aside, so that texts of keys are as good as keys.
    return sorted(((repr([row[place] for place in places]), row) for row in rows), key=lambda pair: pair[0])


def is_missing(row, missing):
    return any(all(str(row[place]) == str(value) for place, value in wanted) for wanted in missing)


def differences(source_side, source, target_side, target, missing, rows_only):
    before, after = [c.name for c in source.columns], [c.name for c in target.columns]
    if before != after:
        yield f"the columns are {before}, of the copy {after}"
        return
    if not rows_only:
        yield from structure(source, target)
    found, wrong = meanings(source, target, type(source_side) is type(target_side))
    yield from wrong
    padded = [b.padded or a.padded for b, a in zip(source.columns, target.columns)]
    zeros = all(isinstance(side, Postgres) for side in (source_side, target_side))
    target.primary = source.primary
    expected = list(read(source_side, source, found, padded, zeros))
    wanted = [[(before.index(name), value) for name, value in zip(source.primary, key)] for key in missing]
    kept = [row for row in expected if not is_missing(row, wanted)]
    if len(expected) - len(kept) != len(missing):
        yield f"{len(missing)} rows should be missing, and the source has {len(expected) - len(kept)} of them"
    originals = by_key(source, kept)
    copies = by_key(target, read(target_side, target, found, padded, zeros))
    counted, copied = collections.Counter(k for k, _ in originals), collections.Counter(k for k, _ in copies)
    for key in counted - copied:
        yield f"row {shown(key)} is not in the copy"
    for key in copied - counted:
        yield f"row {shown(key)} of the copy is not in the source, or not as often"
    if counted != copied:
        return
    for (key, original), (_, copy) in zip(originals, copies):
        for column, a, b in zip(source.columns, original, copy):
            if a != b or type(a) is not type(b):
                yield f"row {shown(key)}, column {column.name!r} ({column.declared}): {shown(a)} became {shown(b)}"
            if isinstance(a, tuple) and a[:1] == ("unreadable",):
                yield f"row {shown(key)}, column {column.name!r} ({column.declared}) of the source: {a[1]}"


def main():
    parser = argparse.ArgumentParser(prog="dev/compare-tables")
    parser.add_argument("--missing", nargs=2, action="append", default=[], metavar=("TABLE", "KEY"))
    parser.add_argument("--rows-only", action="store_true")
    for name in ("source", "table", "target", "into"):
        parser.add_argument(name)
    parser.add_argument("more", nargs="*")
    asked = parser.parse_args()
    tables = [asked.table, asked.into, *asked.more]
    source, target = database(asked.source), database(asked.target)
    result = 0
    for name, into in zip(tables[::2], tables[1::2], strict=True):
        original, copy = source.table(name), target.table(into)
        for table, side in ((original, name), (copy, into)):
            if not table.columns:
                print(f"{side}: there is no such table")
                return 1
        missing = [json.loads(key) for table, key in asked.missing if table == name]
        found = list(differences(source, original, target, copy, missing, asked.rows_only))
        for line in found[:SHOWN]:
            print(f"{into}: {line}")
        if len(found) > SHOWN:
            print(f"{into}: and {len(found) - SHOWN} more differences")
        if found:
            result = 1
        else:
            print(f"{into}: equal, {len(copy.rows)} rows of {len(copy.columns)} columns")
    return result


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        print(f"compare-tables: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
