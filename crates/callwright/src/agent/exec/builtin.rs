//! Tools that come with the program and can do no harm.

use super::Executor;
use crate::tool::{Effect, Tool};
use jiff::Zoned;
use schemars::JsonSchema;
use serde::Deserialize;

/// Their names.
pub const BUILTIN: [&str; 2] = ["clock", "calculator"];

/// How deep brackets may nest.
const DEPTH: usize = 64;

#[derive(Deserialize, JsonSchema)]
struct Clock {
    /// The time zone, such as Europe/Berlin; the local one if it is left out
    zone: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Calculation {
    /// The expression, such as (2 + 3) * 4
    expression: String,
}

impl Executor {
    /// Adds a built-in tool; `None` if there is none of that name. There are `clock` and `calculator`.
    #[cfg_attr(feature = "unstable", visibility::make(pub))]
    pub(crate) fn builtin(&mut self, name: &str) -> Option<Tool> {
        match name {
            "clock" => Some(self.function(name, "The date and time now", |clock: Clock| time(clock.zone.as_deref()))),
            "calculator" => {
                Some(self.function(name, "Calculate an arithmetic expression", |sum: Calculation| {
                    calculate(&sum.expression)
                }))
            }
            _ => None,
        }
        .map(|tool| tool.effect(Effect::Read))
    }
}

fn time(zone: Option<&str>) -> Result<String, String> {
    let now = match zone.filter(|zone| !zone.trim().is_empty()) {
        None => Zoned::now(),
        Some(zone) => {
            let now = Zoned::now();
            now.in_tz(zone.trim()).or_else(|_| in_city(&now, zone.trim()))?
        }
    };
    Ok(now.strftime("%A, %Y-%m-%d %H:%M:%S %Z").to_string())
}

/// The time in the zone that ends with a city's name: models leave out the continent.
fn in_city(now: &Zoned, city: &str) -> Result<Zoned, String> {
    // Below these some are parts of the country.
    const COUNTRIES: [&str; 6] = ["Australia/", "Brazil/", "Canada/", "Chile/", "Mexico/", "US/"];
    let parts = ["East", "West", "North", "South", "Central", "General", "Mountain", "Eastern", "Pacific"];
    let name = city.replace(' ', "_");
    let named = |zone: &str| {
        zone.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(&name))
            && !(COUNTRIES.iter().any(|country| zone.starts_with(country))
                && parts.iter().any(|part| zone.ends_with(part)))
    };
    let zones = jiff::tz::db().available().map(|zone| zone.to_string()).filter(|zone| named(zone));
    let mut found: Vec<(String, Zoned)> =
        zones.filter_map(|zone| Some((zone.clone(), now.in_tz(&zone).ok()?))).collect();
    // A zone may have an older name, too.
    found.sort_by_key(|(_, time)| time.offset());
    found.dedup_by_key(|(_, time)| time.offset());
    match found.as_slice() {
        [(_, time)] => Ok(time.clone()),
        [] => Err(format!("there is no time zone {city:?}; expected a name such as Europe/Berlin, or UTC")),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("there are several time zones {city:?}: {}", names.join(", ")))
        }
    }
}

fn calculate(expression: &str) -> Result<String, String> {
    let mut reader = Reader { rest: expression, depth: 0 };
    let value = reader.sum()?;
    reader.skip();
    if !reader.rest.is_empty() {
        return Err(format!(
            "{:?} cannot be read at {:?}; expected + - * / % ^ ( ) and numbers",
            expression, reader.rest
        ));
    }
    if !value.is_finite() {
        return Err(format!("{expression:?} is no number: is something divided by zero, or too large?"));
    }
    Ok(rounded(value).to_string())
}

/// Decimal fractions are a little off in binary ones: nobody wants to read the 16th digit of `0.1 + 0.2`.
fn rounded(value: f64) -> f64 {
    let whole = value.fract() == 0.0;
    let rounded = if whole { value } else { format!("{value:.14e}").parse().unwrap_or(value) };
    // Takes the sign off a negative zero.
    rounded + 0.0
}

/// The sum, where what is left of two numbers is not less than what they are off by: `0.3 - 0.2 - 0.1` is 0.
fn added(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if sum.abs() < 4.0 * f64::EPSILON * a.abs().max(b.abs()) { 0.0 } else { sum }
}

/// Reads an expression from left to right.
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes the next character if it is one of these.
    fn one_of(&mut self, wanted: &[char]) -> Option<char> {
        self.skip();
        let next = self.rest.chars().next().filter(|next| wanted.contains(next))?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        while let Some(sign) = self.one_of(&['+', '-', '−']) {
            let next = self.product()?;
            value = added(value, if sign == '+' { next } else { -next });
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.signed()?;
        while let Some(sign) = self.one_of(&['*', '×', '/', '÷', '%']) {
            let next = self.signed()?;
            value = match sign {
                '*' | '×' => value * next,
                '%' => value % next,
                _ => value / next,
            };
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<f64, String> {
        let mut negative = false;
        while let Some(sign) = self.one_of(&['+', '-', '−']) {
            negative ^= sign != '+';
        }
        let value = self.power()?;
        Ok(if negative { -value } else { value })
    }

    fn power(&mut self) -> Result<f64, String> {
        let base = self.number()?;
        let power = if self.rest.trim_start().starts_with("**") {
            self.skip();
            self.rest = &self.rest[2..];
            true
        } else {
            self.one_of(&['^']).is_some()
        };
        if !power {
            return Ok(base);
        }
        let exponent = self.deeper(Reader::signed)?;
        Ok(base.powf(exponent))
    }

    fn deeper(&mut self, read: fn(&mut Self) -> Result<f64, String>) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("brackets are nested more than {DEPTH} deep"));
        }
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn number(&mut self) -> Result<f64, String> {
        if self.one_of(&['(']).is_some() {
            let value = self.deeper(Reader::sum)?;
            return self.one_of(&[')']).map(|_| value).ok_or_else(|| "a bracket is not closed".to_owned());
        }
        self.skip();
        let digits = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(digits);
        let value = number.parse().map_err(|_| match self.rest.chars().next() {
            Some(next) => format!("a number was expected at {next:?}"),
            None => "a number was expected at the end".to_owned(),
        })?;
        self.rest = rest;
        Ok(value)
    }
}
