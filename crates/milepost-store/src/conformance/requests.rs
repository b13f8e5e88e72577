//! A submission that is sent again, because its answer was lost on the way.

use std::sync::Arc;

use milepost_core::plan::PlanCommand;
use milepost_core::task::{Command, PlanStatus};
use milepost_core::time::Millis;

use crate::error::StoreError;
use crate::model::{Difference, REQUESTS_KEPT_FOR, RequestKey, Resubmit, Start, Submission, Submitted};

use super::Harness;
use super::given::{PlanBuilder, Scene, ann, plan, plan_id};

/// Under a key; `asked` stands for all that is in the request.
async fn request(
    scene: &Scene<'_>,
    key: &str,
    asked: u8,
    plan: PlanBuilder,
    resubmit: Resubmit,
) -> Result<Submitted, StoreError> {
    let request = Some(RequestKey { key: key.to_owned(), digest: [asked; 32] });
    let submission = Submission {
        plan: Arc::new(plan.0),
        start: Start::Later,
        resubmit,
        request,
        entries: Vec::new(),
        now: scene.now,
    };
    scene.store.submit(submission).await
}

pub(super) async fn a_request_sent_again_gets_the_first_answer_and_changes_nothing(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let first = request(&scene, "k", 1, plan("p").task("a"), Resubmit::Same).await.unwrap();
    assert!(first.created && !first.replayed);
    // The plan moves on, and the answer does not.
    scene.verb("p", PlanCommand::Start).await;
    scene.verb("p", PlanCommand::Pause).await;
    let (before, newest) = (scene.snapshot("p").await, scene.store.newest().await.unwrap());
    for restart in [false, true] {
        if restart {
            scene.crash().await;
        }
        let again = request(&scene, "k", 1, plan("p").task("a"), Resubmit::Same).await.unwrap();
        assert_eq!(again, Submitted { replayed: true, ..first.clone() });
        assert_eq!((scene.snapshot("p").await, scene.store.newest().await.unwrap()), (before.clone(), newest));
    }
}

pub(super) async fn a_request_sent_again_is_answered_even_if_it_would_clash_by_now(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    scene.submit_for_later(plan("p").task("a").task("gone")).await;
    let changed = plan("p").task("a").task("b");
    let first = request(&scene, "k", 1, changed.clone(), Resubmit::Update).await.unwrap();
    assert_eq!(first.difference, Difference { added: 1, removed: 1 });
    scene.verb("p", PlanCommand::Start).await;
    let task = scene.claim().await.tasks.remove(0);
    assert_eq!(request(&scene, "k", 1, changed, Resubmit::Update).await.unwrap().difference, first.difference);
    scene.does(&task, Command::Cancel(ann())).await;
    let other = request(&scene, "k", 1, plan("p").task("z"), Resubmit::Same).await.unwrap();
    assert_eq!(other, Submitted { replayed: true, ..first });
}

pub(super) async fn a_key_used_for_another_request_is_refused(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    request(&scene, "k", 1, plan("p").task("a"), Resubmit::Same).await.unwrap();
    let reused = request(&scene, "k", 2, plan("q").task("b"), Resubmit::Same).await;
    assert!(matches!(&reused, Err(StoreError::KeyReused { key }) if key == "k"), "{reused:?}");
    assert_eq!(scene.store.plan(&plan_id("q")).await.unwrap(), None);
    // Another key, and the same words as the first: the plan is there already.
    let again = request(&scene, "other", 1, plan("p").task("a"), Resubmit::Same).await.unwrap();
    assert!(!again.created && !again.replayed);
}

pub(super) async fn a_refused_submission_leaves_its_key_free(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    scene.submit_for_later(plan("p").task("a")).await;
    request(&scene, "k", 1, plan("q").task("a"), Resubmit::Same).await.unwrap_err();
    let corrected = request(&scene, "k", 2, plan("q").task("b"), Resubmit::Same).await.unwrap();
    assert!(corrected.created && !corrected.replayed);
}

pub(super) async fn a_key_is_forgotten_after_a_day(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    request(&scene, "k", 1, plan("p").task("a"), Resubmit::Same).await.unwrap();
    scene.later(Millis::new(REQUESTS_KEPT_FOR.get() - 1));
    assert!(request(&scene, "k", 1, plan("p").task("a"), Resubmit::Same).await.unwrap().replayed);
    scene.later(Millis::new(1));
    let second = request(&scene, "k", 2, plan("q").task("b"), Resubmit::Same).await.unwrap();
    assert!(second.created && !second.replayed);
    // From here on it is the second one's.
    let again = request(&scene, "k", 2, plan("q").task("b"), Resubmit::Same).await.unwrap();
    assert_eq!((again.replayed, again.plan.status), (true, PlanStatus::Ready));
}

pub(super) async fn forgetting_old_keys_keeps_the_young_ones(harness: &dyn Harness) {
    let mut scene = Scene::new(harness).await;
    let half_a_day = Millis::new(REQUESTS_KEPT_FOR.get() / 2);
    let keys = |age: &str| (0..20).map(|n| format!("{age}-{n}")).collect::<Vec<_>>();
    for age in ["old", "young", "new"] {
        for key in keys(age) {
            request(&scene, &key, 1, plan(&key).task(&format!("task-of-{key}")), Resubmit::Same).await.unwrap();
        }
        scene.later(half_a_day);
    }
    scene.now = scene.now - half_a_day;
    for age in ["young", "new"] {
        for key in keys(age) {
            let again = request(&scene, &key, 1, plan(&key).task(&format!("task-of-{key}")), Resubmit::Same).await;
            assert!(again.unwrap().replayed, "{key}");
        }
    }
}

pub(super) async fn one_request_sent_many_times_at_once_is_taken_once(harness: &dyn Harness) {
    let scene = Scene::new(harness).await;
    let sent = (0..8).map(|_| {
        let request = Some(RequestKey { key: "k".to_owned(), digest: [1; 32] });
        let submission = Submission {
            plan: Arc::new(plan("p").task("a").0),
            start: Start::AtOnce,
            resubmit: Resubmit::Same,
            request,
            entries: Vec::new(),
            now: scene.now,
        };
        let store = scene.store.clone();
        tokio::spawn(async move { store.submit(submission).await.unwrap() })
    });
    let mut first = 0;
    for answer in sent.collect::<Vec<_>>() {
        let answer = answer.await.unwrap();
        assert!(answer.created);
        first += u32::from(!answer.replayed);
    }
    assert_eq!(first, 1);
}
