//! What a server writes, watched: lines that are no messages are counted. A flood ends the connection, and so does a message that is
//! nested too deep to be read: the protocol's reader would skip it, and its answer would be waited for.
//!
//! Servers write logs to standard output by mistake. The protocol's reader skips such lines without a word, so they would
//! be found only by whoever misses them. And it would read a line without an end for ever.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// So many bytes without a whole message are a flood.
pub(super) const FLOOD: usize = 16 << 20;
/// How deep a message may be nested: serde_json reads no more.
const DEPTH: usize = 128;
/// How much of the first stray line is kept, for the message.
const EXCERPT: usize = 80;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Lines that are no messages.
    stray: usize,
    /// The beginning of the first of them.
    first: Vec<u8>,
    /// Why the connection was ended.
    cut: Option<String>,
    /// How many of the lines were reported.
    reported: usize,
}

/// What is shared with whoever reports it.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Seen>>);

impl Watch {
    fn seen<T>(&self, see: impl FnOnce(&mut Seen) -> T) -> T {
        see(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the connection was ended, if it was.
    pub(super) fn cut(&self) -> Option<String> {
        self.seen(|seen| seen.cut.clone())
    }

    /// Returns what was not reported before, in words.
    pub(super) fn report(&self) -> Option<String> {
        self.seen(|seen| {
            let (stray, new) = (seen.stray, seen.stray > seen.reported);
            let first_report = seen.reported == 0;
            seen.reported = stray;
            let first = String::from_utf8_lossy(&seen.first).replace(char::is_control, " ");
            (new && first_report).then(|| {
                let lines = if stray == 1 { "a line".to_owned() } else { format!("{stray} lines") };
                format!("wrote {lines} to its standard output that is no message, which was ignored: {first:?}")
            })
        })
    }
}

/// A stream that is watched.
pub(super) struct Watched<R> {
    inner: R,
    watch: Watch,
    line: Line,
    /// Bytes since the last whole message.
    since: usize,
    /// How deep the message is nested here.
    depth: usize,
    /// Whether this is in a string of it, and after a backslash there.
    in_string: bool,
    escaped: bool,
}

/// What is known of the line that is being read.
#[derive(Clone, Copy, PartialEq)]
enum Line {
    /// Nothing but white space so far.
    Blank,
    Message,
    Stray {
        /// Whether it is the first of all.
        kept: bool,
    },
}

impl<R> Watched<R> {
    pub(super) fn new(inner: R, watch: Watch) -> Watched<R> {
        Watched { inner, watch, line: Line::Blank, since: 0, depth: 0, in_string: false, escaped: false }
    }

    /// Takes in bytes; an error where they are too many.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        for &byte in bytes {
            self.since += 1;
            match (self.line, byte) {
                (line, b'\n') => {
                    if line == Line::Message {
                        self.since = 0;
                    }
                    self.line = Line::Blank;
                }
                (Line::Blank, byte) if byte.is_ascii_whitespace() => {}
                (Line::Blank, b'{' | b'[') => {
                    self.line = Line::Message;
                    (self.depth, self.in_string, self.escaped) = (1, false, false);
                }
                (Line::Blank, byte) => {
                    let kept = self.watch.seen(|seen| {
                        seen.stray += 1;
                        seen.stray == 1
                    });
                    self.line = Line::Stray { kept };
                    self.keep(kept, byte);
                }
                (Line::Stray { kept }, byte) => self.keep(kept, byte),
                (Line::Message, byte) => {
                    self.nest(byte);
                    if self.depth >= DEPTH {
                        return self.cut(format!("it sent a message that is nested {DEPTH} deep, and was cut off"));
                    }
                }
            }
        }
        if self.since > FLOOD {
            return self.cut(format!("it wrote more than {} MiB without a message, and was cut off", FLOOD >> 20));
        }
        Ok(())
    }

    fn nest(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = self.in_string,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if !self.in_string => self.depth += 1,
            b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn cut(&self, why: String) -> io::Result<()> {
        self.watch.seen(|seen| seen.cut = Some(why.clone()));
        Err(io::Error::other(why))
    }

    fn keep(&self, kept: bool, byte: u8) {
        if kept {
            self.watch.seen(|seen| {
                if seen.first.len() < EXCERPT {
                    seen.first.push(byte);
                }
            });
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.inner).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(self.take(&buffer.filled()[before..])),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_lines_are_counted_and_the_first_is_shown_once() {
        let watch = Watch::default();
        let mut watched = Watched::new((), watch.clone());
        for piece in ["{\"a\": 1}\nsta", "rted\n", "\n  more\n", "{}\n"] {
            watched.take(piece.as_bytes()).unwrap();
        }
        assert_eq!(
            watch.report().as_deref(),
            Some("wrote 2 lines to its standard output that is no message, which was ignored: \"started\"")
        );
        assert_eq!(watch.report(), None);
    }

    #[test]
    fn a_line_without_an_end_is_a_flood_and_many_messages_are_none() {
        let watch = Watch::default();
        let mut watched = Watched::new((), watch.clone());
        let message = [&b"{\"a\": \""[..], &vec![b'a'; 1 << 20], b"\"}\n"].concat();
        for _ in 0..20 {
            watched.take(&message).unwrap();
        }
        assert_eq!(watch.cut(), None);
        let more = vec![b'x'; 1 << 20];
        assert!((0..20).any(|_| watched.take(&more).is_err()) && watch.cut().is_some());
    }

    #[test]
    fn a_message_that_is_nested_too_deep_ends_the_connection() {
        let watch = Watch::default();
        let mut watched = Watched::new((), watch.clone());
        let flat = "[".repeat(10) + &"]".repeat(10) + "\n";
        let in_string = format!("{{\"a\": \"{}\\\"{}\"}}\n", "[".repeat(200), "{".repeat(200));
        for line in [flat.as_str(), &in_string, "{", "\"a\":[1]}\n"] {
            watched.take(line.as_bytes()).unwrap();
        }
        let deep = "{\"a\":".repeat(DEPTH);
        assert!(deep.as_bytes().chunks(7).any(|piece| watched.take(piece).is_err()));
        assert!(watch.cut().unwrap().contains("nested 128 deep"));
    }
}
