//! `dev/compare-tables`, which shares nothing with the copier.

use std::path::Path;
use std::process::Command;

use super::home::Home;

/// Compares tables with their copies. The error is what it says of the differences, each after the copy's name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Comparison {
    /// Each with its copy.
    pub(crate) tables: Vec<(String, String)>,
    /// Table and key, as a list in JSON, of rows that must not have been copied.
    pub(crate) missing: Vec<(String, String)>,
    pub(crate) rows_only: bool,
}

impl Comparison {
    /// Tables whose copies have the same names.
    pub(crate) fn of(tables: &[&str]) -> Self {
        Self { tables: tables.iter().map(|&table| (table.into(), table.into())).collect(), ..Self::default() }
    }

    pub(crate) async fn run(self, source: &Home, target: &Home) -> Result<String, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(root.join("dev/compare-tables"));
        for (table, key) in &self.missing {
            command.args(["--missing", table, key]);
        }
        if self.rows_only {
            command.arg("--rows-only");
        }
        let mut tables = self.tables.iter();
        let (table, into) = tables.next().expect("a table to compare");
        command.args([&source.url, table, &target.url, into]);
        command.args(tables.flat_map(|(table, into)| [table, into]));
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(0) => Ok(said),
            Some(1) => Err(said),
            _ => panic!("{said}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// One table and its copy are the same in all that the comparer knows.
pub(crate) async fn assert_equal(table: &str, source: &Home, target: &Home) {
    if let Err(differences) = Comparison::of(&[table]).run(source, target).await {
        panic!("{differences}");
    }
}
