//! Connections over tokio.
