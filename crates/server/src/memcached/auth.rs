//! Passwords in protocols that have none, and SASL PLAIN.
//!
//! There is one user, `default`, whose password is `requirepass`.

use crate::server::Server;

const USER: &[u8] = b"default";

fn check(server: &Server, user: &[u8], password: &[u8]) -> bool {
    // The password is compared in any case, so that time does not tell which of the two was wrong.
    server.is_password(password) & (user == USER)
}

/// `user password`, the value of the `set` by which a client of the text protocol says who it is; `None`
/// if it is something else.
pub fn check_words(server: &Server, words: &[u8]) -> Option<bool> {
    let blank = words.iter().position(|&byte| byte == b' ')?;
    Some(check(server, &words[..blank], &words[blank + 1..]))
}

/// The message of SASL PLAIN: whom to act as, who one is, and the password, zeros between them.
pub fn check_plain(server: &Server, message: &[u8]) -> bool {
    let mut parts = message.splitn(3, |&byte| byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (act_as, user, password) = (next(), next(), next());
    (act_as.is_empty() || act_as == user) & check(server, user, password)
}
