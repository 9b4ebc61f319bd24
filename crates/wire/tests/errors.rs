//! The error codes against the table of Apache Kafka's own Java library.

use sharegroup_wire::ErrorCode;

/// Code, name and whether Kafka's clients retry it, of `org.apache.kafka.common.protocol.Errors` 4.4.0.
const ERRORS: &str = include_str!("../testdata/Errors.tsv");

#[test]
fn every_error_of_the_java_library_has_its_name_number_and_retriable_flag() {
    let mut known = 0;
    for line in ERRORS.lines() {
        let [code, name, retriable] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let error = ErrorCode::from_code(code.parse().unwrap());
        assert_eq!(
            (error.name(), error.is_retriable().to_string().as_str()),
            (name, retriable),
            "{line}"
        );
        assert!(
            !error.sentence().is_empty() && !error.sentence().ends_with('.'),
            "{line}"
        );
        known += 1;
    }
    let ours = (i16::MIN..=i16::MAX)
        .map(ErrorCode::from_code)
        .filter(|it| !matches!(it, ErrorCode::Unknown(_)));
    assert_eq!(ours.count(), known);
}
