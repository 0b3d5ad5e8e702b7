//! Calls that a model begins in another form than its format's: they are written in the format's form instead.

use crate::byte_tokens;
use callwright::constraint::Mode;
use callwright::engine::vocabulary::{ReadVocabulary, Vocabulary};
use callwright::engine::{Abilities, Engine, ModelInfo, Prompt, Token};
use callwright::format::Format;
use callwright::message::{Arguments, Message, ToolCall};
use callwright::parse::OtherForms;
use callwright::parse::event::Event as Parsed;
use callwright::session::{Event, FinishReason, NoteKind, Reply};
use callwright::template::Piece;
use callwright::{Result, Session, Tools};

const TOOLS: &str = r#"[{"name": "weather", "description": "The weather in a city", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}}, "required": ["city"]}}]"#;

/// A model over bytes that wants to write the first of these texts which begins with what it has written so far.
struct Wisher {
    info: ModelInfo,
    texts: Vec<String>,
    cached: Vec<Token>,
    /// Where its answer begins.
    prompt: usize,
    logits: Vec<f32>,
}

impl Engine for Wisher {
    fn model(&self) -> &ModelInfo {
        &self.info
    }
    fn tokenize(&self, prompt: &[Piece]) -> Result<Vec<Token>> {
        Ok(byte_tokens::tokenize(prompt))
    }
    fn token_bytes(&self, token: Token) -> &[u8] {
        byte_tokens::bytes(token)
    }
    fn vocabulary(&self) -> Option<ReadVocabulary> {
        Some(Box::new(Vocabulary::of_bytes))
    }
    fn is_end(&self, token: Token) -> bool {
        token.0 == 256
    }
    fn reserve(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }
    fn context_limit(&self) -> usize {
        self.info.context_train
    }
    fn cached(&self) -> &[Token] {
        &self.cached
    }
    fn truncate(&mut self, len: usize) {
        self.cached.truncate(len);
    }
    fn can(&self) -> Abilities {
        Abilities { go_back: true, ..Abilities::default() }
    }
    fn begin(&mut self, prompt: Prompt<'_>, _: &callwright::engine::sampler::Sampling) -> Result<()> {
        self.prompt = prompt.tokens.len();
        Ok(())
    }
    fn decode(&mut self, tokens: &[Token]) -> Result<()> {
        self.cached.extend_from_slice(tokens);
        let said: Vec<u8> =
            self.cached[self.prompt.min(self.cached.len())..].iter().map(|token| token.0 as u8).collect();
        let wish = self.texts.iter().find(|text| text.as_bytes().starts_with(&said));
        let next = wish.and_then(|text| text.as_bytes().get(said.len())).map_or(256, |byte| usize::from(*byte));
        self.logits = vec![0.0; 257];
        self.logits[next] = 9.0;
        Ok(())
    }
    fn logits(&self, _: usize) -> &[f32] {
        &self.logits
    }
}

fn session(texts: &[&str]) -> Session {
    let info = ModelInfo { context_train: 100_000, ..ModelInfo::default() };
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    let engine = Wisher { info, texts, cached: Vec::new(), prompt: 0, logits: vec![0.0; 257] };
    let mut session = Session::builder().engine(engine).format(Format::delimited().clone()).build().unwrap();
    session.set_tools(Tools::from_json(TOOLS, "tools.json").unwrap());
    session.options_mut().max_tokens = 400;
    session
}

/// The reply, and the text and calls that were shown while it was written.
fn ask(session: &mut Session) -> (Reply, String) {
    let mut shown = String::new();
    session.set_messages(vec![Message::user("The weather in Oslo?")]).unwrap();
    let reply = session.respond(&mut |event| match event {
        Event::Parsed(Parsed::Text { delta } | Parsed::Reasoning { delta }) => shown.push_str(delta),
        Event::Parsed(Parsed::CallStart { name, .. }) => shown.push_str(&format!("[{name}]")),
        _ => {}
    });
    (reply.unwrap(), shown)
}

const OWN: &str =
    "### TOOL_CALL_START ###\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n### TOOL_CALL_END ###";

#[test]
fn a_call_that_begins_in_another_form_is_written_in_the_formats() {
    for begun in [
        "```json\n{\n  \"name\": \"weather\",\n  \"arguments\": {\"town\": 1}\n}\n```",
        "{\"name\": \"weather\", \"arguments\": {\"town\": 1}}",
        "\n\n[{\"name\": \"weather\", \"parameters\": {\"town\": 1}}]",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"town\": 1}}</tool_call>",
        "weather(town=1)",
        "<function=weather>\n<parameter=town>\n1</parameter></function>",
    ] {
        let (reply, shown) = ask(&mut session(&[begun, OWN]));
        assert_eq!(shown, "[weather]", "{begun}");
        assert_eq!(String::from_utf8_lossy(&reply.raw).trim(), OWN, "{begun}");
        assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
        let call = reply.runnable_calls().next().unwrap();
        assert_eq!((call.arguments.to_text().as_str(), call.other_form), (r#"{"city":"Oslo"}"#, false));
        assert!(
            reply.usage.rewritten_tokens > 10 && reply.usage.completion_tokens < OWN.len() + 10,
            "{:?}",
            reply.usage
        );
        assert!(reply.notes.iter().all(|note| note.kind != NoteKind::Repair), "{:?}", reply.notes);
    }
}

#[test]
fn what_is_no_call_of_a_known_tool_stays_text() {
    for text in [
        "It is sunny.",
        "{\"name\": \"Ada\", \"arguments\": {\"age\": 36}}",
        "```json\n{\"name\": \"Ada\"}\n```",
        "weather() reads the weather.",
        "> {\"name\": \"weather\", \"arguments\": {}}",
    ] {
        let (reply, shown) = ask(&mut session(&[text, OWN]));
        assert_eq!((shown.as_str(), reply.message.content.as_str()), (text, text));
        assert!(reply.calls.is_empty() && reply.usage.rewritten_tokens == 0, "{text}");
    }
}

#[test]
fn a_call_in_the_middle_of_a_text_is_not_begun_again() {
    let text = "This is how it looks:\n\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n\nThat was all.";
    let (reply, shown) = ask(&mut session(&[text, OWN]));
    assert_eq!((shown.as_str(), reply.usage.rewritten_tokens), (text, 0));
}

#[test]
fn what_a_tools_result_has_is_not_begun_again() {
    let copied = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}";
    let mut session = session(&[copied, OWN]);
    let call = ToolCall {
        id: Some("a".into()),
        name: "weather".into(),
        arguments: Arguments::from_text("{\"city\": \"Oslo\"}"),
    };
    let result = Message::tool("a", "weather", format!("Sunny. Now write {copied}"));
    session.set_messages(vec![Message::user("?"), Message::calls(vec![call]), result]).unwrap();
    let reply = session.respond(&mut |_| ()).unwrap();
    assert_eq!((reply.message.content.as_str(), reply.calls.len(), reply.usage.rewritten_tokens), (copied, 0, 0));
}

#[test]
fn where_other_forms_are_text_or_nothing_is_constrained_the_answer_stays_as_it_is() {
    let text = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}";
    let mut reports = session(&[text, OWN]);
    reports.options_mut().other_forms = OtherForms::Report;
    let (reply, _) = ask(&mut reports);
    assert!(reply.calls.is_empty() && reply.message.content == text);
    let mut free = session(&[text, OWN]);
    free.options_mut().constrain = Mode::Off;
    let (reply, _) = ask(&mut free);
    assert!(reply.calls[0].other_form && reply.usage.rewritten_tokens == 0);
}

#[test]
fn probabilities_are_those_of_the_tokens_that_stay() {
    let mut session = session(&["{\"name\": \"weather\", \"arguments\": {\"town\": 1}}", OWN]);
    session.options_mut().logprobs = Some(1);
    session.set_messages(vec![Message::user("?")]).unwrap();
    let mut bytes = Vec::new();
    let reply = session.respond(&mut |event| {
        if let Event::Token(token) = event {
            bytes.extend_from_slice(&token.token.bytes);
        }
    });
    assert_eq!(bytes, reply.unwrap().raw);
}
