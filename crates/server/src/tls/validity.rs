//! The expiry times of the server's certificates.

use std::path::PathBuf;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, SliceReader, Tag, Tagged};

use super::{CERT_FILE, CLIENT_CERT_FILE, TlsError, files, load, outgoing};
use crate::config::Settings;

/// Returns the files with the server's certificates, each with the earliest end of its certificates, in Unix seconds.
/// Unreadable dates are left out.
///
/// # Errors
/// If a file or a directive is wrong, as at the start.
pub fn ends(settings: &Settings) -> Result<Vec<(PathBuf, i64)>, TlsError> {
    let mut shown = Vec::new();
    if load(settings)?.is_some() {
        shown.push(CERT_FILE);
    }
    if outgoing(settings)?.is_some() && settings.path(CLIENT_CERT_FILE).is_some() {
        shown.push(CLIENT_CERT_FILE);
    }
    let mut ends = Vec::new();
    for (directive, path) in shown.into_iter().filter_map(|id| Some((id, settings.path(id)?))) {
        let chain = files::certificates(directive, &path)?;
        let first = chain.iter().filter_map(|certificate| end_of(certificate).ok()).min();
        ends.extend(first.map(|end_s| (path, end_s)));
    }
    Ok(ends)
}

/// Returns `notAfter` of a certificate in DER.
fn end_of(certificate: &[u8]) -> der::Result<i64> {
    let certificate = sequence(&mut SliceReader::new(certificate)?)?;
    let signed = sequence(&mut SliceReader::new(certificate.value())?)?;
    let mut fields = SliceReader::new(signed.value())?;
    // The version may be missing; it is the only field with a tag of its own here.
    let first = AnyRef::decode(&mut fields)?;
    if first.tag() != Tag::Integer {
        AnyRef::decode(&mut fields)?;
    }
    let (_signature, _issuer) = (sequence(&mut fields)?, sequence(&mut fields)?);
    let validity = sequence(&mut fields)?;
    let mut times = SliceReader::new(validity.value())?;
    let _begin = AnyRef::decode(&mut times)?;
    let end = AnyRef::decode(&mut times)?;
    let since_1970 = match end.tag() {
        Tag::GeneralizedTime => end.decode_as::<GeneralizedTime>()?.to_unix_duration(),
        _ => end.decode_as::<UtcTime>()?.to_unix_duration(),
    };
    Ok(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX))
}

fn sequence<'a>(reader: &mut SliceReader<'a>) -> der::Result<AnyRef<'a>> {
    let value = AnyRef::decode(reader)?;
    value.tag().assert_eq(Tag::Sequence)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use tierce_harness::effort;

    use super::*;

    fn certificate() -> CertificateDer<'static> {
        CertificateDer::from_pem_file(tierce_harness::certificate_file("server.crt")).unwrap()
    }

    #[test]
    fn certificates_of_the_tests_last() {
        const YEAR_2030_S: i64 = 1_893_456_000;
        assert!(end_of(&certificate()).unwrap() > YEAR_2030_S);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn a_damaged_certificate_is_no_more_than_an_error(at: usize, byte: u8, len: usize) {
            let mut damaged = certificate().to_vec();
            let (at, len) = (at % damaged.len(), len % damaged.len());
            damaged[at] = byte;
            let _ = end_of(&damaged);
            let _ = end_of(&damaged[..len]);
            // A damaged length may equal that of the part.
            prop_assert!(end_of(&certificate()[..len]).is_err(), "a part of {len} bytes");
        }
    }
}
