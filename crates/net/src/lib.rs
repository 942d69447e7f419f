//! Event loops on epoll: acceptor, workers, connections, timers, mailboxes, buffers.
