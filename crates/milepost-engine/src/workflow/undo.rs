//! How a stage is undone: a closure that outlives the function, because the function has failed when it is needed.

use std::sync::Arc;

use futures::future::BoxFuture;
use milepost_core::failure::{ErrorType, Failure};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Given the stage's result; none when the stage never completed, though it may have done something.
pub(crate) type Handler = Arc<dyn Fn(Option<Value>) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

pub(crate) fn handler<T, E, F, Fut>(undo: F) -> Handler
where
    F: Fn(Option<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    T: DeserializeOwned,
    E: Into<Failure>,
{
    Arc::new(move |value| {
        let result = value.map(serde_json::from_value::<T>).transpose();
        let work = result.map(&undo);
        Box::pin(async move {
            match work {
                Ok(work) => work.await.map_err(Into::into),
                Err(error) => Err(Failure::fatal(
                    ErrorType::Validation,
                    format!("the recorded result cannot be read by its rollback: {error}"),
                )),
            }
        })
    })
}
