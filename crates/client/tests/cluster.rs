//! Keys on several servers, and the loss of one.

use tierce_client::pedrokv::Client;
use tierce_client::testing::FakeServer;
use tierce_client::{Cluster, Config, Error, Failover, Offline, Server};

fn key(n: u32) -> Vec<u8> {
    format!("key{n}").into_bytes()
}

fn cluster(servers: &[FakeServer], failover: Failover) -> Cluster<Client> {
    let named: Vec<Server> = servers
        .iter()
        .enumerate()
        .map(|(index, server)| Server::new(server.address()).name(format!("shard{index}")))
        .collect();
    let config = Config { offline: Offline::Fail, ..Config::default() };
    Cluster::new(&named, failover, |server| Client::connect(server.address(), config.clone()))
        .unwrap()
}

/// Waits until the client has noticed that its server is gone.
fn wait_down(client: &Client) {
    while !client.is_down() {
        let _ = client.get(b"key").wait();
    }
}

#[test]
fn each_server_has_its_share_of_the_keys() {
    let servers = [FakeServer::pedrokv(), FakeServer::pedrokv(), FakeServer::pedrokv()];
    let cluster = cluster(&servers, Failover::Fail);
    for n in 0..300 {
        cluster.client(&key(n)).put(&key(n), &key(n)).wait().unwrap();
    }
    for n in 0..300 {
        let value = cluster.client(&key(n)).get(&key(n)).wait().unwrap();
        assert_eq!(value, Some(key(n)));
    }
    assert!(servers.iter().all(|server| server.requests() > 100));
}

#[test]
fn a_dead_server_is_what_the_user_makes_of_it() {
    for failover in [Failover::Fail, Failover::Next] {
        let mut servers = vec![FakeServer::pedrokv(), FakeServer::pedrokv()];
        let cluster = cluster(&servers, failover);
        drop(servers.pop());
        wait_down(&cluster.clients()[1]);
        let mut failed = 0;
        for n in 0..100 {
            match cluster.client(&key(n)).put(&key(n), b"x").wait() {
                Ok(()) => {}
                Err(Error::Unreachable(_)) => failed += 1,
                other => panic!("{other:?}"),
            }
        }
        match failover {
            Failover::Fail => assert!((20..80).contains(&failed), "{failed} failed"),
            Failover::Next => assert_eq!(failed, 0),
        }
    }
}
