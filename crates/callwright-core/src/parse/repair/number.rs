//! State of reading a JSON number.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl Number {
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Number::Zero | Number::Integer | Number::Fraction | Number::Exponent)
    }

    pub(super) fn next(self, byte: u8) -> Option<Number> {
        use Number::{E, Exponent, Fraction, Integer, Minus, Point, Sign, Zero};
        match (self, byte) {
            (Minus, b'0') => Some(Zero),
            (Minus | Integer, b'0'..=b'9') => Some(Integer),
            (Zero | Integer, b'.') => Some(Point),
            (Point | Fraction, b'0'..=b'9') => Some(Fraction),
            (Zero | Integer | Fraction, b'e' | b'E') => Some(E),
            (E, b'+' | b'-') => Some(Sign),
            (E | Sign | Exponent, b'0'..=b'9') => Some(Exponent),
            _ => None,
        }
    }
}
