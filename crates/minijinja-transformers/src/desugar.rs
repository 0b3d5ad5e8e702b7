//! Rewrites a template where minijinja differs from Jinja2, without moving a line.
//!
//! minijinja has no custom tags, and its operators cannot be replaced, so the source is rewritten before it is
//! compiled: `{% generation %}` becomes a scope, operators become calls of functions with Python's behaviour, slices
//! and tuples are Python's, loops refuse `none`, and everything that can make a value grow uses the budget. Positions
//! in errors are mapped back.

use crate::depth::Depth;
use crate::environment::helper;
use minijinja::machinery::{Span, Token, WhitespaceConfig, tokenize};

/// Shorter template text is limited well enough by the number of instructions.
const LONG_TEXT: usize = 64;

/// A rewritten template.
#[derive(Debug, Clone, Default)]
pub(crate) struct Desugared {
    pub source: String,
    /// Whether `{% raw %}` prevents counting long text.
    pub uncounted: bool,
    /// Offset in the original and text inserted there, in order.
    edits: Vec<(usize, String)>,
}

impl Desugared {
    /// A template without changes.
    pub(crate) fn unchanged(source: &str) -> Desugared {
        Desugared { source: source.to_owned(), ..Desugared::default() }
    }

    /// The offset in the original for an offset in the rewritten source.
    pub(crate) fn original_offset(&self, offset: usize) -> usize {
        let mut inserted = 0;
        for (at, text) in &self.edits {
            if at + inserted >= offset {
                break;
            }
            if at + inserted + text.len() > offset {
                return *at;
            }
            inserted += text.len();
        }
        offset - inserted
    }
}

/// Rewrites `source`; text that cannot be tokenised is unchanged, so that the compiler reports it.
///
/// # Errors
/// Message and offset if the template nests so deeply that compiling it would overflow the stack.
pub(crate) fn desugar(source: &str) -> Result<Desugared, (String, usize)> {
    let whitespace = WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    let mut tokens = Vec::new();
    let mut depth = Depth::default();
    for token in tokenize(source, false, Default::default(), whitespace) {
        match token {
            Ok((token, span)) => {
                depth.push(&token).map_err(|message| (message, span.start_offset as usize))?;
                tokens.push((token, span));
            }
            Err(_) => return Ok(Desugared::unchanged(source)),
        }
    }
    let mutable_lists = source.contains(".append(");
    let mut rewriter = Rewriter { source, base: source.to_owned(), edits: Vec::new(), captures: 0, mutable_lists };
    rewriter.run(&tokens);
    Ok(rewriter.finish())
}

enum Side {
    Open,
    Close,
}

struct Rewriter<'a> {
    source: &'a str,
    base: String,
    edits: Vec<(usize, Side, String)>,
    captures: usize,
    /// Whether the template modifies lists, which only some engines allow; such a template fails in Python.
    mutable_lists: bool,
}

impl Rewriter<'_> {
    fn run(&mut self, tokens: &[(Token<'_>, Span)]) {
        let raw = self.has_raw();
        let mut index = 0;
        while index < tokens.len() {
            match &tokens[index].0 {
                Token::TemplateData(text) => {
                    if self.captures > 0 && !raw && text.len() >= LONG_TEXT && !text.trim().is_empty() {
                        let offset = text.as_ptr() as usize - self.source.as_ptr() as usize;
                        self.edits.push((offset, Side::Open, format!("{{{{{}({})}}}}", helper::SPEND, text.len())));
                    }
                    index += 1;
                }
                Token::BlockStart | Token::VariableStart => {
                    let block = matches!(tokens[index].0, Token::BlockStart);
                    let end = tokens[index..]
                        .iter()
                        .position(|(token, _)| matches!(token, Token::BlockEnd | Token::VariableEnd))
                        .map_or(tokens.len(), |length| index + length);
                    let inner = &tokens[index + 1..end];
                    if block {
                        self.tag(inner);
                    } else if self.expression(inner, 0) {
                        self.bare_tuple(inner);
                    }
                    index = end + 1;
                }
                _ => index += 1,
            }
        }
    }

    fn has_raw(&self) -> bool {
        self.source
            .match_indices("{%")
            .any(|(at, _)| self.source[at + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("raw"))
    }

    fn tag(&mut self, tokens: &[(Token<'_>, Span)]) {
        let Some((Token::Ident(keyword), span)) = tokens.first() else { return };
        let find = |wanted: fn(&Token<'_>) -> bool| tokens.iter().position(|(token, _)| wanted(token));
        match *keyword {
            "generation" if tokens.len() == 1 => self.replace(span, "with      "),
            "endgeneration" if tokens.len() == 1 => self.replace(span, "endwith      "),
            "for" => {
                let start = find(|token| matches!(token, Token::Ident("in"))).map_or(tokens.len(), |at| at + 1);
                self.expression(tokens, start);
                self.iterable(tokens, start);
            }
            "macro" | "call" | "filter" => {
                self.captures += 1;
                self.expression(tokens, 1);
            }
            "set" => match find(|token| matches!(token, Token::Assign)) {
                Some(assign) => {
                    if self.expression(tokens, assign + 1) {
                        self.bare_tuple(&tokens[assign + 1..]);
                    }
                    self.stored(&tokens[assign + 1..]);
                    self.member(&tokens[1..assign], &tokens[assign + 1..]);
                }
                None => {
                    self.expression(tokens, 1);
                    self.captures += 1;
                }
            },
            "endmacro" | "endcall" | "endfilter" | "endset" => self.captures = self.captures.saturating_sub(1),
            _ => {
                self.expression(tokens, 1);
            }
        }
    }

    /// The replacement is as long as the keyword, so no position changes.
    fn replace(&mut self, span: &Span, with: &str) {
        self.base.replace_range(span.start_offset as usize..span.end_offset as usize, with);
    }

    fn iterable(&mut self, tokens: &[(Token<'_>, Span)], start: usize) {
        let mut depth = 0usize;
        let mut end = start;
        while end < tokens.len() {
            match &tokens[end].0 {
                token if opens(token) => depth += 1,
                token if closes(token) => depth = depth.saturating_sub(1),
                Token::Ident("if" | "recursive") if depth == 0 && !matches!(tokens[end - 1].0, Token::Dot) => break,
                _ => {}
            }
            end += 1;
        }
        if end > start {
            let range = (tokens[start].1.start_offset as usize, tokens[end - 1].1.end_offset as usize);
            // The second pair makes `for x in 1, 2` a list.
            self.wrap(range, &format!("{}((", helper::ITERATE), "))");
        }
    }

    /// A tuple without parentheses.
    fn bare_tuple(&mut self, tokens: &[(Token<'_>, Span)]) {
        if let (Some((_, first)), Some((_, last))) = (tokens.first(), tokens.last()) {
            let range = (first.start_offset as usize, last.end_offset as usize);
            self.wrap(range, &format!("{}((", helper::TUPLE), "))");
        }
    }

    /// A variable's value may contain its previous value, and so nest without end.
    fn stored(&mut self, tokens: &[(Token<'_>, Span)]) {
        let nesting = tokens.iter().filter(|(token, _)| opens(token) || matches!(token, Token::Pipe)).count();
        if let (Some((_, first)), Some((_, last)), 1..) = (tokens.first(), tokens.last(), nesting) {
            let range = (first.start_offset as usize, last.end_offset as usize);
            self.wrap(range, &format!("{}({nesting}, (", helper::STORED), "))");
        }
    }

    /// A namespace's member that is set to what has a name.
    fn member(&mut self, target: &[(Token<'_>, Span)], tokens: &[(Token<'_>, Span)]) {
        let [(Token::Ident(namespace), _), (Token::Dot, _), _] = target else { return };
        let is_name = |token: &Token<'_>| matches!(token, Token::Ident(name) if !["true", "false", "none", "True", "False", "None", "not"].contains(name));
        if let (Some((_, first)), Some((_, last)), true) =
            (tokens.first(), tokens.last(), tokens.iter().any(|(token, _)| is_name(token)))
        {
            let range = (first.start_offset as usize, last.end_offset as usize);
            self.wrap(range, &format!("{}({namespace}, (", helper::MEMBER), "))");
        }
    }

    /// `x[a:b]` becomes a method call, the only postfix available for it.
    fn slice(&mut self, open: usize, separators: &[usize], close: usize) {
        self.base.replace_range(open..open + 1, " ");
        self.base.replace_range(close..close + 1, ")");
        self.edits.push((open, Side::Close, format!(".{}(", helper::SLICE)));
        let mut before = open;
        for &separator in separators {
            self.base.replace_range(separator..separator + 1, ",");
            self.fill(before + 1, separator);
            before = separator;
        }
        self.fill(before + 1, close);
    }

    fn fill(&mut self, start: usize, end: usize) {
        if self.source[start..end].trim().is_empty() {
            self.edits.push((start, Side::Close, "none".to_owned()));
        }
    }

    fn wrap(&mut self, (start, end): (usize, usize), before: &str, after: &str) {
        self.edits.push((start, Side::Open, before.to_owned()));
        self.edits.push((end, Side::Close, after.to_owned()));
    }

    /// Rewrites the operators, slices and tuples from token `start` on; returns whether there is a comma outside
    /// brackets.
    fn expression(&mut self, tokens: &[(Token<'_>, Span)], start: usize) -> bool {
        let mut levels = vec![Level::default()];
        for index in start..tokens.len() {
            let (token, span) = &tokens[index];
            let range = (span.start_offset as usize, span.end_offset as usize);
            let previous = index.checked_sub(1).map(|index| &tokens[index].0);
            let Some(level) = levels.last_mut() else { return false };
            level.names |= matches!(token, Token::Ident(_) | Token::Plus | Token::Mul);
            match token {
                _ if opens(token) => {
                    level.extend(range);
                    let postfix = previous.is_some_and(ends_operand) || self.is_test(tokens, index);
                    let list =
                        self.mutable_lists && matches!((token, previous), (Token::BracketOpen, Some(Token::Assign)));
                    levels.push(Level {
                        open: Some(range.0),
                        subscript: postfix && matches!(token, Token::BracketOpen),
                        group: !postfix && matches!(token, Token::ParenOpen),
                        list,
                        made: !postfix && matches!(token, Token::BracketOpen | Token::BraceOpen),
                        ..Level::default()
                    });
                }
                _ if closes(token) => {
                    let mut names = false;
                    if let Some(mut inner) = levels.pop() {
                        names = inner.names;
                        let empty = inner.operand.is_none() && !inner.comma;
                        inner.close(self, STAGES);
                        let all = inner.open.map(|open| (open, range.1));
                        match all {
                            Some(all) if !inner.colons.is_empty() => self.slice(all.0, &inner.colons, range.0),
                            Some(all) if inner.list => self.wrap(all, &format!("{}(", helper::LIST), ")"),
                            Some(all) if inner.group && (inner.comma || empty) => {
                                self.wrap(all, &format!("{}(", helper::TUPLE), ")");
                            }
                            Some(all) if inner.made && inner.names => {
                                self.wrap(all, &format!("{}(", helper::MADE), ")");
                            }
                            _ => {}
                        }
                    }
                    match levels.last_mut() {
                        Some(level) => {
                            level.extend(range);
                            level.names |= names;
                        }
                        None => return false,
                    }
                }
                Token::Colon if level.subscript => {
                    level.close(self, STAGES);
                    level.colons.push(range.0);
                }
                // A unary plus has no effect, and minijinja does not support it.
                Token::Plus if level.operand.is_none() => self.base.replace_range(range.0..range.1, " "),
                Token::Minus if level.operand.is_none() || matches!(previous, Some(Token::Minus)) => {
                    level.extend(range)
                }
                _ => match operator(token) {
                    Some((stage, text)) => level.operate(self, stage, range, text),
                    None if separates(token, previous) => {
                        level.close(self, STAGES);
                        level.comma |= matches!(token, Token::Comma);
                    }
                    None => level.extend(range),
                },
            }
        }
        let comma = levels.first().is_some_and(|level| level.comma);
        while let Some(mut level) = levels.pop() {
            level.close(self, STAGES);
        }
        comma
    }

    /// Returns whether the bracket at `index` holds the arguments of the test `in`.
    fn is_test(&self, tokens: &[(Token<'_>, Span)], index: usize) -> bool {
        let word = |back: usize| index.checked_sub(back).map(|index| &tokens[index].0);
        let is = |back: usize| matches!(word(back), Some(Token::Ident("is")));
        matches!(word(1), Some(Token::Ident("in"))) && (is(2) || is(3) && matches!(word(2), Some(Token::Ident("not"))))
    }

    /// Replaces operators by a call: `a + b - c` becomes `__sum(a, "+", b, "-", c)`.
    fn call(&mut self, stage: usize, range: (usize, usize), operators: &[((usize, usize), &'static str)]) {
        if stage == COMPARISON && matches!(operators, [(_, "==" | "!=")]) {
            return;
        }
        self.wrap(range, &format!("{}(", FUNCTIONS[stage]), ")");
        for ((start, end), text) in operators {
            self.base.replace_range(start..end, &format!("{:1$}", ",", end - start));
            if stage != CONCATENATION {
                self.edits.push((*end, Side::Close, format!("\"{text}\",")));
            }
        }
    }

    fn finish(mut self) -> Desugared {
        // At one offset, ends come first, inner before outer; then starts, outer before inner.
        let mut order: Vec<usize> = (0..self.edits.len()).collect();
        order.sort_by_key(|&index| match self.edits[index] {
            (offset, Side::Close, _) => (offset, 0, index as isize),
            (offset, Side::Open, _) => (offset, 1, -(index as isize)),
        });
        let mut source = String::with_capacity(self.base.len() + self.edits.len() * 12);
        let mut edits: Vec<(usize, String)> = Vec::with_capacity(order.len());
        let mut end = 0;
        for index in order {
            let (offset, _, text) = &mut self.edits[index];
            source.push_str(&self.base[end..*offset]);
            source.push_str(text);
            end = *offset;
            edits.push((*offset, std::mem::take(text)));
        }
        source.push_str(&self.base[end..]);
        Desugared { source, uncounted: self.has_raw(), edits }
    }
}

pub(crate) fn opens(token: &Token<'_>) -> bool {
    matches!(token, Token::ParenOpen | Token::BracketOpen | Token::BraceOpen)
}

pub(crate) fn closes(token: &Token<'_>) -> bool {
    matches!(token, Token::ParenClose | Token::BracketClose | Token::BraceClose)
}

/// The operators by precedence, tightest first, and the functions for them.
const FUNCTIONS: [&str; STAGES] = [helper::POWER, helper::PRODUCT, helper::CONCATENATE, helper::SUM, helper::COMPARE];
const STAGES: usize = 5;
const CONCATENATION: usize = 2;
const COMPARISON: usize = 4;

fn operator(token: &Token<'_>) -> Option<(usize, &'static str)> {
    Some(match token {
        Token::Pow => (0, "**"),
        Token::Mul => (1, "*"),
        Token::Div => (1, "/"),
        Token::FloorDiv => (1, "//"),
        Token::Mod => (1, "%"),
        Token::Tilde => (CONCATENATION, "~"),
        Token::Plus => (3, "+"),
        Token::Minus => (3, "-"),
        Token::Eq => (COMPARISON, "=="),
        Token::Ne => (COMPARISON, "!="),
        Token::Gt => (COMPARISON, ">"),
        Token::Gte => (COMPARISON, ">="),
        Token::Lt => (COMPARISON, "<"),
        Token::Lte => (COMPARISON, "<="),
        _ => return None,
    })
}

/// Returns whether `token` binds looser than a comparison, so that an operand ends before it.
fn separates(token: &Token<'_>, previous: Option<&Token<'_>>) -> bool {
    match token {
        Token::Comma | Token::Colon | Token::Assign => true,
        // In `x is not in y` and `x.in` they are names of tests and attributes.
        Token::Ident("in" | "not") => !matches!(previous, Some(Token::Ident("is" | "not") | Token::Dot | Token::Pipe)),
        Token::Ident("and" | "or" | "if" | "else" | "recursive") => !matches!(previous, Some(Token::Dot | Token::Pipe)),
        _ => false,
    }
}

/// Returns whether a bracket after `token` is a subscript, rather than the start of a list.
fn ends_operand(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(name) => !matches!(*name, "in" | "not" | "and" | "or" | "if" | "else" | "is"),
        Token::Str(_) | Token::String(_) => true,
        token => closes(token),
    }
}

/// Operands and the operators between them.
#[derive(Default)]
struct Chain {
    operands: Vec<(usize, usize)>,
    operators: Vec<((usize, usize), &'static str)>,
}

/// The state at one depth of brackets.
#[derive(Default)]
struct Level {
    /// Position of the bracket, and whether it is a subscript; the colons of a slice.
    open: Option<usize>,
    subscript: bool,
    colons: Vec<usize>,
    /// Whether it is a list that the template may modify.
    list: bool,
    /// Whether it is a list or a dict, and whether anything in it has a name or is computed.
    made: bool,
    names: bool,
    /// Whether it is a parenthesis that is not a call, and whether it contains a comma.
    group: bool,
    comma: bool,
    /// The current operand.
    operand: Option<(usize, usize)>,
    /// The unfinished operations, by precedence.
    chains: [Chain; STAGES],
}

impl Level {
    fn extend(&mut self, (start, end): (usize, usize)) {
        let start = self.operand.map_or(start, |(start, _)| start);
        self.operand = Some((start, end));
    }

    /// An operator; tighter operations before it end.
    fn operate(&mut self, rewriter: &mut Rewriter<'_>, stage: usize, range: (usize, usize), text: &'static str) {
        let Some(operand) = self.close(rewriter, stage) else { return };
        self.chains[stage].operands.push(operand);
        self.chains[stage].operators.push((range, text));
    }

    /// Ends the operations up to that precedence; they become an operand of the next one.
    fn close(&mut self, rewriter: &mut Rewriter<'_>, stages: usize) -> Option<(usize, usize)> {
        let mut operand = self.operand.take();
        for (stage, chain) in self.chains.iter_mut().take(stages).enumerate() {
            let Chain { operands, operators } = std::mem::take(chain);
            if let (Some((_, end)), Some((start, _))) = (operand, operands.first()) {
                let whole = (*start, end);
                rewriter.call(stage, whole, &operators);
                operand = Some(whole);
            }
        }
        operand
    }
}
