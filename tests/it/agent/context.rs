//! What a run does where the conversation grows: nothing is decoded twice, and what does not fit is cut and reported.

use crate::agent::run::{City, call, info, kinds, prepared, run, texts_of, weather, weather_tool};
use callwright::ErrorKind;
use callwright::Tools;
use callwright::agent::Agent;
use callwright::agent::turn::Status;
use callwright::constraint::Mode;
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::message::{Message, Role};
use callwright::session::{ContextPolicy, NoteKind, Session};
use callwright::template::ChatTemplate;

#[test]
fn nothing_that_was_decoded_is_decoded_again() {
    let both = format!("Let me see.\n{}\n{}", weather("Rome"), weather("Oslo"));
    let one = weather("Lima");
    let (mut session, mut agent, _) = prepared([both.as_str(), one.as_str(), "Sunny everywhere.", "You are welcome."]);
    let mut seen = 0;
    for question in ["What's the weather?", "Thank you."] {
        let (outcome, events) = run(&mut session, &mut agent, question);
        assert!(outcome.notes.iter().all(|note| note.kind != NoteKind::Context), "{:?}", outcome.notes);
        for usage in events.iter().filter(|event| event["type"] == "usage") {
            let number = |key: &str| usage[key].as_u64().unwrap();
            assert_eq!(number("cached_tokens"), seen, "{usage}");
            seen = number("prompt_tokens") + number("completion_tokens");
        }
    }
}

#[test]
fn a_template_that_rewrites_the_past_is_named_once() {
    let source = "{% for m in messages %}{{ m.role }}{% if loop.last %} (last){% endif %}: {{ m.content }}\n{% endfor %}assistant: ";
    let texts: Vec<String> = vec![weather("Rome"), weather("Oslo"), "Sunny.".into()];
    let engine = ScriptedEngine::from_texts(info("main"), texts.iter().map(String::as_str));
    let template = ChatTemplate::new("rewriter.jinja", source).unwrap();
    let mut session = Session::new(Box::new(engine), Some(template), None).unwrap();
    let mut agent = Agent::default();
    let (tools, _) = weather_tool(&mut agent.executor);
    session.set_tools(tools);
    let (outcome, _) = run(&mut session, &mut agent, "?");
    let reported: Vec<&str> =
        outcome.notes.iter().filter(|note| note.kind == NoteKind::Context).map(|note| note.message.as_str()).collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].starts_with("rewriter.jinja writes earlier messages in another way when the conversation goes on"),
        "{reported:?}"
    );
    assert!(reported[0].contains("where \" \" became \":\""), "{reported:?}");
}

fn small(context: usize, texts: &[&str]) -> Session {
    let engine =
        ScriptedEngine::from_texts(ModelInfo { context_train: context, ..info("main") }, texts.iter().copied());
    let mut session = Session::new(Box::new(engine), None, None).unwrap();
    session.options_mut().constrain = Mode::Off;
    session
}

#[test]
fn what_does_not_fit_is_shortened_and_reported_and_the_conversation_stays_whole() {
    let mut agent = Agent::default();
    let tool = agent.executor.function("weather", "The weather", |arguments: City| {
        Ok::<_, String>(format!("{}: {}", arguments.city, "sunny ".repeat(150)))
    });
    let calls = [weather("Rome"), weather("Oslo"), weather("Lima")];
    let mut texts: Vec<&str> = calls.iter().map(String::as_str).collect();
    texts.push("Sunny.");
    let mut session = small(3794, &texts);
    session.set_tools(Tools::new([tool]).unwrap());
    let history = vec![
        Message::system("Be brief."),
        Message::user("Tell me something. ".repeat(60)),
        Message::assistant("Something."),
    ];
    session.set_messages(history).unwrap();
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather?");
    assert_eq!(outcome.status, Status::Done);
    let reported = texts_of(&events, "context", "message");
    insta::assert_snapshot!(reported.join("\n"));
    let results: Vec<usize> = session
        .messages()
        .iter()
        .filter(|message| message.role == Role::Tool)
        .map(|message| message.content.len())
        .collect();
    assert_eq!(results, [906, 906, 906]);
    let prompt = session.prompt().unwrap().0.text();
    assert!(prompt.contains("Be brief.") && prompt.contains("What's the weather?"));
    assert!(
        prompt.contains("…\n[parts 1 to 2 of 3 are left out here; read_result with id 2 reads them]\n"),
        "{prompt}"
    );
    assert!(!prompt.contains("Tell me something."), "{prompt}");

    session.options_mut().context = ContextPolicy::Error;
    let mut messages = session.messages().to_vec();
    messages.push(Message::user("And? ".repeat(1000)));
    session.set_messages(messages).unwrap();
    let error = session.run(&mut agent, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextOverflow);
}

#[test]
fn a_result_that_the_context_cannot_hold_is_cut_to_what_it_can() {
    let mut agent = Agent::default();
    let tool = agent.executor.function("weather", "The weather", |_: City| Ok::<_, String>("sunny ".repeat(10_000)));
    let text = weather("Rome");
    let mut session = small(4000, &[&text, "Sunny."]);
    session.set_tools(Tools::new([tool]).unwrap());
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather?");
    assert_eq!(outcome.status, Status::Done, "{events:?}");
    assert!(kinds(&events).contains(&"context".to_owned()));
    let used = events.iter().rfind(|event| event["type"] == "usage").unwrap()["prompt_tokens"].as_u64().unwrap();
    assert!((2600..=3000).contains(&used), "{used} tokens of the prompt");
}

#[test]
fn each_truncated_result_is_reported_once_and_keeps_the_notes_after_it() {
    let mut agent = Agent::default();
    let tool = agent.executor.function("weather", "The weather", |city: City| {
        Ok::<_, String>(format!("{}: {}", city.city, "sunny ".repeat(30_000)))
    });
    agent.executor.max_output = 65_536;
    let both = format!("{}\n{}", weather("Rome"), weather("Oslo"));
    let mut session = small(6000, &[&both, "Sunny."]);
    session.set_tools(Tools::new([tool]).unwrap());
    let (outcome, events) = run(&mut session, &mut agent, "What's the weather?");
    assert_eq!(outcome.status, Status::Done);
    let reported = texts_of(&events, "context", "message");
    insta::assert_snapshot!(reported.join("\n"));
    let notes: Vec<&str> =
        outcome.notes.iter().filter(|note| note.kind == NoteKind::Context).map(|note| note.message.as_str()).collect();
    assert_eq!(notes, reported);
    let prompt = session.prompt().unwrap().0.text();
    assert_eq!(prompt.matches("[cut: these are the first 65536 of 180006 bytes]").count(), 2, "{prompt}");
    assert_eq!(prompt.matches(" sunn\n[cut: these are the first 65536").count(), 2, "{prompt}");
}

#[test]
fn notes_to_the_model_about_a_call_are_not_truncated_with_its_result() {
    let mut agent = Agent::default();
    let tool = agent.executor.function("weather", "The weather", |_: City| Ok::<_, String>("sunny ".repeat(800)));
    let one = weather("Rome");
    let both = one.clone() + &weather("Oslo");
    let mut session = small(6000, &[&one, &both, "Sunny."]);
    session.set_tools(Tools::new([tool.effect(callwright::tool::Effect::Read)]).unwrap());
    let (outcome, _) = run(&mut session, &mut agent, "What's the weather?");
    assert_eq!(outcome.status, Status::Done);
    let prompt = session.prompt().unwrap().0.text();
    let (_, after) = prompt.split_once(" are left out here;").unwrap();
    assert!(after.contains("\n[This call was made before and gave the same result."), "{prompt}");
}

#[test]
fn an_overflow_in_the_middle_keeps_what_was_done() {
    let mut agent = Agent::default();
    let (tools, asked) = weather_tool(&mut agent.executor);
    let long = call("weather", &format!("{{\"city\": \"Rome{}\"}}", " ".repeat(900)));
    let mut session = small(1794, &[&long, "Sunny."]);
    session.options_mut().loop_guard = false;
    session.options_mut().context = ContextPolicy::Error;
    session.set_tools(tools);
    let (outcome, events) = run(&mut session, &mut agent, "?");
    assert_eq!((outcome.status, asked.lock().unwrap().len()), (Status::Error, 1));
    assert_eq!(kinds(&events), ["call_start", "call_end", "tool_result", "done"]);
    let done = events.last().unwrap();
    assert_eq!((&done["finish_reason"], &done["status"]), (&"error".into(), &"error".into()));
    assert!(done["error"].as_str().unwrap().starts_with("the prompt has "), "{done}");
    assert_eq!(session.messages().len(), 3);
    assert_eq!(outcome.ok().unwrap_err().kind(), ErrorKind::ContextOverflow);
}
