//! What somebody asks of a task that another node holds.

use tokio::time::Instant;

use crate::error::StoreError;
use crate::nodes::{Answered, Letter, Posted};

use super::data::{Data, Held, Hold};

#[derive(Debug)]
pub(super) struct Kept {
    /// The session that holds the task.
    to: u64,
    letter: Letter,
    answer: Option<String>,
    pub(super) at: Instant,
}

impl Data {
    pub(super) fn post(&mut self, letter: Letter) -> Result<Option<i64>, StoreError> {
        if let Some((no, _)) = self.letters.iter().find(|(_, kept)| kept.letter.id == letter.id) {
            return Ok(Some(*no));
        }
        let no = self.find_task(&letter.task)?;
        let Hold::By { owner: to, .. } = self.entry(no).hold else { return Ok(None) };
        if !matches!(self.held(no), Held::Live { .. }) {
            return Ok(None);
        }
        let number = self.next_no();
        self.letters.insert(number, Kept { to, letter, answer: None, at: Instant::now() });
        Ok(Some(number))
    }

    pub(super) fn letters_for(&self, session: u64) -> Vec<Posted> {
        let open = self.letters.iter().filter(|(_, kept)| kept.to == session && kept.answer.is_none());
        open.map(|(no, kept)| Posted { no: *no, letter: kept.letter.clone() }).collect()
    }

    pub(super) fn answer(&mut self, letter: i64, answer: String) {
        if let Some(kept) = self.letters.get_mut(&letter) {
            kept.answer.get_or_insert(answer);
        }
    }

    pub(super) fn answer_to(&self, letter: i64) -> Answered {
        match self.letters.get(&letter) {
            Some(Kept { answer: Some(answer), .. }) => Answered::With(answer.clone()),
            Some(kept) if self.sessions.is_live(kept.to) => Answered::NotYet,
            Some(_) | None => Answered::Never,
        }
    }
}
