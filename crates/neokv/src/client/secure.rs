//! TLS of the program's own clients: the flags of redis-cli, and what a connection needs of them.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use clap::{Arg, ArgAction, ArgMatches, Command};
use tls::client::Options;
use tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// How this process connects: its command line says it once, for all connections.
static SECURE: OnceLock<Secure> = OnceLock::new();

struct Secure {
    options: Options,
    config: Arc<ClientConfig>,
}

/// Adds the flags; `is_global`: also to all subcommands.
pub fn with_flags(command: Command, is_global: bool) -> Command {
    // Their ids are not their names: `neokv table` has a KEY of its own.
    let file = |id: &'static str, value: &'static str, help: &'static str| {
        Arg::new(id)
            .long(id.trim_start_matches("tls-"))
            .value_name(value)
            .value_parser(clap::value_parser!(PathBuf))
            .help(help)
            .global(is_global)
    };
    let switch = |id: &'static str, help: &'static str| {
        let name = id.trim_start_matches("tls-");
        let arg = Arg::new(id).long(name).action(ArgAction::SetTrue);
        arg.help(help).global(is_global)
    };
    let sni = Arg::new("tls-sni")
        .long("sni")
        .value_name("NAME")
        .help("Name that the certificate of the node must have, if it is to be looked at")
        .global(is_global);
    command
        .arg(switch("tls", "Speak TLS"))
        .arg(file(
            "tls-cacert",
            "FILE",
            "Authorities that are trusted (PEM); the system's, if none are given",
        ))
        .arg(file(
            "tls-cacertdir",
            "FOLDER",
            "Folder of such authorities",
        ))
        .arg(file("tls-cert", "FILE", "Certificate to show (PEM)"))
        .arg(file("tls-key", "FILE", "Key of that certificate (PEM)"))
        .arg(sni)
        .arg(switch("tls-insecure", "Trust whatever the node shows"))
}

/// Reads what the flags name. Without `--tls` there is no TLS.
pub fn take(matches: &ArgMatches) -> Result<(), String> {
    if !matches.get_flag("tls") {
        return Ok(());
    }
    let file = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let options = Options {
        authorities_file: file("tls-cacert"),
        authorities_folder: file("tls-cacertdir"),
        certificate: file("tls-cert"),
        key: file("tls-key"),
        insecure: matches.get_flag("tls-insecure"),
        name: matches.get_one::<String>("tls-sni").cloned(),
    };
    let config = options.configuration().map_err(|why| why.to_string())?;
    let _ = SECURE.set(Secure { options, config });
    Ok(())
}

/// The connection with TLS, if it is to have it.
pub fn wrap(stream: TcpStream, host: &str) -> Result<Result<Stream, TcpStream>, String> {
    let Some(secure) = SECURE.get() else {
        return Ok(Err(stream));
    };
    let failed = |why: &dyn std::fmt::Display| format!("TLS: {why}");
    let name = secure
        .options
        .server_name(host)
        .map_err(|why| failed(&why))?;
    let connection = ClientConnection::new(secure.config.clone(), name);
    let mut stream = StreamOwned::new(connection.map_err(|why| failed(&why))?, stream);
    while stream.conn.is_handshaking() {
        let done = stream.conn.complete_io(&mut stream.sock);
        done.map_err(|why| failed(&why))?;
    }
    Ok(Ok(stream))
}
