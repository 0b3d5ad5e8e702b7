//! Overlays a tool-call format on a chat template that does not support tools.
//!
//! The format's tool section joins the system message, calls become the assistant's text, and results go where the
//! template accepts them. The roles that it has are determined by rendering a probe, never by its name.

use super::ChatTemplate;
use super::probe::Roles;
use crate::message::{Message, Role, ToolCall};
use std::fmt;

/// Writes past calls and results as text in a tool-call format.
pub trait CallHistory: Sync {
    /// Text and calls of an assistant message, as the model would have written them.
    fn assistant(&self, content: &str, calls: &[ToolCall]) -> String;

    /// A tool's result, clearly marked, for templates without a tool role. `name` and `id` are empty if unknown.
    fn result(&self, name: &str, id: &str, content: &str) -> String;
}

/// A tool-call format that is overlaid on a chat template.
#[derive(Clone, Copy)]
pub struct Overlay<'a> {
    /// Writes the tool section; its variables are `tools` and those of the request. `None` if the chat template writes
    /// the tools itself, and only past calls have to be written for it.
    pub section: Option<&'a ChatTemplate>,
    /// Writes calls and results.
    pub history: &'a dyn CallHistory,
}

impl fmt::Debug for Overlay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("section", &self.section).finish_non_exhaustive()
    }
}

impl Overlay<'_> {
    /// The conversation without calls and, if the template lacks them, without tool and system roles.
    pub(super) fn write(&self, messages: Vec<Message>, section: &str, roles: Roles) -> Vec<Message> {
        let mut written: Vec<Message> = Vec::with_capacity(messages.len() + 1);
        let mut calls: Vec<ToolCall> = Vec::new();
        let mut from_tool = false;
        for mut message in messages {
            match message.role {
                Role::Tool => {
                    let call = answered(&mut calls, message.tool_call_id.as_deref());
                    let name = message.name.take().or(call.map(|call| call.name)).unwrap_or_default();
                    if roles.tool {
                        message.name = Some(name).filter(|name| !name.is_empty());
                        written.push(message);
                        continue;
                    }
                    let id = message.tool_call_id.unwrap_or_default();
                    let text = self.history.result(&name, &id, &message.content);
                    match written.last_mut().filter(|_| from_tool) {
                        Some(results) => append(&mut results.content, "\n", &text),
                        None => written.push(Message::user(text)),
                    }
                    from_tool = true;
                    continue;
                }
                Role::User if roles.alternating => {
                    if let Some(last) = written.last_mut().filter(|last| last.role == Role::User) {
                        append(&mut last.content, "\n\n", &message.content);
                        from_tool = false;
                        continue;
                    }
                }
                Role::Assistant if !message.tool_calls.is_empty() => {
                    message.content = self.history.assistant(&message.content, &message.tool_calls);
                    calls = std::mem::take(&mut message.tool_calls);
                }
                _ => {}
            }
            from_tool = false;
            written.push(message);
        }
        instruct(&mut written, section, roles.system);
        written
    }
}

/// Takes the call of a result; without an id, the first open one.
fn answered(calls: &mut Vec<ToolCall>, id: Option<&str>) -> Option<ToolCall> {
    let by_id = calls.iter().position(|call| id.is_some() && call.id.as_deref() == id);
    by_id.or(if calls.is_empty() { None } else { Some(0) }).map(|index| calls.remove(index))
}

/// Puts the tool section into the system message; without a system role, all instructions into the first user message.
fn instruct(messages: &mut Vec<Message>, section: &str, system_role: bool) {
    let section = section.trim_end();
    if system_role {
        match messages.first_mut() {
            _ if section.is_empty() => {}
            Some(first) if first.role == Role::System => append(&mut first.content, "\n\n", section),
            _ => messages.insert(0, Message::system(section)),
        }
        return;
    }
    let mut instructions = String::new();
    messages.retain(|message| {
        let system = message.role == Role::System;
        if system {
            append(&mut instructions, "\n\n", &message.content);
        }
        !system
    });
    append(&mut instructions, "\n\n", section);
    match messages.first_mut() {
        _ if instructions.is_empty() => {}
        Some(first) if first.role == Role::User => {
            append(&mut instructions, "\n\n", &first.content);
            first.content = instructions;
        }
        _ => messages.insert(0, Message::user(instructions)),
    }
}

fn append(text: &mut String, separator: &str, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(separator);
    }
    text.push_str(more);
}
