//! Known algorithms with exact lists, for comparison. Written for clearness, not for use.

use std::collections::{HashMap, VecDeque};

use crate::Cache;

/// Evicts the key whose last use is longest ago.
pub struct Lru {
    room: usize,
    /// The number of the last use of each key.
    last_use: HashMap<u64, u64>,
    /// All uses; those that are not the last of their key are skipped.
    uses: VecDeque<(u64, u64)>,
    count: u64,
}

impl Lru {
    pub fn new(room: usize) -> Self {
        Self { room, last_use: HashMap::new(), uses: VecDeque::new(), count: 0 }
    }
}

impl Cache for Lru {
    fn ask(&mut self, key: u64, _: i64) -> bool {
        let is_hit = self.last_use.contains_key(&key);
        while !is_hit && self.last_use.len() >= self.room {
            let (oldest, number) = self.uses.pop_front().expect("each key has a use");
            if self.last_use[&oldest] == number {
                self.last_use.remove(&oldest);
                break;
            }
        }
        // Uses of keys that are gone were dropped together with them.
        while let Some((key, number)) = self.uses.front()
            && self.last_use.get(key) != Some(number)
        {
            self.uses.pop_front();
        }
        self.count += 1;
        self.last_use.insert(key, self.count);
        self.uses.push_back((key, self.count));
        is_hit
    }
}

/// A queue with a hand that moves from the oldest to the newest key. It evicts the first that was
/// not used since its last pass. Used keys keep their position.
pub struct Sieve {
    room: usize,
    /// From the oldest to the newest; `None` where a key was evicted.
    queue: VecDeque<Option<(u64, bool)>>,
    /// Number of slots removed from the front of the queue.
    gone: usize,
    places: HashMap<u64, usize>,
    hand: usize,
}

impl Sieve {
    pub fn new(room: usize) -> Self {
        Self { room, queue: VecDeque::new(), gone: 0, places: HashMap::new(), hand: 0 }
    }

    fn evict(&mut self) {
        loop {
            if self.hand >= self.gone + self.queue.len() {
                self.hand = self.gone;
            }
            let place = &mut self.queue[self.hand - self.gone];
            self.hand += 1;
            match place {
                Some((_, used)) if *used => *used = false,
                Some((key, _)) => {
                    self.places.remove(key);
                    *place = None;
                    break;
                }
                None => {}
            }
        }
        while self.queue.front().is_some_and(Option::is_none) {
            self.queue.pop_front();
            self.gone += 1;
        }
        self.hand = self.hand.max(self.gone);
        self.close_gaps();
    }

    /// Keeps the queue from becoming much longer than its number of keys.
    fn close_gaps(&mut self) {
        if self.queue.len() < 4 * self.room {
            return;
        }
        let behind = self.queue.iter().take(self.hand - self.gone).flatten().count();
        self.queue.retain(Option::is_some);
        self.gone = 0;
        self.hand = behind;
        let keys = self.queue.iter().flatten().enumerate();
        self.places = keys.map(|(place, (key, _))| (*key, place)).collect();
    }
}

impl Cache for Sieve {
    fn ask(&mut self, key: u64, _: i64) -> bool {
        if let Some(place) = self.places.get(&key) {
            self.queue[place - self.gone] = Some((key, true));
            return true;
        }
        while self.places.len() >= self.room {
            self.evict();
        }
        self.places.insert(key, self.gone + self.queue.len());
        self.queue.push_back(Some((key, false)));
        false
    }
}

/// Two queues: new keys wait in a tenth of the room. They move to the large queue if they are used
/// twice, or requested again soon after their eviction.
pub struct S3Fifo {
    room: usize,
    uses: HashMap<u64, u8>,
    small: VecDeque<u64>,
    large: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    /// Number of occurrences of each key among the ghosts.
    haunting: HashMap<u64, u32>,
}

impl S3Fifo {
    const USES_MAX: u8 = 3;

    pub fn new(room: usize) -> Self {
        Self {
            room,
            uses: HashMap::new(),
            small: VecDeque::new(),
            large: VecDeque::new(),
            ghosts: VecDeque::new(),
            haunting: HashMap::new(),
        }
    }

    fn evict(&mut self) {
        if self.small.len() * 10 >= self.room || self.large.is_empty() {
            let key = self.small.pop_front().expect("there are keys");
            if self.uses[&key] > 1 {
                self.uses.insert(key, 0);
                self.large.push_back(key);
            } else {
                self.uses.remove(&key);
                self.remember(key);
            }
        } else {
            let key = self.large.pop_front().expect("checked above");
            match self.uses[&key] {
                0 => _ = self.uses.remove(&key),
                uses => {
                    self.uses.insert(key, uses - 1);
                    self.large.push_back(key);
                }
            }
        }
    }

    fn remember(&mut self, key: u64) {
        self.ghosts.push_back(key);
        *self.haunting.entry(key).or_default() += 1;
        if self.ghosts.len() > self.room {
            let oldest = self.ghosts.pop_front().expect("there are more than fit");
            let count = self.haunting.get_mut(&oldest).expect("each ghost is counted");
            *count -= 1;
            if *count == 0 {
                self.haunting.remove(&oldest);
            }
        }
    }
}

impl Cache for S3Fifo {
    fn ask(&mut self, key: u64, _: i64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(Self::USES_MAX);
            return true;
        }
        while self.uses.len() >= self.room {
            self.evict();
        }
        if self.haunting.contains_key(&key) {
            self.large.push_back(key);
        } else {
            self.small.push_back(key);
        }
        self.uses.insert(key, 0);
        false
    }
}
