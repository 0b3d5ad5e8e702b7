//! Whether a text begins or ends with a tag that has a few wrong, missing or extra characters.

/// Shorter tags resemble too much.
pub(crate) const LEAST: usize = 3;
/// Number of bytes of a value to look at, in addition to the tag's length.
const SLACK: usize = 4;

/// The most wrong characters of a tag.
fn most(tag: &[u8]) -> usize {
    match tag.len() {
        ..8 => 1,
        8..16 => 2,
        // A character may have three bytes.
        _ => 3,
    }
}

/// Returns whether `text` begins with the tag or, with damage, nearly so.
pub(crate) fn begins_nearly(text: &[u8], tag: &[u8]) -> bool {
    tag.len() >= LEAST && distance(tag.iter(), text.iter().take(tag.len() + SLACK)) <= most(tag)
}

/// Returns whether `text` ends with the tag or, with damage, nearly so.
pub(crate) fn ends_nearly(text: &[u8], tag: &[u8]) -> bool {
    tag.len() >= LEAST && distance(tag.iter().rev(), text.iter().rev().take(tag.len() + SLACK)) <= most(tag)
}

/// The least number of bytes to insert, remove or replace in the tag, so that the text begins with it.
fn distance<'b>(tag: impl Iterator<Item = &'b u8>, text: impl Iterator<Item = &'b u8> + Clone) -> usize {
    let mut row: Vec<usize> = (0..=text.clone().count()).collect();
    for (index, byte) in tag.enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (at, other) in text.clone().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row.into_iter().min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_with_one_wrong_character() {
        let tag = b"</parameter>";
        for damaged in ["</parameter>", "</paramter>", "/parameter>", "</parrameter>", "</parametfr>", "</aprameter>"] {
            assert!(ends_nearly(format!("Paris{damaged}").as_bytes(), tag), "{damaged}");
            assert!(begins_nearly(format!("{damaged}\n</function>").as_bytes(), tag), "{damaged}");
        }
        for other in ["</param>", "</function>", "parameters", ""] {
            assert!(!ends_nearly(format!("Paris{other}").as_bytes(), tag), "{other}");
        }
        assert!(!ends_nearly(b"x>", b">"), "too short to tell");
    }
}
