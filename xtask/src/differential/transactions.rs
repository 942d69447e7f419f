//! Transactions among the random commands: some neighbours of a pipeline, between MULTI and EXEC or DISCARD.

use tierce_harness::{Random, Reply};

use super::stream::Call;

/// Commands in a transaction. Few, since one mistake is enough to abort all of them.
const COMMANDS_MAX: usize = 8;

/// The reply to a command that is kept for EXEC.
pub(super) const QUEUED: &[u8] = b"+QUEUED\r\n";

/// Where a transaction stands in a pipeline: the indexes of MULTI and of what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    begin: usize,
    end: usize,
}

impl Transaction {
    /// Makes some commands of a pipeline one.
    pub(super) fn among(calls: &mut Vec<Call>, random: &mut Random) -> Self {
        let begin = random.below(calls.len());
        let len = 1 + random.below(COMMANDS_MAX.min(calls.len() - begin));
        let last = if random.one_in(10) { "DISCARD" } else { "EXEC" };
        calls.insert(begin, vec![b"MULTI".to_vec()]);
        let end = begin + len + 1;
        calls.insert(end, vec![last.into()]);
        Self { begin, end }
    }

    /// Puts the replies that EXEC has brought in the places of those that said QUEUED, so that each stands where
    /// its command does. What remains in the place of EXEC's is their number.
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
