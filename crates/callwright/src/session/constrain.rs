//! The constraint of one turn, from the session's options.

use super::compiling::Compiling;
use super::decide::reads_others;
use super::prompt::AnswerRequest;
use super::{Options, ToolChoice};
use crate::constraint::{Calls, Compiler, Constraint, Mode, Notice, Rules};
use crate::engine::{Engine, Token};
use crate::format::{Format, Marker};
use crate::generate::Generation;
use crate::grammar::{Grammar, Unenforced, budget, json_grammar};
use crate::setting::Setting;
use crate::tool::{Tools, misfits as misfits_of};
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The constraint of an answer that begins with a text and may begin in reasoning, and its notices; none if nothing is
/// constrained. Where the compiler is being made, this waits for it.
pub(super) fn begin<'c>(
    compiling: &'c mut Compiling,
    engine: &dyn Engine,
    format: &Format,
    request: &AnswerRequest,
    (begun, thinking): (&[u8], bool),
) -> Result<(Option<Constraint<'c>>, Vec<String>)> {
    let AnswerRequest { messages, tools, options, .. } = request;
    if !is_constrained(tools, options) {
        return Ok((None, Vec::new()));
    }
    compiling.wait();
    if compiling.made.is_none() {
        let Some(read) = engine.vocabulary() else { return Ok((None, Vec::new())) };
        match Compiler::for_format(read(), format) {
            Ok(made) => compiling.made = Some(made),
            Err(error) => return without(options, error),
        }
    }
    let Some(compiler) = &mut compiling.made else { return Ok((None, Vec::new())) };
    let rules = Rules { sampled_elsewhere: engine.server().is_some(), thinking, ..rules(options) };
    match constraint(compiler, format, tools, options, rules) {
        Ok(mut constraint) => {
            if is_dormant(options) {
                constraint = constraint.dormant();
            }
            // A user who wants other forms as text gets them so.
            if engine.can().go_back && options.grammar.is_none() && reads_others(options) {
                constraint = constraint.rewriting(tools, messages);
            }
            constraint.prime(begun)?;
            Ok((Some(constraint), Vec::new()))
        }
        // That no arguments fit a tool is its author's mistake, whatever the mode.
        Err(error) if error.kind() == ErrorKind::Tools || options.grammar.is_some() => Err(error),
        Err(error) => without(options, error),
    }
}

/// The constraint of an answer by these rules.
///
/// # Errors
/// Those of [`Constraint::new`] and [`Constraint::whole`].
pub(super) fn constraint<'c>(
    compiler: &'c mut Compiler,
    format: &Format,
    tools: &Tools,
    options: &Options,
    rules: Rules,
) -> Result<Constraint<'c>> {
    let only = match &options.tool_choice {
        ToolChoice::Tool(name) => Some(name.as_str()),
        _ => None,
    };
    budget::cancelled_by(&options.cancel, move || match &options.grammar {
        Some(grammar) => Constraint::whole(compiler, format, grammar.clone(), rules),
        None => Constraint::new(compiler, format, tools, only, rules),
    })
}

/// The rules that the options make.
pub(super) fn rules(options: &Options) -> Rules {
    Rules {
        mode: options.constrain,
        calls: match options.tool_choice {
            _ if is_dormant(options) => Calls::Forbidden,
            ToolChoice::None => Calls::Forbidden,
            ToolChoice::Auto => Calls::Allowed,
            ToolChoice::Required | ToolChoice::Tool(_) => Calls::Required,
        },
        max_calls: options.max_calls,
        max_preamble: options.max_preamble,
        max_thinking: options.max_thinking,
        jump: options.jump,
        draft: options.draft,
        ..Rules::default()
    }
}

/// Returns whether an answer has a constraint.
pub(super) fn is_constrained(tools: &Tools, options: &Options) -> bool {
    let nothing = tools.is_empty() && options.grammar.is_none();
    !nothing && (options.constrain != Mode::Off || is_dormant(options))
}

/// Returns whether the constraint waits until a threshold decides: without a grammar for calls, an answer can still be
/// required to have none.
fn is_dormant(options: &Options) -> bool {
    options.constrain == Mode::Off
        && options.no_call_below.is_some()
        && options.tool_choice == ToolChoice::Auto
        && options.grammar.is_none()
}

/// What is known of the form of an answer that is to have a [`ResponseFormat`](crate::message::ResponseFormat).
#[derive(Default)]
pub(super) struct Form {
    /// Why it is not enforced.
    pub unenforced: Option<String>,
    /// The grammar of JSON alone, where the answer may be calls in place of it.
    pub json: Option<Grammar>,
}

impl Form {
    fn unenforced(why: &str) -> Form {
        let why = format!("response_format is not enforced: {why}. The answer is checked once it is written");
        Form { unenforced: Some(why), json: None }
    }
}

/// Makes the grammar of an answer that is to have a [`ResponseFormat`](crate::message::ResponseFormat), and says why where none
/// can be enforced. An answer that has to be a call has no other form.
///
/// # Errors
/// Those of [`json_grammar`]; where the format is strict, also that calls and JSON together have no grammar.
pub(super) fn respond_in_format(format: &Format, tools: &Tools, options: &mut Options) -> Result<Form> {
    let forced = matches!(options.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
    if options.grammar.is_some() || forced {
        options.response_format = None;
    }
    let Some(wanted) = &options.response_format else { return Ok(Form::default()) };
    let json = budget::cancelled_by(&options.cancel, || json_grammar(&wanted.schema, false))?;
    if options.constrain == Mode::Off {
        return Ok(Form::unenforced(&format!("{} is off", Setting::Constrain)));
    }
    if tools.is_empty() || options.tool_choice == ToolChoice::None {
        options.grammar = Some(json);
        return Ok(Form::default());
    }
    let all: Vec<_> = tools.iter().collect();
    let both = || format.calls_or_json(&all, options.max_calls, &wanted.schema);
    match budget::cancelled_by(&options.cancel, both) {
        Ok(grammar) => {
            options.grammar = Some(grammar);
            Ok(Form { json: Some(json), unenforced: None })
        }
        Err(error) if wanted.strict || error.kind() == ErrorKind::Tools => Err(error),
        Err(error) => Ok(Form::unenforced(&format!("calls and JSON have no grammar together, {}", error.message()))),
    }
}

/// Returns what of the options an engine cannot do, if there is anything.
pub(super) fn unavailable(engine: &dyn Engine, options: &Options) -> Option<String> {
    match engine.server() {
        Some(server) => needs_logits(!server.can_begin_answer(), options),
        None => unknown_tokens(engine, options),
    }
}

/// Options that need a model's logits, where the model is on a server, which may write the prompt itself (`chat`).
fn needs_logits(chat: bool, options: &Options) -> Option<String> {
    let needed = [
        (Setting::CallThreshold, options.call_threshold.is_some()),
        (Setting::NoCallBelow, options.no_call_below.is_some()),
        (Setting::Logprobs, options.logprobs.is_some()),
        (Setting::LogitBias, !options.logit_bias.is_empty()),
        (Setting::Grammar, chat && options.grammar.as_ref().is_some_and(|grammar| grammar.schema.is_none())),
    ];
    let mut needed: Vec<String> =
        needed.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_string()).collect();
    needed.extend((chat && options.constrain == Mode::Strict).then(|| format!("{} strict", Setting::Constrain)));
    (!needed.is_empty())
        .then(|| format!("a server does not send what is needed for {}: the answer is as without", needed.join(", ")))
}

/// That a bias was given for tokens that the model does not have.
fn unknown_tokens(engine: &dyn Engine, options: &Options) -> Option<String> {
    if options.logit_bias.is_empty() {
        return None;
    }
    let words = engine.vocabulary()?().words.len();
    let known = |token: &Token| usize::try_from(token.0).is_ok_and(|index| index < words);
    let unknown = options.logit_bias.iter().filter(|(token, _)| !known(token)).map(|(token, _)| token.0.to_string());
    let unknown: Vec<String> = unknown.collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "logit_bias: the model has no token {}; its ids are 0 to {}",
            unknown.join(", "),
            words.saturating_sub(1)
        )
    })
}

/// Returns what cannot be constrained is an error in strict mode, and reported otherwise.
fn without<'c>(options: &Options, error: Error) -> Result<(Option<Constraint<'c>>, Vec<String>)> {
    if options.constrain == Mode::Strict {
        return Err(error);
    }
    Ok((None, vec![Notice::Failed(error.message().to_owned()).to_string()]))
}

/// The notices of a constraint once the answer is written, and what the tokens that ran out did to it. What the
/// constraint does not enforce is reported once in a session.
pub(super) fn end(
    constraint: Option<&Constraint<'_>>,
    known: &mut Vec<Unenforced>,
    context_is_limit: bool,
) -> (Vec<String>, Shortage) {
    let Some(constraint) = constraint else { return Default::default() };
    // The constraint knows how many tokens are left, and not why there are no more.
    let option = if context_is_limit { Setting::Context } else { Setting::MaxTokens };
    let reported = constraint.notices().iter();
    let reported = reported.map(|notice| notice.to_string().replace(Setting::MaxTokens.name(), option.name()));
    let mut reported: Vec<String> = reported.collect();
    for unenforced in constraint.unenforced() {
        if !known.contains(unenforced) {
            reported.push(unenforced.to_string());
            known.push(unenforced.clone());
        }
    }
    let notices = constraint.notices();
    let shortage = Shortage {
        no_room: notices.iter().any(|notice| matches!(notice, Notice::NoRoomForCall(_))),
        cut_off: notices.iter().any(|notice| matches!(notice, Notice::CutOff(_) | Notice::NumberCutOff)),
    };
    (reported, shortage)
}

/// What tokens that ran out did to an answer.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Shortage {
    /// A call was not begun.
    pub no_room: bool,
    /// A call or an answer was cut off.
    pub cut_off: bool,
}

impl Shortage {
    /// Returns whether a notice reports it.
    pub(crate) fn is_reported(&self) -> bool {
        self.no_room || self.cut_off
    }
}

/// Returns what is wrong with an answer that has to fit a grammar or a schema, and is no call: that it was cut off, or
/// what of its schema it does not fit, which the grammar may not enforce.
pub(super) fn misfits(options: &Options, answer: &[u8], shortage: &Shortage) -> Vec<String> {
    let schema = match (&options.grammar, &options.response_format) {
        (None, None) => return Vec::new(),
        (Some(grammar), _) => grammar.schema.as_ref(),
        (None, Some(wanted)) => Some(&wanted.schema),
    };
    if shortage.cut_off {
        return vec!["the answer is not whole".to_owned()];
    }
    let Some(schema) = schema else { return Vec::new() };
    match serde_json::from_slice(answer) {
        Ok(value) => {
            let wrong = misfits_of(schema, &value).unwrap_or_else(|error| vec![error.message().to_owned()]);
            wrong.into_iter().map(|wrong| format!("the answer does not fit the schema: {wrong}")).collect()
        }
        Err(error) => vec![format!("the answer is no JSON: {error}")],
    }
}

/// The format's end marker, where the token that ended the turn is what ends a call, too, as in some formats.
pub(super) fn end_marker<'f>(engine: &dyn Engine, format: &'f Format, generation: &mut Generation) -> Option<&'f str> {
    let token = generation.end_token?;
    let marker = format.end.as_ref().and_then(Marker::text)?;
    if engine.token_bytes(token) != marker.trim().as_bytes() {
        return None;
    }
    generation.tokens.push(token);
    Some(marker)
}
