//! Transactions among the random commands: some neighbours in a pipeline, between MULTI and EXEC or DISCARD.

use tierce_harness::{Random, Reply};

use super::stream::Call;

/// Maximum number of commands in a transaction. Few, because one mistake aborts all of them.
const COMMANDS_MAX: usize = 8;

/// The reply to a command that is queued for EXEC.
pub(super) const QUEUED: &[u8] = b"+QUEUED\r\n";

/// Position of a transaction in a pipeline: the indexes of MULTI and of the command that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    begin: usize,
    end: usize,
}

impl Transaction {
    /// Makes a transaction of some commands of a pipeline.
    pub(super) fn among(calls: &mut Vec<Call>, random: &mut Random) -> Self {
        let begin = random.below(calls.len());
        let len = 1 + random.below(COMMANDS_MAX.min(calls.len() - begin));
        let last = if random.one_in(10) { "DISCARD" } else { "EXEC" };
        calls.insert(begin, vec![b"MULTI".to_vec()]);
        let end = begin + len + 1;
        calls.insert(end, vec![last.into()]);
        Self { begin, end }
    }

    /// Replaces each QUEUED reply by the command's reply from EXEC, so that each is at the index of its command. The
    /// reply of EXEC becomes the number of replies.
    pub(super) fn spread(self, replies: &mut [Vec<u8>]) {
        let Some((queued, exec)) = replies
            .get_mut(self.begin + 1..=self.end)
            .and_then(|replies| replies.split_last_mut().map(|(exec, queued)| (queued, exec)))
        else {
            return;
        };
        let header = exec.windows(2).position(|pair| pair == b"\r\n").map_or(0, |at| at + 2);
        if exec.first() != Some(&b'*') || exec.starts_with(b"*-1") {
            return;
        }
        let mut rest = &exec[header..];
        for reply in queued.iter_mut().filter(|reply| *reply == QUEUED) {
            let Some((_, len)) = Reply::decode(rest) else { break };
            *reply = rest[..len].to_vec();
            rest = &rest[len..];
        }
        let left = rest.to_vec();
        exec.truncate(header);
        exec.extend(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_stand_where_their_commands_do() {
        let transaction = Transaction { begin: 1, end: 5 };
        let replies = ["+PONG", "+OK", "+QUEUED", "-ERR x", "+QUEUED", "*2\r\n:1\r\n*1\r\n+a"];
        let mut replies = replies.map(|reply| format!("{reply}\r\n").into_bytes());
        transaction.spread(&mut replies);
        let expected = ["+PONG", "+OK", ":1", "-ERR x", "*1\r\n+a", "*2"];
        assert_eq!(replies, expected.map(|reply| format!("{reply}\r\n").into_bytes()));
    }

    #[test]
    fn an_aborted_transaction_is_left_as_it_is() {
        let transaction = Transaction { begin: 0, end: 2 };
        let mut replies =
            [b"+OK\r\n".to_vec(), QUEUED.to_vec(), b"-EXECABORT because\r\n".to_vec()];
        let before = replies.clone();
        transaction.spread(&mut replies);
        assert_eq!(replies, before);
    }
}
