//! MySQL and MariaDB: rows of an event table, one to a commit and many to an `INSERT`.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Value};

use crate::error::BoxError;

use super::server::{ServerRates, TASKS, Tally, scratch_name};

pub(super) async fn measure(url: &str, body: &str, batch: usize) -> Result<ServerRates, BoxError> {
    let mut connection = Conn::new(Opts::from_url(url)?).await?;
    let table = scratch_name();
    connection
        .query_drop(format!(
            "CREATE TABLE {table} (pos bigint PRIMARY KEY, task bigint NOT NULL, seq bigint NOT NULL, \
             body longtext NOT NULL) ENGINE=InnoDB"
        ))
        .await?;
    let rates = write(&mut connection, &table, body, batch).await;
    connection.query_drop(format!("DROP TABLE {table}")).await?;
    connection.disconnect().await?;
    rates
}

async fn write(connection: &mut Conn, table: &str, body: &str, batch: usize) -> Result<ServerRates, BoxError> {
    let mut position = 0i64;
    let one = format!("INSERT INTO {table} VALUES (?, ?, ?, ?)");
    let mut commits = Tally::start();
    while commits.goes_on() {
        position += 1;
        connection.exec_drop(&one, (position, position % TASKS, position / TASKS, body)).await?;
        commits.add(1);
    }
    let commits = commits.rate();
    let many = format!("INSERT INTO {table} VALUES {}", vec!["(?, ?, ?, ?)"; batch].join(", "));
    let mut stages = Tally::start();
    while stages.goes_on() {
        let row =
            |position: i64| [Value::from(position), (position % TASKS).into(), (position / TASKS).into(), body.into()];
        let rows: Vec<Value> = (position + 1..).take(batch).flat_map(row).collect();
        connection.exec_drop(&many, rows).await?;
        position += batch as i64;
        stages.add(batch);
    }
    Ok(ServerRates { commits, stages: stages.rate() })
}
