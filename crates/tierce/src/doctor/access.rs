//! Checks of access to the server: open ports, and certificates that expire.

use std::net::IpAddr;

use tierce_config::{BindAddress, BindHost, DirectiveId, Settings};
use tierce_engine::count;
use tierce_server::CERTIFICATE_DAYS_MIN;

use super::finding::Finding;

const DAY_S: i64 = 24 * 3600;

/// Returns all findings. `now_s` is in Unix seconds.
pub fn findings(settings: &Settings, now_s: i64) -> Vec<Finding> {
    let mut findings: Vec<Finding> = open_ports(settings).into_iter().collect();
    match tierce_server::certificates_end(settings) {
        Ok(certificates) => {
            let end = certificates.into_iter().filter_map(|(path, end_s)| {
                ends_soon(&path.display().to_string(), (end_s - now_s).div_euclid(DAY_S))
            });
            findings.extend(end);
        }
        Err(error) => findings.push(Finding::serious(
            format!("{error}."),
            "The server does not start.",
            "fix the file or the directive that is named",
        )),
    }
    findings
}

/// Reports a port without password that other machines can reach.
fn open_ports(settings: &Settings) -> Option<Finding> {
    const PROTECTED: DirectiveId = DirectiveId::of("protected-mode");
    let ports = [settings.port(), settings.tls_port(), settings.memcached_port()];
    let port = ports.into_iter().find(|port| *port != 0)?;
    let remote = settings.bind().into_iter().find(|address| !is_loopback(address))?;
    // A malformed file of users is reported elsewhere.
    if !tierce_server::is_open(settings).unwrap_or(false) {
        return None;
    }
    let at = remote.host;
    let mend = "aclfile /etc/tierce/users.acl, or requirepass with a long password, or bind 127.0.0.1 -::1";
    Some(match settings.is_on(PROTECTED) {
        false => Finding::serious(
            format!("Port {port} is open to other machines at {at} without a password."),
            "Everyone who reaches it can read, change and delete all data.",
            mend,
        ),
        true => Finding::advice(
            format!("Port {port} listens at {at}, and there is no password."),
            "Clients on other machines are refused (protected mode), so listening there is useless.",
            mend,
        ),
    })
}

fn is_loopback(address: &BindAddress) -> bool {
    match &address.host {
        BindHost::AnyV4 | BindHost::AnyV6 => false,
        BindHost::Name(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

fn ends_soon(path: &str, days: i64) -> Option<Finding> {
    let mend = "renew it: the server reads the new files within tls-auto-reload-interval";
    if days < 0 {
        let what = format!("The certificate {path} has ended {} ago.", count(-days, "day"));
        return Some(Finding::serious(what, "Clients refuse to connect with TLS.", mend));
    }
    (days < CERTIFICATE_DAYS_MIN).then(|| {
        let what = format!("The certificate {path} ends in {}.", count(days, "day"));
        Finding::advice(what, "From then on, clients refuse to connect with TLS.", mend)
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Gravity::{Advice, Serious};
    use super::*;

    fn gravity(line: &str) -> Option<super::super::finding::Gravity> {
        open_ports(&super::super::tests::settings(line)).map(|finding| finding.gravity)
    }

    #[test]
    fn a_port_without_a_password_is_told_if_others_reach_it() {
        assert_eq!(gravity(""), None);
        assert_eq!(gravity("--bind 127.0.0.1 ::1 localhost --protected-mode no"), None);
        assert_eq!(gravity("--bind 0.0.0.0"), Some(Advice));
        assert_eq!(gravity("--bind * --protected-mode no"), Some(Serious));
        assert_eq!(gravity("--bind 127.0.0.1 192.0.2.1 --protected-mode no"), Some(Serious));
        assert_eq!(gravity("--bind * --protected-mode no --requirepass x"), None);
        assert_eq!(gravity("--bind * --protected-mode no --port 0 --unixsocket /x"), None);
        assert_eq!(gravity("--bind * --protected-mode no --user default off"), None);
    }

    #[test]
    fn certificates_are_told_two_weeks_before_they_end() {
        let of = |days| ends_soon("a.crt", days).map(|finding| finding.gravity);
        assert_eq!(
            [of(-1), of(0), of(13), of(14)],
            [Some(Serious), Some(Advice), Some(Advice), None]
        );
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/certificates");
        let line = format!(
            "--tls-port 1 --tls-cert-file {folder}/server.crt --tls-key-file {folder}/server.key --tls-auth-clients no"
        );
        let settings = super::super::tests::settings(&line);
        let ends = tierce_server::certificates_end(&settings).unwrap();
        assert_eq!(ends.len(), 1);
        let end_s = ends[0].1;
        assert_eq!(findings(&settings, end_s - 15 * DAY_S), []);
        assert_eq!(findings(&settings, end_s - 13 * DAY_S).len(), 1);
        let missing = super::super::tests::settings("--tls-port 1 --tls-cert-file /no/such");
        assert_eq!(findings(&missing, 0)[0].gravity, Serious);
    }
}
