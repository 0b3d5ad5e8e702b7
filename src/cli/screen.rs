//! What people read: standard output and standard error, with control characters shown as text.
//!
//! Much of what is written comes from elsewhere: from models and their files, from servers and tools, from the hub, from requests. A
//! terminal obeys control characters wherever they are from. So they are shown here, in the one place that everything passes
//! through. Only the program's own colours are let through: those that come by themselves.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// Returns what can change how a terminal shows what comes after it, beside line breaks and tabs: control characters,
/// and what turns the direction of text.
pub fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && !matches!(c, '\n' | '\t')
}

/// The text with such characters as JSON writes them: `\u001b`.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The same, on one line.
pub fn one_line(text: &str) -> String {
    shown(&text.replace('\n', "\\n"))
}

/// Standard output for tables and sentences.
pub fn stdout() -> Screen<io::Stdout> {
    let out = io::stdout();
    Screen { colour: colour(&out), plain: true, out }
}

/// Standard output for what other programs read as it is: only on a terminal anything is shown in place of itself.
pub fn data() -> Screen<io::Stdout> {
    let out = io::stdout();
    Screen { colour: colour(&out), plain: out.is_terminal(), out }
}

/// Standard error.
pub fn stderr() -> Screen<io::Stderr> {
    let out = io::stderr();
    Screen { colour: colour(&out), plain: true, out }
}

/// Returns whether a stream shows colours.
pub fn colour(stream: &impl anstream::stream::RawStream) -> bool {
    anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never
}

/// A stream for people.
pub struct Screen<W> {
    out: W,
    colour: bool,
    /// Whether control characters are shown.
    plain: bool,
}

impl<W: Write> Screen<W> {
    /// Writes what clap has to say.
    pub fn styled(&mut self, text: &clap::builder::StyledStr) -> io::Result<()> {
        match self.colour {
            // clap leaves out the escapes of what it quotes.
            true => self.out.write_all(with_colours(&text.ansi().to_string()).as_bytes()),
            false => write!(self, "{text}"),
        }
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What is formatted comes in whole texts.
        let text = if self.plain { String::from_utf8_lossy(bytes) } else { "".into() };
        if !text.chars().any(is_control) {
            self.out.write_all(bytes)?;
        } else if !is_own(&text) {
            self.out.write_all(shown(&text).as_bytes())?;
        } else if self.colour {
            self.out.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Shows control characters, but leaves the escapes that set a colour.
fn with_colours(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        whole.push_str(&shown(&rest[..at]));
        let length = colour_length(&rest[at..]);
        match length {
            0 => whole.push_str(&shown("\u{1b}")),
            _ => whole.push_str(&rest[at..at + length]),
        }
        rest = &rest[at + length.max(1)..];
    }
    whole + &shown(rest)
}

/// Returns whether a text is nothing but escapes of the program's own styles, which come by themselves: bold, dim, the
/// colours of its words, and their end. None of them hides what comes after it.
fn is_own(mut text: &str) -> bool {
    const OWN: [&str; 9] = ["0", "1", "2", "31", "32", "33", "34", "35", "36"];
    while !text.is_empty() {
        let length = colour_length(text);
        let Some(codes) = text.get(2..length.saturating_sub(1)) else { return false };
        if !codes.split(';').all(|code| OWN.contains(&code)) {
            return false;
        }
        text = &text[length..];
    }
    true
}

/// The bytes of the escape that a text begins with, if it sets a colour: `ESC [ 1 ; 31 m`.
fn colour_length(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if rest.as_bytes().get(digits) == Some(&b'm') { 2 + digits + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, colour: bool, plain: bool) -> String {
        let mut screen = Screen { out: Vec::new(), colour, plain };
        screen.write_all(text.as_bytes()).unwrap();
        String::from_utf8(screen.out).unwrap()
    }

    #[test]
    fn control_characters_are_shown_as_text() {
        let hostile = "a\u{1b}[2J\u{1b}]0;t\u{7}\r\u{9b}5n\u{7f}\u{202e}b\tc\n";
        let shown = "a\\u001b[2J\\u001b]0;t\\u0007\\u000d\\u009b5n\\u007f\\u202eb\tc\n";
        assert_eq!(written(hostile, true, true), shown);
        assert_eq!(written(hostile, false, true), shown);
        assert_eq!(written(hostile, false, false), hostile);
        assert_eq!(one_line("a\nb\u{1b}"), "a\\nb\\u001b");
    }

    #[test]
    fn own_colours_are_written_where_there_are_any() {
        assert_eq!(written("\u{1b}[1;31m", true, true), "\u{1b}[1;31m");
        assert_eq!(written("\u{1b}[1m\u{1b}[31m", false, true), "");
        // A text that has them, from somewhere else.
        for colour in [true, false] {
            assert_eq!(written("red: \u{1b}[31m", colour, true), "red: \\u001b[31m");
            assert_eq!(written("\u{1b}[8m", colour, true), "\\u001b[8m");
        }
        for other in ["\u{1b}[31", "\u{1b}[31;", "\u{1b}[3J", "\u{1b}m"] {
            assert_eq!(written(other, true, true), other.replace('\u{1b}', "\\u001b"));
        }
    }
}
