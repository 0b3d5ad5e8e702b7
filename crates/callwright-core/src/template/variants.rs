//! The chat templates of one model.

use super::ChatTemplate;
use crate::error::Result;
use std::sync::Arc;

/// ChatML, which most models without a template follow well enough.
const CHATML: &str = include_str!("../../templates/chatml.jinja");
/// Turns in plain text, with examples of calls, for models that were trained on no conversations.
const PLAIN: &str = include_str!("../../templates/plain.jinja");

impl ChatTemplate {
    /// The names of the built-in chat templates.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) const BUILTIN: [&str; 2] = ["chatml", "plain"];

    /// The built-in chat template of that name.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn builtin(name: &str) -> Option<Result<ChatTemplate>> {
        match name {
            "chatml" => Some(ChatTemplate::new("templates/chatml.jinja", CHATML)),
            "plain" => Some(ChatTemplate::new("templates/plain.jinja", PLAIN)),
            _ => None,
        }
    }
}

/// A model's chat templates: the default one, and variants by name. Clones share the compiled templates.
#[derive(Debug, Clone)]
pub struct ChatTemplates {
    default: Arc<ChatTemplate>,
    named: Vec<(String, Arc<ChatTemplate>)>,
    built_in: bool,
}

impl ChatTemplates {
    /// A single template for everything.
    pub fn single(template: impl Into<Arc<ChatTemplate>>) -> ChatTemplates {
        ChatTemplates { default: template.into(), named: Vec::new(), built_in: false }
    }

    /// The built-in ChatML, for a model that has no template.
    pub fn built_in() -> Result<ChatTemplates> {
        ChatTemplates::in_place("templates/chatml.jinja", CHATML)
    }

    /// The built-in turns in plain text, for a model that has no template and no tokens for turns either.
    pub fn plain() -> Result<ChatTemplates> {
        ChatTemplates::in_place("templates/plain.jinja", PLAIN)
    }

    /// A built-in template in place of the model's own.
    fn in_place(name: &str, source: &str) -> Result<ChatTemplates> {
        Ok(ChatTemplates { built_in: true, ..ChatTemplates::single(ChatTemplate::new(name, source)?) })
    }

    /// The chat templates in a GGUF's `tokenizer.chat_template` and `tokenizer.chat_template.NAME`; `model` is the
    /// file's name in errors. A model with neither gets [`ChatTemplates::built_in`].
    pub fn from_model(model: &str, default: Option<&str>, named: &[(String, String)]) -> Result<ChatTemplates> {
        let mut compiled = Vec::with_capacity(named.len());
        for (name, source) in named {
            let template = ChatTemplate::new(format!("{model}[chat_template.{name}]"), source.as_str())?;
            compiled.push((name.clone(), Arc::new(template)));
        }
        let default = match default {
            Some(source) => Arc::new(ChatTemplate::new(format!("{model}[chat_template]"), source)?),
            None => match compiled.iter().position(|(name, _)| name == "default") {
                Some(index) => compiled.remove(index).1,
                None if compiled.is_empty() => return ChatTemplates::built_in(),
                None => compiled.remove(0).1,
            },
        };
        Ok(ChatTemplates { default, named: compiled, built_in: false })
    }

    /// The template for a conversation with or without tools: `tool_use` if the model has it.
    pub fn choose(&self, tools: bool) -> &ChatTemplate {
        let tool_use = if tools { self.get("tool_use") } else { None };
        tool_use.unwrap_or(&self.default)
    }

    /// Like [`ChatTemplates::choose`], by value.
    pub fn into_chosen(mut self, tools: bool) -> Arc<ChatTemplate> {
        match self.named.iter().position(|(name, _)| tools && name == "tool_use") {
            Some(index) => self.named.swap_remove(index).1,
            None => self.default,
        }
    }

    /// The variant of that name.
    pub fn get(&self, name: &str) -> Option<&ChatTemplate> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, template)| &**template)
    }

    /// The names of the variants.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    /// Returns whether the model has no template and the built-in one is used; the user should know.
    pub fn is_built_in(&self) -> bool {
        self.built_in
    }
}
