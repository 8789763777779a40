//! What samples have in them: a deserializer that passes everything on, and notes variants, fields and lists on the way.
//!
//! Story: the form of what a list is of was changed, and no golden bytes with it, for all lists of that kind were empty there.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Name and variants of an enum.
type Enum = (&'static str, &'static [&'static str]);

/// What was in all samples together.
#[derive(Default)]
pub struct Seen {
    /// Structs and enums, by name.
    pub types: BTreeSet<&'static str>,
    variants: BTreeMap<Enum, BTreeSet<&'static str>>,
    /// Places that may have something or nothing, or any number: true once there was something.
    filled: BTreeMap<String, bool>,
}

impl Seen {
    /// What no sample has, in words.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for ((name, all), seen) in &self.variants {
            let unseen = all.iter().filter(|variant| !seen.contains(*variant));
            missing.extend(unseen.map(|variant| format!("{name}::{variant}")));
        }
        let empty = self.filled.iter().filter(|(_, is_filled)| !**is_filled);
        missing.extend(empty.map(|(place, _)| format!("something in {place}")));
        missing
    }

    fn fill(&mut self, place: &str, is_filled: bool) {
        *self.filled.entry(place.to_string()).or_default() |= is_filled;
    }
}

/// A deserializer that is looked at.
pub struct Looking<'s, D> {
    pub inner: D,
    pub seen: &'s RefCell<Seen>,
    /// Which field, or part of one, it is at.
    pub place: String,
}

/// What the parts are called of what a visitor is about to get.
#[derive(Clone, Copy)]
enum Parts {
    /// Any number of the same.
    List,
    /// By number.
    Numbered,
    Named(&'static [&'static str]),
    Variants(Enum),
}

struct Look<'s, T> {
    inner: T,
    seen: &'s RefCell<Seen>,
    place: String,
    parts: Parts,
    /// Parts so far.
    count: usize,
}

impl<'s, D> Looking<'s, D> {
    fn look<T>(&self, inner: T, place: &str, parts: Parts) -> Look<'s, T> {
        Look { inner, seen: self.seen, place: place.to_string(), parts, count: 0 }
    }

    fn note_type(&self, name: &'static str) {
        self.seen.borrow_mut().types.insert(name);
    }
}

macro_rules! pass_on {
    ($($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        })+
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Looking<'_, D> {
    type Error = D::Error;

    pass_on! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_unit
        deserialize_identifier deserialize_ignored_any
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let look = self.look(visitor, &self.place, Parts::Numbered);
        self.inner.deserialize_option(look)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.note_type(name);
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.note_type(name);
        let look = self.look(visitor, name, Parts::Numbered);
        self.inner.deserialize_newtype_struct(name, look)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let look = self.look(visitor, &self.place, Parts::List);
        self.inner.deserialize_seq(look)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let look = self.look(visitor, &self.place, Parts::Numbered);
        self.inner.deserialize_tuple(count, look)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.note_type(name);
        let look = self.look(visitor, name, Parts::Numbered);
        self.inner.deserialize_tuple_struct(name, count, look)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let look = self.look(visitor, &self.place, Parts::List);
        self.inner.deserialize_map(look)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.note_type(name);
        let look = self.look(visitor, name, Parts::Named(fields));
        self.inner.deserialize_struct(name, fields, look)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.note_type(name);
        self.seen.borrow_mut().variants.entry((name, variants)).or_default();
        let look = self.look(visitor, name, Parts::Variants((name, variants)));
        self.inner.deserialize_enum(name, variants, look)
    }
}

impl<'s, T> Look<'s, T> {
    /// Where the next part is.
    fn next_place(&self) -> String {
        let (place, count) = (&self.place, self.count);
        match self.parts {
            Parts::List => format!("{place}[]"),
            Parts::Named(fields) => format!("{place}.{}", fields.get(count).unwrap_or(&"?")),
            Parts::Numbered | Parts::Variants(_) => format!("{place}.{count}"),
        }
    }

    fn seed<S>(&self, inner: S) -> Look<'s, S> {
        Look { inner, seen: self.seen, place: self.next_place(), parts: self.parts, count: 0 }
    }

    fn note_part(&mut self, is_there: bool) {
        self.count += usize::from(is_there);
        if matches!(self.parts, Parts::List) {
            self.seen.borrow_mut().fill(&self.place, is_there);
        }
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Look<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.seen.borrow_mut().fill(&self.place, false);
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.seen.borrow_mut().fill(&self.place, true);
        self.inner.visit_some(Looking { inner, seen: self.seen, place: self.place })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let place = self.next_place();
        self.inner.visit_newtype_struct(Looking { inner, seen: self.seen, place })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let Look { inner, seen, place, parts, count } = self;
        inner.visit_seq(Look { inner: access, seen, place, parts, count })
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let Look { inner, seen, place, parts, count } = self;
        inner.visit_map(Look { inner: access, seen, place, parts, count })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let Look { inner, seen, place, parts, count } = self;
        inner.visit_enum(Look { inner: access, seen, place, parts, count })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Look<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Looking { inner, seen: self.seen, place: self.place })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Look<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let seed = self.seed(seed);
        let element = self.inner.next_element_seed(seed)?;
        self.note_part(element.is_some());
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Look<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let seed = self.seed(seed);
        let key = self.inner.next_key_seed(seed)?;
        self.note_part(key.is_some());
        Ok(key)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.seed(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 's, A: EnumAccess<'de>> EnumAccess<'de> for Look<'s, A> {
    type Error = A::Error;
    type Variant = Look<'s, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let number = Cell::new(None);
        let Look { inner, seen, place, parts, count } = self;
        let (value, variant) = inner.variant_seed(Number { inner: seed, number: &number })?;
        let of = match (parts, number.get()) {
            (Parts::Variants((name, variants)), Some(number)) => {
                let variant = variants.get(number as usize).copied();
                let mut all = seen.borrow_mut();
                all.variants.entry((name, variants)).or_default().extend(variant);
                format!("{place}::{}", variant.unwrap_or("?"))
            }
            _ => place,
        };
        Ok((value, Look { inner: variant, seen, place: of, parts: Parts::Numbered, count }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Look<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.seed(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Look { inner, seen, place, .. } = self;
        let look = Look { inner: visitor, seen, place, parts: Parts::Numbered, count: 0 };
        inner.tuple_variant(count, look)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Look { inner, seen, place, .. } = self;
        let look = Look { inner: visitor, seen, place, parts: Parts::Named(fields), count: 0 };
        inner.struct_variant(fields, look)
    }
}

/// Passes the number of a variant on, and notes it.
struct Number<'n, T> {
    inner: T,
    number: &'n Cell<Option<u32>>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Number<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Number { inner, number: self.number })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Number<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Number { inner: visitor, number: self.number })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_identifier(Number { inner: visitor, number: self.number })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Number<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_u32<E: Error>(self, number: u32) -> Result<V::Value, E> {
        self.number.set(Some(number));
        self.inner.visit_u32(number)
    }
}
