//! Reports what a chat template can do, for the person who writes it.
//!
//! A template fails quietly: it drops a tool result, writes calls that cannot be read back, or changes an earlier turn,
//! which invalidates the KV cache. This module renders a conversation with tools part by part and turn by turn, and
//! searches the prompt for each part. It judges nothing by names or markers.
//!
//! ```
//! use callwright_core::check::{Outcome, Subject};
//! use callwright_core::template::ChatTemplate;
//!
//! let template = ChatTemplate::new("t", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")?;
//! let report = Subject::new(&template, None).check(None)?;
//! let tools = report.renders.iter().find(|render| render.what == "tools").unwrap();
//! assert_eq!((tools.needed, &tools.outcome), (true, &Outcome::Ignored));
//! assert!(!report.sound());
//! # Ok::<(), callwright_core::Error>(())
//! ```

mod chosen;
mod costs;
mod renders;
mod round_trip;
mod script;
mod teaching;
mod turns;

pub use chosen::Chosen;
pub use costs::{Cost, MarkerTokens};
pub use renders::{Outcome, Render};
pub use round_trip::RoundTrip;
pub use turns::{Difference, Turn};

use crate::Result;
use crate::format::Format;
use crate::message::Message;
use crate::template::{ChatTemplate, Overlay, RenderRequest};
use crate::tool::Tools;
use jiff::civil::{DateTime, date};
use serde::Serialize;
use serde_json::{Map, Value};

/// Counts the tokens of a text.
pub type CountTokens<'a> = &'a dyn Fn(&str) -> Result<usize>;

/// The chat template to check, and how it is used.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The template.
    pub template: &'a ChatTemplate,
    /// The format of its calls; without one, nothing is read back.
    pub format: Option<&'a Format>,
    /// The tool section of a format that is overlaid on the template; `None` if the template writes tools itself.
    pub section: Option<&'a ChatTemplate>,
    /// Whether calls are written as text in `format`, for a template that writes tools but no calls.
    pub calls_as_text: bool,
    /// The text of the token that begins a sequence.
    pub bos_token: &'a str,
    /// The text of the token that ends one.
    pub eos_token: &'a str,
    /// More variables, such as `enable_thinking`.
    pub variables: Map<String, Value>,
}

/// The findings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// How the template renders each part of a conversation.
    pub renders: Vec<Render>,
    /// Whether the calls that the template writes are read back unchanged; empty without a format.
    pub round_trips: Vec<RoundTrip>,
    /// Other problems, in sentences: calls that the parser cannot read, a tool section that shows other markers.
    pub problems: Vec<String>,
    /// What may be a mistake, in sentences: variables that nothing sets, doubled braces in what the model is shown.
    pub remarks: Vec<String>,
    /// Whether each turn's prompt begins with the previous one.
    pub turns: Vec<Turn>,
    /// The format's markers as the model's tokens; empty without a model.
    pub markers: Vec<MarkerTokens>,
    /// Token cost of each part of a prompt; empty without a model.
    pub costs: Vec<Cost>,
}

impl Report {
    /// Returns whether the template writes everything that tool calls need, and all calls are read back unchanged.
    pub fn sound(&self) -> bool {
        self.lacking().next().is_none()
            && self.problems.is_empty()
            && self.round_trips.iter().all(|trip| trip.problem.is_none())
    }

    /// The parts that tool calls need and the template does not write.
    pub fn lacking(&self) -> impl Iterator<Item = &Render> {
        let lacking = |outcome: &Outcome| matches!(outcome, Outcome::Ignored | Outcome::Fail { .. });
        self.renders.iter().filter(move |render| render.needed && lacking(&render.outcome))
    }
}

impl<'a> Subject<'a> {
    /// A template that writes tools itself, in `format`.
    pub fn new(template: &'a ChatTemplate, format: Option<&'a Format>) -> Subject<'a> {
        let calls_as_text = false;
        Subject {
            template,
            format,
            section: None,
            calls_as_text,
            bos_token: "<s>",
            eos_token: "</s>",
            variables: Map::new(),
        }
    }

    /// Runs the checks; with `count`, also counts tokens.
    ///
    /// # Errors
    /// Only errors of `count`. Failures of the template are part of the report.
    pub fn check(&self, count: Option<CountTokens<'_>>) -> Result<Report> {
        let renders = renders::renders(self);
        let reasons = renders.iter().any(|render| render.what == "reasoning" && render.outcome == Outcome::Pass);
        let trips = self.format.map(|format| round_trip::round_trips(self, format)).transpose()?;
        let round_trips = trips.unwrap_or_default();
        Ok(Report {
            problems: teaching::problems(self, &renders, &round_trips)?,
            remarks: teaching::remarks(self)?,
            round_trips,
            turns: turns::turns(self, reasons, count)?,
            markers: match (self.format, count) {
                (Some(format), Some(count)) => costs::markers(format, count)?,
                _ => Vec::new(),
            },
            costs: count.map(|count| costs::costs(self, count)).transpose()?.unwrap_or_default(),
            renders,
        })
    }

    /// Renders a prompt; `generation` adds the header of the assistant's turn.
    fn prompt(&self, messages: &[Message], tools: Option<&Tools>, generation: bool) -> Result<String> {
        let overlay = match (self.section, self.format) {
            (Some(section), Some(format)) => Some(Overlay { section: Some(section), history: format }),
            (None, Some(format)) if self.calls_as_text => Some(Overlay { section: None, history: format }),
            _ => None,
        };
        let request = RenderRequest {
            messages,
            tools,
            add_generation_prompt: generation,
            bos_token: self.bos_token,
            eos_token: self.eos_token,
            variables: self.variables.clone(),
            // Fixed, because the prompts are compared.
            now: Some(CLOCK),
            reserved: None,
            overlay,
        };
        // Probe the template first: its trials are separate renders.
        self.template.capabilities();
        Ok(self.template.trial(|| self.template.render(&request))?.text())
    }
}

const CLOCK: DateTime = date(2026, 1, 15).at(12, 0, 0, 0);

/// Length of the common prefix.
fn common(a: &str, b: &str) -> usize {
    let length = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=length).rev().find(|&at| a.is_char_boundary(at) && b.is_char_boundary(at)).unwrap_or(0)
}

/// An excerpt of the text around `at`.
fn around(text: &str, at: usize) -> &str {
    let start = text[..at].char_indices().rev().nth(24).map_or(0, |(start, _)| start);
    let end = text[at..].char_indices().nth(48).map_or(text.len(), |(length, _)| at + length);
    &text[start..end]
}
