//! Passwords in protocols that have none, and SASL PLAIN. The users are those of ACL.

use super::Host;
use crate::acl::{Origin, Rights};
use crate::clients::Client;

/// User and password of a client.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    pub user: &'a [u8],
    password: &'a [u8],
}

impl<'a> Credentials<'a> {
    /// Parses `user password`, the value of the `set` with which a client of the text protocol authenticates; `None` if
    /// it is something else.
    pub fn of_words(words: &'a [u8]) -> Option<Self> {
        let blank = words.iter().position(|&byte| byte == b' ')?;
        Some(Self { user: &words[..blank], password: &words[blank + 1..] })
    }

    /// Parses the message of SASL PLAIN: the user to act as, the own user, and the password, separated by zeros. `None`
    /// if the client wants to act as another user.
    pub fn of_plain(message: &'a [u8]) -> Option<Self> {
        let mut parts = message.splitn(3, |&byte| byte == 0);
        let mut next = || parts.next().unwrap_or_default();
        let (act_as, user, password) = (next(), next(), next());
        (act_as.is_empty() || act_as == user).then_some(Self { user, password })
    }

    /// Returns the rights of the user, if the password is right. Otherwise logs this as an attempt by `called`.
    pub fn check(
        self,
        server: Host<'_>,
        client: &Client,
        called: &str,
        now_ms: i64,
    ) -> Option<Rights> {
        let rights = server.authenticate(client, self.user, self.password, now_ms);
        if rights.is_none() {
            let object = called.as_bytes();
            server.log_wrong_password(client, called, object, self.user, Origin::TopLevel);
        }
        rights
    }
}
