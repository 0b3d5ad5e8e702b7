//! Reads a person's lines in a conversation: from a terminal, with editing, or from a pipe.
//!
//! No input is lost: neither pasted text, nor text typed while the model writes, nor the lines after an unreadable one.

use super::say;
use super::stdin::{read_line, without_mark};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IsTerminal};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The source of lines.
pub struct Lines {
    editor: Editor<Completion, DefaultHistory>,
    terminal: bool,
    /// Input that was read and not requested yet.
    waiting: VecDeque<String>,
    typed: TypedAhead,
    /// The number of lines read from a pipe.
    read: usize,
}

impl Lines {
    /// Standard input.
    pub fn open(typed: TypedAhead, completion: Completion) -> Result<Lines, ReadlineError> {
        let terminal = std::io::stdin().is_terminal();
        let config = Config::builder().completion_type(CompletionType::List).build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(completion));
        Ok(Lines { editor, terminal, waiting: VecDeque::new(), typed, read: 0 })
    }

    /// The next line; a backslash at its end continues it. Pasted text is one line, with line breaks in it.
    pub fn next(&mut self) -> Result<String, ReadlineError> {
        let mut text = self.line("> ")?;
        while let Some(begun) = text.strip_suffix('\\') {
            match self.line("… ") {
                Ok(more) => text = format!("{begun}\n{more}"),
                Err(ReadlineError::Eof) => return Ok(begun.to_owned()),
                Err(error) => return Err(error),
            }
        }
        Ok(text)
    }

    /// Puts text back to be read next.
    pub fn put_back(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.waiting.push_front(text.to_owned());
        }
    }

    /// Adds a line to the history.
    pub fn remember(&mut self, line: &str) {
        // An existing file is not a failure.
        let _ = self.editor.add_history_entry(line);
    }

    /// Reads the history of earlier conversations.
    pub fn load_history(&mut self, path: &Path) -> Result<(), ReadlineError> {
        self.editor.load_history(path)
    }

    /// Writes the history.
    pub fn save_history(&mut self, path: &Path) -> Result<(), ReadlineError> {
        self.editor.save_history(path)
    }

    fn line(&mut self, prompt: &str) -> Result<String, ReadlineError> {
        self.waiting.extend(self.typed.take());
        if let Some(line) = self.waiting.pop_front() {
            if self.terminal {
                say(format_args!("{prompt}{line}\n"));
            }
            return Ok(line);
        }
        if self.terminal { self.editor.readline(prompt) } else { self.piped() }
    }

    fn piped(&mut self) -> Result<String, ReadlineError> {
        let line = read_line(&mut std::io::stdin().lock())?;
        if line.is_empty() {
            return Err(ReadlineError::Eof);
        }
        self.read += 1;
        let mut line = String::from_utf8(line).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let message = format!("line {} is passed over: it is not valid UTF-8 at byte {at}", self.read);
            ReadlineError::Io(Error::new(ErrorKind::InvalidData, message))
        })?;
        line.truncate(line.trim_end_matches(['\n', '\r']).len());
        Ok(if self.read == 1 { without_mark(&line).to_owned() } else { line })
    }
}

/// Completes with the Tab key: commands, and after some of them a tool's name or a file.
pub struct Completion {
    /// The commands, without the slash.
    pub commands: &'static [&'static str],
    /// The names of the tools.
    pub tools: Vec<String>,
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, context: &Context<'_>) -> Result<(usize, Vec<Pair>), ReadlineError> {
        let Some(typed) = line[..pos].strip_prefix('/') else { return Ok((pos, Vec::new())) };
        let (start, candidates) = match typed.split_once(' ') {
            None => (1, beginning_with(typed, self.commands.iter().copied())),
            Some(("tool", name)) => (pos - name.len(), beginning_with(name, self.tools.iter().map(String::as_str))),
            Some(("save" | "save!" | "load", _)) => return FilenameCompleter::new().complete(line, pos, context),
            Some(_) => (pos, Vec::new()),
        };
        Ok((start, candidates))
    }
}

impl Helper for Completion {}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Hinter for Completion {
    type Hint = String;
}

fn beginning_with<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Vec<Pair> {
    names
        .filter(|name| name.starts_with(typed))
        .map(|name| Pair { display: name.to_owned(), replacement: format!("{name} ") })
        .collect()
}

/// Lines that were typed before they were requested.
///
/// Text typed before a question about a tool appeared does not answer it: it is kept for the conversation.
#[derive(Clone, Default)]
pub struct TypedAhead(Arc<Mutex<Vec<u8>>>);

impl TypedAhead {
    /// Reads the text that waits at the terminal.
    #[cfg(unix)]
    pub fn take_in(&self) {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let stdin = std::io::stdin();
        let mut typed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; 4096];
        loop {
            let mut waiting = [PollFd::new(std::os::fd::AsFd::as_fd(&stdin), PollFlags::POLLIN)];
            if poll(&mut waiting, PollTimeout::ZERO).unwrap_or(0) == 0 {
                return;
            }
            match nix::unistd::read(&stdin, &mut buffer) {
                Ok(read) if read > 0 => typed.extend_from_slice(&buffer[..read]),
                _ => return,
            }
        }
    }

    #[cfg(not(unix))]
    pub fn take_in(&self) {}

    fn take(&self) -> Vec<String> {
        let typed = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&typed).lines().map(str::to_owned).collect()
    }
}
