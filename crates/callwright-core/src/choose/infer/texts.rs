//! Splits texts rendered by the same template where they begin to differ.

/// The longest common prefix.
pub fn common_prefix<'a>(a: &'a str, b: &str) -> &'a str {
    let length: usize = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    &a[..length]
}

/// The longest common suffix.
pub fn common_suffix<'a>(a: &'a str, b: &str) -> &'a str {
    let same = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b);
    let length: usize = same.map(|(a, _)| a.len_utf8()).sum();
    &a[a.len() - length..]
}

/// The text up to an unclosed tag: two markers may share a prefix.
pub fn whole_tags(text: &str) -> &str {
    match text.rfind(['<', '[']) {
        Some(open) if !text[open..].contains(['>', ']']) => &text[..open],
        _ => text,
    }
}

/// The tags of a text, in order: `<…>` and `[…]`.
pub fn tags(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut tags = Vec::new();
    let mut open: Option<(usize, char)> = None;
    for (at, char) in text.char_indices() {
        match (char, open) {
            ('<', _) => open = Some((at, '>')),
            ('[', None) => open = Some((at, ']')),
            (char, Some((start, close))) if char == close => {
                tags.push(start..at + char.len_utf8());
                open = None;
            }
            _ => {}
        }
    }
    tags
}

/// The common prefix of a family's markers: the longest prefix of the first marker of `text` that is also in `other`.
///
/// `]<]minimax[>[</invoke>`, `>\n]<]minimax[>[<invoke name="` → `]<]minimax[>[<`
fn family<'a>(text: &'a str, other: &str) -> &'a str {
    let shared = |text: &'a str| {
        let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
        ends.take_while(|end| other.contains(&text[..*end])).last().map_or("", |end| &text[..end])
    };
    let text = text.trim_start();
    let whole = if text.starts_with(char::is_alphanumeric) { "" } else { shared(text) };
    match text.find(['<', '[', ']']) {
        Some(bracket) if whole.is_empty() => shared(&text[bracket..]),
        None if whole.is_empty() => shared(text),
        _ => whole,
    }
}

/// The parts of a repeated item with markers: `outer · (item · end) · between · (item · end) · after`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repeated {
    /// Once before all items.
    pub outer_start: String,
    /// Before each item.
    pub start: String,
    /// After each item.
    pub end: String,
    /// Between two items.
    pub between: String,
    /// Once after all items.
    pub outer_end: String,
}

/// Splits the text before the first item, between two and after the last.
pub fn repeated(before: &str, between: &str, after: &str) -> Repeated {
    let mut start = common_suffix(before, between);
    let family = family(between, start);
    // `<sep>` in `<open>word<sep>` is not a start.
    let after_word = |at: &usize| between[..between.len() - start.len() + at].ends_with(char::is_alphanumeric);
    let places = || start.match_indices(family).map(|(at, _)| at).filter(|_| !family.is_empty());
    let begins = places().find(|at| !after_word(at)).or_else(|| places().next());
    // Another marker may have the same end as the previous one: a marker begins where its family prefix does.
    let closes = begins.is_some_and(|at| start[..at].trim_start().starts_with(['>', ']', '"', '\'']));
    if start.len() < before.len() || closes {
        start = begins.map_or("", |at| &start[at..]);
    }
    let rest = &between[..between.len() - start.len()];
    let mut end = common_prefix(rest, after);
    if end.len() < rest.len() && end.len() < after.len() {
        end = whole_tags(end);
    }
    if end.trim().is_empty() && after.len() > end.len() {
        end = "";
    }
    let (outer_start, outer_end) = (&before[..before.len() - start.len()], &after[end.len()..]);
    Repeated {
        outer_start: outer_start.to_owned(),
        start: start.to_owned(),
        end: end.to_owned(),
        between: rest[end.len()..].to_owned(),
        outer_end: outer_end.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_text_is_separated_from_its_surroundings() {
        let cases = [
            // One marker around each.
            ("<call>\n", "\n</call>\n<call>\n", "\n</call>", ["", "<call>\n", "\n</call>", "\n", ""]),
            // A section whose markers begin and end like those of the calls.
            (
                "<calls:x>\n<call:x>",
                "</call:x>\n<call:x>",
                "</call:x>\n</calls:x>",
                ["<calls:x>\n", "<call:x>", "</call:x>\n", "", "</calls:x>"],
            ),
            (
                "<|calls_begin|><|call_begin|>functions.",
                "<|call_end|><|call_begin|>functions.",
                "<|call_end|><|calls_end|>",
                ["<|calls_begin|>", "<|call_begin|>functions.", "<|call_end|>", "", "<|calls_end|>"],
            ),
            (
                "]<]m[>[<call>\n]<]m[>[<invoke name=\"",
                "]<]m[>[</invoke>\n]<]m[>[<invoke name=\"",
                "]<]m[>[</invoke>\n]<]m[>[</call>",
                ["]<]m[>[<call>\n", "]<]m[>[<invoke name=\"", "]<]m[>[</invoke>\n", "", "]<]m[>[</call>"],
            ),
            // Other white space before the first.
            (
                "\n\n<call>\n<function=",
                "</function>\n</call>\n<call>\n<function=",
                "</function>\n</call>",
                ["\n\n", "<call>\n<function=", "</function>\n</call>", "\n", ""],
            ),
            // The previous marker ends with the same text by chance.
            (
                ">\n<parameter=",
                "\n</parameter>\n<parameter=",
                "\n</parameter>\n</function>",
                [">\n", "<parameter=", "\n</parameter>\n", "", "</function>"],
            ),
            (
                "~<calls>\n~<use=",
                "~</use>\n~<use=",
                "~</use>\n~</calls>",
                ["~<calls>\n", "~<use=", "~</use>\n", "", "~</calls>"],
            ),
            (
                "<|open|>calls<|sep|><|open|>call name=\"",
                "<|close|>call<|sep|><|open|>call name=\"",
                "<|close|>call<|sep|><|close|>calls<|sep|>",
                ["<|open|>calls<|sep|>", "<|open|>call name=\"", "<|close|>call<|sep|>", "", "<|close|>calls<|sep|>"],
            ),
            // Only a beginning.
            ("[CALLS]", "[CALLS]", "", ["", "[CALLS]", "", "", ""]),
            // Several between one pair.
            ("<call>\n", "\n", "\n</call>", ["<call>\n", "", "", "\n", "\n</call>"]),
            // Without brackets.
            (
                "## START ##\n",
                "\n## END ##\n## START ##\n",
                "\n## END ##",
                ["", "## START ##\n", "\n## END ##", "\n", ""],
            ),
        ];
        for (before, between, after, [outer_start, start, end, gap, outer_end]) in cases {
            let found = repeated(before, between, after);
            let parts = [&found.outer_start, &found.start, &found.end, &found.between, &found.outer_end];
            assert_eq!(parts, [outer_start, start, end, gap, outer_end], "{before:?} {between:?} {after:?}");
        }
    }

    #[test]
    fn a_tag_ends_at_its_own_bracket() {
        let found = |text: &'static str| tags(text).into_iter().map(|tag| &text[tag]).collect::<Vec<_>>();
        assert_eq!(found("a<b>c [D] <e"), ["<b>", "[D]"]);
        assert_eq!(found("<|x|>y<|z|>"), ["<|x|>", "<|z|>"]);
        assert_eq!(whole_tags("<a>\n<b"), "<a>\n");
        assert_eq!(whole_tags("<a>b"), "<a>b");
    }
}
