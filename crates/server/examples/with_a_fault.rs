//! A server with a fault that `scripts/linearizability` has to find: its transactions do not lock their keys together,
//! so other clients' commands run in between. It takes the command line of the server.

use std::error::Error;

use tierce_config::{Invocation, parse};
use tierce_keyspace::planted::{Fault, plant_everywhere};
use tierce_server::Instance;

fn main() -> Result<(), Box<dyn Error>> {
    plant_everywhere(Fault::TransactionsInPieces);
    let Invocation::Serve(sources) = parse(std::env::args_os().skip(1), std::env::vars_os(), &[])?
    else {
        return Err("it only serves".into());
    };
    Instance::start(sources.load(&mut std::io::empty())?.settings)?.wait();
    Ok(())
}
