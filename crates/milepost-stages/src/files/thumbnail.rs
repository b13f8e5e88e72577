//! `uses: image.thumbnail`: a small picture of the task's file, if that is a picture.

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use milepost_core::failure::{ErrorType, Failure};
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::checksum::no_file;
use super::node::NodeFiles;
use super::put::{Content, Source};
use super::staging::{self, Target};
use crate::parameters::{is_template, only_keys};

const KEYS: [&str; 5] = ["to", "publish", "width", "height", "format"];
const DEFAULT_SIDE: u32 = 200;
const LARGEST_SIDE: u32 = 4096;
/// A file of a few kilobytes can say that it is a picture of gigabytes.
const LARGEST_PICTURE: u32 = 32_768;
const MOST_MEMORY: u64 = 512 * 1024 * 1024;

/// Fits into `width` and `height`, keeps its proportions, and is never larger than the picture itself.
#[derive(Debug, Clone)]
pub struct ThumbnailKind {
    files: Arc<NodeFiles>,
}

#[derive(Debug, Clone, Copy)]
struct Wanted {
    width: u32,
    height: u32,
    format: ImageFormat,
}

#[derive(Debug)]
struct Picture {
    bytes: Vec<u8>,
    width: u32,
    height: u32,
}

impl ThumbnailKind {
    pub fn new(files: Arc<NodeFiles>) -> Self {
        Self { files }
    }

    async fn make(&self, call: &StageCall) -> Result<Outcome, Failure> {
        let target = Target::of(call)?;
        let wanted = Wanted::parse(&call.with).map_err(|reason| Failure::fatal(ErrorType::Validation, reason))?;
        let Some(path) = call.file_path().await? else { return Ok(no_file()) };
        // The file stays here while this runs, also if nobody waits for it any more.
        let (file, cancel) = (call.file.clone(), call.cancel.clone());
        let shrunk = tokio::task::spawn_blocking(move || {
            let picture = shrink(&path, wanted, &cancel);
            drop(file);
            picture
        });
        let Some(picture) = shrunk.await.map_err(Failure::from)?? else {
            return Ok(Outcome::Skip { reason: "the file is no image".to_owned() });
        };
        let Picture { bytes, width, height } = picture;
        let content_type = Some(wanted.format.to_mime_type().to_owned());
        let size = target.put(&self.files, &Content { source: Source::Bytes(bytes.into()), content_type }).await?;
        let outputs =
            [("uri", json!(target.uri)), ("size", json!(size)), ("width", json!(width)), ("height", json!(height))];
        Ok(Outcome::Success { outputs: outputs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() })
    }

    async fn show(&self, call: &StageCall) -> Result<(), Failure> {
        let target = Target::of(call)?;
        if target.show(&self.files).await? {
            return Ok(());
        }
        match self.make(call).await? {
            Outcome::Success { .. } => target.show(&self.files).await.map(|_| ()),
            Outcome::Skip { .. } => Ok(()),
            Outcome::Failure(failure) => Err(failure),
        }
    }
}

impl Wanted {
    fn parse(with: &Value) -> Result<Self, String> {
        let format = match with.get("format") {
            None | Some(Value::Null) => ImageFormat::WebP,
            Some(Value::String(format)) => match format.as_str() {
                "webp" => ImageFormat::WebP,
                "png" => ImageFormat::Png,
                "jpeg" | "jpg" => ImageFormat::Jpeg,
                _ => return Err(format!("`format` is {format:?}; webp, png and jpeg are known")),
            },
            Some(_) => return Err("`format` must be webp, png or jpeg".to_owned()),
        };
        Ok(Self { width: side(with, "width")?, height: side(with, "height")?, format })
    }
}

/// A template may render to text.
fn side(with: &Value, key: &str) -> Result<u32, String> {
    let value = match with.get(key) {
        None | Some(Value::Null) => return Ok(DEFAULT_SIDE),
        Some(value) => value,
    };
    let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
    let number = number.and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| (1..=LARGEST_SIDE).contains(number))
        .ok_or_else(|| format!("`{key}` must be a number of pixels from 1 to {LARGEST_SIDE}"))
}

/// None if it is no image that is known here. Cannot be stopped while it decodes, but between its steps.
fn shrink(path: &Path, wanted: Wanted, cancel: &CancellationToken) -> Result<Option<Picture>, Failure> {
    let unreadable = |error: std::io::Error| super::disk::failure(path, &error);
    let go_on = || match cancel.is_cancelled() {
        true => Err(Failure::retryable(ErrorType::Timeout, "cancelled")),
        false => Ok(()),
    };
    // By its bytes alone: what a file is called says little about it.
    let file = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut reader = ImageReader::new(file).with_guessed_format().map_err(unreadable)?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(LARGEST_PICTURE);
    limits.max_image_height = Some(LARGEST_PICTURE);
    limits.max_alloc = Some(MOST_MEMORY);
    reader.limits(limits);
    go_on()?;
    let mut decoder = match reader.into_decoder() {
        Ok(decoder) => decoder,
        Err(ImageError::Unsupported(_)) => return Ok(None),
        Err(error) => return Err(broken(&error)),
    };
    // A camera writes the picture as it was held, and beside it how to turn it; without that it stays as it is.
    let orientation = decoder.orientation().ok();
    let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| broken(&error))?;
    go_on()?;
    if let Some(orientation) = orientation {
        picture.apply_orientation(orientation);
    }
    if picture.width() > wanted.width || picture.height() > wanted.height {
        picture = picture.thumbnail(wanted.width, wanted.height);
    }
    go_on()?;
    let picture = match wanted.format {
        // It knows no transparency.
        ImageFormat::Jpeg => DynamicImage::ImageRgb8(picture.to_rgb8()),
        _ => DynamicImage::ImageRgba8(picture.to_rgba8()),
    };
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, wanted.format).map_err(|error| broken(&error))?;
    Ok(Some(Picture { bytes: bytes.into_inner(), width: picture.width(), height: picture.height() }))
}

fn broken(error: &ImageError) -> Failure {
    Failure::fatal(ErrorType::Business, format!("the image cannot be read: {error}"))
}

#[async_trait]
impl StageKind for ThumbnailKind {
    fn check(&self, with: &Value) -> Result<(), String> {
        let object = only_keys("image.thumbnail", with, &KEYS)?;
        staging::check(object)?;
        // What a template will give is looked at when it has.
        let known: Map<String, Value> = object
            .into_iter()
            .flatten()
            .filter(|(_, value)| !is_template(value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Wanted::parse(&Value::Object(known)).map(|_| ())
    }

    async fn run(&self, call: StageCall) -> Outcome {
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Outcome::Failure(Failure::retryable(ErrorType::Timeout, "cancelled")),
            outcome = self.make(&call) => outcome.unwrap_or_else(Outcome::Failure),
        }
    }

    fn holds_back(&self, with: &Value) -> bool {
        staging::holds_back(with)
    }

    async fn publish(&self, call: StageCall) -> Result<(), Failure> {
        self.show(&call).await
    }

    async fn withdraw(&self, call: StageCall) {
        if let Ok(target) = Target::of(&call) {
            target.take_away(&self.files).await;
        }
    }
}
