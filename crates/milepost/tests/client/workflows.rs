//! The client and a program that serves its own workflows: begun, signalled and asked for from outside.

use milepost::{
    Client, Context, Engine, Error, ErrorType, Failure, Milepost, StageName, TaskId, TaskStatus, WorkflowRef,
};
use serde_json::{Value, json};

#[milepost::workflow]
async fn echo(_: &mut Context, input: Value) -> Result<Value, Failure> {
    Ok(input)
}

#[milepost::workflow(version = 2, name = "greets")]
async fn greets_anew(ctx: &mut Context, name: String) -> Result<String, Failure> {
    let word: String = ctx.signal("word").await?;
    Ok(format!("{word} {name}"))
}

#[milepost::workflow]
async fn fails(ctx: &mut Context, why: String) -> Result<(), Failure> {
    ctx.stage("begin").rollback(|| async { Ok::<_, Failure>(()) }).run(|| async { Ok::<_, Failure>(()) }).await?;
    Err(Failure::fatal(ErrorType::Business, why))
}

async fn served() -> (Engine, Client) {
    let engine = Milepost::open("memory:").await.unwrap().workflow(echo).workflow(greets_anew).workflow(fails);
    let engine = engine.start().await.unwrap();
    let client = Client::new(&engine.serve("127.0.0.1:0").await.unwrap()).unwrap();
    (engine, client)
}

fn id(id: &str) -> TaskId {
    TaskId::parse(id).unwrap()
}

#[tokio::test]
async fn a_run_that_a_client_began_is_the_same_run_for_the_program() {
    let (engine, client) = served().await;
    let input = json!({
        "text": "quote \" slash \\ tab \t bell \u{7} del \u{7f} nel \u{85} line \u{2028} 😀 {{ x }} # : -",
        "numbers": [u64::MAX, i64::MIN, 0.1, 1e300, -0.5, 0],
        "yaml": ["yes", "null", "~", "1e3", "0x10", "&a", "!b", "", " "],
        "": { "empty": [], "none": null },
    });
    for (name, input) in [("all", input), ("null", Value::Null)] {
        let accepted = client.start("echo", &id(name), &input).await.unwrap();
        assert!(accepted.created);
        let result: Value = client.result(&id(name)).await.unwrap();
        assert_eq!(result, input);
        assert!(!client.start("echo", &id(name), &input).await.unwrap().created);
        assert_eq!(engine.run(echo, input.clone()).id(name).await.unwrap(), input);
    }
    // And the other way round.
    engine.run(echo, json!(1)).id("here").await.unwrap();
    assert!(!client.start("echo", &id("here"), &1).await.unwrap().created);
    let clash = client.start("echo", &id("here"), &2).await.unwrap_err();
    assert!(clash.to_string().contains("input was 1, is 2"), "{clash}");
    engine.stop().await;
}

#[tokio::test]
async fn a_signal_from_a_client_reaches_the_workflow_whose_result_another_waits_for() {
    let (engine, client) = served().await;
    let workflow = WorkflowRef { name: "greets".into(), version: 2 };
    client.start(workflow, &id("w"), &"Ann").await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.result::<String>(&id("w")).await }
    });
    let answer = client.signal(&id("w"), &StageName::parse("word").unwrap(), &"hello").await.unwrap();
    assert_eq!((answer.target.as_str(), answer.tasks), ("w", 1));
    assert_eq!(waiting.await.unwrap().unwrap(), "hello Ann");
    engine.stop().await;
}

#[tokio::test]
async fn a_client_is_told_why_there_is_no_result() {
    let (engine, client) = served().await;
    client.start("fails", &id("f"), &"sold out").await.unwrap();
    let failed = client.result::<()>(&id("f")).await.unwrap_err();
    let Error::Failed { status: TaskStatus::RolledBack, error_type: ErrorType::Business, reason, .. } = &failed else {
        panic!("{failed:?}")
    };
    assert!(reason.contains("sold out"), "{reason}");
    let nobody = client.result::<()>(&id("nobody")).await.unwrap_err();
    assert!(matches!(nobody, Error::NotFound { .. }), "{nobody:?}");
    client.start("echo", &id("e"), &"text").await.unwrap();
    let other = client.result::<u32>(&id("e")).await.unwrap_err();
    assert!(matches!(other, Error::Json(_)), "{other:?}");
    client.start(WorkflowRef { name: "greets".into(), version: 2 }, &id("c"), &"Ann").await.unwrap();
    let cancel = milepost_core::api::VerbRequest::default();
    client.operate_task(&id("c"), milepost::Verb::Cancel, &cancel).await.unwrap();
    let cancelled = client.result::<String>(&id("c")).await.unwrap_err();
    assert!(matches!(cancelled, Error::Cancelled { .. }), "{cancelled:?}");
    engine.stop().await;
}

#[tokio::test]
async fn one_task_of_several_is_waited_for_by_itself() {
    let (engine, client) = served().await;
    let text = "plan: p\nworkflow: { name: greets, version: 2 }\ntasks:\n  - { id: a, input: Ann }\n  - { id: b, input: Bob }\n";
    let format = milepost::PlanFormat::Yaml;
    client
        .submit(milepost::PlanUpload { text: text.into(), format, start: true, update: false, publish: false })
        .await
        .unwrap();
    client.signal(&id("b"), &StageName::parse("word").unwrap(), &"bye").await.unwrap();
    assert_eq!(client.result::<String>(&id("b")).await.unwrap(), "bye Bob");
    assert!(!client.task(&id("a")).await.unwrap().status.is_ended());
    engine.stop().await;
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_not_served_without_a_token() {
    let (engine, _) = served().await;
    let refused = engine.serve("0.0.0.0:0").await.unwrap_err();
    assert!(refused.to_string().contains("there is no token"), "{refused}");
    for address in ["here", "127.0.0.1", "127.0.0.1:none"] {
        let refused = engine.serve(address).await.unwrap_err();
        assert!(matches!(refused, Error::Address { .. }), "{refused:?}");
    }
    engine.stop().await;
}

#[tokio::test]
async fn nobody_answers_when_the_engine_has_stopped() {
    let (engine, client) = served().await;
    client.start("echo", &id("e"), &1).await.unwrap();
    engine.stop().await;
    let away = client.task(&id("e")).await.unwrap_err();
    assert!(away.is_passing(), "{away:?}");
}
