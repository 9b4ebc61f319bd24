//! The declaration of messages.

/// The versions in which a field is on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSpec {
    since: i16,
    until: i16,
    nullable_since: i16,
    tag: Option<u32>,
}

/// On the wire from `version` on.
pub(crate) const fn since(version: i16) -> FieldSpec {
    FieldSpec {
        since: version,
        until: i16::MAX,
        nullable_since: 0,
        tag: None,
    }
}

impl FieldSpec {
    /// On the wire up to `version`.
    pub(crate) const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    /// May be null from `version` on (only for fields that are an `Option`).
    pub(crate) const fn nullable_since(mut self, version: i16) -> Self {
        self.nullable_since = version;
        self
    }

    /// Lives in the tagged section.
    pub(crate) const fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Outside the tagged section of this version.
    pub(crate) const fn is_plain(&self, version: i16) -> bool {
        self.tag.is_none() && self.since <= version && version <= self.until
    }

    /// In the tagged section of this version.
    pub(crate) fn is_tagged(&self, version: i16) -> bool {
        self.tag.is_some() && self.since <= version && version <= self.until
    }

    /// Whether this is the field of `tag`.
    pub(crate) fn has_tag(&self, version: i16, tag: u32) -> bool {
        self.is_tagged(version) && self.tag == Some(tag)
    }

    /// The tag's number.
    pub(crate) fn tag_number(&self) -> u32 {
        self.tag.unwrap_or(u32::MAX)
    }

    /// The field's context in a message's.
    pub(crate) const fn context(
        &self,
        context: crate::primitive::Context,
    ) -> crate::primitive::Context {
        crate::primitive::Context {
            nullable: context.version >= self.nullable_since,
            ..context
        }
    }
}

/// Declares structs of a message.
///
/// `field: Type = since(1).until(3) => default` : versions and default may be left out (all
/// versions, the type's default). A head `Name (key 78, versions 1..=2, flexible 0) -> Response`
/// makes it a request, `Name (versions 1..=2, flexible 0)` a response, no head a nested struct.
/// Tagged fields must stand last and in ascending order of their tags; they are written only where
/// they differ from their default.
macro_rules! message {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident
        $(($(key $key:literal,)? api $api:literal, versions $min:literal ..= $max:literal, flexible $flexible:literal))?
        $(-> $response:ty)?
        {
            $(
                $(#[$field_meta:meta])*
                pub $field:ident : $type:ty $(= $spec:expr)? $(=> $default:expr)?
            ),* $(,)?
        }
    )+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $crate::message::schema::message!(@default $($default)?), )* }
            }
        }

        impl $crate::primitive::Wire for $name {
            fn bytes_min(context: $crate::primitive::Context) -> usize {
                // A flexible struct ends with the count of its tagged fields.
                usize::from(context.flexible) $( + {
                    const SPEC: $crate::message::FieldSpec = $crate::message::schema::message!(@spec $($spec)?);
                    if SPEC.is_plain(context.version) { <$type as $crate::primitive::Wire>::bytes_min(context) } else { 0 }
                } )*
            }

            #[allow(unused_mut, unused_variables)]
            fn write(&self, context: $crate::primitive::Context, out: &mut bytes::BytesMut) {
                let mut tagged: u32 = 0;
                $( {
                    const SPEC: $crate::message::FieldSpec = $crate::message::schema::message!(@spec $($spec)?);
                    if SPEC.is_plain(context.version) {
                        $crate::primitive::Wire::write(&self.$field, SPEC.context(context), out);
                    } else if SPEC.is_tagged(context.version) && self.$field != Self::default().$field {
                        tagged += 1;
                    }
                } )*
                if context.flexible {
                    $crate::primitive::write_uvarint(tagged, out);
                    if tagged > 0 {
                        $( {
                            const SPEC: $crate::message::FieldSpec = $crate::message::schema::message!(@spec $($spec)?);
                            if SPEC.is_tagged(context.version) && self.$field != Self::default().$field {
                                let mut content = bytes::BytesMut::new();
                                $crate::primitive::Wire::write(&self.$field, SPEC.context(context), &mut content);
                                $crate::primitive::write_uvarint(SPEC.tag_number(), out);
                                $crate::primitive::write_uvarint(u32::try_from(content.len()).unwrap_or(u32::MAX), out);
                                out.extend_from_slice(&content);
                            }
                        } )*
                    }
                }
            }

            fn read(
                context: $crate::primitive::Context,
                reader: &mut $crate::primitive::Reader<'_>,
            ) -> Result<Self, $crate::error::DecodeError> {
                #[allow(unused_mut)]
                let mut value = Self::default();
                $( {
                    const SPEC: $crate::message::FieldSpec = $crate::message::schema::message!(@spec $($spec)?);
                    if SPEC.is_plain(context.version) {
                        value.$field = $crate::primitive::Wire::read(SPEC.context(context), reader)?;
                    }
                } )*
                if context.flexible {
                    #[allow(unused_variables)]
                    reader.tagged_fields(|tag, reader| {
                        $( {
                            const SPEC: $crate::message::FieldSpec = $crate::message::schema::message!(@spec $($spec)?);
                            if SPEC.has_tag(context.version, tag) {
                                value.$field = $crate::primitive::Wire::read(SPEC.context(context), reader)?;
                                return Ok(true);
                            }
                        } )*
                        Ok(false)
                    })?;
                }
                Ok(value)
            }
        }

        impl $crate::message::json::Json for $name {
            fn json(&self, version: i16, out: &mut String) {
                out.push('{');
                $( {
                    const SPEC: $crate::message::FieldSpec = $crate::message::schema::message!(@spec $($spec)?);
                    if SPEC.is_plain(version) || (SPEC.is_tagged(version) && self.$field != Self::default().$field) {
                        $crate::message::json::field(stringify!($field), &self.$field, version, out);
                    }
                } )*
                out.push('}');
            }
        }

        // A nullable struct: one byte says whether it is there.
        impl $crate::primitive::Wire for Option<$name> {
            fn bytes_min(_: $crate::primitive::Context) -> usize {
                1
            }

            fn write(&self, context: $crate::primitive::Context, out: &mut bytes::BytesMut) {
                $crate::primitive::Wire::write(&(if self.is_some() { 1_i8 } else { -1 }), context, out);
                if let Some(value) = self {
                    $crate::primitive::Wire::write(value, context, out);
                }
            }

            fn read(
                context: $crate::primitive::Context,
                reader: &mut $crate::primitive::Reader<'_>,
            ) -> Result<Self, $crate::error::DecodeError> {
                if <i8 as $crate::primitive::Wire>::read(context, reader)? < 0 {
                    return Ok(None);
                }
                <$name as $crate::primitive::Wire>::read(context, reader).map(Some)
            }
        }

        $(
            impl $crate::message::Message for $name {
                const NAME: &'static str = $api;
                const VERSION_MIN: i16 = $min;
                const VERSION_MAX: i16 = $max;
                const FLEXIBLE_SINCE: i16 = $flexible;
            }

            $crate::message::schema::message!(@request $name $($key)? );
        )?
        $(
            impl $crate::message::Request for $name {
                const KEY: i16 = Self::API_KEY;
                type Response = $response;
            }
        )?
    )+};

    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@spec) => { $crate::message::since(0) };
    (@spec $spec:expr) => { $spec };
    (@request $name:ident) => {};
    (@request $name:ident $key:literal) => {
        impl $name {
            /// The API's key.
            pub const API_KEY: i16 = $key;
        }
    };
}

pub(crate) use message;
