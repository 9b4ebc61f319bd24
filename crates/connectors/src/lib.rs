//! The sinks that come with sharegroup, one folder and one cargo feature each.
//!
//! | `connector.class` | Java class it replaces | what it does |
//! | --- | --- | --- |
//! | `file` | `org.apache.kafka.connect.file.FileStreamSinkConnector` | appends records to files |
//! | `http` | `io.aiven.kafka.connect.http.HttpSinkConnector` | sends records to an HTTP server |
//! | `console` | | prints records to standard output |
//! | `blackhole` | | swallows records, for measuring |
//! | `postgres` | `io.confluent.connect.jdbc.JdbcSinkConnector`, `io.debezium.connector.jdbc.JdbcSinkConnector` | writes rows into PostgreSQL; feature `postgres` |
//!
//! ```
//! let registry = sharegroup_connectors::registry();
//! assert!(registry.find("FileStreamSink").is_some());
//! ```

#[cfg(feature = "blackhole")]
pub mod blackhole;
#[cfg(feature = "console")]
pub mod console;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "http")]
pub mod http;
mod json;
#[cfg(any(feature = "file", feature = "console"))]
mod lent;
pub mod line;
#[cfg(feature = "postgres")]
pub mod postgres;

use sharegroup_sink::Registry;

/// All built-in sinks.
#[must_use]
pub fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "file")]
    let registry = registry.with(file::FileConnector);
    #[cfg(feature = "console")]
    let registry = registry.with(console::ConsoleConnector);
    #[cfg(feature = "http")]
    let registry = registry.with(http::HttpConnector);
    #[cfg(feature = "blackhole")]
    let registry = registry.with(blackhole::BlackholeConnector);
    #[cfg(feature = "postgres")]
    let registry = registry.with(postgres::PostgresConnector);
    registry
}
