//! An attacker: it opens connections, ends them in every way, and keeps some open for later.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::attack::ATTACKS;
use super::target::Target;
use super::{Abuse, Extent};
use crate::Random;

/// Maximum time that an abuser listens or sends before it does something else.
pub(super) const ATTENTION: Duration = Duration::from_millis(5);

/// A connection in the middle of an attack.
pub(super) struct Victim {
    pub(super) stream: TcpStream,
    /// Bytes that may still be sent, one at a time.
    pub(super) rest: VecDeque<u8>,
}

pub(super) struct Abuser<'a> {
    target: &'a Target,
    random: Random,
    /// Connections that are left open. The abuser reads nothing from them.
    parked: VecDeque<Victim>,
    parked_max: usize,
    attacks: BTreeMap<&'static str, usize>,
}

impl<'a> Abuser<'a> {
    pub(super) fn new(target: &'a Target, abuse: &Abuse, number: usize) -> Self {
        Self {
            target,
            random: Random::new(abuse.seed.wrapping_add((number as u64) << 32)),
            parked: VecDeque::new(),
            parked_max: abuse.parked_each,
            attacks: BTreeMap::new(),
        }
    }

    /// Attacks until it has done enough, and returns the number of attacks of each kind.
    pub(super) fn attack(mut self, extent: Extent) -> BTreeMap<&'static str, usize> {
        let start = Instant::now();
        let mut attacks = 0;
        while !extent.is_over(attacks, start) {
            let (kind, attack) = ATTACKS[self.random.below(ATTACKS.len())];
            // The server may refuse the connection, or end it at any time, because it has limits for that.
            if let Ok(victim) = attack(self.target, &mut self.random) {
                self.leave(victim);
            }
            *self.attacks.entry(kind).or_insert(0) += 1;
            attacks += 1;
            self.dribble();
        }
        while let Some(victim) = self.parked.pop_front() {
            self.end(victim);
        }
        self.attacks
    }

    /// Keeps the connection, or ends it.
    fn leave(&mut self, victim: Victim) {
        if self.random.below(3) > 0 {
            return self.end(victim);
        }
        self.parked.push_back(victim);
        if self.parked.len() > self.parked_max {
            let oldest = self.parked.pop_front().expect("more than the maximum");
            self.end(oldest);
        }
    }

    /// Sends one more byte on a few of the open connections.
    fn dribble(&mut self) {
        for _ in 0..4.min(self.parked.len()) {
            let at = self.random.below(self.parked.len());
            let victim = &mut self.parked[at];
            if let Some(byte) = victim.rest.pop_front()
                && victim.stream.write_all(&[byte]).is_err()
            {
                self.parked.swap_remove_back(at);
            }
        }
    }

    fn end(&mut self, victim: Victim) {
        let stream = victim.stream;
        match self.random.below(4) {
            0 => {}
            1 => reset(&stream),
            2 => {
                listen(&stream);
                reset(&stream);
            }
            _ => {
                let _ = stream.shutdown(Shutdown::Write);
                listen(&stream);
            }
        }
    }
}

/// Makes the connection end with a reset when it is dropped.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Reads until nothing comes for a moment, or too much.
fn listen(mut stream: &TcpStream) {
    const HEARD_MAX: usize = 1 << 20;
    let (mut buffer, mut heard) = ([0; 16 * 1024], 0);
    while heard < HEARD_MAX {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => heard += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
