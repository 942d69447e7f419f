//! Passwords in protocols that have none, and SASL PLAIN. The users are those of ACL.

use super::Host;
use crate::acl::{Origin, Rights};
use crate::clients::Client;

/// Who a client says it is.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    pub user: &'a [u8],
    password: &'a [u8],
}

impl<'a> Credentials<'a> {
    /// `user password`, the value of the `set` by which a client of the text protocol says who it is; `None` if it is
    /// something else.
    pub fn of_words(words: &'a [u8]) -> Option<Self> {
        let blank = words.iter().position(|&byte| byte == b' ')?;
        Some(Self { user: &words[..blank], password: &words[blank + 1..] })
    }

    /// The message of SASL PLAIN: whom to act as, who one is, and the password, zeros between them. `None` if the
    /// client wants to act as another user.
    pub fn of_plain(message: &'a [u8]) -> Option<Self> {
        let mut parts = message.splitn(3, |&byte| byte == 0);
        let mut next = || parts.next().unwrap_or_default();
        let (act_as, user, password) = (next(), next(), next());
        (act_as.is_empty() || act_as == user).then_some(Self { user, password })
    }

    /// The rights of that user, if the password is right. If not, that is logged as an attempt by `called`.
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
