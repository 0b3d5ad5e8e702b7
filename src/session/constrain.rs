//! The constraint of one turn, from the session's options.

use super::{Options, ToolChoice};
use crate::engine::Engine;
use crate::engine::constraint::{Calls, Compiler, Constraint, Mode, Notice, Rules};
use crate::format::Format;
use crate::tool::Tools;
use crate::{Error, ErrorKind, Result};

/// The constraint of a turn that begins with a text and may begin in reasoning, and what to tell of it; none where
/// nothing is constrained.
pub(super) fn begin<'c>(
    compiler: &'c mut Option<Compiler>,
    engine: &dyn Engine,
    format: &Format,
    tools: &Tools,
    options: &Options,
    (begun, thinking): (&[u8], bool),
) -> Result<(Option<Constraint<'c>>, Vec<String>)> {
    let nothing = tools.is_empty() && options.grammar.is_none();
    if options.constrain == Mode::Off || nothing {
        return Ok((None, Vec::new()));
    }
    if compiler.is_none() {
        let Some(vocabulary) = engine.vocabulary() else { return Ok((None, Vec::new())) };
        match Compiler::for_format(vocabulary, format) {
            Ok(made) => *compiler = Some(made),
            Err(error) => return without(options, error),
        }
    }
    let Some(compiler) = compiler else { return Ok((None, Vec::new())) };
    let rules = Rules {
        mode: options.constrain,
        calls: match options.tool_choice {
            ToolChoice::None => Calls::Forbidden,
            ToolChoice::Auto => Calls::Allowed,
            ToolChoice::Required | ToolChoice::Tool(_) => Calls::Required,
        },
        max_calls: options.max_calls,
        max_preamble: options.max_preamble,
        max_thinking: options.max_thinking,
        jump: options.jump,
        thinking,
    };
    let only = match &options.tool_choice {
        ToolChoice::Tool(name) => Some(name.as_str()),
        _ => None,
    };
    let made = match &options.grammar {
        Some(grammar) => Constraint::whole(compiler, grammar.clone(), options.jump),
        None => Constraint::new(compiler, format, tools, only, rules),
    };
    match made {
        Ok(constraint) => {
            let mut constraint = constraint.drafting(options.draft);
            constraint.prime(begun)?;
            Ok((Some(constraint), Vec::new()))
        }
        // That no arguments fit a tool is its author's mistake, whatever the mode.
        Err(error) if error.kind() == ErrorKind::Tools || options.grammar.is_some() => Err(error),
        Err(error) => without(options, error),
    }
}

/// What cannot be constrained is an error in strict mode, and told otherwise.
fn without<'c>(options: &Options, error: Error) -> Result<(Option<Constraint<'c>>, Vec<String>)> {
    if options.constrain == Mode::Strict {
        return Err(error);
    }
    Ok((None, vec![Notice::Failed(error.message().to_owned()).to_string()]))
}
