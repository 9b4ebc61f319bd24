//! The `server.properties` of a node.

use std::fmt::Write as _;
use std::path::PathBuf;

const SINGLE: &str = include_str!("../templates/single.properties");
const THREE: &str = include_str!("../templates/three.properties");

/// Where one node listens and keeps its data.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) node_id: i32,
    pub(crate) port: u16,
    pub(crate) controller_port: u16,
    /// Kafka's `log.dirs`.
    pub(crate) data: PathBuf,
}

/// Renders the properties of `node`, one of `nodes`: the template, then `settings` over it.
pub(crate) fn render(node: &Node, nodes: &[Node], settings: &[(String, String)]) -> String {
    let voters: Vec<_> = nodes
        .iter()
        .map(|n| format!("{}@127.0.0.1:{}", n.node_id, n.controller_port))
        .collect();
    let template = if nodes.len() == 1 { SINGLE } else { THREE };
    let fill = |value: &str| {
        value
            .replace("@NODE_ID@", &node.node_id.to_string())
            .replace("@PORT@", &node.port.to_string())
            .replace("@CONTROLLER_PORT@", &node.controller_port.to_string())
            .replace("@VOTERS@", &voters.join(","))
            .replace("@DATA@", &node.data.display().to_string())
    };
    let mut properties: Vec<(String, String)> = template
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), fill(value)))
        .collect();
    for (key, value) in settings {
        properties.retain(|(known, _)| known != key);
        properties.push((key.clone(), value.clone()));
    }
    let mut text = String::new();
    for (key, value) in &properties {
        escape(key, true, &mut text);
        text.push('=');
        escape(value, false, &mut text);
        text.push('\n');
    }
    text
}

/// Writes a key or a value as `java.util.Properties` reads it from a stream of Latin-1 bytes.
fn escape(word: &str, is_key: bool, out: &mut String) {
    for (index, unit) in word.encode_utf16().enumerate() {
        match char::from_u32(u32::from(unit)) {
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(' ') if is_key || index == 0 => out.push_str("\\ "),
            Some(c @ ('=' | ':' | '#' | '!')) if is_key => out.extend(['\\', c]),
            Some(c) if c.is_ascii() && !c.is_ascii_control() => out.push(c),
            // Writing to a string can't fail.
            _ => drop(write!(out, "\\u{unit:04x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node_id: i32) -> Node {
        let port = 9000 + u16::try_from(node_id).unwrap();
        Node {
            node_id,
            port,
            controller_port: port + 100,
            data: PathBuf::from(format!("/data/{node_id}")),
        }
    }

    fn lines(nodes: &[Node], settings: &[(&str, &str)]) -> Vec<String> {
        let settings: Vec<_> = settings
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        render(&nodes[0], nodes, &settings)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn single_node_is_its_own_voter() {
        let lines = lines(&[node(1)], &[]);
        for expected in [
            "node.id=1",
            "listeners=PLAINTEXT://127.0.0.1:9001,CONTROLLER://127.0.0.1:9101",
            "controller.quorum.voters=1@127.0.0.1:9101",
            "log.dirs=/data/1",
            "offsets.topic.replication.factor=1",
            "log.retention.ms=-1",
        ] {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected} in {lines:#?}"
            );
        }
        assert!(
            !lines
                .iter()
                .any(|line| line.contains('@') && !line.starts_with("controller.quorum"))
        );
    }

    #[test]
    fn three_nodes_know_each_other() {
        let lines = lines(&[node(2), node(1), node(3)], &[]);
        assert!(lines.contains(&"node.id=2".to_owned()));
        assert!(
            lines.contains(
                &"controller.quorum.voters=2@127.0.0.1:9102,1@127.0.0.1:9101,3@127.0.0.1:9103"
                    .to_owned()
            )
        );
        assert!(lines.contains(&"min.insync.replicas=2".to_owned()));
    }

    #[test]
    fn setting_replaces_the_template_and_the_last_one_wins() {
        let lines = lines(
            &[node(1)],
            &[
                ("offsets.topic.num.partitions", "7"),
                ("a.b", "1"),
                ("a.b", "2"),
            ],
        );
        let of = |key: &str| {
            lines
                .iter()
                .filter(|line| line.starts_with(key))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of("offsets.topic.num.partitions"),
            ["offsets.topic.num.partitions=7"]
        );
        assert_eq!(of("a.b"), ["a.b=2"]);
    }

    #[test]
    fn special_characters_are_escaped() {
        let lines = lines(&[node(1)], &[("k y", " v\\a=b:c"), ("u", "é\n𝄞")]);
        assert!(lines.contains(&r"k\ y=\ v\\a=b:c".to_owned()), "{lines:#?}");
        assert!(
            lines.contains(&r"u=\u00e9\n\ud834\udd1e".to_owned()),
            "{lines:#?}"
        );
    }
}
