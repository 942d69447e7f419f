//! Settings of the HTTP listener. All of them may change at run time.

use std::net::IpAddr;
use std::time::Duration;

use super::settings::Settings;
use super::startup::BindAddress;
use super::table::DirectiveId;

const PORT: DirectiveId = DirectiveId::of("http-port");
const BIND: DirectiveId = DirectiveId::of("http-bind");
const HOSTS: DirectiveId = DirectiveId::of("http-hosts");
const ORIGINS: DirectiveId = DirectiveId::of("http-origins");
const MAXCLIENTS: DirectiveId = DirectiveId::of("http-maxclients");
const MAX_BODY: DirectiveId = DirectiveId::of("http-max-body");
const TLS: DirectiveId = DirectiveId::of("http-tls");
const METRICS_TOKEN: DirectiveId = DirectiveId::of("http-metrics-token");
const TIMEOUT: DirectiveId = DirectiveId::of("http-timeout");

impl Settings {
    /// Directives that determine the addresses of the listener and its encryption.
    pub const HTTP_ADDRESSES: [DirectiveId; 3] = [PORT, BIND, TLS];

    /// Returns the TCP port for HTTP, 0 for none.
    pub fn http_port(&self) -> u16 {
        self.count(PORT) as u16
    }

    /// Returns the listening addresses.
    pub fn http_bind(&self) -> Vec<BindAddress> {
        self.list(BIND).iter().map(|text| BindAddress::parse(text)).collect()
    }

    /// Returns true if clients may call this server by `host`, a name or an address without its port.
    ///
    /// A web page can make its own name resolve to this machine, but not an address. So addresses are safe.
    pub fn allows_http_host(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let is_named = |name: &Vec<u8>| name == b"*" || name.eq_ignore_ascii_case(host.as_bytes());
        host.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok()
            || self.list(HOSTS).iter().any(is_named)
    }

    /// Returns true if scripts of web pages of this origin may use HTTP.
    pub fn allows_http_origin(&self, origin: &[u8]) -> bool {
        self.list(ORIGINS).iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    /// Returns true if HTTP is enabled and encrypted.
    pub fn has_https(&self) -> bool {
        self.is_on(TLS) && self.http_port() != 0
    }

    /// Returns the token that only allows reading metrics; empty for none.
    pub fn http_metrics_token(&self) -> &[u8] {
        self.text(METRICS_TOKEN)
    }

    /// Returns the maximum number of simultaneous connections.
    pub fn http_maxclients(&self) -> usize {
        self.count(MAXCLIENTS) as usize
    }

    /// Returns the maximum number of bytes of a body.
    pub fn http_max_body(&self) -> usize {
        self.bytes(MAX_BODY) as usize
    }

    /// Returns the time that a client may take for its next step.
    pub fn http_timeout(&self) -> Duration {
        Duration::from_secs(self.count(TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(directive: &str, words: &[&str]) -> Settings {
        let mut settings = Settings::default();
        let id = DirectiveId::of(directive);
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        settings.replace(id, id.directive().parse(&words, None).expect("valid"));
        settings
    }

    #[test]
    fn addresses_are_safe_and_names_have_to_be_allowed() {
        let settings = settings("http-hosts", &["db.example"]);
        for host in ["localhost", "LocalHost", "127.0.0.1", "[::1]", "10.0.0.7", "DB.example"] {
            assert!(settings.allows_http_host(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "*"] {
            assert!(!settings.allows_http_host(host), "{host}");
        }
    }

    #[test]
    fn a_star_allows_any_name_and_no_origin_is_allowed_unasked() {
        assert!(settings("http-hosts", &["*"]).allows_http_host("any.example"));
        let settings = settings("http-origins", &["https://app.example"]);
        assert!(settings.allows_http_origin(b"https://app.example"));
        for origin in [&b"https://app.example.evil"[..], b"http://app.example", b"null", b""] {
            assert!(!settings.allows_http_origin(origin));
        }
    }
}
