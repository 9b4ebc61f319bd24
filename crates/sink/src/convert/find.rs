//! Converters by name.

use super::{
    ByteArrayConverter, Converter, ConverterConfigError, ConverterSettings, HeaderConverter,
    JsonConverter, SimpleHeaderConverter, StringConverter,
};

/// A converter for keys or values. `class` is the Java class's name, full or simple, or `bytes`,
/// `string` or `json`.
///
/// # Errors
/// [`ConverterConfigError`]: no such converter, one that isn't here yet, or a setting that it can't
/// have.
pub fn find(
    class: &str,
    settings: &ConverterSettings,
) -> Result<Box<dyn Converter>, ConverterConfigError> {
    Ok(match Name::of(class, FOR_VALUES)? {
        Name::Bytes => Box::new(ByteArrayConverter::new()),
        Name::String => Box::new(StringConverter::new(settings)?),
        Name::Json => Box::new(JsonConverter::new(settings)?),
        Name::SimpleHeader => return Err(unknown(class, FOR_VALUES)),
    })
}

/// A converter for headers. `class` is the Java class's name, full or simple, or `simple`, `bytes`,
/// `string` or `json`.
///
/// # Errors
/// As [`find`].
pub fn find_header(
    class: &str,
    settings: &ConverterSettings,
) -> Result<Box<dyn HeaderConverter>, ConverterConfigError> {
    Ok(match Name::of(class, FOR_HEADERS)? {
        Name::Bytes => Box::new(ByteArrayConverter::new()),
        Name::String => Box::new(StringConverter::new(settings)?),
        Name::Json => Box::new(JsonConverter::new(settings)?),
        Name::SimpleHeader => Box::new(SimpleHeaderConverter::new()),
    })
}

#[derive(Clone, Copy)]
enum Name {
    Bytes,
    String,
    Json,
    SimpleHeader,
}

impl Name {
    fn of(class: &str, known: &str) -> Result<Self, ConverterConfigError> {
        let class = class.trim();
        let simple = class.rsplit('.').next().unwrap_or(class);
        let is = |package: &str, name: &str, short: &str| {
            class == short
                || simple == name && (class == simple || class == format!("{package}.{name}"))
        };
        if is(CONVERTERS, "ByteArrayConverter", "bytes") {
            return Ok(Self::Bytes);
        }
        if is(STORAGE, "StringConverter", "string") {
            return Ok(Self::String);
        }
        if is(JSON, "JsonConverter", "json") {
            return Ok(Self::Json);
        }
        if is(STORAGE, "SimpleHeaderConverter", "simple") {
            return Ok(Self::SimpleHeader);
        }
        if NOT_HERE_YET.contains(&simple) {
            return Err(ConverterConfigError::NotHereYet {
                class: class.to_owned(),
                known: known.to_owned(),
            });
        }
        Err(unknown(class, known))
    }
}

fn unknown(class: &str, known: &str) -> ConverterConfigError {
    ConverterConfigError::UnknownClass {
        class: class.trim().to_owned(),
        known: known.to_owned(),
    }
}

const CONVERTERS: &str = "org.apache.kafka.connect.converters";
const STORAGE: &str = "org.apache.kafka.connect.storage";
const JSON: &str = "org.apache.kafka.connect.json";

const FOR_VALUES: &str = "ByteArrayConverter, StringConverter, JsonConverter";
const FOR_HEADERS: &str =
    "SimpleHeaderConverter, ByteArrayConverter, StringConverter, JsonConverter";

/// Converters that Connect's users have, and this crate hasn't.
const NOT_HERE_YET: [&str; 9] = [
    "ShortConverter",
    "IntegerConverter",
    "LongConverter",
    "FloatConverter",
    "DoubleConverter",
    "BooleanConverter",
    "AvroConverter",
    "ProtobufConverter",
    "JsonSchemaConverter",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converters_are_found_by_full_simple_and_short_names() {
        let settings = ConverterSettings::new();
        for class in [
            "org.apache.kafka.connect.converters.ByteArrayConverter",
            "ByteArrayConverter",
            "bytes",
            " org.apache.kafka.connect.storage.StringConverter ",
            "StringConverter",
            "string",
            "org.apache.kafka.connect.json.JsonConverter",
            "JsonConverter",
            "json",
        ] {
            let converter = find(class, &settings).unwrap();
            let header = find_header(class, &settings).unwrap();
            assert_eq!(converter.class_name(), header.class_name(), "{class}");
        }
        let simple = find_header("SimpleHeaderConverter", &settings).unwrap();
        assert_eq!(
            simple.class_name(),
            "org.apache.kafka.connect.storage.SimpleHeaderConverter"
        );
    }

    #[test]
    fn what_is_not_here_says_so_and_names_what_is() {
        let settings = ConverterSettings::new();
        for class in ["io.confluent.connect.avro.AvroConverter", "LongConverter"] {
            let error = find(class, &settings).unwrap_err();
            assert!(matches!(error, ConverterConfigError::NotHereYet { .. }));
            assert!(error.to_string().contains("JsonConverter"), "{error}");
        }
        for class in [
            "jsn",
            "org.example.JsonConverter",
            "SimpleHeaderConverter",
            "",
        ] {
            let error = find(class, &settings).unwrap_err();
            assert!(
                matches!(error, ConverterConfigError::UnknownClass { .. }),
                "{class}"
            );
        }
    }
}
