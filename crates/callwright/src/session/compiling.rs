//! The compiler of constraints, which takes about as long to make as a short prompt takes to read.

use super::{Options, constrain};
use crate::constraint::Compiler;
use crate::engine::Engine;
use crate::format::Format;
use crate::parse::Opening;
use crate::tool::Tools;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A session's compiler, if it has one yet.
#[derive(Default)]
pub(super) struct Compiling {
    pub made: Option<Compiler>,
    coming: Option<JoinHandle<Option<Compiler>>>,
}

impl Compiling {
    /// Begins to make the compiler on another thread, with the grammar of these tools. Where no thread can do that, it is made when it
    /// is needed.
    pub(super) fn start(&mut self, engine: &dyn Engine, format: &Arc<Format>, tools: &Arc<Tools>, options: &Options) {
        if self.made.is_some() || self.coming.is_some() || !constrain::is_constrained(tools, options) {
            return;
        }
        let Some(read) = engine.vocabulary() else { return };
        let (format, tools, options) = (Arc::clone(format), Arc::clone(tools), options.clone());
        let make = move || {
            Opening::prepare();
            let mut compiler = Compiler::for_format(read(), &format).ok()?;
            // The compiler keeps the grammar. What is wrong with it, the answer finds again.
            let _ = constrain::constraint(&mut compiler, &format, &tools, &options, constrain::rules(&options));
            Some(compiler)
        };
        self.coming = std::thread::Builder::new().name("compiler".to_owned()).spawn(make).ok();
    }

    /// Returns whether it is being made.
    pub(super) fn is_coming(&self) -> bool {
        self.coming.is_some()
    }

    /// Waits until it is made, if it is being made.
    pub(super) fn wait(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.made = coming.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

impl Drop for Compiling {
    /// Waits for the thread: it reads what llama.cpp frees at the end of the program.
    fn drop(&mut self) {
        if let Some(coming) = self.coming.take() {
            let _ = coming.join();
        }
    }
}
