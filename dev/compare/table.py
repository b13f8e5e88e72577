"""A table as a database has it, in words that all of them share; names of tables, and URLs, taken apart."""

import dataclasses
import urllib.parse


@dataclasses.dataclass
class Column:
    name: str
    declared: str
    meaning: str
    nullable: bool
    # Spaces at the end are filling.
    padded: bool = False


@dataclasses.dataclass
class Table:
    columns: list
    primary: list
    # (unique, names) of those that are lists of columns and no more.
    indexes: list
    # Values as the driver gives them, in the columns' order.
    rows: list


def name_parts(text):
    """`name` or `schema.name`; parts with dots or quotes in double quotes."""
    parts, part, quoted, at = [], "", False, 0
    while at < len(text):
        letter = text[at]
        if letter == '"' and quoted and text[at + 1 : at + 2] == '"':
            part, at = part + '"', at + 1
        elif letter == '"' and (quoted or not part):
            quoted = not quoted
        elif letter == "." and not quoted:
            parts, part = [*parts, part], ""
        else:
            part += letter
        at += 1
    return ([None] + parts + [part])[-2:]


def server(url):
    """Host, port, user, password and database of a URL."""
    parts = urllib.parse.urlsplit(url)
    password = urllib.parse.unquote(parts.password or "")
    user = urllib.parse.unquote(parts.username or "")
    return parts.hostname, parts.port, user, password, urllib.parse.unquote(parts.path.lstrip("/"))
