//! Objects of S3-compatible stores, by the credentials and the endpoint that the usual `AWS_…` variables name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{BoxStream, StreamExt};
use milepost_core::failure::{ErrorType, Failure};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{ClientOptions, Error, ObjectStoreExt, RetryConfig};

/// A connection for each bucket, made when it is first asked for.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    known: Mutex<HashMap<String, Arc<AmazonS3>>>,
}

impl Buckets {
    pub(super) fn get(&self, bucket: &str) -> Result<Arc<AmazonS3>, Failure> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = known.get(bucket) {
            return Ok(store.clone());
        }
        let store = Arc::new(connect(bucket).map_err(|error| failure(bucket, &error))?);
        known.insert(bucket.to_owned(), store.clone());
        Ok(store)
    }

    /// The object's length, and its bytes in pieces.
    pub(super) async fn read(
        &self,
        bucket: &str,
        key: &Key,
    ) -> Result<(u64, BoxStream<'static, Result<Bytes, Failure>>), Failure> {
        let shown = format!("s3://{bucket}/{key}");
        let found = self.get(bucket)?.get(key).await.map_err(|error| failure(&shown, &error))?;
        let size = found.meta.size;
        Ok((size, found.into_stream().map_err(move |error| failure(&shown, &error)).boxed()))
    }

    /// None if there is no such object.
    pub(super) async fn size(&self, bucket: &str, key: &Key) -> Result<Option<u64>, Failure> {
        match self.get(bucket)?.head(key).await {
            Ok(about) => Ok(Some(about.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failure(&format!("s3://{bucket}/{key}"), &error)),
        }
    }

    /// Copies, then deletes: a crash in between leaves both, and doing it again comes to the same.
    pub(super) async fn rename(&self, bucket: &str, from: &Key, to: &Key) -> Result<(), Failure> {
        let store = self.get(bucket)?;
        store.copy(from, to).await.map_err(|error| failure(&format!("s3://{bucket}/{to}"), &error))?;
        self.delete(bucket, from).await
    }

    pub(super) async fn delete(&self, bucket: &str, key: &Key) -> Result<(), Failure> {
        match self.get(bucket)?.delete(key).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failure(&format!("s3://{bucket}/{key}"), &error)),
        }
    }
}

fn connect(bucket: &str) -> object_store::Result<AmazonS3> {
    // One provider for the whole process; whoever was first is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let endpoint = endpoint.iter().find_map(|name| std::env::var(name).ok());
    let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    // An attempt has a time limit of its own; a large object takes longer than any limit that fits a small one.
    let client = ClientOptions::new().with_allow_http(plain).with_timeout_disabled();
    // Attempts are counted and recorded by the engine: here only what a store asks for in passing is repeated.
    let retry = RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() };
    AmazonS3Builder::from_env().with_bucket_name(bucket).with_client_options(client).with_retry(retry).build()
}

/// What a store says, and whether another try can help.
pub(super) fn failure(place: &str, error: &Error) -> Failure {
    match error {
        Error::NotFound { .. } => Failure::fatal(ErrorType::Business, format!("there is no object {place}")),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            Failure::fatal(ErrorType::Business, format!("{place}: this node's keys do not open it"))
        }
        Error::InvalidPath { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            Failure::fatal(ErrorType::Validation, format!("{place}: {error}"))
        }
        error => {
            let causes = std::iter::successors(std::error::Error::source(error), |&error| error.source());
            // The innermost cause says what happened; those around it repeat the address, which may carry a signature.
            let cause = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
            Failure::retryable(ErrorType::Network, format!("{place}: {cause}"))
        }
    }
}
