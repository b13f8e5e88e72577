//! What somebody may have meant.

/// Up to three names like this one, as the end of a sentence; empty if there are none.
pub(super) fn near(word: &str, known: impl IntoIterator<Item = String>) -> String {
    let plain = |text: &str| text.rsplit('.').next().unwrap_or_default().to_lowercase();
    let wanted = plain(word);
    let mut found: Vec<(usize, String)> = known
        .into_iter()
        .map(|name| (distance(&wanted, &plain(&name)), name))
        .filter(|(distance, name)| *distance <= 2.min(wanted.len() / 2) || plain(name).contains(&wanted))
        .collect();
    found.sort();
    let names: Vec<String> = found.into_iter().take(3).map(|(_, name)| format!("`{name}`")).collect();
    if names.is_empty() { String::new() } else { format!("; there is {}", names.join(", ")) }
}

/// How many letters have to be added, left out or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut costs: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut costs[0], row + 1);
        for column in 0..to.len() {
            let changed = diagonal + usize::from(letter != to[column]);
            diagonal = costs[column + 1];
            costs[column + 1] = changed.min(diagonal + 1).min(costs[column] + 1);
        }
    }
    costs[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike_are_offered() {
        let known = || ["customers", "orders", "shop.order_lines", "x"].map(str::to_owned);
        assert_eq!(near("custmers", known()), "; there is `customers`");
        assert_eq!(near("ORDER", known()), "; there is `orders`, `shop.order_lines`");
        assert_eq!(near("public.orders", known()), "; there is `orders`");
        assert_eq!(near("y", known()), "");
    }
}
