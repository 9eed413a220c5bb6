//! One string of a JSON object, without making values of the others.

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// A string, which is appended to the output.
    Text,
    /// Nothing.
    Missing,
    /// A value that is no string.
    Other(&'static str),
    /// The whole is no object.
    NoObject(&'static str),
}

/// Appends the string that `path` leads to. Of several fields of one name the last one counts.
pub(super) struct Field<'p, 'o> {
    pub(super) path: &'p [String],
    pub(super) out: &'o mut String,
    pub(super) is_outermost: bool,
}

impl Field<'_, '_> {
    fn no_object(&self, what: &'static str) -> Found {
        match (self.path, self.is_outermost) {
            ([], _) => Found::Other(what),
            (_, true) => Found::NoObject(what),
            (_, false) => Found::Missing,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Field<'_, '_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_, '_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let Some((name, rest)) = self.path.split_first() else {
            IgnoredAny.visit_map(map)?;
            return Ok(Found::Other("an object"));
        };
        let start = self.out.len();
        let mut found = Found::Missing;
        while let Some(is_it) = map.next_key_seed(Key(name))? {
            if is_it {
                self.out.truncate(start);
                let field = Field { path: rest, out: &mut *self.out, is_outermost: false };
                found = map.next_value_seed(field)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Found, A::Error> {
        IgnoredAny.visit_seq(seq)?;
        Ok(self.no_object("a list"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Found, E> {
        if self.path.is_empty() {
            self.out.push_str(value);
            return Ok(Found::Text);
        }
        Ok(self.no_object("a string"))
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        Ok(self.no_object("null"))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Found, E> {
        Ok(self.no_object(if value { "true" } else { "false" }))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
        Ok(self.no_object("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
        Ok(self.no_object("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
        Ok(self.no_object("a number"))
    }
}

/// Whether a key is this one.
struct Key<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

/// The JSON of the value that a path leads to, not looked into: None where there is none, or it is in no object.
pub(super) struct RawField<'p>(pub(super) &'p [String]);

impl<'de> DeserializeSeed<'de> for RawField<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let value = <&RawValue as serde::Deserialize>::deserialize(deserializer)?;
        let Some((name, rest)) = self.0.split_first() else { return Ok(Some(value)) };
        if !value.get().starts_with('{') {
            return Ok(None);
        }
        let mut reader = serde_json::Deserializer::from_str(value.get());
        reader.deserialize_map(RawMember { name, rest }).map_err(D::Error::custom)
    }
}

struct RawMember<'p> {
    name: &'p str,
    rest: &'p [String],
}

impl<'de> Visitor<'de> for RawMember<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(RawKey(self.name))? {
            if is_it {
                found = map.next_value_seed(RawField(self.rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// As [`Key`], for keys that hold half a surrogate pair too: as bytes they are no error, and equal to no name.
struct RawKey<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for RawKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for RawKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E>(self, key: &[u8]) -> Result<bool, E> {
        Ok(key == self.0.as_bytes())
    }
}
