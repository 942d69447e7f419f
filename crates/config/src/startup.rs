//! Settings that are read once at the start, in types for the start.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::log_format::LogFormat;
use super::settings::Settings;
use super::table::DirectiveId;

/// Settings that the server needs before it serves the first client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// Worker threads.
    pub threads: NonZeroUsize,
    /// Number of shards, a power of two; `None` leaves it to the key space.
    pub shards: Option<NonZeroUsize>,
    /// Number of databases.
    pub databases: usize,
    /// Addresses for TCP.
    pub bind: Vec<BindAddress>,
    /// TCP port, 0 for none.
    pub port: u16,
    /// TCP port for encrypted connections, 0 for none.
    pub tls_port: u16,
    /// TCP port of the protocols of memcached, 0 for none.
    pub memcached_port: u16,
    /// TCP port of these protocols for encrypted connections, 0 for none.
    pub memcached_tls_port: u16,
    /// Path of a Unix socket for the protocols of memcached.
    pub memcached_unixsocket: Option<PathBuf>,
    /// Database of clients of memcached.
    pub memcached_database: usize,
    /// TCP port of the protocol of PedroKV, 0 for none.
    pub pedrokv_port: u16,
    /// TCP port of that protocol for encrypted connections, 0 for none.
    pub pedrokv_tls_port: u16,
    /// Path of a Unix socket for the protocol of PedroKV.
    pub pedrokv_unixsocket: Option<PathBuf>,
    /// True if the port of PedroKV may be open to other machines.
    pub pedrokv_remote: bool,
    /// Database of clients of PedroKV.
    pub pedrokv_database: usize,
    /// Length of the accept queue of each socket.
    pub tcp_backlog: u32,
    /// Path of a Unix socket.
    pub unixsocket: Option<PathBuf>,
    /// Permissions of the Unix socket; `None` leaves them to the process umask.
    pub unixsocket_permissions: Option<u32>,
    /// Absolute path of the data directory.
    pub dir: PathBuf,
    /// Log file; `None` for standard output.
    pub logfile: Option<PathBuf>,
    /// File for the process id.
    pub pidfile: Option<PathBuf>,
}

const ACLFILE: DirectiveId = DirectiveId::of("aclfile");

/// Returns the number of workers for a machine with so many cores. One core is left to the kernel's network work and
/// to the other threads; there is at least one worker. `docs/decisions/0006-one-core-left-free.md` gives the reason.
fn workers_for(cores: NonZeroUsize) -> NonZeroUsize {
    NonZeroUsize::new(cores.get() - 1).unwrap_or(NonZeroUsize::MIN)
}

impl Settings {
    /// Returns the settings for the start. Without a configured number of threads, `cores` determines it.
    pub fn startup(&self, cores: NonZeroUsize) -> Startup {
        Startup {
            threads: self.size(const { DirectiveId::of("threads") }).unwrap_or(workers_for(cores)),
            shards: self.size(const { DirectiveId::of("shards") }),
            databases: self
                .size(const { DirectiveId::of("databases") })
                .map_or(1, NonZeroUsize::get),
            bind: self.bind(),
            port: self.port(),
            tls_port: self.tls_port(),
            memcached_port: self.memcached_port(),
            memcached_tls_port: self.memcached_tls_port(),
            memcached_unixsocket: self.path(const { DirectiveId::of("memcached-unixsocket") }),
            memcached_database: self.count(const { DirectiveId::of("memcached-database") })
                as usize,
            pedrokv_port: self.pedrokv_port(),
            pedrokv_tls_port: self.pedrokv_tls_port(),
            pedrokv_unixsocket: self.path(const { DirectiveId::of("pedrokv-unixsocket") }),
            pedrokv_remote: self.pedrokv_remote(),
            pedrokv_database: self.count(const { DirectiveId::of("pedrokv-database") }) as usize,
            tcp_backlog: self.count(const { DirectiveId::of("tcp-backlog") }) as u32,
            unixsocket: self.path(const { DirectiveId::of("unixsocket") }),
            unixsocket_permissions: Some(
                self.permissions(const { DirectiveId::of("unixsocketperm") }),
            )
            .filter(|&bits| bits != 0),
            dir: self.dir(),
            logfile: self.logfile(),
            pidfile: self.path(const { DirectiveId::of("pidfile") }),
        }
    }

    /// Returns the addresses for TCP. They may change at run time.
    pub fn bind(&self) -> Vec<BindAddress> {
        self.list(const { DirectiveId::of("bind") })
            .iter()
            .map(|text| BindAddress::parse(text))
            .collect()
    }

    /// Returns all files that directives name, and the configuration file itself.
    pub fn named_files(&self) -> Vec<(&'static str, PathBuf)> {
        const NAMES: [(&str, DirectiveId); 6] = [
            ("logfile", DirectiveId::of("logfile")),
            ("pidfile", DirectiveId::of("pidfile")),
            ("unixsocket", DirectiveId::of("unixsocket")),
            ("memcached-unixsocket", DirectiveId::of("memcached-unixsocket")),
            ("pedrokv-unixsocket", DirectiveId::of("pedrokv-unixsocket")),
            ("aclfile", ACLFILE),
        ];
        let named = NAMES.into_iter().filter_map(|(name, id)| Some((name, self.path(id)?)));
        let file = self.file().map(|file| ("the configuration file", file.to_owned()));
        file.into_iter().chain(named).collect()
    }

    /// Returns the absolute path of the data directory. It may change at run time.
    pub fn dir(&self) -> PathBuf {
        self.path(const { DirectiveId::of("dir") }).unwrap_or_default()
    }

    /// Returns the log file, or `None` for standard output.
    pub fn logfile(&self) -> Option<PathBuf> {
        self.path(const { DirectiveId::of("logfile") })
    }

    /// Returns the TCP port, 0 for none. It may change at run time.
    pub fn port(&self) -> u16 {
        self.count(const { DirectiveId::of("port") }) as u16
    }

    /// Returns the TCP port of the protocols of memcached, 0 for none. It may change at run time.
    pub fn memcached_port(&self) -> u16 {
        self.count(const { DirectiveId::of("memcached-port") }) as u16
    }

    /// Returns the TCP port of the protocol of PedroKV, 0 for none. It may change at run time.
    pub fn pedrokv_port(&self) -> u16 {
        self.count(const { DirectiveId::of("pedrokv-port") }) as u16
    }

    /// Returns the TCP port for encrypted Redis connections, 0 for none. It may change at run time.
    pub fn tls_port(&self) -> u16 {
        self.count(const { DirectiveId::of("tls-port") }) as u16
    }

    /// Returns the TCP port for encrypted memcached connections, 0 for none. It may change at run time.
    pub fn memcached_tls_port(&self) -> u16 {
        self.count(const { DirectiveId::of("memcached-tls-port") }) as u16
    }

    /// Returns the TCP port for encrypted PedroKV connections, 0 for none. It may change at run time.
    pub fn pedrokv_tls_port(&self) -> u16 {
        self.count(const { DirectiveId::of("pedrokv-tls-port") }) as u16
    }

    /// Returns true if the port of PedroKV may be open to other machines.
    pub fn pedrokv_remote(&self) -> bool {
        self.is_on(const { DirectiveId::of("pedrokv-remote") })
    }

    /// Returns the ACL file, if there is one.
    pub fn acl_file(&self) -> Option<PathBuf> {
        self.path(ACLFILE)
    }

    /// Returns true if a new user may use all channels. It may change at run time.
    pub fn gives_channels(&self) -> bool {
        self.word(const { DirectiveId::of("acl-pubsub-default") }) == "allchannels"
    }

    /// Returns the log level. It may change at run time.
    pub fn log_level(&self) -> LogLevel {
        match self.word(const { DirectiveId::of("loglevel") }) {
            "debug" => LogLevel::Debug,
            "verbose" => LogLevel::Verbose,
            "warning" => LogLevel::Warning,
            "nothing" => LogLevel::Nothing,
            _ => LogLevel::Notice,
        }
    }

    /// Returns the format of log lines. It may change at run time.
    pub fn log_format(&self) -> LogFormat {
        match self.word(const { DirectiveId::of("log-format") }) {
            "json" => LogFormat::Json,
            _ => LogFormat::Redis,
        }
    }

    /// Returns the password of the default user, if there is one. It may change at run time.
    pub fn password(&self) -> Option<&[u8]> {
        Some(self.text(const { DirectiveId::of("requirepass") })).filter(|text| !text.is_empty())
    }

    fn size(&self, id: DirectiveId) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.count(id) as usize)
    }

    /// Returns the file or directory that a directive names, or `None` if it is empty.
    pub fn path(&self, id: DirectiveId) -> Option<PathBuf> {
        let text = self.text(id);
        (!text.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(text)))
    }
}

/// Log level. Each level includes the ones after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Details that may help to find a fault.
    Debug,
    /// Connections and the like.
    Verbose,
    /// Events that an operator wants to see.
    Notice,
    /// Events that an operator has to see.
    Warning,
    /// Nothing.
    Nothing,
}

/// One address of `bind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// Host or wildcard to listen on.
    pub host: BindHost,
    /// True if the server starts without this address when it does not exist.
    pub optional: bool,
}

/// Host or wildcard to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindHost {
    /// `*`: every IPv4 address.
    AnyV4,
    /// `::*`: every IPv6 address.
    AnyV6,
    /// One address or host name.
    Name(String),
}

impl BindAddress {
    pub(super) fn parse(text: &[u8]) -> Self {
        let (optional, name) = match text.strip_prefix(b"-") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let host = match name {
            b"*" => BindHost::AnyV4,
            b"::*" => BindHost::AnyV6,
            name => BindHost::Name(String::from_utf8_lossy(name).into_owned()),
        };
        Self { host, optional }
    }

    /// Returns the socket address to listen on. Looks up a host name.
    ///
    /// # Errors
    /// If there is no host with that name.
    pub fn resolve(&self, port: u16) -> io::Result<SocketAddr> {
        let ip = match &self.host {
            BindHost::AnyV4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            BindHost::AnyV6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            BindHost::Name(name) => {
                let mut found = (name.as_str(), port).to_socket_addrs()?;
                return found.next().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into());
            }
        };
        Ok(SocketAddr::new(ip, port))
    }
}

impl std::fmt::Display for BindHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AnyV4 => f.write_str("*"),
            Self::AnyV6 => f.write_str("::*"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Settings;
    use super::super::table::DirectiveId;
    use super::{BindAddress, BindHost, LogFormat, LogLevel, Startup};
    use std::num::NonZeroUsize;
    use std::path::PathBuf;

    fn set(settings: &mut Settings, name: &str, text: &str) {
        let id = DirectiveId::of(name);
        let value = id.directive().parse(&[text.as_bytes()], None).expect("valid");
        settings.replace(id, value);
    }

    #[test]
    fn defaults_listen_on_loopback_and_leave_one_core_free() {
        let cores = NonZeroUsize::new(7).expect("positive");
        let settings = Settings::default();
        let loopback =
            |name: &str, optional| BindAddress { host: BindHost::Name(name.into()), optional };
        let expected = Startup {
            threads: NonZeroUsize::new(6).expect("positive"),
            shards: None,
            databases: 16,
            bind: vec![loopback("127.0.0.1", false), loopback("::1", true)],
            port: 6379,
            tls_port: 0,
            memcached_port: 0,
            memcached_tls_port: 0,
            memcached_unixsocket: None,
            memcached_database: 0,
            pedrokv_port: 0,
            pedrokv_tls_port: 0,
            pedrokv_unixsocket: None,
            pedrokv_remote: false,
            pedrokv_database: 0,
            tcp_backlog: 511,
            unixsocket: None,
            unixsocket_permissions: None,
            dir: std::env::current_dir().expect("a directory").join("tierce-data"),
            logfile: None,
            pidfile: None,
        };
        assert_eq!(settings.startup(cores), expected);
        assert_eq!(settings.log_level(), LogLevel::Notice);
        assert_eq!(settings.password(), None);
    }

    #[test]
    fn what_was_said_arrives_in_its_type() {
        let mut settings = Settings::default();
        for (name, text) in [
            ("threads", "3"),
            ("shards", "64"),
            ("unixsocket", "/run/x.sock"),
            ("unixsocketperm", "770"),
            ("dir", "/data/../x"),
            ("loglevel", "warning"),
            ("log-format", "json"),
            ("requirepass", "secret"),
        ] {
            set(&mut settings, name, text);
        }
        let startup = settings.startup(NonZeroUsize::MIN);
        assert_eq!(startup.threads.get(), 3);
        assert_eq!(startup.shards, NonZeroUsize::new(64));
        assert_eq!(startup.unixsocket, Some(PathBuf::from("/run/x.sock")));
        assert_eq!(startup.unixsocket_permissions, Some(0o770));
        assert_eq!(startup.dir, PathBuf::from("/data/../x"));
        assert_eq!(settings.log_level(), LogLevel::Warning);
        assert_eq!(settings.log_format(), LogFormat::Json);
        assert_eq!(settings.password(), Some(&b"secret"[..]));
    }

    #[test]
    fn addresses_resolve_to_sockets() {
        let check = |text: &str, expected: &str| {
            let address = BindAddress::parse(text.as_bytes()).resolve(80).expect("numeric");
            assert_eq!(address.to_string(), expected);
        };
        check("*", "0.0.0.0:80");
        check("-::*", "[::]:80");
        check("-::1", "[::1]:80");
        check("192.0.2.7", "192.0.2.7:80");
    }
}
