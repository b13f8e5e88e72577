//! Redis: calls of a bare script that writes what one stage leaves in a task's keys, one by one and many at once.

use futures::stream::{FuturesUnordered, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script};

use crate::error::BoxError;

use super::server::{ServerRates, TASKS, Tally, scratch_name};

const STAGE: &str = "\
redis.call('HSET', KEYS[1], 'status', 'RUNNING', 'currentStage', ARGV[1], 'version', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('HSET', KEYS[3], 'version', ARGV[2], 'lastCompletedStageIndex', ARGV[1])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return ARGV[2]";
/// The seed's: a week.
const TTL_MS: i64 = 7 * 24 * 3600 * 1000;

pub(super) async fn measure(url: &str, body: &str, batch: usize) -> Result<ServerRates, BoxError> {
    // What follows is ours, not the driver's.
    let address = url.split('?').next().unwrap_or(url);
    let mut connection = Client::open(address)?.get_multiplexed_async_connection().await?;
    // One hash tag, as a cluster needs it.
    let bare = Bare { prefix: format!("{{{}}}", scratch_name()), script: Script::new(STAGE), body };
    let rates = bare.write(&connection, batch).await;
    for task in 0..TASKS {
        redis::cmd("DEL").arg(&bare.keys(task)).query_async::<()>(&mut connection).await?;
    }
    rates
}

struct Bare<'a> {
    prefix: String,
    script: Script,
    body: &'a str,
}

impl Bare<'_> {
    fn keys(&self, task: i64) -> [String; 3] {
        let prefix = &self.prefix;
        [format!("{prefix}:task:{task}"), format!("{prefix}:ckpt:{task}"), format!("{prefix}:ckpt:meta:{task}")]
    }

    async fn call(&self, mut connection: MultiplexedConnection, position: i64) -> Result<(), BoxError> {
        let [task, checkpoint, meta] = self.keys(position % TASKS);
        let mut call = self.script.prepare_invoke();
        call.key(task).key(checkpoint).key(meta).arg("s5").arg(position).arg(self.body).arg(TTL_MS);
        call.invoke_async::<i64>(&mut connection).await?;
        Ok(())
    }

    async fn write(&self, connection: &MultiplexedConnection, at_once: usize) -> Result<ServerRates, BoxError> {
        let mut position = 0;
        let mut commits = Tally::start();
        while commits.goes_on() {
            position += 1;
            self.call(connection.clone(), position).await?;
            commits.add(1);
        }
        let commits = commits.rate();
        let mut stages = Tally::start();
        let mut under_way = FuturesUnordered::new();
        while stages.goes_on() {
            while under_way.len() < at_once {
                position += 1;
                under_way.push(self.call(connection.clone(), position));
            }
            if let Some(called) = under_way.next().await {
                called?;
                stages.add(1);
            }
        }
        let stages = stages.rate();
        while let Some(called) = under_way.next().await {
            called?;
        }
        Ok(ServerRates { commits, stages })
    }
}
