//! A place of its own on each server that is there to be tested on, and gone when the test is over.

use std::sync::atomic::{AtomicUsize, Ordering};

use mysql_async::prelude::Queryable;

static MADE: AtomicUsize = AtomicUsize::new(0);

/// A store that nodes share.
pub(crate) struct Place {
    pub(crate) url: String,
    /// What removes it, and where that is said.
    remove: Option<(String, String)>,
}

/// A place on every server that the environment names. Without any, it says loudly what was not tested.
pub(crate) fn places() -> Vec<Place> {
    ["POSTGRES", "MYSQL", "REDIS"].into_iter().filter_map(place).collect()
}

fn place(kind: &str) -> Option<Place> {
    let variable = format!("MILEPOST_TEST_{kind}");
    let Ok(server) = std::env::var(&variable) else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{variable} is not set");
        eprintln!("SKIPPED: {variable} is not set, so the command line was not tested there");
        return None;
    };
    let name = format!("milepost_cli_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    if kind == "REDIS" {
        let mark = if server.contains('?') { '&' } else { '?' };
        return Some(Place { url: format!("{server}{mark}prefix={name}"), remove: None });
    }
    tell(&server, &format!("CREATE DATABASE {name}"));
    let (address, query) = server.split_once('?').map_or((&*server, String::new()), |(a, q)| (a, format!("?{q}")));
    let (host, _) = address.rsplit_once('/').expect("it names a database");
    let force = if kind == "POSTGRES" { " WITH (FORCE)" } else { "" };
    let remove = Some((server.clone(), format!("DROP DATABASE {name}{force}")));
    Some(Place { url: format!("{host}/{name}{query}"), remove })
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((server, order)) = self.remove.take() {
            tell(&server, &order);
        }
    }
}

fn tell(server: &str, order: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if server.starts_with("mysql") || server.starts_with("mariadb") {
            let mut connection = mysql_async::Conn::from_url(server).await.unwrap();
            connection.query_drop(order).await.unwrap();
            connection.disconnect().await.unwrap();
        } else {
            let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
            let connection = tokio::spawn(connection);
            client.batch_execute(order).await.unwrap();
            connection.abort();
        }
    });
}
