//! Comparison of all keys of two servers.

use tierce_harness::{Reply, encode};

use super::comparison::Comparison;
use super::run::{CONNECTIONS, DifferentialRun, Outcome, Side, differ};
use super::stream::{Call, DATABASES};

/// Number of requests that are sent before their replies are read.
const BATCH: usize = 100;

impl DifferentialRun {
    /// Compares the whole data sets: keys, values, encodings and deadlines in all databases.
    pub(super) fn audit(&mut self) -> Outcome {
        for db in 0..DATABASES {
            self.audit_call(&format!("SELECT {db}"))?;
            self.audit_call("DBSIZE")?;
            let keys = self.audit_call("KEYS *")?;
            self.audit_scan(keys.items())?;
            let keys: Vec<Vec<u8>> = keys.items().iter().map(|key| key.bytes().to_vec()).collect();
            self.audit_keys(&keys)?;
        }
        Ok(())
    }

    /// Compares everything about these keys of the auditor's database.
    pub(super) fn audit_keys(&mut self, keys: &[Vec<u8>]) -> Outcome {
        let with = |words: &[&str], key: &Vec<u8>| {
            let mut call: Call = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            call.insert(call.len().min(1), key.clone());
            call
        };
        let types: Vec<Call> = keys.iter().map(|key| with(&["TYPE"], key)).collect();
        let types = self.audit_all(&types)?;
        let mut calls = Vec::new();
        for (key, kind) in keys.iter().zip(types) {
            let read: &[&[&str]] = match kind.text() {
                "string" => &[&["GET"], &["STRLEN"]],
                "list" => &[&["LRANGE", "0", "-1"], &["LLEN"]],
                "set" => &[&["SMEMBERS"], &["SCARD"]],
                "hash" => &[&["HGETALL"], &["HLEN"]],
                "zset" => &[&["ZRANGE", "0", "-1", "WITHSCORES"], &["ZCARD"]],
                "stream" => &[&["XRANGE", "-", "+"], &["XLEN"]],
                _ => &[],
            };
            calls.extend(read.iter().map(|words| with(words, key)));
            calls.push(with(&["PEXPIRETIME"], key));
            calls.push(vec![b"OBJECT".to_vec(), b"ENCODING".to_vec(), key.clone()]);
            if kind.text() == "stream" {
                let whole = ["XINFO", "STREAM", "", "FULL", "COUNT", "0"];
                let mut whole = whole.map(|word| word.as_bytes().to_vec()).to_vec();
                whole[2].clone_from(key);
                calls.push(whole);
            }
        }
        self.audit_all(&calls).map(drop)
    }

    /// Checks that a full iteration finds all keys.
    fn audit_scan(&mut self, keys: &[Reply]) -> Outcome {
        let mut expected: Vec<_> = keys.iter().map(|key| key.bytes().to_vec()).collect();
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = self.tested.auditor.ask(&format!("SCAN {cursor} COUNT 20"));
            found.extend(reply.items()[1].items().iter().map(|key| key.bytes().to_vec()));
            reply.items()[0].text().clone_into(&mut cursor);
            if cursor == "0" {
                break;
            }
        }
        expected.sort();
        found.sort();
        found.dedup();
        if found == expected {
            return Ok(());
        }
        differ(&vec![b"SCAN".to_vec()], &found.join(&b' '), &expected.join(&b' '), Vec::new())
    }

    /// Returns the reply of the reference. The tested server has to give the same reply.
    pub(super) fn audit_call(&mut self, line: &str) -> Outcome<Reply> {
        let call = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Ok(self.audit_all(&[call])?.remove(0))
    }

    /// Returns the replies of the reference.
    pub(super) fn audit_all(&mut self, calls: &[Call]) -> Outcome<Vec<Reply>> {
        let mut replies = Vec::with_capacity(calls.len());
        for batch in calls.chunks(BATCH) {
            let bytes: Vec<u8> = batch.iter().flat_map(|call| encode(call)).collect();
            self.tested.auditor.send(&bytes);
            self.reference.auditor.send(&bytes);
            for call in batch {
                let read = |side: &mut Side| side.auditor.reply_bytes();
                let (tested, reference) = (read(&mut self.tested), read(&mut self.reference));
                if !Comparison::of(call).accepts(call, &tested, &reference) {
                    let before = self.history.of_keys_in(call, CONNECTIONS, &[]);
                    return differ(call, &tested, &reference, before);
                }
                replies.push(Reply::decode(&reference).expect("a whole reply").0);
            }
        }
        Ok(replies)
    }
}
