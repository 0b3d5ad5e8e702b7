//! Stop texts, and what changes how likely tokens are, in a session on a scripted engine.

use crate::agent::run::{scripted, weather};
use crate::program::{callwright, run};
use callwright::Tools;
use callwright::constraint::Mode;
use callwright::engine::Token;
use callwright::message::Message;
use callwright::parse::event::Event as Parsed;
use callwright::session::{Event, FinishReason, Reply, Session};

const TOOLS: &str = r#"[{"name": "weather", "description": "The weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]"#;

fn session(text: &str, stop: &[&str]) -> Session {
    let mut session = scripted("main", [text]);
    session.set_tools(Tools::from_json(TOOLS, "tools.json").unwrap());
    session.options_mut().stop = stop.iter().map(|stop| (*stop).to_owned()).collect();
    session.set_messages(vec![Message::user("?")]).unwrap();
    session
}

/// The reply, and the text that was shown while it came.
fn respond(session: &mut Session) -> (Reply, String) {
    let mut shown = String::new();
    let reply = session.respond(&mut |event| {
        if let Event::Parsed(Parsed::Text { delta }) = event {
            shown.push_str(delta);
        }
    });
    (reply.unwrap(), shown)
}

#[test]
fn a_stop_text_ends_the_answer_and_is_not_shown() {
    for (text, stop, left) in [
        ("One, two, three.", &["two"][..], "One, "),
        ("One, two, three.", &["three", ", t"], "One"),
        ("One, two, three.", &["threes"], "One, two, three."),
        ("One, two, thr", &["three"], "One, two, thr"),
        ("Grüße\n\nUser: more", &["\n\n"], "Grüße"),
    ] {
        let mut session = session(text, stop);
        let (reply, shown) = respond(&mut session);
        assert_eq!((reply.message.content.as_str(), shown.as_str()), (left, left), "{text:?} {stop:?}");
        assert_eq!(reply.finish_reason, FinishReason::Stop);
        assert_eq!(session.messages().last(), Some(&reply.message));
        let end = if left == text { text.len() } else { text.len() - 1 };
        assert!(reply.usage.completion_tokens <= end, "generation ends there: {:?}", reply.usage);
    }
}

/// The format's own markers begin with `###`, and calls hold whatever text they hold.
#[test]
fn a_stop_text_is_not_looked_for_in_calls() {
    let text = format!("Let me see.\n{}", weather("Rome"));
    for stop in ["###", "Rome", "\"", "TOOL"] {
        for constrain in [Mode::Off, Mode::default()] {
            let mut session = session(&text, &[stop]);
            session.options_mut().constrain = constrain;
            let (reply, shown) = respond(&mut session);
            assert_eq!((reply.calls.len(), shown.as_str()), (1, "Let me see."), "{stop}");
            assert!(reply.calls[0].is_whole() && reply.calls[0].valid);
            assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
        }
    }
    // Before a call it ends the answer, and no call is begun.
    let (reply, shown) = respond(&mut session(&text, &["see"]));
    assert_eq!((reply.calls.len(), shown.as_str(), reply.finish_reason), (0, "Let me ", FinishReason::Stop));
    // What looked like its beginning is shown once a call follows.
    let (reply, shown) = respond(&mut session(&text, &["see.?"]));
    assert_eq!((reply.calls.len(), shown.as_str()), (1, "Let me see."));
}

#[test]
fn a_recording_is_repeated_with_its_stop_texts_and_penalties() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let mut first = session("One, two, three.", &["thr"]);
    first.options_mut().sampling.penalties.presence = 1.0;
    first.record(&path).unwrap();
    let (reply, shown) = respond(&mut first);
    let (again, shown_again) = respond(&mut Session::replay(&path).unwrap());
    assert_eq!((shown.as_str(), shown_again.as_str()), ("One, two, ", "One, two, "));
    assert_eq!((reply.message, reply.finish_reason), (again.message, again.finish_reason));
}

#[test]
fn a_bias_for_tokens_that_the_model_does_not_have_is_reported_once() {
    let mut session = scripted("main", ["One.", "Two."]);
    session.options_mut().logit_bias = vec![(Token(65), 1.0), (Token(400), 1.0), (Token(500), -100.0)];
    let reply = session.ask("?").unwrap();
    let notes: Vec<&str> = reply.notes.iter().map(|note| note.message.as_str()).collect();
    assert_eq!(notes, ["logit_bias: the model has no token 400, 500; its ids are 0 to 256"]);
    assert_eq!(session.ask("?").unwrap().notes.len(), 0);
}

/// With the bundled model, which would answer with a word or two.
#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn biases_and_penalties_change_what_the_model_writes() {
    let home = tempfile::tempdir().unwrap();
    let body = home.path().join("body.json");
    let ask = |fields: &str, options: &[&str]| {
        let question = r#"{"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12"#;
        std::fs::write(&body, format!("{question}{fields}}}")).unwrap();
        let ran = run(callwright(home.path()).arg("run").arg("--messages").arg(&body).args(options));
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out
    };
    let plain = ask("", &[]);
    let word = plain.split(|c: char| !c.is_alphabetic()).next().unwrap();
    // Below what changes nothing, a penalty makes what was written likelier.
    for repeats in [
        ask(r#", "presence_penalty": -100"#, &[]),
        ask(r#", "frequency_penalty": -100"#, &[]),
        ask("", &["--repeat-penalty", "0.01"]),
    ] {
        assert!(repeats.matches(word).count() > 5, "{word:?}: {repeats}");
    }
    let biased = ask(r#", "logit_bias": {"1000": 100}"#, &[]);
    assert!(!biased.starts_with(word) && biased != plain, "{biased}");
    // The command line stops an answer, too.
    assert_eq!(ask("", &["--stop", &word[1..]]).trim_end(), &word[..1]);
}
