//! What a configuration can name beside sinks.

/// A converter or a configuration provider that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuiltIn {
    /// Its short name: a class by itself for converters, a customary name for providers.
    pub name: &'static str,
    /// The Java class that it stands for.
    pub class: &'static str,
    /// What it does, in a line without capital and full stop.
    pub purpose: &'static str,
}

const fn built_in(name: &'static str, class: &'static str, purpose: &'static str) -> BuiltIn {
    BuiltIn {
        name,
        class,
        purpose,
    }
}

/// For `key.converter`, `value.converter` and, all of them, `header.converter`.
pub const CONVERTERS: &[BuiltIn] = &[
    built_in(
        "bytes",
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "bytes as they are; the default of keys and values",
    ),
    built_in(
        "string",
        "org.apache.kafka.connect.storage.StringConverter",
        "text",
    ),
    built_in(
        "json",
        "org.apache.kafka.connect.json.JsonConverter",
        "JSON, with its schema beside it unless schemas.enable=false",
    ),
    built_in(
        "simple",
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "headers alone: what their text looks like; their default",
    ),
];

/// For `config.providers.NAME.class` in a worker's file.
pub const PROVIDERS: &[BuiltIn] = &[
    built_in(
        "env",
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "variables of the environment: ${env:NAME}",
    ),
    built_in(
        "file",
        "org.apache.kafka.common.config.provider.FileConfigProvider",
        "keys of properties files: ${file:/path:key}",
    ),
    built_in(
        "dir",
        "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "whole files: ${dir:/path:file}",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Properties, load_properties};
    use crate::connector::Registry;
    use crate::convert::{ConverterSettings, find, find_header};

    #[test]
    fn every_converter_is_found_by_its_name_and_its_class() {
        let settings = ConverterSettings::new();
        for converter in CONVERTERS {
            for class in [converter.name, converter.class] {
                assert!(find_header(class, &settings).is_ok(), "{class}");
                let is_of_headers = converter.name == "simple";
                assert_eq!(find(class, &settings).is_err(), is_of_headers, "{class}");
            }
        }
    }

    #[test]
    fn every_provider_is_one_that_a_worker_can_name() {
        let mut worker = Properties::new("worker.properties");
        worker.set("bootstrap.servers", "localhost:9092");
        let names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name).collect();
        worker.set("config.providers", names.join(","));
        for provider in PROVIDERS {
            let key = format!("config.providers.{}.class", provider.name);
            worker.set(key, provider.class);
        }
        let loaded = load_properties(worker, Vec::new(), true, &Registry::new());
        assert_eq!(loaded.unwrap().warnings, []);
    }
}
