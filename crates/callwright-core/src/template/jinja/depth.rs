//! How deep a template nests, where minijinja does not look.
//!
//! minijinja bounds brackets and blocks. Its parser, its compiler and what drops the syntax tree also call themselves once
//! for each operator, postfix and `elif`, which 90 KB of chat template are enough for to break the stack.

use super::desugar::{closes, opens};
use minijinja::machinery::Token;

/// How many operators, postfixes and words may be around one operand. A thread of 2 MiB stack has to bear them.
const OPERATIONS: usize = 1000;

/// How many `elif` may be above a statement.
const BRANCHES: usize = 500;

/// What is open while the tokens of a template go by.
#[derive(Default)]
pub(in crate::template) struct Depth {
    /// The `elif` of each `if`.
    branches: Nested,
    /// What is around the operand in each bracket.
    operations: Nested,
    /// Whether the next token is a tag's name.
    tag: bool,
}

impl Depth {
    /// The next token; an error's message where it nests too deeply.
    pub(in crate::template) fn push(&mut self, token: &Token<'_>) -> Result<(), String> {
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
            // The next one of several things side by side.
            Token::Comma | Token::Colon | Token::Assign => {
                self.operations.close();
                self.operations.open();
            }
            Token::Ident("and" | "or" | "not" | "if" | "is" | "in") => self.operations.add(),
            Token::Ident(_) | Token::Str(_) | Token::String(_) => {}
            Token::Int(_) | Token::Int128(_) | Token::Float(_) | Token::TemplateData(_) => {}
            Token::BlockEnd | Token::VariableEnd => {}
            // Dots, pipes and all the operators.
            _ => self.operations.add(),
        }
        if self.operations.total > OPERATIONS {
            return Err(format!("the expression nests more than {OPERATIONS} operations"));
        }
        if self.branches.total > BRANCHES {
            return Err(format!("there are more than {BRANCHES} elif in one another"));
        }
        Ok(())
    }
}

/// Counts on several levels, and their sum.
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
