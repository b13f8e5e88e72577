//! What an error of the driver or of the server means for the copy.

use mysql_async::Error;

use crate::error::TableError;

/// What was being done when it went wrong.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failing<'a> {
    pub(super) server: &'a str,
    pub(super) doing: &'static str,
    /// A table, mostly; or nothing.
    pub(super) what: &'a str,
}

pub(super) fn failed(failing: Failing<'_>) -> impl Fn(Error) -> TableError + '_ {
    move |error| {
        let Failing { server, doing, what } = failing;
        let reason = in_words(&error);
        if is_away(&error) {
            let reason = if what.is_empty() { reason } else { format!("{what}: {reason}") };
            TableError::Away { database: server.to_owned(), doing, reason }
        } else {
            let what = if what.is_empty() { String::new() } else { format!(" {what}") };
            TableError::Refused(format!("{server} could not {doing}{what}: {reason}"))
        }
    }
}

/// The connection is gone, or the server is in a state that passes: the same may succeed later.
pub(super) fn is_away(error: &Error) -> bool {
    match error {
        Error::Io(_) | Error::Driver(_) | Error::Other(_) => true,
        Error::Url(_) => false,
        Error::Server(server) => PASSES.contains(&server.code),
    }
}

/// The server refused the statement for what one of its rows is, and not for what the table is or what the user may do.
pub(super) fn is_about_a_row(error: &Error) -> bool {
    matches!(error, Error::Server(server) if !PASSES.contains(&server.code) && !ABOUT_THE_STATEMENT.contains(&server.code))
}

/// What the server says, without its codes.
pub(super) fn in_words(error: &Error) -> String {
    match error {
        Error::Server(server) => server.message.clone(),
        Error::Io(_) | Error::Driver(_) | Error::Other(_) | Error::Url(_) => error.to_string(),
    }
}

pub(super) fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Server(server) => Some(server.code),
        Error::Io(_) | Error::Driver(_) | Error::Other(_) | Error::Url(_) => None,
    }
}

pub(super) const NO_SUCH_TABLE: u16 = 1146;
pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// Disk full (3, 1021, 1030, 1114), no place for another client (1040, 1203), shutting down or told to end (1053, 1077,
/// 1079, 1317, 1927, 3032, 4031), the network (1152 to 1161), locks (1205, 1213, 1689), a table changed under a snapshot
/// (1020, 1412), a commit that failed (1180), a server that only reads for now (1290, 1836), a statement that took too
/// long for the server's taste (1969, 3024), a cluster that is not whole (1047).
const PASSES: &[u16] = &[
    3, 1020, 1021, 1030, 1040, 1047, 1053, 1077, 1079, 1114, 1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160,
    1161, 1180, 1203, 1205, 1213, 1290, 1317, 1412, 1689, 1836, 1927, 1969, 3024, 3032, 4031,
];

/// Rights (1044, 1045, 1142, 1143, 1227), names (1049, 1054, 1146), spelling (1064, 1065, 1136), columns that
/// must be given (1364), size of a row's own
/// layout (1118), options that are off (1148, 3948).
const ABOUT_THE_STATEMENT: &[u16] =
    &[1044, 1045, 1049, 1054, 1064, 1065, 1118, 1136, 1142, 1143, 1146, 1148, 1227, 1364, 3948];
