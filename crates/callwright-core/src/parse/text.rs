//! Text that arrives in bytes: outputs whole characters, and no blank lines where a call was removed.
//!
//! A token may end inside a character, and models separate calls by blank lines that mean nothing without the call.
//! Both require holding back at most [`BLANK`] bytes.

/// Maximum white space before a start marker and after an end marker that belongs to the markup.
const BLANK: usize = 32;

/// Converts bytes to text: keeps an unfinished character until the rest arrives, and writes U+FFFD for invalid bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Utf8 {
    partial: [u8; 4],
    len: usize,
}

impl Utf8 {
    pub(crate) fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        while self.len > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return };
            self.partial[self.len] = byte;
            match std::str::from_utf8(&self.partial[..=self.len]) {
                Ok(character) => {
                    out.push_str(character);
                    self.len = 0;
                    bytes = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.len += 1;
                    bytes = rest;
                }
                Err(_) => self.end(out),
            }
        }
        if let Ok(text) = std::str::from_utf8(bytes) {
            out.push_str(text);
            return;
        }
        for chunk in bytes.utf8_chunks() {
            out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            let at_end = invalid.as_ptr_range().end == bytes.as_ptr_range().end;
            if at_end && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none()) {
                self.partial[..invalid.len()].copy_from_slice(invalid);
                self.len = invalid.len();
            } else {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// The bytes of the unfinished character.
    fn partial(&self) -> &[u8] {
        &self.partial[..self.len]
    }

    /// Returns whether there is no unfinished character.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The unfinished character stays incomplete.
    pub(crate) fn end(&mut self, out: &mut String) {
        if std::mem::take(&mut self.len) > 0 {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// The text around the calls.
#[derive(Debug, Default)]
pub(crate) struct Text {
    content: String,
    sent: usize,
    utf8: Utf8,
    /// White space at the end of the text: dropped if a call follows.
    blank: Vec<u8>,
    /// White space between text and a call: written as a separator if more text follows.
    gap: Vec<u8>,
    after: After,
    /// Whether the line so far is not blank.
    in_line: bool,
    /// Whether the line ends with markup.
    at_markup: bool,
    /// Whether markup came since the last call.
    markup_since: bool,
    /// Where the text continues after the last call or markup. A range across it is not contiguous in the model's text.
    seam: usize,
    /// The same in `blank`: the length of its part from before the last markup.
    blank_seam: usize,
    /// Whether a comma or a semicolon after a call may separate it from the next one.
    separators: bool,
}

/// What only white space has followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum After {
    #[default]
    Nothing,
    Call,
    /// The start or end of reasoning or a section.
    Markup,
}

/// A state of a text to return to.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Length of the text that cannot change until then.
    kept: usize,
    /// The rest.
    state: Text,
}

/// Maximum length of text that a call in another form may take back, in bytes.
const TAKEN_BACK: usize = 512;

impl Text {
    /// The present state.
    pub(crate) fn mark(&self) -> Mark {
        let (rest, _) = self.tail(TAKEN_BACK);
        let state = Text {
            content: rest.to_owned(),
            utf8: self.utf8.clone(),
            blank: self.blank.clone(),
            gap: self.gap.clone(),
            ..*self
        };
        Mark { kept: self.content.len() - rest.len(), state }
    }

    /// Returns to an earlier state.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        let mut content = std::mem::take(&mut self.content);
        content.truncate(mark.kept);
        content += &mark.state.content;
        *self = Text { content, ..mark.state };
    }

    /// At most the last `count` bytes of the text with the white space that is held and `bytes`. A call or other markup
    /// ends a line.
    pub(crate) fn before(&self, bytes: &[u8], count: usize) -> String {
        let mut before = self.tail(count).0.to_owned();
        if self.after != After::Nothing {
            before.push('\n');
        }
        before += &self.unwritten(bytes);
        // How much of the text is in `bytes` depends on how it was split.
        let mut from = before.len().saturating_sub(count);
        while !before.is_char_boundary(from) {
            from += 1;
        }
        before.split_off(from)
    }

    /// The end of the text that is not written yet, if `bytes` and a marker follow.
    pub(crate) fn unwritten(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(&[self.utf8.partial(), &self.blank, bytes].concat()).into_owned()
    }

    /// The text in this range.
    pub(crate) fn since(&self, from: usize, to: usize) -> &str {
        self.content.get(from..to).unwrap_or_default()
    }

    /// Returns whether no text has come since the beginning, or since a call or other markup.
    pub(crate) fn is_at_beginning(&self, bytes: &[u8]) -> bool {
        (self.content.is_empty() || self.after != After::Nothing) && bytes.trim_ascii().is_empty()
    }

    /// A new text; with `separators`, its calls may be separated by them.
    pub(crate) fn new(separators: bool) -> Text {
        Text { separators, ..Text::default() }
    }

    /// From now on, calls may be separated by commas.
    pub(crate) fn separate_calls(&mut self) {
        self.separators = true;
    }

    /// A text that begins after markup, so white space at its beginning is dropped.
    pub(crate) fn after_markup() -> Text {
        Text { after: After::Markup, ..Text::default() }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.in_line = self.goes_on_line(bytes);
        self.at_markup &= bytes.iter().all(|b| matches!(b, b' ' | b'\t'));
        if self.after != After::Nothing {
            let room = BLANK - self.blank.len();
            let skipped = bytes.iter().take(room).take_while(|&&b| self.is_blank(b)).count();
            self.blank.extend_from_slice(&bytes[..skipped]);
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return;
            }
            self.after = After::Nothing;
            let seam = std::mem::take(&mut self.blank_seam);
            let separated = self.blank.iter().position(|b| !b.is_ascii_whitespace());
            let separator = separated.map(|at| self.blank.split_off(at));
            let blank = self.blank.clone();
            self.keep_gap();
            let gap = std::mem::take(&mut self.gap);
            self.write(&gap);
            // The white space before the call is moved after it here. It has no place in the model's text, except for
            // the part that both have in common.
            let same = gap.iter().rev().zip(blank.iter().rev()).take_while(|(gap, blank)| gap == blank).count();
            self.seam = self.content.len() - same.min(blank.len().saturating_sub(seam));
            self.write(&separator.unwrap_or_default());
        }
        let trailing = bytes.iter().rev().take(BLANK).take_while(|b| b.is_ascii_whitespace()).count();
        let (solid, blank) = bytes.split_at(bytes.len() - trailing);
        if solid.is_empty() {
            self.blank.extend_from_slice(blank);
            let excess = self.blank.len().saturating_sub(BLANK);
            let excess: Vec<u8> = self.blank.drain(..excess).collect();
            self.write(&excess);
        } else {
            let held = std::mem::take(&mut self.blank);
            self.write(&held);
            self.write(solid);
            self.blank = held;
            self.blank.clear();
            self.blank_seam = 0;
            self.blank.extend_from_slice(blank);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.utf8.push(bytes, &mut self.content);
    }

    fn keep_gap(&mut self) {
        if self.gap.is_empty() && !self.content.is_empty() {
            std::mem::swap(&mut self.gap, &mut self.blank);
            self.gap.retain(u8::is_ascii_whitespace);
        }
        self.blank.clear();
        self.blank_seam = 0;
    }

    fn is_blank(&self, byte: u8) -> bool {
        byte.is_ascii_whitespace() || self.separators && self.after == After::Call && matches!(byte, b',' | b';')
    }

    /// Returns whether the line is not blank after the text and `bytes`.
    fn goes_on_line(&self, bytes: &[u8]) -> bool {
        let room = if self.after == After::Call { BLANK - self.blank.len() } else { 0 };
        let skipped = bytes.iter().take(room).take_while(|&&b| self.is_blank(b)).count();
        match bytes[skipped..].iter().rev().find(|&&b| b == b'\n' || !b.is_ascii_whitespace()) {
            Some(&last) => last != b'\n',
            None => self.in_line,
        }
    }

    /// Returns whether a line begins after the text and `bytes`, or only white space has come since the beginning or
    /// since a call.
    pub(crate) fn begins_line(&self, bytes: &[u8]) -> bool {
        !self.goes_on_line(bytes)
    }

    /// A line begins here, whatever precedes it.
    pub(crate) fn begin_line(&mut self) {
        self.in_line = false;
    }

    /// Returns whether only white space came.
    pub(crate) fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// Separates the following text from the preceding text.
    pub(crate) fn separate(&mut self) {
        if self.gap.is_empty() && !self.content.is_empty() {
            self.gap.push(b'\n');
        }
    }

    /// A call, reasoning or a section begins or ends here.
    pub(crate) fn before_markup(&mut self) {
        self.utf8.end(&mut self.content);
        self.keep_gap();
        self.seam = self.content.len();
    }

    /// A call ended here.
    pub(crate) fn after_call(&mut self) {
        self.seam = self.content.len();
        self.after = After::Call;
        self.markup_since = false;
        self.in_line = false;
    }

    /// Markup other than a call ended here.
    pub(crate) fn after_markup_here(&mut self) {
        self.after = After::Markup;
        self.in_line = false;
        self.seam = self.content.len();
    }

    /// The white space since a call, if only markup came otherwise.
    pub(crate) fn only_blank_since_call(&mut self) -> Option<&mut Vec<u8>> {
        (self.after == After::Call).then_some(&mut self.blank)
    }

    /// The white space since a call, if nothing else came in the model's text.
    pub(crate) fn right_after_call(&mut self) -> Option<&mut Vec<u8>> {
        (self.after == After::Call && !self.markup_since).then_some(&mut self.blank)
    }

    /// The text since the last use of this method, except for the last `held` bytes.
    pub(crate) fn news(&mut self, held: usize) -> Option<&str> {
        let end = self.content.len().saturating_sub(held).max(self.sent);
        let news = &self.content[self.sent..end];
        self.sent = end;
        (!news.is_empty()).then_some(news)
    }

    /// At most the last `count` bytes of the text, without held white space; and whether that is the whole text.
    pub(crate) fn tail(&self, count: usize) -> (&str, bool) {
        let mut from = self.content.len().saturating_sub(count);
        while !self.content.is_char_boundary(from) {
            from += 1;
        }
        (&self.content[from..], from == 0)
    }

    /// The held white space, unless a character is unfinished.
    pub(crate) fn blank(&self) -> Option<&[u8]> {
        self.utf8.is_empty().then_some(&*self.blank)
    }

    /// Length of the text in bytes.
    pub(crate) fn len(&self) -> usize {
        self.content.len()
    }

    /// The first byte at or after `from` from which the text is contiguous. `None` if more than white space comes in
    /// between.
    pub(crate) fn written_from(&self, from: usize) -> Option<usize> {
        let before = self.content.get(from..self.seam.max(from))?;
        before.trim_ascii().is_empty().then_some(self.seam.max(from))
    }

    /// Returns whether the text from that byte on was not sent.
    pub(crate) fn is_unsent(&self, from: usize) -> bool {
        from >= self.sent
    }

    /// Removes the text from that byte on, and the held white space: it is not text.
    pub(crate) fn take_back(&mut self, from: usize) -> Vec<u8> {
        let mut taken = self.content.split_off(from).into_bytes();
        taken.append(&mut self.blank);
        let blank = self.content.bytes().rev().take(BLANK).take_while(u8::is_ascii_whitespace).count();
        let solid = (self.content.len() - blank).max(self.sent);
        self.blank.extend(self.content.drain(solid..).map(|c| c as u8));
        taken
    }

    /// Markup here that is neither a call nor the end of anything.
    pub(crate) fn markup_here(&mut self) {
        // No character goes on after it.
        self.utf8.end(&mut self.content);
        (self.at_markup, self.markup_since) = (true, true);
        self.seam = self.content.len() + self.blank.len();
        self.blank_seam = self.blank.len();
    }

    /// Returns whether only blanks have come since the beginning of the line or since markup.
    pub(crate) fn follows_markup(&self, bytes: &[u8]) -> bool {
        self.at_markup && bytes.iter().all(|b| matches!(b, b' ' | b'\t'))
    }

    /// The held white space is part of the text.
    pub(crate) fn keep_blank(&mut self) {
        if self.after == After::Nothing {
            let blank = std::mem::take(&mut self.blank);
            self.write(&blank);
        }
    }

    /// Ends the text: white space at its end is kept, unless it only separated a call.
    pub(crate) fn end(&mut self) {
        if self.after == After::Nothing {
            let blank = std::mem::take(&mut self.blank);
            self.write(&blank);
        }
        self.utf8.end(&mut self.content);
    }

    pub(crate) fn into_content(self) -> String {
        self.content
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8;

    #[test]
    fn any_split_of_broken_utf8_gives_what_the_standard_library_gives() {
        for bytes in [
            &b"a\xF0\x9F\x92\xA9b"[..],
            b"\xE2\x82",
            b"\xE2\x28\xA1",
            b"\xF0\x9F\x92\xC3\xA9\xFF\x80x",
            b"\xED\xA0\x80",
        ] {
            let expected = String::from_utf8_lossy(bytes);
            for split in 0..=bytes.len() {
                let (mut utf8, mut out) = (Utf8::default(), String::new());
                utf8.push(&bytes[..split], &mut out);
                utf8.push(&bytes[split..], &mut out);
                utf8.end(&mut out);
                assert_eq!(out, expected, "split at {split}");
            }
        }
    }
}
