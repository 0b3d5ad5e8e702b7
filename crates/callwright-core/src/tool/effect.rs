//! What a tool changes, and what that allows: whether a call may be repeated, and how many calls there may be.

use super::notice::Notices;
use crate::json::shown;
use serde_json::{Map, Value, json};
use std::fmt;

/// What a call of a tool changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Effect {
    /// Nothing: it only looks.
    Read,
    /// Something. The default where nothing is known.
    #[default]
    Write,
    /// Something that cannot be undone.
    Destructive,
}

impl Effect {
    /// The effects, in the order of what they change.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) const ALL: [Effect; 3] = [Effect::Read, Effect::Write, Effect::Destructive];

    /// Returns the word that files use.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Write => "write",
            Effect::Destructive => "destructive",
        }
    }

    /// Returns the effect of a word.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn from_word(word: &str) -> Option<Effect> {
        Effect::ALL.into_iter().find(|effect| effect.as_str() == word)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a tool's effect comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EffectSource {
    /// Nothing says it: it is [`Effect::Write`].
    #[default]
    Default,
    /// The tool's own definition: `effect` in TOML, `x-effect` in JSON, or code.
    Definition,
    /// The annotations of an MCP server.
    Annotations,
}

impl fmt::Display for EffectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EffectSource::Default => "the default",
            EffectSource::Definition => "the tool's definition",
            EffectSource::Annotations => "the server's annotations",
        })
    }
}

/// What a run may do with a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Policy {
    /// What a call changes.
    pub effect: Effect,
    /// Where the effect comes from.
    pub source: EffectSource,
    /// Allows a call that succeeded to be executed again with equal arguments.
    pub repeat: bool,
    /// Maximum number of calls in a run.
    pub max_calls: Option<usize>,
}

impl Policy {
    /// Creates the policy of a tool whose definition says its effect.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn new(effect: Effect) -> Policy {
        Policy { effect, source: EffectSource::Definition, ..Policy::default() }
    }

    /// Reads `x-effect`, `x-repeat`, `x-max-calls` and MCP's `annotations` of a JSON tool. Earlier objects count first.
    pub(super) fn of_json(objects: &[&Map<String, Value>], notices: &mut Notices) -> Policy {
        let get = |key: &str| objects.iter().find_map(|object| object.get(key)).filter(|value| !value.is_null());
        let mut policy = Policy::default();
        if let Some(annotations) = get("annotations").and_then(Value::as_object) {
            let hint = |key: &str| annotations.get(key).and_then(Value::as_bool);
            // A server that says neither is not known to destroy anything.
            let effect = match (hint("readOnlyHint"), hint("destructiveHint")) {
                (Some(true), _) => Some(Effect::Read),
                (_, Some(true)) => Some(Effect::Destructive),
                (Some(false), _) | (_, Some(false)) => Some(Effect::Write),
                (None, None) => None,
            };
            if let Some(effect) = effect {
                (policy.effect, policy.source) = (effect, EffectSource::Annotations);
            }
        }
        if let Some(value) = get("x-effect") {
            match value.as_str().and_then(Effect::from_word) {
                Some(effect) => (policy.effect, policy.source) = (effect, EffectSource::Definition),
                None => {
                    let message = format!("{} is no effect; {} is assumed", shown(value), policy.effect);
                    notices.relaxed("", "x-effect", message, r#"write "read", "write" or "destructive""#);
                }
            }
        }
        policy.repeat = get("x-repeat").and_then(Value::as_bool).unwrap_or_default();
        policy.max_calls = get("x-max-calls").and_then(Value::as_u64).and_then(|most| usize::try_from(most).ok());
        policy
    }

    /// Adds the keys that [`Policy::of_json`] reads, where they differ from the default.
    pub(super) fn write_into(&self, tool: &mut Map<String, Value>) {
        if self.source != EffectSource::Default {
            tool.insert("x-effect".to_owned(), json!(self.effect.as_str()));
        }
        if self.repeat {
            tool.insert("x-repeat".to_owned(), Value::Bool(true));
        }
        if let Some(most) = self.max_calls {
            tool.insert("x-max-calls".to_owned(), json!(most));
        }
    }
}
