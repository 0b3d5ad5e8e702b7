//! What the validator refuses in a schema although each keyword is relaxed.

use crate::schema::dialect;
use crate::schema::{Schema, each};
use crate::tool::checker;
use crate::tool::notice::Notices;
use serde_json::Value;

/// Drops what the validator still refuses, one keyword at a time.
pub(super) fn dropped(schema: &mut Value, notices: &mut Notices) -> Result<(), String> {
    const TRIES: usize = 200;
    let compile = |schema: &Value| {
        let mut standard = schema.clone();
        dialect::standard(&mut standard);
        checker::Checker::new(&standard, None)
    };
    if let Some(why) = Schema::read(schema).multiplies() {
        return Err(format!("parameters: {why}"));
    }
    let mut last = String::new();
    for _ in 0..TRIES {
        let Err(refusal) = compile(schema) else { return Ok(()) };
        last = refusal.sentence("parameters");
        let pointer = refusal.at();
        let instead = "leave it out, or write it as JSON Schema wants it";
        // An id changes the base of references.
        if pointer.is_empty() && drop_ids(schema) {
            notices.relaxed("", "$id", "it is left out: the schema cannot be read under it", "leave it out");
            continue;
        }
        match drop_at(schema, pointer) {
            Some((path, key)) => notices.relaxed(&path, &key, format!("it is left out: {last}"), instead),
            None => return Err(last),
        }
    }
    Err(last)
}

/// Removes the value at a pointer, or the nearest existing keyword around it.
fn drop_at(schema: &mut Value, at: &str) -> Option<(String, String)> {
    let mut path = at;
    while let Some((parent, key)) = path.rsplit_once('/') {
        let key = key.replace("~1", "/").replace("~0", "~");
        if let Some(Value::Object(object)) = schema.pointer_mut(parent)
            && object.shift_remove(&key).is_some()
        {
            return Some((parent.to_owned(), key));
        }
        path = parent;
    }
    None
}

/// Removes the ids from a schema; false if there are none.
fn drop_ids(schema: &mut Value) -> bool {
    let mut found = false;
    each(schema, "", &mut |object, _| found |= object.shift_remove("$id").is_some());
    found
}
