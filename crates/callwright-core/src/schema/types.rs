//! Sets of JSON's types.

use serde_json::Value;

/// The types that a value may have; empty if the schema does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const STRING: Types = Types(1);
    pub(crate) const INTEGER: Types = Types(2);
    pub(crate) const NUMBER: Types = Types(4);
    pub(crate) const BOOLEAN: Types = Types(8);
    pub(crate) const NULL: Types = Types(16);
    pub(crate) const OBJECT: Types = Types(32);
    pub(crate) const ARRAY: Types = Types(64);

    /// Returns whether the schema says nothing.
    pub(crate) fn is_unknown(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the value may be one of `types`.
    pub(crate) fn has(self, types: Types) -> bool {
        self.0 & types.0 != 0
    }

    pub(crate) fn or(self, types: Types) -> Types {
        Types(self.0 | types.0)
    }

    /// These types without `types`.
    pub(crate) fn without(self, types: Types) -> Types {
        Types(self.0 & !types.0)
    }

    /// The types in both sets; if either set is empty, the other.
    pub(super) fn common(self, types: Types) -> Types {
        // Every integer is a number.
        let is_whole = |one: Types, other: Types| one.has(Types::INTEGER) && other.has(Types::NUMBER);
        let whole = if is_whole(self, types) || is_whole(types, self) { Types::INTEGER.0 } else { 0 };
        let both = self.0 & types.0 | whole;
        if both == 0 { self.or(types) } else { Types(both) }
    }

    pub(crate) fn of_name(name: &str) -> Types {
        match name {
            "string" => Types::STRING,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "boolean" => Types::BOOLEAN,
            "null" => Types::NULL,
            "object" => Types::OBJECT,
            "array" => Types::ARRAY,
            _ => Types::default(),
        }
    }

    /// The type of a value.
    pub(crate) fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) if number.is_f64() => Types::NUMBER,
            Value::Number(_) => Types::INTEGER.or(Types::NUMBER),
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }
}
