//! How often an answer's prompt is rendered and tokenised: once, and once more for each message that is shortened or
//! hidden because the prompt does not fit.

use crate::agent::run::{City, info};
use crate::hooked::Hooked;
use callwright::Tools;
use callwright::agent::Agent;
use callwright::constraint::Mode;
use callwright::engine::ModelInfo;
use callwright::engine::scripted::ScriptedEngine;
use callwright::message::Message;
use callwright::session::{NoteKind, Session};
use callwright::template::ChatTemplate;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The templates: ChatML with a format as its overlay, and one that writes calls and opens reasoning.
const TEMPLATES: [(&str, Option<&str>); 2] = [
    ("an overlay", None),
    ("reasoning", Some(include_str!("../../../crates/callwright-core/tests/cases/infer/reasoning.jinja"))),
];

struct Counted {
    session: Session,
    tokenized: Arc<AtomicUsize>,
    before: (usize, usize, usize),
    report: String,
}

impl Counted {
    fn new(template: (&str, Option<&str>), context: usize, texts: &[String]) -> Counted {
        let tokenized = Arc::<AtomicUsize>::default();
        let info = ModelInfo { context_train: context, ..info("main") };
        let script = ScriptedEngine::from_texts(info, texts.iter().map(String::as_str));
        let mut engine = Hooked::new(script);
        let counts = Arc::clone(&tokenized);
        engine.on_tokenize = Box::new(move || {
            counts.fetch_add(1, Ordering::Relaxed);
        });
        let source = template.1.map(|source| ChatTemplate::new("reasoning.jinja", source).unwrap());
        let mut session = Session::new(Box::new(engine), source, None).unwrap();
        session.options_mut().constrain = Mode::Off;
        let mut counted = Counted { session, tokenized, before: (0, 0, 0), report: String::new() };
        counted.count("session");
        counted
    }

    /// Adds what was rendered and tokenised since the last count.
    fn count(&mut self, what: &str) {
        let renders = self.session.template().renders();
        let now = (renders.prompts, renders.trials, self.tokenized.load(Ordering::Relaxed));
        let (prompts, trials, tokenized) = self.before;
        writeln!(
            self.report,
            "{what}: {} prompts, {} trials, {} tokenised",
            now.0 - prompts,
            now.1 - trials,
            now.2 - tokenized
        )
        .unwrap();
        self.before = now;
    }
}

fn call(template: usize, city: &str) -> String {
    let call = format!("{{\"name\": \"weather\", \"arguments\": {{\"city\": \"{city}\"}}}}");
    match template {
        0 => format!("### TOOL_CALL_START ###\n{call}\n### TOOL_CALL_END ###"),
        _ => format!("Let me look.\n</hm>\n\n\n<do>{call}</do>"),
    }
}

fn agent(result: &'static str) -> (Agent, Tools) {
    let mut agent = Agent::default();
    let tool = agent.executor.function("weather", "The weather in a city", move |arguments: City| {
        Ok::<_, String>(format!("{result} in {}", arguments.city))
    });
    (agent, Tools::new([tool]).unwrap())
}

#[test]
fn an_answers_prompt_is_rendered_and_tokenised_once() {
    let mut report = String::new();
    for (index, template) in TEMPLATES.into_iter().enumerate() {
        writeln!(report, "# {}", template.0).unwrap();

        let texts = ["Good morning.".to_owned(), "It is early.".to_owned(), "Not yet.".to_owned()];
        // What a template can do is found out once in a process, by whichever test comes first.
        Counted::new(template, 32_768, &texts);
        let mut counted = Counted::new(template, 32_768, &texts);
        for (question, what) in
            [("Good day?", "first answer"), ("Is it late?", "second answer"), ("And now?", "third answer")]
        {
            counted.session.ask(question).unwrap();
            counted.count(what);
        }
        report += &counted.report;

        let texts = [call(index, "Rome"), call(index, "Oslo"), "Sunny.".to_owned(), "Any time.".to_owned()];
        let mut counted = Counted::new(template, 32_768, &texts);
        counted.session.set_tools(agent("sunny").1);
        counted.count("tools");
        counted.session.set_messages(vec![Message::user("The weather?")]).unwrap();
        counted.session.check().unwrap();
        counted.session.respond(&mut |_| ()).unwrap();
        counted.count("check and answer with tools");
        report += &counted.report;

        let mut counted = Counted::new(template, 32_768, &texts);
        let (mut agent_, tools) = agent("sunny");
        counted.session.set_tools(tools);
        counted.count("tools");
        counted.session.ask_and_run("The weather?", &mut agent_).unwrap();
        counted.count("run with two calls, three answers");
        counted.session.ask_and_run("Thank you.", &mut agent_).unwrap();
        counted.count("the next question");
        report += &counted.report;

        let mut counted = Counted::new(template, [3_794, 1_600][index], &texts);
        let (mut agent_, tools) = agent(LONG);
        counted.session.set_tools(tools);
        let history =
            vec![Message::user("Tell me something. ".repeat([90, 40][index])), Message::assistant("Something.")];
        counted.session.set_messages(history).unwrap();
        counted.count("history");
        let outcome = counted.session.ask_and_run("The weather?", &mut agent_).unwrap();
        let hidden = outcome.notes.iter().filter(|note| note.kind == NoteKind::Context).count();
        counted.count(&format!("run with two calls, {hidden} messages hidden or shortened"));
        report += &counted.report;
    }
    insta::assert_snapshot!(report);
}

const LONG: &str = "sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny \
    sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny \
    sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny sunny";
