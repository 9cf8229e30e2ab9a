//! Decides which role may make which call. A call that is not in the table is nobody's.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use super::{Caller, Peer, Refusals};

/// Whether a caller may make a call, such as `/weft.v1.Status/Read`.
///
/// # Errors
/// PERMISSION_DENIED, with who may.
pub fn check(caller: &Caller, call: &str) -> Result<(), Status> {
    let identity = match caller {
        Caller::Anyone => return Ok(()),
        Caller::Stranger => {
            let problem =
                "the certificate names no role: its alternative names lack a weft:role/ URI";
            return Err(Status::permission_denied(problem));
        }
        Caller::Known(identity) => identity,
    };
    let role = RIGHTS.iter().find(|(known, _)| *known == call).map(|(_, role)| *role);
    match role {
        Some(role) if role == identity.role() => Ok(()),
        Some(role) => Err(Status::permission_denied(format!(
            "{call} is for the role {role}; this certificate is of {identity}"
        ))),
        None => Err(Status::permission_denied(format!("{call} is for no role"))),
    }
}

/// The role that makes each call.
const RIGHTS: &[(&str, &str)] = &[
    ("/weft.v1.Workers/Attach", "worker"),
    ("/weft.v1.Workers/RegisterJob", "operator"),
    ("/weft.v1.Workers/UnregisterJob", "operator"),
    ("/weft.v1.Workers/Hold", "operator"),
    ("/weft.v1.Workers/PauseJob", "operator"),
    ("/weft.v1.Workers/ResumeJob", "operator"),
    ("/weft.v1.Workers/ResizeJob", "operator"),
    ("/weft.v1.Workers/SetBandPolicy", "operator"),
    ("/weft.v1.Nodes/Attach", "node"),
    ("/weft.v1.Status/Read", "operator"),
];

/// Services behind the table.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    inner: S,
    refusals: Arc<Refusals>,
}

impl<S> Guard<S> {
    /// In front of `inner`.
    pub const fn new(inner: S, refusals: Arc<Refusals>) -> Self {
        Self { inner, refusals }
    }
}

impl<S> Service<http::Request<Body>> for Guard<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>();
        let caller = peer.map_or(&Caller::Stranger, |peer| &peer.caller);
        match check(caller, request.uri().path()) {
            Ok(()) => {
                let call = peer.map(|peer| peer.calls.begin());
                let answer = self.inner.call(request);
                Box::pin(async move {
                    let _call = call;
                    answer.await
                })
            }
            Err(status) => {
                self.refusals.calls.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move { Ok(status.into_http()) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_rpc::identity::Identity;

    use super::*;

    #[test]
    fn every_call_of_the_interface_has_its_role() {
        let files = [
            include_str!("../../../../proto/rpc/weft/v1/worker.proto"),
            include_str!("../../../../proto/rpc/weft/v1/node.proto"),
            include_str!("../../../../proto/rpc/weft/v1/status.proto"),
        ];
        let mut calls = Vec::new();
        let mut service = "";
        for line in files.iter().flat_map(|file| file.lines()) {
            let words: Vec<&str> = line.split([' ', '(', '{']).filter(|w| !w.is_empty()).collect();
            match words.as_slice() {
                ["service", name, ..] => service = name,
                ["rpc", name, ..] => calls.push(format!("/weft.v1.{service}/{name}")),
                _ => {}
            }
        }
        let known: Vec<&str> = RIGHTS.iter().map(|(call, _)| *call).collect();
        assert_eq!(calls, known);
    }

    #[test]
    fn a_call_that_is_not_in_the_table_is_nobodys() {
        for role in ["controller", "operator", "node", "worker"] {
            let identity: Identity = format!("weft:role/{role}").parse().unwrap();
            let caller = Caller::Known(identity);
            assert!(check(&caller, "/weft.v1.Workers/Unheard").is_err());
            assert!(check(&caller, "").is_err());
        }
    }
}
