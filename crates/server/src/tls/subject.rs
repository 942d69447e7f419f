//! The user that a client's certificate names.

use der::asn1::{
    AnyRef, Ia5StringRef, ObjectIdentifier, PrintableStringRef, TeletexStringRef, Utf8StringRef,
};
use der::{Decode, Reader, SliceReader, Tag, Tagged};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// `id-at-commonName`
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Returns the common name in the subject of a certificate in DER. `None` if there is none, or more than one: then it
/// is uncertain which one the authority meant.
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from(certificate);
    let certificate = EndEntityCert::try_from(&certificate).ok()?;
    common_name_of(certificate.subject()).ok()?
}

/// Returns the common name of a subject: sets of attributes, each an identifier and a value.
fn common_name_of(subject: &[u8]) -> der::Result<Option<String>> {
    let (mut found, mut sets) = (None, SliceReader::new(subject)?);
    while !sets.is_finished() {
        let set = tagged(&mut sets, Tag::Set)?;
        let mut attributes = SliceReader::new(set.value())?;
        while !attributes.is_finished() {
            let attribute = tagged(&mut attributes, Tag::Sequence)?;
            let mut attribute = SliceReader::new(attribute.value())?;
            let is_name = ObjectIdentifier::decode(&mut attribute)? == COMMON_NAME;
            let value = AnyRef::decode(&mut attribute)?;
            if is_name && found.replace(text_of(value)?).is_some() {
                return Ok(None);
            }
        }
    }
    Ok(found)
}

fn tagged<'a>(reader: &mut SliceReader<'a>, tag: Tag) -> der::Result<AnyRef<'a>> {
    let value = AnyRef::decode(reader)?;
    value.tag().assert_eq(tag)?;
    Ok(value)
}

fn text_of(value: AnyRef<'_>) -> der::Result<String> {
    Ok(match value.tag() {
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>()?.to_string(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>()?.to_string(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>()?.to_string(),
        _ => value.decode_as::<Utf8StringRef<'_>>()?.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::pem::PemObject;
    use tierce_harness::effort;

    use super::*;

    const COUNTRY: &[u8] = b"\x30\x09\x06\x03\x55\x04\x06\x13\x02AT";
    const NAME: &[u8] = b"\x30\x0c\x06\x03\x55\x04\x03\x0c\x05alice";

    fn set(content: &[u8]) -> Vec<u8> {
        [&[0x31, content.len() as u8], content].concat()
    }

    #[test]
    fn the_name_is_found_among_other_attributes() {
        let apart = [set(COUNTRY), set(NAME)].concat();
        let together = set(&[NAME, COUNTRY].concat());
        for subject in [apart, together, set(NAME)] {
            assert_eq!(common_name_of(&subject), Ok(Some("alice".to_owned())));
        }
        assert_eq!(common_name_of(&set(COUNTRY)), Ok(None));
        assert_eq!(common_name_of(b""), Ok(None));
    }

    #[test]
    fn two_names_are_none() {
        assert_eq!(common_name_of(&[set(NAME), set(NAME)].concat()), Ok(None));
    }

    #[test]
    fn certificates_of_the_tests_have_their_names() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/certificates");
        for name in ["client", "server", "rsa", "stranger"] {
            let file = format!("{directory}/{name}.crt");
            let certificate = CertificateDer::from_pem_file(file).expect("a certificate");
            assert_eq!(common_name(&certificate).as_deref(), Some(name));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn a_damaged_subject_is_no_more_than_an_error(
            at in 0..40_usize,
            byte: u8,
            len in 0..40_usize,
        ) {
            let mut subject = [set(COUNTRY), set(NAME), set(COUNTRY)].concat();
            let len = len.min(subject.len());
            subject[at % 40.min(len.max(1))] = byte;
            if let Ok(Some(name)) = common_name_of(&subject[..len]) {
                prop_assert!(name.len() <= len);
            }
        }
    }
}
