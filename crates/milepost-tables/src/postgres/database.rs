//! PostgreSQL behind `Database`: each question on a connection of its own.

use async_trait::async_trait;

use crate::database::{Begin, Begun, Database, Finish, Listed, Load, Mark, Rows, Scan, Writer};
use crate::error::TableError;
use crate::table::{Dialect, Table, TableName};

use super::connect::Server;
use super::{begin, catalogue, finish, indexes, marks, read, write};

#[derive(Debug)]
pub(crate) struct Postgres {
    server: Server,
}

impl Postgres {
    pub(crate) fn open(url: &str) -> Result<Self, TableError> {
        Ok(Self { server: Server::new(url)? })
    }
}

#[async_trait]
impl Database for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn tables(&self) -> Result<Vec<Listed>, TableError> {
        let session = self.server.connect().await?;
        catalogue::tables(&session, self.server.names_schemas()).await
    }

    async fn table(&self, name: &TableName) -> Result<Option<Table>, TableError> {
        let session = self.server.connect().await?;
        Ok(catalogue::find(&session, name).await?.map(|found| found.table))
    }

    async fn count(&self, name: &TableName, filter: Option<&str>) -> Result<u64, TableError> {
        let session = self.server.connect().await?;
        let found = catalogue::get(&session, name).await?;
        read::count(&session, &found, filter).await
    }

    async fn read(&self, scan: Scan) -> Result<Box<dyn Rows>, TableError> {
        read::read(self.server.connect().await?, scan).await
    }

    async fn mark(&self, copy: &str, into: &TableName) -> Result<Option<Mark>, TableError> {
        let session = self.server.connect().await?;
        Ok(marks::find(&session, copy, into, false).await?.map(|found| found.mark))
    }

    async fn begin(&self, begin: Begin<'_>) -> Result<Begun, TableError> {
        begin::begin(&self.server.connect().await?, begin).await
    }

    async fn writer(&self, load: &Load, _begun: &Begun, skip_bad_rows: bool) -> Result<Box<dyn Writer>, TableError> {
        write::writer(self.server.connect().await?, load, skip_bad_rows).await
    }

    async fn add_indexes(&self, load: &Load, table: &Table) -> Result<(), TableError> {
        indexes::add(&self.server.connect().await?, load, table).await
    }

    async fn finish(&self, finish: Finish<'_>) -> Result<(), TableError> {
        finish::finish(&self.server.connect().await?, finish).await
    }

    async fn discard(&self, load: &Load) -> Result<(), TableError> {
        finish::discard(&self.server.connect().await?, load).await
    }
}
