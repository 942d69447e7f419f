//! All servers and their connections, and the events.

use tierce_harness::Random;
use tierce_replication::identity::{Identity, Previous, Refusal, Wish};
use tierce_replication::link::{Event, LinkError, Position};

use super::Fault;
use super::connection::Connection;
use super::server::Server;
use super::truth::Truth;

/// Number of steps of a run.
const STEPS: usize = 600;

/// Upper bound of rounds, with full delivery, until all servers must agree.
const ROUNDS_MAX: usize = 100;

/// Number of times that each event has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    copies: usize,
    /// Full copies that broke off.
    copies_cut: usize,
    continued: usize,
    /// Continued under another id.
    renamed: usize,
    /// Continued by a server that is a replica itself.
    continued_in_chains: usize,
    transactions_cut: usize,
    promotions: usize,
    power_cuts: usize,
    other_streams: usize,
    ahead: usize,
    not_kept: usize,
}

impl Seen {
    fn counts(&mut self) -> [&mut usize; 11] {
        let Self { copies, copies_cut, continued, renamed, continued_in_chains, .. } = self;
        let Self {
            transactions_cut, promotions, power_cuts, other_streams, ahead, not_kept, ..
        } = self;
        [
            copies,
            copies_cut,
            continued,
            renamed,
            continued_in_chains,
            transactions_cut,
            promotions,
            power_cuts,
            other_streams,
            ahead,
            not_kept,
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        self.counts().into_iter().zip(other.counts()).for_each(|(sum, count)| *sum += *count);
    }

    pub(crate) fn is_complete(mut self) -> bool {
        self.counts().into_iter().all(|count| *count > 0)
    }
}

pub(crate) struct World {
    servers: Vec<Server>,
    /// Connection of each replica to the server that it follows.
    connections: Vec<Option<Connection>>,
    /// Pairs of servers without delivery between them: the lower number first.
    partitions: Vec<(usize, usize)>,
    truth: Truth,
    random: Random,
    fault: Option<Fault>,
    seen: Seen,
}

impl World {
    /// Returns three or four servers; each follows none or another one.
    pub(crate) fn new(seed: u64, fault: Option<Fault>) -> Self {
        let (mut random, mut truth) = (Random::new(seed), Truth::default());
        let count = 3 + random.below(2);
        let mut servers: Vec<_> =
            (0..count).map(|_| Server::new(&mut truth, 1 + random.u64_below(40), fault)).collect();
        for (number, server) in servers.iter_mut().enumerate().skip(1) {
            server.follow(random.below(number));
        }
        let connections = (0..count).map(|_| None).collect();
        let (partitions, seen) = (Vec::new(), Seen::default());
        Self { servers, connections, partitions, truth, random, fault, seen }
    }

    /// Runs all steps. Returns the counts of events, or a violation.
    pub(crate) fn run(mut self) -> Result<Seen, String> {
        for step in 0..STEPS {
            self.step()
                .and_then(|()| self.check())
                .map_err(|what| format!("step {step}: {what}"))?;
        }
        self.heal().map_err(|what| format!("when nothing fails any more: {what}"))?;
        Ok(self.seen)
    }

    fn step(&mut self) -> Result<(), String> {
        let server = self.random.below(self.servers.len());
        match self.random.below(400) {
            0..50 => self.write(server),
            50..100 => self.connect(server),
            100..370 => {
                let max =
                    if self.random.one_in(2) { usize::MAX } else { 1 + self.random.below(90) };
                self.move_bytes(server, max)
            }
            370..380 => {
                self.disconnect(server);
                Ok(())
            }
            380..384 => self.restart(server),
            384..388 => {
                self.promote(server);
                Ok(())
            }
            388..393 => {
                self.follow(server);
                Ok(())
            }
            393..395 => {
                self.part(server);
                Ok(())
            }
            _ => {
                self.servers[server].sync();
                Ok(())
            }
        }
    }

    /// Makes a server follow another one.
    fn follow(&mut self, server: usize) {
        let other = self.random.below(self.servers.len());
        if other != server {
            self.disconnect(server);
            self.disconnect_replicas(server);
            self.servers[server].follow(other);
        }
    }

    /// Begins or ends a partition between a server and another one.
    fn part(&mut self, server: usize) {
        let other = self.random.below(self.servers.len());
        let pair = (server.min(other), server.max(other));
        match self.partitions.iter().position(|partition| *partition == pair) {
            Some(found) => _ = self.partitions.remove(found),
            None => self.partitions.push(pair),
        }
    }

    /// Checks that the data of each server are those of its position.
    fn check(&self) -> Result<(), String> {
        self.servers.iter().enumerate().try_for_each(|(number, server)| {
            let checked = self.truth.check(server.now.position, &server.now.data);
            checked.map_err(|what| format!("server {number}: {what}"))
        })
    }

    fn write(&mut self, server: usize) -> Result<(), String> {
        match self.servers[server].primary {
            None => self.servers[server].write(&mut self.truth, &mut self.random),
            Some(_) => Ok(()),
        }
    }

    fn connect(&mut self, replica: usize) -> Result<(), String> {
        if self.connections[replica].is_none() && self.servers[replica].primary.is_some() {
            let position = self.servers[replica].now.position;
            self.connections[replica] = Some(Connection::new(position));
        }
        Ok(())
    }

    fn disconnect(&mut self, replica: usize) {
        if let Some(connection) = self.connections[replica].take() {
            self.seen.copies_cut += usize::from(connection.copy.is_some());
            self.seen.transactions_cut += usize::from(self.servers[replica].is_in_transaction());
            self.servers[replica].lose_link();
        }
    }

    fn disconnect_replicas(&mut self, primary: usize) {
        for replica in 0..self.servers.len() {
            if self.servers[replica].primary == Some(primary) {
                self.disconnect(replica);
            }
        }
    }

    fn restart(&mut self, server: usize) -> Result<(), String> {
        self.disconnect(server);
        self.disconnect_replicas(server);
        let [is_power_cut, keeps_name] = [self.random.one_in(2), self.random.one_in(2)];
        self.seen.power_cuts += usize::from(is_power_cut);
        self.servers[server].restart(is_power_cut, keeps_name, &mut self.truth)
    }

    fn promote(&mut self, server: usize) {
        if self.servers[server].primary.is_none() {
            return;
        }
        self.disconnect(server);
        self.servers[server].promote(&mut self.truth);
        self.seen.promotions += 1;
        if self.fault != Some(Fault::ReplicasStayAtPromotion) {
            self.disconnect_replicas(server);
        }
    }

    /// Delivers at most `max` bytes in each direction, and sends more.
    fn move_bytes(&mut self, replica: usize, max: usize) -> Result<(), String> {
        let Some(primary) = self.servers[replica].primary else { return Ok(()) };
        if self.partitions.contains(&(replica.min(primary), replica.max(primary))) {
            return Ok(());
        }
        let Some(mut connection) = self.connections[replica].take() else { return Ok(()) };
        for request in connection.requests(max) {
            self.reply(replica, primary, &request, &mut connection)?;
        }
        let arrived = connection.arrive(max);
        let is_alive = self.receive(replica, &arrived, &mut connection)? && connection.send(max);
        self.connections[replica] = Some(connection);
        if !is_alive {
            self.disconnect(replica);
        }
        Ok(())
    }

    /// Sends the primary's reply to a request.
    fn reply(
        &mut self,
        replica: usize,
        primary: usize,
        request: &[Vec<u8>],
        connection: &mut Connection,
    ) -> Result<(), String> {
        match (request[0].as_slice(), request.get(1).map(Vec::as_slice)) {
            (b"PING", _) => connection.down.extend(b"+PONG\r\n"),
            (b"REPLCONF", Some(b"ACK")) => {}
            (b"REPLCONF", _) => connection.down.extend(b"+OK\r\n"),
            (b"PSYNC", Some(id)) => {
                let first = request.get(2).and_then(|first| std::str::from_utf8(first).ok());
                let first = first.and_then(|first| first.parse().ok()).unwrap_or(-1);
                return self.accept(replica, primary, Wish::new(id, first), connection);
            }
            _ => return Err(format!("a request {request:?}")),
        }
        Ok(())
    }

    /// Returns true if a server can serve a stream: a replica without a stream cannot.
    fn has_stream(&self, server: usize) -> bool {
        let connection = self.connections[server].as_ref();
        self.servers[server].primary.is_none()
            || connection.is_some_and(|connection| connection.link.is_streaming())
    }

    fn accept(
        &mut self,
        replica: usize,
        primary: usize,
        wish: Wish,
        connection: &mut Connection,
    ) -> Result<(), String> {
        if !self.has_stream(primary) {
            connection.down.extend(b"-NOMASTERLINK wait\r\n");
            return Ok(());
        }
        let server = &self.servers[primary];
        let decided = self.decide(server.identity, wish, server).and_then(|offset| {
            let reader = server.backlog.reader_at(offset).ok_or(Refusal::NotKept)?;
            Ok((offset, reader))
        });
        let id = server.identity.id;
        match decided {
            Ok((offset, reader)) => {
                self.seen.continued += 1;
                self.seen.continued_in_chains += usize::from(server.primary.is_some());
                self.seen.renamed += usize::from(self.servers[replica].now.position.id != id);
                self.truth
                    .check(Position { id, offset }, &self.servers[replica].now.data)
                    .map_err(|what| format!("server {replica} may continue: {what}"))?;
                connection.down.extend(format!("+CONTINUE {id}\r\n").into_bytes());
                connection.reader = Some(reader);
            }
            Err(refusal) => {
                self.seen.copies += 1;
                match refusal {
                    Refusal::OtherStream => self.seen.other_streams += 1,
                    Refusal::Ahead => self.seen.ahead += 1,
                    Refusal::NotKept => self.seen.not_kept += 1,
                    Refusal::Asked => {}
                }
                let Position { offset, .. } = server.now.position;
                let file = server.copy();
                let head = format!("+FULLRESYNC {id} {offset}\r\n${}\r\n", file.len());
                connection.down.extend(head.into_bytes());
                connection.down.extend(file);
                let begins_late = self.fault == Some(Fault::StreamBeginsLate);
                connection.reader = match begins_late {
                    false => server.backlog.reader_at(offset),
                    true => {
                        self.write(primary)?;
                        let server = &self.servers[primary];
                        server.backlog.reader_at(server.backlog.end())
                    }
                };
            }
        }
        Ok(())
    }

    fn decide(&self, identity: Identity, wish: Wish, server: &Server) -> Result<u64, Refusal> {
        let mut identity = identity;
        match (self.fault, wish) {
            (Some(Fault::PreviousNameHasNoEnd), _) => {
                let endless = |previous| Previous { until: u64::MAX, ..previous };
                identity.previous = identity.previous.map(endless);
            }
            (Some(Fault::NamesAreNotCompared), Wish::Rest { id, .. }) => identity.id = id,
            _ => {}
        }
        identity.decide(wish, Some(server.backlog.offsets()))
    }

    /// Delivers bytes to a replica. Returns true if the connection continues.
    fn receive(
        &mut self,
        replica: usize,
        bytes: &[u8],
        connection: &mut Connection,
    ) -> Result<bool, String> {
        connection.link.receive(bytes);
        loop {
            let mut is_new = false;
            let server = &mut self.servers[replica];
            match connection.link.next() {
                Ok(None) => return Ok(true),
                Err(LinkError::NotNow(_)) => return Ok(false),
                Err(error) => return Err(format!("the link of server {replica} fails: {error}")),
                Ok(Some(Event::Copy(position))) => {
                    server.begin_copy(position);
                    connection.copy = Some((position, Vec::new()));
                }
                Ok(Some(Event::Payload(bytes))) => {
                    connection.copy.iter_mut().for_each(|(_, file)| file.extend(bytes));
                }
                Ok(Some(Event::CopyEnds)) => {
                    if let Some((position, file)) = connection.copy.take() {
                        server.load(position, &file)?;
                    }
                }
                Ok(Some(Event::Continues(position))) => is_new = server.go_on(position),
                Ok(Some(Event::Command { args, bytes, offset })) => {
                    let args: Vec<_> = args.iter().map(<[u8]>::to_vec).collect();
                    server.command(&args, bytes, offset);
                }
                Ok(Some(Event::Blank(bytes))) => server.blank(bytes),
            }
            if is_new && self.fault != Some(Fault::ReplicasStayAtNewName) {
                self.disconnect_replicas(replica);
            }
            let server = &self.servers[replica];
            let checked = self.truth.check(server.now.position, &server.now.data);
            checked.map_err(|what| format!("server {replica}: {what}"))?;
        }
    }

    /// Makes one server the only primary; the others follow it or each other in a tree, and everything arrives.
    fn heal(&mut self) -> Result<(), String> {
        self.partitions.clear();
        let count = self.servers.len();
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.random.below(at + 1));
        }
        self.promote(order[0]);
        for at in 1..count {
            let (server, primary) = (order[at], order[self.random.below(at)]);
            if self.servers[server].primary != Some(primary) {
                self.disconnect(server);
                self.disconnect_replicas(server);
                self.servers[server].follow(primary);
            }
        }
        for round in 0..ROUNDS_MAX {
            if round < 3 {
                self.write(order[0])?;
            }
            for server in &order {
                self.connect(*server)?;
                self.move_bytes(*server, usize::MAX)?;
            }
        }
        self.agree(order[0])
    }

    fn agree(&mut self, primary: usize) -> Result<(), String> {
        self.check()?;
        let expected = self.servers[primary].now.clone();
        for (number, server) in self.servers.iter().enumerate() {
            if server.now.position != expected.position || server.now.data != expected.data {
                return Err(format!("server {number} is not where server {primary} is"));
            }
        }
        let mut connections = self.connections.iter_mut().flatten();
        connections.all(Connection::is_quiet).then_some(()).ok_or_else(|| "bytes are left".into())
    }
}
