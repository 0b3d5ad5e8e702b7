//! What a grammar may cost, in one place.
//!
//! Schemas and grammars come from requests, from servers of tools and from files, and are untrusted. The grammar engine
//! recurses for each level, intersects patterns without an end, and cannot be interrupted. So a schema is measured
//! before anything is compiled, and what is too large in it is left unenforced, in this order:
//!
//! 1. a single keyword: a count, a list of values, a pattern, `properties`;
//! 2. the keyword with most alternatives or patterns, where several schemas apply to one value;
//! 3. whatever lies too deep;
//! 4. the largest members and definitions, until the whole is small enough;
//! 5. all arguments of a tool, if its grammar still takes too much text or time.
//!
//! What is left unenforced is noted with its place and the reason, and checked after generation. Where that is not
//! enough (`strict`, a schema of the whole answer), [`beyond`] makes an error of it.

use super::{Ended, Unenforced};
use crate::error::{Error, ErrorKind, Result};
use crate::setting::Setting;
use llguidance::api::ParserLimits;
use std::time::Duration;

/// Limits of a schema, of the grammar made from it, and of compiling that grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Levels of schemas inside each other, not counting those that references lead to.
    pub depth: usize,
    /// Schemas in a schema: members, items, alternatives and definitions. The engine takes about 0.1 ms for each.
    pub schemas: usize,
    /// Members of one object.
    pub properties: usize,
    /// Values in one `enum`.
    pub values: usize,
    /// Bytes of one `enum`, `const` or name of a member, as JSON.
    pub value_bytes: usize,
    /// The least length of a text. Any known completion of a call has to be this long.
    pub least_length: u64,
    /// The least number of items or members.
    pub least_items: u64,
    /// Members of an object whose number is limited: the engine writes each choice of them.
    pub counted_properties: usize,
    /// Bytes of one pattern.
    pub pattern_bytes: usize,
    /// The product of the lengths of all patterns that apply to one text: the states of their intersection.
    pub pattern_product: u64,
    /// Patterns in a whole schema.
    pub patterns: usize,
    /// Patterns of names in one object; the engine intersects each two of them.
    pub name_patterns: usize,
    /// Schemas that result from combining those that apply to one value.
    pub combined: u64,
    /// Conditions (`if`, `not`, `dependentSchemas`) in a whole schema; none is enforced, and each is noted.
    pub conditions: usize,
    /// Bytes of a grammar's text.
    pub text: usize,
    /// Rules of a user's grammar, and brackets inside each other: the engine recurses over both.
    pub rules: usize,
    /// The time for one grammar.
    pub time: Duration,
    /// The stack of the thread that compiles. It is reserved, and only what is used takes memory.
    pub stack: usize,
    /// Threads that could not be interrupted and still run. With more than these, nothing large is compiled.
    pub abandoned: usize,
    /// Symbols of a compiled grammar: about 300 bytes each.
    pub symbols: usize,
    /// The engine's work on the patterns of a grammar before it is used: about 20 ns and 100 bytes for each unit.
    pub lexer_fuel: u64,
    /// Positions in a grammar at which one byte may be: a member that may come next is at three of them.
    pub positions: usize,
}

/// The limits that hold everywhere.
pub const LIMITS: Limits = Limits {
    depth: 64,
    schemas: 10_000,
    properties: 2_000,
    values: 10_000,
    value_bytes: 256 << 10,
    least_length: 20_000,
    least_items: 2_000,
    counted_properties: 64,
    pattern_bytes: 4_096,
    pattern_product: 200_000,
    patterns: 500,
    name_patterns: 16,
    combined: 20_000,
    conditions: 100,
    text: 4 << 20,
    rules: 20_000,
    time: Duration::from_secs(2),
    stack: 256 << 20,
    abandoned: 2,
    symbols: 300_000,
    lexer_fuel: 1_000_000,
    positions: 20_000,
};

impl Limits {
    /// These limits, for the grammar engine.
    pub fn engine(&self) -> ParserLimits {
        ParserLimits {
            verbose_errors: false,
            max_grammar_size: self.symbols,
            initial_lexer_fuel: self.lexer_fuel,
            max_items_in_row: self.positions,
            ..ParserLimits::default()
        }
    }
}

/// Makes an error of the first part that is left unenforced because it is too large.
///
/// # Errors
/// [`ErrorKind::Constraint`], with the place.
pub fn beyond(unenforced: &[Unenforced]) -> Result<()> {
    let Some(first) = unenforced.iter().find(|one| one.limit.is_some()) else { return Ok(()) };
    let whose = first.tool.as_ref().map_or(String::new(), |tool| format!("tool {tool:?}: "));
    let why = first.limit.as_deref().unwrap_or_default();
    Err(Error::new(
        ErrorKind::Constraint,
        format!("{whose}the schema is too large to be enforced: {:?} at {}: {why}", first.keyword, first.path),
    )
    .hint("make it smaller, or do without strict: then the rest is enforced, and this is checked afterwards"))
}

/// The error that a grammar is not made, because of a limit.
pub(super) fn refused(why: &str) -> Error {
    Error::new(ErrorKind::Constraint, format!("there is no grammar for this: {why}"))
        .hint(format!("use smaller schemas or fewer tools, or {} to generate without a grammar", Setting::ConstrainOff))
}

/// The same because compiling ended before it was done.
pub(super) fn ended(why: Ended) -> Error {
    refused(&why.to_string())
}
