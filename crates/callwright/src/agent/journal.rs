//! The journal of a run: what it has done so far, on disk, so that it can go on after a crash or an approval.
//!
//! It has the format of a recording, with other entries and without tokens; a recording has these entries, too.

use crate::agent::record::Entry;
use crate::agent::turn::Status;
use crate::engine::scripted::{Recorder, read_lines};
use crate::error::Location;
use crate::message::{Conversation, Message, Role, ToolCall, messages_to_json};
use crate::session::record::{self, Invocation};
use crate::session::{PendingCall, Session, call_hash};
use crate::{Error, ErrorKind, Result};
use serde_json::Value;
use std::path::Path;

/// What a journal says.
#[derive(Debug)]
pub struct Journal {
    /// The command that began the run.
    pub invocation: Invocation,
    /// The conversation, with an answer whose calls have no results yet at its end, if there is one.
    pub messages: Vec<Message>,
    /// The calls that wait for approval.
    pub pending: Vec<PendingCall>,
    /// The ids of the calls that had begun and not ended.
    pub unknown: Vec<String>,
    /// How the run ended, if it did.
    pub finished: Option<String>,
    /// The messages at the end of the conversation that have all results, but no entry says that they joined it.
    pub unjoined: Vec<Message>,
}

/// An answer whose results are not all in the conversation.
struct Open {
    message: Message,
    results: Vec<Message>,
    begun: Vec<String>,
}

impl Journal {
    /// Reads a journal, or a recording of a run. A last line that was cut off counts as not written.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be read; [`ErrorKind::Replay`] with the line if it is no journal, and if a
    /// call is no longer the one that waits for approval.
    pub fn read(path: &Path) -> Result<Journal> {
        let (header, entries) = read_lines(path)?;
        let wrong =
            |line: usize, error: &dyn std::fmt::Display| {
                Error::new(ErrorKind::Replay, format!("not a journal that this version can read: {error}"))
                    .at(Location { file: Some(path.to_owned()), line: Some(line), column: None })
            };
        let messages = |line: usize, value: Value| {
            Conversation::from_value(value).map(|read| read.messages).map_err(|error| wrong(line, &error))
        };
        let invocation = header.get("invocation").cloned().unwrap_or_default();
        let mut journal = Journal {
            invocation: serde_json::from_value(invocation).map_err(|error| wrong(1, &error))?,
            messages: messages(1, header.get("messages").cloned().unwrap_or_default())?,
            pending: Vec::new(),
            unknown: Vec::new(),
            finished: None,
            unjoined: Vec::new(),
        };
        let mut open: Option<Open> = None;
        for (line, entry) in entries {
            let entry: Entry = serde_json::from_value(entry).map_err(|error| wrong(line, &error))?;
            match entry {
                Entry::Answer(value) => {
                    let message = messages(line, value)?.into_iter().next();
                    open = message.map(|message| Open { message, results: Vec::new(), begun: Vec::new() });
                    journal.finished = None;
                }
                Entry::Messages(value) => {
                    journal.messages.extend(messages(line, value)?);
                    (open, journal.finished) = (None, None);
                    journal.pending.clear();
                }
                Entry::Begun { id, name, arguments } => {
                    journal.pending.clear();
                    journal.finished = None;
                    let Some(open) = &mut open else { continue };
                    if let Some(call) = open.call(&id) {
                        (call.name, call.arguments) = (name, crate::message::Arguments::from_text(&arguments));
                    }
                    open.begun.push(id);
                }
                Entry::Called { id, result } => {
                    let Some(open) = &mut open else { continue };
                    open.begun.retain(|begun| *begun != id);
                    let name = open.call(&id).map(|call| call.name.clone()).unwrap_or_default();
                    open.results.push(Message::tool(id, name, result));
                }
                Entry::Pending(calls) => journal.pending = calls,
                Entry::Finished(status) => journal.finished = Some(status),
                Entry::Run(_) | Entry::Ended(_) | Entry::Executed(_) | Entry::Tools { .. } => {}
            }
        }
        if let Some(mut open) = open {
            for pending in &journal.pending {
                let call = open.call(&pending.id);
                let found = call.as_deref().map(call_hash).unwrap_or_default();
                if found != pending.hash || call.is_some_and(|call| call.arguments.to_text() != pending.arguments) {
                    let message = format!(
                        "the call {} of {} is not the one that waits for approval: its hash is {found:?}, and {:?} waits",
                        pending.id, pending.name, pending.hash
                    );
                    return Err(Error::new(ErrorKind::Replay, message)
                        .hint("the file was changed; nothing is executed")
                        .in_file(path));
                }
            }
            let whole = open.results.len() == open.message.tool_calls.len();
            let answer = [vec![open.message], open.results].concat();
            journal.unknown = open.begun;
            journal.messages.extend_from_slice(&answer);
            journal.unjoined = if whole { answer } else { Vec::new() };
        } else if journal.messages.last().is_some_and(|last| last.role == Role::Assistant) {
            // The program ended between the last answer and the report of the end.
            journal.finished.get_or_insert_with(|| Status::Done.to_string());
        }
        Ok(journal)
    }
}

impl Open {
    fn call(&mut self, id: &str) -> Option<&mut ToolCall> {
        self.message.tool_calls.iter_mut().find(|call| call.id.as_deref() == Some(id))
    }
}

impl Session {
    /// Writes into recordings and journals how the program was started, so that a run can go on.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn record_invocation(&mut self, invocation: Option<Invocation>) {
        self.recording.invocation = invocation;
    }

    /// From now on writes what a run does to a new file at `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the file cannot be written.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn journal(&mut self, path: &Path) -> Result<()> {
        let mut request = serde_json::Map::new();
        request.insert("messages".to_owned(), messages_to_json(&self.messages));
        request.insert("tools".to_owned(), self.tools.to_json_with_policies());
        let invocation = self.recording.invocation.clone().unwrap_or_default();
        request.insert("invocation".to_owned(), serde_json::to_value(invocation).unwrap_or_default());
        self.recording.journal = Some(Recorder::create(path, &*self.engine, Value::Object(request))?);
        Ok(())
    }

    /// From now on goes on with the journal at `path`, which was read.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when the file cannot be written.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn journal_on(&mut self, path: &Path, unjoined: &[Message]) -> Result<()> {
        self.recording.journal = Some(Recorder::append(path)?);
        if unjoined.is_empty() {
            return Ok(());
        }
        // The run goes on after them and would not write them again; a second crash would then lose them.
        self.recording.step(|| Entry::Messages(messages_to_json(unjoined)))
    }
}

impl record::Recording {
    /// Writes what a run does to the journal, and to a recording.
    pub(crate) fn step(&mut self, entry: impl FnOnce() -> Entry) -> Result<()> {
        if self.recorder.is_none() && self.journal.is_none() {
            return Ok(());
        }
        let entry = entry();
        if let Some(journal) = &mut self.journal {
            journal.beside(&entry)?;
            journal.sync()?;
        }
        self.recorder.as_mut().map_or(Ok(()), |recorder| recorder.beside(&entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;
    use crate::agent::exec::Approval;
    use crate::constraint::Mode;
    use crate::engine::ModelInfo;
    use crate::engine::scripted::ScriptedEngine;
    use crate::tool::Tools;
    use std::sync::{Arc, Mutex};

    const ROOMS: [&str; 3] = ["hall", "attic", "cellar"];

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Room {
        room: String,
    }

    fn light(room: &str) -> String {
        let call = format!(r#"{{"name": "light_on", "arguments": {{"room": "{room}"}}}}"#);
        format!("### TOOL_CALL_START ###\n{call}\n### TOOL_CALL_END ###")
    }

    /// The answers of the model: a call, two calls at a time, and a text.
    fn script() -> Vec<String> {
        vec![light(ROOMS[0]), format!("{}\n{}", light(ROOMS[1]), light(ROOMS[2])), "All is lit.".to_owned()]
    }

    /// A session that goes on after `answered` answers, an agent, and the rooms in which the light was switched on.
    fn session(answered: usize) -> (Session, Agent, Arc<Mutex<Vec<String>>>) {
        let texts = script();
        let info = ModelInfo { context_train: 32_768, ..ModelInfo::default() };
        let engine = ScriptedEngine::from_texts(info, texts.iter().skip(answered).map(String::as_str));
        let mut session = Session::new(Box::new(engine), None, None).unwrap();
        session.options_mut().constrain = Mode::Off;
        let (mut agent, lit) = (Agent::default(), Arc::<Mutex<Vec<String>>>::default());
        agent.executor.jobs = 1;
        let log = Arc::clone(&lit);
        let tool = agent.executor.function("light_on", "", move |room: Room| {
            log.lock().unwrap().push(room.room);
            Ok::<_, String>("on")
        });
        session.set_tools(Tools::new([tool]).unwrap());
        (session, agent, lit)
    }

    #[test]
    fn after_an_end_at_any_byte_each_effect_happens_once_or_is_reported_as_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, cut) = (folder.path().join("whole.jsonl"), folder.path().join("cut.jsonl"));
        let (mut first, mut agent, lit) = session(0);
        first.set_messages(vec![Message::user("Light!")]).unwrap();
        first.journal(&whole).unwrap();
        assert_eq!(first.run(&mut agent, &mut |_| ()).unwrap().status, Status::Done);
        assert_eq!(*lit.lock().unwrap(), ROOMS);
        let bytes = std::fs::read(&whole).unwrap();
        let header = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut unknown = 0;
        for end in header..=bytes.len() {
            std::fs::write(&cut, &bytes[..end]).unwrap();
            let text = std::str::from_utf8(&bytes[..end]).unwrap();
            let lines = &text[..text.rfind('\n').unwrap()];
            let begun = lines.matches(r#""begun""#).count();
            let journal = Journal::read(&cut).unwrap();
            let open = begun - lines.matches(r#""called""#).count();
            assert_eq!(journal.unknown.len(), open, "{end}");
            unknown += open;
            let answers = |message: &&Message| message.role == Role::Assistant;
            let (mut session, mut agent, lit) = session(journal.messages.iter().filter(answers).count());
            session.set_messages(journal.messages).unwrap();
            session.journal_on(&cut, &journal.unjoined).unwrap();
            agent.unknown = journal.unknown;
            agent.executor.confirm = Some(Box::new(|question| match question.why {
                "it had begun when the program ended, and may have been executed" => Approval::Denied(None),
                "the conversation ends with it, and nobody has allowed it yet" => Approval::Given,
                other => panic!("{other}"),
            }));
            if journal.finished.is_none() {
                assert_eq!(session.run(&mut agent, &mut |_| ()).unwrap().status, Status::Done, "{end}");
            }
            assert_eq!(*lit.lock().unwrap(), ROOMS[begun..], "{end}: what had begun is not executed again");
            assert_eq!(session.messages().last().unwrap().content, "All is lit.", "{end}");
            let journal = Journal::read(&cut).unwrap();
            let kept = (journal.messages.len(), journal.finished.is_some());
            assert_eq!(kept, (session.messages().len(), true), "{end}: a second crash would lose nothing");
        }
        assert!(unknown > 100, "calls that had begun: {unknown}");
    }

    #[test]
    fn what_a_person_answers_has_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let by_hand = |answer: Option<&'static str>| {
            let (mut session, mut agent, _) = session(0);
            session.set_messages(vec![Message::user("Light!")]).unwrap();
            agent.executor = crate::agent::exec::Executor::default();
            agent.executor.by_hand = Some(Box::new(move |_| answer.map(str::to_owned)));
            session.journal(&path).unwrap();
            (session.run(&mut agent, &mut |_| ()).unwrap().status, Journal::read(&path).unwrap())
        };
        let (status, journal) = by_hand(None);
        assert_eq!((status, journal.unknown, journal.messages.len()), (Status::ToolCalls, Vec::new(), 2));
        let (status, journal) = by_hand(Some("on"));
        assert_eq!((status, journal.unknown), (Status::Done, Vec::new()));
        assert_eq!(journal.messages.iter().filter(|message| message.content == "on").count(), ROOMS.len());
    }

    #[test]
    fn a_recording_of_an_interrupted_run_says_so_where_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, cut) = (folder.path().join("whole.jsonl"), folder.path().join("cut.jsonl"));
        let (mut first, mut agent, _) = session(0);
        first.set_messages(vec![Message::user("Light!")]).unwrap();
        first.recording.invocation = Some(Invocation::default());
        first.record(&whole).unwrap();
        first.run(&mut agent, &mut |_| ()).unwrap();
        let repeat = |path: &Path| {
            let (mut session, agent) = Session::replay_run(path).unwrap();
            session.run(&mut agent.unwrap_or_default(), &mut |_| ())
        };
        assert_eq!(repeat(&whole).unwrap().status, Status::Done);
        let text = std::fs::read_to_string(&whole).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for end in 1..lines.len() {
            // Half of the next line, too.
            let half = &lines[end][..lines[end].len() / 2];
            std::fs::write(&cut, lines[..end].concat() + half).unwrap();
            let answers = lines[..end].iter().filter(|line| line.contains("\"produced\"")).count();
            let error = match repeat(&cut) {
                Err(error) => error,
                // Only how it ended is missing.
                Ok(outcome) if answers == 3 => {
                    assert_eq!(outcome.status, Status::Done, "{end}");
                    continue;
                }
                Ok(outcome) => outcome.error.unwrap_or_else(|| panic!("{end}: {}", outcome.status)),
            };
            let after = ["before its first answer", "after 1 answer", "after 2 answers"][answers];
            let message = format!("the recording ends {after}, because it was interrupted");
            assert_eq!(error.message(), message, "{end}");
            let hint = format!("callwright resume {} goes on with the run", cut.display());
            assert!(error.to_string().contains(&hint), "{error}");
        }
    }

    #[test]
    fn a_call_that_was_changed_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let (mut session, mut agent, _) = session(0);
        session.set_messages(vec![Message::user("Light!")]).unwrap();
        let mut tool = session.tools().get("light_on").unwrap().clone();
        tool.policy = crate::tool::Policy::new(crate::tool::Effect::Destructive);
        session.set_tools(Tools::new([tool]).unwrap());
        session.journal(&path).unwrap();
        let outcome = session.run(&mut agent, &mut |_| ()).unwrap();
        assert_eq!(outcome.status, Status::Pending);
        let journal = Journal::read(&path).unwrap();
        assert_eq!((journal.pending, journal.messages.len()), (outcome.pending, 2));
        let text = std::fs::read_to_string(&path).unwrap();
        let entry = text.lines().find(|line| line.contains(r#""answer""#)).unwrap();
        let changed = text.replace(entry, &entry.replace("hall", "bank"));
        std::fs::write(&path, changed).unwrap();
        let error = Journal::read(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Replay);
        assert!(error.message().contains("is not the one that waits for approval"), "{error}");
        std::fs::write(&path, text.replace("callwright_recording\":1", "callwright_recording\":9")).unwrap();
        assert!(Journal::read(&path).unwrap_err().message().contains("it is of version 9"));
    }
}
