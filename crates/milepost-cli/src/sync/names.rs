//! What a table is called: as a task, as what two tasks may not work on at once, and at the target.
//!
//! The same table gets the same names every time, whatever other tables there are: a plan that is written again is then
//! the same plan, with some tables more or less.

use milepost_core::id::PlanId;
use milepost_tables::{Address, Dialect, TableName};
use sha2::{Digest, Sha256};

/// Of ids, in characters; and of tenants, in bytes.
const LONGEST_ID: usize = 128;
const LONGEST_TENANT: usize = 256;
/// In hexadecimal digits.
const DIGEST: usize = 8;

/// Names both databases: `shop-to-warehouse`.
pub(crate) fn plan_id(source: &Address, target: &Address) -> PlanId {
    let mut name = format!("{}-to-{}", words(&database_name(source)), words(&database_name(target)));
    name.truncate(LONGEST_ID - 1);
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        name.insert(0, 's');
    }
    PlanId::parse(name).expect("words of letters, digits and what may stand between them")
}

/// `PLAN.TABLE`, or `PLAN.SCHEMA.TABLE`. What may not stand in an id is left out, and a digest tells such names apart.
pub(crate) fn task_id(plan: &PlanId, table: &TableName) -> String {
    let name = table.to_string();
    let id = format!("{plan}.{name}");
    let plain = name.chars().all(may_stand_in_an_id) && !ends_like_a_digest(&name);
    if plain && id.len() <= LONGEST_ID {
        return id;
    }
    let mut short = format!("{plan}.{}", words(&name));
    short.truncate(LONGEST_ID - DIGEST - 1);
    format!("{short}-{}", digest(&id))
}

/// `DATABASE/TABLE`, so that no two tasks of whatever plans write into one table at once.
pub(crate) fn tenant(target: &Address, into: &TableName) -> String {
    let tenant = format!("{target}/{into}");
    if tenant.len() <= LONGEST_TENANT && !tenant.contains(char::is_control) {
        return tenant;
    }
    let mut short: String = tenant.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    short.truncate(short.floor_char_boundary(LONGEST_TENANT - DIGEST - 1));
    format!("{short}-{}", digest(&tenant))
}

/// The same name; in the same schema if the target is of the same kind, else with the schema as its first word, because
/// a schema is something else there, or nothing at all.
pub(crate) fn into(table: &TableName, from: Dialect, to: Dialect) -> TableName {
    match &table.schema {
        Some(schema) if from != to => TableName::new(format!("{schema}_{}", table.name)),
        Some(_) | None => table.clone(),
    }
}

/// A file's without its folder and its ending; a server's own name if it names no database.
fn database_name(address: &Address) -> String {
    match address {
        Address::Sqlite(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        Address::Postgres(_) | Address::Mysql(_) => {
            let shown = address.to_string();
            let rest = shown.split_once("://").map_or("", |(_, rest)| rest);
            let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
            if database.is_empty() { host.to_owned() } else { database.to_owned() }
        }
    }
}

/// What may stand in an id, with one hyphen for all that is between.
fn words(text: &str) -> String {
    let words = text.split(|c| !may_stand_in_an_id(c)).filter(|word| !word.is_empty());
    let words = words.collect::<Vec<_>>().join("-");
    if words.is_empty() { "table".to_owned() } else { words }
}

fn may_stand_in_an_id(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn ends_like_a_digest(name: &str) -> bool {
    let end = name.rsplit('-').next().unwrap_or_default();
    end.len() == DIGEST && name.contains('-') && end.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(DIGEST / 2).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_core::id::{TaskId, Tenant};

    fn plan() -> PlanId {
        PlanId::parse("move").unwrap()
    }

    #[test]
    fn ordinary_names_are_kept() {
        assert_eq!(task_id(&plan(), &TableName::new("order_lines")), "move.order_lines");
        assert_eq!(task_id(&plan(), &"sales.orders".parse().unwrap()), "move.sales.orders");
        let address: Address = "mysql://ann:s3cret@db:3306/shop?x=1".parse().unwrap();
        assert_eq!(tenant(&address, &TableName::new("orders")), "mysql://ann@db:3306/shop/orders");
    }

    #[test]
    fn any_tables_have_ids_and_tenants_that_are_allowed_and_no_two_have_the_same() {
        let plans = [plan(), PlanId::parse("p".repeat(128)).unwrap()];
        let long = "x".repeat(300);
        let names = [
            "orders",
            "Orders",
            "order lines",
            "order-lines",
            "order.lines",
            "订单",
            "订单行",
            "",
            " ",
            "{{ x }}",
            "a\nb",
            "a\tb",
            "\"q\"",
            "-",
            ".",
            "_",
            "ends-0123abcd",
            "ends",
            "Ω",
            &long,
            &long[1..],
            &"界".repeat(100),
        ];
        let address: Address = format!("postgres://ann@db/{}", "d".repeat(200)).parse().unwrap();
        let mut ids = std::collections::BTreeSet::new();
        let mut tenants = std::collections::BTreeSet::new();
        let schemas = [None, Some("sales"), Some("a.b"), Some("表")];
        for (name, schema) in names.iter().flat_map(|name| schemas.map(|schema| (*name, schema))) {
            let table = TableName { schema: schema.map(str::to_owned), name: name.to_owned() };
            for plan in &plans {
                let id = task_id(plan, &table);
                TaskId::parse(&id).unwrap();
                assert_eq!(task_id(plan, &table), id, "the same every time");
                assert!(ids.insert(id.clone()), "{table} has the id of another: {id}");
            }
            let tenant = tenant(&address, &table);
            Tenant::parse(&tenant).unwrap();
            assert!(tenants.insert(tenant.clone()), "{table} has the tenant of another: {tenant}");
        }
    }

    #[test]
    fn a_plan_is_called_by_both_databases() {
        for (source, target, expected) in [
            ("sqlite:data/shop.db", "postgres://ann:x@db/warehouse?sslmode=require", "shop-to-warehouse"),
            ("mysql://db:3306", "sqlite:订单.db", "db-to-table"),
            ("sqlite:.hidden", "sqlite:my shop.db", "s.hidden-to-my-shop"),
        ] {
            assert_eq!(plan_id(&source.parse().unwrap(), &target.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn a_schema_stays_one_only_where_it_means_the_same() {
        let table: TableName = "sales.orders".parse().unwrap();
        assert_eq!(into(&table, Dialect::Postgres, Dialect::Postgres), table);
        assert_eq!(into(&table, Dialect::Postgres, Dialect::Sqlite), TableName::new("sales_orders"));
        assert_eq!(into(&TableName::new("a"), Dialect::Sqlite, Dialect::Mysql), TableName::new("a"));
    }
}
