//! What is asked of a task that another node holds. Redis forgets letters and their answers by itself after an hour.

use crate::error::StoreError;
use crate::nodes::{Answered, Letter, Posted};

use super::script::LETTERS;
use super::shared::Shared;

/// None when no live node holds the task.
pub(super) async fn post(shared: &Shared, letter: Letter) -> Result<Option<i64>, StoreError> {
    let mut call = shared.call(&LETTERS);
    call.arg("post").arg(letter.task.as_str()).arg(letter.body).arg(letter.id);
    let answer = shared.run(&LETTERS, &call, "post a letter").await?;
    Ok(redis::from_redis_value::<i64>(answer).ok().filter(|no| *no > 0))
}

pub(super) async fn letters(shared: &Shared) -> Result<Vec<Posted>, StoreError> {
    let mut call = shared.call(&LETTERS);
    call.arg("letters");
    let mut letters = Vec::new();
    for row in shared.answer(&LETTERS, &call, "read letters").await?.lists()? {
        let letter = Letter { id: row.text(3)?.to_owned(), task: row.task_id(1)?, body: row.text(2)?.to_owned() };
        letters.push(Posted { no: row.number(0)?, letter });
    }
    Ok(letters)
}

pub(super) async fn answer(shared: &Shared, letter: i64, text: String) -> Result<(), StoreError> {
    let mut call = shared.call(&LETTERS);
    call.arg("answer").arg(letter).arg(text);
    shared.run(&LETTERS, &call, "answer a letter").await.map(|_| ())
}

pub(super) async fn call_others(shared: &Shared) -> Result<(), StoreError> {
    let mut call = shared.call(&LETTERS);
    call.arg("call");
    shared.run(&LETTERS, &call, "call the other nodes").await.map(|_| ())
}

pub(super) async fn answer_to(shared: &Shared, letter: i64) -> Result<Answered, StoreError> {
    let mut call = shared.call(&LETTERS);
    call.arg("read").arg(letter);
    let answer = shared.answer(&LETTERS, &call, "read an answer").await?;
    Ok(match answer.text(0)? {
        "with" => Answered::With(answer.text(1)?.to_owned()),
        "not yet" => Answered::NotYet,
        _ => Answered::Never,
    })
}
