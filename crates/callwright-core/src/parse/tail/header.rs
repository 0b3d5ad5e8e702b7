//! Recognises the header of an assistant's turn by its text alone: special tokens, and the speaker's name.
//!
//! A header is read from its beginning. It ends at text that occurs in no header, so that an answer may contain
//! anything.

/// Names of the assistant in headers.
const ROLES: [&str; 6] = ["assistant", "model", "ai", "bot", "gpt", "response"];
/// Maximum length of a special token.
const LONGEST_TOKEN: usize = 48;
/// Maximum length of a line that ends in a colon and names the speaker, such as `GPT4 Correct Assistant:`.
const LONGEST_LABEL: usize = 40;

/// Length of the header at the beginning of `text`; 0 if there is none.
pub(super) fn length(text: &str) -> usize {
    let mut header = Header { text, at: 0, role: false };
    while header.step() {}
    header.end()
}

struct Header<'t> {
    text: &'t str,
    /// Number of bytes read.
    at: usize,
    /// Whether the speaker was named.
    role: bool,
}

impl Header<'_> {
    /// Reads the next part, if there is one.
    fn step(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let part = rest.trim_start();
        let space = rest.len() - part.len();
        if self.role && space > 0 {
            // The header's last part ended the line.
            return false;
        }
        if let Some(length) = token(part) {
            let names = is_role(part[..length].trim_matches(|c: char| !c.is_alphanumeric()));
            self.role |= names;
            self.at += space + length;
            return true;
        }
        if let Some(length) = self.word(part, space) {
            self.role = true;
            self.at += space + length;
            return true;
        }
        false
    }

    /// Length of words that belong to the header.
    fn word(&self, part: &str, space: usize) -> Option<usize> {
        // Between two tokens: `message role="assistant"<|sep|>`, `assistant<|role_sep|>`.
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '=' | '"' | ' ');
        let words = part.find(|c: char| !plain(c)).unwrap_or(part.len());
        let inside = words > 0 && words <= LONGEST_TOKEN && space == 0 && is_paired(&part[words..]);
        if inside && (self.at > 0 || is_role(&part[..words])) {
            return Some(words);
        }
        if self.role {
            return None;
        }
        // After a token, to the end of the line: `<|im_start|>assistant`, `<SPECIAL_11>Assistant`.
        let word = part.find(|c: char| !c.is_alphanumeric()).unwrap_or(part.len());
        let after = &part[word..];
        let ends = after.is_empty() || after.starts_with(['\n', '\r', '<', '[']);
        if self.at > 0 && is_role(&part[..word]) && ends {
            return Some(word);
        }
        label(part)
    }

    /// The end of the header, including the line break.
    fn end(&self) -> usize {
        let rest = &self.text[self.at..];
        if self.at == 0 {
            return 0;
        }
        let space = |c: char| matches!(c, '\n' | '\r') || c == ' ' && self.text[..self.at].ends_with(':');
        self.at + rest.len() - rest.trim_start_matches(space).len()
    }
}

/// `assistant:`, `### Response:`, `GPT4 Correct Assistant:`.
fn label(text: &str) -> Option<usize> {
    let colon = text.find(':').filter(|colon| *colon <= LONGEST_LABEL)?;
    let heading = text[..colon].starts_with('#');
    let name = text[..colon].trim_start_matches('#').trim();
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == ' ');
    let last = name.rsplit(' ').next().unwrap_or_default();
    let words: Vec<&str> = name.split(' ').collect();
    let title = words.len() == 1 || words.iter().all(|word| !word.starts_with(char::is_lowercase));
    // Text may also begin with `Response:`, or be about an assistant.
    (plain && title && is_role(last) && (heading || !last.eq_ignore_ascii_case("response"))).then_some(colon + 1)
}

/// Length of the special token at the beginning of `text`.
fn token(text: &str) -> Option<usize> {
    paired(text).or_else(|| {
        let (close, inner) = match text.chars().next()? {
            '<' => ('>', &text[1..]),
            '[' => (']', &text[1..]),
            _ => return None,
        };
        let end = inner.find(close).filter(|end| *end > 0 && *end <= LONGEST_TOKEN)?;
        let inner = &inner[..end];
        let name = inner.trim_start_matches('/');
        let word = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '-'));
        let capital = name.chars().all(|c| !c.is_lowercase());
        let joined = close == '>' && (name.contains('_') || name.contains(':'));
        // `</s>` ends the previous turn; `<role>` encloses a name.
        let closes = inner.starts_with('/') && matches!(name, "user" | "system" | "tool" | "human");
        let known = closes || is_role(name) || matches!(name, "role" | "s" | "bos" | "eos");
        (word && (capital || joined || known) && name.len() + 1 >= inner.len()).then_some(end + 2)
    })
}

/// Length of a special token in an unambiguous notation: `<|…|>`, `<|…>`, `<…|>`, `<｜…｜>`, `[|…|]`, `]~…]`.
fn paired(text: &str) -> Option<usize> {
    let brackets = [("<|", ">"), ("<｜", "｜>"), ("[|", "|]"), ("]~", "]"), ("[", "~["), ("<", "|>")];
    brackets.iter().find_map(|(open, close)| {
        let inner = text.strip_prefix(open)?;
        let end = inner.find(close).filter(|end| *end > 0 && *end <= LONGEST_TOKEN)?;
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '▁' | '-' | '|' | '!' | '~' | ':');
        inner[..end].chars().all(plain).then_some(open.len() + end + close.len())
    })
}

fn is_paired(text: &str) -> bool {
    paired(text).is_some()
}

/// Returns whether words name the assistant, as in `im_assistant` and `begin_assistant`.
fn is_role(words: &str) -> bool {
    let named = |word: &str| {
        let word = word.to_ascii_lowercase();
        ROLES.contains(&&*word) || word.ends_with("bot")
    };
    words.split(|c: char| !c.is_alphanumeric()).any(named)
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn headers_of_many_families_are_recognised() {
        let headers = [
            "<|im_start|>assistant\n",
            "<|im_end|>\n<|im_start|>assistant\n",
            "<|turn>model\n",
            "<start_of_turn>model\n",
            "<turn|>\n<|turn>model\n",
            "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|start_of_role|>assistant<|end_of_role|>",
            "<|im_assistant|>assistant<|im_middle|>",
            "<|header_start|>assistant<|header_end|>\n\n",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            "<｜Assistant｜>",
            "<|Assistant|>",
            "<｜start▁of▁sentence｜><|Bot|>",
            "[|assistant|]",
            "]~b]ai\n",
            "[e~[\n]~b]ai\n",
            "<SPECIAL_11>Assistant\n",
            "[/INST]",
            " [/INST]",
            "assistant<|role_sep|>\n",
            "\n<|begin_assistant|>\n",
            "<assistant>\n",
            "</s><assistant>",
            "</user>\n<assistant>",
            "<seed:bos>assistant\n",
            "assistant: ",
            "ASSISTANT:",
            "<role>ASSISTANT</role>",
            "GPT4 Correct Assistant:",
            "### Response:\n",
            "\n\n### Assistant:\n",
            "<|end|>\n<|assistant|>\n",
            "<|bot|>",
            "",
        ];
        let texts =
            ["", "Hello, ", "I'm <b>here</b>", "A: no", "[1, 2]", "{\"a\": 1}", "Model: yes", "  x", "# Title: a"];
        for header in headers {
            for text in texts {
                // If no speaker was named, text that names one is a header.
                if (header.is_empty() || header.contains("INST")) && text.starts_with("Model") {
                    continue;
                }
                let all = format!("{header}{text}");
                assert_eq!(all[length(&all)..].trim(), text.trim(), "{header:?} before {text:?}");
            }
        }
    }

    #[test]
    fn a_word_before_another_token_belongs_to_the_header() {
        assert_eq!(length("<|start|>assistant"), 18);
        assert_eq!(length("<|end|><|start|>assistant<|channel|>"), 36);
    }

    #[test]
    fn the_beginning_of_an_answer_is_not_a_header() {
        let answers = [
            "Hello, ",
            "Response: 200 OK",
            "The assistant: it helps",
            "<html>",
            "<b>x</b>",
            "[1, 2]",
            "Modelling",
            "a < b | c > d",
            "Use <|x|> here",
        ];
        for answer in answers {
            assert_eq!(length(answer), 0, "{answer:?}");
        }
    }
}
