use super::*;
use crate::serve::bodies::{Bodies, Held};
use crate::serve::job::Own;
use crate::serve::updates::{Inbox, channel};
use axum::http::StatusCode;
use callwright::engine::LoadOptions;
use std::time::Duration;

fn shared() -> Arc<Shared> {
    let load = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    let model = Arc::new(Model::builder().load_options(load).open("bundled").unwrap());
    Arc::new(Shared {
        queue: Queue::new(8, 3),
        sequences: model.sequences(2).unwrap(),
        model,
        defaults: Options::default(),
        max_tokens: 64,
        seed: None,
        stream_arguments: StreamArguments::Complete,
        metrics: Metrics::default(),
    })
}

fn push(shared: &Shared, work: Work) -> Inbox {
    let (outbox, inbox) = channel();
    let until = Instant::now() + Duration::from_secs(60);
    shared
        .queue
        .push(Job { work, outbox, until, _held: Arc::new(Held::none(&Bodies::new(1))) }, Kind::default())
        .unwrap();
    inbox
}

fn chat() -> Work {
    let body = json!({"messages": [{"role": "user", "content": "What's the weather in Beijing tomorrow?"}],
        "tools": [{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]});
    Work::Chat(Box::new(Chat::read(body.as_object().unwrap().clone(), Own::default()).unwrap()))
}

/// The end of an answer: what was called, or the status of a refusal.
fn end(mut inbox: Inbox) -> std::result::Result<Vec<(String, String)>, StatusCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    loop {
        match runtime.block_on(inbox.next()).unwrap().1 {
            Update::Done(answer) => {
                return Ok(answer.calls.into_iter().map(|call| (call.name, call.arguments)).collect());
            }
            Update::Failed(refusal) => return Err(refusal.status),
            _ => {}
        }
    }
}

#[test]
fn a_panic_in_one_request_changes_no_other_and_its_thread_goes_on() {
    let shared = shared();
    let start = |number| {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || work(&shared, number))
    };
    let threads: Vec<_> = (0..2).map(start).collect();
    let alone = end(push(&shared, chat()));
    assert_eq!(alone.as_ref().map(Vec::len), Ok(1));
    for _ in 0..4 {
        let (panics, answers) = (push(&shared, Work::Panic), push(&shared, chat()));
        assert_eq!(end(panics), Err(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(end(answers), alone);
    }
    shared.queue.close();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
