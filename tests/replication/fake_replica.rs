//! The test as a replica: it receives a full copy, and then reads the stream.

use tierce_harness::{Connection, Reply, Server};

/// Reads up to the end of a line, and skips the newlines that keep the link alive.
pub(crate) fn line(replica: &mut Connection) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(replica.read_exactly(1));
        if line == b"\n" {
            line.clear();
        }
    }
    String::from_utf8(line).expect("text").trim_end().to_owned()
}

/// Reads a copy: the bytes between its header and its end mark.
pub(crate) fn copy(replica: &mut Connection) -> Vec<u8> {
    let frame = line(replica);
    let mark = frame.strip_prefix("$EOF:").expect("a copy without a length").as_bytes().to_vec();
    assert_eq!(mark.len(), 40);
    let mut bytes = Vec::new();
    while !bytes.ends_with(&mark) {
        bytes.extend(replica.read_exactly(1));
    }
    bytes.truncate(bytes.len() - mark.len());
    bytes
}

/// A replica that has got its copy.
pub(crate) struct Replica {
    pub(crate) connection: Connection,
    pub(crate) id: String,
    /// Offset in the stream that it has received.
    pub(crate) offset: u64,
}

impl Replica {
    /// Connects, and receives a full copy.
    pub(crate) fn new(server: &Server) -> Self {
        Self::listening(server, 6380)
    }

    /// Like `new`, for a replica that announces a listening port.
    pub(crate) fn listening(server: &Server, port: u16) -> Self {
        let mut connection = server.connect();
        connection.check(&format!("REPLCONF listening-port {port}"), "+OK");
        connection.check("REPLCONF capa eof capa psync2", "+OK");
        connection.send("PSYNC ? -1\r\n");
        let told = line(&mut connection);
        let mut words = told.split(' ').skip(1).map(str::to_owned);
        let id = words.next().expect("a name");
        let offset = words.next().expect("an offset").parse().expect("a number");
        copy(&mut connection);
        let mut replica = Self { connection, id, offset };
        replica.acknowledge();
        replica
    }

    /// Reconnects, and asks for the rest. Returns the primary's answer.
    pub(crate) fn come_back(&mut self, server: &Server) -> String {
        self.connection = server.connect();
        self.connection.check("REPLCONF capa eof capa psync2", "+OK");
        self.connection.send(format!("PSYNC {} {}\r\n", self.id, self.offset + 1));
        line(&mut self.connection)
    }

    /// Like `come_back`, without support for a full copy.
    pub(super) fn come_back_plainly(&mut self, server: &Server) -> String {
        self.connection = server.connect();
        self.connection.send(format!("PSYNC {} {}\r\n", self.id, self.offset + 1));
        line(&mut self.connection)
    }

    pub(crate) fn acknowledge(&mut self) {
        self.connection.send(format!("REPLCONF ACK {}\r\n", self.offset));
    }

    /// Returns the next command, in words. Answers a request for acknowledgement.
    pub(crate) fn command(&mut self) -> String {
        let bytes = self.connection.reply_bytes();
        self.offset += bytes.len() as u64;
        let (reply, _) = Reply::decode(&bytes).expect("a command");
        let words: Vec<_> = reply.items().iter().map(Reply::text).collect();
        words.join(" ")
    }

    /// Returns the commands up to this one.
    pub(crate) fn commands_until(&mut self, last: &str) -> Vec<String> {
        let mut commands = Vec::new();
        while commands.last().is_none_or(|command| command != last) {
            commands.push(self.command());
        }
        commands
    }
}
