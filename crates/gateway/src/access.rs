//! Who may ask at the HTTP port: the users of the Redis port, with the same passwords and the same rights.
//!
//! A user is named by `authorization: Basic` (name and password) or, for the default user, by `authorization: Bearer <password>`; gRPC
//! carries the same as metadata. Who names nobody is the default user, if that needs no password.

use std::net::SocketAddr;
use std::sync::Arc;

use acl::{DEFAULT, User};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Response, StatusCode};
use runtime::Shared;
use runtime::cores::CommandList;
use stats::clients::is_local;
use tonic::body::Body;

use super::serve::page;

/// Why somebody is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// `protected-mode`.
    Remote,
    /// A name and a password are needed, or those given are wrong.
    Unknown(String),
    /// The user has no right to this.
    Right(String),
}

const REMOTE: &str =
    "protected mode: only clients on this machine are answered (protected-mode, requirepass)";
const NEEDED: &str = "a password is needed: `authorization: Basic` with a user of ACL LIST, or \
                      `authorization: Bearer <password>` for the default user (requirepass)";

impl Denied {
    pub fn into_page(self) -> Response<Body> {
        let (status, text) = match self {
            Denied::Remote => (StatusCode::FORBIDDEN, REMOTE.to_owned()),
            Denied::Unknown(text) => (StatusCode::UNAUTHORIZED, text),
            Denied::Right(text) => (StatusCode::FORBIDDEN, text),
        };
        let mut response = page(status, format!("{text}\n"));
        if status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Basic realm=\"neokv\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        response
    }

    pub fn into_status(self) -> tonic::Status {
        match self {
            Denied::Remote => tonic::Status::permission_denied(REMOTE),
            Denied::Unknown(text) => tonic::Status::unauthenticated(text),
            Denied::Right(text) => tonic::Status::permission_denied(text),
        }
    }
}

/// Whether clients from there are answered at all.
pub fn is_reachable(shared: &Shared, peer: SocketAddr) -> Result<(), Denied> {
    let is_protected = shared.settings.current().protected_mode;
    match is_protected && !shared.users.has_default_password() && !is_local(peer) {
        true => Err(Denied::Remote),
        false => Ok(()),
    }
}

/// The user that a call names.
pub fn user_of(
    shared: &Shared,
    headers: &HeaderMap,
    peer: SocketAddr,
) -> Result<Arc<User>, Denied> {
    is_reachable(shared, peer)?;
    let Some(given) = headers.get(AUTHORIZATION) else {
        let users = shared.users.load();
        let default = users.named(DEFAULT).filter(|user| user.is_open());
        let default = default.filter(|_| shared.users.is_known());
        return default.cloned().ok_or(Denied::Unknown(NEEDED.into()));
    };
    let (name, password) =
        credentials(given.as_bytes()).ok_or_else(|| Denied::Unknown(NEEDED.into()))?;
    shared
        .log_in(&name, &password, &peer.to_string())
        .map_err(|refusal| Denied::Unknown(refusal.text().to_owned()))
}

/// Name and password of an `authorization`.
fn credentials(given: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if let Some(password) = given.strip_prefix(b"Bearer ") {
        return Some((DEFAULT.to_vec(), password.to_vec()));
    }
    let plain = STANDARD
        .decode(given.strip_prefix(b"Basic ")?.trim_ascii())
        .ok()?;
    let colon = plain.iter().position(|&byte| byte == b':')?;
    let (name, password) = plain.split_at(colon);
    Some((name.to_vec(), password.get(1..)?.to_vec()))
}

/// Whether a user may run the command that a call or a page stands for.
pub fn may_run<W: AsRef<[u8]>>(shared: &Shared, user: &User, words: &[W]) -> Result<(), Denied> {
    if user.may_do_everything() {
        return Ok(());
    }
    let mut command = CommandList::default();
    command.push_all(words.iter().map(AsRef::as_ref));
    let args = command.args(0);
    let right = |text: &str| Denied::Right(text.to_owned());
    let table = &shared.commands.table;
    let (number, spec) = table
        .resolve(&args)
        .map_err(|refusal| right(refusal.text()))?;
    let stat = shared.commands.stat_number(number, spec);
    let checked = user.check(stat, spec, &args);
    checked.map_err(|denied| right(denied.refusal(spec).text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords() {
        let text = |given: &str| {
            let (name, password) = credentials(given.as_bytes())?;
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            Some((text(name), text(password)))
        };
        let pair = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(text("Bearer a:b"), pair("default", "a:b"));
        assert_eq!(text("Basic YTpiOmM="), pair("a", "b:c"));
        for bad in ["", "Basic", "Basic !", "Basic YWJj", "Digest x"] {
            assert_eq!(text(bad), None, "{bad}");
        }
    }
}
