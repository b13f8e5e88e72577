//! The steps of a copy into one target, one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use milepost_tables::{
    Batch, Begin, Begun, Column, Database, Dialect, Finish, How, Index, Kind, Load, Shape, Table, TableError,
    TableName, Value, Writer,
};

pub(crate) struct Loading {
    pub(crate) database: Arc<dyn Database>,
    pub(crate) load: Load,
    /// None: as the target that is there.
    pub(crate) new: Option<Table>,
    pub(crate) from: Dialect,
}

pub(crate) fn column(name: &str, kind: Kind) -> Column {
    Column {
        name: name.into(),
        kind,
        native: String::new(),
        nullable: true,
        counts_up: false,
        generated: false,
        default: false,
    }
}

impl Loading {
    /// An attempt to put a new table, as MySQL has it, into `into`.
    pub(crate) fn of(database: &Arc<dyn Database>, into: &str, columns: Vec<Column>, primary: &[usize]) -> Self {
        let (name, primary) = (TableName::new(into), primary.to_vec());
        let table = Table { name, columns, primary, indexes: Vec::new(), rows: None, left_out: Vec::new() };
        let columns = table.columns.iter().map(|column| (column.name.clone(), column.kind.clone())).collect();
        Self { new: Some(table), ..Self::into(database, into, columns) }
    }

    /// An attempt to put rows into a table that is there.
    pub(crate) fn into(database: &Arc<dyn Database>, into: &str, columns: Vec<(String, Kind)>) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let token = format!("token-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let staging = TableName::new(format!("{into}__mp_0123456789"));
        let load = Load { copy: format!("task/{into}"), run: 1, token, into: TableName::new(into), staging, columns };
        Self { database: database.clone(), load, new: None, from: Dialect::Mysql }
    }

    /// Another attempt of the same copy.
    pub(crate) fn again(&self) -> Self {
        let token = format!("{}-again", self.load.token);
        let load = Load { token, ..self.load.clone() };
        Self { database: self.database.clone(), load, new: self.new.clone(), from: self.from }
    }

    /// The first attempt of another run of it.
    pub(crate) fn in_another_run(&self) -> Self {
        let again = self.again();
        let load = Load { run: self.load.run + 1, ..again.load };
        Self { load, ..again }
    }

    pub(crate) fn with_indexes(mut self, indexes: Vec<Index>) -> Self {
        self.new.as_mut().expect("a new table").indexes = indexes;
        self
    }

    pub(crate) async fn begin(&self, go_on: bool) -> Result<Begun, TableError> {
        let shape = match &self.new {
            Some(table) => Shape::Of { table, from: self.from },
            None => Shape::LikeTarget,
        };
        self.database.begin(Begin { load: &self.load, shape, go_on, fingerprint: "as it was" }).await
    }

    pub(crate) async fn writer(&self, skip: bool) -> Box<dyn Writer> {
        self.database.writer(&self.load, &Begun::default(), skip).await.unwrap()
    }

    /// Begins, and commits these rows.
    pub(crate) async fn load(&self, batch: &Batch) {
        self.begin(false).await.unwrap();
        let mut writer = self.writer(false).await;
        writer.write(batch).await.unwrap();
        writer.commit(None, 0).await.unwrap();
    }

    pub(crate) async fn finish(&self, how: How) -> Result<(), TableError> {
        let indexes = match &self.new {
            Some(table) => {
                self.database.add_indexes(&self.load, table).await?;
                table.indexes.clone()
            }
            None => Vec::new(),
        };
        self.database.finish(Finish { load: &self.load, how, indexes: &indexes }).await
    }

    pub(crate) async fn mark(&self) -> milepost_tables::Mark {
        self.database.mark(&self.load.copy, &self.load.into).await.unwrap().expect("the copy has been begun")
    }
}

/// Rows of one width.
pub(crate) fn batch(rows: &[&[Value]]) -> Batch {
    let mut batch = Batch::new(rows.first().map_or(0, |row| row.len()));
    for value in rows.iter().flat_map(|row| row.iter()) {
        match value {
            Value::Null => batch.push(milepost_tables::Cell::Null),
            Value::Bool(value) => batch.push(milepost_tables::Cell::Bool(*value)),
            Value::Int(value) => batch.push(milepost_tables::Cell::Int(*value)),
            Value::Uint(value) => batch.push(milepost_tables::Cell::Uint(*value)),
            Value::Float(value) => batch.push(milepost_tables::Cell::Float(*value)),
            Value::Text(text) => batch.push_text(text),
            Value::Bytes(bytes) => batch.push_bytes(bytes),
        }
    }
    batch
}

pub(crate) fn t(text: &str) -> Value {
    Value::Text(text.into())
}
