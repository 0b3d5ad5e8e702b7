//! Formats read off templates that declare none.

use callwright::format::Format;
use callwright::message::{Arguments, Message, ToolCall};
use callwright::template::ChatTemplate;
use serde_json::{Value, json};

#[test]
fn dump() {
    let folder = std::path::Path::new("/work/shared/conformance/templates");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    for path in names {
        let template = ChatTemplate::from_file(&path).unwrap();
        let started = std::time::Instant::now();
        let inference = Format::infer(&template);
        let took = started.elapsed();
        println!("===== {} {took:?}\nnotes: {:?}", path.file_name().unwrap().to_str().unwrap(), inference.notes);
        if let Some(format) = &inference.format {
            println!("{}", format.to_toml());
            let read = Format::parse_declaration(&format.to_toml()).unwrap().unwrap();
            assert_eq!(*read, **format);
        }
    }
}
