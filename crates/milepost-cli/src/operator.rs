//! Who sits at this keyboard, as the log will name them.

/// `user@host`.
pub(crate) fn name() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::geteuid().as_raw()));
    format!("{user}@{}", host())
}

pub(crate) fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
