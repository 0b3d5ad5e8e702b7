//! Scores an answer: its outcome, and the reason.

mod compare;
mod schema;

use super::ask::options;
use super::bfcl::TURN_ERRORS;
use super::configuration::Configuration;
use super::exact::Exact;
use super::outcome::Outcome;
use super::sample::{Finish, Sample};
use super::suite::{Case, Expected};
use callwright::error::{Result, nearest};
use callwright::format::Format;
use callwright::message::Arguments;
use callwright::parse::event::{DiagnosticKind, Event, RepairKind};
use callwright::parse::{Parsed, ParsedCall, Parser};
use callwright::session::{Options, parser_options};
use callwright::tool::{CallProblem, Tools};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version of the outcomes' meanings: runs with different versions cannot be compared.
pub const SCORER: u32 = 5;

/// BFCL's checker takes a missing answer for a decision not to call.
const NO_ANSWER: &str = "no_answer";

/// The number of copies of a period at the end that make a loop, and the longest period.
const COPIES: usize = 4;
const PERIOD: usize = 16;
/// The number of surplus copies of one call that make a loop.
const MORE_CALLS: usize = 3;

/// A scored answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scored {
    /// The outcome.
    pub outcome: Outcome,
    /// The reason in a sentence; empty where the answer is correct.
    pub detail: String,
    /// How the name of a tool that was not offered differs from an offered one: `case`, `namespace`, `near_miss` or
    /// `invented`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_tool: Option<&'static str>,
    /// A called tool that was not offered, and whose name is from the prompt's examples of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example_tool: Option<String>,
    /// Whether the model tried to make a call, readable or not.
    pub attempted: bool,
    /// Whether the answer has text besides its calls.
    pub text_around: bool,
    /// Whether it has a call in another form than the format's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub other_form: bool,
    /// The repairs.
    pub repairs: Vec<RepairKind>,
    /// Whether there are calls, and a program gets all of them: they are complete and fit their tools.
    pub delivered: bool,
    /// Whether the expected tools were called, the expected number of times.
    pub tools_right: bool,
    /// Whether the answer abstains cleanly: it ended, has some text and no trace of a call.
    pub clean_abstention: bool,
    /// Whether a task of several turns was done, however the answers ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<bool>,
    /// BFCL's verdict on a case of BFCL: `Some(None)` is valid, else the error type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bfcl: Option<Option<&'static str>>,
    /// The text outside of calls.
    pub content: String,
    /// The calls.
    pub calls: Vec<ScoredCall>,
}

/// One call of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoredCall {
    /// The tool's name.
    pub name: String,
    /// The arguments' JSON text, or the text in their place.
    pub arguments: String,
    /// Its byte range in the raw text.
    pub range: (usize, usize),
    /// Whether a program gets it: it is complete and fits its tool.
    pub valid: bool,
    /// Its problems; as JSON, sentences.
    #[serde(serialize_with = "sentences")]
    pub problems: Vec<CallProblem>,
    /// The arguments if they are an object.
    #[serde(skip)]
    exact: Option<Exact>,
}

fn sentences<S: Serializer>(problems: &[CallProblem], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(problems.iter().map(CallProblem::to_string))
}

/// Scores an answer that was written in `format`, by the calls that a program gets: they are read as in a session.
///
/// # Errors
/// [`ErrorKind::Format`](callwright::ErrorKind::Format) when the format's markers cannot be searched for.
pub(crate) fn score(case: &Case, sample: &Sample, format: &Format, configuration: &Configuration) -> Result<Scored> {
    if let Some(failure) = &sample.failure {
        let outcome = if failure.prompt_too_long { Outcome::PromptTooLong } else { Outcome::InfraError };
        let mut scored = Scored::new(outcome, failure.message.clone());
        scored.bfcl = case.is_of_bfcl().then_some(Some(NO_ANSWER));
        scored.made = case.task.as_ref().and_then(|task| task.is_declared().then_some(false));
        return Ok(scored);
    }
    if let Some(verdict) = &sample.verdict {
        let detail = match verdict.turn {
            Some(turn) => format!("turn {} of {}: {}", turn + 1, sample.turns.len().max(turn + 1), verdict.detail),
            None => verdict.detail.clone(),
        };
        let bfcl = verdict.bfcl.as_ref().map(|kind| TURN_ERRORS.into_iter().find(|error| error == kind));
        return Ok(Scored { made: verdict.made, bfcl, ..Scored::new(verdict.outcome, detail) });
    }
    let options = options(case, configuration);
    let (mut parsed, mut calls) = parse(case, sample, format, &options, false)?;
    let delivered = !calls.is_empty() && calls.iter().all(|call| call.valid);
    let inexact = |problem: &CallProblem| matches!(problem, CallProblem::InexactNumber { .. });
    if calls.iter().any(|call| call.problems.iter().any(inexact)) {
        // No program gets it, but the model may have written the right number.
        (parsed, calls) = parse(case, sample, format, &options, true)?;
    }
    // Other markup, such as the end of a turn, is no trace of a call.
    let marker = |text: &str| format.reserved().any(|marker| text.contains(marker.trim()));
    let stray = parsed.diagnostics.iter().any(|diagnostic| match diagnostic.kind {
        DiagnosticKind::StrayEndMarker => true,
        DiagnosticKind::StrayMarkup => sample.raw.get(diagnostic.range.clone()).is_some_and(marker),
        _ => false,
    });
    let foreign = if calls.is_empty() { format.other_call_in(&sample.raw) } else { None };
    let attempted = !calls.is_empty() || stray || foreign.is_some();
    // A call in an answer that a threshold held to text is not executed.
    let executed = if sample.is_held_to_text() { &[][..] } else { &calls };
    let answer = Answer { case, sample, format, parsed: &parsed, calls: executed, attempted, foreign };
    let (outcome, detail, unknown_tool) = answer.classify();
    let ended = sample.finish == Finish::Stop;
    let scored = Scored {
        unknown_tool,
        attempted,
        other_form: sample.rewritten_tokens > 0 || parsed.calls.iter().any(|call| call.other_form),
        text_around: !calls.is_empty() && !parsed.content.trim().is_empty(),
        repairs: parsed
            .repairs
            .iter()
            .map(|repair| repair.kind)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect(),
        delivered,
        tools_right: answer.tools_right(),
        clean_abstention: ended && !attempted && !parsed.content.trim().is_empty(),
        bfcl: answer.bfcl(),
        content: parsed.content.clone(),
        calls,
        ..Scored::new(outcome, detail)
    };
    Ok(scored)
}

impl Scored {
    fn new(outcome: Outcome, detail: String) -> Scored {
        Scored {
            outcome,
            detail,
            unknown_tool: None,
            example_tool: None,
            attempted: false,
            text_around: false,
            other_form: false,
            repairs: Vec::new(),
            delivered: false,
            tools_right: false,
            clean_abstention: false,
            made: None,
            bfcl: None,
            content: String::new(),
            calls: Vec::new(),
        }
    }
}

/// A called name that is only in the prompt's examples of calls: the prompt has it in quotes or in brackets, but neither
/// the conversation nor the tools have it.
pub(crate) fn example_tool(case: &Case, calls: &[ScoredCall], prompt: &str) -> Option<String> {
    let unknown = calls.iter().map(|call| call.name.as_str()).filter(|name| case.tools.get(name).is_none());
    let mut written = unknown.filter(|name| !name.is_empty() && is_written(name, prompt)).peekable();
    written.peek()?;
    let own = case.tools.to_json().to_string();
    let asked = |name: &str| case.messages.iter().any(|message| message.content.contains(name));
    written.find(|name| !own.contains(*name) && !asked(name)).map(str::to_owned)
}

/// Returns whether a text has a name as calls are written: in quotes, in brackets, or before arguments.
fn is_written(name: &str, text: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        text[..at].ends_with(['"', '\'', '`', '<', '[', '=', ' ', '\n'])
            && text[at + name.len()..].starts_with(['"', '\'', '`', '>', ']', '('])
    })
}

fn parse(
    case: &Case,
    sample: &Sample,
    format: &Format,
    options: &Options,
    any_number: bool,
) -> Result<(Parsed, Vec<ScoredCall>)> {
    let options = parser_options(options, &case.messages, &case.tools, &sample.prompt_tail);
    let options = options.with(|set| set.session.any_number = any_number);
    let tools = (!case.tools.is_empty()).then(|| Arc::clone(&case.tools));
    let mut parser = Parser::new(format, tools, options)?;
    // From the text: a double may differ from what the model wrote.
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut hear = |event: Event| {
        if let Event::CallArguments { id, delta } = event {
            *texts.entry(id).or_default() += &delta;
        }
    };
    if sample.is_held_to_text() {
        parser.forbid_calls();
    }
    let raw = sample.raw.as_bytes();
    let closed_from = sample.closed_from.map_or(raw.len(), |from| from.min(raw.len()));
    parser.push(&raw[..closed_from], &mut hear);
    if sample.closed_from.is_some() {
        parser.closing();
        parser.push(&raw[closed_from..], &mut hear);
    }
    if matches!(sample.finish, Finish::Length | Finish::Loop) {
        parser.cut_off();
    }
    let parsed = parser.finish(&mut hear);
    let call = |call: &ParsedCall| {
        let arguments = texts.get(&call.id).cloned().unwrap_or_else(|| call.arguments.to_text());
        let object = matches!(call.arguments, Arguments::Object(_));
        let exact = object.then(|| Exact::parse(&arguments).or_else(|_| Exact::parse(&call.arguments.to_text())).ok());
        ScoredCall {
            name: call.name.clone(),
            exact: exact.flatten().filter(|exact| exact.members().is_some()),
            arguments,
            range: (call.range.start, call.range.end),
            valid: call.is_runnable(),
            problems: call.problems.clone(),
        }
    };
    let calls = parsed.calls.iter().map(call).collect();
    Ok((parsed, calls))
}

struct Answer<'a> {
    case: &'a Case,
    sample: &'a Sample,
    format: &'a Format,
    parsed: &'a Parsed,
    calls: &'a [ScoredCall],
    attempted: bool,
    foreign: Option<(&'static str, &'static str)>,
}

impl Answer<'_> {
    /// The first outcome that fits, in the order of [`super::outcome::OUTCOMES`].
    fn classify(&self) -> (Outcome, String, Option<&'static str>) {
        let plain = |outcome, detail| (outcome, detail, None);
        if let Some((outcome, detail)) = self.of_format() {
            return plain(outcome, detail);
        }
        if self.case.expected == Expected::NoCall {
            return match self.calls.first() {
                Some(call) => {
                    plain(Outcome::CallWhenNoneNeeded, format!("{} is called, where no call is right", call.name))
                }
                None if self.attempted => {
                    plain(Outcome::CallWhenNoneNeeded, format!("no call is right; {}", self.traces()))
                }
                None => plain(Outcome::Correct, String::new()),
            };
        }
        if self.calls.is_empty() {
            let why = match (self.attempted, self.parsed.content.trim().is_empty()) {
                (true, _) => self.traces(),
                (false, true) => "the answer is empty".to_owned(),
                (false, false) => "the answer is only text".to_owned(),
            };
            return plain(Outcome::NoCallWhenNeeded, why);
        }
        if let Some((name, how)) = self.unknown_tool() {
            let detail = format!("{name:?} is none of the tools ({})", how.replace('_', " "));
            return (Outcome::UnknownTool, detail, Some(how));
        }
        if let Some(wrong) = self.of_tools().or_else(|| self.of_arguments()) {
            return plain(wrong.0, wrong.1);
        }
        plain(Outcome::Correct, String::new())
    }

    fn traces(&self) -> String {
        if let Some(call) = self.parsed.calls.first() {
            return format!("{} is called in an answer that was held to text, and not executed", call.name);
        }
        match self.foreign {
            Some((name, marker)) => format!("{marker} begins a call in the format {name}, not in {}", self.format.name),
            None => "there is an end marker without a call".to_owned(),
        }
    }

    fn of_format(&self) -> Option<(Outcome, String)> {
        if let Some(detail) = self.repetition() {
            return Some((Outcome::Loop, detail));
        }
        if self.sample.finish == Finish::Length {
            return Some((Outcome::Truncated, format!("cut off after {} tokens", self.sample.tokens.len())));
        }
        if let Some(call) = self.parsed.calls.iter().find(|call| !call.complete) {
            let name = if call.name.is_empty() { "a call" } else { &call.name };
            return Some((Outcome::MissingEnd, format!("the answer ends in the middle of {name}")));
        }
        self.parsed.calls.iter().zip(self.calls).find_map(|(parsed, call)| self.envelope(parsed, call))
    }

    /// Whether a complete call lacks a name or arguments.
    fn envelope(&self, parsed: &ParsedCall, call: &ScoredCall) -> Option<(Outcome, String)> {
        let about = || {
            let inside = |at: usize| (parsed.range.start..parsed.range.end.max(parsed.range.start + 1)).contains(&at);
            self.parsed.diagnostics.iter().filter(move |diagnostic| inside(diagnostic.range.start))
        };
        // A repair that is off is the better reason: it would have prevented the problem.
        let refused = about().find_map(|diagnostic| match diagnostic.kind {
            DiagnosticKind::NotRepaired { repair } if !parsed.valid => {
                Some((of_repair(repair)?, diagnostic.to_string()))
            }
            _ => None,
        });
        let broken = || {
            about().find_map(|diagnostic| match diagnostic.kind {
                DiagnosticKind::EmptyCall => Some((Outcome::WrongEnvelope, diagnostic.to_string())),
                DiagnosticKind::BrokenJson | DiagnosticKind::BrokenCall => {
                    Some((Outcome::InvalidJson, diagnostic.to_string()))
                }
                _ => None,
            })
        };
        let arguments = || {
            let Arguments::Raw(text) = &parsed.arguments else { return None };
            let json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            let what = if json { "no object" } else { "no JSON" };
            let reported = match parsed.problems.is_empty() {
                true => format!("the arguments of {} are {what}", call.name),
                false => parsed.error_text(),
            };
            Some((if json { Outcome::WrongEnvelope } else { Outcome::InvalidJson }, reported))
        };
        let nameless = || parsed.name.is_empty().then(|| (Outcome::WrongEnvelope, "a call names no tool".to_owned()));
        refused.or_else(broken).or_else(arguments).or_else(nameless)
    }

    fn repetition(&self) -> Option<String> {
        let ended_in_call = self.sample.finish == Finish::Stop
            && self
                .parsed
                .calls
                .last()
                .is_some_and(|call| call.complete && call.range.end >= self.sample.raw.trim_end().len());
        if !ended_in_call && let Some((period, copies)) = repeated_end(&self.sample.tokens) {
            let tokens = if period == 1 { "token comes".to_owned() } else { format!("{period} tokens come") };
            return Some(format!("the same {tokens} {copies} times at the end"));
        }
        if self.sample.finish == Finish::Loop {
            return Some("the answer was ended because it repeats itself".to_owned());
        }
        let expected = self.case.expected_calls().unwrap_or_default();
        let mut counts: Vec<(&ScoredCall, usize)> = Vec::new();
        for call in self.calls {
            match counts.iter_mut().find(|(other, _)| other.name == call.name && other.arguments == call.arguments) {
                Some((_, count)) => *count += 1,
                None => counts.push((call, 1)),
            }
        }
        let (call, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let wanted = expected.iter().filter(|expected| {
            expected.name == call.name
                && call.exact.as_ref().is_some_and(|given| compare::call(expected, given).is_match())
        });
        (count >= wanted.count() + MORE_CALLS)
            .then(|| format!("{} is called {count} times with the same arguments", call.name))
    }

    /// The first call of a tool that was not offered, and how its name differs.
    fn unknown_tool(&self) -> Option<(&str, &'static str)> {
        let call = self.calls.iter().find(|call| self.case.tools.get(&call.name).is_none())?;
        Some((&call.name, miss(&call.name, &self.case.tools)))
    }

    fn names<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names
    }

    fn tools_right(&self) -> bool {
        let called = Self::names(self.calls.iter().map(|call| call.name.as_str()));
        match self.case.expected_calls() {
            Some(expected) => called == Self::names(expected.iter().map(|call| call.name.as_str())),
            None => !called.is_empty() && self.unknown_tool().is_none(),
        }
    }

    fn of_tools(&self) -> Option<(Outcome, String)> {
        let expected = self.case.expected_calls()?;
        if expected.len() != self.calls.len() {
            let detail = format!("{} instead of {}", count(self.calls.len()), count(expected.len()));
            return Some((Outcome::WrongCallCount, detail));
        }
        if self.tools_right() {
            return None;
        }
        let mut left: Vec<&str> = expected.iter().map(|call| call.name.as_str()).collect();
        let mut wrong = Vec::new();
        for call in self.calls {
            match left.iter().position(|name| *name == call.name) {
                Some(place) => {
                    left.swap_remove(place);
                }
                None => wrong.push(call.name.as_str()),
            }
        }
        Some((Outcome::WrongTool, format!("{} instead of {}", wrong.join(", "), left.join(", "))))
    }

    fn of_arguments(&self) -> Option<(Outcome, String)> {
        let violations = self.calls.iter().filter_map(|call| schema::violation(&self.case.tools, call));
        // The first outcome in the table's order, over all calls.
        if let Some(violation) = violations.min_by_key(|(outcome, _)| *outcome) {
            return Some(violation);
        }
        let expected = self.case.expected_calls()?;
        let difference = compare::calls(expected, self.calls);
        match self.bfcl() {
            None => difference,
            Some(None) => None,
            // The checker decides; our own comparison adds the place, if it finds one.
            Some(Some(error)) => {
                let reported = difference.as_ref().map_or(String::new(), |(_, detail)| format!(": {detail}"));
                let outcome = match difference {
                    _ if error.starts_with("type_error") => Outcome::WrongType,
                    _ if error.ends_with("missing_optional") => Outcome::OmittedExpectedOptional,
                    Some((Outcome::OmittedExpectedOptional, _)) => Outcome::OmittedExpectedOptional,
                    _ => Outcome::WrongValue,
                };
                Some((outcome, format!("{error}{reported}")))
            }
        }
    }

    /// The verdict of BFCL's checker. The leaderboard cannot decode an answer without calls or with an unreadable one.
    fn bfcl(&self) -> Option<Option<&'static str>> {
        let gold = self.case.bfcl.as_ref()?;
        let whole = !self.calls.is_empty() && self.parsed.calls.iter().all(|call| call.complete);
        let call = |call: &ScoredCall| {
            let arguments = call.exact.clone().filter(|_| !call.name.is_empty())?;
            Some(Exact::Object(vec![(call.name.clone(), arguments)]))
        };
        let decoded = if whole { self.calls.iter().map(call).collect::<Option<_>>().map(Exact::List) } else { None };
        Some(gold.check(decoded.as_ref()).err())
    }
}

fn count(calls: usize) -> String {
    if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") }
}

/// The outcome of a deviation that was not repaired; `None` where it counts as a name or a value.
fn of_repair(repair: RepairKind) -> Option<Outcome> {
    match repair {
        RepairKind::ValueType | RepairKind::ToolName => None,
        RepairKind::KeyAlias
        | RepairKind::ExtraWrapping
        | RepairKind::ArgumentsAsString
        | RepairKind::JsonArguments
        | RepairKind::PositionalArgument
        | RepairKind::OtherForm => Some(Outcome::WrongEnvelope),
        _ => Some(Outcome::InvalidJson),
    }
}

/// How a name differs from the tools' names.
fn miss(name: &str, tools: &Tools) -> &'static str {
    let last = |name: &str| name.rsplit(['.', '/', ':', '_']).next().unwrap_or_default().to_lowercase();
    let known = || tools.iter().map(|tool| tool.name.as_str());
    let plain = |name: &str| name.to_lowercase();
    if known().any(|tool| plain(tool) == plain(name)) {
        return "case";
    }
    let separated =
        |a: &str, b: &str| a.len() > b.len() && a.ends_with(b) && a[..a.len() - b.len()].ends_with(['.', '/', ':']);
    let same_parts = |a: &str, b: &str| a.replace(['.', '/', ':'], "_") == b.replace(['.', '/', ':'], "_");
    if known().any(|tool| separated(tool, name) || separated(name, tool) || same_parts(tool, name)) {
        return "namespace";
    }
    if nearest(name, known()).is_some() || known().any(|tool| last(tool).len() > 3 && last(tool) == last(name)) {
        return "near_miss";
    }
    "invented"
}

/// The period of which the tokens end in at least [`COPIES`] copies, and the number of copies.
fn repeated_end(tokens: &[i32]) -> Option<(usize, usize)> {
    (1..=PERIOD).find_map(|period| {
        let last = tokens.get(tokens.len().checked_sub(period)?..)?;
        let copies = tokens.rchunks_exact(period).take_while(|chunk| *chunk == last).count();
        (copies >= COPIES).then_some((period, copies))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_ends() {
        assert_eq!(repeated_end(&[1, 2, 2, 2, 2]), Some((1, 4)));
        assert_eq!(repeated_end(&[1, 2, 2, 2]), None);
        assert_eq!(repeated_end(&[9, 1, 2, 1, 2, 1, 2, 1, 2]), Some((2, 4)));
        assert_eq!(repeated_end(&[]), None);
        let period: Vec<i32> = (0..16).collect();
        assert_eq!(repeated_end(&period.repeat(4)), Some((16, 4)));
        let longer: Vec<i32> = (0..17).collect();
        assert_eq!(repeated_end(&longer.repeat(4)), None);
    }

    #[test]
    fn how_names_miss() {
        let tools =
            Tools::from_json(r#"[{"name": "get_weather"}, {"name": "math.add"}, {"name": "send_mail"}]"#, "tools");
        let tools = tools.unwrap();
        for (name, how) in [
            ("Get_Weather", "case"),
            ("add", "namespace"),
            ("functions.get_weather", "namespace"),
            ("math_add", "namespace"),
            ("get_wether", "near_miss"),
            ("fetch_weather", "near_miss"),
            ("launch_rocket", "invented"),
        ] {
            assert_eq!(miss(name, &tools), how, "{name}");
        }
    }
}
