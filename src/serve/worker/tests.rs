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
        .push(Job { work, outbox, until, _held: Arc::new(Held::none(&Bodies::new(1))) }, &Kind::default())
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

#[test]
fn a_request_goes_to_the_worker_with_most_of_its_conversation_also_before_that_is_idle() {
    let queue = Queue::new(8, 2);
    let kind = |messages: &[u64]| Kind { tools: 1, messages: messages.to_vec() };
    let clients = std::cell::RefCell::new(Vec::new());
    let job = || {
        let (outbox, inbox) = channel();
        clients.borrow_mut().push(inbox);
        let until = Instant::now() + Duration::from_secs(60);
        Job { work: chat(), outbox, until, _held: Arc::new(Held::none(&Bodies::new(1))) }
    };
    let (first, other) = (kind(&[1, 2]), kind(&[1, 7]));
    for _ in 0..2 {
        assert!(queue.push(job(), &first).is_ok());
    }
    // Both answer, the second one in another conversation.
    assert!(queue.next(0, &Kind::default()).is_some() && queue.next(1, &Kind::default()).is_some());
    let waits = std::thread::scope(|scope| {
        queue.done(1, &other, Instant::now());
        let waiting = scope.spawn(|| queue.next(1, &other).is_some());
        // The client goes on at once: the worker that has answered has not come back yet, and another one is idle.
        queue.done(0, &first, Instant::now());
        assert!(queue.push(job(), &kind(&[1, 2, 3, 4])).is_ok());
        assert!(queue.next(0, &first).is_some(), "it waits for the first worker");
        // One of the other conversation goes to the other one, which is idle.
        assert!(queue.push(job(), &kind(&[1, 7, 8])).is_ok());
        waiting.join().unwrap()
    });
    assert!(waits);
    // Where all are busy, the next one to be free takes what waits.
    assert!(queue.push(job(), &other).is_ok());
    queue.done(0, &first, Instant::now());
    assert_eq!(queue.load(), (1, 1));
    assert!(queue.next(0, &first).is_some());
}
