//! Arguments that every reader reads alike. The bytes that are reviewed are the bytes that run, but a reviewer and a tool
//! could still take them for different things: of a doubled key one reads the first and one the last value.

use std::{collections::HashSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Largest whole number that every reader of JSON takes for the same: 2^53 − 1.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// Checks that a call's arguments are one JSON object, without doubled keys at any depth, and without numbers that some
/// readers round.
///
/// # Errors
///
/// What is ambiguous, for the model that wrote it.
pub fn unambiguous(arguments: &str) -> Result<(), String> {
    if !arguments.trim_start().starts_with('{') {
        return Err("the arguments are no JSON object".to_owned());
    }
    let mut deserializer = serde_json::Deserializer::from_str(arguments);
    Reading
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|error| error.to_string())
}

/// Reads any value and keeps nothing of it.
struct Reading;

impl<'de> DeserializeSeed<'de> for Reading {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(Self)?;
            if let Some(doubled) = keys.replace(key) {
                return Err(A::Error::custom(format!("the key `{doubled}` is there twice")));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while sequence.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        match number <= EXACT_MAX {
            true => Ok(()),
            false => Err(E::custom(format!("the number `{number}` is not read alike everywhere"))),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.visit_u64(number.unsigned_abs())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        match number.abs() <= EXACT_MAX as f64 {
            true => Ok(()),
            false => Err(E::custom(format!("the number `{number}` is not read alike everywhere"))),
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
