//! How far a replica that lags can be from its server, in f64 (DESIGN I5; facts on MLfabric 2.3).
//!
//! With k commits missing, w_s - w_r = g geo(k) h_r + sum of geo(k - i + 1) u_i, with geo(m) the
//! sum of the first m powers of g; the bound takes norms on the right. A group is one u, because
//! server and replica take the momentum once per group alike. O(k).

/// Bound of the distance between a server and a replica that has not applied the commits with
/// these norms, oldest first. `momentum_norm` is the norm of the momentum term where it stands.
#[must_use]
pub fn divergence_bound(
    momentum: f64,
    momentum_norm: f64,
    missing: impl DoubleEndedIterator<Item = f64>,
) -> f64 {
    let mut geo = 0.0;
    let mut sum = 0.0;
    for norm in missing.rev() {
        geo = 1.0 + momentum * geo;
        sum += geo * norm;
    }
    sum + momentum * geo * momentum_norm
}
