//! Dates and times of the server in the one spelling that all databases share.

use std::fmt::Write;

use mysql_async::Value;

/// As the server itself spells it, in our way.
pub(super) fn spell(written: &mut String, value: &Value, date_only: bool) {
    if let Value::Date(..) = value {
        push_date(written, value);
        if date_only {
            return;
        }
        written.push(' ');
    }
    push_clock(written, value);
}

pub(super) fn push_date(written: &mut String, value: &Value) {
    if let Value::Date(year, month, day, ..) = value {
        push_number(written, u32::from(*year), 4);
        written.push('-');
        push_number(written, u32::from(*month), 2);
        written.push('-');
        push_number(written, u32::from(*day), 2);
    }
}

/// Hours may be many, and fewer than none.
pub(super) fn push_clock(written: &mut String, value: &Value) {
    let (hours, minute, second, micros) = match value {
        Value::Date(_, _, _, hour, minute, second, micros) => (u32::from(*hour), *minute, *second, *micros),
        Value::Time(negative, days, hour, minute, second, micros) => {
            if *negative {
                written.push('-');
            }
            (days * 24 + u32::from(*hour), *minute, *second, *micros)
        }
        _ => return,
    };
    push_number(written, hours, 2);
    written.push(':');
    push_number(written, u32::from(minute), 2);
    written.push(':');
    push_number(written, u32::from(second), 2);
    if micros > 0 {
        written.push('.');
        push_number(written, micros, 6);
        written.truncate(written.trim_end_matches('0').len());
    }
}

fn push_number(written: &mut String, value: u32, width: usize) {
    write!(written, "{value:0width$}").expect("a string takes all that is written to it");
}
