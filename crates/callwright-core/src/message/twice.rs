//! Duplicate keys in a JSON object: the last one is read, but the author may have meant the first.

use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// A note for each duplicate key, with its path; none if the text is not JSON.
pub(super) fn notes(text: &str) -> Vec<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    // The caller reports syntax errors.
    let _ = Look { path: String::new(), found: &mut found }.deserialize(&mut reader);
    found.iter().map(|path| format!("{path} occurs twice; the last value is used")).collect()
}

struct Look<'f> {
    path: String,
    found: &'f mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut known = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if !known.insert(key) && !self.found.contains(&path) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Look { path, found: &mut *self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        while list
            .next_element_seed(Look { path: format!("{}[{index}]", self.path), found: &mut *self.found })?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::notes;

    #[test]
    fn a_key_is_named_by_its_path() {
        let text = r#"{"a": [1, {"b": 1, "c": null, "b": "x"}], "seed": 1, "seed": 2.5, "seed": true}"#;
        let said = ["a[1].b occurs twice; the last value is used", "seed occurs twice; the last value is used"];
        assert_eq!(notes(text), said);
        assert!(notes("{\"a\": 1}").is_empty() && notes("no JSON").is_empty());
    }
}
