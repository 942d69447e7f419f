//! Serial numbers and ends of the server's certificates.

use std::path::PathBuf;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, SliceReader, Tag, Tagged};

use super::{
    CERT_FILE, CLIENT_CERT_FILE, REPLICATION, TlsError, files, is_encrypted, load, outgoing,
};
use crate::commands::certificates::{Certificate, Shown};
use crate::config::{DirectiveId, Settings};

/// Returns the files with the server's certificates, each with the earliest end of its certificates, in Unix seconds.
/// Unreadable dates are left out.
///
/// # Errors
/// If a file or a directive is wrong, as at the start.
pub fn ends(settings: &Settings) -> Result<Vec<(PathBuf, i64)>, TlsError> {
    load(settings)?;
    outgoing(settings)?;
    let shown = shown(settings)?;
    Ok(shown.all().map(|certificate| (certificate.path.clone(), certificate.end_s)).collect())
}

/// Returns the certificates that others get to see with these settings. Unreadable ones are left out.
///
/// # Errors
/// If a file is missing, or has no certificate.
pub(crate) fn shown(settings: &Settings) -> Result<Shown, TlsError> {
    let certificate = |is_used, directive: DirectiveId| match settings.path(directive) {
        Some(path) if is_used => {
            let chain = files::certificates(directive, &path)?;
            let parts: Vec<_> = chain.iter().filter_map(|one| parts_of(one).ok()).collect();
            let end_s = parts.iter().map(|(_, end_s)| *end_s).min();
            let first = parts.into_iter().next().zip(end_s);
            Ok(first.map(|((serial, _), end_s)| Certificate { path, serial, end_s }))
        }
        _ => Ok(None),
    };
    Ok(Shown {
        to_clients: certificate(is_encrypted(settings), CERT_FILE)?,
        to_primary: certificate(settings.is_on(REPLICATION), CLIENT_CERT_FILE)?,
    })
}

/// Returns the serial number, in hexadecimal digits, and `notAfter` of a certificate in DER.
fn parts_of(certificate: &[u8]) -> der::Result<(String, i64)> {
    let certificate = sequence(&mut SliceReader::new(certificate)?)?;
    let signed = sequence(&mut SliceReader::new(certificate.value())?)?;
    let mut fields = SliceReader::new(signed.value())?;
    // The version may be missing; it is the only field with a tag of its own here.
    let mut serial = AnyRef::decode(&mut fields)?;
    if serial.tag() != Tag::Integer {
        serial = AnyRef::decode(&mut fields)?;
    }
    let digits = serial.value().iter().skip_while(|byte| **byte == 0);
    let serial = digits.map(|byte| format!("{byte:02X}")).collect();
    let (_signature, _issuer) = (sequence(&mut fields)?, sequence(&mut fields)?);
    let validity = sequence(&mut fields)?;
    let mut times = SliceReader::new(validity.value())?;
    let _begin = AnyRef::decode(&mut times)?;
    let end = AnyRef::decode(&mut times)?;
    let since_1970 = match end.tag() {
        Tag::GeneralizedTime => end.decode_as::<GeneralizedTime>()?.to_unix_duration(),
        _ => end.decode_as::<UtcTime>()?.to_unix_duration(),
    };
    Ok((serial, i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)))
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
        let (serial, end_s) = parts_of(&certificate()).unwrap();
        assert!(end_s > YEAR_2030_S && serial.len() >= 2, "{serial} {end_s}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn a_damaged_certificate_is_no_more_than_an_error(at: usize, byte: u8, len: usize) {
            let mut damaged = certificate().to_vec();
            let (at, len) = (at % damaged.len(), len % damaged.len());
            damaged[at] = byte;
            let _ = parts_of(&damaged);
            let _ = parts_of(&damaged[..len]);
            // A damaged length may equal that of the part.
            prop_assert!(parts_of(&certificate()[..len]).is_err(), "a part of {len} bytes");
        }
    }
}
