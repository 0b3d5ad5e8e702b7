//! Rewrites a template where minijinja would do something else than Jinja2, without moving a line.
//!
//! minijinja has no custom tags, and its operators cannot be replaced, so the differences are written into the
//! source before it is compiled: `{% generation %}` becomes a scope of its own, operands of `~` are turned into text
//! as Python would, slices are Python's, loops refuse `none`, and what can make a value grow is put under the budget.
//! Positions in errors are mapped back.

use super::environment::helper;
use minijinja::machinery::{Span, Token, WhitespaceConfig, tokenize};

/// Template text shorter than this is bounded well enough by the number of instructions.
const LONG_TEXT: usize = 64;

/// A rewritten template.
#[derive(Debug, Clone, Default)]
pub(super) struct Desugared {
    pub source: String,
    /// Whether `{% raw %}` keeps long text from being counted.
    pub uncounted: bool,
    /// Offset in the original and text inserted there, in order.
    edits: Vec<(usize, String)>,
}

impl Desugared {
    /// A template that is left as it is.
    pub(super) fn unchanged(source: &str) -> Desugared {
        Desugared { source: source.to_owned(), ..Desugared::default() }
    }

    /// The offset in the original that an offset in the rewritten source comes from.
    pub(super) fn original_offset(&self, offset: usize) -> usize {
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

/// Rewrites `source`; what cannot be tokenised stays as it is, for the compiler to complain about.
pub(super) fn desugar(source: &str) -> Desugared {
    let whitespace = WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    let mut tokens = Vec::new();
    for token in tokenize(source, false, Default::default(), whitespace) {
        match token {
            Ok(token) => tokens.push(token),
            Err(_) => return Desugared::unchanged(source),
        }
    }
    let mutable_lists = source.contains(".append(");
    let mut rewriter = Rewriter { source, base: source.to_owned(), edits: Vec::new(), captures: 0, mutable_lists };
    rewriter.run(&tokens);
    rewriter.finish()
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
    /// Whether the template changes lists, which only some engines allow; such a template fails in Python.
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
                        self.tag(inner)
                    } else {
                        self.expression(inner)
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
        let rest = &tokens[1..];
        match *keyword {
            "generation" if rest.is_empty() => self.replace(span, "with      "),
            "endgeneration" if rest.is_empty() => self.replace(span, "endwith      "),
            "for" => {
                self.expression(rest);
                self.iterable(rest);
            }
            "macro" | "call" | "filter" => {
                self.captures += 1;
                self.expression(rest);
            }
            "set" => {
                self.expression(rest);
                match rest.iter().position(|(token, _)| matches!(token, Token::Assign)) {
                    Some(assign) => self.stored(&rest[assign + 1..]),
                    None => self.captures += 1,
                }
            }
            "endmacro" | "endcall" | "endfilter" | "endset" => self.captures = self.captures.saturating_sub(1),
            _ => self.expression(rest),
        }
    }

    /// The replacement is as long as the keyword, so nothing moves.
    fn replace(&mut self, span: &Span, with: &str) {
        self.base.replace_range(span.start_offset as usize..span.end_offset as usize, with);
    }

    fn iterable(&mut self, tokens: &[(Token<'_>, Span)]) {
        let Some(start) = tokens.iter().position(|(token, _)| matches!(token, Token::Ident("in"))) else { return };
        let mut depth = 0usize;
        let mut end = start + 1;
        while end < tokens.len() {
            match &tokens[end].0 {
                token if opens(token) => depth += 1,
                token if closes(token) => depth = depth.saturating_sub(1),
                Token::Ident("if" | "recursive") if depth == 0 && !matches!(tokens[end - 1].0, Token::Dot) => break,
                _ => {}
            }
            end += 1;
        }
        if end > start + 1 {
            let range = (tokens[start + 1].1.start_offset as usize, tokens[end - 1].1.end_offset as usize);
            // The second pair keeps `for x in 1, 2` a list.
            self.wrap(range, &format!("{}((", helper::ITERATE), "))");
        }
    }

    /// What a variable holds may be put into the next value of that variable, and so nest without end.
    fn stored(&mut self, tokens: &[(Token<'_>, Span)]) {
        let nesting = tokens.iter().filter(|(token, _)| opens(token) || matches!(token, Token::Pipe)).count();
        if let (Some((_, first)), Some((_, last)), 1..) = (tokens.first(), tokens.last(), nesting) {
            let range = (first.start_offset as usize, last.end_offset as usize);
            self.wrap(range, &format!("{}({nesting}, (", helper::STORED), "))");
        }
    }

    /// `x[a:b]` becomes a method call, which is the only postfix there is for it.
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

    fn expression(&mut self, tokens: &[(Token<'_>, Span)]) {
        let mut levels = vec![Level::default()];
        for (index, (token, span)) in tokens.iter().enumerate() {
            let range = (span.start_offset as usize, span.end_offset as usize);
            let previous = index.checked_sub(1).map(|index| &tokens[index].0);
            let Some(level) = levels.last_mut() else { return };
            match token {
                _ if opens(token) => {
                    level.extend(range, false);
                    let subscript = matches!(token, Token::BracketOpen) && previous.is_some_and(ends_operand);
                    let list =
                        self.mutable_lists && matches!((token, previous), (Token::BracketOpen, Some(Token::Assign)));
                    levels.push(Level { open: Some(range.0), subscript, list, ..Level::default() });
                }
                _ if closes(token) => {
                    if let Some(mut inner) = levels.pop() {
                        inner.finish(self);
                        match inner.open {
                            Some(open) if !inner.colons.is_empty() => self.slice(open, &inner.colons, range.0),
                            Some(open) if inner.list => self.wrap((open, range.1), &format!("{}(", helper::LIST), ")"),
                            _ => {}
                        }
                    }
                    match levels.last_mut() {
                        Some(level) => level.extend(range, false),
                        None => return,
                    }
                }
                Token::Colon if level.subscript => {
                    level.finish(self);
                    level.colons.push(range.0);
                }
                Token::Tilde => level.concatenate(self),
                Token::Mul | Token::Div | Token::FloorDiv | Token::Mod if level.operand.is_some() => {
                    level.end_factor();
                    level.product |= matches!(token, Token::Mul);
                }
                Token::Plus | Token::Minus if level.operand.is_some() => {
                    level.end_term(self);
                    level.sum |= matches!(token, Token::Plus);
                }
                _ if separates(token, previous) => level.finish(self),
                Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Float(_) => level.extend(range, true),
                _ => level.extend(range, false),
            }
        }
        while let Some(mut level) = levels.pop() {
            level.finish(self);
        }
    }

    fn finish(mut self) -> Desugared {
        // At one offset: first what ends there, inner before outer; then what begins there, outer before inner.
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

fn opens(token: &Token<'_>) -> bool {
    matches!(token, Token::ParenOpen | Token::BracketOpen | Token::BraceOpen)
}

fn closes(token: &Token<'_>) -> bool {
    matches!(token, Token::ParenClose | Token::BracketClose | Token::BraceClose)
}

/// Whether `token` binds looser than `+`, so that an operand cannot reach over it.
fn separates(token: &Token<'_>, previous: Option<&Token<'_>>) -> bool {
    match token {
        Token::Comma
        | Token::Colon
        | Token::Assign
        | Token::Eq
        | Token::Ne
        | Token::Gt
        | Token::Gte
        | Token::Lt
        | Token::Lte => true,
        // `x is not in y` and `x.in` are names of tests and attributes.
        Token::Ident("in" | "not") => !matches!(previous, Some(Token::Ident("is" | "not") | Token::Dot | Token::Pipe)),
        Token::Ident("and" | "or" | "if" | "else" | "recursive") => !matches!(previous, Some(Token::Dot | Token::Pipe)),
        _ => false,
    }
}

/// Whether a bracket after `token` subscripts it, rather than beginning a list.
fn ends_operand(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(name) => !matches!(*name, "in" | "not" | "and" | "or" | "if" | "else" | "is"),
        Token::Str(_) | Token::String(_) => true,
        token => closes(token),
    }
}

/// A range of the source, and whether it is a single literal.
type Operand = ((usize, usize), bool);

/// The sum that is being read at one depth of brackets.
#[derive(Default)]
struct Level {
    /// Where the bracket is, and whether it subscripts something; the colons that make a slice of it.
    open: Option<usize>,
    subscript: bool,
    colons: Vec<usize>,
    /// Whether it is a list that the template may want to change.
    list: bool,
    /// The operand being read.
    operand: Option<Operand>,
    /// Finished factors of the product being read.
    factors: Vec<Operand>,
    product: bool,
    /// Finished operands of the `~` chain being read.
    chain: Vec<(usize, usize)>,
    /// Finished operands of the sum.
    terms: Vec<Operand>,
    sum: bool,
}

impl Level {
    fn extend(&mut self, (start, end): (usize, usize), literal: bool) {
        self.operand = Some(match self.operand {
            None => ((start, end), literal),
            Some(((start, _), _)) => ((start, end), false),
        });
    }

    fn end_factor(&mut self) {
        self.factors.extend(self.operand.take());
    }

    /// The product that has been read; a plain operand is one of a single factor.
    fn end_product(&mut self, rewriter: &mut Rewriter<'_>) -> Option<Operand> {
        self.end_factor();
        let (first, last) = (*self.factors.first()?, *self.factors.last()?);
        let whole = ((first.0.0, last.0.1), first.1 && self.factors.len() == 1);
        if self.product {
            // Literals too: minijinja multiplies constants when it compiles, where an overflow is a panic.
            for (range, _) in &self.factors {
                rewriter.wrap(*range, &format!("{}(", helper::FACTOR), ")");
            }
            rewriter.wrap(whole.0, &format!("{}(", helper::OPERAND), ")");
        }
        self.factors.clear();
        self.product = false;
        Some(whole)
    }

    fn concatenate(&mut self, rewriter: &mut Rewriter<'_>) {
        if let Some((range, _)) = self.end_product(rewriter) {
            self.chain.push(range);
        }
    }

    fn end_term(&mut self, rewriter: &mut Rewriter<'_>) {
        let Some((range, literal)) = self.end_product(rewriter) else { return };
        if self.chain.is_empty() {
            self.terms.push((range, literal));
            return;
        }
        self.chain.push(range);
        let whole = (self.chain[0].0, range.1);
        for range in self.chain.drain(..) {
            rewriter.wrap(range, &format!("{}(", helper::TEXT), ")");
        }
        self.terms.push((whole, false));
    }

    fn finish(&mut self, rewriter: &mut Rewriter<'_>) {
        self.end_term(rewriter);
        if self.sum {
            for (range, _) in self.terms.iter().filter(|(_, literal)| !literal) {
                rewriter.wrap(*range, &format!("{}(", helper::OPERAND), ")");
            }
        }
        self.terms.clear();
        self.chain.clear();
        self.sum = false;
    }
}
