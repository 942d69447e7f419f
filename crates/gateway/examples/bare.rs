//! The upper bound for JSON over HTTP: hyper and axum as in the gateway, on this kind of runtime, with a handler that
//! only returns `{"result":"value"}`. Compare requests per second of CPU time with those of the server:
//!
//! ```sh
//! cargo run --release -p tierce-gateway --example bare -- 8081
//! ```

use std::error::Error;
use std::net::Ipv4Addr;

use axum::Router;
use axum::extract::Path;
use axum::http::header;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("usage: bare PORT")?.parse()?;
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(serve(port))
}

async fn serve(port: u16) -> Result<(), Box<dyn Error>> {
    let json = [(header::CONTENT_TYPE, "application/json")];
    let handler = move |Path(_): Path<String>| async move { (json, r#"{"result":"value"}"#) };
    let routes = Router::new().route("/get/{key}", get(handler));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
