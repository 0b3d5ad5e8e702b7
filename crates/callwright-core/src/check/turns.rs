//! Whether each turn's prompt begins with the one before: where it does not, what the model has in its KV cache from
//! there on is of no use, and it reads that part of the conversation again.

use super::script::{self, conversation};
use super::{CountTokens, Subject, around, common};
use crate::Result;
use crate::message::Message;
use serde::Serialize;

/// The prompts of two turns that follow each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    /// Whether the model's messages have reasoning.
    pub reasoning: bool,
    /// What came between the two prompts.
    pub after: &'static str,
    /// Where the later prompt is no continuation of the earlier one.
    pub differs: Option<Difference>,
}

/// The first place where two prompts differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// In bytes from the beginning.
    pub at: usize,
    /// The same in tokens, where there is a model.
    pub tokens: Option<usize>,
    /// How many tokens of the earlier prompt are of no use, where there is a model.
    pub lost: Option<usize>,
    /// What stands around the place in the earlier prompt.
    pub earlier: String,
    /// And in the later one.
    pub later: String,
}

/// With `reasons`, also for a model that thinks.
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
        // The prompts of the three turns of the model.
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
