//! Disks that are full. A file gets one that is small. The servers' errors are raised by a trigger of the target, with the
//! code that they have when it is real: for them the disk is the same for every database.

use std::path::Path;
use std::process::Command;

use milepost_tables::Dialect::{self, Mysql, Postgres, Sqlite};
use milepost_tables::{Copy, IfExists, TableError};

use crate::support::comparer::assert_equal;
use crate::support::copying::{job, run};
use crate::support::data::numbered;
use crate::support::home::Home;

async fn full_at_the_end(dialect: Dialect, trigger: &str, remove: &str) {
    let (Some(source), Some(target)) = (Home::create(Sqlite).await, Home::create(dialect).await) else { return };
    source.execute(&numbered("t", 300)).await;
    target.execute(&numbered("t", 0)).await;
    target.execute(trigger).await;
    let job = Copy { if_exists: IfExists::Append, ..job(source.database().await, target.database().await, "t") };
    let outcome = run(job.clone()).await;
    assert!(matches!(outcome, Err(TableError::Away { .. })), "{dialect}: {outcome:?}");
    assert_eq!(target.number("SELECT count(*) FROM t").await, 0, "{dialect}");
    target.execute(remove).await;
    run(job).await.unwrap();
    assert_equal("t", &source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_whose_disk_is_full_is_away_until_there_is_room() {
    let trigger = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 200 THEN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION full_disk();";
    full_at_the_end(Postgres, trigger, "DROP TRIGGER full_disk ON t").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_whose_disk_is_full_is_away_until_there_is_room() {
    let trigger = "CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH ROW BEGIN
            IF NEW.id = 200 THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'; END IF;
        END";
    full_at_the_end(Mysql, trigger, "DROP TRIGGER full_disk").await;
}

const SMALL_DISK: &str = "MILEPOST_TEST_SMALL_DISK";

/// Runs itself once more, where a small disk of its own is mounted.
#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_whose_disk_is_full_is_away_until_there_is_room() {
    if let Ok(disk) = std::env::var(SMALL_DISK) {
        return on_a_small_disk(Path::new(&disk)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = "full::a_sqlite_whose_disk_is_full_is_away_until_there_is_room";
    let script = format!("mount -t tmpfs -o size=1m none \"${SMALL_DISK}\" || exit 99; exec \"$0\" --exact {here}");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.arg(std::env::current_exe().unwrap()).env(SMALL_DISK, folder.path());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    if output.status.code() == Some(99) || said.contains("unshare failed") {
        eprintln!("SKIPPED: this machine lets nobody mount a disk of his own: {said}");
        return;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn on_a_small_disk(disk: &Path) {
    let (source, mut target) = (Home::create(Sqlite).await.unwrap(), Home::create(Sqlite).await.unwrap());
    source.execute(&numbered("t", 20_000)).await;
    target.url = format!("sqlite:{}", disk.join("tables.db").display());
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![1; 500_000]).unwrap();
    target.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY); INSERT INTO kept VALUES (1)").await;
    // 20,000 rows are more than there is room for, 2,000 are not.
    let job =
        Copy { verify: milepost_tables::Verify::Counts, ..job(source.database().await, target.database().await, "t") };
    let outcome = run(job.clone()).await;
    assert!(matches!(outcome, Err(TableError::Away { .. })), "{outcome:?}");
    assert_eq!(target.number("SELECT count(*) FROM sqlite_master WHERE name = 't'").await, 0);
    assert_eq!(target.number("SELECT count(*) FROM kept").await, 1);

    std::fs::remove_file(&ballast).unwrap();
    source.execute("DELETE FROM t WHERE id > 2000").await;
    run(job).await.unwrap();
    assert_eq!(target.number("SELECT count(*) FROM t").await, 2000);
    assert_eq!(target.unfinished().await, 0);
}
