//! Whether each turn's prompt begins with the previous one. From the first difference on, the KV cache is invalid and
//! the model reads the conversation again.

use super::script::{self, conversation};
use super::{CountTokens, Subject, around, common};
use crate::Result;
use crate::message::Message;
use serde::Serialize;

/// The prompts of two consecutive turns.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Turn {
    /// Whether the model's messages have reasoning.
    pub reasoning: bool,
    /// What was added between the two prompts.
    pub after: &'static str,
    /// The first difference, if the later prompt does not continue the earlier one.
    pub differs: Option<Difference>,
}

/// The first place where two prompts differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// Byte offset.
    pub at: usize,
    /// Token offset, if there is a model.
    pub tokens: Option<usize>,
    /// Number of tokens of the earlier prompt that are invalidated, if there is a model.
    pub lost: Option<usize>,
    /// The earlier prompt around that place.
    pub earlier: String,
    /// The later prompt around that place.
    pub later: String,
}

/// `reasons` also checks answers with reasoning.
pub(super) fn turns(subject: &Subject<'_>, reasons: bool, count: Option<CountTokens<'_>>) -> Result<Vec<Turn>> {
    let tools = script::all()?;
    let mut turns = Vec::new();
    for reasoning in [false, true] {
        if reasoning && !reasons {
            continue;
        }
        let mut messages = vec![Message::system(script::SYSTEM)];
        messages.extend(conversation());
        messages.push(Message::user(script::SECOND_QUESTION));
        for message in messages.iter_mut().filter(|message| message.role == crate::message::Role::Assistant) {
            message.reasoning = reasoning.then(|| script::REASONING.to_owned());
        }
        // The prompts of the model's three turns.
        let prompts = [2, 4, 6].map(|length| subject.prompt(&messages[..length], Some(&tools), true));
        for (pair, after) in prompts.windows(2).zip(["a call and its result", "an answer and the next question"]) {
            let [Ok(earlier), Ok(later)] = pair else { continue };
            let differs =
                if later.starts_with(earlier.as_str()) { None } else { Some(difference(earlier, later, count)?) };
            turns.push(Turn { reasoning, after, differs });
        }
    }
    Ok(turns)
}

fn difference(earlier: &str, later: &str, count: Option<CountTokens<'_>>) -> Result<Difference> {
    let at = common(earlier, later);
    let tokens = count.map(|count| count(&earlier[..at])).transpose()?;
    let all = count.map(|count| count(earlier)).transpose()?;
    Ok(Difference {
        at,
        tokens,
        lost: all.zip(tokens).map(|(all, kept)| all.saturating_sub(kept)),
        earlier: around(earlier, at).to_owned(),
        later: around(later, at).to_owned(),
    })
}
