//! Adapts a conversation that a chat template cannot write.
//!
//! Templates fail on a second system message, two user messages in a row or two calls in one turn, or silently drop
//! them. The conversation is first rendered unchanged. Only if that fails or loses something, the [`steps`] are tried,
//! fewest first, and the changes are reported. A prompt that has the words of all messages lost nothing, see [`words`];
//! where they are not sufficient, what a template can write is determined by rendering the conversation with other
//! words, see [`sentinel`]. It is never guessed from the template's name.

mod sentinel;
mod steps;
mod words;

pub(super) use sentinel::Runs;

use super::{ChatTemplate, Prompt, RenderRequest, is_bound};
use crate::error::Result;
use crate::message::{
    Arguments, Message, Placed, Role, ToolCall, are_in_call_order, check_answered, complete, in_call_order,
};
use sentinel::{Missing, What};
use serde_json::{Map, json};
use steps::STEPS;

/// A prompt, and how the conversation was adapted for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Adapted {
    /// The prompt.
    pub prompt: Prompt,
    /// The messages as passed to the template, if they are not those of the request.
    pub messages: Option<Vec<Message>>,
    /// The adaptations, and what the template drops nevertheless; each with its place.
    pub notes: Vec<String>,
}

/// The result of rendering some messages: the prompt, and what is missing in it.
struct Fit {
    came: Result<Prompt>,
    missing: Vec<Missing>,
}

impl Fit {
    /// Lower is better; zero if nothing is lost.
    fn loss(&self) -> usize {
        match self.came {
            Ok(_) => self.missing.iter().filter(|missing| missing.what.is_worth_adapting()).count(),
            Err(_) => usize::MAX,
        }
    }

    /// Returns whether no step can improve it.
    fn is_final(&self) -> bool {
        self.loss() == 0 || self.came.as_ref().is_err_and(is_bound)
    }
}

struct Candidate {
    placed: Vec<Placed>,
    notes: Vec<String>,
    fit: Fit,
}

impl ChatTemplate {
    /// Renders a conversation, adapted if the template cannot write it.
    ///
    /// Calls without results and results without calls are completed first, as [`complete`] does. `places` has the
    /// indices of the messages in the conversation, for the notes; a message without one has its index in the request.
    /// A conversation that the template can write gets exactly the prompt of [`ChatTemplate::render`], and is rendered
    /// once.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::render`] for the original conversation, if no adaptation helps.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn render_adapted(&self, request: &RenderRequest<'_>, places: &[usize]) -> Result<Adapted> {
        let place = |index: usize| places.get(index).copied().unwrap_or(index);
        let mut first = None;
        let is_ordered = |messages: &[Message]| are_in_call_order(messages) || self.writes_ids(request);
        if check_answered(request.messages).is_ok() && is_ordered(request.messages) {
            let fit = self.fit(request, request.messages);
            if fit.is_final() {
                let prompt = fit.came?;
                let described = |missing: &Missing| (&request.messages[missing.index], place(missing.index));
                let silent = request.messages.iter().enumerate().map(|(index, message)| (message, place(index)));
                let mut notes = self.silent(silent);
                notes.extend(self.notes_of(&fit.missing, |missing| Some(described(missing))));
                return Ok(Adapted { prompt, messages: None, notes });
            }
            first = Some(fit);
        }
        let messages = request.messages.iter().cloned().enumerate();
        let (mut placed, mut notes) = complete(messages.map(|(at, message)| Placed::new(place(at), message)).collect());
        let mut sorted = placed.clone();
        let moved = in_call_order(&mut sorted);
        if !moved.is_empty() && !self.writes_ids(request) {
            placed = sorted;
            notes.extend(moved.into_iter().map(|note| format!("{}: {note}", self.name)));
        }
        let fit = first.unwrap_or_else(|| self.fit_placed(request, &placed));
        let first = Candidate { placed, notes: Vec::new(), fit };
        let best = if first.fit.is_final() { first } else { self.search(request, first) };
        let Candidate { placed, notes: steps, fit } = best;
        let prompt = fit.came?;
        notes.extend(steps.into_iter().map(|note| format!("{}: {note}", self.name)));
        notes.extend(self.silent(placed.iter().map(|placed| (&placed.message, placed.at))));
        notes.extend(self.notes_of(&fit.missing, |missing| {
            let Placed { message, at, inserted } = &placed[missing.index];
            (!inserted).then_some((message, *at))
        }));
        let messages = Some(placed.into_iter().map(|placed| placed.message).collect());
        Ok(Adapted { prompt, messages, notes })
    }

    /// Reports the messages in which the model says nothing.
    fn silent<'m>(&self, messages: impl Iterator<Item = (&'m Message, usize)>) -> Vec<String> {
        let silent = messages.filter(|(message, _)| steps::is_silent(message));
        let note = |at| {
            format!(
                "{}: messages[{at}], a message of role assistant, has neither text nor calls, and is shown so",
                self.name
            )
        };
        silent.map(|(_, at)| note(at)).collect()
    }

    /// Reports what is missing in a prompt; `message` gives the message and its place, if it is to be reported.
    fn notes_of<'m>(
        &self,
        missing: &[Missing],
        message: impl Fn(&Missing) -> Option<(&'m Message, usize)>,
    ) -> Vec<String> {
        let described = missing.iter().filter(|missing| missing.what != What::Tools).filter_map(|missing| {
            let (message, at) = message(missing)?;
            let what = missing.what.described(message, at);
            Some(format!("{}: {what} is not in the prompt: the template leaves it out", self.name))
        });
        let mut notes: Vec<String> = described.collect();
        if missing.iter().any(|missing| missing.what == What::Tools) {
            notes.push(format!("{}: the tools are not in the prompt: the template leaves them out", self.name));
        }
        notes
    }

    /// Returns whether the template writes calls, but only one per turn.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn writes_one_call(&self, request: &RenderRequest<'_>) -> bool {
        *self.one_call.get_or_init(|| {
            let messages = two_calls().into_iter().enumerate();
            let placed: Vec<Placed> = messages.map(|(at, message)| Placed::new(at, message)).collect();
            let split = steps::split(&placed).0;
            self.fit_placed(request, &placed).loss() > 0 && self.fit_placed(request, &split).loss() == 0
        })
    }

    /// Returns whether the template writes the ids of calls and of their results.
    fn writes_ids(&self, request: &RenderRequest<'_>) -> bool {
        *self.ids.get_or_init(|| {
            let messages = two_calls();
            let request = RenderRequest { messages: &messages, ..request.clone() };
            let written = self.render_trial(&request).map(|prompt| prompt.text()).unwrap_or_default();
            IDS.iter().all(|id| written.matches(id).count() > 1)
        })
    }

    fn fit(&self, request: &RenderRequest<'_>, messages: &[Message]) -> Fit {
        let request = RenderRequest { messages, ..request.clone() };
        let came = self.render(&request);
        let missing = match &came {
            Ok(prompt) if !words::shows_all(self, &request, &prompt.text()) => {
                sentinel::missing(self, &request, messages)
            }
            _ => Vec::new(),
        };
        Fit { came, missing }
    }

    fn fit_placed(&self, request: &RenderRequest<'_>, placed: &[Placed]) -> Fit {
        let messages: Vec<Message> = placed.iter().map(|placed| placed.message.clone()).collect();
        self.fit(request, &messages)
    }

    /// The smallest set of steps with which nothing is lost, else the one with the least loss.
    fn search(&self, request: &RenderRequest<'_>, first: Candidate) -> Candidate {
        let given = first.placed.clone();
        let mut seen: Vec<Vec<Placed>> = vec![given.clone()];
        let mut best = first;
        let mut sets: Vec<u32> = (1..1 << STEPS.len()).collect();
        sets.sort_by_key(|set| set.count_ones());
        for set in sets {
            let (mut placed, mut notes) = (given.clone(), Vec::new());
            let mut idle = false;
            for (_, step) in STEPS.iter().enumerate().filter(|(bit, _)| set & 1 << bit != 0) {
                let (stepped, more) = step(&placed);
                idle |= more.is_empty();
                placed = stepped;
                notes.extend(more);
            }
            // A smaller set has the same result.
            if idle || seen.contains(&placed) {
                continue;
            }
            let fit = self.fit_placed(request, &placed);
            seen.push(placed.clone());
            if fit.loss() < best.fit.loss() {
                best = Candidate { placed, notes, fit };
            }
            if best.fit.loss() == 0 {
                break;
            }
        }
        best
    }
}

/// Nine letters and digits: some templates refuse other ids.
const IDS: [&str; 2] = ["call00001", "call00002"];

/// A turn with two calls, and their results.
fn two_calls() -> [Message; 4] {
    let arguments = || Arguments::Object(Map::from_iter([("value".to_owned(), json!("text"))]));
    let call = |id: &str| ToolCall { id: Some(id.to_owned()), name: "probe".to_owned(), arguments: arguments() };
    let result = |id: &str| Message::tool(id, "probe", "result");
    [Message::user("?"), Message::calls(IDS.map(call).to_vec()), result(IDS[0]), result(IDS[1])]
}

impl What {
    /// Templates drop names by design, and often the text next to calls: these are only reported.
    fn is_worth_adapting(&self) -> bool {
        matches!(self, What::Message | What::Call(_) | What::Tools)
    }

    fn described(&self, message: &Message, at: usize) -> String {
        match self {
            What::Message => match message.role {
                Role::Tool => format!("the result in messages[{at}]"),
                role => format!("messages[{at}], a message of role {},", role.as_str()),
            },
            What::Call(call) => {
                let name = message.tool_calls.get(*call).map_or("a tool", |call| call.name.as_str());
                format!("the call of {name} in messages[{at}]")
            }
            What::CallText => format!("the text next to the calls in messages[{at}]"),
            What::Name => format!("the name {:?} in messages[{at}]", message.name.as_deref().unwrap_or_default()),
            What::Tools => "the tool section".to_owned(),
        }
    }
}
