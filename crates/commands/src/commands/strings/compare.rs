//! Conditions on the value of a string: the options IFEQ and the like, and the commands that delete a key under such a
//! condition. DIGEST returns a short form of a long value to compare with.

use tierce_keyspace::{Db, Event, IntText, Key, StrView, Value};
use tierce_wire::resp::Rest;
use xxhash_rust::xxh3::xxh3_64;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Scale, at_least, exactly};

const REMOVE: Flags = Flags::WRITE.with(Flags::FAST);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("digest", Group::String, exactly!(digest))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("8.4.0", "O(N) where N is the length of the string value")
        .doc("key", "Returns the XXH3 hash of a string value, as 16 hexadecimal digits.")
        .example(
            r#"
            > SET greeting "Hello world"
            OK
            > DIGEST greeting
            "b6acb9d84a38ff74"
            > SET greeting Goodbye IFDEQ b6acb9d84a38ff74
            OK
            > DIGEST nosuch
            (nil)
            "#,
        ),
    Defined::new("delex", Group::String, at_least!(del_ex))
        .flags(REMOVE)
        .keys(&[KeySpec::at(1, KeyFlags::VARIABLE_REMOVE)])
        .since(
            "8.4.0",
            "O(1) for IFEQ/IFNE, O(N) for IFDEQ/IFDNE where N is the length of the string value",
        )
        .doc(
            "key [IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]",
            "Deletes a key: with `IFEQ` if its string value is equal to another one, with `IFNE` if \
             not, with `IFDEQ` and `IFDNE` depending on its `DIGEST`.",
        )
        .example(
            r#"
            > SET lock:7 worker-1
            OK
            > DELEX lock:7 IFEQ worker-2
            (integer) 0
            > DELEX lock:7 IFEQ worker-1
            (integer) 1
            "#,
        ),
    Defined::new("delifeq", Group::String, exactly!(del_if_eq))
        .flags(REMOVE)
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .since("Valkey 9.0.0", "O(1)")
        .doc("key value", "Deletes a key if its string value is equal to another one.")
        .example(
            r#"
            > SET lock:7 worker-1
            OK
            > DELIFEQ lock:7 worker-2
            (integer) 0
            > DELIFEQ lock:7 worker-1
            (integer) 1
            "#,
        ),
];

/// Length of a digest in hexadecimal digits.
const DIGEST_LEN: usize = 16;

/// Relation of a string to the operand of a condition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    DigestEqual,
    DigestNotEqual,
}

impl Relation {
    /// Returns the relation that an option in lower case stands for.
    pub(super) fn named(option: &[u8]) -> Option<Self> {
        match option {
            b"ifeq" => Some(Self::Equal),
            b"ifne" => Some(Self::NotEqual),
            b"ifdeq" => Some(Self::DigestEqual),
            b"ifdne" => Some(Self::DigestNotEqual),
            _ => None,
        }
    }

    /// Returns true if a string has this relation to the operand. An absent one is equal to nothing, and compared with
    /// any operand.
    ///
    /// # Errors
    /// An operand that is no digest. As in Redis, 16 letters that are no digits are the digest of nothing. An interrupt
    /// if the digest takes long.
    pub(super) fn holds(
        self,
        value: Option<StrView<'_>>,
        operand: &[u8],
        scale: Scale,
    ) -> Result<bool, CommandError> {
        const NOT_A_DIGEST: CommandError =
            CommandError::new("ERR must be exactly 16 hexadecimal characters");
        let wants_equal = matches!(self, Self::Equal | Self::DigestEqual);
        let Some(value) = value else { return Ok(!wants_equal) };
        let mut text = IntText::new();
        let bytes = value.bytes(&mut text);
        let is_equal = match self {
            Self::Equal | Self::NotEqual => bytes == operand,
            _ if operand.len() != DIGEST_LEN => return Err(NOT_A_DIGEST),
            Self::DigestEqual | Self::DigestNotEqual => {
                scale.weigh_bytes(bytes.len())?;
                digest_of(bytes).as_bytes().eq_ignore_ascii_case(operand)
            }
        };
        Ok(is_equal == wants_equal)
    }
}

fn digest_of(bytes: &[u8]) -> String {
    format!("{:0DIGEST_LEN$x}", xxh3_64(bytes))
}

fn digest(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    ctx.read_string(key, |bytes, reply| match bytes {
        Some(bytes) => reply.bulk(digest_of(bytes).as_bytes()),
        None => reply.null(),
    })
}

fn del_ex(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    const UNKNOWN: CommandError =
        CommandError::new("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
    const NOT_A_STRING: CommandError =
        CommandError::new("ERR Key should be of string type if conditions are specified");
    let (mut words, scale) = (Options::of(options), ctx.scale());
    let condition = match (words.next_word(), words.next_value()) {
        (None, _) => None,
        (Some(word), Some(operand)) if words.end().is_ok() => Some((word, operand)),
        _ => return Err(CommandError::arity(ctx.name())),
    };
    let (mut db, key, reply) = ctx.open(key);
    let is_met = match condition {
        None => true,
        // As in Redis, the condition is only looked at if there is a value.
        Some((word, operand)) => match db.value_to_change(key)? {
            None => false,
            Some(Value::Collection(_)) => return Err(NOT_A_STRING),
            Some(Value::Str(value)) => {
                Relation::named(&word).ok_or(UNKNOWN)?.holds(Some(value), operand, scale)?
            }
        },
    };
    reply.int((is_met && remove(&mut db, key)).into());
    Ok(())
}

fn del_if_eq(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2]) -> Done {
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let is_equal = Relation::Equal.holds(db.string_to_change(key)?, value, scale)?;
    reply.int((is_equal && remove(&mut db, key)).into());
    Ok(())
}

fn remove(db: &mut Db<'_>, key: Key<'_>) -> bool {
    let is_removed = db.remove(key);
    if is_removed {
        db.event(Event::Del, key);
    }
    is_removed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of redis-server 8.4.
    #[test]
    fn digests_are_those_of_redis() {
        let leading_zeros: &[u8] = b"v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5\
            wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd";
        for (bytes, digest) in [
            (&b""[..], "2d06800538d394c2"),
            (b"abc", "78af5f94892f3950"),
            (b"hello", "9555e8555c62dcfd"),
            (b"123", "404a763b3f4c8c9a"),
            (b"Hello world", "b6acb9d84a38ff74"),
            (leading_zeros, "00006c38adf31777"),
        ] {
            assert_eq!(digest_of(bytes), digest);
        }
    }
}
