//! Limits a template's nesting where minijinja does not.
//!
//! minijinja limits brackets and blocks. Its parser, its compiler and the drop of its syntax tree also recurse for each
//! operator, postfix and `elif`: 90 KB of chat template overflow the stack.

use crate::desugar::{closes, opens};
use minijinja::machinery::Token;

/// Maximum operators, postfixes and words around one operand. They must fit a 2 MiB stack.
const OPERATIONS: usize = 1000;

/// Maximum number of `elif` before a statement.
const BRANCHES: usize = 500;

/// The open nesting while the tokens of a template are scanned.
#[derive(Default)]
pub(crate) struct Depth {
    /// The number of `elif` of each open `if`.
    branches: Nested,
    /// The number of operations around the operand in each open bracket.
    operations: Nested,
    /// Whether the next token is a tag's name.
    tag: bool,
}

impl Depth {
    /// Takes the next token; the error is a message about nesting.
    pub(crate) fn push(&mut self, token: &Token<'_>) -> Result<(), String> {
        let tag = std::mem::take(&mut self.tag);
        match token {
            Token::BlockStart | Token::VariableStart => {
                self.tag = matches!(token, Token::BlockStart);
                self.operations = Nested::default();
                self.operations.open();
            }
            Token::Ident("if") if tag => self.branches.open(),
            Token::Ident("elif") if tag => self.branches.add(),
            Token::Ident("endif") if tag => self.branches.close(),
            token if opens(token) => {
                self.operations.add();
                self.operations.open();
            }
            token if closes(token) => self.operations.close(),
            // The next one of several elements.
            Token::Comma | Token::Colon | Token::Assign => {
                self.operations.close();
                self.operations.open();
            }
            Token::Ident("and" | "or" | "not" | "if" | "is" | "in") => self.operations.add(),
            Token::Ident(_) | Token::Str(_) | Token::String(_) => {}
            Token::Int(_) | Token::Int128(_) | Token::Float(_) | Token::TemplateData(_) => {}
            Token::BlockEnd | Token::VariableEnd => {}
            // Dots, pipes and all operators.
            _ => self.operations.add(),
        }
        if self.operations.total > OPERATIONS {
            return Err(format!("the expression nests more than {OPERATIONS} operations"));
        }
        if self.branches.total > BRANCHES {
            return Err(format!("there are more than {BRANCHES} nested elif"));
        }
        Ok(())
    }
}

/// Counts per level, and their sum.
#[derive(Default)]
struct Nested {
    levels: Vec<usize>,
    total: usize,
}

impl Nested {
    fn open(&mut self) {
        self.levels.push(0);
    }

    fn add(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            *level += 1;
            self.total += 1;
        }
    }

    fn close(&mut self) {
        self.total -= self.levels.pop().unwrap_or_default();
    }
}
