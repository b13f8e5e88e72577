//! Messages that come, come again, come late or are put back, and books that are written and struck out beside them.

use milepost_core::message::Arrival;
use milepost_core::plan::PlanCommand;
use milepost_core::task::{Command, TaskStatus, decide};
use milepost_core::time::Millis;

use crate::books::{Book, BookChange, Entry};
use crate::conformance::books::{all_entries, in_pages};
use crate::conformance::given::{ann, task_id};
use crate::conformance::messages::{arrival, heard};
use crate::model::{Commit, Holder, LeaseChange};
use crate::store::Store;

use super::{Story, same};

/// Few, so that the same one comes again.
const MESSAGES: u64 = 30;
const KEYS: u64 = 6;

impl Story<'_> {
    fn arrival(&mut self) -> Arrival {
        let id = format!("m{}", self.die.below(MESSAGES));
        let deadline = self.die.one_in(3).then(|| self.now + Millis::new(self.die.below(300)) - Millis::new(50));
        let remembered_until = self.now + Millis::new(self.die.below(4000));
        Arrival { deadline, remembered_until, ..arrival(&id, self.now) }
    }

    /// What a submission brings along: now and then a message that was heard before.
    pub(super) fn entries_of_a_submission(&mut self) -> Vec<Entry> {
        if self.die.one_in(4) { vec![heard(&self.arrival(), self.now)] } else { Vec::new() }
    }

    /// For a task that waits for one, or to have one that was given up tried again.
    pub(super) async fn message(&mut self) {
        let tasks = self.added;
        if tasks == 0 {
            return;
        }
        let first = self.die.below(tasks);
        for number in (0..tasks).map(|number| 1 + (first + number) % tasks) {
            let Some(model) = self.model.task(&task_id(&format!("t{number}"))).await.unwrap() else { continue };
            let message = self.arrival().into();
            let (command, plan) = match model.task.status() {
                _ if model.task.awaits_message() => (Command::Receive(message), None),
                TaskStatus::Failed => (Command::Redrive { by: ann(), message }, Some(PlanCommand::Retry)),
                _ => continue,
            };
            let Ok(decision) = decide(&model.task, command.clone(), self.now) else { continue };
            self.tell(format!("{} message for t{number}: {command:?}", self.now));
            let subject = self.subject.task(&model.key.id).await.unwrap().expect("both have it");
            let commit = Commit {
                key: model.key.clone(),
                holder: Holder::Operator,
                expected: model.task.version(),
                events: decision.events.into(),
                task: decision.task.into(),
                lease: LeaseChange::Keep,
                plan,
                output: Vec::new(),
            };
            self.commit_both(commit, &subject, Holder::Operator).await;
            return;
        }
    }

    pub(super) async fn change_books(&mut self) {
        let mut change = BookChange::default();
        for _ in 0..=self.die.below(2) {
            let book = Book::ALL[self.die.below(4) as usize];
            let key = format!("k{}", self.die.below(KEYS));
            let until = self.die.one_in(2).then(|| self.now + Millis::new(self.die.below(2000)));
            let body = format!("{{\"at\":{}}}", self.told.steps.len());
            change.keep.push(Entry { book, key, at: self.now, until, body });
        }
        // What comes first in a book is most often what is done with.
        let book = Book::ALL[self.die.below(4) as usize];
        let there = all_entries(&self.model, book, self.now).await;
        change.strike.extend(there.into_iter().take(self.die.below(3) as usize).map(|entry| (book, entry.key)));
        self.tell(format!("{} books: {change:?}", self.now));
        let (model, subject) = (self.model.change_books(change.clone()).await, self.subject.change_books(change).await);
        same(model, subject, |()| ());
    }

    pub(super) async fn check_books(&self) {
        for book in Book::ALL {
            let model = all_entries(&self.model, book, self.now).await;
            assert_eq!(in_pages(&*self.subject, book, self.now, 3).await, model);
            for number in 0..MESSAGES.max(KEYS) {
                for key in [format!("m{number}"), format!("k{number}")] {
                    let found = self.subject.entry(book, &key, self.now).await.unwrap();
                    assert_eq!(found, self.model.entry(book, &key, self.now).await.unwrap());
                }
            }
        }
    }
}
