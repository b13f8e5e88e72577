//! The table, asked of a running server.

use std::collections::BTreeSet;

use crate::table::{Answer, ROUTES, Who};
use crate::world::World;

#[tokio::test]
async fn every_route_has_its_row_in_the_table() {
    let world = World::new().await;
    let served: BTreeSet<String> = world.routes().await.into_iter().collect();
    let expected: BTreeSet<String> = ROUTES.iter().map(|(route, _)| (*route).to_owned()).collect();
    assert_eq!(served, expected, "who may use a new route is said in the table first");
    assert_eq!(expected.len(), ROUTES.len(), "a route has one row");
    world.close().await;
}

#[tokio::test]
async fn each_caller_reaches_what_the_table_says_and_a_refusal_changes_nothing() {
    let mut wrong = Vec::new();
    let (mut let_in, mut refused) = (0, 0);
    for (route, reach) in ROUTES {
        // Each route meets the store untouched, and those who are refused come first.
        let world = World::new().await;
        let (no, yes): (Vec<Who>, Vec<Who>) =
            Who::ALL.into_iter().partition(|who| reach.answer(*who) != Answer::Allowed);
        let before = world.everything().await;
        for who in no.into_iter().chain(yes) {
            let (expected, response) = (reach.answer(who), world.ask(route, who).await);
            let status = response.status().as_u16();
            if Answer::of(status) != expected || status >= 500 {
                wrong.push(format!("{route} by {who:?}: {status}, expected {expected:?}"));
                continue;
            }
            if expected == Answer::Allowed {
                let_in += 1;
                continue;
            }
            refused += 1;
            assert_eq!(response.headers()["content-type"], "application/problem+json", "{route} by {who:?}");
            assert!(response.headers().contains_key("www-authenticate") || status == 403, "{route} by {who:?}");
            assert_eq!(world.everything().await, before, "{route} by {who:?} was refused, and done all the same");
        }
        world.close().await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (routes, callers) = (ROUTES.len(), Who::ALL.len());
    eprintln!("{routes} routes × {callers} callers = {}: {let_in} let in, {refused} refused", routes * callers);
    assert_eq!(let_in + refused, routes * callers);
}
