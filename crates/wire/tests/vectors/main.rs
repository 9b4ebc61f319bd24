//! Messages and record batches against bytes made by Apache Kafka's own Java library, both ways.
//!
//! `SHAREGROUP_VECTORS` names another folder of vectors in the same form.

mod batches;
#[path = "../messages/mod.rs"]
mod messages;

use std::collections::HashSet;

use messages::{kinds, own_vectors, vectors, vectors_folder};

#[test]
fn every_vector_of_the_java_library_decodes_to_its_json_and_encodes_to_its_bytes() {
    let folder = vectors_folder();
    let vectors = vectors(&folder);
    assert!(!vectors.is_empty(), "no vectors in {}", folder.display());
    let mut failures = Vec::new();
    for vector in &vectors {
        if let Err(failure) = check(vector) {
            failures.push(format!(
                "{} version {}: {failure}",
                vector.place, vector.version
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} vectors failed:\n{}",
        failures.len(),
        vectors.len(),
        failures.join("\n")
    );
    let checked = vectors.len() + batches::check_all(&folder);
    println!("vectors checked: {checked}");
}

fn check(vector: &messages::Vector) -> Result<(), String> {
    let body =
        (vector.kind.decode)(&vector.body, vector.version).map_err(|error| error.to_string())?;
    let mut ours: serde_json::Value =
        serde_json::from_str(&body.to_json(vector.version)).map_err(|error| error.to_string())?;
    blank_records(&mut ours);
    if ours != vector.json {
        return Err(format!("is\n  {ours}\nand should be\n  {}", vector.json));
    }
    let bytes = body.to_bytes(vector.version);
    if bytes != vector.body {
        return Err(format!("encodes to {bytes:02x?}"));
    }
    Ok(())
}

/// Java's converter prints no records. That ours are the right ones shows in the encoding, and in
/// [`records_are_the_bytes_between_their_neighbours`].
fn blank_records(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(blank_records),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                if name == "records" && !value.is_null() {
                    *value = "".into();
                } else {
                    blank_records(value);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn records_are_the_bytes_between_their_neighbours() {
    // The batch that stands in every `records` field of the vectors: k0 = v0, k1 = v1.
    const BATCH: &str = "AAAAAAAAAAAAAABH/////wKNBHX0AAAAAAABAAABi8/laAAAAAGLz+VoAf//////////////////\
                         AAAAAhQAAAAEazAEdjAAFAACAgRrMQR2MQA=";
    let mut batches = 0;
    for vector in vectors(&own_vectors()) {
        let json = (vector.kind.decode)(&vector.body, vector.version)
            .unwrap()
            .to_json(vector.version);
        let mut rest = json.as_str();
        while let Some((_, after)) = rest.split_once("\"records\":\"") {
            let (records, after) = after.split_once('"').unwrap();
            assert_eq!(records, BATCH, "{}", vector.place);
            batches += 1;
            rest = after;
        }
    }
    assert!(batches > 0);
}

#[test]
fn every_version_of_every_message_has_vectors() {
    let covered: HashSet<(String, i16)> = vectors(&own_vectors())
        .into_iter()
        .map(|vector| (vector.kind.name, vector.version))
        .collect();
    for kind in kinds() {
        for version in kind.versions {
            assert!(
                covered.contains(&(kind.name.clone(), version)),
                "{} version {version}",
                kind.name
            );
        }
    }
}
