//! PostgreSQL: rows of an event table, one to a commit and in `UNNEST` batches.

use tokio_postgres::{Client, NoTls};

use crate::error::BoxError;
use crate::postgres::take_search_path;

use super::server::{ServerRates, TASKS, Tally, scratch_name};

pub(super) async fn measure(url: &str, body: &str, batch: usize) -> Result<ServerRates, BoxError> {
    let (client, connection) = tokio_postgres::connect(&take_search_path(url).0, NoTls).await?;
    let connection = tokio::spawn(connection);
    let table = scratch_name();
    client
        .batch_execute(&format!(
            "CREATE TABLE {table} (pos bigint PRIMARY KEY, task bigint NOT NULL, seq bigint NOT NULL, body text NOT NULL)"
        ))
        .await?;
    let rates = write(&client, &table, body, batch).await;
    client.batch_execute(&format!("DROP TABLE {table}")).await?;
    connection.abort();
    rates
}

async fn write(client: &Client, table: &str, body: &str, batch: usize) -> Result<ServerRates, BoxError> {
    let mut position = 0i64;
    let one = client.prepare(&format!("INSERT INTO {table} VALUES ($1, $2, $3, $4)")).await?;
    let mut commits = Tally::start();
    while commits.goes_on() {
        position += 1;
        client.execute(&one, &[&position, &(position % TASKS), &(position / TASKS), &body]).await?;
        commits.add(1);
    }
    let commits = commits.rate();
    let many = client
        .prepare(&format!(
            "INSERT INTO {table} SELECT * FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[], $4::text[])"
        ))
        .await?;
    let bodies = vec![body; batch];
    let mut stages = Tally::start();
    while stages.goes_on() {
        let positions: Vec<i64> = (position + 1..).take(batch).collect();
        let tasks: Vec<i64> = positions.iter().map(|position| position % TASKS).collect();
        let sequences: Vec<i64> = positions.iter().map(|position| position / TASKS).collect();
        client.execute(&many, &[&positions, &tasks, &sequences, &bodies]).await?;
        position += batch as i64;
        stages.add(batch);
    }
    Ok(ServerRates { commits, stages: stages.rate() })
}
