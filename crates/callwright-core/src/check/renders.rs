//! Which parts of a conversation a template writes.

use super::script::{self, conversation, question, result};
use super::{CLOCK, Subject, around, common};
use crate::format::spaced_json;
use crate::message::Message;
use crate::tool::Tools;
use crate::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// How a template renders one part of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Render {
    /// Which part.
    pub what: &'static str,
    /// Whether tool calls need it.
    pub needed: bool,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How a part of a conversation was rendered.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It appears in the prompt.
    Pass,
    /// The prompt is rendered without it.
    Ignored,
    /// It appears, but in a wrong form.
    Changed {
        /// What is wrong.
        how: String,
    },
    /// The template fails.
    Fail {
        /// The formatted error: place, sentence, excerpt with a caret, hint.
        error: String,
    },
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        Outcome::Fail { error: error.to_string() }
    }
}

pub(super) fn renders(subject: &Subject<'_>) -> Vec<Render> {
    let part = |what, needed, outcome: Result<Outcome>| Render {
        what,
        needed,
        outcome: outcome.unwrap_or_else(Outcome::from),
    };
    let parts = Parts { subject };
    vec![
        part("generation prompt", false, parts.generation_prompt()),
        part("system message", false, parts.system()),
        part("no tools", false, parts.no_tools()),
        part("tools", true, parts.tools()),
        part("call", true, parts.call()),
        part("call without arguments", true, parts.no_arguments()),
        part("tool result", true, parts.result()),
        part("parallel calls", false, parts.parallel()),
        part("call with text", false, parts.with_text()),
        part("ids", false, parts.ids()),
        part("reasoning", false, parts.reasoning()),
        part("arguments as object", false, parts.arguments(false)),
        part("arguments as JSON text", false, parts.arguments(true)),
    ]
}

struct Parts<'a> {
    subject: &'a Subject<'a>,
}

impl Parts<'_> {
    fn prompt(&self, messages: &[Message]) -> Result<String> {
        self.subject.prompt(messages, Some(&script::all()?), true)
    }

    /// Returns what `messages` add to the prompt of the question alone. A call quoted in the tool section does not
    /// count.
    fn added(&self, messages: &[Message]) -> Result<String> {
        let (short, whole) = (self.prompt(&[question()])?, self.prompt(messages)?);
        Ok(whole[common(&short, &whole)..].to_owned())
    }

    /// A prompt without tools, or with some if the template requires them.
    fn plain(&self, messages: &[Message], generation: bool) -> Result<String> {
        let plain = self.subject.prompt(messages, None, generation);
        plain.or_else(|_| self.subject.prompt(messages, Some(&script::all()?), generation))
    }

    fn generation_prompt(&self) -> Result<Outcome> {
        let with = self.plain(&[question()], true)?;
        let without = self.plain(&[question()], false)?;
        Ok(match with.strip_prefix(&without) {
            Some("") => Outcome::Ignored,
            Some(_) => Outcome::Pass,
            None => Outcome::Changed { how: "the prompt is another one with it, not a longer one".to_owned() },
        })
    }

    fn system(&self) -> Result<Outcome> {
        let prompt = self.plain(&[Message::system(script::SYSTEM), question()], true)?;
        Ok(shown(&prompt, &[script::SYSTEM, script::QUESTION]))
    }

    fn no_tools(&self) -> Result<Outcome> {
        Ok(shown(&self.subject.prompt(&[question()], None, true)?, &[script::QUESTION]))
    }

    fn tools(&self) -> Result<Outcome> {
        let tools = Tools::new([script::ferries()])?;
        let prompt = self.subject.prompt(&[question()], Some(&tools), true)?;
        Ok(match shown(&prompt, &["find_ferries", "island", "passengers"]) {
            Outcome::Pass if !prompt.contains("Looks departures up") => {
                Outcome::Changed { how: "without their descriptions".to_owned() }
            }
            outcome => outcome,
        })
    }

    fn call(&self) -> Result<Outcome> {
        let text = self.added(&conversation()[..3])?;
        Ok(shown(&text, &["find_ferries", "island", "Heimaey"]))
    }

    fn no_arguments(&self) -> Result<Outcome> {
        let call = script::call(script::ID, "drop_anchor", json!({}));
        let done = Message::tool(script::ID, "drop_anchor", script::RESULT);
        Ok(shown(&self.added(&[question(), Message::calls(vec![call]), done])?, &["drop_anchor"]))
    }

    fn result(&self) -> Result<Outcome> {
        Ok(shown(&self.prompt(&conversation()[..3])?, &[script::RESULT]))
    }

    fn parallel(&self) -> Result<Outcome> {
        let calls = Message::calls(vec![script::first_call(), script::second_call()]);
        let text = self.added(&[question(), calls, result(), script::second_result()])?;
        Ok(match shown(&text, &["Heimaey", "Flatey", script::RESULT, script::SECOND_RESULT]) {
            Outcome::Ignored if text.contains("Heimaey") => Outcome::Changed { how: "only the first call".to_owned() },
            outcome => outcome,
        })
    }

    fn with_text(&self) -> Result<Outcome> {
        let spoken = Message { content: script::TEXT.to_owned(), ..Message::calls(vec![script::first_call()]) };
        let text = self.added(&[question(), spoken, result()])?;
        Ok(match (text.find(script::TEXT), text.find("Heimaey")) {
            (Some(said), Some(called)) if called < said => {
                Outcome::Changed { how: "the text comes after the call".to_owned() }
            }
            (Some(_), Some(_)) => Outcome::Pass,
            (None, Some(_)) => Outcome::Changed { how: "without the text".to_owned() },
            (Some(_), None) => Outcome::Changed { how: "without the call".to_owned() },
            (None, None) => Outcome::Ignored,
        })
    }

    fn ids(&self) -> Result<Outcome> {
        let text = self.added(&conversation()[..3])?;
        let end = text.find(script::RESULT).unwrap_or(text.len());
        // The id of a result may come before or after its text.
        let count = text.matches(script::ID).count();
        Ok(match (count, text[..end].contains(script::ID)) {
            (0, _) => Outcome::Ignored,
            (1, _) => Outcome::Changed { how: "only once, with the call or with its result".to_owned() },
            _ => Outcome::Pass,
        })
    }

    fn reasoning(&self) -> Result<Outcome> {
        let thought = Some(script::REASONING.to_owned());
        let called = Message { reasoning: thought.clone(), ..Message::calls(vec![script::first_call()]) };
        // Most templates drop the reasoning of turns before the last question.
        let current = self.added(&[question(), called, result()])?;
        if current.contains(script::REASONING) {
            return Ok(Outcome::Pass);
        }
        let answered = Message { reasoning: thought, ..Message::assistant(script::ANSWER) };
        let last = self.plain(&[question(), answered], false)?;
        Ok(match last.contains(script::REASONING) {
            true => Outcome::Changed { how: "in answers, but not with calls".to_owned() },
            false => Outcome::Ignored,
        })
    }

    /// Whether arguments in this form (`as_text` or as an object) render like those in the template's preferred form.
    fn arguments(&self, as_text: bool) -> Result<Outcome> {
        if self.subject.section.is_some() {
            return Ok(Outcome::Pass);
        }
        let expected = self.prompt(&conversation()[..3])?;
        let mut messages = Vec::new();
        for message in &conversation()[..3] {
            let mut value = message.to_json();
            if value["content"].is_null() {
                value["content"] = json!("");
            }
            if let Some(arguments) = message.tool_calls.first().and_then(|call| call.arguments.as_object()) {
                let text = || json!(spaced_json(arguments));
                value["tool_calls"][0]["function"]["arguments"] = if as_text { text() } else { json!(arguments) };
            }
            messages.push(value);
        }
        let mut variables = Map::new();
        variables.insert("messages".into(), Value::Array(messages));
        variables.insert("tools".into(), script::all()?.to_json());
        variables.insert("documents".into(), Value::Null);
        variables.insert("add_generation_prompt".into(), json!(true));
        variables.insert("bos_token".into(), json!(self.subject.bos_token));
        variables.insert("eos_token".into(), json!(self.subject.eos_token));
        variables.extend(self.subject.variables.clone());
        let template = self.subject.template;
        let text = template.trial(|| template.render_vars(&Value::Object(variables), Some(CLOCK)))?;
        Ok(match text.contains("Heimaey") {
            true if text == expected => Outcome::Pass,
            true => Outcome::Changed { how: format!("as {:?}", around(&text, common(&expected, &text))) },
            false => Outcome::Ignored,
        })
    }
}

fn shown(text: &str, words: &[&str]) -> Outcome {
    if words.iter().all(|word| text.contains(word)) { Outcome::Pass } else { Outcome::Ignored }
}
