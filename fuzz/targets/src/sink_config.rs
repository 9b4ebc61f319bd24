//! Configuration files of the sink runtime.

use std::path::Path;

use sharegroup_sink::config::{Properties, load_properties};

/// Input: whether foreign keys are errors, then a worker file and connector files with a NUL between
/// them; each is Java properties or JSON.
pub fn sink_config(data: &[u8]) {
    let [flags, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let mut files: Vec<_> = text.split('\0').take(4).filter_map(read).collect();
    if files.is_empty() {
        return;
    }
    let connectors = files.split_off(1);
    let worker = files.remove(0);
    let registry = sharegroup_connectors::registry();
    match load_properties(worker, connectors, flags & 1 == 1, &registry) {
        Ok(loaded) => drop(format!("{loaded:?}")),
        Err(problems) => problems
            .iter()
            .for_each(|problem| drop(problem.to_string())),
    }
}

fn read(text: &str) -> Option<Properties> {
    let file = Path::new("fuzz.properties");
    let mut problems = Vec::new();
    let properties = Properties::parse(file, text, &mut problems);
    match &properties {
        Ok(properties) => written_again_is_the_same(file, properties),
        Err(problem) => drop(problem.to_string()),
    }
    properties.ok()
}

fn written_again_is_the_same(file: &Path, properties: &Properties) {
    let escaped = |text: &str| -> String {
        text.chars()
            .flat_map(|character| match character {
                '\n' => vec!['\\', 'n'],
                '\r' => vec!['\\', 'r'],
                other => vec!['\\', other],
            })
            .collect()
    };
    let lines: String = properties
        .iter()
        .map(|(key, value)| format!("{}={}\n", escape(key, escaped), escape(value, escaped)))
        .collect();
    let mut problems = Vec::new();
    let again = Properties::parse(file, &lines, &mut problems).expect("a legal file");
    assert!(again.iter().eq(properties.iter()), "{lines:?}");
}

/// Escapes what would mean something else; letters behind a backslash do.
fn escape(text: &str, escaped: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            out.push(character);
        } else {
            out.push_str(&escaped(character.encode_utf8(&mut [0; 4])));
        }
    }
    out
}
