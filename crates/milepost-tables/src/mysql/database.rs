//! MySQL or MariaDB behind the seam.

use std::sync::Arc;

use async_trait::async_trait;

use crate::database::{Begin, Begun, Database, Finish, Listed, Load, Mark, Rows, Scan, Writer};
use crate::error::TableError;
use crate::table::{Dialect, Table, TableName};

use super::connect::Server;
use super::marks::State;
use super::{begin, catalogue, finish, indexes, marks, read, sql, write};

#[derive(Debug)]
pub(crate) struct Mysql {
    server: Arc<Server>,
}

impl Mysql {
    pub(crate) fn open(url: &str) -> Result<Self, TableError> {
        Ok(Self { server: Arc::new(Server::new(url)?) })
    }
}

#[async_trait]
impl Database for Mysql {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    async fn tables(&self) -> Result<Vec<Listed>, TableError> {
        let mut conn = self.server.connect().await?;
        catalogue::tables(&self.server, &mut conn).await
    }

    async fn table(&self, name: &TableName) -> Result<Option<Table>, TableError> {
        let mut conn = self.server.connect().await?;
        Ok(catalogue::table(&self.server, &mut conn, name).await?.map(|known| known.table))
    }

    async fn count(&self, name: &TableName, filter: Option<&str>) -> Result<u64, TableError> {
        let mut conn = self.server.connect().await?;
        let condition = filter.map(|filter| format!(" WHERE ({filter})")).unwrap_or_default();
        let sql = format!("SELECT COUNT(*) FROM {}{condition}", sql::table(name));
        let counted: Vec<u64> = self.server.ask(&mut conn, "count the rows of", &name.to_string(), &sql).await?;
        Ok(counted.first().copied().unwrap_or(0))
    }

    async fn read(&self, scan: Scan) -> Result<Box<dyn Rows>, TableError> {
        Ok(Box::new(read::read(&self.server, scan).await?))
    }

    async fn mark(&self, copy: &str, into: &TableName) -> Result<Option<Mark>, TableError> {
        begin::mark(&self.server, copy, into).await
    }

    async fn begin(&self, begin: Begin<'_>) -> Result<Begun, TableError> {
        begin::begin(&self.server, begin).await
    }

    async fn writer(&self, load: &Load, _begun: &Begun, skip_bad_rows: bool) -> Result<Box<dyn Writer>, TableError> {
        Ok(Box::new(write::writer(&self.server, load, skip_bad_rows).await?))
    }

    async fn add_indexes(&self, load: &Load, table: &Table) -> Result<(), TableError> {
        let mut conn = self.server.connect().await?;
        begin::lock_own(&self.server, &mut conn, load).await?;
        indexes::add(&self.server, &mut conn, load, table).await?;
        drop(conn.disconnect().await);
        Ok(())
    }

    async fn finish(&self, finish: Finish<'_>) -> Result<(), TableError> {
        finish::finish(&self.server, finish).await
    }

    async fn discard(&self, load: &Load) -> Result<(), TableError> {
        let mut conn = self.server.connect().await?;
        let kept = match begin::lock_own(&self.server, &mut conn, load).await {
            Err(TableError::Fenced { .. }) => return Ok(()),
            kept => kept?,
        };
        // What is in its place already stays there.
        if kept.state != State::Done && !begin::is_swapped(&self.server, &mut conn, &kept, &load.into).await? {
            marks::empty(&self.server, &mut conn, load).await?;
        }
        begin::drop_tables(&self.server, &mut conn, &[&load.staging]).await?;
        drop(conn.disconnect().await);
        Ok(())
    }
}
