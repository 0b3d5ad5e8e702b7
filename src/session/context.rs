//! What fits into the context, and what takes the room where it does not.

use super::Session;
use super::answer::Ask;
use crate::message::{Message, Role};
use crate::{Error, ErrorKind};

impl Session {
    /// Says how many tokens do not fit, and what takes them.
    pub(super) fn overflow(&self, ask: &Ask, tokens: usize, limit: usize) -> Error {
        // Each part is what the prompt is shorter by without it; a template may refuse to do without.
        let without = |change: &dyn Fn(&mut Ask)| {
            let mut less = ask.clone();
            change(&mut less);
            let left = self.write(&less).ok()?.tokens.len();
            tokens.checked_sub(left).filter(|taken| *taken > 0)
        };
        let (system, others): (Vec<Message>, Vec<Message>) =
            ask.messages.iter().cloned().partition(|message| message.role == Role::System);
        let question = others.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
        let recent = [system.as_slice(), &others[question..]].concat();
        let parts = [
            ("tools", without(&|ask| ask.tools = Default::default())),
            ("system message", without(&|ask| ask.messages = others.clone())),
            ("history", without(&|ask| ask.messages = recent.clone())),
        ];
        let parts: Vec<String> =
            parts.iter().filter_map(|(name, taken)| Some(format!("{name} {}", (*taken)?))).collect();
        let mut message = format!("the prompt has {tokens} tokens; the context holds {limit}");
        if !parts.is_empty() {
            message += &format!(" (of these: {})", parts.join(", "));
        }
        let hint = if limit < self.engine.model().context_train {
            "a larger --ctx gives more room, up to what the model was trained for"
        } else {
            "fewer tools, shorter descriptions or a shorter history make room"
        };
        Error::new(ErrorKind::ContextOverflow, message).hint(hint)
    }
}
