//! Builds an answer's constraint from a format, tools and rules.

use super::call::Call;
use super::closing::Ends;
use super::compiler::{Compiler, grammar_error, own_grammar};
use super::digits::{Digits, Notation};
use super::openings::Openings;
use super::trigger::Trigger;
use super::{Calls, Constraint, Mode, Phase, Rules, Subject};
use crate::Result;
use crate::engine::vocabulary::Vocabulary;
use crate::format::{Format, Marker, Payload};
use crate::grammar::Grammar;
use crate::tool::Tools;
use std::rc::Rc;

impl Compiler {
    /// The compiler for a format's calls.
    ///
    /// # Errors
    /// Those of `Compiler::new`.
    pub fn for_format(vocabulary: Vocabulary, format: &Format) -> Result<Compiler> {
        let values = match &format.payload {
            // A closing tag with the key differs for each key; its beginning is enough.
            Payload::Tagged(tagged) => {
                let end = tagged.value_end.split("{key}").next().unwrap_or_default();
                vec![end.to_owned(), end.trim_start().to_owned()]
            }
            Payload::Named(named) => named.quote.iter().cloned().collect(),
            _ => Vec::new(),
        };
        let calls = format.section.iter().map(|section| &section.end).chain(&format.end).filter_map(Marker::text);
        let ends = Ends { values, calls: calls.map(str::to_owned).collect() };
        Compiler::new(vocabulary, &format.texts(), ends)
    }
}

impl<'c> Constraint<'c> {
    /// A constraint at the beginning of an answer that may call `tools`.
    ///
    /// # Errors
    /// [`ErrorKind::Tools`](crate::ErrorKind::Tools) if no arguments fit a tool,
    /// [`ErrorKind::Format`](crate::ErrorKind::Format) if the format cannot be written,
    /// [`ErrorKind::Constraint`](crate::ErrorKind::Constraint) if the grammar is refused.
    pub fn new(
        compiler: &'c mut Compiler,
        format: &Format,
        tools: &Tools,
        only: Option<&str>,
        rules: Rules,
    ) -> Result<Constraint<'c>> {
        let openings = Openings::new(compiler, format, tools, only, &rules)?;
        let thinking_markers: Vec<&Marker> =
            format.reasoning.iter().flat_map(|around| [&around.end, &around.start]).collect();
        let phase = if rules.thinking { Phase::Thinking(0) } else { Phase::Text(0) };
        Ok(Constraint {
            openings,
            thinking: Trigger::new(&thinking_markers, false)?,
            thinking_end: thinking_end(format),
            other: None,
            after_reasoning: None,
            compiler,
            rules,
            phase,
            called: false,
            by_threshold: false,
            primed: false,
            closer: Rc::default(),
            subject: Subject::Call,
            last: Vec::new(),
            notices: Vec::new(),
            mask_times: Vec::new(),
        })
    }

    /// A constraint of the whole answer by one grammar, starting after reasoning if the prompt has begun it.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`](crate::ErrorKind::Syntax) if the grammar is refused.
    pub(crate) fn whole(
        compiler: &'c mut Compiler,
        format: &Format,
        grammar: Grammar,
        rules: Rules,
    ) -> Result<Constraint<'c>> {
        let begun = compiler.begin(&grammar.lark).map_err(own_grammar)?;
        let subject = Subject::Answer { json: grammar.schema.is_some() };
        let digits = grammar.schema.as_ref().and_then(|_| Digits::new(&grammar.lark, Notation::Json));
        let Some(call) = Call::begin(begun, 0, compiler.tokens(), b"", digits) else {
            return Err(own_grammar(grammar_error("nothing fits it")));
        };
        let call = Box::new(call);
        let (phase, after_reasoning) = match &format.reasoning {
            Some(_) if rules.thinking => (Phase::Thinking(0), Some(call)),
            _ => (Phase::Call(call), None),
        };
        Ok(Constraint {
            primed: after_reasoning.is_none(),
            closer: Rc::default(),
            after_reasoning,
            compiler,
            rules: Rules { mode: Mode::Strict, calls: Calls::Required, max_calls: None, max_preamble: None, ..rules },
            phase,
            openings: Openings::none(grammar)?,
            thinking: Trigger::new(&format.reasoning.iter().map(|around| &around.end).collect::<Vec<_>>(), false)?,
            thinking_end: thinking_end(format),
            other: None,
            called: false,
            by_threshold: false,
            subject,
            last: Vec::new(),
            notices: Vec::new(),
            mask_times: Vec::new(),
        })
    }
}

/// The text that ends reasoning; empty if there is none.
fn thinking_end(format: &Format) -> String {
    format.reasoning.as_ref().and_then(|around| around.end.text()).unwrap_or_default().to_owned()
}
