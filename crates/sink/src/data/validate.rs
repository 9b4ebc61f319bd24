//! Whether a value fits a schema, by the rules of Connect's `ConnectSchema.validateValue`.

use super::{DataError, Schema, Type, Value, logical};

impl Schema {
    /// Whether a value fits. A struct fits where its schema has the same name and fields; what is in it
    /// was checked when it was made.
    ///
    /// # Errors
    /// [`DataError::Null`] and [`DataError::Mismatch`], with the place.
    pub fn validate(&self, value: &Value) -> Result<(), DataError> {
        let fits = match value {
            Value::Null if self.is_optional() => true,
            Value::Null => {
                return Err(DataError::Null {
                    type_of: self.type_of(),
                    path: String::new(),
                });
            }
            value => match self.name() {
                Some(logical::DECIMAL) => matches!(value, Value::Decimal(_)),
                Some(logical::DATE) => matches!(value, Value::Date(_)),
                Some(logical::TIME) => matches!(value, Value::Time(_)),
                Some(logical::TIMESTAMP) => matches!(value, Value::Timestamp(_)),
                _ => self.fits_type(value)?,
            },
        };
        if fits {
            return Ok(());
        }
        Err(DataError::Mismatch {
            expected: self.shown_type().to_owned(),
            found: value.type_name(),
            path: String::new(),
        })
    }

    /// The type, or the logical type, for messages.
    pub(crate) fn shown_type(&self) -> &str {
        match self.name() {
            Some(logical::DECIMAL) => "Decimal",
            Some(logical::DATE) => "Date",
            Some(logical::TIME) => "Time",
            Some(logical::TIMESTAMP) => "Timestamp",
            _ => self.type_of().name(),
        }
    }

    fn fits_type(&self, value: &Value) -> Result<bool, DataError> {
        let within = |error: DataError| error.within("[]");
        match (self.type_of(), value) {
            (Type::Boolean, Value::Boolean(_))
            | (Type::Int8, Value::Int8(_))
            | (Type::Int16, Value::Int16(_))
            | (Type::Int32, Value::Int32(_))
            | (Type::Int64, Value::Int64(_))
            | (Type::Float32, Value::Float32(_))
            | (Type::Float64, Value::Float64(_))
            | (Type::String, Value::String(_))
            | (Type::Bytes, Value::Bytes(_)) => Ok(true),
            (Type::Array, Value::Array(values)) => {
                if let Some(schema) = self.values() {
                    let mut fits = values.iter().map(|value| schema.validate(value));
                    fits.try_for_each(|fits| fits).map_err(within)?;
                }
                Ok(true)
            }
            (Type::Map, Value::Map(map)) => {
                for (key, value) in map.iter() {
                    let key_fits = self.keys().map_or(Ok(()), |schema| schema.validate(key));
                    let fits = self
                        .values()
                        .map_or(Ok(()), |schema| schema.validate(value));
                    key_fits.and(fits).map_err(within)?;
                }
                Ok(true)
            }
            (Type::Struct, Value::Struct(row)) => {
                let schema = row.schema();
                Ok(schema == self
                    || schema.name() == self.name() && schema.fields() == self.fields())
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logical_schema_takes_its_logical_value_alone() {
        assert_eq!(Schema::date().validate(&Value::Date(0)), Ok(()));
        assert_eq!(
            Schema::date()
                .validate(&Value::Int32(0))
                .unwrap_err()
                .to_string(),
            "INT32 where the schema has Date"
        );
    }

    #[test]
    fn what_is_in_lists_and_maps_is_looked_at() {
        let schema = Schema::builder(Type::Array).values(Schema::required(Type::String));
        let schema = schema.build().unwrap();
        let error = schema
            .validate(&Value::Array([Value::Null].into()))
            .unwrap_err();
        assert_eq!(error.to_string(), "null for a required STRING at `[]`");
    }
}
