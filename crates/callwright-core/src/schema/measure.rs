//! How much work a schema makes for what checks values with it.

use super::types::Types;
use super::{Id, Schema};

/// Maximum number of steps of an explanation.
const STEPS: usize = 4096;
/// Deeper chains of schemas for one value are not followed.
const DEEPEST: usize = 4000;
/// Maximum number of schemas that may apply to one value.
const MOST: u64 = 1_000_000;

impl Schema {
    /// Returns why a value cannot be checked by the schema in bounded time, if it cannot be.
    ///
    /// Where references and alternatives multiply, forty definitions of two references each make 2^40 checks of the same
    /// value.
    pub(crate) fn multiplies(&self) -> Option<String> {
        let mut known = vec![None; self.nodes.len()];
        let most = (0..self.nodes.len()).map(|id| self.applying(id, 0, &mut known)).max();
        (most > Some(MOST)).then(|| format!("its references multiply: more than {MOST} schemas apply to one value"))
    }

    /// Counts the schemas that apply to a value that this one applies to, as often as they are reached. Those that are
    /// being counted have 1.
    fn applying(&self, id: Id, open: usize, known: &mut [Option<u64>]) -> u64 {
        if let Some(known) = known[id] {
            return known;
        }
        if open > DEEPEST {
            return u64::MAX;
        }
        known[id] = Some(1);
        let node = &self.nodes[id];
        let parts = node.several().chain(node.reference).chain(node.beside.iter().copied());
        let sum = parts.fold(1, |sum: u64, part| sum.saturating_add(self.applying(part, open + 1, known)));
        known[id] = Some(sum);
        sum
    }

    /// Returns how many levels of a value can be explained in bounded time; `None` if levels do not multiply.
    ///
    /// Without a reference, levels do not repeat.
    pub(crate) fn explained_levels(&self) -> Option<u32> {
        let refers = self.nodes.iter().any(|node| node.has_any(&["$ref", "$dynamicRef", "$recursiveRef"]));
        let most = |kind| (0..self.nodes.len()).map(|id| self.overlaps(id, kind, 0, &mut 0)).max().unwrap_or(0);
        let most = if refers { most(Types::OBJECT).max(most(Types::ARRAY)) } else { 0 };
        (most > 1).then(|| STEPS.ilog(most))
    }

    /// Counts the schemas that apply to the same object or array.
    fn overlaps(&self, id: Id, kind: Types, followed: usize, steps: &mut usize) -> usize {
        const OWN: [&str; 5] = ["properties", "patternProperties", "additionalProperties", "items", "prefixItems"];
        *steps += 1;
        let node = &self.nodes[id];
        if !node.is_object {
            return usize::from(node.allowed == Some(true));
        }
        if !node.takes.has(kind) {
            return 0;
        }
        if *steps > STEPS || followed > 16 {
            return STEPS;
        }
        let parts = node.several().chain(node.reference);
        let sum = parts.fold(0, |sum: usize, part| sum.saturating_add(self.overlaps(part, kind, followed + 1, steps)));
        sum.saturating_add(usize::from(sum == 0 || node.has_any(&OWN))).min(STEPS)
    }
}
