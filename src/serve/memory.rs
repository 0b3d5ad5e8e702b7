//! The responses that the server remembers, for `previous_response_id` and references to items.
//!
//! They are in memory alone, and as texts, so that their size is known. The oldest give way to new ones.

use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many responses are remembered.
const RESPONSES: usize = 1000;
/// How many bytes they take; fewer in a test, which fills them.
const BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// A response, and the conversation that ends with it.
pub(super) struct Stored {
    id: String,
    /// The response as its client got it, as JSON.
    pub response: String,
    /// The items of the conversation, as JSON.
    items: String,
}

impl Stored {
    fn bytes(&self) -> usize {
        self.id.len() + self.response.len() + self.items.len()
    }

    /// The items of the conversation, its answer included.
    pub(super) fn items(&self) -> Vec<Value> {
        serde_json::from_str(&self.items).unwrap_or_default()
    }
}

/// All that is remembered.
#[derive(Default)]
pub(super) struct Memory(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    responses: VecDeque<Arc<Stored>>,
    bytes: usize,
}

impl Memory {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a response. One that is larger than all the room is not.
    pub(super) fn put(&self, id: &str, response: &Value, items: &[Value]) {
        let items = Value::from(items).to_string();
        let stored = Stored { id: id.to_owned(), response: response.to_string(), items };
        let mut kept = self.kept();
        if stored.bytes() > BYTES {
            return;
        }
        kept.bytes += stored.bytes();
        kept.responses.push_back(Arc::new(stored));
        while kept.bytes > BYTES || kept.responses.len() > RESPONSES {
            let Some(oldest) = kept.responses.pop_front() else { break };
            kept.bytes -= oldest.bytes();
        }
    }

    /// The response with this id.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Stored>> {
        self.kept().responses.iter().rev().find(|stored| stored.id == id).cloned()
    }

    /// Forgets a response; returns whether there was one.
    pub(super) fn remove(&self, id: &str) -> bool {
        let mut kept = self.kept();
        let Some(at) = kept.responses.iter().position(|stored| stored.id == id) else { return false };
        let removed = kept.responses.remove(at);
        kept.bytes -= removed.map_or(0, |stored| stored.bytes());
        true
    }

    /// The item with this id, of any conversation.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        let wanted = Value::from(id).to_string();
        let holds = |stored: &&Arc<Stored>| stored.items.contains(&wanted);
        let found = self.kept().responses.iter().rev().find(holds).cloned()?;
        found.items().into_iter().find(|item| item.get("id").is_some_and(|own| own == id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_oldest_responses_give_way() {
        let memory = Memory::default();
        for number in 0..RESPONSES + 2 {
            memory.put(&format!("resp_{number}"), &json!({}), &[json!({"id": format!("msg_{number}")})]);
        }
        assert!(memory.get("resp_1").is_none() && memory.get("resp_2").is_some());
        assert_eq!(memory.item("msg_2"), Some(json!({"id": "msg_2"})));
        // The size counts, too.
        let large = json!("x".repeat(BYTES / 2));
        memory.put("large", &large, &[]);
        assert!(memory.get("resp_3").is_some());
        memory.put("larger", &large, &[]);
        assert!(memory.get("resp_3").is_none() && memory.get("larger").is_some());
        assert!(memory.get("large").is_none());
        memory.put("too large", &json!("x".repeat(BYTES)), &[]);
        assert!(memory.get("too large").is_none() && memory.get("larger").is_some());
        assert!(memory.remove("larger") && !memory.remove("larger"));
        let kept = memory.kept();
        assert_eq!(kept.bytes, kept.responses.iter().map(|stored| stored.bytes()).sum::<usize>());
    }
}
