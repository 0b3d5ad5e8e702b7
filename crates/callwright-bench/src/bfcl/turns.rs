//! The leaderboard's cases of several turns, as lines of a suite.

use super::{answers, lines};
use crate::exact::Exact;
use crate::suite::{Case, wrong};
use crate::task;
use callwright::error::{Error, Location, Result};
use std::collections::HashMap;
use std::path::Path;

/// The files of the package that describe the tools of each class.
const DESCRIBED: [(&str, &str); 8] = [
    ("GorillaFileSystem", "gorilla_file_system"),
    ("MathAPI", "math_api"),
    ("MessageAPI", "message_api"),
    ("TwitterAPI", "posting_api"),
    ("TicketAPI", "ticket_api"),
    ("TradingBot", "trading_bot"),
    ("TravelAPI", "travel_booking"),
    ("VehicleControlAPI", "vehicle_control"),
];

/// What the user says in a turn that begins with more tools.
const MORE_TOOLS: &str = "I have updated some more functions you can choose from. What about now?";

/// Reads a category.
pub(super) fn read(data: &Path, category: &str) -> Result<Vec<Case>> {
    let name = format!("BFCL_v4_{category}.json");
    let path = data.join(&name);
    let cases = lines(&path)?;
    let answers = answers(data, &name, cases.len())?;
    let mut described = HashMap::new();
    for (class, file) in DESCRIBED {
        let path = data.join("multi_turn_func_doc").join(format!("{file}.json"));
        if path.exists() {
            described.insert(class, lines(&path)?);
        }
    }
    let mut read = Vec::with_capacity(cases.len());
    for (index, (case, answer)) in cases.iter().zip(&answers).enumerate() {
        let at = |error: Error| error.at(Location { file: Some(path.clone()), line: Some(index + 1), column: None });
        let line = line(category, case, answer, &described).map_err(at)?;
        let id = line.get("id").and_then(Exact::as_str).unwrap_or_default().to_owned();
        read.push(task::case(&line, line.members().unwrap_or_default(), id, &path).map_err(at)?);
    }
    Ok(read)
}

/// A case as a line of a suite.
fn line(category: &str, case: &Exact, answer: &Exact, described: &HashMap<&str, Vec<Exact>>) -> Result<Exact> {
    let part = |of: &Exact, key: &str| of.get(key).cloned().ok_or_else(|| wrong(format!("there is no {key:?}")));
    let list = |value: Exact, key: &str| match value {
        Exact::List(list) => Ok(list),
        _ => Err(wrong(format!("{key:?} is no list"))),
    };
    let (id, classes) = (part(case, "id")?, part(case, "involved_classes")?);
    let mut tools = Vec::new();
    for class in classes.elements().unwrap_or_default() {
        let class = class.as_str().unwrap_or_default();
        tools.extend_from_slice(
            described.get(class).ok_or_else(|| wrong(format!("no file describes the class {class:?}")))?,
        );
    }
    let text = |text: &str| Exact::Text(text.to_owned());
    let mut turns = Vec::new();
    for (turn, messages) in list(part(case, "question")?, "question")?.into_iter().enumerate() {
        let held_out =
            case.get("missed_function").and_then(|missed| missed.get(&turn.to_string())).and_then(Exact::elements);
        let mut more = Vec::new();
        for name in held_out.unwrap_or_default() {
            let place = tools.iter().position(|tool| tool.get("name") == Some(name));
            more.extend(place.map(|place| tools.remove(place)));
        }
        let user = match (messages.elements().unwrap_or_default(), held_out) {
            ([message], None) => part(message, "content")?,
            ([], Some(_)) => text(MORE_TOOLS),
            _ => return Err(wrong(format!("turn {} is none of one message of the user", turn + 1))),
        };
        let more = (!more.is_empty()).then(|| ("tools".to_owned(), Exact::List(more)));
        turns.push(Exact::Object(std::iter::once(("user".to_owned(), user)).chain(more).collect()));
    }
    let gold = list(part(answer, "ground_truth")?, "ground_truth")?;
    if gold.len() != turns.len() {
        return Err(wrong(format!("there are {} turns, and right answers to {}", turns.len(), gold.len())));
    }
    let data = [
        ("id", id.clone()),
        ("involved_classes", classes),
        ("initial_config", part(case, "initial_config")?),
        ("ground_truth", Exact::List(gold)),
    ];
    let line = [
        ("id", id.clone()),
        ("category", text(category)),
        ("tools", Exact::List(tools)),
        ("turns", Exact::List(turns)),
        ("bfcl", Exact::Object(data.map(|(key, value)| (key.to_owned(), value)).into())),
    ];
    Ok(Exact::Object(line.map(|(key, value)| (key.to_owned(), value)).into()))
}
