//! What SQLite is asked, each on a thread that may wait.

use std::path::Path;

use async_trait::async_trait;
use rusqlite::{Connection, TransactionBehavior};

use super::connect::{Failure, Place, checked};
use super::indexes::Wanted;
use super::turn::Turn;
use super::write::Writing;
use super::{catalogue, finish, marks, read, size};
use crate::database::{Begin, Begun, Database, Finish, Listed, Load, Mark, Rows, Scan, Shape, Writer};
use crate::error::TableError;
use crate::table::{Dialect, Table, TableName};

#[derive(Debug)]
pub(crate) struct Sqlite {
    place: Place,
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Self, TableError> {
        Ok(Self { place: checked(path)? })
    }

    /// Changes nothing.
    async fn ask<T: Send + 'static>(
        &self,
        doing: &'static str,
        question: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, TableError> {
        let place = self.place.clone();
        blocking(move || place.reader().and_then(|connection| question(&connection)).map_err(place.said(doing))).await
    }

    /// In its turn; makes the file if there is none.
    async fn change<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl FnOnce(&mut Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, TableError> {
        let turn = Turn::wait(&self.place.path).await;
        let place = self.place.clone();
        blocking(move || {
            let changed = place.writer().and_then(|mut connection| change(&mut connection)).map_err(place.said(doing));
            drop(turn);
            changed
        })
        .await
    }
}

#[async_trait]
impl Database for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn tables(&self) -> Result<Vec<Listed>, TableError> {
        self.ask("list its tables", catalogue::tables).await
    }

    async fn table(&self, name: &TableName) -> Result<Option<Table>, TableError> {
        if !self.place.exists() {
            // A target's file is made when a copy into it begins.
            return Ok(None);
        }
        let name = name.clone();
        self.ask("look at a table", move |connection| catalogue::table(connection, &name)).await
    }

    async fn count(&self, name: &TableName, filter: Option<&str>) -> Result<u64, TableError> {
        let (name, filter) = (name.clone(), filter.map(str::to_owned));
        self.ask("count rows", move |connection| size::count(connection, catalogue::plain(&name)?, filter.as_deref()))
            .await
    }

    async fn read(&self, scan: Scan) -> Result<Box<dyn Rows>, TableError> {
        read::read(self.place.clone(), scan).await
    }

    async fn mark(&self, copy: &str, into: &TableName) -> Result<Option<Mark>, TableError> {
        if !self.place.exists() {
            return Ok(None);
        }
        let (copy, into) = (copy.to_owned(), into.clone());
        self.ask("look for the mark of a copy", move |connection| marks::mark(connection, &copy, &into)).await
    }

    async fn begin(&self, begin: Begin<'_>) -> Result<Begun, TableError> {
        let Begin { load, shape, go_on, fingerprint } = begin;
        let (load, fingerprint) = (load.clone(), fingerprint.to_owned());
        let of = match shape {
            Shape::Of { table, from } => Some((table.clone(), from)),
            Shape::LikeTarget => None,
        };
        self.change("begin a copy", move |connection| {
            let shape = match &of {
                Some((table, from)) => Shape::Of { table, from: *from },
                None => Shape::LikeTarget,
            };
            let begin = Begin { load: &load, shape, go_on, fingerprint: &fingerprint };
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let begun = marks::begin(&transaction, &begin)?;
            transaction.commit()?;
            Ok(begun)
        })
        .await
    }

    async fn writer(&self, load: &Load, _begun: &Begun, skip_bad_rows: bool) -> Result<Box<dyn Writer>, TableError> {
        Ok(Box::new(Writing::open(self.place.clone(), load.clone(), skip_bad_rows).await?))
    }

    async fn add_indexes(&self, load: &Load, table: &Table) -> Result<(), TableError> {
        for index in &table.indexes {
            // One turn for each: others write in between.
            let (load, index) = (load.clone(), Wanted::new(index, &load.columns));
            self.change("build an index", move |connection| finish::build_early(connection, &load, &index)).await?;
        }
        Ok(())
    }

    async fn finish(&self, finish: Finish<'_>) -> Result<(), TableError> {
        let (load, how) = (finish.load.clone(), finish.how);
        let indexes: Vec<_> = finish.indexes.iter().map(|index| Wanted::new(index, &load.columns)).collect();
        self.change("finish a copy", move |connection| finish::finish(connection, &load, &how, &indexes)).await
    }

    async fn discard(&self, load: &Load) -> Result<(), TableError> {
        if !self.place.exists() {
            return Ok(());
        }
        let load = load.clone();
        self.change("discard a copy", move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if marks::is_own(&transaction, &load)? {
                marks::empty(&transaction, &load)?;
            }
            transaction.commit()?;
            Ok(())
        })
        .await
    }
}

/// On a thread that may wait for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TableError> + Send + 'static,
) -> Result<T, TableError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(TableError::Cancelled),
    }
}
