//! Stored payloads: plain, compressed, or split into pieces in `blob/` that are uploaded first, so that one large
//! value does not make an append outlast the lease.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::append::{Progress, told_when_slow};
use crate::error::{Error, Result};
use crate::fields::{Reader, Writer, hex};
use crate::record::{Encoding, Hash, Id, Record, hash, log_name};
use crate::store::{Store, WHOLE_LIMIT};

/// Compression of level 1: the number of requests limits an upload, not its bytes.
const LEVEL: i32 = 1;

/// Below this, in bytes, compression does not pay.
const COMPRESSIBLE: usize = 256;

/// Pieces in flight at once.
const PIECES_AT_ONCE: usize = 8;

/// A piece that gets no answer for this long is reported as trouble. Eight of them share the network, so the time is
/// longer than for a record.
const PIECE_ANSWER_MAX: Duration = Duration::from_secs(15);

/// Compresses bytes if that makes them shorter.
pub(crate) fn pack(bytes: &[u8]) -> (Encoding, Bytes) {
    if bytes.len() >= COMPRESSIBLE
        && let Ok(packed) = zstd::bulk::compress(bytes, LEVEL)
        && packed.len() < bytes.len()
    {
        return (Encoding::Zstd, packed.into());
    }
    (Encoding::Plain, Bytes::copy_from_slice(bytes))
}

/// Reverses [`pack`]. It creates at most `len` bytes, whatever the frame says. Errors are texts.
pub(crate) fn unpack(encoding: Encoding, stored: &Bytes, len: u64) -> Result<Bytes, String> {
    let bytes = match encoding {
        Encoding::Plain => stored.clone(),
        Encoding::Zstd => {
            let limit = usize::try_from(len).ok().filter(|len| *len <= WHOLE_LIMIT);
            let limit = limit.ok_or_else(|| format!("{len} bytes are too many for one object"))?;
            zstd::bulk::decompress(stored, limit)
                .map_err(|error| format!("it cannot be decompressed: {error}"))?
                .into()
        }
        Encoding::Pieces => return Err("pieces within a piece".into()),
    };
    if bytes.len() as u64 != len {
        return Err(format!("it has {} bytes instead of {len}", bytes.len()));
    }
    Ok(bytes)
}

/// Encodes a payload for its record. The pieces of a large payload are uploaded before this returns. Failures
/// meanwhile are reported to `progress`, until the record itself is there.
pub(crate) async fn store_payload(
    store: &Store,
    number: u64,
    nonce: Id,
    payload: &[u8],
    progress: &Progress,
) -> Result<(Encoding, Bytes)> {
    let piece_len = store.tuning.piece_len;
    if payload.len() <= piece_len {
        return Ok(pack(payload));
    }
    let pieces: Vec<Piece> = stream::iter(payload.chunks(piece_len).enumerate())
        .map(|(index, piece)| async move {
            let (encoding, stored) = pack(piece);
            let described = Piece {
                encoding,
                len: piece.len() as u64,
                stored: stored.len() as u64,
                hash: hash(&stored),
            };
            let failed = |error: &Error| progress.failed(store.env.boottime(), error);
            let name = blob_name(number, nonce, index);
            let put = store.ensure_told(&name, stored, failed);
            told_when_slow(store, progress, &name, PIECE_ANSWER_MAX, put).await?;
            Ok::<_, Error>(described)
        })
        .buffered(PIECES_AT_ONCE)
        .try_collect()
        .await?;
    Ok((Encoding::Pieces, Piece::encode_all(&pieces).into()))
}

/// Loads the payload of a record, with the pieces it refers to, all checked.
pub(crate) async fn load_payload(store: &Store, record: &Record) -> Result<Bytes> {
    let header = &record.header;
    if header.encoding != Encoding::Pieces {
        return unpack(header.encoding, &record.stored, header.len)
            .map_err(|reason| Error::damaged(log_name(header.number), reason));
    }
    let pieces = Piece::decode_all(&record.stored)
        .filter(|pieces| pieces.iter().map(|piece| piece.len).sum::<u64>() == header.len)
        .ok_or_else(|| {
            Error::damaged(log_name(header.number), "its list of pieces makes no sense")
        })?;
    let mut loads = stream::iter(pieces.into_iter().enumerate())
        .map(|(index, piece)| {
            let name = blob_name(header.number, header.nonce, index);
            async move { piece.load(store, name).await }
        })
        .buffered(PIECES_AT_ONCE);
    let mut payload = Vec::new();
    while let Some(piece) = loads.try_next().await? {
        payload.extend_from_slice(&piece);
    }
    Ok(payload.into())
}

/// Returns `blob/<20 digits>-<nonce>/<6 digits>`. The number lets pruning find pieces that no record refers to.
pub(crate) fn blob_name(number: u64, nonce: Id, index: usize) -> String {
    format!("blob/{number:020}-{}/{index:06}", hex(&nonce))
}

/// An object that another object describes: a piece of a payload, or a part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub encoding: Encoding,
    /// Bytes before compression.
    pub len: u64,
    /// Bytes of the object.
    pub stored: u64,
    /// The hash of the object.
    pub hash: Hash,
}

impl Piece {
    const LEN: usize = 1 + 8 + 8 + 32;

    pub(crate) fn encode_all(pieces: &[Self]) -> Vec<u8> {
        let mut out = Writer::with_capacity(pieces.len() * Self::LEN);
        for piece in pieces {
            out.u8(piece.encoding as u8);
            out.u64(piece.len);
            out.u64(piece.stored);
            out.bytes(&piece.hash);
        }
        out.finish()
    }

    pub(crate) fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Reader::new(bytes);
        let mut pieces = Vec::new();
        while !fields.is_done() {
            let encoding = match fields.u8()? {
                0 => Encoding::Plain,
                1 => Encoding::Zstd,
                _ => return None,
            };
            let piece =
                Self { encoding, len: fields.u64()?, stored: fields.u64()?, hash: fields.array()? };
            pieces.push(piece);
        }
        pieces.iter().all(|piece| piece.len <= WHOLE_LIMIT as u64).then_some(pieces)
    }

    /// Reads the object, and checks it before anything in it is decompressed.
    pub(crate) async fn load(&self, store: &Store, name: String) -> Result<Bytes> {
        let stored = store.get(&name).await?.ok_or_else(|| Error::missing(&name))?;
        if stored.len() as u64 != self.stored || hash(&stored) != self.hash {
            let reason = format!("{} bytes whose hash is not what was recorded", stored.len());
            return Err(Error::damaged(name, reason));
        }
        unpack(self.encoding, &stored, self.len).map_err(|reason| Error::damaged(name, reason))
    }
}
