//! Standard input: the question, a document for it, or the text for a command that reads one.

use super::{DONE, USAGE, notice, say, screen};
use anyhow::Result;
use callwright::{Error, text_file};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long a pipe may be silent before that is reported.
const PATIENCE: Duration = Duration::from_secs(5);

/// The question: typed at the terminal, or all of a pipe or file.
pub fn ask() -> Result<String> {
    if std::io::stdin().is_terminal() {
        say(format_args!("> "));
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map_err(stdin_error)?;
        return Ok(line.trim().to_owned());
    }
    let piped = Piped::read();
    if !piped.begins() {
        notice("the question is read from standard input, from which nothing has come yet");
    }
    piped.text()
}

/// The piped text where the question was given elsewhere; empty where there is none.
///
/// Programs often start others with a pipe that they neither write to nor close. So without a terminal, where nobody
/// can see the wait, it waits for the first byte only a limited time.
pub fn beside() -> Result<String> {
    if std::io::stdin().is_terminal() {
        return Ok(String::new());
    }
    let piped = Piped::read();
    if !piped.begins() {
        if !std::io::stderr().is_terminal() {
            notice(&format!(
                "nothing came from standard input within {} s: the question is asked without it",
                PATIENCE.as_secs()
            ));
            return Ok(String::new());
        }
        notice("waiting for standard input, from which nothing has come yet (`< /dev/null` asks without it)");
    }
    piped.text()
}

/// Standard input, read by a thread: on some systems nothing else allows to stop waiting.
struct Piped(mpsc::Receiver<Option<std::io::Result<String>>>);

impl Piped {
    fn read() -> Piped {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stdin = std::io::stdin().lock();
            // A failure here is repeated below. A closed channel means that nobody waits, which is not a failure.
            let _ = stdin.fill_buf();
            let _ = sender.send(None);
            let _ = sender.send(Some(read_text(stdin)));
        });
        Piped(receiver)
    }

    /// Returns whether the first byte or the end arrives in time.
    fn begins(&self) -> bool {
        self.0.recv_timeout(PATIENCE).is_ok()
    }

    fn text(self) -> Result<String> {
        let text = self.0.iter().find_map(|step| step).unwrap_or_else(|| Ok(String::new()));
        Ok(without_mark(&text.map_err(stdin_error)?).trim_end().to_owned())
    }
}

/// All of standard input.
pub fn read_stdin(what: &str) -> Result<String, Error> {
    tell_of_stdin(what);
    let text = read_text(std::io::stdin()).map_err(stdin_error)?;
    Ok(without_mark(&text).to_owned())
}

fn read_text(input: impl Read) -> std::io::Result<String> {
    text_file::read_all(input).and_then(utf8)
}

fn utf8(bytes: Vec<u8>) -> std::io::Result<String> {
    String::from_utf8(bytes).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error()))
}

/// A line with its end, and none at the end of the input. An input without an end may have no end of a line either.
pub fn read_line(input: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.take(text_file::MOST + 1).read_until(b'\n', &mut line)?;
    if line.len() as u64 > text_file::MOST {
        return Err(text_file::too_large("a line has"));
    }
    Ok(line)
}

/// A text without the byte order mark with which some Windows programs begin a file.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Tells a person that the program waits for input.
fn tell_of_stdin(what: &str) {
    if std::io::stdin().is_terminal() {
        notice(&format!("{what} is read from standard input; Ctrl-D ends it"));
    }
}

fn stdin_error(error: std::io::Error) -> Error {
    Error::io("read", "standard input", &error)
}

/// A text read in pieces: a file, or standard input.
pub struct Source {
    reader: Box<dyn BufRead>,
    path: Option<PathBuf>,
    begun: bool,
    /// How many bytes were read in pieces.
    count: u64,
}

impl Source {
    /// Opens the file, or standard input where there is none or it is `-`; `what` describes the text.
    pub fn open(path: Option<&Path>, what: &str) -> Result<Source, Error> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            tell_of_stdin(what);
            return Ok(Source::stdin());
        };
        let file = File::open(path).map_err(|error| Error::io("read", path, &error))?;
        Ok(Source { reader: Box::new(BufReader::new(file)), path: Some(path.to_owned()), begun: false, count: 0 })
    }

    /// Standard input.
    pub fn stdin() -> Source {
        Source { reader: Box::new(std::io::stdin().lock()), path: None, begun: false, count: 0 }
    }

    /// Reads some bytes, and none at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let read = self.reader.read(buffer).map_err(|error| self.failed(error))?;
        self.count += read as u64;
        if self.count > text_file::MOST {
            return Err(self.failed(text_file::too_large("it has")));
        }
        Ok(read)
    }

    /// The next line, and none at the end.
    fn line(&mut self) -> Result<Option<String>, Error> {
        let mut line = read_line(&mut self.reader).and_then(utf8).map_err(|error| self.failed(error))?;
        let count = line.len();
        if !std::mem::replace(&mut self.begun, true) {
            line = without_mark(&line).to_owned();
        }
        line.truncate(line.trim_end_matches(['\n', '\r']).len());
        Ok((count > 0).then_some(line))
    }

    fn failed(&self, error: std::io::Error) -> Error {
        match &self.path {
            Some(path) => Error::io("read", path, &error),
            None => stdin_error(error),
        }
    }
}

/// Answers each line with a line of JSON, or with `{"error"}`.
pub fn batch<Case: DeserializeOwned>(mut lines: Source, mut answer: impl FnMut(Case) -> Result<Value>) -> Result<u8> {
    let mut out = screen::data();
    let mut status = DONE;
    let mut number = 0;
    while let Some(line) = lines.line()? {
        number += 1;
        if line.trim().is_empty() {
            continue;
        }
        let answer = serde_json::from_str(&line).map_err(Into::into).and_then(&mut answer).unwrap_or_else(|error| {
            status = USAGE;
            json!({"error": format!("line {number}: {error:#}")})
        });
        writeln!(out, "{answer}")?;
    }
    Ok(status)
}
