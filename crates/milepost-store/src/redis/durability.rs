//! What this Redis can lose, said when it is opened: to nobody's surprise later.

use redis::Value;

use crate::error::StoreError;

use super::link::{Link, unavailable};

/// The oldest that knows all that the scripts use.
const OLDEST: u32 = 7;

pub(super) async fn check_version(link: &Link) -> Result<(), StoreError> {
    let info = link.ask(redis::cmd("INFO").arg("server")).await.map_err(unavailable("connect"))?;
    let info: String = redis::from_redis_value(info).unwrap_or_default();
    let Some(version) = info.lines().find_map(|line| line.strip_prefix("redis_version:")) else { return Ok(()) };
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < OLDEST) {
        let detail = format!("this is Redis {}; Milepost needs {OLDEST}.0 or newer", version.trim());
        return Err(StoreError::Format { detail });
    }
    Ok(())
}

/// Refuses a server that may drop what it has at any time, and says plainly what its other settings mean. One that does not
/// tell is warned about.
pub(super) async fn check_losses(link: &Link) -> Result<(), StoreError> {
    let policy = setting(link, "maxmemory-policy").await;
    if let Some(policy) = policy.as_deref().filter(|policy| *policy != "noeviction") {
        let detail = format!(
            "redis evicts keys when its memory is full (maxmemory-policy {policy}), and plans, events and locks would \
             vanish; say `redis-cli CONFIG SET maxmemory-policy noeviction`, and the same in its configuration"
        );
        return Err(StoreError::Format { detail });
    }
    let append_only = setting(link, "appendonly").await;
    let sync = setting(link, "appendfsync").await;
    for warning in warnings(policy.is_some(), append_only.as_deref(), sync.as_deref()) {
        tracing::warn!("{warning}");
    }
    Ok(())
}

async fn setting(link: &Link, name: &str) -> Option<String> {
    let answer = link.ask(redis::cmd("CONFIG").arg("GET").arg(name)).await.ok()?;
    let pair: Vec<String> = match answer {
        Value::Map(pairs) => pairs.into_iter().filter_map(|(_, value)| redis::from_redis_value(value).ok()).collect(),
        list => redis::from_redis_value(list).ok()?,
    };
    pair.into_iter().next_back()
}

fn warnings(tells_policy: bool, append_only: Option<&str>, sync: Option<&str>) -> Vec<String> {
    let mut warnings = Vec::new();
    if !tells_policy {
        warnings.push(
            "redis does not tell its maxmemory-policy; unless it is noeviction, plans, events and locks can vanish"
                .to_owned(),
        );
    }
    match (append_only, sync) {
        (Some("yes"), Some("always")) => {}
        (Some("yes"), Some("everysec")) => warnings.push(
            "redis syncs once a second (appendfsync everysec): a crash of its machine can lose the last second of what \
             was acknowledged, and those stages run again; `always` loses nothing"
                .to_owned(),
        ),
        (Some("yes"), Some(sync)) => warnings.push(format!(
            "redis leaves syncing to the system (appendfsync {sync}): a crash of its machine can lose half a minute or \
             more of what was acknowledged; set it to everysec or always"
        )),
        (Some("yes"), None) | (None, _) => warnings.push(
            "redis does not tell how it keeps data; without appendonly yes, a restart can lose everything since its last \
             snapshot"
                .to_owned(),
        ),
        (Some(_), _) => warnings.push(
            "redis keeps no log of its writes (appendonly no): a restart or a crash loses everything since its last \
             snapshot; set appendonly yes"
                .to_owned(),
        ),
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::warnings;

    #[test]
    fn only_a_server_that_syncs_always_and_tells_its_policy_is_passed_in_silence() {
        assert!(warnings(true, Some("yes"), Some("always")).is_empty());
        assert_eq!(warnings(true, Some("yes"), Some("everysec")).len(), 1);
        assert_eq!(warnings(true, Some("no"), Some("everysec")).len(), 1);
        assert_eq!(warnings(false, None, None).len(), 2);
    }
}
