//! Protocol versions and ciphers, under their OpenSSL names.

use std::sync::LazyLock;

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::ring::{ALL_CIPHER_SUITES, cipher_suite};
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, Tls12CipherSuite};

use super::TlsError;

/// Ciphers of TLS 1.2 under OpenSSL's names.
const TLS12_NAMES: [(&str, SupportedCipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Ciphers of TLS 1.3.
const TLS13_NAMES: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", cipher_suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// Number of records after which a connection with TLS 1.2 and AES-GCM ends. Its key cannot be renewed, unlike that of
/// TLS 1.3.
///
/// rustls ends it after 2^24, the bound of RFC 8446 for records of 16 KiB: minutes for a client whose replies have a
/// record each, and requests already executed would lose their replies. With this many records of 1 KiB, an attacker of
/// the cipher has an advantage of 2^-42. This takes 26 days at 30,000 replies a second; OpenSSL has no bound.
const TLS12_RECORDS_MAX: u64 = 1 << 36;

/// Ciphers of TLS 1.2 with that bound.
static LASTING: LazyLock<Vec<Tls12CipherSuite>> = LazyLock::new(|| {
    let lasting = |suite: &Tls12CipherSuite| {
        let CipherSuiteCommon { suite: name, hash_provider, confidentiality_limit } = suite.common;
        let confidentiality_limit = confidentiality_limit.max(TLS12_RECORDS_MAX);
        Tls12CipherSuite {
            common: CipherSuiteCommon { suite: name, hash_provider, confidentiality_limit },
            prf_provider: suite.prf_provider,
            kx: suite.kx,
            sign: suite.sign,
            aead_alg: suite.aead_alg,
        }
    };
    tls12(ALL_CIPHER_SUITES).map(lasting).collect()
});

fn tls12(suites: &[SupportedCipherSuite]) -> impl Iterator<Item = &'static Tls12CipherSuite> {
    suites.iter().filter_map(|suite| match suite {
        SupportedCipherSuite::Tls12(suite) => Some(*suite),
        SupportedCipherSuite::Tls13(_) => None,
    })
}

/// Returns the cipher, with that bound if it is of TLS 1.2.
fn lasting(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let found = LASTING.iter().find(|lasting| lasting.common.suite == suite.suite());
    found.map_or(suite, SupportedCipherSuite::Tls12)
}

/// Returns the ciphers of `tls-ciphers` and `tls-ciphersuites`, in their order; all if a list is empty.
///
/// # Errors
/// If a name is not that of a supported cipher.
pub(super) fn suites(
    ciphers: &[u8],
    ciphersuites: &[u8],
) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let mut suites = chosen("tls-ciphersuites", ciphersuites, &TLS13_NAMES)?
        .unwrap_or_else(|| of_version(&TLS13));
    suites.extend(
        chosen("tls-ciphers", ciphers, &TLS12_NAMES)?.unwrap_or_else(|| of_version(&TLS12)),
    );
    Ok(suites.into_iter().map(lasting).collect())
}

fn of_version(version: &SupportedProtocolVersion) -> Vec<SupportedCipherSuite> {
    let suites = ALL_CIPHER_SUITES.iter();
    suites.filter(|suite| suite.version().version == version.version).copied().collect()
}

/// Words of OpenSSL for all ciphers that it recommends, which all of these are.
const ALL_WORDS: [&str; 3] = ["DEFAULT", "HIGH", "ALL"];

/// Classes of ciphers that are often excluded, none of which is supported.
const ABSENT_CLASSES: [&str; 16] = [
    "aNULL", "eNULL", "NULL", "EXPORT", "EXP", "LOW", "MEDIUM", "MD5", "RC4", "DES", "3DES", "DSS",
    "PSK", "SRP", "kRSA", "SHA1",
];

/// Parses a list like OpenSSL, as far as its words have a meaning here: names, words for all ciphers, and exclusions
/// with `!`.
fn chosen(
    directive: &'static str,
    list: &[u8],
    names: &[(&str, SupportedCipherSuite)],
) -> Result<Option<Vec<SupportedCipherSuite>>, TlsError> {
    let list = String::from_utf8_lossy(list);
    let words: Vec<&str> = list.split([':', ',', ' ']).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Ok(None);
    }
    let find = |word: &str| {
        names.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, suite)| *suite)
    };
    let mut suites = Vec::new();
    for word in words {
        match (word.strip_prefix('!'), find(word.trim_start_matches('!'))) {
            (None, Some(suite)) => suites.push(suite),
            (Some(_), Some(suite)) => suites.retain(|there| *there != suite),
            (None, None) if ALL_WORDS.contains(&word) => {
                suites.extend(names.iter().map(|(_, suite)| *suite));
            }
            (Some(class), None) if ABSENT_CLASSES.contains(&class) => {}
            _ => return Err(unknown(directive, word, names)),
        }
    }
    Ok(Some(suites))
}

fn unknown(
    directive: &'static str,
    word: &str,
    names: &[(&str, SupportedCipherSuite)],
) -> TlsError {
    let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let reason = format!("there is no cipher {word:?} here, only {}", names.join(", "));
    TlsError::Word { directive, reason }
}

/// Returns the versions of `tls-protocols`; all if it is empty.
///
/// # Errors
/// If a word is not a supported version.
pub(super) fn versions(list: &[u8]) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let list = String::from_utf8_lossy(list);
    let version = |word: &str| match word.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&TLS12),
        "tlsv1.3" => Ok(&TLS13),
        _ => Err(TlsError::Word {
            directive: "tls-protocols",
            reason: format!("there is no version {word:?} here, only TLSv1.2 and TLSv1.3"),
        }),
    };
    let versions: Vec<_> = list
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .map(version)
        .collect::<Result<_, _>>()?;
    Ok(if versions.is_empty() { vec![&TLS13, &TLS12] } else { versions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_has_a_name() {
        let all = suites(b"", b"").expect("all");
        assert_eq!(all.len(), ALL_CIPHER_SUITES.len());
        for suite in all {
            let mut names = TLS12_NAMES.iter().chain(&TLS13_NAMES);
            assert!(names.any(|(_, named)| *named == suite), "{suite:?}");
        }
    }

    /// Keys of TLS 1.2 are never renewed: a connection ends with its key.
    #[test]
    fn connections_of_every_cipher_of_tls_1_2_last() {
        let all = suites(b"", b"").expect("all");
        assert_eq!(tls12(&all).count(), TLS12_NAMES.len());
        for suite in tls12(&all) {
            assert!(suite.common.confidentiality_limit >= TLS12_RECORDS_MAX, "{suite:?}");
        }
    }

    #[test]
    fn lists_choose_in_their_order() {
        let named = suites(
            b"ECDHE-RSA-AES128-GCM-SHA256:ecdhe-ecdsa-aes256-gcm-sha384",
            b"TLS_CHACHA20_POLY1305_SHA256",
        );
        let expected = [TLS13_NAMES[2].1, TLS12_NAMES[4].1, TLS12_NAMES[0].1];
        assert_eq!(named.expect("known"), expected);
        let wrong = suites(b"HIGH:AES128-SHA", b"").expect_err("unknown").to_string();
        assert!(wrong.starts_with("tls-ciphers: there is no cipher \"AES128-SHA\""), "{wrong}");
    }

    #[test]
    fn lists_of_openssl_exclude_what_there_is_and_what_there_is_not() {
        let count = |list: &str| {
            let found = suites(list.as_bytes(), b"TLS_AES_256_GCM_SHA384");
            found.map(|found| found.len() - 1).ok()
        };
        let lists = [
            "DEFAULT:!MEDIUM",
            "HIGH:!aNULL:!MD5",
            "DEFAULT:!ECDHE-RSA-AES128-GCM-SHA256",
            "DEFAULT:!NONSENSE",
            "MEDIUM",
        ];
        assert_eq!(lists.map(count), [Some(6), Some(6), Some(5), None, None]);
    }

    #[test]
    fn versions_are_named_as_by_openssl() {
        let count = |list: &str| versions(list.as_bytes()).map(|found| found.len()).ok();
        let counts = ["", "TLSv1.3", "TLSv1.2 tlsv1.3", "TLSv1.1 TLSv1.2"].map(count);
        assert_eq!(counts, [Some(2), Some(1), Some(2), None]);
    }
}
