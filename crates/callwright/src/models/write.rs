//! Writes an entry of models.toml, or a setting of one that is there, and leaves the rest of the file as it is.

use super::{ModelEntry, Sampling, Source};
use crate::models::LoraAdapter;
use toml::{Table, Value};

/// Returns the text of a models.toml with the threshold for the calls of a model, and the fingerprints of its files: in the model's
/// entry, or, where there is none, in a new one with all that is known of the model.
pub fn with_call_threshold(text: &str, entry: &ModelEntry, threshold: f64) -> String {
    // As Rust writes a number that is read back as the same one: TOML's crate writes 1e-7 with all its zeros.
    let settings = format!("call_threshold = {threshold:?}\n");
    // Each line keeps its end, as far as that is more than a line feed.
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let end_of_line = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let begins: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].trim_start().starts_with('[')).collect();
    for (place, begin) in begins.iter().enumerate() {
        let end = begins.get(place + 1).copied().unwrap_or(lines.len());
        let Some(name) = name_of(&(lines[*begin..end].join("\n") + "\n")) else { continue };
        if name != entry.name {
            continue;
        }
        let key = |line: &String| line.split('=').next().map(|key| key.trim().to_owned()).unwrap_or_default();
        let mut own: Vec<String> = lines[*begin..end].to_vec();
        // Both are compared with the same probability.
        let both = own.iter().any(|line| key(line) == "no_call_below");
        own.retain(|line| !["call_threshold", "no_call_below"].contains(&key(line).as_str()));
        let mut settings = settings + &if both { format!("no_call_below = {threshold:?}\n") } else { String::new() };
        if let Some((key, value)) = fingerprint(entry).filter(|_| !own.iter().any(|line| key(line) == "fingerprint")) {
            settings += &format!("{key} = {value}\n");
        }
        let name = own.iter().position(|line| key(line) == "name").unwrap_or(0);
        let carriage = end_of_line.trim_end_matches('\n');
        if name + 1 == own.len() && end == lines.len() {
            // The file ends within this line.
            own[name] += carriage;
            own.push(String::new());
        }
        own.splice(name + 1..name + 1, settings.lines().map(|line| format!("{line}{carriage}")));
        lines.splice(*begin..end, own);
        let written = lines.join("\n");
        return if written.ends_with('\n') { written } else { written + end_of_line };
    }
    let gap = if text.trim().is_empty() { "" } else { end_of_line };
    let ended = if text.is_empty() || text.ends_with('\n') { "" } else { end_of_line };
    format!("{text}{ended}{gap}{}", format!("{}{settings}", whole(entry)).replace('\n', end_of_line))
}

/// The name in the text of one entry.
fn name_of(text: &str) -> Option<String> {
    let table: Table = text.parse().ok()?;
    let name = table.get("model")?.as_array()?.first()?.get("name")?;
    name.as_str().map(str::to_owned)
}

/// An entry with all its settings but those of the decision to call.
fn whole(entry: &ModelEntry) -> String {
    let mut keys: Vec<(&str, Value)> = vec![("name", entry.name.clone().into())];
    match &entry.source {
        Source::File(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            keys.push(("path", path.to_string_lossy().into_owned().into()));
        }
        Source::Server(server) => {
            let mode = if server.chat { "chat" } else { "raw" };
            keys.extend([("url", server.url.clone().into()), ("model", server.model.clone().into())]);
            keys.push(("mode", mode.into()));
            keys.extend(server.api_key_env.clone().map(|name| ("api_key_env", name.into())));
            keys.push(("timeout", i64::try_from(server.timeout.as_secs()).unwrap_or(i64::MAX).into()));
            if let Some((prompt, answer)) = server.cost {
                let cost = [("prompt".to_owned(), prompt.into()), ("answer".to_owned(), answer.into())];
                keys.push(("cost", Value::Table(cost.into_iter().collect())));
            }
        }
        Source::Hub(file) => {
            keys.extend([("repo", file.repo.clone().into()), ("file", file.file.clone().into())]);
            keys.push(("revision", file.revision.clone().into()));
            match file.sha256.as_slice() {
                [] => {}
                [one] => keys.push(("sha256", one.clone().into())),
                several => keys.push(("sha256", several.to_vec().into())),
            }
        }
    }
    keys.extend(fingerprint(entry));
    keys.extend(entry.size.and_then(|size| i64::try_from(size).ok()).map(|size| ("size", size.into())));
    keys.extend(entry.template.clone().map(|template| ("template", template.into())));
    keys.extend(entry.format.clone().map(|format| ("format", format.into())));
    keys.extend(entry.context.map(|context| ("context", i64::from(context).into())));
    let sampling = sampling(&entry.sampling);
    keys.extend((!sampling.is_empty()).then_some(("sampling", Value::Table(sampling))));
    let adapters: Vec<String> = entry.lora.iter().map(absolute).collect();
    keys.extend((!adapters.is_empty()).then(|| ("lora", adapters.into())));
    keys.extend((!entry.fallbacks.is_empty()).then(|| ("fallbacks", entry.fallbacks.clone().into())));
    let lines = keys.into_iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!("[[model]]\n{}", lines.collect::<String>())
}

fn fingerprint(entry: &ModelEntry) -> Option<(&'static str, Value)> {
    let value = match entry.fingerprints.as_slice() {
        [] => return None,
        [one] => one.clone().into(),
        several => several.to_vec().into(),
    };
    Some(("fingerprint", value))
}

fn absolute(adapter: &LoraAdapter) -> String {
    let file = std::path::absolute(&adapter.file).unwrap_or_else(|_| adapter.file.clone());
    LoraAdapter { file, ..adapter.clone() }.to_string()
}

/// 0.7, not the 0.699999988079071 that the same number is with more digits.
pub fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn sampling(sampling: &Sampling) -> Table {
    let number = |value: Option<f32>| value.map(decimal).map(Value::from);
    let pairs = [
        ("temperature", number(sampling.temperature)),
        ("top_k", sampling.top_k.map(|k| i64::from(k).into())),
        ("top_p", number(sampling.top_p)),
        ("min_p", number(sampling.min_p)),
        ("repeat_penalty", number(sampling.repeat_penalty)),
        ("presence_penalty", number(sampling.presence_penalty)),
        ("frequency_penalty", number(sampling.frequency_penalty)),
        ("repeat_last_n", sampling.repeat_last_n.map(|n| i64::from(n).into())),
        ("dry_multiplier", number(sampling.dry_multiplier)),
    ];
    pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Models, file};
    use std::path::Path;

    fn read(text: &str) -> Vec<ModelEntry> {
        file::parse(text, Path::new("models.toml"), Path::new("")).unwrap()
    }

    #[test]
    fn the_entry_that_is_there_gets_the_threshold_and_the_rest_stays() {
        let before = "# mine\n[[model]]\nname = \"a\" # first\npath = \"a.gguf\"\n\n[[model]]\npath = \"b.gguf\"\nname = \"b\"\n";
        let entry = &read(before)[1];
        let once = with_call_threshold(before, entry, 0.0125);
        assert_eq!(once, before.to_owned() + "call_threshold = 0.0125\n");
        assert_eq!(read(&once)[1].call_threshold, Some(0.0125));
        // What forbids calls below the threshold goes on doing so.
        let both = once.clone() + "no_call_below = 0.0125\n";
        let again = with_call_threshold(&both, entry, 0.5);
        assert_eq!((read(&again)[1].call_threshold, read(&again)[1].no_call_below), (Some(0.5), Some(0.5)));
        let twice = with_call_threshold(&once, entry, 1e-7);
        assert_eq!(twice, before.to_owned() + "call_threshold = 1e-7\n");
        assert_eq!(read(&twice)[1].call_threshold, Some(1e-7));
        assert_eq!(read(&twice)[0].call_threshold, None);
    }

    #[test]
    fn a_file_keeps_its_ends_of_lines() {
        let before = "# mine\r\n[[model]]\r\nname = \"a\"\r\npath = \"a.gguf\"\r\n\r\n[[model]]\r\npath = \"b.gguf\"\r\nname = \"b\"";
        for (index, entry) in read(before).iter().enumerate() {
            let once = with_call_threshold(before, entry, 0.5);
            assert_eq!(once.matches('\n').count(), once.matches("\r\n").count(), "{once:?}");
            assert_eq!(read(&once)[index].call_threshold, Some(0.5));
            let more = ModelEntry { name: "c".to_owned(), ..entry.clone() };
            let added = with_call_threshold(before, &more, 0.5);
            assert!(
                added.starts_with(before) && added.matches('\n').count() == added.matches("\r\n").count(),
                "{added:?}"
            );
        }
    }

    #[test]
    fn a_missing_entry_is_written_with_its_adapters() {
        let entry = &read("[[model]]\nname = \"a\"\npath = \"/a.gguf\"\nlora = [\"/one.gguf\", \"/two.gguf:-0.5\"]")[0];
        let found = read(&with_call_threshold("", entry, 0.5)).remove(0);
        assert_eq!((&found.lora, found.lora.len(), found.lora[1].scale), (&entry.lora, 2, -0.5));
    }

    #[test]
    fn a_missing_entry_is_written_whole() {
        for model in ["qwen3-0.6b", "qwen2.5-7b", "mistral-7b-v0.3"] {
            let entry = Models::builtin().unwrap().resolve(model).unwrap();
            let text = with_call_threshold("# mine", &entry, 0.5);
            assert!(text.starts_with("# mine\n\n[[model]]\n"), "{text}");
            let mut found = read(&text).remove(0);
            assert_eq!(found.call_threshold.take(), Some(0.5));
            found.place = entry.place.clone();
            assert_eq!(found, entry);
        }
    }
}
