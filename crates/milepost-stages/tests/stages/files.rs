//! Files from a real disk, a real server on the loopback interface and, where one is named, a real object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use milepost_core::failure::ErrorType;
use milepost_core::id::TaskId;
use milepost_core::plan::FileRef;
use milepost_engine::stage::{Outcome, StageCall, StageKind};
use milepost_engine::{Files, TaskFile};
use milepost_stages::{ChecksumKind, CopyKind, DiskAccess, FileSettings, NodeFiles, RunKind, ThumbnailKind};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::server::{Answer, Server, reply};
use crate::support::{Seen, call, eventually, failure, outputs, script, within};

/// `hello` and a line end.
const SUM: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

/// A folder with files in it, and a node that may touch them.
struct World {
    dir: TempDir,
    files: Arc<NodeFiles>,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(set: impl FnOnce(&mut FileSettings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let mut settings = FileSettings {
            work_dir: dir.path().join("work"),
            max_bytes: 1024 * 1024,
            disk: DiskAccess::Below(vec![dir.path().join("data")]),
            ..FileSettings::default()
        };
        set(&mut settings);
        Self { files: Arc::new(NodeFiles::new(settings)), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("data").join(name)
    }

    fn uri(&self, name: &str) -> String {
        format!("file://{}", self.path(name).display())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> FileRef {
        std::fs::write(self.path(name), bytes).unwrap();
        file(self.uri(name))
    }

    fn call(&self, file: FileRef, with: Value) -> StageCall {
        let call = call(&Arc::new(Seen::default()));
        let files: Arc<dyn Files> = self.files.clone();
        StageCall { file: Some(TaskFile::new(call.task.clone(), file, Some(files))), with, ..call }
    }

    async fn fetch(&self, file: FileRef) -> Result<String, milepost_core::failure::Failure> {
        let fetched = TaskFile::new(TaskId::parse("t").unwrap(), file, Some(self.files.clone()));
        let path = within(fetched.path()).await?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    /// Files below the work folder, without locks.
    fn here(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.file_name().unwrap() != "lock" {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.dir.path().join("work"), &mut found);
        found
    }

    /// Names in the data folder, hidden ones as well.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path().join("data")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn file(uri: impl Into<String>) -> FileRef {
    FileRef { uri: uri.into(), size: None, sha256: None, content_type: None, name: None }
}

fn picture(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::DynamicImage::new_rgb8(width, height).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

#[tokio::test]
async fn a_command_finds_the_file_of_its_task_under_its_name_and_it_is_gone_with_the_task() {
    let world = World::new();
    let file = world.write("report.txt", "hello\n");
    let seen = Arc::new(Seen::default());
    let text = r#"cat "$MILEPOST_FILE"; basename "$MILEPOST_FILE"; echo more >> "$MILEPOST_FILE""#;
    let call = StageCall { file: world.call(file, Value::Null).file, ..script(text, &seen) };
    let again = call.clone();
    outputs(within(RunKind::new().run(call)).await);
    outputs(within(RunKind::new().run(again)).await);
    assert_eq!(seen.text(), "hello\nreport.txt\nhello\nmore\nreport.txt\n", "the same file for both");
    assert_eq!(std::fs::read_to_string(world.path("report.txt")).unwrap(), "hello\n", "and a copy of its own");
    eventually("removing the file", || world.here().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_command_of_a_task_without_a_file_is_told_of_none() {
    let seen = Arc::new(Seen::default());
    outputs(within(RunKind::new().run(script(r#"set -u; printf '<%s>' "$MILEPOST_FILE""#, &seen))).await);
    assert_eq!(seen.text(), "<>");
}

#[tokio::test]
async fn a_file_comes_from_the_web_and_what_the_server_says_decides_about_another_try() {
    let world = World::new();
    let server = Server::start(|request| match request.target.as_str() {
        "/good?key=secret" => reply("200 OK", "", "hello\n"),
        "/away" => reply("503 Service Unavailable", "Retry-After: 7\r\n", ""),
        "/cut" => Answer::ReplyAndClose("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel".to_owned()),
        "/moved" => reply("302 Found", "Location: http://169.254.169.254/\r\n", ""),
        _ => reply("404 Not Found", "", ""),
    })
    .await;
    assert_eq!(world.fetch(file(server.url("/good?key=secret"))).await.unwrap(), "hello\n");
    for (path, error_type, retryable) in [
        ("/none?key=secret", ErrorType::Business, false),
        ("/moved", ErrorType::Business, false),
        ("/away", ErrorType::Unavailable, true),
        ("/cut", ErrorType::Network, true),
    ] {
        let failed = world.fetch(file(server.url(path))).await.unwrap_err();
        assert_eq!((failed.error_type, failed.retryable), (error_type, retryable), "{path}: {failed}");
        assert!(!failed.reason.contains("secret"), "{failed}");
    }
    let closed = file("http://127.0.0.1:1/x");
    assert_eq!(world.fetch(closed).await.unwrap_err().error_type, ErrorType::Network);
    let metadata = world.fetch(file("http://169.254.169.254/latest")).await.unwrap_err();
    assert_eq!((metadata.error_type, metadata.retryable), (ErrorType::Validation, false));
    assert!(world.here().is_empty(), "no half file stays: {:?}", world.here());
}

#[tokio::test]
async fn a_file_that_is_not_what_the_plan_says_is_refused_for_good() {
    let world = World::new();
    let good = world.write("a", "hello\n");
    let right = FileRef { size: Some(6), sha256: Some(SUM.to_owned()), ..good.clone() };
    assert_eq!(world.fetch(right).await.unwrap(), "hello\n");
    for (wrong, error_type) in [
        (FileRef { size: Some(5), ..good.clone() }, ErrorType::Validation),
        (FileRef { sha256: Some("0".repeat(64)), ..good.clone() }, ErrorType::Validation),
        (file(world.uri("none")), ErrorType::Business),
        (file(format!("file://{}", world.dir.path().join("data").display())), ErrorType::Validation),
        (file("file:///etc/hostname"), ErrorType::Validation),
        (world.write("large", vec![0; 1024 * 1024 + 1]), ErrorType::Persistence),
    ] {
        let failed = world.fetch(wrong.clone()).await.unwrap_err();
        assert_eq!((failed.error_type, failed.retryable), (error_type, false), "{wrong:?}: {failed}");
    }
    assert!(world.here().is_empty());
}

#[tokio::test]
async fn a_file_whose_length_is_not_told_is_cut_off_at_the_limit() {
    let world = World::new();
    let server = Server::start(|_| Answer::ReplyEndlessly("HTTP/1.1 200 OK\r\n\r\n".to_owned())).await;
    let failed = world.fetch(file(server.url("/"))).await.unwrap_err();
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Persistence, false), "{failed}");
    assert!(world.here().is_empty());
}

#[tokio::test]
async fn a_file_for_which_there_is_no_room_is_tried_again_later() {
    let world = World::with(|settings| settings.max_bytes = u64::MAX);
    let server = Server::start(|_| {
        Answer::ReplyAndClose("HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\n".to_owned())
    })
    .await;
    let failed = world.fetch(file(server.url("/"))).await.unwrap_err();
    assert_eq!((failed.error_type, failed.retryable), (ErrorType::Unavailable, true), "{failed}");
    assert!(failed.reason.contains("has room for"), "{failed}");
}

#[tokio::test]
async fn a_fetch_that_is_cancelled_leaves_nothing_behind() {
    let world = World::new();
    let started = Arc::new(AtomicUsize::new(0));
    let counted = started.clone();
    let server = Server::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Answer::Silence
    })
    .await;
    let fetched = TaskFile::new(TaskId::parse("t").unwrap(), file(server.url("/")), Some(world.files.clone()));
    let fetching = tokio::spawn(async move { fetched.path().await });
    eventually("the request", || (started.load(Ordering::SeqCst) > 0).then_some(())).await;
    fetching.abort();
    assert!(within(fetching).await.unwrap_err().is_cancelled());
    assert!(world.here().is_empty());
}

#[tokio::test]
async fn a_checksum_is_recorded_or_compared_and_a_mismatch_is_final() {
    let world = World::new();
    let file = world.write("a", "hello\n");
    let recorded = outputs(within(ChecksumKind.run(world.call(file.clone(), Value::Null))).await);
    assert_eq!(recorded["checksum"], SUM);
    outputs(within(ChecksumKind.run(world.call(file.clone(), json!({"expected": SUM.to_uppercase()})))).await);
    let wrong = json!({"expected": "0".repeat(64)});
    let failed = failure(within(ChecksumKind.run(world.call(file, wrong))).await);
    assert!(!failed.retryable && failed.reason.contains(SUM), "{failed}");
    for bad in [json!({"expected": "abc"}), json!({"algorithm": "crc32"}), json!({"sum": SUM})] {
        assert!(ChecksumKind.check(&bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_copy_leaves_its_source_and_a_rename_does_not_and_both_can_be_repeated() {
    let world = World::new();
    let file = world.write("a", "hello\n");
    let (copy, rename) = (CopyKind::copy(world.files.clone()), CopyKind::rename(world.files.clone()));
    for _ in 0..2 {
        let made = outputs(within(copy.run(world.call(file.clone(), json!({"to": world.uri("new/b")})))).await);
        assert_eq!(made["size"], 6);
        assert_eq!(std::fs::read_to_string(world.path("new/b")).unwrap(), "hello\n");
    }
    for _ in 0..2 {
        outputs(within(rename.run(world.call(file.clone(), json!({"to": world.uri("c")})))).await);
        assert_eq!(world.names(), ["c", "new"]);
    }
    let other = FileRef { size: Some(5), ..file.clone() };
    let failed = failure(within(rename.run(world.call(other, json!({"to": world.uri("c")})))).await);
    assert!(!failed.retryable, "the target is another file: {failed}");
    let gone = failure(within(rename.run(world.call(file, json!({"to": world.uri("d")})))).await);
    assert_eq!((gone.error_type, gone.retryable), (ErrorType::Business, false));
}

#[tokio::test]
async fn a_file_is_not_renamed_to_itself_nor_written_where_it_may_not() {
    let world = World::new();
    let file = world.write("a", "hello\n");
    let rename = CopyKind::rename(world.files.clone());
    let outside = format!("file://{}", world.dir.path().join("outside").display());
    for to in [world.uri("a"), world.uri("new/../a"), outside, "http://127.0.0.1/x".to_owned()] {
        let failed = failure(within(rename.run(world.call(file.clone(), json!({"to": to})))).await);
        assert_eq!((failed.error_type, failed.retryable), (ErrorType::Validation, false), "{to}: {failed}");
    }
    assert_eq!(world.names(), ["a"]);
    for bad in [json!(null), json!({"to": 5}), json!({"to": "x"}), json!({"to": "s3://b/k", "publish": "later"})] {
        assert!(rename.check(&bad).is_err(), "{bad}");
    }
    assert_eq!(rename.check(&json!({"to": "s3://b/{{ file.name }}", "publish": "end"})), Ok(()));
}

#[tokio::test]
async fn what_is_published_at_the_end_is_hidden_until_then_and_each_step_can_be_repeated() {
    let world = World::new();
    let file = world.write("a", "hello\n");
    let with = json!({"to": world.uri("b"), "publish": "end"});
    let call = || world.call(file.clone(), with.clone());
    let rename = CopyKind::rename(world.files.clone());
    assert!(rename.holds_back(&with));
    // A crash before the stage's success is written: it is run again.
    outputs(within(rename.run(call())).await);
    outputs(within(rename.run(call())).await);
    assert!(world.path("a").exists() && !world.path("b").exists());
    assert_eq!(world.names().len(), 2);

    // A task that failed, and is retried from its checkpoint.
    within(rename.withdraw(call())).await;
    assert_eq!(world.names(), ["a"]);
    within(rename.publish(call())).await.unwrap();
    assert_eq!(world.names(), ["b"]);

    // A crash before the end of the task is written: it is published again, and finds that all is done.
    within(rename.publish(call())).await.unwrap();
    assert_eq!(world.names(), ["b"]);
    assert_eq!(std::fs::read_to_string(world.path("b")).unwrap(), "hello\n");

    // The same for a copy, whose source stays.
    let copy = CopyKind::copy(world.files.clone());
    let (source, with) = (self::file(world.uri("b")), json!({"to": world.uri("c"), "publish": "end"}));
    outputs(within(copy.run(world.call(source.clone(), with.clone()))).await);
    for _ in 0..2 {
        within(copy.publish(world.call(source.clone(), with.clone()))).await.unwrap();
        assert_eq!(world.names(), ["b", "c"]);
    }
}

#[tokio::test]
async fn a_thumbnail_fits_its_frame_keeps_its_proportions_and_skips_what_is_no_image() {
    let world = World::new();
    let kind = ThumbnailKind::new(world.files.clone());
    let wide = world.write("wide.png", picture(400, 100));
    for (format, expected) in
        [("webp", image::ImageFormat::WebP), ("png", image::ImageFormat::Png), ("jpeg", image::ImageFormat::Jpeg)]
    {
        let with = json!({"to": world.uri(format), "format": format});
        let made = outputs(within(kind.run(world.call(wide.clone(), with))).await);
        assert_eq!((&made["width"], &made["height"]), (&json!(200), &json!(50)));
        let bytes = std::fs::read(world.path(format)).unwrap();
        assert_eq!(image::guess_format(&bytes).unwrap(), expected);
        let read = image::load_from_memory(&bytes).unwrap();
        assert_eq!((read.width(), read.height()), (200, 50));
    }
    let small = world.write("small.png", picture(20, 10));
    let made = outputs(within(kind.run(world.call(small, json!({"to": world.uri("s")})))).await);
    assert_eq!((&made["width"], &made["height"]), (&json!(20), &json!(10)), "never made larger");
    for text in ["", "hello\n", "<svg/>", "%PDF-1.7"] {
        let text = world.write("text.png", text);
        let outcome = within(kind.run(world.call(text, json!({"to": world.uri("t")})))).await;
        assert!(matches!(outcome, Outcome::Skip { .. }), "{outcome:?}");
    }
    assert!(!world.path("t").exists());
}

#[tokio::test]
async fn a_broken_picture_and_one_that_says_it_is_huge_are_refused_for_good() {
    let world = World::new();
    let kind = ThumbnailKind::new(world.files.clone());
    let mut huge = picture(10, 10);
    // The width and height of a PNG, in bytes 16 to 23, and the sum over the header behind them.
    huge[16..24].copy_from_slice(&[0x00, 0x00, 0x7f, 0x00, 0x00, 0x00, 0x7f, 0x00]);
    let sum = checksum_of_png(&huge[12..29]);
    huge[29..33].copy_from_slice(&sum.to_be_bytes());
    let cut = picture(300, 300)[..60].to_vec();
    for (name, bytes) in [("huge", huge), ("cut", cut)] {
        let file = world.write(name, bytes);
        let failed = failure(within(kind.run(world.call(file, json!({"to": world.uri("t")})))).await);
        assert!(!failed.retryable, "{name}: {failed}");
    }
    for bad in [json!({"to": "s3://b/k", "width": 0}), json!({"to": "s3://b/k", "format": "tiff"}), json!({"width": 5})]
    {
        assert!(kind.check(&bad).is_err(), "{bad}");
    }
}

fn checksum_of_png(bytes: &[u8]) -> u32 {
    let fold = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 })
    };
    !bytes.iter().fold(u32::MAX, fold)
}

/// Runs where `MILEPOST_TEST_S3` names a bucket, such as `s3://bucket`, that the `AWS_…` variables lead to.
#[tokio::test]
async fn files_go_to_an_object_store_and_come_from_there() {
    let Ok(bucket) = std::env::var("MILEPOST_TEST_S3") else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "MILEPOST_TEST_S3 is not set");
        eprintln!("SKIPPED: MILEPOST_TEST_S3 is not set, so nothing was tested on an object store");
        return;
    };
    let world = World::with(|settings| settings.max_bytes = 64 * 1024 * 1024);
    let run = std::process::id();
    let at = |name: &str| format!("{bucket}/{run}/{name}");
    // Large enough to be sent in several parts.
    let text = "0123456789abcdef".repeat(1024 * 1024 + 1);
    let local = FileRef { content_type: Some("text/plain".to_owned()), ..world.write("a", &text) };
    let (copy, rename) = (CopyKind::copy(world.files.clone()), CopyKind::rename(world.files.clone()));

    let to = json!({"to": at("folder/a%20b.txt")});
    outputs(within(copy.run(world.call(local.clone(), to))).await);
    let stored = FileRef { size: Some(text.len() as u64), ..file(at("folder/a%20b.txt")) };
    assert_eq!(world.fetch(stored.clone()).await.unwrap(), text);

    let hidden = json!({"to": at("folder/c.txt"), "publish": "end"});
    outputs(within(rename.run(world.call(stored.clone(), hidden.clone()))).await);
    assert!(!world.fetch(file(at("folder/c.txt"))).await.unwrap_err().retryable, "not to be seen yet");
    for _ in 0..2 {
        within(rename.publish(world.call(stored.clone(), hidden.clone()))).await.unwrap();
    }
    assert_eq!(world.fetch(file(at("folder/c.txt"))).await.unwrap(), text);
    let gone = world.fetch(stored).await.unwrap_err();
    assert_eq!((gone.error_type, gone.retryable), (ErrorType::Business, false), "{gone}");

    let image = world.write("p.png", picture(300, 300));
    let thumbnail = ThumbnailKind::new(world.files.clone());
    let made = outputs(within(thumbnail.run(world.call(image, json!({"to": at("t.webp")})))).await);
    assert_eq!(made["width"], 200);
    let no_bucket = world.fetch(file("s3://milepost-no-such-bucket/x")).await.unwrap_err();
    assert!(!no_bucket.retryable, "{no_bucket}");
}
