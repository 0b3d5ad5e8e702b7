//! Recording a session and repeating it without its model.

use super::{Options, Session, ToolChoice};
use crate::engine::constraint::Mode;
use crate::engine::sampler::Sampling;
use crate::engine::scripted::{Recorder, ScriptedEngine};
use crate::error::Location;
use crate::format::Format;
use crate::message::{Conversation, messages_to_json};
use crate::template::ChatTemplate;
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};
use jiff::Zoned;
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// All that decides what a session asks its engine.
#[derive(Serialize, Deserialize)]
struct Request {
    messages: Value,
    tools: Value,
    tool_choice: ToolChoice,
    template: (String, String),
    /// The source of a format that is not the template's own.
    format: Option<String>,
    sampling: Sampling,
    max_tokens: usize,
    max_calls: Option<usize>,
    /// Not to constrain again, which the tokens were already, but because it decides how an answer is begun.
    #[serde(default)]
    constrain: Mode,
    #[serde(default)]
    max_preamble: usize,
    repair: bool,
    now: Option<DateTime>,
}

impl Session {
    /// From now on writes every generation to `path`, so that [`Session::replay`] can repeat it.
    ///
    /// The chat template's clock stops here: a prompt with another time in it would not be the recorded one.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the file cannot be written.
    pub fn record(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.options.now.get_or_insert_with(|| Zoned::now().datetime());
        let options = &self.options;
        let template = self.templates.choose(!self.tools.is_empty());
        let request = Request {
            messages: messages_to_json(&self.messages),
            tools: self.tools.to_json(),
            tool_choice: options.tool_choice.clone(),
            template: (template.name().to_owned(), template.source().to_owned()),
            format: self.section.is_some().then(|| self.format.source().to_owned()),
            sampling: options.sampling,
            max_tokens: options.max_tokens,
            max_calls: options.max_calls,
            constrain: options.constrain,
            max_preamble: options.max_preamble,
            repair: options.repair,
            now: options.now,
        };
        let request = serde_json::to_value(request)
            .map_err(|error| Error::new(ErrorKind::Replay, format!("the session cannot be recorded: {error}")))?;
        self.recorder = Some(Recorder::create(path.as_ref(), &*self.engine, request)?);
        Ok(())
    }

    /// The session that was recorded at `path`, before its first turn: no model is needed to repeat it.
    ///
    /// # Errors
    /// [`ErrorKind::Replay`] with the line when the file is no recording.
    pub fn replay(path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        let (engine, header) = ScriptedEngine::replay(path)?;
        let request: Request =
            serde_json::from_value(header.request).map_err(|error| {
                Error::new(ErrorKind::Replay, format!("not a recording that this version can read: {error}"))
                    .at(Location { file: Some(path.to_owned()), line: Some(1), column: None })
            })?;
        let template = ChatTemplate::new(request.template.0, request.template.1)?;
        let format = request.format.map(|source| Format::parse_declaration(&source)).transpose()?.flatten();
        let mut session = Session::new(Box::new(engine), Some(template), format)?;
        session.set_tools(Tools::from_value(&request.tools)?);
        session.set_messages(Conversation::from_value(request.messages)?.messages)?;
        session.options = Options {
            sampling: request.sampling,
            max_tokens: request.max_tokens,
            tool_choice: request.tool_choice,
            max_calls: request.max_calls,
            constrain: request.constrain,
            max_preamble: request.max_preamble,
            repair: request.repair,
            now: request.now,
            ..Options::default()
        };
        Ok(session)
    }
}
