//! Several nodes on one store in memory, each with a line to it that the test can cut.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::task::Task;
use milepost_engine::{Clock, Engine, Options, Registry};
use milepost_store::memory::MemoryStore;
use milepost_store::{Answered, Beat, ClaimRequest, Letter, Membership, Store};

use super::{Answers, DAWN, Faulty, Node, bounded};

pub(crate) struct Cluster {
    store: MemoryStore,
    clock: Clock,
}

/// A node, and its line to the store.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) line: Arc<Faulty>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self { store: MemoryStore::beginning_at(DAWN), clock: Clock::manual(DAWN) }
    }

    /// A running node under this name.
    pub(crate) fn node(&self, name: &str, registry: &Registry) -> Member {
        self.node_with(name, registry, |_| {})
    }

    pub(crate) fn node_with(&self, name: &str, registry: &Registry, set: impl FnOnce(&mut Options)) -> Member {
        let member = self.member(Membership::node(name, "boot"), name, registry, set);
        member.node.engine.start();
        member
    }

    /// One that looks and asks, and runs nothing.
    pub(crate) fn visitor(&self) -> Member {
        self.member(Membership::visitor(), "visitor", &Registry::new(), |_| {})
    }

    /// Leaves a letter for whoever holds the task, as another node would; its number.
    pub(crate) async fn post(&self, task: &str, body: &serde_json::Value) -> i64 {
        let letter = Letter { id: format!("to {task}: {body}"), task: super::task_id(task), body: body.to_string() };
        let posted = self.store.join(Membership::visitor()).post(letter).await.expect("a store");
        posted.expect("somebody holds it")
    }

    pub(crate) async fn answer_to(&self, letter: i64) -> Option<String> {
        match self.store.answer_to(letter).await.expect("a store") {
            Answered::With(answer) => Some(answer),
            Answered::NotYet | Answered::Never => None,
        }
    }

    /// A node that claims everything, renews its lease for ever, and never looks at a letter.
    pub(crate) async fn deaf_node_takes_all(&self, name: &str) {
        let store = self.store.join(Membership::node(name, "boot"));
        let request = ClaimRequest {
            node: name.into(),
            only: None,
            plans: true,
            recovery: Default::default(),
            workflows: Vec::new().into(),
            limit: 100,
            now: None,
        };
        assert!(!store.claim(request).await.expect("a store").tasks.is_empty());
        tokio::spawn(async move {
            loop {
                store.beat(Beat::default()).await.expect("a store");
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
    }

    fn member(&self, as_whom: Membership, name: &str, registry: &Registry, set: impl FnOnce(&mut Options)) -> Member {
        let line = Faulty::over(Arc::new(self.store.join(as_whom)) as Arc<dyn Store>);
        let mut options = Options::new(name);
        options.clock = self.clock.clone();
        set(&mut options);
        let node = Node { engine: Engine::new(line.clone(), registry.clone(), options) };
        Member { node, line }
    }
}

impl Member {
    /// The node hears nothing of the store and the store nothing of it, as when it is frozen or cut off.
    pub(crate) fn cut(&self) {
        self.line.answer(Answers::Hangs);
    }

    pub(crate) fn mend(&self) {
        self.line.answer(Answers::Truly);
    }

    /// Looks at the store now and then until the task is as wanted: another node may have changed it.
    pub(crate) async fn sees(&self, id: &str, wanted: impl Fn(&Task) -> bool) -> Task {
        let looking = async {
            loop {
                let task = self.node.task(id).await;
                if wanted(&task) {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        bounded(&format!("task {id} as it is wanted"), looking).await
    }
}
