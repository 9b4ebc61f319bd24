//! Sinks by the names that people type.

use std::borrow::Cow;
use std::sync::Arc;

use sharegroup_sink::config::nearest;
use sharegroup_sink::{Connector, Registry};

use crate::exit::Problems;

/// The sink of that name or class.
pub(crate) fn find(registry: &Registry, name: &str) -> Result<Arc<dyn Connector>, Problems> {
    registry.find(name).ok_or_else(|| {
        let names = registry.names();
        let meant = nearest(name, names.iter().map(|name| Cow::Borrowed(*name)));
        let advice = match meant {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there are {}", names.join(", ")),
        };
        Problems::one(format!("{name} is not a known sink; {advice}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_one_is_told_which() {
        let registry = sharegroup_connectors::registry();
        let said = |name: &str| find(&registry, name).err().map(|error| error.to_string());
        assert_eq!(said("FileStreamSink"), None);
        let near = said("flie").unwrap();
        assert!(near.ends_with("did you mean file?"), "{near}");
        let far = said("elasticsearch").unwrap();
        assert!(far.contains("there are blackhole, console, file"), "{far}");
    }
}
