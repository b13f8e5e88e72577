"""What a value means, whatever database it comes from, and which declared types may stand for which.

A column has a meaning, given by the source's declared type. Each value of both sides is turned into that meaning and has to
be the same then, exactly:
  bool      true and false; 1 and 0 where a database has no type of its own for them
  int       a whole number
  float32   the number that four bytes hold, bit by bit; NaN is NaN
  float64   the number that eight bytes hold, bit by bit; NaN is NaN. Only PostgreSQL keeps -0.0; the others make it 0.0
  decimal   a number of any length, never a float; 1.50 is 1.5. One that SQLite keeps as a float is the shortest that reads
            back as it
  text      character by character, spaces at the end included; but not those that fill up a CHAR(n), which is no part of
            a value in PostgreSQL and MySQL
  bytes     byte by byte
  date      a day of the calendar, or a word (`infinity`)
  time      hours (beyond 24 and below 0 where there are such), minutes, seconds, fraction
  datetime  a reading of a clock: no zone is ever applied
  instant   a moment: in UTC, whatever zone it was written in
  json      the parsed value; numbers as decimals, objects without order
  uuid      its 128 bits
  other     text as the database spells it
  verbatim  what the driver gives: for a column that is declared the same in a database of the same kind
"""

import datetime
import decimal
import json
import re
import struct
import uuid as uuids


class Unreadable(Exception):
    """A value that cannot have the meaning of its column."""




# What a target may declare for what a source declares.
MAY_STAND_FOR = {
    "bool": {"bool", "int"},
    "int": {"int", "decimal"},
    "float32": {"float32", "float64"},
    "float64": {"float64"},
    "decimal": {"decimal"},
    "text": {"text"},
    "bytes": {"bytes"},
    "date": {"date"},
    "time": {"time"},
    "datetime": {"datetime"},
    # TIMESTAMP of MySQL ends in 2038.
    "instant": {"instant", "datetime"},
    "json": {"json"},
    # MySQL has no type for it.
    "uuid": {"uuid", "text"},
    "other": {"other", "text"},
}


def from_text(meaning, text):
    """For databases that say everything in text. Bytes are not among it."""
    return {
        "bool": truth,
        "int": whole,
        "float32": lambda text: bits(text, 32),
        "float64": lambda text: bits(text, 64),
        "decimal": number,
        "text": lambda text: text,
        "other": lambda text: text,
        "date": date,
        "time": time,
        "datetime": lambda text: date_time(text, False),
        "instant": lambda text: date_time(text, True),
        "json": document,
        "uuid": lambda text: uuids.UUID(text).hex,
    }[meaning](text)


def truth(text):
    if text in ("t", "1"):
        return True
    if text in ("f", "0"):
        return False
    raise Unreadable(f"{text!r} is neither true nor false")


def whole(text):
    if not re.fullmatch(r"-?[0-9]+", text):
        raise Unreadable(f"{text!r} is no whole number")
    return int(text)


def bits(text, size):
    value = float(text)
    if value != value:
        return "NaN"
    if size == 64:
        return struct.pack(">d", value).hex()
    # What four bytes hold is exact in eight: what is lost here was never there.
    try:
        short = struct.pack(">f", value)
    except OverflowError:
        raise Unreadable(f"{text!r} is beyond four bytes") from None
    return struct.pack(">d", struct.unpack(">f", short)[0]).hex()


def number(text):
    word = text.lower()
    if word in ("nan", "infinity", "-infinity"):
        return word
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise Unreadable(f"{text!r} is no number")
    # Not a Decimal itself: -0 and 0 differ to none, and hashes and texts of equal ones should be equal.
    exact = decimal.Decimal(text)
    sign, digits, exponent = exact.as_tuple()
    shown = "".join(map(str, digits)).lstrip("0")
    stripped = shown.rstrip("0")
    if not stripped:
        return "0"
    return f"{'-' if sign else ''}{stripped}e{exponent + len(shown) - len(stripped)}"


DATE = r"(-?[0-9]{4,6})-([0-9]{2})-([0-9]{2})"
TIME = r"(-?)([0-9]{2,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
ZONE = r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"


def date(text):
    match = re.fullmatch(DATE + "( BC)?", text)
    if match:
        return tuple(match.groups())
    if text in ("infinity", "-infinity"):
        return text
    raise Unreadable(f"{text!r} is no date")


def time(text):
    match = re.fullmatch(TIME, text)
    if not match:
        raise Unreadable(f"{text!r} is no time")
    sign, hours, minutes, seconds, fraction = match.groups()
    return sign, int(hours), int(minutes), int(seconds), (fraction or "").rstrip("0")


def date_time(text, moment):
    if text in ("infinity", "-infinity"):
        return text
    match = re.fullmatch(DATE + "[ T]" + TIME + ZONE + "( BC)?", text)
    if not match or match.group(4):
        raise Unreadable(f"{text!r} is no date with a time")
    year, month, day, _, hours, minutes, seconds, fraction, zone, era = match.groups()
    if zone and not moment:
        raise Unreadable(f"{text!r} has a zone, and should be a mere reading of a clock")
    fields = [int(field) for field in (year, month, day, hours, minutes, seconds)]
    if zone and zone not in ("Z", "+00", "+00:00", "+0000"):
        fields = in_utc(fields, zone)
    return (*fields, (fraction or "").rstrip("0"), era or "")


def in_utc(fields, zone):
    hours, minutes = int(zone[1:3]), int(zone[3:].replace(":", "") or 0)
    offset = datetime.timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    return list((datetime.datetime(*fields) - offset).timetuple()[:6])


def document(text):
    def tagged(value):
        if isinstance(value, dict):
            return ("object", tuple(sorted((name, tagged(value)) for name, value in value.items())))
        if isinstance(value, list):
            return ("list", tuple(map(tagged, value)))
        if isinstance(value, Number):
            return ("number", number(value))
        # True and 1 are equal in Python.
        return (type(value).__name__, value)

    class Number(str):
        pass

    def refuse(word):
        raise Unreadable(f"{word} is no JSON")

    try:
        return tagged(json.loads(text, parse_float=Number, parse_int=Number, parse_constant=refuse))
    except ValueError as error:
        raise Unreadable(f"{text[:100]!r} is no JSON: {error}") from None
