//! A test of the store before a log is trusted to it.

use futures_util::future::join_all;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::fields::hex;
use crate::nesting::refuse_nested;
use crate::store::{Put, Store};

/// Concurrent writers of one key. Stores that check first and write later pass the test with fewer.
const WRITERS: usize = 64;

/// Puts one key 64 times at once, each with other bytes and each only if it is absent: exactly one must succeed, and
/// its bytes must be read back. The key is deleted again. A location in a folder of another log is refused before.
///
/// # Errors
///
/// [`Error::Invalid`] in another log's folder; [`Error::Unusable`] if several puts succeeded or the bytes are another
/// writer's; the store's if it did not answer.
pub async fn probe(store: &Store) -> Result<()> {
    refuse_nested(store).await?;
    let name = format!("probe/{}", hex(&store.env.random()));
    let puts = (0..WRITERS).map(|writer| {
        let bytes = Bytes::from(format!("writer {writer:02} of {name}\n"));
        let name = &name;
        async move { (bytes.clone(), store.create(name, bytes).await) }
    });
    let answers = join_all(puts).await;
    let found = store.get(&name).await?;
    let cleaned = store.delete(std::slice::from_ref(&name)).await;
    check(answers, found)?;
    cleaned
}

fn check(answers: Vec<(Bytes, Put)>, found: Option<Bytes>) -> Result<()> {
    let winners: Vec<_> = answers
        .iter()
        .filter(|(_, put)| matches!(put, Put::Created))
        .map(|(bytes, _)| bytes)
        .collect();
    let several = |count: usize| {
        Err(Error::Unusable(format!(
            "{count} of {WRITERS} conditional puts of one key succeeded, where one must; \
             it lacks `If-None-Match: *`, or does not keep to it under concurrency"
        )))
    };
    match (winners.as_slice(), found) {
        ([winner], Some(found)) if found == **winner => Ok(()),
        ([_], _) => Err(Error::Unusable(
            "the bytes of a put that succeeded were not read back: another one replaced them"
                .into(),
        )),
        ([], found) => {
            // If answers were lost, one of these writers may have won without knowing.
            if found.is_some_and(|found| answers.iter().any(|(bytes, _)| *bytes == found)) {
                return Ok(());
            }
            match first_error(answers) {
                // The error says nothing about the store's conditional puts.
                Some(error) if !error.is_lasting() => Err(error),
                Some(error) => Err(Error::Unusable(error.to_string())),
                None => several(0),
            }
        }
        (winners, _) => several(winners.len()),
    }
}

fn first_error(answers: Vec<(Bytes, Put)>) -> Option<Error> {
    answers.into_iter().find_map(|(_, put)| match put {
        Put::Unknown(error) if !error.is_conflict() => Some(error),
        _ => None,
    })
}
