//! Pins: objects that a restore or a branch still needs are not deleted.
//!
//! A reader puts its pin first, and then reads the floor: if the floor is not above the pin, pruning has yet to list
//! the pins. Pruning sets the floor first, and then lists the pins.

use std::time::Duration;

use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::fields::{Reader, Writer, hex};
use crate::group::{number_in, read_floor};
use crate::record::{Id, VERSION};
use crate::rules::Rule;
use crate::store::Store;

const MAGIC: [u8; 8] = *b"TIERCEBP";

/// A pin: nothing from this number on is deleted, nor the snapshot that this number follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Its name: `pins/<20 digits>-<nonce>`.
    pub name: String,
    /// The lowest number that is needed.
    pub number: u64,
    /// Expiry, in milliseconds since 1970. 0: it holds until it is removed.
    pub until: u64,
    /// Purpose, which says who needs it.
    pub purpose: String,
}

impl Pin {
    /// Puts a pin. `None`: the objects were pruned already. Objects below the floor can be pinned while another pin,
    /// `held_by`, protects them.
    pub(crate) async fn put(
        store: &Store,
        number: u64,
        until: u64,
        purpose: &str,
        nonce: Id,
        held_by: Option<&str>,
    ) -> Result<Option<Self>> {
        let name = format!("pins/{number:020}-{}", hex(&nonce));
        let pin = Self { name, number, until, purpose: purpose.into() };
        let is_early = !store.keeps(Rule::PinBeforeFloor) && read_floor(store).await? <= number;
        store.ensure(&pin.name, pin.encode().into()).await?;
        if is_early || pin.counts(store, held_by).await? {
            return Ok(Some(pin));
        }
        pin.remove(store).await?;
        Ok(None)
    }

    /// Returns true if the pinned objects are there, and stay.
    async fn counts(&self, store: &Store, held_by: Option<&str>) -> Result<bool> {
        if read_floor(store).await? <= self.number {
            return Ok(true);
        }
        match held_by {
            Some(other) if number_in(other).is_some_and(|number| number <= self.number) => {
                store.exists(other).await
            }
            _ => Ok(false),
        }
    }

    /// Returns all pins, including expired ones.
    pub(crate) async fn list(store: &Store) -> Result<Vec<Self>> {
        let mut pins = Vec::new();
        for listed in store.list_own("pins").await? {
            // A pin that disappears now is not needed any more.
            if let Some(object) = store.get(&listed.name).await? {
                pins.push(Self::decode(&listed.name, &object)?);
            }
        }
        Ok(pins)
    }

    /// Returns true if it holds at this time, in milliseconds since 1970.
    pub fn holds(&self, now: u64) -> bool {
        self.until == 0 || self.until > now
    }

    /// Removes the pin.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn remove(&self, store: &Store) -> Result<()> {
        store.delete(std::slice::from_ref(&self.name)).await
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(&MAGIC);
        out.u16(VERSION);
        out.u64(self.until);
        out.counted(self.purpose.as_bytes());
        let checksum = crc32c::crc32c(&out.0);
        out.u32(checksum);
        out.finish()
    }

    fn decode(name: &str, object: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged(name, "it is no pin, or not all of it");
        let (body, sum) = object.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let mut fields = Reader::new(body);
        let mut read = || {
            let (magic, version) = (fields.array::<8>()?, fields.u16()?);
            let pin = Self {
                name: name.into(),
                number: number_in(name)?,
                until: fields.u64()?,
                purpose: fields.text()?,
            };
            (magic == MAGIC && pin.number > 0).then_some((version, pin))
        };
        match read().ok_or_else(damaged)? {
            (version, _) if version > VERSION => {
                Err(Error::Newer { object: name.into(), version, known: VERSION })
            }
            (_, pin) => Ok(pin),
        }
    }
}

/// Time limit: pins that expire are not worth a longer wait.
const REMOVE_MAX: Duration = Duration::from_secs(5);

/// Removes pins. A parent's pin may be in a store where this process has no right to delete. The future may be dropped
/// at any time.
pub(crate) async fn remove_pins(pins: &mut Vec<(Store, Pin)>) -> Result<()> {
    let remove_all = async {
        while let Some((store, pin)) = pins.last() {
            match pin.remove(store).await {
                Err(error) if error.is_refusal() => {}
                removed => removed?,
            }
            pins.pop();
        }
        Ok(())
    };
    if let Ok(removed) = timeout(REMOVE_MAX, remove_all).await {
        return removed;
    }
    let object = pins.last().map(|(_, pin)| pin.name.clone()).unwrap_or_default();
    Err(Error::Timeout { operation: "delete", object, seconds: REMOVE_MAX.as_secs() })
}
