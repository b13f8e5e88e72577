//! What this server can lose, said when it is opened: to nobody's surprise later.

use crate::error::StoreError;

use super::connect::Server;

/// Looks at the settings that decide it, as they are for sessions of ours, and says plainly what they mean.
pub(super) async fn warn_of_losses(server: &Server) -> Result<(), StoreError> {
    let sql =
        "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')";
    let row = server.read("ask the server how it keeps data", sql, &[]).await?.remove(0);
    for warning in warnings(row.get(0), row.get(1), row.get(2)) {
        tracing::warn!("{warning}");
    }
    Ok(())
}

fn warnings(fsync: &str, synchronous_commit: &str, full_page_writes: &str) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if fsync == "off" {
        warnings.push(
            "postgres does not wait for its disk (fsync = off): a crash of its machine can lose or damage everything; \
             set it to on",
        );
    }
    if synchronous_commit == "off" {
        warnings.push(
            "postgres answers before a commit is on its disk (synchronous_commit = off): a crash can lose the last \
             moments of what was acknowledged, and those stages run again; set it to on",
        );
    }
    if full_page_writes == "off" {
        warnings.push(
            "postgres does not protect pages that are written in part (full_page_writes = off): a crash of its machine \
             can damage tables; set it to on",
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::warnings;

    #[test]
    fn only_a_server_that_keeps_what_it_acknowledges_is_passed_in_silence() {
        for waits in ["on", "local", "remote_write", "remote_apply"] {
            assert!(warnings("on", waits, "on").is_empty());
        }
        let names = ["fsync", "synchronous_commit", "full_page_writes"];
        for (at, name) in names.into_iter().enumerate() {
            let setting = |number: usize| if number == at { "off" } else { "on" };
            let said = warnings(setting(0), setting(1), setting(2));
            assert!(said.len() == 1 && said[0].contains(&format!("({name} = off)")), "{said:?}");
        }
    }
}
