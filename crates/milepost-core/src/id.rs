//! Names that the outside holds on to: checked once, where they enter, and cheap to clone after that.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What is wrong with a name, in words for the person who typed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("{what} is empty; expected a letter or digit first, then up to 127 of letters, digits, `.`, `_`, `-`")]
    Empty { what: &'static str },
    #[error("{what} `{}` has {length} characters; at most 128 are allowed", printable(.name))]
    TooLong { what: &'static str, name: String, length: usize },
    #[error(
        "{what} `{}` may not contain {found:?}; allowed are letters, digits, `.`, `_`, `-`, and a letter or digit first",
        printable(.name)
    )]
    Character { what: &'static str, name: String, found: char },
    #[error("tenant has {length} bytes; at most 256 are allowed")]
    TenantTooLong { length: usize },
    #[error("tenant {tenant:?} may not contain control characters")]
    TenantControl { tenant: String },
    #[error("tenant is empty; leave it out for a task that needs no lock")]
    TenantEmpty,
    #[error("an idempotency key has 1 to 255 printable ASCII characters")]
    IdempotencyKey,
}

/// A name that is refused may come from anybody, and is shown on a terminal or in a log.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn check_name(what: &'static str, name: &str) -> Result<(), InvalidName> {
    if name.is_empty() {
        return Err(InvalidName::Empty { what });
    }
    // Byte by byte, which is all that a good name takes; a log has a name in nearly every event.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !(name.as_bytes()[0].is_ascii_alphanumeric() && name.bytes().all(allowed)) {
        let bad = |(i, c): &(usize, char)| !(c.is_ascii_alphanumeric() || (*i > 0 && matches!(c, '.' | '_' | '-')));
        let (_, found) = name.chars().enumerate().find(bad).expect("a byte that is not allowed is in some character");
        return Err(InvalidName::Character { what, name: shorten(name), found });
    }
    if name.len() > 128 {
        return Err(InvalidName::TooLong { what, name: shorten(name), length: name.len() });
    }
    Ok(())
}

fn check_tenant(tenant: &str) -> Result<(), InvalidName> {
    if tenant.is_empty() {
        return Err(InvalidName::TenantEmpty);
    }
    if tenant.len() > 256 {
        return Err(InvalidName::TenantTooLong { length: tenant.len() });
    }
    if tenant.chars().any(char::is_control) {
        return Err(InvalidName::TenantControl { tenant: shorten(tenant) });
    }
    Ok(())
}

fn check_idempotency_key(key: &str) -> Result<(), InvalidName> {
    let fits = (1..=255).contains(&key.len()) && key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if fits { Ok(()) } else { Err(InvalidName::IdempotencyKey) }
}

/// A name long enough to recognise, short enough for an error line.
fn shorten(name: &str) -> String {
    if name.chars().count() <= 40 { name.to_owned() } else { name.chars().take(37).chain("...".chars()).collect() }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $pattern:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = $pattern))]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidName> {
                let text = text.as_ref();
                $check(text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        // From the text where it lies: a log has a name in nearly every event.
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Name;
                impl de::Visitor<'_> for Name {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::parse(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Name)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Lets a map keyed by the name be asked with a `&str`.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// A plan's id, unique in its store.
    PlanId,
    "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
    |text: &str| check_name("plan id", text)
);
name_type!(
    /// A task's id, unique in its store.
    TaskId,
    "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
    |text: &str| check_name("task id", text)
);
name_type!(
    /// A stage's name, unique in its task.
    StageName,
    "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
    |text: &str| check_name("stage name", text)
);
name_type!(
    /// What two tasks may not hold at once.
    Tenant,
    r"^[^\x00-\x1f\x7f-\x9f]{1,256}$",
    check_tenant
);
name_type!(
    /// The name that a client gives to one request, so that it is done once however often it is sent.
    IdempotencyKey,
    "^[ -~]{1,255}$",
    check_idempotency_key
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_starts_with_a_letter_or_digit_and_has_128_characters_at_most() {
        for good in ["a", "0", "A.b_c-d", &"x".repeat(128)] {
            assert!(TaskId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "_a", "a/b", "../a", "a b", "a\0", "é", &"x".repeat(129)] {
            assert!(TaskId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refused_name_is_shown_without_the_escapes_that_are_in_it() {
        for bad in ["a\u{1b}[31m", "a\nforged", &"\u{7}".repeat(129)] {
            let shown = TaskId::parse(bad).unwrap_err().to_string();
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn a_tenant_is_any_text_of_256_bytes_without_control_characters() {
        assert!(Tenant::parse("租户 001/eu").is_ok());
        assert!(Tenant::parse("x".repeat(256)).is_ok());
        for bad in ["", "a\nb", "\u{7f}", &"x".repeat(257)] {
            assert!(Tenant::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_idempotency_key_is_printable_ascii_of_255_characters_at_most() {
        for good in ["a", " \"~", &"x".repeat(255)] {
            assert!(IdempotencyKey::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a\nb", "\u{7f}", "é", &"x".repeat(256)] {
            assert!(IdempotencyKey::parse(bad).is_err(), "{bad:?}");
        }
    }
}
