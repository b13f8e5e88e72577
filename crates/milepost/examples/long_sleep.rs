//! A sleep that outlives the process: the engine is stopped in the middle of it, and another one is there when it ends.
//!
//! `cargo run -p milepost --example long_sleep`. The sleep is two seconds here, and may as well be two months.

use milepost::{Context, Engine, Failure, Milepost, millis, secs};

#[milepost::workflow]
async fn reminder(ctx: &mut Context, name: String) -> Result<String, Failure> {
    let begun = ctx.now();
    ctx.stage("welcome").run(|| greet(format!("welcome, {name}"))).await?;
    ctx.sleep("for-a-while", secs(2)).await?;
    ctx.stage("remind").run(|| greet(format!("still there, {name}?"))).await?;
    let slept = ctx.now().since(begun);
    Ok(if slept.get() >= 2000 { "slept well".to_owned() } else { format!("woke after {slept}") })
}

async fn greet(line: String) -> Result<(), Failure> {
    say(&line);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn say(line: &str) {
    println!("{line}");
}

async fn start() -> anyhow::Result<Engine> {
    Ok(Milepost::open("sqlite:long_sleep.db").await?.workflow(reminder).start().await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let engine = start().await?;
    let run = engine.run(reminder, "Ben".to_owned()).id("reminder-ben").spawn().await?;
    loop {
        let view = run.view().await?;
        let sleeps = view.current_stage.is_some_and(|stage| stage.as_str() == "for-a-while");
        if sleeps || view.status.is_ended() {
            say(&format!("{} is {}, and the engine stops", view.task_id, view.status));
            break;
        }
        tokio::time::sleep(millis(10)).await;
    }
    drop(run);
    engine.stop().await;

    let engine = start().await?;
    let result = engine.handle(reminder, "reminder-ben")?.result().await?;
    say(&format!("another engine is there at the end: {result}"));
    anyhow::ensure!(result == "slept well");
    engine.stop().await;
    Ok(())
}
